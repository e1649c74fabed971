"""The service: builds everything, and runs the one loop that owns it.

Threads only put values into the inbox: watchdog's, the exit watch, and the model workers. Signals do the same.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watcher import __version__
from watcher.api.local import LocalApi
from watcher.config import Config
from watcher.core.generation import Kind
from watcher.desk import Answered, Desk, Note
from watcher.edge.change_values import (
    Backend,
    RegistryTouched,
    RescanAll,
    Root,
    RootKind,
    RootsChanged,
    SidecarTouched,
    Touched,
    TreeChanged,
    poll_seconds,
)
from watcher.edge.changes import ChangeFeed
from watcher.edge.exits import ExitWatch, OwnerGone
from watcher.edge.hooks import Hooks
from watcher.edge.inbox import Inbox
from watcher.edge.memory import give_back_memory, keep_memory_small
from watcher.edge.scan import DirChanges, Reconciler, Unreadable
from watcher.edge.store import Baseline, Heartbeat
from watcher.edge.watch_limits import explain_limit
from watcher.errors import AlreadyRunningError, ConfigError, StateError
from watcher.instance import Instance, only_instance
from watcher.log import (
    WATCHER,
    LogEvent,
    LogKey,
    choose_form,
    configure_logging,
    get_logger,
    log_to,
    rotate_log,
    where_it_failed,
)
from watcher.paths import log_path
from watcher.pipeline import Pipeline
from watcher.plan import plan_lines
from watcher.qwen.contract import PROJECTS_DIR, REGISTRY_DIR, session_id_of
from watcher.qwen.paths import session_ref
from watcher.sdnotify import NOTIFY_VARIABLES, Notifier, watchdog_interval
from watcher.shapes import entry_as_dict
from watcher.signals import signals_as_values
from watcher.workplace import Workplace, local_day, refused_mount

RECONCILE_SECONDS: Final = 300.0
"""Events can be lost; a look at every file by `stat` alone finds what they did not tell."""
LATE_SECONDS: Final = 1.0
"""How long a due look at a session may wait for a queue to become empty."""
DAY_SECONDS: Final = 86_400.0
STATE_RETRY_SECONDS: Final = 60.0
"""How soon everything is looked at again after the state directory could not be used, as on a full disk."""
MAX_LOG_BYTES: Final = 5 * 1024 * 1024
"""Under launchd the log is rotated at this size; one older file is kept."""
STDERR: Final = 2
LAST_LINES_SECONDS: Final = 0.5
"""So long the end waits for whoever reads the log and is slow; a stop takes at most 2 s (design 4)."""
FIRST_SCAN_FLAG: Final = "first_scan_at:"
"""Followed by the root: a home that is named later has a first scan of its own."""


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM or SIGINT."""


@dataclass(frozen=True, slots=True)
class Reload:
    """SIGHUP."""


@dataclass(frozen=True, slots=True)
class Errand:
    """Something that the local API wants done by the thread that owns everything. Raises nothing, takes no time."""

    run: Callable[[], None]


Item = (
    Touched
    | SidecarTouched
    | RegistryTouched
    | TreeChanged
    | RootsChanged
    | RescanAll
    | OwnerGone
    | Answered
    | Errand
    | Stop
    | Reload
)
_SIGNALS: Final[Mapping[signal.Signals, Item]] = {
    signal.SIGTERM: Stop(),
    signal.SIGINT: Stop(),
    signal.SIGHUP: Reload(),
}
_COALESCED: Final = (Touched, SidecarTouched, RegistryTouched, TreeChanged, RootsChanged, RescanAll)


class _StoppingError(Exception):
    """A stop was asked for in the middle of the very first look, which is nothing until it is whole."""


