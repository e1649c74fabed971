"""Bytes of a session file → its state, from the start or from where an earlier reading stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from watcher.core.events import Event
from watcher.core.session import SessionState, fold_all
from watcher.qwen.jsonl import LineSplitter, RawLine
from watcher.qwen.records import decode

CHUNK_BYTES: Final = 1 << 20
PRINT_BYTES: Final = 64
"""So many bytes before the offset are compared before an earlier reading is trusted."""

ReadAt = Callable[[int, int], bytes]
"""`(length, offset) -> bytes`, fewer only at the end of the file."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reading of a file found. A value: it can be continued, saved or thrown away.

    `base` is the state after all whole lines, `end` their end. `torn_bytes` stand behind the last newline;
    `state` is `base` plus the records in them that a reader would already see (contract 2.4).
    """

    dev: int
    ino: int
    size: int
    end: int
    base: SessionState
    state: SessionState
    torn_bytes: int
    print: bytes


def events_of(data: bytes, offset: int) -> list[Event]:
    """All events of `data`, which begins at a line start at `offset`; an unfinished last line counts as a line."""
    splitter = LineSplitter(offset)
    lines = list(splitter.feed(data))
    rest = splitter.pending
    if rest:
        lines.append(RawLine(splitter.pending_offset, offset + len(data), rest))
    return [event for line in lines for event in decode(line)]


def continues(known: Reading, read_at: ReadAt, *, dev: int, ino: int, size: int) -> bool:
    """Whether the file is still the one that `known` read: same identity, not shorter, same bytes before the offset."""
    if (known.dev, known.ino) != (dev, ino) or size < known.end:
        return False
    return read_at(len(known.print), known.end - len(known.print)) == known.print


def read_state(
    read_at: ReadAt,
    *,
    dev: int,
    ino: int,
    size: int,
    window: int,
    known: Reading | None = None,
) -> Reading:
    """Read up to `size`: onward from `known` where the file still is the same, else at most its last `window` bytes."""
    if known is not None and not continues(known, read_at, dev=dev, ino=ino, size=size):
        known = None
    if known is not None:
        state, start, skip = known.base, known.end, False
    else:
        start = max(0, size - window)
        state = SessionState(partial=start > 0)
        # A window that starts inside a line drops that line, unless the byte before it ends one.
        skip = start > 0 and read_at(1, start - 1) != b"\n"
    splitter = LineSplitter(start)
    position = start
    while position < size:
        chunk = read_at(min(CHUNK_BYTES, size - position), position)
        if not chunk:
            break
        position += len(chunk)
        lines = splitter.feed(chunk)
        if skip and lines:
            skip = False
            del lines[0]
        state = fold_all(state, (event for line in lines for event in decode(line)))
    end = splitter.pending_offset
    torn = splitter.pending
    seen = state
    if torn and not skip:
        seen = fold_all(seen, decode(RawLine(end, position, torn)))
    mark = read_at(min(PRINT_BYTES, end), max(0, end - PRINT_BYTES))
    return Reading(dev, ino, size, end, state, seen, position - end, mark)


def lines_of(read_at: ReadAt, size: int, window: int) -> Iterator[RawLine]:
    """The lines of a file of `size` bytes, at most those of its last `window` bytes, read in chunks.

    An unfinished last line counts as a line, as for Qwen Code's reader (contract 2.4).
    """
    position = start = max(0, size - window)
    skip = start > 0 and read_at(1, start - 1) != b"\n"
    splitter = LineSplitter(start)
    while position < size:
        chunk = read_at(min(CHUNK_BYTES, size - position), position)
        if not chunk:
            break
        position += len(chunk)
        for line in splitter.feed(chunk):
            if skip:
                skip = False
            else:
                yield line
    if splitter.pending and not skip:
        yield RawLine(splitter.pending_offset, position, splitter.pending)
