"""One model call at a time for one text of one session, in all processes of this state directory.

The service, a command and the local API may want the same recap in the same instant (design 7: one call in flight a
session). A lock file each, which the system takes back when its process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

DIRECTORY: Final = "calls"
LOOK_SECONDS: Final = 0.05
"""While another call for the same text runs, its end is looked for this often: `flock` cannot wait for two things."""


class Stop(Protocol):
    """Somebody may lose patience."""

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for so long; True as soon as somebody asks to stop."""


class CallLocks:
    """The locks below one state directory. Safe to share between threads."""

    def __init__(self, state_directory: Path) -> None:
        self._directory = state_directory / DIRECTORY

    @contextlib.contextmanager
    def hold(self, session_id: str, kind: str, stop: Stop, patience_seconds: float) -> Iterator[bool | None]:
        """Hold the lock of this text within the block.

        Gives True when it had to wait for somebody else's call, False when it had not, and None, without the lock, when
        `stop` was set or patience ran out. Raises `OSError` when the lock file cannot be made.
        """
        path = self._directory / f"{session_id.lower()}.{kind}"
        deadline = time.monotonic() + patience_seconds
        waited = False
        fd = self._take(path)
        while fd is None:
            waited = True
            if stop.wait(LOOK_SECONDS) or time.monotonic() >= deadline:
                yield None
                return
            fd = self._take(path)
        try:
            yield waited
        finally:
            # Removed while it is held, so whoever opened it meanwhile sees that it is not the file at its path.
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(fd)

    def _take(self, path: Path) -> int | None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), path.lstat()):
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None
