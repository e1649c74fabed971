"""The service: builds everything, and runs the one loop that owns it.

Threads only put values into the inbox: watchdog's, the exit watch, and the model workers. Signals do the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from watcher import __version__
from watcher.api.local import LocalApi
from watcher.calls import Answered, Calls
from watcher.config import Config
from watcher.desk import Desk
from watcher.edge.change_values import (
    RegistryTouched,
    RescanAll,
    Root,
    RootsChanged,
    SidecarTouched,
    Touched,
    TreeChanged,
)
from watcher.edge.exits import ExitWatch, OwnerGone
from watcher.edge.memory import give_back_memory, keep_memory_small
from watcher.errors import AlreadyRunningError, ConfigError, StateError
from watcher.handover import Handover
from watcher.happenings import SIGNALS, Errand, Item, Reload, Stop
from watcher.instance import Instance, only_instance
from watcher.log import WATCHER, LogEvent, LogKey, get_logger, where_it_failed
from watcher.lookout import RECONCILE_SECONDS, Lookout
from watcher.pipeline import Pipeline
from watcher.qwen.paths import session_ref
from watcher.reporting import Reporter
from watcher.sdnotify import watchdog_interval
from watcher.signals import signals_as_values
from watcher.workplace import Workplace

LATE_SECONDS: Final = 1.0
"""How long a due look at a session may wait for a queue to become empty."""
DAY_SECONDS: Final = 86_400.0
STATE_RETRY_SECONDS: Final = 60.0
"""How soon everything is looked at again after the state directory could not be used, as on a full disk."""


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
        self._inbox = Handover(lambda path: self._pipeline.read_on(path))
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
        self._reporter: Reporter
        self._log = get_logger(WATCHER)
        self._pipeline: Pipeline
        self._calls: Calls
        self._desk: Desk
        self._lookout: Lookout
        self._workers: ThreadPoolExecutor
        self._api: LocalApi | None = None
        self._next_reconcile = 0.0
        self._next_prune = 0.0
        self._recover_at: float | None = None
        self._state_trouble = ""
        self._stop_asked = self._reload_asked = False

    def run(self) -> int:
        """Run until a signal. Returns the exit code; raises `WatcherError` when it cannot start, or go on."""
        # Before all else: also a start that takes long can be stopped.
        with signals_as_values(SIGNALS, self._on_signal):
            self._place = self._make_place()
            self._reporter = Reporter(self._place, dry_run=self._dry_run)
            try:
                self._run()
            finally:
                self._reporter.last_lines()
        return 0

    def _run(self) -> None:
        self._reporter.configure_log()
        keep_memory_small()
        with self._cleanup, only_instance(self._place.state_directory) as self._instance:
            self._cleanup.callback(self._place.close)
            self._reporter.announce()
            self._build()
            self._start()
            self._loop_while_ours()
            self._stop()

    # -- start and stop -----------------------------------------------------------------------------------------------

    def _build(self) -> None:
        place = self._place
        self._exits = ExitWatch(self._inbox.put)
        self._cleanup.callback(self._exits.close)
        self._workers = ThreadPoolExecutor(place.config.model.max_concurrency, thread_name_prefix="model")
        self._cleanup.callback(lambda: self._workers.shutdown(wait=True, cancel_futures=True))
        self._cleanup.callback(self._reporter.close)
        self._calls = Calls(place.drafter, place.store, workers=self._workers, post=self._inbox.put, clock=place.clock)
        self._desk = Desk(
            place.surveyor,
            place.recorder,
            self._calls,
            place.store,
            clock=place.clock,
            on_written=self._reporter.on_written,
            dry_run=self._dry_run,
        )
        self._pipeline = Pipeline(self._desk)
        self._lookout = Lookout(
            place,
            self._pipeline,
            post=self._inbox.put,
            skipped=self._desk.skipped,
            stopping=lambda: self._stop_asked,
        )
        self._cleanup.callback(self._lookout.stop)

    def _start(self) -> None:
        self._reporter.rotate_log()
        self._lookout.start()
        self._next_prune = self._place.clock() + DAY_SECONDS
        with self._state_trouble_told():
            self._catch_up()
            self._schedule_reconcile()
            self._reporter.beat(len(self._pipeline))
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
        self._reporter.notifier.ready(self._reporter.status_line())

    def _stop(self) -> None:
        self._reporter.notifier.stopping("stopping")
        self._calls.abort_all()
        if self._api is not None:
            self._api.close()
        self._lookout.stop()
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

    def _catch_up(self) -> None:
        self._recover()
        self._lookout.catch_up()

    def _begin_anew(self) -> None:
        if self._lookout.begin_anew():
            self._reporter.beat(len(self._pipeline))

    def _schedule_reconcile(self) -> None:
        self._next_reconcile = self._lookout.interval() + self._place.clock()

    def _rest(self) -> None:
        """After a look at everything: let go of what only that needed."""
        self._place.store.release_memory()
        give_back_memory()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _loop_while_ours(self) -> None:
        try:
            self._loop()
        except AlreadyRunningError as error:
            detail = f"another watcher has taken {self._place.state_directory}, so this one ends: {error}"
            self._log.error(LogEvent.STATE, **{LogKey.DETAIL: detail})
            self._calls.abort_all()
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
            try:
                self._turn(item)
            except AlreadyRunningError:
                raise
            except Exception as error:  # noqa: BLE001 - a fault in one session must not end the service for all
                self._log.error(LogEvent.INTERNAL_ERROR, **{LogKey.DETAIL: where_it_failed(error)})
            if next_beat is not None and watchdog and time.monotonic() >= next_beat:
                self._reporter.notifier.watchdog()
                next_beat = time.monotonic() + watchdog

    def _renew_instance(self) -> None:
        """Before anything is decided or written: a state directory that is not the one that we hold may be somebody
        else's by now. Raises `AlreadyRunningError` when it is.
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
        self._renew_instance()
        with self._state_trouble_told():
            self._begin_anew()
        with self._state_trouble_told():
            self._begin_anew()  # the first use finds the damage, the next one has a new database
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
                self._lookout.look_in(directory)
            case RootsChanged():
                self._lookout.verify()
            case RescanAll():
                self._lookout.rescan()
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
            self._reporter.rotate_log()
            self._lookout.verify()
            self._lookout.reconcile()
            self._pipeline.on_circumstances()
            self._schedule_reconcile()
            self._reporter.beat(len(self._pipeline))
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
                self._reporter.notifier.status(self._state_trouble)

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
        self._reporter.notifier.reloading()
        before = self._place.config, self._lookout.roots
        try:
            self._place.reload()
        except ConfigError as error:
            self._log.warning(LogEvent.RELOAD_FAILED, **{LogKey.DETAIL: f"{error}; the old configuration stays"})
        else:
            self._reporter.configure_log()
            self._reporter.announce()
            with self._state_trouble_told():
                self._follow(*before)
                self._pipeline.on_circumstances()
                self._reporter.beat(len(self._pipeline))
            self._log.info(LogEvent.RELOADED)
        self._reporter.notifier.ready(self._reporter.status_line())

    def _follow(self, old: Config, old_roots: tuple[Root, ...]) -> None:
        """Bring what was built from the configuration in line with the new one."""
        new = self._place.config
        if new.model.max_concurrency != old.model.max_concurrency:
            self._workers.shutdown(wait=False)
            self._workers = ThreadPoolExecutor(new.model.max_concurrency, thread_name_prefix="model")
            self._calls.use_workers(self._workers)
        if self._lookout.follow(old_roots, old.watch.backend):
            self._catch_up()
            self._schedule_reconcile()

    def _watch_exit(self, pid: int, is_same: Callable[[], bool]) -> None:
        if self._exits is not None:
            self._exits.watch(pid, is_same)
