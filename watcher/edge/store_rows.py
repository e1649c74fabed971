"""The values that go into and come out of the state database, and how each becomes a row.

`IndexRow` and `Stamp` are named tuples, not dataclasses: ten thousand of them are made for one listing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from watcher.core.generation import Kind

_SIGN = 1 << 63


class JournalKind(StrEnum):
    """What was written. `tail` lists titles and recaps; the rest explains and undoes."""

    TITLE = "title"
    RECAP = "recap"
    HEAL = "heal"
    """The user's title was put last again (design promise 2)."""
    REPAIR = "repair"
    """A record that corrects a stale parent (contract 4.4)."""
    REANCHOR = "reanchor"
    """Our title again, after it had left the picker's windows (design 6)."""
    UNDO = "undo"


class PendingKind(StrEnum):
    """What waits for its session to be free."""

    TITLE = "title"
    RECAP = "recap"
    MANUAL_TITLE = "manual_title"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a text was tried for a session, and how the last try ended. `last_turn` is the uuid of its prompt.

    `made_turn` is that of the newest text that came of a try, "" before any; `made_user_turns` so many prompts it knew.
    """

    count: int = 0
    last_turn: str = ""
    last_reason: str = ""
    last_detail: str = ""
    last_at: float | None = None
    made_turn: str = ""
    made_user_turns: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that ended with a reason."""

    session_id: str
    kind: Kind
    reason: str
    detail: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One thing that we wrote. `source` is the title's source, "" for a recap; `offset` is where our line began.

    `record_uuid` is the record that carries the text now, `uuids` are all records that ever carried it for this entry.
    """

    kind: JournalKind
    session_id: str
    path: str
    at: float
    text: str = ""
    cwd: str = ""
    source: str = ""
    model: str = ""
    record_uuid: str = ""
    parent_uuid: str = ""
    offset: int = 0
    note: str = ""
    uuids: tuple[str, ...] = ()
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A text that waits. `basis_moves` and `basis_turn` say which state of the session it was made of.

    `journal_seq` is the entry of an earlier delivery of the same text, 0 when there was none.
    """

    session_id: str
    kind: PendingKind
    path: str
    created_at: float
    text: str = ""
    source: str = ""
    model: str = ""
    basis_moves: int = 0
    basis_turn: str = ""
    journal_seq: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Paused:
    """A pause in force; `until` is None when only `resume` ends it."""

    until: float | None


@dataclass(frozen=True, slots=True)
class Anomaly:
    """What the verification after a write found (design promise 6)."""

    session_id: str
    what: str
    at: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the running watcher left about itself; `data` holds JSON values."""

    pid: int
    started_at: float
    at: float
    version: str
    data: dict[str, Any] = field(default_factory=dict)


class Stamp(NamedTuple):
    """By what a file is known to be unchanged."""

    dev: int
    ino: int
    size: int
    mtime_ns: int


class Baseline(NamedTuple):
    """A file that was there before us and was not read. `name` is that in its directory."""

    name: str
    session_id: str
    dev: int
    ino: int
    size: int
    mtime_ns: int


class IndexRow(NamedTuple):
    """One session file as it was when it was last read to `offset`.

    `size` and `mtime_ns` are the file's when it was read, `offset` is the end of its last whole line; `head_print` and
    `tail_print` are the bytes by which a rewritten file is recognised (`edge.tailer`). `title_source` is `auto`,
    `manual` or "". `last_activity` and `recap_at` are None when there was none.
    """

    path: str
    session_id: str
    dev: int = 0
    ino: int = 0
    size: int = 0
    mtime_ns: int = 0
    offset: int = 0
    head_print: bytes = b""
    tail_print: bytes = b""
    title: str = ""
    title_source: str = ""
    first_prompt: str = ""
    cwd: str = ""
    user_turns: int = 0
    last_activity: float | None = None
    interactive: bool = False
    recap_text: str = ""
    recap_at: float | None = None
    version: str = ""


JOURNAL_COLUMNS = "kind, session_id, path, cwd, text, source, model, record_uuid, parent_uuid, at, offset, note, uuids"
PENDING_COLUMNS = "session_id, kind, path, text, source, model, basis_moves, basis_turn, created_at, journal_seq, note"
INDEX_COLUMNS = (
    "dir, name, session_id, dev, ino, size, mtime_ns, offset, head_print, tail_print, title, title_source, "
    "first_prompt, cwd, user_turns, last_activity, interactive, recap_text, recap_at, version"
)


def text(value: str) -> str:
    """The text as SQLite takes it: a lone surrogate, which JSON can hold and UTF-8 cannot, becomes `?`."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def signed(number: int) -> int:
    """An unsigned 64-bit number as SQLite's signed one, and back: device and inode numbers use all 64 bits."""
    if number >= _SIGN:
        return number - 2 * _SIGN
    return number


