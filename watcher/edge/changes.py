"""File events as few, cheap values: which session files, sidecars, registry records or directories were touched.

watchdog's threads only sort paths and hand values to `sink`, which must not raise; scheduling, and every decision,
happens in the thread that calls `start`, `verify` and `stop`. Where the system has no events to give, the feed says so
and the caller's own cheap reconcile (`edge.scan`) takes their place.

The event filter keeps other programs from waking us: of what watchdog 7.1 can ask inotify for, the mask then holds
MODIFY, ATTRIB, CREATE, DELETE, MOVED_FROM, MOVED_TO and DELETE_SELF, but neither OPEN nor CLOSE (report F7).
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

from watcher.edge.change_handlers import AnchorHandler, RootHandler
from watcher.edge.change_values import (
    Backend,
    Change,
    Mode,
    RescanAll,
    Root,
    RootKind,
    RootState,
)
from watcher.edge.inotify_shortcuts import quieten_watchdog, take_shortcuts

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver, ObservedWatch

_DIR_EVENTS: Final[list[type[FileSystemEvent]]] = [DirCreatedEvent, DirMovedEvent, DirDeletedEvent]
_ALL_EVENTS: Final[list[type[FileSystemEvent]]] = [
    *_DIR_EVENTS,
    FileModifiedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
]
_ANCHOR_ROUNDS: Final = 4


@dataclass(slots=True)
class _Scheduled:
    handler: RootHandler | AnchorHandler
    watch: ObservedWatch
    identity: tuple[int, int]


class ChangeFeed:
    """Events below some roots, or the reason why there are none.

    `no_events` says of a path why its file system gives no reliable events, "" when it does. `explain` turns the error
    of a system that refuses to watch into a line for the user. The number of threads is that of the roots and their
    parents, plus two.
    """

    def __init__(
        self,
        roots: Iterable[Root],
        sink: Callable[[Change], None],
        *,
        backend: Backend = Backend.AUTO,
        no_events: Callable[[str], str] = lambda _path: "",
        explain: Callable[[OSError], str] = str,
        make_observer: Callable[[], BaseObserver] = Observer,
    ) -> None:
        self._roots = tuple(dict.fromkeys(roots))
        self._sink = sink
        self._backend = backend
        self._no_events = no_events
        self._explain = explain
        self._make_observer = make_observer
        self._observer: BaseObserver | None = None
        self._refused = "the configuration says so" if backend is Backend.POLLING else ""
        self._scheduled: dict[Root, _Scheduled] = {}
        self._anchors: dict[str, _Scheduled] = {}
        self._states: dict[Root, RootState] = {}

    def start(self) -> None:
        """Begin. Look at every root afterwards: only what happens from now on raises events."""
        self._restart()
        self.verify()

    def stop(self) -> None:
        """End all threads and close all descriptors. No value comes after it has returned."""
        observer, self._observer = self._observer, None
        self._scheduled.clear()
        self._anchors.clear()
        if observer is not None:
            observer.stop()
            with contextlib.suppress(RuntimeError):  # it never started
                observer.join()

    @property
    def states(self) -> tuple[RootState, ...]:
        """How each root is followed, as the last `verify` found it."""
        return tuple(self._states[root] for root in self._roots if root in self._states)

    @property
    def needs_polling(self) -> bool:
        """Whether any existing root gives no events."""
        return any(state.mode is Mode.POLLING for state in self._states.values())

    def verify(self) -> tuple[Root, ...]:
        """Watch what exists now; returns the roots to look at, since they came, went or are watched anew.

        Call it when `RootsChanged` comes and with each reconcile: some moves of a root's parents raise no event.
        """
        changed: list[Root] = []
        if self._is_deaf():
            self._restart()
        try:
            self._place_anchors()
            for root in self._roots:
                if self._check(root):
                    changed.append(root)
            if changed:
                self._probe()
        except OSError as error:
            self._fall_back(error)
            return self.verify()
        return tuple(changed)

    def _restart(self) -> None:
        self.stop()
        self._states.clear()
        if self._refused:
            return
        quieten_watchdog()
        try:
            self._observer = self._make_observer()
            self._observer.start()
        except OSError as error:
            self._fall_back(error)

    def _is_deaf(self) -> bool:
        """Whether one of watchdog's own threads has ended, which it tells nobody."""
        if self._observer is None:
            return False
        reader = getattr(self._observer, "_inotify_fd", None)
        return not self._observer.is_alive() or (isinstance(reader, threading.Thread) and not reader.is_alive())

    # -- roots ---------------------------------------------------------------------------------------------------------

    def _check(self, root: Root) -> bool:
        """Bring one root up to date; returns whether it must be looked at."""
        old = self._states.get(root)
        identity = _identity(root.path)
        scheduled = self._scheduled.get(root)
        if scheduled is not None and (identity != scheduled.identity or not self._is_alive(scheduled)):
            self._unschedule(self._scheduled.pop(root))
            scheduled = None
            old = None
        reason = "" if self._backend is Backend.NATIVE or scheduled is not None else self._no_events(root.path)
        if identity is None:
            state = RootState(root, Mode.MISSING)
        elif self._observer is None or reason:
            state = RootState(root, Mode.POLLING, self._refused or reason)
        elif scheduled is not None or self._schedule_root(root):
            state = RootState(root, Mode.NATIVE)
        else:
            state = RootState(root, Mode.MISSING)
        self._states[root] = state
        return state != old

    def _schedule_root(self, root: Root) -> bool:
        resolved = os.path.realpath(root.path)
        identity = _identity(resolved)
        if identity is None or self._observer is None:
            return False
        handler = RootHandler(root, resolved, self._sink)
        recursive = root.kind is RootKind.PROJECTS
        try:
            watch = self._observer.schedule(handler, resolved, recursive=recursive, event_filter=_ALL_EVENTS)
        except (FileNotFoundError, NotADirectoryError):
            return False
        self._scheduled[root] = _Scheduled(handler, watch, identity)
        for emitter in self._emitters(watch):
            take_shortcuts(emitter, handler.dispatch, handler.modified, self._dropped)
        return True

    def _dropped(self) -> None:
        self._sink(RescanAll("the kernel dropped file events"))

    # -- parents of roots ----------------------------------------------------------------------------------------------

    def _place_anchors(self) -> None:
        """Watch the nearest existing parent of each root, for roots that come, go or are moved."""
        if self._observer is None:
            return
        for _ in range(_ANCHOR_ROUNDS):
            wanted = self._wanted_anchors()
            for path in [path for path, anchor in self._anchors.items() if not self._is_wanted(path, anchor, wanted)]:
                self._unschedule(self._anchors.pop(path))
            for path, targets in wanted.items():
                anchor = self._anchors.get(path)
                if anchor is None:
                    self._schedule_anchor(path, targets)
                else:
                    anchor.handler.targets = targets
            # A parent that came between the look and the watch raised no event: look again.
            if self._wanted_anchors().keys() == self._anchors.keys():
                return

    def _wanted_anchors(self) -> dict[str, tuple[str, ...]]:
        """Resolved parent → the paths at which the roots below it stand or will stand."""
        inside = [f"{os.path.realpath(root.path)}/" for root in self._roots if root.kind is RootKind.PROJECTS]
        wanted: dict[str, tuple[str, ...]] = {}
        for root in self._roots:
            parent = _parent(root.path)
            while parent != "/" and _identity(parent) is None:
                parent = _parent(parent)
            resolved = os.path.realpath(parent)
            # Two watches on one directory would share the kernel's mask: the one set last would win.
            if any(f"{resolved}/".startswith(prefix) for prefix in inside):
                continue
            if resolved in self._anchors or not self._no_events(resolved):
                target = resolved.rstrip("/") + root.path[len(parent.rstrip("/")) :]
                wanted[resolved] = (*wanted.get(resolved, ()), target)
        return wanted

    def _is_wanted(self, path: str, anchor: _Scheduled, wanted: dict[str, tuple[str, ...]]) -> bool:
        return path in wanted and _identity(path) == anchor.identity and self._is_alive(anchor)

    def _schedule_anchor(self, path: str, targets: tuple[str, ...]) -> None:
        identity = _identity(path)
        if identity is None or self._observer is None:
            return
        handler = AnchorHandler(path, targets, self._sink)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            watch = self._observer.schedule(handler, path, recursive=False, event_filter=_DIR_EVENTS)
            self._anchors[path] = _Scheduled(handler, watch, identity)

    # -- watchdog ------------------------------------------------------------------------------------------------------

    def _emitters(self, watch: ObservedWatch) -> list[Any]:
        observer = self._observer
        return [] if observer is None else [emitter for emitter in observer.emitters if emitter.watch == watch]

    def _is_alive(self, scheduled: _Scheduled) -> bool:
        """False once the directory was deleted or moved: its watch then sees nothing, or the wrong thing."""
        return not scheduled.handler.lost and any(emitter.is_alive() for emitter in self._emitters(scheduled.watch))

    def _unschedule(self, scheduled: _Scheduled) -> None:
        if self._observer is not None:
            with contextlib.suppress(KeyError):
                self._observer.unschedule(scheduled.watch)

    def _probe(self) -> None:
        """Find out whether watches ran out below a root: watchdog passes over subdirectories that it cannot watch."""
        if self._observer is None or sys.platform != "linux" or "/" in self._anchors:
            return
        watch = self._observer.schedule(FileSystemEventHandler(), "/", recursive=False, event_filter=[DirDeletedEvent])
        self._observer.unschedule(watch)

    def _fall_back(self, error: OSError) -> None:
        self._refused = self._explain(error)
        self.stop()
        self._states.clear()


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of the directory that `path` leads to, None when there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "/"
