"""The writer's operating-system seam over a `World`, with something that may happen before each call."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from tests.safety.world import NOW_NS, World
from watcher.edge.files import FileStat

SESSION_INODE = 1
OTHER_INODE = 2
UID = os.geteuid()


class MemoryFiles:
    """`watcher.edge.files.Files`. `before(name)` is called before each call, `after(name, result)` behind it."""

    def __init__(self, world: World, before: Callable[[str], None], after: Callable[[str, object], None]) -> None:
        self.world = world
        self._before = before
        self._after = after
        self._open: dict[int, int] = {}
        self._readers: set[int] = set()
        self._last_size = 0
        self._in_place = False
        self._read_since_look = False
        self.locked_by_other = False
        self.holds_lock = False
        self.daemon_seen = False
        self.lease_seen = False
        self.raced = False
        """A native record stands between what was last looked at and our line."""
        self.writes = 0
        self.appended = False
        """Something was written since the file was opened: what is written now is a correction."""
        self.in_flight: int | None = None
        """The process whose `write` is half done: ours must wait for its end."""
        self.complete: Callable[[int], None] = lambda process: None
        self.on_write: Callable[[], None] = lambda: None

    def _looked(self, name: str, result: object) -> None:
        self._read_since_look = False
        self._after(name, result)

    def _at_path(self) -> int:
        match self.world.place:
            case "archived" | "deleted":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            case "replaced":
                return OTHER_INODE
            case _:
                return SESSION_INODE

    def _opened(self, name: str) -> int:
        self._before(name)
        self.appended = False
        inode = self._at_path()
        if self.world.place == "symlink":
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        fd = len(self._open) + 3
        self._open[fd] = inode
        self._after(name, inode)
        return fd

    def open_append(self, path: str) -> int:
        return self._opened("open_append")

    def open_read(self, path: str) -> int:
        fd = self._opened("open_read")
        self._readers.add(fd)
        return fd

    def try_lock(self, fd: int) -> bool:
        self._before("try_lock")
        self._after("try_lock", None)
        self.holds_lock = not self.locked_by_other
        return self.holds_lock

    def _stat(self, inode: int, *, link: bool = False) -> FileStat:
        world = self.world
        mode = stat.S_IFLNK if link else stat.S_IFREG
        nlink = 2 if world.place == "linked" and inode == SESSION_INODE else 1
        size = len(self._content(inode))
        return FileStat(9, 3 if link else inode, mode | 0o600, nlink, UID, size, world.mtime, world.mtime)

    def _content(self, inode: int) -> bytes:
        return self.world.data if inode == SESSION_INODE else self.world.other

    def fstat(self, fd: int) -> FileStat:
        if fd in self._readers:
            # Of this one only the identity is looked at.
            self._before("fstat_reader")
            found = self._stat(self._open[fd])
            self._after("fstat_reader", found.ino)
            return found
        self._before("fstat")
        found = self._stat(self._open[fd])
        self._last_size = found.size
        inode = self._open[fd]
        self._in_place = self.world.place == ("replaced" if inode == OTHER_INODE else "chats")
        self._looked("fstat", (found.ino, found.nlink, found.size, found.mtime_ns, self._in_place))
        return found

    def lstat(self, path: str) -> FileStat:
        self._before("lstat")
        found = self._stat(self._at_path(), link=self.world.place == "symlink")
        self._after("lstat", found.ino)
        return found

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        # A read that ends before the end of the file gives the same whatever is appended.
        to_end = offset + length > len(self._content(self._open[fd]))
        self._before("read_to_end" if to_end else "read")
        found = self._content(self._open[fd])[offset : offset + length]
        if to_end:
            self._looked("read_to_end", (offset, len(found)))
        else:
            self._read_since_look = True
            self._after("read", (offset, len(found)))
        return found

    def write(self, fd: int, data: bytes) -> int:
        self._before("write")
        self._wait()
        self.on_write()
        self.writes += 1
        self.appended = True
        world = self.world
        if world.lease:
            world.broken = "something was appended under a writer lease"
        if self._read_since_look:
            world.broken = "something was appended without a look at the file directly before"
        if self.daemon_seen:
            world.broken = "something was appended while an ACP or daemon process had the session"
        if not self._in_place:
            world.broken = "something was appended to a file that had been moved, linked or replaced"
        self.raced = self.raced or len(self._content(self._open[fd])) != self._last_size
        taken = len(data)
        if world.short:
            taken, world.short = min(taken, world.short), 0
        if world.room is not None:
            if world.room == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            taken = min(taken, world.room)
            world.room -= taken
        if self._open[fd] == SESSION_INODE:
            world.data += data[:taken]
        else:
            world.other += data[:taken]
        world.mtime = world.stamp()
        self._last_size = len(self._content(self._open[fd]))
        self._after("write", taken)
        return taken

    def _wait(self) -> None:
        """The file system lets two changes of one file happen only one after the other."""
        if self.in_flight is not None:
            self.complete(self.in_flight)
            self.in_flight = None

    def sync(self, fd: int) -> None:
        self._before("sync")
        self._after("sync", None)

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        self._before("set_times")
        self._wait()
        self.world.mtime = mtime_ns
        self._after("set_times", mtime_ns)

    def touch_now(self, fd: int) -> None:
        self._before("touch_now")
        self._wait()
        self.world.mtime = self.world.stamp()
        self._after("touch_now", None)

    def room(self, fd: int, size: int) -> int:
        self._before("room")
        self._after("room", self.world.room)
        return 1 << 40 if self.world.room is None else self.world.room

    def close(self, fd: int) -> None:
        self._before("close")
        self.holds_lock = self.holds_lock and fd in self._readers
        self._after("close", None)


__all__ = ["NOW_NS", "MemoryFiles"]
