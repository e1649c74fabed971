"""Which files are looked at: the events that tell of one, and the looks at all of them.

Events can be lost, so each look at everything, by `stat` alone, finds what they did not tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from watcher.edge.change_values import Backend, Change, Root, RootKind, poll_seconds
from watcher.edge.changes import ChangeFeed
from watcher.edge.scan import DirChanges, Reconciler, Unreadable
from watcher.edge.store import Baseline
from watcher.edge.watch_limits import explain_limit
from watcher.errors import StateError
from watcher.log import WATCHER, LogKey, get_logger
from watcher.pipeline import Pipeline
from watcher.qwen.contract import PROJECTS_DIR, REGISTRY_DIR, session_id_of
from watcher.workplace import Workplace, refused_mount

RECONCILE_SECONDS: Final = 300.0
FIRST_SCAN_FLAG: Final = "first_scan_at:"
"""Followed by the root: a home that is named later has a first scan of its own."""


class _StoppingError(Exception):
    """A stop was asked for in the middle of the very first look, which is nothing until it is whole."""


class Lookout:
    """Tells the pipeline which files may have changed. Owned by one thread; `post` is called in others, too.

    `stopping` tells whether a look that takes long is to be given up. Methods raise `StateError`.
    """

    def __init__(
        self,
        place: Workplace,
        pipeline: Pipeline,
        *,
        post: Callable[[Change], None],
        skipped: Callable[[str, str], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._place = place
        self._store = place.store
        self._pipeline = pipeline
        self._post = post
        self._skipped = skipped
        self._stopping = stopping
        self._feed = self._make_feed()
        self._reconciler = Reconciler.resume(self._store.digests(), self._store.stamps, time.time_ns)
        self._caught_up = False

    @property
    def roots(self) -> tuple[Root, ...]:
        """What is watched, by the configuration in force."""
        roots: dict[Root, None] = {}
        for root in self._place.roots:
            roots[Root(str(root.runtime_base / PROJECTS_DIR), RootKind.PROJECTS)] = None
            roots[Root(str(root.config_dir / REGISTRY_DIR), RootKind.REGISTRY)] = None
        return tuple(roots)

    # -- events -------------------------------------------------------------------------------------------------------

    def _make_feed(self) -> ChangeFeed:
        return ChangeFeed(
            self.roots,
            self._post,
            backend=Backend(self._place.config.watch.backend),
            no_events=refused_mount,
            explain=explain_limit,
        )

    def start(self) -> None:
        """Begin to take events."""
        self._feed.start()
        for state in self._feed.states:
            if state.reason:
                get_logger(WATCHER).warning("polling", **{LogKey.PATH: state.root.path, LogKey.DETAIL: state.reason})

    def stop(self) -> None:
        """Take no more of them."""
        self._feed.stop()

    def follow(self, old_roots: tuple[Root, ...], old_backend: str) -> bool:
        """Bring the events in line with a new configuration. True when another place, or in another way, is watched
        now: then catch up.
        """
        if self.roots == old_roots and self._place.config.watch.backend == old_backend:
            return False
        self._feed.stop()
        self._feed = self._make_feed()
        self.start()
        watched = tuple(f"{root.path}/" for root in self.roots)
        for session in self._pipeline.sessions():
            if not session.path.startswith(watched):
                self._pipeline.forget(session.path)
        return True

    def verify(self) -> None:
        """Look at the roots that came, went or are watched anew."""
        for root in self._feed.verify():
            if _has_sessions(root):
                self._rescan_below(root.path)
            else:
                self._pipeline.on_owners()

    # -- looks at everything -------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Look at what happened while nobody watched."""
        for root in self.roots:
            if _has_sessions(root):
                look = self._first_scan if self._is_new(root.path) else self._rescan_below
                look(root.path)
        for pending in self._store.all_pending():
            self._pipeline.track(pending.path)
        self._caught_up = True

    def begin_anew(self) -> bool:
        """Look at everything as on the very first start where the state database was lost while we run, or every old
        session would look like a new one. True when that was so.
        """
        if not self._caught_up or not any(self._is_new(root.path) for root in self.roots if _has_sessions(root)):
            return False
        self._reconciler = Reconciler.resume({}, self._store.stamps, time.time_ns)
        self._caught_up = False
        self.catch_up()
        return True

    def reconcile(self) -> None:
        """Find what no event told of; all of it, when an earlier look failed."""
        if self._caught_up:
            self.rescan()
        else:
            self.catch_up()

    def interval(self) -> float:
        """Seconds until the next `reconcile`. Where a root gives no events it is looked at now, and again soon."""
        if not self._feed.needs_polling:
            return RECONCILE_SECONDS
        begun = time.perf_counter()
        self.rescan()
        return poll_seconds(time.perf_counter() - begun)

    def look_in(self, directory: str) -> None:
        """Look at the files of one directory."""
        self._look(self._reconciler.directory(directory))

    def rescan(self) -> None:
        """Look at every file below the roots."""
        for root in self.roots:
            if _has_sessions(root):
                self._rescan_below(root.path)

    def _is_new(self, root: str) -> bool:
        return self._store.get_flag(FIRST_SCAN_FLAG + root) is None

    def _first_scan(self, root: str) -> None:
        """The very first look: everything that stands there was written before us, and is left to `backfill`."""
        store = self._store
        vanished: list[str] = []
        try:
            # One transaction: with one for each directory, saving would take longer than looking.
            store.save_baselines(self._baselines(root, vanished))
        except (StateError, _StoppingError) as error:
            self._reconciler = Reconciler.resume({}, store.stamps, time.time_ns)
            if isinstance(error, _StoppingError):
                return
            raise
        store.forget(vanished)
        store.set_flag(FIRST_SCAN_FLAG + root, repr(self._place.clock()))

    def _baselines(self, root: str, vanished: list[str]) -> Iterator[tuple[str, bytes, Iterable[Baseline]]]:
        for changes in self._reconciler.full(root):
            if self._stopping():
                raise _StoppingError
            if isinstance(changes, Unreadable):
                self._tell_unreadable(changes)
                continue
            vanished += changes.vanished
            self._tell_unsafe(changes)
            start = len(changes.directory) + 1
            yield (
                changes.directory,
                changes.digest,
                [
                    Baseline(f.path[start:], session_id_of(f.path) or "", f.dev, f.ino, f.size, f.mtime_ns)
                    for f in (*changes.new, *changes.changed)
                ],
            )

    def _rescan_below(self, root: str) -> None:
        for changes in self._reconciler.full(root):
            if self._stopping():
                return
            self._look(changes)

    def _look(self, changes: DirChanges | Unreadable | None) -> None:
        if changes is None:
            return
        if isinstance(changes, Unreadable):
            self._tell_unreadable(changes)
            return
        self._tell_unsafe(changes)
        for path in changes.vanished:
            self._pipeline.on_change(path)
        moved = (*changes.new, *changes.changed)
        # The digest vouches for every row, so it waits until the rows of what moved are saved (`Desk.save`).
        digests = [] if moved else [(changes.directory, changes.digest)]
        self._store.save_scan(digests, (), changes.vanished)
        for found in moved:
            if self._stopping():
                return
            self._pipeline.on_change(found.path)

    def _tell_unsafe(self, changes: DirChanges) -> None:
        for unsafe in changes.unsafe:
            self._skipped(unsafe.path, unsafe.why)

    def _tell_unreadable(self, found: Unreadable) -> None:
        if found.directory not in {root.path for root in self.roots}:
            self._skipped(found.directory, f"cannot be listed: {os.strerror(found.errno)}")


def _has_sessions(root: Root) -> bool:
    return root.kind is RootKind.PROJECTS
