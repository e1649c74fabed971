"""The main flow: what happens in a session file, and what follows from it.

    a file moved ─► read it ─► it is still ─► decide ─► ask the model ─► decide again ─► write ─► keep or forget

One thread at a time calls the methods here (see `watcher.handover`). The pipeline knows no file, process, clock,
database or model: what it needs of the world is stated in `World`, which `watcher.desk` and `watcher.daemon` fit. It
owns the sessions that moved lately.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from watcher.core.decisions import Act, Decision, Skip, WaitUntil
from watcher.core.generation import Kind
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.writing import Declined, Failed, WriteOutcome, Written
from watcher.errors import StateError

FORGET_SECONDS: Final = 900.0
"""A session that needs nothing and has been still for so long costs no memory any more."""
MAX_TRACKED: Final = 1024
MAX_UNPLACED: Final = 64
"""Texts that are held while the state database can neither record a write nor keep them; beyond, the oldest goes."""
_WORLDLY: Final = frozenset({Reason.PAUSED, Reason.BUDGET_EXHAUSTED})


class Seen(Protocol):
    """One reading of a session file, continued by the next one. `changed_at` is its modification time."""

    @property
    def state(self) -> SessionState: ...

    @property
    def size(self) -> int: ...

    @property
    def changed_at(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Missing:
    """The file is gone, moved away or archived."""


@dataclass(frozen=True, slots=True)
class Unsafe:
    """The file is not one that may be read or written; `why` says so."""

    why: str


@dataclass(frozen=True, slots=True)
class Text:
    """A cleaned text that wants to stand in the session file, and the state of the session that it was made of."""

    kind: Kind
    text: str
    model: str
    turn: str
    moves: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """No text came of a model call. `host` and `status` are those of the endpoint, where one was asked."""

    kind: Kind
    reason: Reason
    detail: str = ""
    host: str = ""
    status: int | None = None
    denied: bool = False
    """The account was refused: the model is not asked until the settings change."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The model is not to be asked before `until` (seconds since the epoch): a pause, an open circuit, no calls left.
    Costs nothing.
    """

    kind: Kind
    until: float


@dataclass(slots=True)
class Tracked:
    """A session that moved lately. Owned by the pipeline; others read it."""

    path: str
    seen: Seen
    still_since: float
    moved: bool
    original: int = 0
    """The size of the session that this one is a copy of: while it is copied it grows without anything new in it."""
    in_flight: set[Kind] = field(default_factory=set)
    said: dict[Kind, tuple[Reason | None, str]] = field(default_factory=dict)
    """The last decision that was logged for each kind, so that each is logged once."""
    settled: bool = False
    """The last look left nothing to wait for."""
    blocked: bool = False
    """Only something outside the session stands in the way: a pause, the budget."""

    @property
    def state(self) -> SessionState:
        return self.seen.state


class World(Protocol):
    """What the pipeline needs done. Nothing here raises for an expected failure."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def read(self, path: str, known: Seen | None) -> Seen | Missing | Unsafe:
        """The file as it is now, continued from `known`."""

    def baseline(self, path: str) -> int | None:
        """The size at which an earlier run left this file, None when it was never seen."""

    def original_size(self, path: str) -> int:
        """The size of the same session elsewhere, of which a file that was never seen is a copy; 0 when there is
        none.
        """

    def settle_seconds(self) -> float: ...

    def decide(self, kind: Kind, session: Tracked, now: float) -> Decision: ...

    def begin(self, kind: Kind, session: Tracked) -> Refusal | Hold | bool:
        """Count an attempt and start a model call; True when its answer will come back through `on_answer`.

        A `Hold` costs little: it is asked for again whenever something about the session may have changed.
        """

    def write(self, session: Tracked, text: Text) -> WriteOutcome: ...

    def keep(self, session: Tracked, text: Text, why: str) -> None:
        """Store a text that could not be written yet."""

    def deliver(self, session: Tracked, now: float) -> WaitUntil | None:
        """Write what is due without a model call (kept texts, healing, a title out of sight), or say when to try
        again.
        """

    def refused(self, session: Tracked, refusal: Refusal) -> None:
        """Record and log a failed attempt."""

    def wrote(self, session: Tracked, text: Text, outcome: WriteOutcome) -> None:
        """Record and log what became of a text."""

    def decided(self, kind: Kind, session: Tracked, decision: Decision) -> None:
        """Log a decision that differs from the one before."""

    def skipped(self, path: str, why: str) -> None:
        """Log, once a file, that it is left alone."""

    def faulted(self, path: str, error: Exception) -> None:
        """Log an error that nobody expected."""

    def leave(self, session: Tracked) -> None:
        """The session is quiet: save what is needed to know it again."""

    def forgot(self, path: str) -> None:
        """Nothing is known of the session any more, whatever the reason: let go of what belongs to it."""

    def owned(self, session: Tracked) -> bool:
        """Whether any process has the session."""

    def with_new_owners(self, sessions: Sequence[Tracked]) -> list[Tracked]:
        """Those whose set of live owners changed since they were last in a call, or never were."""


