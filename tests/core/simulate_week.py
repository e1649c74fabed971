"""A week of a heavy user, simulated: 40 sessions, suspends, set clocks, restarts of the watcher, a reboot.

Presence and recap policy decide; nothing here runs, waits or calls: the clocks are variables. An oracle that knows what
the user really did checks every call. `python -m tests.core.simulate_week` prints the table.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Self

from tests.support.heavy_user import AWAY_SECONDS, HeavyUser, Session
from watcher.core.decisions import Act, WaitUntil
from watcher.core.native_recaps import Focus, NativeRecaps, Seen, next_weighing_at, weigh
from watcher.core.owner import TUI, Ownership
from watcher.core.policy import turn_over
from watcher.core.presence import Presence, Sample, TerminalInput, observe, status
from watcher.core.recap_delivery import DeliveryFacts, KeptRecap, decide_delivery
from watcher.core.recap_policy import MadeRecap, RecapFacts, RecapRules, Trigger, decide_recap

MAX_CONCURRENCY = 2
MODEL_SECONDS = (0.5, 20.0)


@dataclass
class Kept:
    """What the watcher's store knows of a session; survives restarts."""

    attempted: str = ""
    made: MadeRecap | None = None
    text: KeptRecap | None = None


@dataclass
class Watch:
    """What the watcher's memory knows of a session; lost at a restart."""

    presence: Presence = field(default_factory=Presence)
    native: NativeRecaps = field(default_factory=NativeRecaps)
    due: float | None = None
    """On the awake clock, as the timers of a process are."""


@dataclass(frozen=True)
class Call:
    """A model call: when (steady), for which session, and the newest prompt then."""

    at: float
    session: int
    turn: str


