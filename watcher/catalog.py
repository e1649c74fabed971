"""The sessions as people see them: listed newest first, found by id, prefix, path or `latest`.

Reads the index where it is up to date and the files where it is not; writes nothing, since the index also tells the
service what it has seen.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from watcher.core.interactive import is_interactive
from watcher.core.owner import Ownership
from watcher.core.session import SessionState
from watcher.edge.files import RealFiles
from watcher.edge.liveness import Liveness
from watcher.edge.scan import Found, Unreadable, Unsafe, scan
from watcher.edge.store import IndexRow, Store
from watcher.errors import NotFoundError, UsageError, words_of
from watcher.qwen.contract import PROJECTS_DIR, WINDOW_BYTES, sanitize_cwd
from watcher.qwen.paths import SessionRef, session_ref
from watcher.qwen.reading import Reading, read_state
from watcher.qwen.roots import Root
from watcher.qwen.titles import first_prompt, read_title

LISTED: Final = 50
"""So many sessions are listed without `--limit` (design 11)."""
READ_WINDOW_BYTES: Final = 64 * 1024 * 1024
LOOK_FILES: Final = 64
MIN_PREFIX: Final = 4
LATEST: Final = "latest"
MAX_NAMED: Final = 4
SNAPSHOT_MARK: Final = b"file_history_snapshot"
"""Without these bytes a file holds no sign of an interactive session (design 6)."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One session for `sessions`. Times are seconds since the epoch; `title_source` is `auto`, `manual` or None."""

    ref: SessionRef
    cwd: str
    title: str | None
    title_source: str | None
    first_prompt: str
    user_turns: int
    last_activity: float | None
    last_user: float | None
    recap: str | None
    interactive: bool
    running: bool
    ownership: Ownership
    mtime: float

    @property
    def pid(self) -> int | None:
        """The newest live owner, None without one."""
        return self.ownership.live[0].pid if self.ownership.live else None


