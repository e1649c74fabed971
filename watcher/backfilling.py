"""Titles for old sessions: which ones there are, and giving each of them one attempt (`backfill`, design 4 and 11).

survey ─► the user agrees ─► for each, newest first: look again ─► decide again ─► ask the model ─► write

Every switch, the budget, leases and running turns count, as for new sessions. One thread runs this; only models are
asked in others, as many as `model.max_concurrency`.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from watcher.catalog import Catalog, read_session
from watcher.core.decisions import Act, Decision, Skip, WaitUntil
from watcher.core.generation import Kind
from watcher.core.policy import decide_backfill
from watcher.core.reasons import Reason
from watcher.core.writing import Declined, Failed, WriteOutcome, Written
from watcher.drafting import Drafter, NoText, Ready
from watcher.edge.leases import lease_state
from watcher.edge.scan import Found, unsafe_path
from watcher.edge.store import IndexRow, Store
from watcher.edge.text_model import Abort
from watcher.errors import NotFoundError
from watcher.facts import FileFacts
from watcher.qwen.paths import SessionRef, session_ref
from watcher.qwen.reading import Reading
from watcher.qwen.settings import QwenSettings
from watcher.workplace import Workplace, refused_mount

PATIENCE_SECONDS: Final = 60.0
"""An endpoint that wants to be left alone for so long is waited for; for longer, the user may come back later."""
TOKEN_DAYS: Final = 30
"""What a call costs is averaged over so many days."""
_LOOK_SECONDS: Final = 0.2
_STOPPING: Final = (Reason.PAUSED, Reason.BUDGET_EXHAUSTED)
"""Reasons that hold for every session."""
_WAITING: Final = (Reason.LOCKED, Reason.WORKING, Reason.PAUSED)
"""Reasons for which a text that was paid for is kept, to be written later."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An untitled session. `last_activity` is seconds since the epoch."""

    ref: SessionRef
    cwd: str
    last_activity: float
    model: str


@dataclass(slots=True)
class Survey:
    """What a look at all sessions found: those that would be titled, newest first, and why others would not be."""

    candidates: list[Candidate] = field(default_factory=list)
    skipped: Counter[Reason] = field(default_factory=Counter)
    details: dict[Reason, str] = field(default_factory=dict)

    def skip(self, decision: Skip | WaitUntil) -> None:
        """Count one that would not be titled."""
        self.skipped[decision.reason] += 1
        self.details.setdefault(decision.reason, decision.detail)


def survey(place: Workplace, *, since: float, cwd: str | None, retry: bool) -> Survey:
    """Look at all sessions with activity since then, of one directory where `cwd` is given.

    `retry`: attempts do not count. Raises `StateError`.
    """
    found = Survey()
    for file in Catalog(place.roots, place.liveness, place.store).files():
        if file.mtime_ns / 1e9 < since:
            break  # the newest come first, and nothing happens in a file without changing its time
        ref = session_ref(file.path)
        if ref is not None and not _known_to_be_titled(place.store.index_at(file.path), file):
            _look_at(place, ref, found, since=since, cwd=cwd, retry=retry)
    found.candidates.sort(key=lambda each: each.last_activity, reverse=True)
    return found


def _known_to_be_titled(row: IndexRow | None, file: Found) -> bool:
    """Whether the watcher has read this very file to its end and found a title."""
    same = row is not None and (row.dev, row.ino, row.size, row.mtime_ns) == file[1:5]
    return row is not None and same and bool(row.offset and row.title)


def _look_at(place: Workplace, ref: SessionRef, found: Survey, *, since: float, cwd: str | None, retry: bool) -> None:
    try:
        reading = read_session(ref)
    except NotFoundError:
        return
    state = reading.state
    if state.last_activity_at is None or state.last_activity_at < since or cwd not in (None, state.first_cwd):
        return
    decision, model = _decide(place, ref, reading, retry=retry)
    if isinstance(decision, Act):
        found.candidates.append(Candidate(ref, state.first_cwd, state.last_activity_at, model))
    else:
        found.skip(decision)


