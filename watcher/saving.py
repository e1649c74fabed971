"""How a session is remembered while it is quiet: its row of the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from watcher.core.interactive import is_interactive
from watcher.core.owner import Ownership
from watcher.edge.scan import DirScan, scan_dir
from watcher.edge.store import IndexRow, Store
from watcher.following import Look
from watcher.pipeline import Tracked
from watcher.qwen.paths import SessionRef, session_ref


def save_sessions(store: Store, sessions: Sequence[Tracked], owners: Sequence[Ownership]) -> None:
    """Note how the sessions look now, so that only what comes later counts as movement."""
    store.upsert_index(map(_index_row, sessions, owners))
    for directory in {session.path.rpartition("/")[0] for session in sessions}:
        listing = scan_dir(directory)
        if not isinstance(listing, DirScan):
            continue
        saved = store.stamps(directory)
        start = len(directory) + 1
        if all(saved.get(f.path[start:]) == (f.dev, f.ino, f.size, f.mtime_ns) for f in listing.files):
            store.save_scan([(directory, listing.digest)], ())


def ref_of(session: Tracked) -> SessionRef:
    """The session as the rest of the program names it."""
    ref = session_ref(session.path)
    assert ref is not None, "only transcripts are tracked"
    return ref


def _index_row(session: Tracked, owners: Ownership) -> IndexRow:
    look, ref, state = cast("Look", session.seen), ref_of(session), session.state
    mark = look.tail.checkpoint
    title = state.title
    return IndexRow(
        path=session.path,
        session_id=ref.session_id,
        dev=mark.dev if mark else 0,
        ino=mark.ino if mark else 0,
        size=look.size,
        mtime_ns=look.tail.mtime_ns,
        offset=look.tail.offset,
        head_print=mark.head_print if mark else b"",
        tail_print=mark.tail_print if mark else b"",
        title=title.title if title else "",
        title_source=("manual" if title.is_manual else "auto") if title else "",
        cwd=state.first_cwd,
        user_turns=state.user_turns,
        last_activity=state.last_activity_at,
        interactive=is_interactive(state, owners),
        recap_text=state.recap.text if state.recap else "",
        recap_at=state.recap.at if state.recap else None,
        version=state.version,
    )
