"""The part of the state database that says what each session file was like when it was last read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from watcher.edge.database import Database
from watcher.edge.store_rows import (
    INDEX_COLUMNS,
    Baseline,
    IndexRow,
    Stamp,
    index_of,
    index_values,
    signed,
    split_path,
    unsigned,
)

_SAVE_BASELINE: Final = (
    "INSERT OR REPLACE INTO files (dir, name, session_id, dev, ino, size, mtime_ns, offset, head_print, tail_print, "
    "title, title_source, first_prompt, cwd, user_turns, last_activity, interactive, recap_text, recap_at, version) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, 0, x'', x'', '', '', '', '', 0, NULL, 0, '', NULL, '')"
)
MAX_MATCHES: Final = 20
"""An id prefix that matches more sessions than this is too short to be of use."""


class FileIndex:
    """Rows per session file and a digest per directory. Methods raise `StateError`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def upsert_index(self, rows: Iterable[IndexRow]) -> None:
        """Keep these rows, one transaction for all."""
        self.save_scan((), rows)

    def save_scan(
        self, digests: Iterable[tuple[str, bytes]], rows: Iterable[IndexRow], vanished: Iterable[str] = ()
    ) -> None:
        """Keep rows and, in the same transaction, the digests of directories that these rows bring up to date.

        A digest stands for "all rows of this directory are as the files were then": give it only together with the row
        of every file that the scan named as changed or new, and with the paths that it named as vanished. A row that
        was read later than the digest does no harm.
        """
        marks = ",".join("?" * (INDEX_COLUMNS.count(",") + 1))
        with self._db.transaction() as db:
            db.executemany("DELETE FROM files WHERE dir = ? AND name = ?", map(split_path, vanished))
            db.executemany(
                f"INSERT OR REPLACE INTO files ({INDEX_COLUMNS}) VALUES ({marks})",  # noqa: S608 - constants
                map(index_values, rows),
            )
            db.executemany(
                "INSERT OR REPLACE INTO dirs VALUES (?, ?)",
                ((os.fsencode(directory), digest) for directory, digest in digests),
            )

    def save_baselines(self, found: Iterable[tuple[str, bytes, Iterable[Baseline]]]) -> None:
        """Keep files of which nothing is known yet but that they are there, in one transaction: for each directory its
        digest and its files. `found` is gone through while the transaction is open.
        """
        with self._db.transaction() as db:
            for directory, digest, files in found:
                folder = os.fsencode(directory)
                rows = [
                    (
                        folder,
                        os.fsencode(f.name),
                        f.session_id.lower(),
                        signed(f.dev),
                        signed(f.ino),
                        f.size,
                        f.mtime_ns,
                    )
                    for f in files
                ]
                db.executemany(_SAVE_BASELINE, rows)
                db.execute("INSERT OR REPLACE INTO dirs VALUES (?, ?)", (folder, digest))

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the rows of these files."""
        self.save_scan((), (), paths)

    def digests(self) -> dict[str, bytes]:
        """Directory → digest, as `save_scan` kept them."""
        return {os.fsdecode(row[0]): row[1] for row in self._db.rows("SELECT dir, digest FROM dirs")}

    def stamps(self, directory: str) -> dict[str, Stamp]:
        """File name → identity, size and time of the indexed files in this directory."""
        rows = self._db.rows(
            "SELECT name, dev, ino, size, mtime_ns FROM files WHERE dir = ?", (os.fsencode(directory),)
        )
        return {os.fsdecode(row[0]): Stamp(unsigned(row[1]), unsigned(row[2]), row[3], row[4]) for row in rows}

    def index_for_dir(self, directory: str) -> list[IndexRow]:
        """The rows of one `chats` directory."""
        return self._index("WHERE dir = ?", (os.fsencode(directory),))

    def index_rows(self) -> list[IndexRow]:
        """All rows, in no particular order."""
        return self._index("", ())

    def index_of_session(self, id_prefix: str) -> list[IndexRow]:
        """Rows whose session id starts so, at most `MAX_MATCHES`."""
        low = id_prefix.lower()
        return self._index(
            "WHERE session_id >= ? AND session_id < ? ORDER BY session_id LIMIT ?", (low, low + "\x7f", MAX_MATCHES)
        )

    def index_at(self, path: str) -> IndexRow | None:
        """The row of one file."""
        rows = self._index("WHERE dir = ? AND name = ?", split_path(path))
        return rows[0] if rows else None

    def count_index(self) -> int:
        """How many files are indexed."""
        row = self._db.row("SELECT count(*) FROM files")
        return int(row[0]) if row else 0

    def _index(self, tail: str, parameters: Sequence[Any]) -> list[IndexRow]:
        rows = self._db.rows(f"SELECT {INDEX_COLUMNS} FROM files {tail}", parameters)  # noqa: S608 - constants
        return [index_of(row) for row in rows]