class Pipeline:
    """Owns the sessions that moved lately, and the deadlines."""

    def __init__(self, world: World, kinds: Iterable[Kind] = (Kind.TITLE, Kind.RECAP)) -> None:
        self._world = world
        self._kinds = tuple(kinds)
        self._sessions: dict[str, Tracked] = {}
        self._deadlines: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._ticket = itertools.count()
        self._unplaced: dict[tuple[str, Kind], Text] = {}
        """Answers that are neither written nor kept yet: they are paid."""

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, path: str) -> Tracked | None:
        """The session at `path`, if it moved lately."""
        return self._sessions.get(path)

    def sessions(self) -> tuple[Tracked, ...]:
        """All sessions that moved lately."""
        return tuple(self._sessions.values())

    # -- what can happen ----------------------------------------------------------------------------------------------

    def on_change(self, path: str) -> None:
        """The file at `path` may have changed."""
        session = self._refresh(path)
        if session is not None:
            self._settle(session)

    def read_on(self, path: str) -> float | None:
        """As `on_change`, where no more has happened than that a known session has grown: returns in how many seconds
        `on_deadline` has something to do. None otherwise; nothing has been done then.

        It needs `World.read` only, so it may be called in any thread, as long as no other works here.
        """
        session = self._sessions.get(path)
        if session is None:
            return None
        seen = self._world.read(path, session.seen)
        if isinstance(seen, Missing | Unsafe):
            return None
        self._read(session, seen)
        self._settle(session)
        due = self.next_deadline()
        return None if due is None else due - self._world.now()

    def on_answer(self, path: str, answer: Text | Refusal | Hold) -> None:
        """A model call for the session at `path` has ended."""
        if isinstance(answer, Text):
            self._hold(path, answer)
        session = self._refresh(path)
        if session is None:
            return
        session.in_flight.discard(answer.kind)
        if isinstance(answer, Refusal):
            self._world.refused(session, answer)
        self._place_held(session)
        self._evaluate(session)

    def on_owners(self) -> None:
        """Some Qwen Code process started, ended or changed its session."""
        for known in self._world.with_new_owners(self.sessions()):
            # What an owner wrote at its end stands in the file by now, but its event may still be on the way.
            self._look(known.path)

    def on_deadline(self, now: float, most: int | None = None) -> None:
        """Look again at the sessions whose time has come, at most so many: a look takes a millisecond or two, and what
        comes in meanwhile need not wait for all of them.
        """
        looked = 0
        while self._deadlines and self._deadlines[0][0] <= now and looked != most:
            at, _, path = heapq.heappop(self._deadlines)
            if self._due.get(path) != at:
                continue
            del self._due[path]
            looked += 1
            self._look(path)

    def on_circumstances(self) -> None:
        """Settings, switches, the budget or the brake may have changed: look at every session again."""
        for path in dict.fromkeys((*self._sessions, *(path for path, _ in self._unplaced))):
            self._look(path)

    def on_stop(self) -> None:
        """The last chance for answers that could not be placed."""
        for path, _ in tuple(self._unplaced):
            session = self._refresh(path)
            if session is not None:
                self._place_held(session)

    def next_deadline(self) -> float | None:
        """When `on_deadline` has something to do, seconds since the epoch."""
        while self._deadlines and self._due.get(self._deadlines[0][2]) != self._deadlines[0][0]:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def track(self, path: str) -> None:
        """Look at a session that has something to deliver although its file did not move."""
        self._look(path)

    def forget(self, path: str) -> None:
        """Let go of a session that is not watched any more. An answer on its way is still placed: it is paid."""
        self._forget(path)

    # -- what follows -------------------------------------------------------------------------------------------------

    def _look(self, path: str) -> None:
        """Read and decide. An unexpected fault in one session must not keep the others from their turn."""
        try:
            session = self._refresh(path)
            if session is not None:
                self._place_held(session)
                self._evaluate(session)
        except StateError:
            raise  # the state database serves them all
        except Exception as error:  # noqa: BLE001
            self._world.faulted(path, error)

    def _refresh(self, path: str) -> Tracked | None:
        session = self._sessions.get(path)
        now = self._world.now()
        seen = self._world.read(path, session.seen if session else None)
        if isinstance(seen, Missing | Unsafe):
            if isinstance(seen, Unsafe):
                self._world.skipped(path, seen.why)
            for kind in self._kinds:
                self._unplaced.pop((path, kind), None)
            self._forget(path)
            return None
        if session is None:
            before, original = self._world.baseline(path), self._world.original_size(path)
            moved = seen.size > original if before is None else seen.size > before
            session = Tracked(path, seen, min(now, seen.changed_at), moved, original)
            self._sessions[path] = session
            self._trim()
        self._read(session, seen)
        return session

    def _read(self, session: Tracked, seen: Seen) -> None:
        if seen.size != session.seen.size:
            session.still_since = self._world.now()
            session.moved = session.moved or seen.size > max(session.seen.size, session.original)
        session.seen = seen

    def _settle(self, session: Tracked) -> None:
        self._schedule(session.path, session.still_since + self._world.settle_seconds())

    def _evaluate(self, session: Tracked) -> None:
        now = self._world.now()
        waits: list[float] = []
        due = self._world.deliver(session, now)
        session.settled = due is None
        session.blocked = False
        if due is not None and due.at is not None:
            waits.append(due.at)
        for kind in self._kinds:
            decision = self._world.decide(kind, session, now)
            self._tell(kind, session, decision)
            session.settled = session.settled and isinstance(decision, Skip)
            session.blocked = session.blocked or (isinstance(decision, WaitUntil) and decision.reason in _WORLDLY)
            if isinstance(decision, Act):
                begun = self._world.begin(kind, session)
                if isinstance(begun, Hold):
                    waits.append(begun.until)
                elif isinstance(begun, Refusal):
                    self._world.refused(session, begun)
                elif begun:
                    session.in_flight.add(kind)
            elif isinstance(decision, WaitUntil) and decision.at is not None:
                waits.append(decision.at)
        if waits:
            self._schedule(session.path, max(min(waits), now + 0.05))
        elif now - session.still_since < FORGET_SECONDS:
            self._schedule(session.path, session.still_since + FORGET_SECONDS)
        elif not session.in_flight and due is None and not session.blocked and not self._world.owned(session):
            self._leave(session)

    def _hold(self, path: str, text: Text) -> None:
        self._unplaced[path, text.kind] = text
        while len(self._unplaced) > MAX_UNPLACED:
            oldest, kind = next(iter(self._unplaced))
            del self._unplaced[oldest, kind]
            if oldest in self._sessions:
                self._sessions[oldest].in_flight.discard(kind)

    def _place_held(self, session: Tracked) -> None:
        for kind in self._kinds:
            text = self._unplaced.pop((session.path, kind), None)
            if text is None:
                continue
            session.in_flight.discard(kind)
            try:
                outcome = self._write_or_keep(session, text)
            except StateError:
                # On a full disk neither can be done, and another call must not be paid for.
                session.in_flight.add(kind)
                self._hold(session.path, text)
                raise
            if isinstance(outcome, Written):
                self._refresh_quietly(session)
            self._world.wrote(session, text, outcome)

    def _write_or_keep(self, session: Tracked, text: Text) -> WriteOutcome:
        outcome = self._world.write(session, text)
        if isinstance(outcome, Declined) and outcome.reason in (Reason.LOCKED, Reason.WORKING, Reason.PAUSED):
            self._world.keep(session, text, outcome.reason)
        elif isinstance(outcome, Failed) and not outcome.anomaly:
            self._world.keep(session, text, outcome.detail)
        return outcome

    def _refresh_quietly(self, session: Tracked) -> None:
        """Take our own line in without counting it as movement."""
        seen = self._world.read(session.path, session.seen)
        if not isinstance(seen, Missing | Unsafe):
            session.seen = seen

    def _tell(self, kind: Kind, session: Tracked, decision: Decision) -> None:
        said = (None, "") if isinstance(decision, Act) else (decision.reason, decision.detail)
        if session.said.get(kind) != said:
            session.said[kind] = said
            self._world.decided(kind, session, decision)

    def _schedule(self, path: str, at: float) -> None:
        if path in self._due and self._due[path] <= at:
            # An earlier look will find out by itself what is due then.
            return
        self._due[path] = at
        heapq.heappush(self._deadlines, (at, next(self._ticket), path))

    def _leave(self, session: Tracked) -> None:
        self._world.leave(session)
        self._forget(session.path)

    def _forget(self, path: str) -> None:
        if self._sessions.pop(path, None) is not None:
            self._world.forgot(path)
        self._due.pop(path, None)

    def _trim(self) -> None:
        while len(self._sessions) > MAX_TRACKED:
            stillest = min(
                (each for each in self._sessions.values() if not each.in_flight),
                key=lambda each: each.still_since,
                default=None,
            )
            if stillest is None:
                return
            if stillest.blocked:
                self._forget(stillest.path)  # not noted as seen, so that the next start finds it again
            else:
                self._leave(stillest)
