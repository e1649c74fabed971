"""One watcher for each state directory: a lock that the system takes back when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from watcher.errors import AlreadyRunningError, StateError, words_of

LOCK_NAME = "watcher.lock"


class Instance:
    """The hold on a state directory: an open, locked file below it."""

    def __init__(self, directory: Path) -> None:
        """Raises `AlreadyRunningError` with the holder's pid, `StateError` when the directory cannot be used."""
        self._directory = directory
        self._path = str(directory / LOCK_NAME)
        self._fd = _lock(directory)

    def renew(self) -> bool:
        """Take hold again where the directory was deleted or replaced, since nobody sees the old lock any more; costs
        nothing else. True when that was so. Raises as at first, and goes on holding the old one.
        """
        try:
            named = os.lstat(self._path)
        except OSError:
            named = None
        if named is not None and os.path.samestat(named, os.fstat(self._fd)):
            return False
        fd = _lock(self._directory)
        os.close(self._fd)
        self._fd = fd
        return True

    def release(self) -> None:
        """Let go."""
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        os.close(self._fd)


@contextmanager
def only_instance(directory: Path) -> Iterator[Instance]:
    """Hold the state directory within; raises as `Instance`."""
    instance = Instance(directory)
    try:
        yield instance
    finally:
        instance.release()


def _lock(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StateError(
            f"cannot use the state directory {directory}: {words_of(error)}; "
            "make it writable, or set QWEN_WATCHER_STATE_DIR to another one"
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _pid_in(fd)
        os.close(fd)
        raise AlreadyRunningError(holder) from None
    # On a full disk the lock holds all the same, only without telling who holds it.
    with suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def running_pid(directory: Path) -> int | None:
    """The pid of the watcher that holds the state directory, None when none does."""
    try:
        fd = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(fd)
    finally:
        os.close(fd)
    return None


def _pid_in(fd: int) -> int:
    digits = os.pread(fd, 32, 0).strip()
    return int(digits) if digits.isdigit() else 0
