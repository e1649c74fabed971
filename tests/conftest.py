"""Settings for every test: the same examples in every run, and no limit on how long a slow machine takes for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("project", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("project")

SAFETY = Path(__file__).parent / "safety"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The search for ways to harm a session takes its time: `make test` and `make safety` run it, `make check` not."""
    for item in items:
        if SAFETY in item.path.parents:
            item.add_marker(pytest.mark.slow)