def unsigned(number: int) -> int:
    """The reverse of `signed`."""
    return number + 2 * _SIGN if number < 0 else number


def split_path(path: str) -> tuple[bytes, bytes]:
    """Directory and name as the bytes that the file system uses."""
    directory, _, name = os.fsencode(path).rpartition(b"/")
    return directory, name


def journal_values(entry: JournalEntry) -> tuple[Any, ...]:
    """Values for `JOURNAL_COLUMNS`."""
    uuids = entry.uuids or ((entry.record_uuid,) if entry.record_uuid else ())
    return (
        entry.kind.value,
        entry.session_id.lower(),
        os.fsencode(entry.path),
        text(entry.cwd),
        text(entry.text),
        entry.source,
        text(entry.model),
        text(entry.record_uuid),
        text(entry.parent_uuid),
        entry.at,
        entry.offset,
        text(entry.note),
        text(" ".join(uuids)),
    )


def entry_of(row: tuple[Any, ...]) -> JournalEntry:
    """A row of `seq` and `JOURNAL_COLUMNS`."""
    return JournalEntry(
        seq=row[0],
        kind=JournalKind(row[1]),
        session_id=row[2],
        path=os.fsdecode(row[3]),
        cwd=row[4],
        text=row[5],
        source=row[6],
        model=row[7],
        record_uuid=row[8],
        parent_uuid=row[9],
        at=row[10],
        offset=row[11],
        note=row[12],
        uuids=tuple(row[13].split()),
    )


def pending_values(pending: Pending) -> tuple[Any, ...]:
    """Values for `PENDING_COLUMNS`."""
    return (
        pending.session_id.lower(),
        pending.kind.value,
        os.fsencode(pending.path),
        text(pending.text),
        pending.source,
        text(pending.model),
        pending.basis_moves,
        text(pending.basis_turn),
        pending.created_at,
        pending.journal_seq,
        text(pending.note),
    )


def pending_of(row: tuple[Any, ...]) -> Pending:
    """A row of `PENDING_COLUMNS`."""
    return Pending(
        session_id=row[0],
        kind=PendingKind(row[1]),
        path=os.fsdecode(row[2]),
        text=row[3],
        source=row[4],
        model=row[5],
        basis_moves=row[6],
        basis_turn=row[7],
        created_at=row[8],
        journal_seq=row[9],
        note=row[10],
    )


def index_values(row: IndexRow) -> tuple[Any, ...]:
    """Values for `INDEX_COLUMNS`."""
    return (
        *split_path(row.path),
        row.session_id.lower(),
        signed(row.dev),
        signed(row.ino),
        row.size,
        row.mtime_ns,
        row.offset,
        row.head_print,
        row.tail_print,
        text(row.title),
        row.title_source,
        text(row.first_prompt),
        text(row.cwd),
        row.user_turns,
        row.last_activity,
        row.interactive,
        text(row.recap_text),
        row.recap_at,
        text(row.version),
    )


def index_of(row: tuple[Any, ...]) -> IndexRow:
    """A row of `INDEX_COLUMNS`."""
    path = os.fsdecode(row[0] + b"/" + row[1])
    made: IndexRow = IndexRow._make(
        (path, row[2], unsigned(row[3]), unsigned(row[4]), *row[5:16], bool(row[16]), *row[17:])
    )
    return made
