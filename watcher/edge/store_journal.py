"""The part of the state database that says what was written, what waits to be written and what is being written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from watcher.core.generation import Kind
from watcher.edge.database import Database
from watcher.edge.store_rows import (
    JOURNAL_COLUMNS,
    PENDING_COLUMNS,
    JournalEntry,
    JournalKind,
    Pending,
    PendingKind,
    entry_of,
    journal_values,
    pending_of,
    pending_values,
    text,
)


@dataclass(frozen=True, slots=True)
class MadeText:
    """The newest text that a model made for a session. `request` is the digest of the request that it answered."""

    request: bytes
    text: str
    model: str
    at: float


class Journal:
    """Journal entries, pending texts and intents. Methods raise `StateError`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # -- journal -------------------------------------------------------------------------------------------------------

    def record(self, entry: JournalEntry, intent: str = "") -> int:
        """Append to the journal; `entry.seq` is ignored, the given number is returned.

        With `intent`, the uuid of a write under way: that intent is forgotten in the same step. When it is gone already
        somebody else has noted this write, so nothing is appended and 0 is returned.
        """
        with self._db.transaction() as db:
            if intent and not db.execute("DELETE FROM intents WHERE uuid = ?", (intent,)).rowcount:
                return 0
            cursor = db.execute(
                f"INSERT INTO journal ({JOURNAL_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608
                journal_values(entry),
            )
            return int(cursor.lastrowid or 0)

    def redelivered(self, seq: int, record_uuid: str, at: float, offset: int | None = None) -> None:
        """The text of this entry was appended again: it stays one entry, with the newest record (design 11).

        The entry's own time stays that of the first delivery; `at` goes into its note.
        """
        self._db.run(
            "UPDATE journal SET record_uuid = ?, uuids = uuids || ' ' || ?, offset = coalesce(?, offset), note = ? "
            "WHERE seq = ?",
            (text(record_uuid), text(record_uuid), offset, f"redelivered {at:.3f}", seq),
        )

    def entries(
        self,
        after_seq: int = 0,
        kinds: Iterable[JournalKind] | None = None,
        session_id: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> list[JournalEntry]:
        """Journal entries, oldest first; `limit` keeps the newest ones."""
        where, parameters = ["seq > ?"], [after_seq]  # type: tuple[list[str], list[Any]]
        if kinds is not None:
            values = [kind.value for kind in kinds]
            where.append(f"kind IN ({','.join('?' * len(values))})")
            parameters += values
        if session_id is not None:
            where.append("session_id = ?")
            parameters.append(session_id.lower())
        if since is not None:
            where.append("at >= ?")
            parameters.append(since)
        parameters.append(-1 if limit is None else limit)
        rows = self._db.rows(
            f"SELECT seq, {JOURNAL_COLUMNS} FROM journal WHERE {' AND '.join(where)} "  # noqa: S608 - constants
            "ORDER BY seq DESC LIMIT ?",
            parameters,
        )
        return [entry_of(row) for row in reversed(rows)]

    def entry(self, seq: int) -> JournalEntry | None:
        """One journal entry."""
        row = self._db.row(f"SELECT seq, {JOURNAL_COLUMNS} FROM journal WHERE seq = ?", (seq,))  # noqa: S608
        return entry_of(row) if row else None

    def our_titles(self, session_id: str) -> list[JournalEntry]:
        """Every entry of this session that put a title record, oldest first."""
        return [entry for entry in self.entries(session_id=session_id) if entry.source]

    def count_entries(self, kind: JournalKind, since: float = 0.0) -> int:
        """How many entries of this kind were made since then."""
        row = self._db.row("SELECT count(*) FROM journal WHERE kind = ? AND at >= ?", (kind.value, since))
        return int(row[0]) if row else 0

    # -- what models made ----------------------------------------------------------------------------------------------

    def put_made(self, session_id: str, kind: Kind, made: MadeText) -> None:
        """Keep the newest text of this kind, so that the same request need not be sent again."""
        self._db.run(
            "INSERT OR REPLACE INTO made VALUES (?, ?, ?, ?, ?, ?)",
            (session_id.lower(), kind.value, made.request, text(made.text), text(made.model), made.at),
        )

    def made(self, session_id: str, kind: Kind) -> MadeText | None:
        """The newest text of this kind, None when there is none."""
        row = self._db.row(
            "SELECT request, text, model, at FROM made WHERE session_id = ? AND kind = ?",
            (session_id.lower(), kind.value),
        )
        return MadeText(*row) if row else None

    # -- texts that wait for their session to be free ------------------------------------------------------------------

    def put_pending(self, pending: Pending) -> None:
        """Keep a text for later; one of each kind a session, a newer one replaces it."""
        self._db.run(
            f"INSERT OR REPLACE INTO pending ({PENDING_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608
            pending_values(pending),
        )

    def pending(self, session_id: str) -> list[Pending]:
        """What waits for this session, oldest first."""
        rows = self._db.rows(
            f"SELECT {PENDING_COLUMNS} FROM pending WHERE session_id = ? ORDER BY created_at, kind",  # noqa: S608
            (session_id.lower(),),
        )
        return [pending_of(row) for row in rows]

    def all_pending(self) -> list[Pending]:
        """All that waits, oldest first."""
        rows = self._db.rows(f"SELECT {PENDING_COLUMNS} FROM pending ORDER BY created_at, session_id, kind")  # noqa: S608
        return [pending_of(row) for row in rows]

    def drop_pending(self, session_id: str, kind: PendingKind | None = None) -> None:
        """Forget one kind of waiting text of the session, or all of them."""
        if kind is None:
            self._db.run("DELETE FROM pending WHERE session_id = ?", (session_id.lower(),))
        else:
            self._db.run("DELETE FROM pending WHERE session_id = ? AND kind = ?", (session_id.lower(), kind.value))

    # -- writes under way ----------------------------------------------------------------------------------------------

    def put_intent(self, uuid: str, data: Mapping[str, Any]) -> None:
        """Note a write before it happens, safe from a power cut when this returns; JSON values only."""
        with self._db.transaction(durable=True) as db:
            db.execute("INSERT OR REPLACE INTO intents VALUES (?, ?)", (uuid, json.dumps(dict(data))))

    def drop_intent(self, uuid: str) -> None:
        """The write was verified."""
        self._db.run("DELETE FROM intents WHERE uuid = ?", (uuid,))

    def intents(self) -> list[dict[str, Any]]:
        """Writes that were begun and never verified."""
        return [json_object(row[0]) for row in self._db.rows("SELECT data FROM intents ORDER BY uuid")]


def json_object(data: str) -> dict[str, Any]:
    """The JSON object in a column, empty where it is none."""
    value = json.loads(data)
    return value if isinstance(value, dict) else {}
