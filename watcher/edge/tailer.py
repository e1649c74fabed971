"""One session file, followed from where it was left: identity, offset, truncation, whole lines only.

Between two polls no descriptor is held, so ten thousand sessions cost none. One poll reads at most one chunk, so that a
file of any size costs little memory and nobody else waits for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

from watcher.errors import words_of
from watcher.qwen.contract import ARCHIVE_DIR

CHUNK_BYTES: Final = 1 << 20
"""At most so much is read in one poll."""
COLD_BYTES: Final = 64 * 1024 * 1024
"""Without a checkpoint, reading begins at most so far before the end (design 6)."""
PRINT_BYTES: Final = 64
"""So many bytes at the start and before the offset tell a rewritten file from a grown one (report D11)."""

_NOATIME: Final = getattr(os, "O_NOATIME", 0)
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Line = TypeVar("Line")
Line_co = TypeVar("Line_co", covariant=True)
Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Splitter(Protocol[Line_co]):
    """Bytes to whole lines; keeps what follows the last newline for the next call (`qwen.jsonl.LineSplitter`)."""

    def feed(self, data: bytes, /) -> Sequence[Line_co]: ...


class Change(StrEnum):
    """What a poll found."""

    UNCHANGED = "unchanged"
    GREW = "grew"
    """There is more than before, or this is the first look."""
    TRUNCATED = "truncated"
    """Whole lines were cut off the same file; it is read from the start again."""
    REPLACED = "replaced"
    """Another file stands at the path; it is read from the start."""
    REWRITTEN = "rewritten"
    """The same file holds other bytes where we had read; it is read from the start again."""
    GONE = "gone"
    ARCHIVED = "archived"
    """The same file now stands in the archive directory: never touched there (contract 1.2)."""
    UNSAFE = "unsafe"
    """Not a regular file, or a link; not read."""
    UNREADABLE = "unreadable"


_RESETS: Final = frozenset({Change.TRUNCATED, Change.REPLACED, Change.REWRITTEN})


@dataclass(frozen=True, slots=True)
class TailResult(Generic[Item_co]):
    """What one poll brought. `items` are the decoded lines in file order.

    `reset` tells that everything delivered before is void: the items start a new history. `more` tells that another
    poll has something to read at once. `skipped_bytes` is non-zero in the result in which reading began that far into
    the file. `detail` is a plain phrase for `UNSAFE` and `UNREADABLE`.
    """

    change: Change
    items: tuple[Item_co, ...] = ()
    more: bool = False
    skipped_bytes: int = 0
    detail: str = ""

    @property
    def reset(self) -> bool:
        """Whether what was delivered before is void."""
        return self.change in _RESETS


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where to go on after a restart. `offset` is the end of the last whole line that was delivered."""

    dev: int
    ino: int
    offset: int
    head_print: bytes
    tail_print: bytes


