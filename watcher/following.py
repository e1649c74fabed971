"""One session file followed: the tail of its bytes, and the state folded from them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from watcher.core.events import Event
from watcher.core.session import SessionState, fold_all
from watcher.edge.tailer import Change, Tail
from watcher.qwen.jsonl import LineSplitter, RawLine
from watcher.qwen.reading import Reading
from watcher.qwen.records import decode


@dataclass(frozen=True, slots=True)
class Look:
    """What the file held at one moment. `changed_at` is its modification time, seconds since the epoch."""

    state: SessionState
    size: int
    changed_at: float
    tail: Tail[RawLine, Event]

    @property
    def reading(self) -> Reading | None:
        """The same as a reading that the writer can go on from; None when it must begin anew."""
        mark = self.tail.checkpoint
        if mark is None:
            return None
        return Reading(
            mark.dev, mark.ino, self.size, mark.offset, self.state, self.state, self.tail.torn_bytes, mark.tail_print
        )


@dataclass(frozen=True, slots=True)
class NoLook:
    """The file cannot be followed. `gone`: deleted or archived; else `why` says what is wrong with it."""

    gone: bool
    why: str = ""


def follow(path: str, before: Look | None, now: float, seen: os.stat_result | None = None) -> Look | NoLook:
    """The file as it is now, read on from `before`. A first look reads at most the last 64 MiB. `seen` is what `lstat`
    just said of it, where that is known.
    """
    tail = before.tail if before else Tail(path, LineSplitter, decode)
    state = before.state if before else None
    while True:
        result = tail.poll(now, seen)
        seen = None
        if result.change in (Change.GONE, Change.ARCHIVED):
            return NoLook(gone=True)
        if result.change in (Change.UNSAFE, Change.UNREADABLE):
            return NoLook(gone=False, why=result.detail)
        if state is None or result.reset:
            state = SessionState(partial=result.skipped_bytes > 0)
        state = fold_all(state, result.items)
        if not result.more:
            return Look(state, tail.size, tail.mtime_ns / 1e9, tail)