def _decide(place: Workplace, ref: SessionRef, reading: Reading, *, retry: bool) -> tuple[Decision, str]:
    """The decision on all present facts, leases and mounts included, and the name of the model."""
    file = FileFacts(_changed_at(ref), unsafe=unsafe_path(ref.path) or refused_mount(ref.path))
    facts = place.surveyor.title_facts(ref, reading.state, file)
    if retry:
        facts = replace(facts, attempts=0)
    decision = decide_backfill(facts, place.clock())
    if isinstance(decision, Act):
        # The writer asks as well, but not before the model has been paid for.
        lease = lease_state(ref.runtime_base, ref.session_id)
        if lease is None and place.surveyor.ownership(ref).is_daemon:
            lease = "a live ACP or daemon process has the session"
        if lease is not None:
            decision = Skip(Reason.LOCKED, lease)
    return decision, facts.model


def _changed_at(ref: SessionRef) -> float:
    try:
        return Path(ref.path).stat().st_mtime
    except OSError:
        return 0.0


def tokens_per_call(store: Store, now: float) -> float | None:
    """What a call has cost lately, in and out, where replies told; None when none did."""
    today = datetime.fromtimestamp(now).astimezone().date()
    days = [(today - timedelta(days=back)).isoformat() for back in range(TOKEN_DAYS)]
    told = [(store.calls_on(day), sum(store.tokens_on(day))) for day in days]
    calls = sum(count for count, tokens in told if tokens)
    return sum(tokens for _, tokens in told) / calls if calls else None


@dataclass(frozen=True, slots=True)
class Step:
    """What became of one session. `title` is "" unless one was written; `reason` is None then."""

    candidate: Candidate
    title: str = ""
    reason: Reason | None = None
    detail: str = ""


@dataclass(slots=True)
class Tally:
    """How a run went. `stopped` says why it ended before its time."""

    titled: int = 0
    failed: Counter[Reason] = field(default_factory=Counter)
    skipped: Counter[Reason] = field(default_factory=Counter)
    left: int = 0
    stopped: tuple[Reason, str] | None = None


@dataclass(slots=True)
class _Running:
    candidate: Candidate
    reading: Reading


