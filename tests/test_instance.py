"""The hold on a state directory: one at a time, also when the directory is not the one that it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from watcher.errors import AlreadyRunningError
from watcher.instance import only_instance, running_pid


def test_the_holder_is_told_and_lets_go_at_the_end(tmp_path: Path) -> None:
    """The pid while it is held; afterwards nobody, and the next one gets it."""
    with only_instance(tmp_path):
        assert running_pid(tmp_path) == os.getpid()
        with pytest.raises(AlreadyRunningError, match=str(os.getpid())), only_instance(tmp_path):
            pass
    assert running_pid(tmp_path) is None
    with only_instance(tmp_path) as instance:
        assert not instance.renew()


def test_a_deleted_directory_is_held_again(tmp_path: Path) -> None:
    """The old lock is seen by nobody; the new one keeps others out."""
    directory = tmp_path / "state"
    with only_instance(directory) as instance:
        shutil.rmtree(directory)
        assert running_pid(directory) is None
        assert instance.renew()
        assert running_pid(directory) == os.getpid()
        assert not instance.renew()


def test_a_directory_that_somebody_else_took_is_lost(tmp_path: Path) -> None:
    """Replaced, and held by another by now: that one stays the only one."""
    directory = tmp_path / "state"
    with only_instance(directory) as instance:
        directory.rename(tmp_path / "old")
        with only_instance(directory):
            for _ in range(2):
                with pytest.raises(AlreadyRunningError):
                    instance.renew()
        assert instance.renew()
