"""The tables of the state database and how older versions become the newest.

`MIGRATIONS[n]` holds the statements that lead from schema version n to n + 1; `PRAGMA user_version` says which a file
has. A released entry is never edited: a change is a new entry.

Paths are stored as the bytes that the file system uses (BLOB), since they need not be text. Times are seconds since the
epoch, in UTC. Session ids are lower-case.
"""

from __future__ import annotations

_V1 = (
    """
    CREATE TABLE attempts (
        session_id TEXT NOT NULL, kind TEXT NOT NULL,
        count INTEGER NOT NULL, last_turn TEXT NOT NULL, last_reason TEXT NOT NULL, last_detail TEXT NOT NULL,
        last_at REAL,
        PRIMARY KEY (session_id, kind)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE days (
        day TEXT PRIMARY KEY, calls INTEGER NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE TABLE learned (endpoint TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE journal (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL, session_id TEXT NOT NULL, path BLOB NOT NULL, cwd TEXT NOT NULL, text TEXT NOT NULL,
        source TEXT NOT NULL, model TEXT NOT NULL, record_uuid TEXT NOT NULL, parent_uuid TEXT NOT NULL,
        at REAL NOT NULL, offset INTEGER NOT NULL, note TEXT NOT NULL,
        uuids TEXT NOT NULL
    )
    """,
    "CREATE INDEX journal_by_session ON journal (session_id, seq)",
    "CREATE INDEX journal_by_time ON journal (at)",
    """
    CREATE TABLE pending (
        session_id TEXT NOT NULL, kind TEXT NOT NULL, path BLOB NOT NULL, text TEXT NOT NULL, source TEXT NOT NULL,
        model TEXT NOT NULL, basis_moves INTEGER NOT NULL, basis_turn TEXT NOT NULL, created_at REAL NOT NULL,
        journal_seq INTEGER NOT NULL, note TEXT NOT NULL,
        PRIMARY KEY (session_id, kind)
    ) WITHOUT ROWID
    """,
    "CREATE TABLE intents (uuid TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE dismissed (session_id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE anomalies (
        id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, what TEXT NOT NULL, at REAL NOT NULL
    )
    """,
    "CREATE INDEX anomalies_by_session ON anomalies (session_id)",
    "CREATE TABLE flags (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE files (
        dir BLOB NOT NULL, name BLOB NOT NULL, session_id TEXT NOT NULL,
        dev INTEGER NOT NULL, ino INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
        offset INTEGER NOT NULL, head_print BLOB NOT NULL, tail_print BLOB NOT NULL,
        title TEXT NOT NULL, title_source TEXT NOT NULL, first_prompt TEXT NOT NULL, cwd TEXT NOT NULL,
        user_turns INTEGER NOT NULL, last_activity REAL, interactive INTEGER NOT NULL,
        recap_text TEXT NOT NULL, recap_at REAL, version TEXT NOT NULL,
        PRIMARY KEY (dir, name)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX files_by_session ON files (session_id)",
    "CREATE INDEX files_by_activity ON files (last_activity)",
    "CREATE TABLE dirs (dir BLOB PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID",
)

_V2 = (
    # The newest text that a model made for a session, whether it was written or only shown; `request` tells which
    # request it answered.
    """
    CREATE TABLE made (
        session_id TEXT NOT NULL, kind TEXT NOT NULL, request BLOB NOT NULL, text TEXT NOT NULL, model TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (session_id, kind)
    ) WITHOUT ROWID
    """,
)

_V3 = (
    # The newest recap that was made: what it knew outlives every later attempt, whatever became of that.
    "ALTER TABLE attempts ADD COLUMN made_turn TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE attempts ADD COLUMN made_user_turns INTEGER NOT NULL DEFAULT 0",
    """
    UPDATE attempts SET made_turn = last_turn, made_user_turns = CAST(last_detail AS INTEGER), last_detail = ''
    WHERE kind = 'recap' AND count > 0 AND last_reason = '' AND last_detail GLOB '[0-9]*'
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_V1, _V2, _V3)

VERSION = len(MIGRATIONS)
"""The schema version that this program reads and writes."""

APPLICATION_ID = 0x71777363
"""Marks the file as ours for `file(1)` and the like (`PRAGMA application_id`)."""