class Week(HeavyUser):
    """The watcher of the user's machine; `run` plays the week, `calls` and `violations` say what came of it."""

    def __init__(
        self, seed: int, *, trigger: Trigger = Trigger.AWAY, enabled: bool = True, days: int = 7, size: int = 40
    ) -> None:
        super().__init__(seed, days=days, size=size)
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self.rules = RecapRules(enabled, "simulated", trigger, AWAY_SECONDS)
        self.watches: dict[int, Watch] = {}
        self.store = {session.number: Kept() for session in self.sessions}
        self.in_flight: set[int] = set()
        self.queued: list[int] = []
        self.generation = 0
        self.started_at_clock = 0

    def run(self) -> Self:
        """Play the week, and look at what it left behind."""
        super().run()
        self._check_end()
        return self

    def next_timer(self) -> float | None:
        """The nearest deadline of any session."""
        return min((watch.due for watch in self.watches.values() if watch.due is not None), default=None)

    def ring(self) -> None:
        """Look at every session whose deadline has come: one wake-up."""
        self.count("wake-ups")
        for number, watch in list(self.watches.items()):
            if watch.due is not None and watch.due <= self.awake + 1e-6:
                watch.due = None
                self.look(self.sessions[number])

    def restart(self) -> None:
        """Lose what is in memory; what the store knows stays."""
        self.count("restarts")
        self.generation += 1
        self.started_at_clock = self.clock
        self.in_flight.clear()
        self.queued.clear()
        for session in self.sessions:
            session.left = None
            session.sign_lost = session.sign_lost or not session.pid
        self.watches = {session.number: Watch() for session in self.sessions if session.file.count}
        for number in list(self.watches):
            self.look(self.sessions[number])

    def look(self, session: Session) -> None:
        """What the watcher does about a session at an event or a deadline."""
        if not session.file.count:
            return
        watch = self.watches.setdefault(session.number, Watch())
        state, ownership, now = session.file.state, session.ownership(), self.now
        running = turn_over(
            state,
            owned=ownership.owned,
            owner_known=ownership.ever_known,
            still_since=session.changed_at,
            now=self.wall,
        )
        shown = session.tty_at if session.pid else session.left
        inputs = (TerminalInput(session.tty, shown),) if session.tty and shown is not None else ()
        sample = Sample(now=now, user_record_at=state.last_user_at, inputs=inputs, turn_running=running is not None)
        watch.presence = observe(watch.presence, sample, AWAY_SECONDS)
        self._weigh(session, watch, ownership)
        dues = [self._recap(session, watch, ownership), self._deliver(session, ownership)]
        at = min((due for due in dues if due is not None), default=None)
        watch.due = None if at is None else self.awake + max(0.0, at - self.wall) + 0.01

    def _weigh(self, session: Session, watch: Watch, ownership: Ownership) -> None:
        if not ownership.is_tui:
            return
        state, kept = session.file.state, self.store[session.number].text
        ours = kept.record_uuids if kept else ()
        newest = (
            state.recap.uuid if state.recap and state.recap.text == "theirs" and state.recap.uuid not in ours else None
        )
        seen = Seen(
            owner=ownership.live[0].identity,
            presence=watch.presence,
            newest=newest,
            user_turns=state.user_turns,
            turns_since_recap=state.turns_since_recap,
        )
        before = watch.native.focus
        watch.native = weigh(watch.native, seen, self.now)
        if watch.native.focus is Focus.SILENT and before is not Focus.SILENT:
            self.count("silent terminals")

    def _recap(self, session: Session, watch: Watch, ownership: Ownership) -> float | None:
        stored, found = self.store[session.number], status(watch.presence, self.now, AWAY_SECONDS)
        facts = RecapFacts(
            state=session.file.state,
            still_since=session.changed_at,
            status=found,
            rules=self.rules,
            ownership=ownership,
            in_flight=session.number in self.in_flight,
            attempted_turn=stored.attempted,
            made=stored.made,
            model="simulated",
            calls_left=300,
            native_recaps=session.native,
            no_focus_reports=watch.native.focus is Focus.SILENT,
            native_look_at=next_weighing_at(watch.native, found, self.now),
        )
        decision = decide_recap(facts, self.wall)
        if isinstance(decision, WaitUntil):
            return decision.at
        if isinstance(decision, Act):
            if len(self.in_flight) >= MAX_CONCURRENCY:
                self.queued.append(session.number)
            else:
                self._call(session, watch)
        return None

    def _call(self, session: Session, watch: Watch) -> None:
        stored, state, generation = self.store[session.number], session.file.state, self.generation
        self._check_call(session, watch)
        self.calls.append(Call(self.steady, session.number, state.turn))
        self.count("calls")
        stored.attempted = state.turn
        self.in_flight.add(session.number)

        def answered() -> None:
            if self.generation != generation:
                self.count("lost in a restart")
                return
            self.in_flight.discard(session.number)
            if session.file.state.moves != state.moves:
                self.count("dropped")
            elif self.random.random() < 0.05:
                self.count("failed")
            else:
                stored.text = KeptRecap(state.turn)
                stored.made = MadeRecap(state.turn, state.user_turns)
                self.count("made")
            self.look(session)
            queued, self.queued = self.queued, []
            for number in queued:
                self.look(self.sessions[number])

        self.later(self.random.uniform(*MODEL_SECONDS), answered)

    def _deliver(self, session: Session, ownership: Ownership) -> float | None:
        stored = self.store[session.number]
        if stored.text is None:
            return None
        facts = DeliveryFacts(session.file.state, session.changed_at, stored.text, ownership)
        decision = decide_delivery(facts, self.wall)
        if isinstance(decision, Act):
            uuid = session.file.our_recap(self.wall)
            self.count("written again" if stored.text.record_uuids else "written")
            stored.text = replace(stored.text, record_uuids=(*stored.text.record_uuids, uuid))
            if session.pid and session.kind != TUI:
                self.violations.append(f"session {session.number}: written into a live editor session")
        return decision.at if isinstance(decision, WaitUntil) else None

    # ---- the oracle

    def _check_call(self, session: Session, watch: Watch) -> None:
        state, wrong = session.file.state, []
        earlier = [call for call in self.calls if call.session == session.number]
        if any(call.turn == state.turn for call in earlier):
            wrong.append("the same state twice")
        if state.user_turns < 3:
            wrong.append(f"only {state.user_turns} turns")
        if state.turns_since_recap < 2:
            wrong.append("less than 2 turns since the recap in the file")
        made = self.store[session.number].made
        if made is not None and session.file.state.chain.contains_on_active(made.turn):
            since = len(session.file.turns) - 1 - session.file.turns.index(made.turn)
            if since < 2:
                wrong.append("less than 2 turns since our last recap")
        if session.pid and session.busy:
            wrong.append("a turn was running")
        if session.pid and session.native and session.focus:
            wrong.append("Qwen Code does it itself")
        # A watcher that starts after the clock was set cannot know how old an earlier sign of life is.
        knowable = session.clock_of_sign == self.clock or self.started_at_clock <= session.clock_of_sign
        knowable = knowable and not session.sign_lost
        idle = self.steady - session.last_sign
        if self.rules.trigger is Trigger.RETURN and session.pid:
            if knowable and not session.came_back:
                wrong.append("the user had not come back")
        elif knowable and idle < AWAY_SECONDS:
            wrong.append(f"the user was there {idle:.0f} s ago")
        if len(self.in_flight) >= MAX_CONCURRENCY:
            wrong.append("too many calls at once")
        self.violations += [f"session {session.number} at {self.steady:.0f}: {each}" for each in wrong]

    def _check_end(self) -> None:
        for session in self.sessions:
            text, state = self.store[session.number].text, session.file.state
            if text is None or session.pid or state.turn != text.turn:
                continue
            if not state.chain.contains_on_active(text.turn):
                continue  # its turn was rewound away
            if state.turns_since_recap != 0:
                self.violations.append(f"session {session.number}: not delivered at the end")

    # ---- the table

    def show(self) -> str:
        """Days as columns, what happened as rows."""
        names = sorted({name for row in self.table.values() for name in row})
        days = sorted(self.table)
        lines = ["".join([f"{'day':<20}", *(f"{day + 1:>8}" for day in days), f"{'all':>8}"])]
        for name in names:
            values = [self.table[day][name] for day in days]
            lines.append("".join([f"{name:<20}", *(f"{value:>8}" for value in values), f"{sum(values):>8}"]))
        lines.append(f"violations: {len(self.violations)}")
        return "\n".join([*lines, *self.violations[:20]])


if __name__ == "__main__":
    sys.stdout.write(Week(int(sys.argv[1]) if len(sys.argv) > 1 else 1).run().show() + "\n")