class Backfill:
    """One run over some candidates. `abort` may be set at any time, also by a signal handler."""

    def __init__(
        self,
        place: Workplace,
        candidates: list[Candidate],
        abort: Abort,
        *,
        retry: bool,
        began: Callable[[Candidate], None] = lambda _: None,
        ended: Callable[[Step], None] = lambda _: None,
    ) -> None:
        """`began` and `ended` are told of each session, in the thread that calls `run`."""
        self._place = place
        self._waiting = deque(candidates)
        self._abort = abort
        self._retry = retry
        self._began = began
        self._ended = ended
        self._answers: SimpleQueue[tuple[_Running, Ready | NoText]] = SimpleQueue()
        self._not_before = 0.0
        self._tally = Tally()

    def run(self) -> Tally:
        """Title them all, or as many as can be; raises `StateError` when the state database cannot be used."""
        room = self._place.config.model.max_concurrency
        running = 0
        drafter = self._place.drafter  # made in this thread
        with ThreadPoolExecutor(room, thread_name_prefix="model") as pool:
            try:
                while running or (self._waiting and not self._stops()):
                    while running < room and self._waiting and not self._stops() and self._is_time():
                        begun = self._begin(self._waiting.popleft())
                        if begun is not None:
                            self._submit(pool, drafter, *begun)
                            running += 1
                    answer = self._answer(block=running > 0 or not self._is_time())
                    if answer is not None:
                        running -= 1
                        self._take(*answer)
            except BaseException:
                self._abort.set()  # or the pool waits for what nobody wants any more
                raise
        self._tally.left += len(self._waiting)
        return self._tally

    def _stops(self) -> bool:
        if self._abort.is_set() and self._tally.stopped is None:
            self._tally.stopped = (Reason.ABORTED, "")
        return self._tally.stopped is not None

    def _is_time(self) -> bool:
        return self._place.clock() >= self._not_before

    def _answer(self, *, block: bool) -> tuple[_Running, Ready | NoText] | None:
        try:
            # In short steps: a signal that arrives as the thread falls asleep is looked at only when it wakes.
            return self._answers.get(timeout=_LOOK_SECONDS if block else 0)
        except Empty:
            return None

    def _begin(self, candidate: Candidate) -> tuple[_Running, QwenSettings] | None:
        """Look at the session again and count an attempt; None when it is not its turn."""
        place, ref = self._place, candidate.ref
        try:
            reading = read_session(ref)
        except NotFoundError as error:
            self._skip(candidate, Reason.NOT_FOUND, str(error))
            return None
        decision, _ = _decide(place, ref, reading, retry=self._retry)
        if not isinstance(decision, Act):
            if decision.reason in _STOPPING:
                self._stop(candidate, decision.reason, decision.detail)
            else:
                self._skip(candidate, decision.reason, decision.detail)
            return None
        settings = place.surveyor.settings(ref, reading.state)
        held = place.drafter.held(Kind.TITLE, settings)
        if held is not None:
            now = place.clock()
            if held.retry_at is not None and held.retry_at <= now + PATIENCE_SECONDS:
                self._not_before = held.retry_at
                self._waiting.appendleft(candidate)
            else:
                self._stop(candidate, held.reason, held.detail)
            return None
        place.store.note_attempt(ref.session_id, reading.state.shown_turn, place.clock(), Kind.TITLE)
        self._began(candidate)
        return _Running(candidate, reading), settings

    def _submit(self, pool: ThreadPoolExecutor, drafter: Drafter, running: _Running, settings: QwenSettings) -> None:
        future = pool.submit(_draft, drafter, running.candidate.ref, settings, self._abort)
        future.add_done_callback(functools.partial(self._put, running))

    def _put(self, running: _Running, future: Future[Ready | NoText]) -> None:
        error = future.exception()
        if error is None:
            self._answers.put((running, future.result()))
        else:
            detail = f"internal error: {type(error).__name__}"
            self._answers.put((running, NoText(Kind.TITLE, Reason.MODEL_ERROR, detail)))

    def _take(self, running: _Running, made: Ready | NoText) -> None:
        """A model has answered, or not."""
        if isinstance(made, Ready):
            self._write(running, made)
            return
        candidate, store = running.candidate, self._place.store
        if made.reason in (Reason.ABORTED, Reason.BUDGET_EXHAUSTED):
            store.take_back_attempt(candidate.ref.session_id)
            self._stop(candidate, made.reason, made.detail)
            return
        store.note_result(candidate.ref.session_id, made.reason.value, made.detail)
        where = ", ".join(filter(None, (made.host, f"HTTP {made.status}" if made.status else "")))
        self._fail(candidate, made.reason, f"{where}: {made.detail}" if where and made.detail else where or made.detail)

    def _write(self, running: _Running, made: Ready) -> None:
        candidate, place = running.candidate, self._place
        ref = candidate.ref
        stopped = place.recorder.stopped(ref.session_id)
        outcome: WriteOutcome = Declined(Reason.PAUSED, stopped)
        if not stopped:
            outcome = place.recorder.automatic_title(ref, made.text, made.model, running.reading)
        if isinstance(outcome, Written):
            place.store.note_result(ref.session_id, "")
            self._tally.titled += 1
            self._ended(Step(candidate, made.text))
            return
        kept = isinstance(outcome, Failed) and not outcome.anomaly
        kept = kept or (isinstance(outcome, Declined) and outcome.reason in _WAITING)
        if kept:
            place.recorder.keep_text(ref, Kind.TITLE, made.text, made.model, running.reading.state.turn)
        place.store.note_result(ref.session_id, "" if kept else outcome.reason.value, outcome.detail)
        if isinstance(outcome, Failed):
            self._fail(candidate, outcome.reason, outcome.detail)
        elif outcome.reason is Reason.PAUSED:
            self._stop(candidate, outcome.reason, outcome.detail)
        else:
            self._skip(candidate, outcome.reason, outcome.detail)

    def _skip(self, candidate: Candidate, reason: Reason, detail: str) -> None:
        self._tally.skipped[reason] += 1
        self._ended(Step(candidate, reason=reason, detail=detail))

    def _fail(self, candidate: Candidate, reason: Reason, detail: str) -> None:
        self._tally.failed[reason] += 1
        self._ended(Step(candidate, reason=reason, detail=detail))

    def _stop(self, candidate: Candidate, reason: Reason, detail: str) -> None:
        """Nothing more is begun; this session is left for another run."""
        if self._tally.stopped is None:
            self._tally.stopped = (reason, detail)
        self._tally.left += 1
        self._ended(Step(candidate, reason=reason, detail=detail))


def _draft(drafter: Drafter, ref: SessionRef, settings: QwenSettings, abort: Abort) -> Ready | NoText:
    """From file to title, in a worker thread."""
    made = drafter.prepare(Kind.TITLE, ref, settings)
    return made if isinstance(made, Ready | NoText) else drafter.ask(made, abort)
