from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home of its own; nothing of this machine's environment reaches a command."""

    def set_environment(env: Mapping[str, str]) -> None:
        for name in list(os.environ):
            if name not in env:
                monkeypatch.delenv(name)
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    return Home(tmp_path / "home", set_environment)