class Tail(Generic[Line, Item]):
    """Follows one path. `split(offset)` makes a splitter for the bytes from there on, `decode` turns a line into items.

    `path` may be set anew when a directory was renamed; the file is recognised. Reading never changes the file, not
    even its access time where the system lets us say so.
    """

    def __init__(
        self,
        path: str,
        split: Callable[[int], Splitter[Line]],
        decode: Callable[[Line], Iterable[Item]],
        *,
        checkpoint: Checkpoint | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        cold_bytes: int = COLD_BYTES,
    ) -> None:
        self.path = path
        self._split = split
        self._decode = decode
        self._chunk_bytes = chunk_bytes
        self._cold_bytes = cold_bytes
        self._flags = _FLAGS | _NOATIME
        self._identity: tuple[int, int] | None = None
        self._size = 0
        self._mtime_ns: int | None = None
        self._head = b""
        self._torn_since: float | None = None
        self._position = self._offset = 0
        self._recent = self._line_print = b""
        self._dropping = False
        self._splitter = split(0)
        if checkpoint is not None:
            self._identity = (checkpoint.dev, checkpoint.ino)
            self._head = checkpoint.head_print
            self._begin(checkpoint.offset, checkpoint.tail_print)

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """End of the last whole line that was read."""
        return self._offset

    @property
    def size(self) -> int:
        """The file's size at the last poll that found it."""
        return self._size

    @property
    def mtime_ns(self) -> int:
        """The file's modification time at the last poll that read it, 0 before the first."""
        return self._mtime_ns or 0

    @property
    def torn_bytes(self) -> int:
        """How many bytes stand behind the last newline."""
        return self._position - self._offset

    @property
    def torn_since(self) -> float | None:
        """The `now` of the poll since which the same unfinished line ends the file; None when none does."""
        return self._torn_since

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Where a new `Tail` could go on; None before the first line."""
        if self._identity is None or self._dropping or not self._offset:
            return None
        return Checkpoint(*self._identity, self._offset, self._head[: self._offset], self._line_print)

    # -- polling -------------------------------------------------------------------------------------------------------

    def poll(self, now: float, seen: os.stat_result | None = None) -> TailResult[Item]:
        """Look at the file and read at most one chunk of what is new. `now` only dates an unfinished last line. `seen`
        is what `lstat` just said of the path, where the caller knows.
        """
        try:
            seen = seen or os.lstat(self.path)
            if not stat.S_ISREG(seen.st_mode):
                return TailResult(Change.UNSAFE, detail=_kind(seen.st_mode))
            if (
                self._identity == (seen.st_dev, seen.st_ino)
                and seen.st_size == self._position
                and seen.st_mtime_ns == self._mtime_ns
            ):
                return TailResult(Change.UNCHANGED)
            fd = self._open()
        except (FileNotFoundError, NotADirectoryError):
            return TailResult(Change.ARCHIVED if self._is_archived() else Change.GONE)
        except OSError as error:
            return TailResult(Change.UNREADABLE, detail=words_of(error))
        try:
            return self._read(fd, now)
        except OSError as error:
            return TailResult(Change.UNREADABLE, detail=words_of(error))
        finally:
            os.close(fd)

    def _open(self) -> int:
        try:
            return os.open(self.path, self._flags)
        except PermissionError:
            if not self._flags & _NOATIME:
                raise
            self._flags = _FLAGS  # only a file's owner may ask for no access time
            return os.open(self.path, self._flags)

    def _read(self, fd: int, now: float) -> TailResult[Item]:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return TailResult(Change.UNSAFE, detail=_kind(status.st_mode))
        change, skipped = self._place(fd, status)
        self._size = status.st_size
        data = os.pread(fd, min(self._chunk_bytes, status.st_size - self._position), self._position)
        items = self._take(data)
        if len(self._head) < min(PRINT_BYTES, self._position):
            self._head = os.pread(fd, min(PRINT_BYTES, self._position), 0)
        # Trusted as unchanged only once all of this size was read.
        more = self._position < status.st_size
        self._mtime_ns = None if more else status.st_mtime_ns
        if not self.torn_bytes:
            self._torn_since = None
        elif data or self._torn_since is None:
            self._torn_since = now
        if change is Change.GREW and not data and not skipped:
            change = Change.UNCHANGED
        return TailResult(change, items, more=more and bool(data), skipped_bytes=skipped)

    def _place(self, fd: int, status: os.stat_result) -> tuple[Change, int]:
        """Decide what happened to the file and where to read; returns how much a first look leaves out."""
        identity = (status.st_dev, status.st_ino)
        if self._identity is None:
            change = Change.GREW
        elif self._identity != identity:
            change = Change.REPLACED
        elif self._stands(fd, status.st_size, self._position, self._recent):
            return Change.GREW, 0
        elif not self._dropping and self._stands(fd, status.st_size, self._offset, self._line_print):
            # Only the unfinished line, of which nothing was delivered, is not what it was.
            self._head = self._head[: self._offset]
            self._begin(self._offset, self._line_print)
            return Change.GREW, 0
        else:
            change = Change.TRUNCATED if status.st_size < self._offset else Change.REWRITTEN
        self._identity = identity
        self._head = b""
        self._begin(0)
        start = status.st_size - self._cold_bytes
        if start <= 0:
            return change, 0
        # Begin inside the file: drop the line that the start cuts, unless the byte before it ends one.
        length = min(start, PRINT_BYTES)
        self._begin(start, os.pread(fd, length, start - length))
        self._dropping = not self._recent.endswith(b"\n")
        return change, start

    def _stands(self, fd: int, size: int, position: int, before: bytes) -> bool:
        """Whether the file still begins as it did and holds the bytes `before` just before `position`."""
        if size < position:
            return False
        if os.pread(fd, len(before), position - len(before)) != before:
            return False
        head = self._head[:position]
        return os.pread(fd, len(head), 0) == head

    def _begin(self, position: int, before: bytes = b"") -> None:
        """Read on at `position`, the start of a line, before which stand the bytes `before`."""
        self._position = self._offset = position
        self._recent = self._line_print = before
        self._dropping = False
        self._torn_since = None
        self._splitter = self._split(position)

    def _take(self, data: bytes) -> tuple[Item, ...]:
        if not data:
            return ()
        start = self._position
        self._position += len(data)
        last = data.rfind(b"\n") + 1
        if last:
            self._offset = start + last
            self._line_print = _ending(self._recent, data, last)
        self._recent = _ending(self._recent, data, len(data))
        if self._dropping:
            first = data.find(b"\n") + 1
            if not first:
                return ()
            self._dropping = False
            self._splitter = self._split(start + first)
            data = data[first:]
        return tuple(item for line in self._splitter.feed(data) for item in self._decode(line))

    def _is_archived(self) -> bool:
        directory, name = os.path.split(self.path)
        try:
            seen = os.lstat(f"{directory}/{ARCHIVE_DIR}/{name}")
        except OSError:
            return False
        return (seen.st_dev, seen.st_ino) == self._identity and seen.st_size >= self._position


def _ending(before: bytes, data: bytes, length: int) -> bytes:
    """The last bytes of `before + data[:length]`, without copying more."""
    tail = data[max(0, length - PRINT_BYTES) : length]
    return tail if len(tail) == PRINT_BYTES else (before + tail)[-PRINT_BYTES:]


def _kind(mode: int) -> str:
    return "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
