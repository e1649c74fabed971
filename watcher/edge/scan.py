"""What session files exist, by `scandir` and `stat` alone, and which of them changed since they were last looked at.

Only regular files directly in `<projects root>/<project>/chats` with the name of a transcript count (contract 1.2). A
directory that cannot be read is told as such and never taken for a deletion. Links below the root are not followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from watcher.core.digest import digest_of
from watcher.qwen.contract import CHATS_DIR, session_id_of

MAX_REMEMBERED_UNSAFE: Final = 4096
SETTLE_NS: Final = 2_000_000_000
"""A directory whose time is this young may change again within the same tick of its clock, so it is not trusted yet."""

_SHORTEST: Final = 32 + len(".jsonl")
_LONGEST: Final = 36 + len(".jsonl")
_OPEN_DIR: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Found(NamedTuple):
    """One transcript. A named tuple, since a first start makes one for each file. Times in nanoseconds."""

    path: str
    dev: int
    ino: int
    size: int
    mtime_ns: int
    nlink: int
    uid: int
    mode: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A directory that could not be listed: nothing is known about its files now. `errno` as the system gave it."""

    directory: str
    errno: int


@dataclass(frozen=True, slots=True)
class Unsafe:
    """A file with a transcript's name that is never written; `why` is a plain phrase. Links are not even read."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class DirScan:
    """One `chats` directory. `digest` changes whenever a transcript in it changes in any way that `stat` shows."""

    directory: str
    digest: bytes
    files: tuple[Found, ...]
    unsafe: tuple[Unsafe, ...]


@dataclass(frozen=True, slots=True)
class DirChanges:
    """What differs in one `chats` directory from the saved index. `vanished` are paths.

    Save `digest` only together with the rows of `new` and `changed` and without those of `vanished`.
    """

    directory: str
    digest: bytes
    new: tuple[Found, ...] = ()
    changed: tuple[Found, ...] = ()
    vanished: tuple[str, ...] = ()
    unsafe: tuple[Unsafe, ...] = ()


def unsafe_reason(found: Found, uid: int) -> str:
    """Why this file is never written, "" when it is a plain file of the user `uid` (contract 4.3 i, report K)."""
    return _unsafe(found.mode, found.nlink, found.uid, uid)


def unsafe_status(status: os.stat_result, uid: int | None = None) -> str:
    """The same for what `lstat` says of a file; `uid` is ours by default."""
    return _unsafe(status.st_mode, status.st_nlink, status.st_uid, os.geteuid() if uid is None else uid)


def _unsafe(mode: int, nlink: int, owner: int, uid: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if not stat.S_ISREG(mode):
        return "not a regular file"
    if nlink != 1:
        return f"it has {nlink} hard links" if nlink else "it is being deleted"
    if owner != uid:
        return f"it belongs to user {owner}"
    if mode & stat.S_IWOTH:
        return "everybody may write to it"
    return ""


def unsafe_path(path: str, uid: int | None = None) -> str:
    """Why the file at this path is never written, "" when it is a plain file of the user, or is not there."""
    try:
        return unsafe_status(os.lstat(path), uid)
    except OSError:
        return ""


def chats_dirs(root: str) -> Iterator[str | Unreadable]:
    """The `chats` directory of each project below a projects root; whether it exists is found out when it is listed.

    A root that is missing or cannot be listed is a single `Unreadable`; so is each project that is a link.
    """
    try:
        with os.scandir(root) as entries:
            projects = [(entry.name, entry.is_symlink()) for entry in entries if _is_directory(entry)]
    except OSError as error:
        yield Unreadable(root, error.errno or errno.EIO)
        return
    for name, is_link in projects:
        yield Unreadable(f"{root}/{name}", errno.ELOOP) if is_link else f"{root}/{name}/{CHATS_DIR}"


def scan_dir(directory: str, uid: int | None = None) -> DirScan | Unreadable | None:
    """List one `chats` directory; None when there is none. `uid` is the user whose files are safe, by default ours."""
    try:
        lines, listed = _list(directory, with_files=True)
    except OSError as error:
        return _failure(directory, error)
    owner = os.geteuid() if uid is None else uid
    files: list[Found] = []
    unsafe: list[Unsafe] = []
    for found in listed:
        if session_id_of(found.path) is None:
            continue
        why = unsafe_reason(found, owner)
        if why:
            unsafe.append(Unsafe(found.path, why))
        if stat.S_ISREG(found.mode):
            files.append(found)
    return DirScan(directory, _digest(lines), tuple(files), tuple(unsafe))


def scan(root: str, uid: int | None = None) -> Iterator[Found | Unsafe | Unreadable]:
    """Every transcript below a projects root; a missing root is an empty one.

    A regular but unsafe file comes out twice, as `Unsafe` and as `Found`.
    """
    for directory in chats_dirs(root):
        result = scan_dir(directory, uid) if isinstance(directory, str) else directory
        if isinstance(result, DirScan):
            yield from result.unsafe
            yield from result.files
        elif result is not None and result.errno != errno.ENOENT:
            yield result


@dataclass(slots=True)
class _Mark:
    digest: bytes
    mtime_ns: int


@dataclass(slots=True)
class Reconciler:
    """Finds what changed without being told. Holds one small object a directory, none a file.

    `digests` are the saved ones (directory → digest); `stamps` returns what the saved index says of a directory's files
    (name → dev, ino, size, mtime_ns) and is asked only for directories that differ. `clock_ns` is the file system's
    idea of now.
    """

    stamps: Callable[[str], Mapping[str, tuple[int, int, int, int]]]
    clock_ns: Callable[[], int]
    uid: int = field(default_factory=os.geteuid)
    _marks: dict[str, _Mark] = field(default_factory=dict)
    _told: set[Unsafe] = field(default_factory=set)

    @classmethod
    def resume(
        cls,
        digests: Mapping[str, bytes],
        stamps: Callable[[str], Mapping[str, tuple[int, int, int, int]]],
        clock_ns: Callable[[], int],
    ) -> Reconciler:
        """Go on from a saved index."""
        made = cls(stamps, clock_ns)
        made._marks = {directory: _Mark(digest, 0) for directory, digest in digests.items()}
        return made

    def full(self, root: str) -> Iterator[DirChanges | Unreadable]:
        """Look at every file below the root; yields only directories in which something differs."""
        yield from self._pass(root, all_directories=True)

    def quick(self, root: str) -> Iterator[DirChanges | Unreadable]:
        """Look only at directories in which a file appeared, vanished or was renamed: appends do not show there."""
        yield from self._pass(root, all_directories=False)

    def directory(self, directory: str) -> DirChanges | Unreadable | None:
        """Look at one `chats` directory, whatever is known of it; None when nothing differs."""
        return self._look(directory, self._mtime_ns(directory))

    def _pass(self, root: str, *, all_directories: bool) -> Iterator[DirChanges | Unreadable]:
        prefix = f"{root}/"
        known = {directory for directory in self._marks if directory.startswith(prefix)}
        for directory in chats_dirs(root):
            if isinstance(directory, Unreadable):
                if directory.directory == root:
                    # Nothing is known about any project now, so none of them is gone.
                    if known or directory.errno != errno.ENOENT:
                        yield directory
                    return
                known.discard(f"{directory.directory}/{CHATS_DIR}")
                yield directory
                continue
            known.discard(directory)
            mtime_ns = self._mtime_ns(directory)
            if all_directories or self._is_stale(directory, mtime_ns):
                result = self._look(directory, mtime_ns)
                if result is not None:
                    yield result
        for directory in known:
            gone = self._gone(directory)
            if gone is not None:
                yield gone

    def _is_stale(self, directory: str, mtime_ns: int) -> bool:
        mark = self._marks.get(directory)
        if mark is None:
            return mtime_ns != 0
        return mark.mtime_ns == 0 or mark.mtime_ns != mtime_ns

    def _look(self, directory: str, mtime_ns: int) -> DirChanges | Unreadable | None:
        settled_ns = mtime_ns if mtime_ns + SETTLE_NS < self.clock_ns() else 0
        mark = self._marks.get(directory)
        if mark is not None:
            try:
                lines, _ = _list(directory, with_files=False)
            except OSError as error:
                return _failure(directory, error) or self._gone(directory)
            if _digest(lines) == mark.digest:
                mark.mtime_ns = settled_ns
                return None
        result = scan_dir(directory, self.uid)
        if result is None:
            return self._gone(directory)
        if isinstance(result, Unreadable):
            return result
        self._marks[directory] = _Mark(result.digest, settled_ns)
        return self._compare(result)

    def _compare(self, found: DirScan) -> DirChanges:
        saved = self.stamps(found.directory)
        start = len(found.directory) + 1
        new: list[Found] = []
        changed: list[Found] = []
        names: set[str] = set()
        for file in found.files:
            name = file.path[start:]
            names.add(name)
            stamp = saved.get(name)
            if stamp is None:
                new.append(file)
            elif stamp != (file.dev, file.ino, file.size, file.mtime_ns):
                changed.append(file)
        vanished = tuple(f"{found.directory}/{name}" for name in saved if name not in names)
        return DirChanges(
            found.directory, found.digest, tuple(new), tuple(changed), vanished, tuple(self._untold(found.unsafe))
        )

    def _untold(self, unsafe: Iterable[Unsafe]) -> Iterator[Unsafe]:
        for item in unsafe:
            if item not in self._told and len(self._told) < MAX_REMEMBERED_UNSAFE:
                self._told.add(item)
                yield item

    def _gone(self, directory: str) -> DirChanges | None:
        self._marks.pop(directory, None)
        saved = self.stamps(directory)
        if not saved:
            return None
        return DirChanges(directory, b"", vanished=tuple(f"{directory}/{name}" for name in saved))

    @staticmethod
    def _mtime_ns(directory: str) -> int:
        try:
            return os.lstat(directory).st_mtime_ns
        except OSError:
            return 0


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _failure(directory: str, error: OSError) -> Unreadable | None:
    """None when there is no such directory."""
    if isinstance(error, FileNotFoundError):
        return None
    number = error.errno or errno.EIO
    if isinstance(error, NotADirectoryError):
        # Linux says so of a link as well when it is asked for a directory and not to follow.
        if not Path(directory).is_symlink():
            return None
        number = errno.ELOOP
    return Unreadable(directory, number)


def _list(directory: str, *, with_files: bool) -> tuple[list[str], list[Found]]:
    """One line a possible transcript, holding all that matters of it, and on request the same as values.

    The listing goes through a descriptor, so that each `stat` looks up one name and not the whole path. This loop is
    the cost of a reconcile: it makes one string a file and nothing else.
    """
    lines: list[str] = []
    files: list[Found] = []
    fd = os.open(directory, _OPEN_DIR)
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                name = entry.name
                if not (_SHORTEST <= len(name) <= _LONGEST and name.endswith(".jsonl")):
                    continue
                try:
                    s = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # deleted since it was listed
                mtime_ns = s.st_mtime_ns
                # st_mode, st_ino, st_dev, st_nlink, st_uid, st_size by position: attribute access costs more
                lines.append(f"{name} {s[0]} {s[1]} {s[2]} {s[3]} {s[4]} {s[6]} {mtime_ns}")
                if with_files:
                    files.append(Found(f"{directory}/{name}", s[2], s[1], s[6], mtime_ns, s[3], s[4], s[0]))
    finally:
        os.close(fd)
    return lines, files


def _digest(lines: list[str]) -> bytes:
    lines.sort()
    return digest_of("\n".join(lines).encode("utf-8", "surrogateescape"))
