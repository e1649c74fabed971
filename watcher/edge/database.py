"""One SQLite file that several processes use at once: opening, versions, permissions, damage, narrow errors.

Nothing here knows what the tables mean; see `edge.store`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from watcher.errors import StateError, words_of

BUSY_SECONDS: Final = 5.0
"""How long a statement waits for another process's transaction before it fails."""

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SUFFIXES: Final = ("-journal", "-wal", "-shm", "")
"""What belongs to a database, the file itself last: without its side files nobody takes it for a sound one."""
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "free some space on that disk",
    sqlite3.SQLITE_READONLY: "make the directory and its files writable for this user",
    sqlite3.SQLITE_CANTOPEN: "make the directory and its files writable for this user",
    sqlite3.SQLITE_PERM: "make the directory and its files writable for this user",
    sqlite3.SQLITE_IOERR: "check the disk, its free space and its quota",
    sqlite3.SQLITE_BUSY: "another process holds it; try again",
    sqlite3.SQLITE_CORRUPT: "it is moved aside and made anew at the next use",
    sqlite3.SQLITE_NOTADB: "it is moved aside and made anew at the next use",
}


class Database:
    """A connection that any thread may use, one statement or transaction at a time.

    `warnings` holds plain sentences about damage that was found and put right; the caller logs and clears them. Every
    method raises `StateError` with file, cause and remedy, and leaves no transaction open.
    """

    def __init__(self, path: Path, migrations: Sequence[Sequence[str]], application_id: int) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._migrations = migrations
        self._application_id = application_id
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        with self._lock, self._mapped():
            self._open()

    def close(self) -> None:
        """Close the connection; a later use opens it again."""
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one query."""
        with self._lock, self._mapped():
            return self._ready().execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of one query, None when there is none."""
        with self._lock, self._mapped():
            row: tuple[Any, ...] | None = self._ready().execute(sql, parameters).fetchone()
            return row

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """One changing statement in its own transaction; returns how many rows it changed."""
        with self.transaction() as connection:
            return connection.execute(sql, parameters).rowcount

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """A write transaction, taken at once so that nobody else's write comes between its reads and its writes.

        `durable` makes it survive a power cut as soon as it has returned; without, it survives the end of the process.
        """
        with self._lock, self._mapped():
            connection = self._ready()
            if durable:
                connection.execute("PRAGMA synchronous = FULL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    # SQLite has rolled back by itself after some errors, a full disk among them.
                    if connection.in_transaction:
                        with contextlib.suppress(sqlite3.Error):
                            connection.execute("ROLLBACK")
                    raise
            finally:
                if durable:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("PRAGMA synchronous = NORMAL")

    def compact(self) -> None:
        """Give unused pages back to the file system and empty the write-ahead log."""
        with self._lock, self._mapped():
            # `execute` would take a single step, and this pragma frees one page a step.
            self._ready().executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);")

    def release_memory(self) -> None:
        """Give back what SQLite holds of pages that were read or written: up to 2 MiB."""
        with self._lock, self._mapped():
            if self._connection is not None:
                self._connection.execute("PRAGMA shrink_memory")

    # -- opening -------------------------------------------------------------------------------------------------------

    def _ready(self) -> sqlite3.Connection:
        connection = self._connection
        if connection is not None and not connection.in_transaction and self._identity != _identity(self.path):
            # Deleted or replaced under us: other processes use the new one, or would make it.
            self.close()
            connection = None
        return connection if connection is not None else self._open()

    def _open(self) -> sqlite3.Connection:
        self._make_directory()
        # Whoever opens a file that another process moves away, or sets up, at that moment would take the journal that
        # stands beside it by name for its own, roll it back and delete it.
        with self._setup_lock():
            try:
                connection = self._connect()
            except sqlite3.DatabaseError as error:
                if _primary(error) not in _DAMAGED:
                    raise
                self._move_aside(error)
                connection = self._connect()
        self._connection = connection
        self._identity = _identity(self.path)
        return connection

    def _connect(self) -> sqlite3.Connection:
        _make_private_file(self.path)
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            version = _version(connection)
            if version < len(self._migrations):
                self._migrate(connection)
            self._refuse_newer(version)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if _version(connection) == 0:
            # Neither can be changed later, and neither inside a transaction.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for number in range(_version(connection), len(self._migrations)):
                for statement in self._migrations[number]:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")
            connection.execute(f"PRAGMA application_id = {self._application_id}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _refuse_newer(self, version: int) -> None:
        if version > len(self._migrations):
            raise StateError(
                f"{self.path} was written by a newer version of this program (its schema is {version}, this one knows "
                f"{len(self._migrations)}): install the newer version, or set QWEN_WATCHER_STATE_DIR"
            )

    def _make_directory(self) -> None:
        directory = self.path.parent
        if directory.is_dir():
            return
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
            # Only a directory that we made is ours to tighten; a umask may have taken too much as well.
            directory.chmod(0o700)
        except OSError as error:
            raise StateError(
                f"cannot create the state directory {directory} ({words_of(error)}): make its parent writable, or set "
                "QWEN_WATCHER_STATE_DIR"
            ) from error

    def _move_aside(self, error: sqlite3.DatabaseError) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")  # noqa: PTH105 - suffixes, not paths
        self.warnings.append(
            f"the state database {self.path} was damaged ({error}) and is kept as {aside.name}; a new one was made. "
            "No session data is lost; attempts and daily calls count from zero."
        )

    def _is_sound(self) -> bool:
        """False only for damage: a file that cannot be looked at now is not thrown away."""
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as probe:
                return bool(probe.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
        except sqlite3.DatabaseError as error:
            if _primary(error) in _DAMAGED:
                return False
            raise

    @contextlib.contextmanager
    def _setup_lock(self) -> Iterator[None]:
        """Only one process at a time opens, makes, migrates or replaces the file.

        Where no lock file can be made, as in a directory that may only be read, a file can only be opened.
        """
        try:
            fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield
            return
        try:
            os.fchmod(fd, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    # -- errors --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = _primary(error)
            if code in _DAMAGED:
                self._heal(error)
            remedy = _REMEDIES.get(code, "see `qwen-watcher doctor`")
            raise StateError(f"state database {self.path}: {error}: {remedy}") from error
        except OSError as error:
            raise StateError(
                f"state database {self.path}: {words_of(error)}: {_REMEDIES[sqlite3.SQLITE_CANTOPEN]}"
            ) from error

    def _heal(self, error: sqlite3.Error) -> None:
        """Damage seen during use: put the file away, so that the next use starts with a sound one."""
        self.close()
        with contextlib.suppress(OSError, sqlite3.Error):
            if isinstance(error, sqlite3.DatabaseError):
                with self._setup_lock():
                    if not self._is_sound():  # else another process was faster
                        self._move_aside(error)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at the path, None when there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - before every statement, and a third of the cost
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _primary(error: sqlite3.Error) -> int:
    """The primary result code, 0 when SQLite gave none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _make_private_file(path: Path) -> None:
    """SQLite gives its side files the mode of the main file, so the main one is made before SQLite can.

    An existing file is never opened here: closing any descriptor of it would drop the locks of other connections of
    this process (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(fd, 0o600)
            finally:
                os.close(fd)
        return
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
        with contextlib.suppress(OSError):
            path.chmod(0o600)
