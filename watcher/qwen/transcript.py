"""A whole session file as Qwen Code's reader takes it: pure functions over its lines (contract 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from watcher.core.entries import DialogEntry
from watcher.core.generation import Role
from watcher.core.session import SessionState, fold_all
from watcher.qwen.entries import LEGACY_ACKNOWLEDGEMENT, entries_of
from watcher.qwen.jsonl import RawLine
from watcher.qwen.records import decode
from watcher.qwen.wire import Record, merge, records_of

_SPEAKING_TYPES = frozenset({"user", "assistant"})


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a session's reader would restore.

    `chain` are the uuids on the active branch, oldest first; `gaps` the pairs of child and missing parent where it ends
    early. With `mixed_ids` Qwen Code refuses to load the file, and the rest says what it would hold without the check.
    `dialog` is what was said on the chain: fragments merged, entries before a compression included, entries that a
    compression put in their place marked as `Origin.SUMMARY`.
    """

    chain: tuple[str, ...]
    gaps: tuple[tuple[str, str], ...]
    mixed_ids: bool
    dialog: tuple[DialogEntry, ...]


def analyse(lines: Iterable[RawLine]) -> SessionState:
    """The state of a session from all its lines."""
    return fold_all(SessionState(), (event for line in lines for event in decode(line)))


def read_transcript(lines: Iterable[RawLine]) -> Transcript:
    """The active branch of the file and what was said on it."""
    parents: dict[str, str | None] = {}
    spoken: dict[str, list[Record]] = {}
    session_ids: set[str] = set()
    leaf: str | None = None
    for record in (record for line in lines for record in records_of(line)):
        if record.counted:
            session_ids.add(record.session_id or "")
        if not record.chained:
            continue
        leaf = record.uuid or ""
        parents.setdefault(leaf, record.parent or None)
        if record.type in _SPEAKING_TYPES or record.subtype == "chat_compression":
            spoken.setdefault(leaf, []).append(record)
    chain, gaps = _walk(leaf, parents)
    dialog = tuple([entry for uuid in chain if uuid in spoken for entry in entries_of(merge(spoken[uuid]))])
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