class Daemon:
    """One run of the service."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        config_file: Path | None = None,
        flags: Mapping[str, object] | None = None,
        dry_run: bool = False,
    ) -> None:
        self._inbox: Inbox[Item] = Inbox(
            RescanAll("too many changes at once"), lambda item: isinstance(item, _COALESCED)
        )
        self._dry_run = dry_run
        self._cleanup = ExitStack()
        self._exits: ExitWatch | None = None
        self._make_place: Callable[[], Workplace] = lambda: Workplace(
            environ,
            config_file=config_file,
            flags=flags,
            watch_exit=self._watch_exit,
            throw_away_state=dry_run,
            stays=True,
        )
        self._place: Workplace
        self._instance: Instance
        self._notifier = Notifier(environ)
        self._lines = log_to(sys.stderr)
        self._log = get_logger(WATCHER)
        self._started_at = time.time()
        self._pipeline: Pipeline
        self._desk: Desk
        self._feed: ChangeFeed
        self._workers: ThreadPoolExecutor
        self._api: LocalApi | None = None
        self._hooks = Hooks(self._tell_hook, {k: v for k, v in environ.items() if k not in NOTIFY_VARIABLES})
        self._reconciler: Reconciler
        self._next_reconcile = 0.0
        self._next_prune = 0.0
        self._recover_at: float | None = None
        self._caught_up = False
        self._state_trouble = ""
        self._stop_asked = self._reload_asked = False

    def run(self) -> int:
        """Run until a signal. Returns the exit code; raises `WatcherError` when it cannot start, or go on."""
        # Before all else: also a start that takes long can be stopped.
        with signals_as_values(_SIGNALS, self._on_signal):
            self._place = self._make_place()
            try:
                self._run()
            finally:
                self._lines.drain(LAST_LINES_SECONDS)
        return 0

    def _run(self) -> None:
        self._configure_log()
        keep_memory_small()
        with self._cleanup, only_instance(self._place.state_directory) as self._instance:
            self._cleanup.callback(self._place.close)
            self._announce()
            self._build()
            self._start()
            self._loop_while_ours()
            self._stop()

    # -- start and stop -----------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        for line in plan_lines(self._place.loaded, self._place.general_settings, self._place.environ):
            self._log.info(line)
        if self._dry_run:
            self._log.info("dry run: nothing is asked of a model and nothing is written")

    def _build(self) -> None:
        place = self._place
        self._exits = ExitWatch(self._inbox.put)
        self._cleanup.callback(self._exits.close)
        self._workers = ThreadPoolExecutor(place.config.model.max_concurrency, thread_name_prefix="model")
        self._cleanup.callback(lambda: self._workers.shutdown(wait=True, cancel_futures=True))
        self._cleanup.callback(self._hooks.close)
        self._desk = Desk(
            place.surveyor,
            place.recorder,
            place.drafter,
            place.store,
            workers=self._workers,
            post=self._inbox.put,
            clock=place.clock,
            on_written=self._on_written,
            dry_run=self._dry_run,
        )
        self._pipeline = Pipeline(self._desk)
        self._feed = self._make_feed()
        self._cleanup.callback(lambda: self._feed.stop())
        store = place.store
        self._reconciler = Reconciler.resume(store.digests(), store.stamps, time.time_ns)

    def _make_feed(self) -> ChangeFeed:
        return ChangeFeed(
            self._watch_roots(),
            self._inbox.put,
            backend=Backend(self._place.config.watch.backend),
            no_events=refused_mount,
            explain=explain_limit,
        )

    def _watch_roots(self) -> tuple[Root, ...]:
        roots: dict[Root, None] = {}
        for root in self._place.roots:
            roots[Root(str(root.runtime_base / PROJECTS_DIR), RootKind.PROJECTS)] = None
            roots[Root(str(root.config_dir / REGISTRY_DIR), RootKind.REGISTRY)] = None
        return tuple(roots)

    def _start(self) -> None:
        self._rotate_log()
        self._start_feed()
        self._next_prune = self._place.clock() + DAY_SECONDS
        with self._state_trouble_told():
            self._catch_up()
            self._schedule_reconcile()
            self._beat()
            self._rest()
        homes = [str(root.config_dir) for root in self._place.roots]
        self._log.info(
            LogEvent.STARTED,
            version=__version__,
            pid=os.getpid(),
            homes=homes,
            sessions=self._place.store.count_index(),
        )
        self._listen()
        self._notifier.ready(self._status_line())

    def _start_feed(self) -> None:
        self._feed.start()
        for state in self._feed.states:
            if state.reason:
                self._log.warning("polling", **{LogKey.PATH: state.root.path, LogKey.DETAIL: state.reason})

    def _catch_up(self) -> None:
        """Look at what happened while nobody watched."""
        self._recover()
        for root in self._watch_roots():
            if _has_sessions(root):
                look = self._first_scan if self._is_new(root.path) else self._rescan_below
                look(root.path)
        for pending in self._place.store.all_pending():
            self._pipeline.track(pending.path)
        self._caught_up = True

    def _begin_anew_without_index(self) -> None:
        """The state database was lost while we run: what stands there now is as old as on the very first start, or
        every old session would look like a new one.
        """
        if self._caught_up and any(self._is_new(root.path) for root in self._watch_roots() if _has_sessions(root)):
            self._reconciler = Reconciler.resume({}, self._place.store.stamps, time.time_ns)
            self._caught_up = False
            self._catch_up()
            self._beat()

    def _is_new(self, root: str) -> bool:
        return self._place.store.get_flag(FIRST_SCAN_FLAG + root) is None

    def _stop(self) -> None:
        self._notifier.stopping("stopping")
        self._desk.abort_all()
        if self._api is not None:
            self._api.close()
        self._feed.stop()
        with self._state_trouble_told():
            self._pipeline.on_stop()
            self._desk.save([session for session in self._pipeline.sessions() if session.settled])
        self._log.info(LogEvent.STOPPED)

    def _recover(self) -> None:
        """Finish what an earlier run was writing when it ended."""
        if self._dry_run:
            return
        left = self._place.recorder.recover(session_ref)
        self._recover_at = self._place.clock() + 10.0 if left else None

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _loop_while_ours(self) -> None:
        try:
            self._loop()
        except AlreadyRunningError as error:
            detail = f"another watcher has taken {self._place.state_directory}, so this one ends: {error}"
            self._log.error(LogEvent.STATE, **{LogKey.DETAIL: detail})
            self._desk.abort_all()
            raise

    def _loop(self) -> None:
        watchdog = watchdog_interval(self._place.environ)
        next_beat = time.monotonic() + watchdog if watchdog else None
        while True:
            now = self._place.clock()
            wait = max(0.0, min(self._wakes(now)) - now)
            if next_beat is not None:
                wait = min(wait, max(0.0, next_beat - time.monotonic()))
            item = self._inbox.get(wait)
            if self._stop_asked:
                return  # whatever waits before it: the next start finds it again
            self._renew_instance()
            try:
                self._turn(item)
            except Exception as error:  # noqa: BLE001 - a fault in one session must not end the service for all
                self._log.error(LogEvent.INTERNAL_ERROR, **{LogKey.DETAIL: where_it_failed(error)})
            if next_beat is not None and watchdog and time.monotonic() >= next_beat:
                self._notifier.watchdog()
                next_beat = time.monotonic() + watchdog

    def _renew_instance(self) -> None:
        """Before anything is done: a state directory that is not the one that we hold may be somebody else's by now.
        Raises `AlreadyRunningError` when it is.
        """
        with self._state_trouble_told():
            if self._instance.renew():
                detail = f"{self._place.state_directory} was deleted or replaced: begun anew"
                self._log.warning(LogEvent.STATE, **{LogKey.DETAIL: detail})

    def _turn(self, item: Item | None) -> None:
        if isinstance(item, Touched) and self._pipeline.session(item.path) is not None:
            # By far the most frequent: one more line in a session that is known. It needs nothing of the state.
            with self._state_trouble_told():
                self._take(item)
            if not self._is_due(self._place.clock()):
                return
            item = None
        with self._state_trouble_told():
            self._begin_anew_without_index()
        with self._state_trouble_told():
            self._begin_anew_without_index()  # the first use finds the damage, the next one has a new database
            if item is not None:
                self._take(item)
            self._do_due(self._place.clock())
        for text in self._place.store.warnings():
            self._log.warning(LogEvent.STATE, **{LogKey.DETAIL: text})

    def _on_signal(self, item: Item) -> None:
        """In a thread of its own. A stop overtakes all that waits; one reload stands for all that are asked for."""
        if isinstance(item, Stop):
            self._stop_asked = True
        elif isinstance(item, Reload):
            if self._reload_asked:
                return
            self._reload_asked = True
        self._inbox.put(item)

    def _wakes(self, now: float) -> Iterator[float]:
        yield min(self._next_reconcile, now + RECONCILE_SECONDS)
        deadline = self._pipeline.next_deadline()
        if deadline is not None:
            yield deadline
        if self._recover_at is not None:
            yield self._recover_at

    def _is_due(self, now: float) -> bool:
        """Whether `_do_due` has anything to do."""
        return (
            self._is_look_due(now)
            or now >= min(self._next_reconcile, self._next_prune)
            or self._next_reconcile > now + RECONCILE_SECONDS
            or (self._recover_at is not None and now >= self._recover_at)
        )

    def _is_look_due(self, now: float) -> bool:
        """Whether a session is to be looked at. What came in is taken first, and only then looked at: a look takes
        longer, and nothing depends on its moment.
        """
        due = self._pipeline.next_deadline()
        return due is not None and now >= due and (not self._inbox.waiting or now > due + LATE_SECONDS)

    def _take(self, item: Item) -> None:
        match item:
            case Touched(path):
                self._pipeline.on_change(path)
            case SidecarTouched() | RegistryTouched() | OwnerGone():
                self._pipeline.on_owners()
            case TreeChanged(directory):
                self._look(self._reconciler.directory(directory))
            case RootsChanged():
                self._verify_roots()
            case RescanAll():
                self._rescan()
            case Answered(path, answer):
                self._pipeline.on_answer(path, answer)
            case Errand(run):
                run()
            case Reload():
                self._reload_asked = False  # before it reads: what changes from now on is for the next one
                self._reload()
            case Stop():
                pass

    def _do_due(self, now: float) -> None:
        if self._is_look_due(now):
            self._pipeline.on_deadline(now, most=1)
        # Each time is set before the work: what fails is tried again then, and not at once and for ever.
        if self._recover_at is not None and now >= self._recover_at:
            self._recover_at = now + STATE_RETRY_SECONDS
            self._recover()
        if now >= self._next_reconcile or self._next_reconcile > now + RECONCILE_SECONDS:
            self._next_reconcile = now + STATE_RETRY_SECONDS
            self._rotate_log()
            self._verify_roots()
            look = self._rescan if self._caught_up else self._catch_up
            look()
            self._pipeline.on_circumstances()
            self._schedule_reconcile()
            self._beat()
            self._rest()
            self._state_trouble = ""
        if now >= self._next_prune:
            self._next_prune = now + DAY_SECONDS
            self._place.store.prune(now)

    @contextmanager
    def _state_trouble_told(self) -> Iterator[None]:
        """Go on when the state directory cannot be used: say so once, and look at everything again soon.

        Without it nothing is asked of a model and nothing is written: an attempt is counted first, and an intent kept.
        """
        try:
            yield
        except StateError as error:
            soon = self._place.clock() + STATE_RETRY_SECONDS
            self._next_reconcile = min(self._next_reconcile, soon) if self._next_reconcile else soon
            if str(error) != self._state_trouble:
                self._state_trouble = str(error)
                self._log.warning(LogEvent.STATE, **{LogKey.DETAIL: self._state_trouble})
                self._notifier.status(self._state_trouble)

    # -- looking at files ---------------------------------------------------------------------------------------------

    def _first_scan(self, root: str) -> None:
        """The very first look: everything that stands there was written before us, and is left to `backfill`."""
        store = self._place.store
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
            if self._stop_asked:
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

    def _rescan(self) -> None:
        for root in self._watch_roots():
            if _has_sessions(root):
                self._rescan_below(root.path)

    def _rescan_below(self, root: str) -> None:
        for changes in self._reconciler.full(root):
            if self._stop_asked:
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
        self._place.store.save_scan(digests, (), changes.vanished)
        for found in moved:
            if self._stop_asked:
                return
            self._pipeline.on_change(found.path)

    def _tell_unsafe(self, changes: DirChanges) -> None:
        for unsafe in changes.unsafe:
            self._desk.skipped(unsafe.path, unsafe.why)

    def _tell_unreadable(self, found: Unreadable) -> None:
        if found.directory not in {root.path for root in self._watch_roots()}:
            self._desk.skipped(found.directory, f"cannot be listed: {os.strerror(found.errno)}")

    def _verify_roots(self) -> None:
        for root in self._feed.verify():
            if _has_sessions(root):
                self._rescan_below(root.path)
            else:
                self._pipeline.on_owners()

    def _schedule_reconcile(self) -> None:
        interval = RECONCILE_SECONDS
        if self._feed.needs_polling:
            begun = time.perf_counter()
            self._rescan()
            interval = poll_seconds(time.perf_counter() - begun)
        self._next_reconcile = self._place.clock() + interval

    # -- telling ------------------------------------------------------------------------------------------------------

    def _on_written(self, note: Note) -> None:
        self._notifier.status(self._status_line())
        hooks = self._place.config.hooks
        argv = hooks.on_title if note.kind is Kind.TITLE else hooks.on_recap
        if not argv:
            return
        for entry in self._place.store.entries(session_id=note.ref.session_id, limit=4):
            if entry.record_uuid == note.record_uuid:
                line = json.dumps(entry_as_dict(entry), ensure_ascii=False) + "\n"
                self._hooks.start(f"on_{note.kind}", argv, line.encode("utf-8", "backslashreplace"))

    def _tell_hook(self, name: str, detail: str) -> None:
        self._log.warning(LogEvent.HOOK_FAILED, hook=name, **{LogKey.DETAIL: detail})

    def _status_line(self) -> str:
        try:
            calls = self._place.store.calls_on(local_day(self._place.clock()))
            return f"{self._place.store.count_index()} sessions; {calls} model calls today"
        except StateError as error:
            return str(error)

    def _beat(self) -> None:
        store = self._place.store
        # `statusline` has no time to read configuration and settings, and finds here where sessions are.
        data = {
            "sessions_watched": store.count_index(),
            "tracked": len(self._pipeline),
            "roots": [[str(root.config_dir), str(root.runtime_base)] for root in self._place.roots],
            "away_seconds": self._place.surveyor.recap_rules(self._place.general_settings).away_seconds,
        }
        beat = Heartbeat(os.getpid(), self._started_at, self._started_at, __version__, data)
        if store.heartbeat() != beat:
            store.put_heartbeat(beat)

    def _rest(self) -> None:
        """After a look at everything: let go of what only that needed."""
        self._place.store.release_memory()
        give_back_memory()

    def _configure_log(self) -> None:
        config = self._place.config.log
        form = choose_form(config.format, sys.stderr, self._place.environ)
        configure_logging(config.level, form, self._lines)

    def _rotate_log(self) -> None:
        """Under launchd, which never does; anywhere else stderr is another file."""
        rotate_log(log_path(self._place.environ), STDERR, max_bytes=MAX_LOG_BYTES)

    # -- the local API ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Open the local API. Not in a dry run, which may go on beside the service itself."""
        if self._dry_run:
            return
        self._api = LocalApi(
            self._place,
            self._pipeline,
            self._desk,
            post=lambda run: self._inbox.put(Errand(run)),
            workers=self._workers,
        )
        self._cleanup.callback(self._api.close)
        self._api.open()

    # -- signals ------------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        self._notifier.reloading()
        before = self._place.config, self._watch_roots()
        try:
            self._place.reload()
        except ConfigError as error:
            self._log.warning(LogEvent.RELOAD_FAILED, **{LogKey.DETAIL: f"{error}; the old configuration stays"})
        else:
            self._configure_log()
            self._announce()
            with self._state_trouble_told():
                self._follow(*before)
                self._pipeline.on_circumstances()
                self._beat()
            self._log.info(LogEvent.RELOADED)
        self._notifier.ready(self._status_line())

    def _follow(self, old: Config, old_roots: tuple[Root, ...]) -> None:
        """Bring what was built from the configuration in line with the new one."""
        new, roots = self._place.config, self._watch_roots()
        if new.model.max_concurrency != old.model.max_concurrency:
            self._workers.shutdown(wait=False)
            self._workers = ThreadPoolExecutor(new.model.max_concurrency, thread_name_prefix="model")
            self._desk.use_workers(self._workers)
        if roots == old_roots and new.watch.backend == old.watch.backend:
            return
        self._feed.stop()
        self._feed = self._make_feed()
        self._start_feed()
        watched = tuple(f"{root.path}/" for root in roots)
        for session in self._pipeline.sessions():
            if not session.path.startswith(watched):
                self._pipeline.forget(session.path)
        self._catch_up()
        self._schedule_reconcile()

    def _watch_exit(self, pid: int, is_same: Callable[[], bool]) -> None:
        if self._exits is not None:
            self._exits.watch(pid, is_same)


def _has_sessions(root: Root) -> bool:
    return root.kind is RootKind.PROJECTS