class Catalog:
    """Lists and finds sessions below some roots. Remembers what it read until a file changes."""

    def __init__(self, roots: Sequence[Root], liveness: Liveness, store: Store | None) -> None:
        self._bases = tuple(dict.fromkeys(root.runtime_base for root in roots))
        self._liveness = liveness
        self._store = store
        self._known: dict[tuple[str, bool], tuple[Found, Listed | None]] = {}

    def files(self) -> list[Found]:
        """Every session file, newest modification first."""
        found = [item for item in self._scan() if isinstance(item, Found)]
        found.sort(key=lambda file: file.mtime_ns, reverse=True)
        return found

    def closed(self) -> str | None:
        """A directory that this user may not list, so that sessions in it are not seen; None without one."""
        denied = (errno.EACCES, errno.EPERM)
        items = (item for item in self._scan() if isinstance(item, Unreadable) and item.errno in denied)
        return next((item.directory for item in items), None)

    def _scan(self) -> Iterator[Found | Unsafe | Unreadable]:
        for base in self._bases:
            yield from scan(str(base / PROJECTS_DIR))

    def newest(self, limit: int | None = LISTED, *, cwd: str | None = None, every: bool = False) -> Iterator[Listed]:
        """Sessions, newest modification first: interactive ones unless `every`, of one directory where `cwd` is
        given.
        """
        count = 0
        projects = _projects(cwd) if cwd is not None else ()
        folders = {sanitize_cwd(project) for project in projects}
        files = [file for file in self.files() if not folders or file.path.rsplit("/", 3)[1] in folders]
        for ref, file, owners in self._with_owners(files):
            if limit is not None and count >= limit:
                return
            listed = self._listed(ref, file, owners, every=every)
            if listed is None or (projects and not _belongs(listed.cwd, projects)):
                continue
            if every or listed.interactive:
                count += 1
                yield listed

    def _with_owners(self, files: Sequence[Found]) -> Iterator[tuple[SessionRef, Found, Ownership]]:
        """The transcripts among them with their owners, some at one look: a look reads the whole registry."""
        for start in range(0, len(files), LOOK_FILES):
            some = files[start : start + LOOK_FILES]
            refs = [(ref, file) for file in some if (ref := session_ref(file.path)) is not None]
            owners = self._liveness.owners_of_all((ref.session_id, ref.sidecar) for ref, _ in refs)
            for (ref, file), found in zip(refs, owners, strict=True):
                yield ref, file, found

    def _listed(self, ref: SessionRef, file: Found, owners: Ownership, *, every: bool) -> Listed | None:
        """What `sessions` shows of one file, None for an empty or unreadable one; unless `every`, also for one that is
        seen at a glance not to be interactive.
        """
        known = self._known.get((file.path, every))
        if known is None or known[0] != file or (known[1] is not None and known[1].ownership.owned != owners.owned):
            known = self._known[file.path, every] = (file, self._read(ref, file, owners, every=every))
        listed = known[1]
        if listed is None or listed.ownership == owners:
            return listed
        return replace(listed, ownership=owners, interactive=listed.interactive or owners.interactive)

    def _read(self, ref: SessionRef, file: Found, owners: Ownership, *, every: bool) -> Listed | None:
        row = self._store.index_at(file.path) if self._store is not None else None
        if row is not None and (row.dev, row.ino, row.size, row.mtime_ns) != file[1:5]:
            row = None
        try:
            fd = RealFiles().open_read(file.path)
        except OSError:
            return None
        try:
            return self._look(ref, file, fd, row, owners, every=every)
        except OSError:
            return None
        finally:
            os.close(fd)

    @staticmethod
    def _look(
        ref: SessionRef, file: Found, fd: int, row: IndexRow | None, owners: Ownership, *, every: bool
    ) -> Listed | None:
        head = os.pread(fd, WINDOW_BYTES, 0)
        whole = file.size <= WINDOW_BYTES
        if not head or (whole and not every and not owners.interactive and SNAPSHOT_MARK not in head):
            return None
        tail = head if whole else os.pread(fd, WINDOW_BYTES, file.size - WINDOW_BYTES)
        shown = read_title(head, tail, file.size)
        state = None
        if row is None or not row.offset or owners.owned:
            state = _read(fd, file).state
        title = shown.title if shown is not None and shown.title else None
        source = None if title is None or shown is None else ("auto" if shown.source == "auto" else "manual")
        return Listed(
            ref=ref,
            cwd=state.first_cwd if state is not None else row.cwd if row else "",
            title=title,
            title_source=source,
            first_prompt=first_prompt(head),
            user_turns=state.user_turns if state is not None else row.user_turns if row else 0,
            last_activity=state.last_activity_at if state is not None else row.last_activity if row else None,
            last_user=state.last_user_at if state is not None else None,
            recap=_recap(state, row),
            interactive=is_interactive(state, owners) if state is not None else bool(row and row.interactive),
            running=state.running if state is not None else False,
            ownership=owners,
            mtime=file.mtime_ns / 1e9,
        )

    # -- one session --------------------------------------------------------------------------------------------------

    def find(self, name: str) -> SessionRef:
        """The session called `name`: an id, a unique id prefix, a file path or `latest`.

        Raises `NotFoundError` when nothing or more than one answers to it, `UsageError` for a prefix that is too short.
        """
        if name == LATEST:
            return self._latest()
        if os.sep in name or name.endswith(".jsonl"):
            return self._at(name)
        if len(name) < MIN_PREFIX:
            raise UsageError(f"{name!r} is too short for an id; give at least {MIN_PREFIX} characters")
        low = name.lower()
        paths = dict.fromkeys(item.path for item in self._scan() if not isinstance(item, Unreadable))
        refs = [ref for path in paths if (ref := session_ref(path)) is not None]
        found = [ref for ref in refs if ref.session_id.lower() == low]
        found = found or [ref for ref in refs if ref.session_id.lower().startswith(low)]
        if not found:
            raise NotFoundError(f"no session {name!r}; `qwen-watcher sessions --all` lists them")
        if len(found) > 1:
            ids = dict.fromkeys(ref.session_id for ref in found)
            shown = list(ids if len(ids) == len(found) else (ref.path for ref in found))
            more = ", …" if len(shown) > MAX_NAMED else ""
            raise NotFoundError(
                f"{name!r} fits {len(found)} sessions, give more of one of them: {', '.join(shown[:MAX_NAMED])}{more}"
            )
        return found[0]

    def _latest(self) -> SessionRef:
        for listed in self.newest(1):
            return listed.ref
        raise NotFoundError("there is no interactive session yet")

    def _at(self, name: str) -> SessionRef:
        path = Path(name).expanduser().absolute()
        ref = session_ref(str(path))
        if ref is None:
            raise NotFoundError(f"{name} is not a session file (…/projects/<project>/chats/<id>.jsonl)")
        if not os.path.lexists(path):
            raise NotFoundError(f"{name} does not exist")
        return ref


def _projects(cwd: str) -> tuple[str, ...]:
    """The directory as it was named and as a process in it sees it."""
    return tuple(dict.fromkeys((cwd, os.path.realpath(cwd))))


def _belongs(cwd: str, projects: Collection[str]) -> bool:
    """Whether a session in `cwd` is one of these projects' (contract 1.2): there, or in one of their worktrees."""
    return any(cwd == project or cwd.startswith(f"{project}/.qwen/worktrees/") for project in projects)


def read_session(ref: SessionRef) -> Reading:
    """The state of one session file, from at most its last 64 MiB. Raises `NotFoundError` when it cannot be read."""
    try:
        fd = RealFiles().open_read(ref.path)
    except OSError as error:
        raise NotFoundError(f"{ref.path}: {words_of(error)}") from error
    try:
        status = os.fstat(fd)
        found = Found(ref.path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, 1, status.st_uid, 0)
        return _read(fd, found)
    except OSError as error:
        raise NotFoundError(f"{ref.path}: {words_of(error)}") from error
    finally:
        os.close(fd)


def _read(fd: int, file: Found) -> Reading:
    files = RealFiles()
    return read_state(
        lambda length, offset: files.read_at(fd, length, offset),
        dev=file.dev,
        ino=file.ino,
        size=file.size,
        window=READ_WINDOW_BYTES,
    )


def _recap(state: SessionState | None, row: IndexRow | None) -> str | None:
    if state is not None:
        return state.recap.text if state.recap else None
    return row.recap_text or None if row else None
