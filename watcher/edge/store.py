"""What the watcher remembers: attempts, daily calls, what it wrote, what waits, what files looked like (design 9).

Every method is one short transaction; several threads and processes may use the same file at once. Losing the file
loses no session data. Each method raises `StateError` when the file cannot be used; a caller that can go on without
does so. Session ids are compared in lower case; `now` and `at` are seconds since the epoch, UTC.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from watcher.core.generation import Kind
from watcher.edge.database import Database
from watcher.edge.store_index import FileIndex
from watcher.edge.store_journal import Journal, MadeText, json_object
from watcher.edge.store_rows import (
    Anomaly,
    Attempts,
    Baseline,
    Failure,
    Heartbeat,
    IndexRow,
    JournalEntry,
    JournalKind,
    Paused,
    Pending,
    PendingKind,
    Stamp,
    text,
)
from watcher.edge.store_schema import APPLICATION_ID, MIGRATIONS
from watcher.errors import StateError, words_of

FILE_NAME: Final = "state.db"
DAY_SECONDS: Final = 86_400.0
JOURNAL_DAYS: Final = 400
CALL_DAYS: Final = 400
ATTEMPT_DAYS: Final = 60
"""Attempts of sessions whose file is gone are kept this long: an archived session may come back."""
ANOMALIES_TO_STOP: Final = 3
"""So many anomalies within a day stop all writing (design promise 6)."""
_FOREVER: Final = "forever"


def has_database(directory: Path) -> bool:
    """Whether this state directory holds a state database. Raises `StateError` where that cannot be seen."""
    try:
        (directory / FILE_NAME).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StateError(
            f"cannot look into the state directory {directory} ({words_of(error)}): make it readable for this user, or "
            "set QWEN_WATCHER_STATE_DIR"
        ) from error
    return True


class Store(FileIndex, Journal):
    """The state database. `warnings()` tells what was found damaged and put right since it was last asked."""

    @classmethod
    def open(cls, directory: Path) -> Store:
        """The store in this state directory, both made when missing (0700, 0600). Raises `StateError`."""
        return cls(Database(directory / FILE_NAME, MIGRATIONS, APPLICATION_ID))

    @classmethod
    def open_existing(cls, directory: Path) -> Store | None:
        """The store in this state directory; None, and nothing is made, when there is none yet. Raises `StateError`."""
        return cls.open(directory) if has_database(directory) else None

    @property
    def path(self) -> Path:
        """The database file."""
        return self._db.path

    def warnings(self) -> list[str]:
        """Plain sentences for the log; each is returned once."""
        found, self._db.warnings = self._db.warnings, []
        return found

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        self._db.close()

    def copy_to(self, directory: Path) -> None:
        """Put a copy of the whole database into `directory`."""
        self._db.rows("VACUUM INTO ?", (str(directory / FILE_NAME),))

    def data_version(self) -> int:
        """A number that changes when another process or connection has committed something."""
        row = self._db.row("PRAGMA data_version")
        return int(row[0]) if row else 0

    # -- attempts ------------------------------------------------------------------------------------------------------

    def attempts(self, session_id: str, kind: Kind = Kind.TITLE) -> Attempts:
        """How often this was tried for the session; all zero when never."""
        row = self._db.row(
            "SELECT count, last_turn, last_reason, last_detail, last_at, made_turn, made_user_turns FROM attempts "
            "WHERE session_id = ? AND kind = ?",
            (session_id.lower(), kind.value),
        )
        return Attempts(*row) if row else Attempts()

    def note_attempt(self, session_id: str, turn: str, at: float, kind: Kind = Kind.TITLE) -> int:
        """Count an attempt for this turn, before the call is made; returns the new count."""
        with self._db.transaction() as db:
            db.execute(
                "INSERT INTO attempts (session_id, kind, count, last_turn, last_reason, last_detail, last_at) "
                "VALUES (?, ?, 1, ?, '', '', ?) ON CONFLICT (session_id, kind) DO UPDATE SET "
                "count = count + 1, last_turn = excluded.last_turn, last_reason = '', last_detail = '', "
                "last_at = excluded.last_at",
                (session_id.lower(), kind.value, text(turn), at),
            )
            row = db.execute(
                "SELECT count FROM attempts WHERE session_id = ? AND kind = ?", (session_id.lower(), kind.value)
            ).fetchone()
        return int(row[0])

    def take_back_attempt(self, session_id: str, kind: Kind = Kind.TITLE) -> None:
        """The attempt that was counted last never reached the model: as if it had not been made."""
        self._db.run(
            "UPDATE attempts SET count = count - 1, last_turn = '' WHERE session_id = ? AND kind = ? AND count > 0",
            (session_id.lower(), kind.value),
        )

    def note_result(self, session_id: str, reason: str, detail: str = "", kind: Kind = Kind.TITLE) -> None:
        """How the last attempt ended: `reason` is a `core.reasons.Reason` value, "" for success."""
        self._db.run(
            "UPDATE attempts SET last_reason = ?, last_detail = ? WHERE session_id = ? AND kind = ?",
            (text(reason), text(detail), session_id.lower(), kind.value),
        )

    def note_made(self, session_id: str, turn: str, user_turns: int, kind: Kind) -> None:
        """A text came of the last attempt, and stands or will: the newest prompt it knew, and how many there were."""
        self._db.run(
            "UPDATE attempts SET made_turn = ?, made_user_turns = ? WHERE session_id = ? AND kind = ?",
            (text(turn), user_turns, session_id.lower(), kind.value),
        )

    def reset_attempts(self, session_id: str, kind: Kind = Kind.TITLE) -> None:
        """Begin counting anew."""
        self._db.run("DELETE FROM attempts WHERE session_id = ? AND kind = ?", (session_id.lower(), kind.value))

    def failed_attempts(self, since: float) -> int:
        """How many sessions' last attempt since then ended with a reason."""
        row = self._db.row("SELECT count(*) FROM attempts WHERE last_reason != '' AND last_at >= ?", (since,))
        return int(row[0]) if row else 0

    def last_failure(self) -> Failure | None:
        """The attempt that failed last and was not tried again since, None when there is none."""
        row = self._db.row(
            "SELECT session_id, kind, last_reason, last_detail, last_at FROM attempts "
            "WHERE last_reason NOT IN ('', 'aborted') ORDER BY last_at DESC LIMIT 1"
        )
        return Failure(row[0], Kind(row[1]), *row[2:]) if row else None

    # -- daily budget --------------------------------------------------------------------------------------------------

    def take_call(self, day: str, limit: int) -> bool:
        """Take one of the day's `limit` calls; False when none is left. Atomic across processes."""
        if limit <= 0:
            return False
        changed = self._db.run(
            "INSERT INTO days VALUES (?, 1, 0, 0) ON CONFLICT (day) DO UPDATE SET calls = calls + 1 WHERE calls < ?",
            (day, limit),
        )
        return changed == 1

    def calls_on(self, day: str) -> int:
        """The calls taken on this day."""
        row = self._db.row("SELECT calls FROM days WHERE day = ?", (day,))
        return int(row[0]) if row else 0

    def add_tokens(self, day: str, tokens_in: int, tokens_out: int) -> None:
        """Add what a reply reported."""
        self._db.run(
            "INSERT INTO days VALUES (?, 0, ?, ?) ON CONFLICT (day) DO UPDATE SET "
            "tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out",
            (day, tokens_in, tokens_out),
        )

    def tokens_on(self, day: str) -> tuple[int, int]:
        """Tokens in and out on this day."""
        row = self._db.row("SELECT tokens_in, tokens_out FROM days WHERE day = ?", (day,))
        return (int(row[0]), int(row[1])) if row else (0, 0)

    # -- what an endpoint was found to refuse --------------------------------------------------------------------------

    def learned(self, endpoint_key: str) -> dict[str, Any] | None:
        """What was learned about this endpoint and model, None when nothing."""
        row = self._db.row("SELECT data FROM learned WHERE endpoint = ?", (endpoint_key,))
        return json_object(row[0]) if row else None

    def learn(self, endpoint_key: str, data: Mapping[str, Any]) -> None:
        """Replace what is known about this endpoint and model; JSON values only."""
        self._db.run("INSERT OR REPLACE INTO learned VALUES (?, ?)", (endpoint_key, json.dumps(dict(data))))

    # -- sessions that the user wants left alone -----------------------------------------------------------------------

    def dismiss(self, session_id: str, at: float) -> None:
        """Never title this session automatically again (after `undo`)."""
        self._db.run("INSERT OR REPLACE INTO dismissed VALUES (?, ?)", (session_id.lower(), at))

    def is_dismissed(self, session_id: str) -> bool:
        """Whether `undo` was used on this session."""
        return self._db.row("SELECT 1 FROM dismissed WHERE session_id = ?", (session_id.lower(),)) is not None

    # -- pause and brake -----------------------------------------------------------------------------------------------

    def pause(self, until: float | None) -> None:
        """Stop all automatic writing until then; None: until `resume`."""
        self.set_flag("paused_until", _FOREVER if until is None else repr(until))

    def resume(self) -> None:
        """End a pause."""
        self.set_flag("paused_until", None)

    def paused(self, now: float) -> Paused | None:
        """The pause in force, None when there is none or it is over."""
        value = self.get_flag("paused_until")
        if value is None:
            return None
        if value == _FOREVER:
            return Paused(None)
        until = float(value)
        return Paused(until) if now < until else None

    def note_anomaly(self, session_id: str, what: str, at: float) -> None:
        """Record what a verification found: stops this session, and all writing when it is the third in a day."""
        with self._db.transaction() as db:
            db.execute(
                "INSERT INTO anomalies (session_id, what, at) VALUES (?, ?, ?)", (session_id.lower(), text(what), at)
            )
            cleared = db.execute("SELECT value FROM flags WHERE name = 'brake_cleared_at'").fetchone()
            floor = max(at - DAY_SECONDS, float(cleared[0]) if cleared else 0.0)
            (count,) = db.execute("SELECT count(*) FROM anomalies WHERE at > ?", (floor,)).fetchone()
            if count >= ANOMALIES_TO_STOP:
                db.execute(
                    "INSERT OR REPLACE INTO flags VALUES ('brake', ?)",
                    (f"{count} anomalies within a day: {text(what)}",),
                )

    def anomalies(self, since: float = 0.0) -> list[Anomaly]:
        """Anomalies since then, oldest first."""
        rows = self._db.rows("SELECT session_id, what, at FROM anomalies WHERE at >= ? ORDER BY id", (since,))
        return [Anomaly(*row) for row in rows]

    def session_stopped(self, session_id: str) -> str | None:
        """What stops all writing to this session, None when nothing does."""
        row = self._db.row(
            "SELECT what FROM anomalies WHERE session_id = ? ORDER BY id DESC LIMIT 1", (session_id.lower(),)
        )
        return str(row[0]) if row else None

    def stopped_all(self) -> str | None:
        """What stops all writing until `clear_brake`, None when nothing does."""
        return self.get_flag("brake")

    def clear_brake(self, now: float) -> None:
        """`doctor` has been run: write again. Sessions with an anomaly of their own stay stopped."""
        with self._db.transaction() as db:
            db.execute("DELETE FROM flags WHERE name = 'brake'")
            db.execute("INSERT OR REPLACE INTO flags VALUES ('brake_cleared_at', ?)", (repr(now),))

    # -- flags and the running watcher's own row -----------------------------------------------------------------------

    def get_flag(self, name: str) -> str | None:
        """A remembered setting, None when it was never set."""
        row = self._db.row("SELECT value FROM flags WHERE name = ?", (text(name),))
        return str(row[0]) if row else None

    def set_flag(self, name: str, value: str | None) -> None:
        """Remember a setting; None forgets it. Nothing is written when it is so already."""
        if self.get_flag(name) == value:
            return
        if value is None:
            self._db.run("DELETE FROM flags WHERE name = ?", (text(name),))
        else:
            self._db.run("INSERT OR REPLACE INTO flags VALUES (?, ?)", (text(name), text(value)))

    def put_heartbeat(self, beat: Heartbeat) -> None:
        """Leave what `status` shows when it cannot ask the running watcher."""
        self.set_flag("heartbeat", json.dumps([beat.pid, beat.started_at, beat.at, beat.version, beat.data]))

    def heartbeat(self) -> Heartbeat | None:
        """The last heartbeat, None when there never was one."""
        value = self.get_flag("heartbeat")
        return Heartbeat(*json.loads(value)) if value else None

    # -- retention -----------------------------------------------------------------------------------------------------

    def prune(self, now: float) -> None:
        """Drop what is too old to matter and give the space back; meant for once a day."""
        kept_since = now - JOURNAL_DAYS * DAY_SECONDS
        gone = "session_id NOT IN (SELECT session_id FROM files)"
        with self._db.transaction() as db:
            db.execute("DELETE FROM journal WHERE at < ?", (kept_since,))
            db.execute("DELETE FROM anomalies WHERE at < ?", (kept_since,))
            db.execute(
                "DELETE FROM days WHERE day NOT IN (SELECT day FROM days ORDER BY day DESC LIMIT ?)", (CALL_DAYS,)
            )
            db.execute(
                f"DELETE FROM attempts WHERE coalesce(last_at, 0) < ? AND {gone}",  # noqa: S608 - constants
                (now - ATTEMPT_DAYS * DAY_SECONDS,),
            )
            db.execute("DELETE FROM made WHERE at < ?", (now - ATTEMPT_DAYS * DAY_SECONDS,))
            db.execute(f"DELETE FROM dismissed WHERE at < ? AND {gone}", (kept_since,))  # noqa: S608 - constants
            db.execute("DELETE FROM pending WHERE created_at < ?", (kept_since,))
        self._db.compact()

    def release_memory(self) -> None:
        """Give back what is held of pages that were read or written; after much of either."""
        self._db.release_memory()


__all__ = [
    "Anomaly",
    "Attempts",
    "Baseline",
    "Failure",
    "Heartbeat",
    "IndexRow",
    "JournalEntry",
    "JournalKind",
    "MadeText",
    "Paused",
    "Pending",
    "PendingKind",
    "Stamp",
    "Store",
]
