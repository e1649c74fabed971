"""What a user is told when the kernel's limits on watching are reached."""

from __future__ import annotations

import errno
import os
import sys

import pytest
from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer

from watcher.edge.watch_limits import explain_limit, is_limit, read_inotify_use

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


@linux_only
@pytest.mark.parametrize(("number", "name"), [(28, "max_user_watches"), (24, "max_user_instances")])
def test_the_line_names_the_limit_its_value_and_the_remedy(number: int, name: str) -> None:
    """A user can copy the command; it raises the limit."""
    error = OSError(number, "refused")
    line = explain_limit(error)
    value = read_inotify_use()
    limit = value.max_watches if number == errno.ENOSPC else value.max_instances
    assert is_limit(error)
    assert f"fs.inotify.{name} ({limit})" in line
    proposed = int(line.partition(f"sudo sysctl fs.inotify.{name}=")[2].partition("`")[0])
    assert limit is not None
    assert proposed > limit


def test_other_errors_are_no_limits() -> None:
    """A missing directory is not taken for an exhausted system."""
    assert not is_limit(FileNotFoundError(errno.ENOENT, "gone"))
    assert is_limit(OSError(errno.ENFILE, "full"))
    full = OSError(errno.ENFILE, os.strerror(errno.ENFILE))
    assert os.strerror(errno.ENFILE) in explain_limit(full)


@linux_only
def test_use_counts_what_this_process_holds(tmp_path: os.PathLike[str]) -> None:
    """An observer on one directory is an instance with a watch."""
    with Observer() as observer:
        observer.schedule(FileSystemEventHandler(), os.fspath(tmp_path))
        during = read_inotify_use()
    assert during.instances >= 1
    assert during.watches >= 1
