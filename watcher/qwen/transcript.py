"""A whole session file as Qwen Code's reader takes it: pure functions over its lines (contract 4.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from watcher.core.entries import DialogEntry
from watcher.core.generation import Role
from watcher.core.session import SessionState, fold_all
from watcher.qwen.entries import LEGACY_ACKNOWLEDGEMENT, entries_of
from watcher.qwen.jsonl import RawLine
from watcher.qwen.records import decode
from watcher.qwen.wire import Record, merge, records_of

KEPT_BYTES: Final = 4 * 1024 * 1024
"""The lines whose texts are kept, from the newest back. A title or recap is made of a hundredth of that; a session may
have a gigabyte.
"""
FIRST_BYTES: Final = 256 * 1024
"""Beside them, so many bytes of the first lines: what a session begins with tells what it is about."""

_SPEAKING_TYPES = frozenset({"user", "assistant"})


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a session's reader would restore.

    `chain` are the uuids on the active branch, oldest first; `gaps` the pairs of child and missing parent where it ends
    early. With `mixed_ids` Qwen Code refuses to load the file, and the rest says what it would hold without the check.
    `dialog` is what was said on the chain: fragments merged, entries before a compression included, entries that a
    compression put in their place marked as `Origin.SUMMARY`. Of a very long session only the first and the newest
    (`FIRST_BYTES`, `KEPT_BYTES`).
    """

    chain: tuple[str, ...]
    gaps: tuple[tuple[str, str], ...]
    mixed_ids: bool
    dialog: tuple[DialogEntry, ...]


@dataclass(slots=True)
class _Spoken:
    """The records that say something, by uuid: the first and the newest ones."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    _first: int = 0
    _newest: deque[tuple[str, int]] = field(default_factory=deque)
    _bytes: int = 0

    def add(self, uuid: str, record: Record, length: int) -> None:
        """Keep a record that came in a line of this length, which it keeps in memory."""
        self.records.setdefault(uuid, []).append(record)
        if self._first + length <= FIRST_BYTES and not self._newest:
            self._first += length
            return
        self._newest.append((uuid, length))
        self._bytes += length
        while self._bytes > KEPT_BYTES and len(self._newest) > 1:
            oldest, dropped = self._newest.popleft()
            self._bytes -= dropped
            self.records.pop(oldest, None)


def analyse(lines: Iterable[RawLine]) -> SessionState:
    """The state of a session from all its lines."""
    return fold_all(SessionState(), (event for line in lines for event in decode(line)))


def read_transcript(lines: Iterable[RawLine]) -> Transcript:
    """The active branch of the file and what was said on it."""
    parents: dict[str, str | None] = {}
    spoken = _Spoken()
    session_ids: set[str] = set()
    leaf: str | None = None
    for record, length in ((record, line.length) for line in lines for record in records_of(line)):
        if record.counted:
            session_ids.add(record.session_id or "")
        if not record.chained:
            continue
        # The usual parent is the record before: one text in memory instead of two equal ones.
        parent = leaf if record.parent == leaf else record.parent or None
        leaf = record.uuid or ""
        parents.setdefault(leaf, parent)
        if record.type in _SPEAKING_TYPES or record.subtype == "chat_compression":
            spoken.add(leaf, record, length)
    chain, gaps = _walk(leaf, parents)
    records = spoken.records
    dialog = tuple([entry for uuid in chain if uuid in records for entry in entries_of(merge(records[uuid]))])
    return Transcript(chain, gaps, len(session_ids) > 1, _with_prelude(dialog))


def chain_uuids(lines: Iterable[RawLine]) -> list[str]:
    """The uuids on the active branch, oldest first."""
    return list(read_transcript(lines).chain)


def active_dialog(lines: Iterable[RawLine]) -> list[DialogEntry]:
    """What was said on the active branch, oldest first; see `Transcript.dialog`."""
    return list(read_transcript(lines).dialog)


def _walk(leaf: str | None, parents: dict[str, str | None]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    steps: dict[str, None] = {}
    uuid = leaf
    while uuid is not None and uuid not in steps:
        steps[uuid] = None
        parent = parents[uuid]
        if parent is not None and parent not in parents:
            return tuple(reversed(steps)), ((uuid, parent),)
        uuid = parent
    return tuple(reversed(steps)), ()


def _with_prelude(dialog: tuple[DialogEntry, ...]) -> tuple[DialogEntry, ...]:
    """`dialog` with the start-up pair of old versions marked, where it opens with one (contract 6.2)."""
    match dialog:
        case (DialogEntry(role=Role.USER) as first, DialogEntry(role=Role.ASSISTANT) as second, *rest) if (
            second.text == LEGACY_ACKNOWLEDGEMENT
        ):
            return (replace(first, prelude=True), replace(second, prelude=True), *rest)
    return dialog
