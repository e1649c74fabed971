"""Small files that another program replaces as a whole: read again only when they have changed, and never harmfully."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from watcher.qwen.contract import REGISTRY_MAX_BYTES

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class RecordFile(Generic[Record]):
    """A record file as last read. `key` tells whether it changed; None: it could not be read, so try again."""

    key: tuple[int, int, int] | None
    record: Record | None
    """The last content that made sense, also when the present one does not."""
    readable: bool


def look(
    path: str, before: RecordFile[Record] | None, decode: Callable[[bytes], Record | None]
) -> RecordFile[Record] | None:
    """The file as it is now; None when it is not there, or is nothing that its writer would have written.

    Only a regular file of at most `REGISTRY_MAX_BYTES` counts, owned by us, by the owner of its directory or by root. A
    link is not followed and a FIFO not waited for. `decode` returns None for bytes that make no sense; then, and when
    the file cannot be read, the content of `before` is kept and marked as not `readable`.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError:
        return RecordFile(None, before.record if before else None, readable=False)
    key = (found.st_ino, found.st_mtime_ns, found.st_size)
    if before is not None and before.key == key:
        return before
    try:
        data = _read(path)
    except FileNotFoundError:
        return None
    except OSError:
        return RecordFile(None, before.record if before else None, readable=False)
    if data is None:
        return None
    record = decode(data)
    if record is None:  # half-written, or of a shape to come
        return RecordFile(key, before.record if before else None, readable=False)
    return RecordFile(key, record, readable=True)


def _read(path: str) -> bytes | None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        trusted = (os.geteuid(), Path(path).parent.stat().st_uid, 0)
        if not stat.S_ISREG(found.st_mode) or found.st_size > REGISTRY_MAX_BYTES or found.st_uid not in trusted:
            return None
        return os.read(fd, REGISTRY_MAX_BYTES + 1)
    finally:
        os.close(fd)
