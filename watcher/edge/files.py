"""The operating-system calls of the guarded writer, as one narrow seam.

Everything that the writer does to the world goes through `Files`, so that tests can stop, fail or interleave it at each
single call. `RealFiles` adds nothing to the system calls.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileStat:
    """What the writer compares. Times in nanoseconds since the epoch."""

    dev: int
    ino: int
    mode: int
    nlink: int
    uid: int
    size: int
    atime_ns: int
    mtime_ns: int


class Files(Protocol):
    """One method a system call. Each raises `OSError` as the call does."""

    def open_append(self, path: str) -> int:
        """A descriptor to append to an existing file; never creates, never follows a link, never blocks on a FIFO."""

    def open_read(self, path: str) -> int:
        """A descriptor to read; never follows a link, never blocks on a FIFO."""

    def try_lock(self, fd: int) -> bool:
        """Whether the exclusive advisory lock was taken, without waiting."""

    def fstat(self, fd: int) -> FileStat: ...

    def lstat(self, path: str) -> FileStat: ...

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        """At most `length` bytes at `offset`; fewer only at the end of the file."""

    def write(self, fd: int, data: bytes) -> int:
        """One `write`; returns how many bytes were taken."""

    def sync(self, fd: int) -> None: ...

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None: ...

    def touch_now(self, fd: int) -> None: ...

    def room(self, fd: int, size: int) -> int:
        """How many bytes may still be appended to the file of `size` bytes: free space and the process's size limit."""

    def close(self, fd: int) -> None: ...


class RealFiles:
    """`Files` on this machine."""

    def open_append(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def open_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def try_lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def fstat(self, fd: int) -> FileStat:
        return _stat(os.fstat(fd))

    def lstat(self, path: str) -> FileStat:
        return _stat(os.lstat(path))

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = os.pread(fd, min(length, 1 << 20), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        os.utime(fd, ns=(atime_ns, mtime_ns))

    def touch_now(self, fd: int) -> None:
        os.utime(fd)

    def room(self, fd: int, size: int) -> int:
        space = os.fstatvfs(fd)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        free = space.f_bavail * space.f_frsize
        return free if limit == resource.RLIM_INFINITY else min(free, limit - size)

    def close(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            os.close(fd)


def _stat(raw: os.stat_result) -> FileStat:
    return FileStat(
        raw.st_dev,
        raw.st_ino,
        raw.st_mode,
        raw.st_nlink,
        raw.st_uid,
        raw.st_size,
        raw.st_atime_ns,
        raw.st_mtime_ns,
    )
