"""The lines that we append, with their ids: made of what the file says of itself (contract 4.2, 4.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from watcher.core.session import SessionState
from watcher.core.writing import Intent, Payload, Target, TitleLine
from watcher.edge.files import FileStat
from watcher.qwen.reading import Reading
from watcher.qwen.records import encode_recap, encode_title

MAX_CORRECTIONS: Final = 3
"""How many corrective records one write may need before it is left to a later look."""


class Lines:
    """Makes records of ours. `clock` gives seconds since the epoch, `new_uuid` a version 4 UUID."""

    def __init__(self, *, clock: Callable[[], float], new_uuid: Callable[[], str]) -> None:
        self._clock = clock
        self._new_uuid = new_uuid

    def intent(self, target: Target, now: FileStat, read: Reading, payload: Payload) -> Intent:
        """What is about to be written, chained to the last conversation record."""
        uuid = self._new_uuid()
        parent = read.state.leaf or ""
        line = self.encode(read.state, payload, uuid, parent)
        return Intent(
            uuid,
            self.spare_ids(),
            parent,
            target.path,
            read.state.session_id,
            now.dev,
            now.ino,
            now.size,
            b"\n" + line if read.torn_bytes else line,
            now.atime_ns,
            now.mtime_ns,
            payload,
            target.label,
        )

    def spare_ids(self) -> tuple[str, ...]:
        """Ids for corrective records."""
        return tuple(self._new_uuid() for _ in range(MAX_CORRECTIONS))

    def encode(self, state: SessionState, payload: Payload, uuid: str, parent: str) -> bytes:
        """One whole line for the session in this state, newline included (contract 4.5)."""
        common = {
            "uuid": uuid,
            "parent": parent,
            "session_id": state.session_id,
            "at": self._clock(),
            "cwd": state.cwd,
            "version": state.version,
        }
        if isinstance(payload, TitleLine):
            return encode_title(title=payload.title, source=payload.source, **common)  # type: ignore[arg-type]
        return encode_recap(text=payload.text, **common)  # type: ignore[arg-type]
