"""`demo` shows the main job on any machine, in less time than a cup of tea."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.watching import command, watcher_env


@pytest.mark.slow
def test_the_demo_shows_title_and_recap(tmp_path: Path) -> None:
    """Exit 0, the title and the recap on the screen, nothing left behind."""
    env = watcher_env(tmp_path / "home", tmp_path / "state") | {"TMPDIR": str(tmp_path / "tmp")}
    for folder in ("home", "tmp"):
        (tmp_path / folder).mkdir()
    done = command(env, "demo")
    assert done.returncode == 0, done.stderr
    assert "title written: Fix the flaky login test" in done.stdout
    assert "※ recap: Working on: Fix the flaky login test" in done.stdout
    assert '"titleSource":"auto"' in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "home").iterdir()) == []
    assert not (tmp_path / "state").exists()
