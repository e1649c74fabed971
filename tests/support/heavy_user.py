"""A heavy user at a machine whose clocks are variables: who owns which session, who types where, what is in the files.

Simulated from a seed, as quickly as it can be computed. A watcher is made of it by filling in what it does when it is
told something.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Self

from tests.support.conversation import Conversation
from watcher.core.owner import HEADLESS, TUI, Alive, Owner, Ownership, OwnerSource
from watcher.core.presence import Moment

AWAY_SECONDS = 300.0
DAY = 86_400.0
Life = Generator[float, None, None]


@dataclass
class Session:
    """One session: its file, the Qwen Code that has it, and what its user really did."""

    number: int
    kind: str
    native: bool
    focus: bool
    file: Conversation = field(default_factory=Conversation)
    pid: int = 0
    left: float | None = None
    """What the terminal showed at the end of the owner, where it was still there."""
    tty_at: float = 0.0
    changed_at: float = 0.0
    last_sign: float = -1e12
    clock_of_sign: int = 0
    came_back: bool = False
    """The user was away for long enough, and back, and has typed no prompt since."""
    sign_lost: bool = False
    """The last sign of life was at a terminal that was closed, or forgotten, before anyone could know."""
    blurred_at: float | None = None
    holds_title: bool = False
    wants_recap: bool = False
    """Focus came back after long enough; Qwen Code waits until it is idle."""
    busy: bool = False
    """A turn really runs; one that was cancelled looks unfinished in the file for ever."""
    native_since: int = 0

    @property
    def tty(self) -> str | None:
        """The terminal that this session has while it is open."""
        return f"/dev/pts/{self.number}" if self.kind == TUI else None

    def ownership(self) -> Ownership:
        """What liveness would find."""
        if not self.pid:
            return Ownership(sidecar_seen=self.kind == TUI)
        owner = Owner(
            pid=self.pid,
            kind=self.kind,
            session_id=str(self.number),
            alive=Alive.LIVE,
            source=OwnerSource.REGISTRY,
            start=str(self.pid),
            tty=self.tty,
        )
        return Ownership((owner,), self.kind == TUI)


class HeavyUser:
    """The machine and its user. Every eighth session is an editor's; terminals differ in what they report and show."""

    def __init__(self, seed: int, *, days: int = 7, size: int = 40) -> None:
        self.random = random.Random(seed)
        self.days = days
        self.wall, self.steady, self.awake = 1_800_000_000.0, 0.0, 0.0
        self.clock = 0
        """How often the wall clock was set."""
        self.table: dict[int, Counter[str]] = {}
        self.sessions = [self._session(number) for number in range(size)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._next_pid = 100

    def _session(self, number: int) -> Session:
        kind = HEADLESS if number % 8 == 7 else TUI
        return Session(number, kind, native=kind == TUI and number % 3 != 0, focus=number % 3 == 1)

    # ---- for the watcher to fill in

    def look(self, session: Session) -> None:
        """The session's owner or file changed."""

    def restart(self) -> None:
        """The watcher is stopped and started."""

    def next_timer(self) -> float | None:
        """When the watcher wants to be woken, on the awake clock."""

    def ring(self) -> None:
        """It is woken."""

    # ---- the machine

    @property
    def now(self) -> Moment:
        """All clocks."""
        return Moment(self.wall, self.steady, self.awake)

    def count(self, what: str) -> None:
        """One more in today's row."""
        self.table.setdefault(int(self.steady // DAY), Counter())[what] += 1

    def total(self, what: str) -> int:
        """The sum of a row."""
        return sum(row[what] for row in self.table.values())

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something in so many seconds."""
        self._sequence += 1
        heapq.heappush(self._events, (self.steady + seconds, self._sequence, action))

    def changed(self, session: Session) -> None:
        """The file grew."""
        session.changed_at = self.wall
        self.look(session)

    def run(self) -> Self:
        """Play it to the end of the last day and two hours beyond."""
        life = self._life()

        def live() -> None:
            pause = next(life, None)
            if pause is not None:
                self.later(pause, live)

        self.later(0.0, live)
        end = self.days * DAY + 2 * 3600.0
        while self.steady < end:
            event = self._events[0][0] if self._events else end
            timer = self.next_timer()
            ring = end if timer is None else self.steady + max(0.0, timer - self.awake)
            passed = max(0.0, min(event, ring, end) - self.steady)
            self.wall, self.steady, self.awake = self.wall + passed, self.steady + passed, self.awake + passed
            if self._events and event <= ring:
                heapq.heappop(self._events)[2]()
            elif timer is not None and self.steady < end:
                self.ring()
        return self

    # ---- the user

    def _life(self) -> Life:
        rng = self.random
        for day in range(self.days):
            yield max(0.0, day * DAY + rng.uniform(8.5, 10.0) * 3600.0 - self.steady)
            for _ in range(rng.randint(6, 10)):
                for _ in range(rng.randint(4, 12)):
                    yield from self._work_on(self._choose())
                yield from self._break(rng.choice([60.0, 240.0, 290.0, 310.0, 420.0, 1200.0, 3600.0]))
            if day == self.days // 2:
                self._reboot()
            for session in self.sessions:
                if session.pid and rng.random() < 0.7:
                    self._close(session)
            yield from self._break(7 * 3600.0)
        for session in self.sessions:
            if session.pid:
                self._close(session)

    def _choose(self) -> Session:
        opened = [session for session in self.sessions if session.pid]
        if opened and (len(opened) >= 9 or self.random.random() < 0.7):
            return self.random.choice(opened)
        return self.random.choice(self.sessions)

    def _break(self, seconds: float) -> Life:
        rng = self.random
        if rng.random() < 0.15:
            self.clock += 1
            self.wall += rng.choice([-1, 1]) * rng.choice([30.0, 600.0, 7200.0, 3e7])
        if rng.random() < 0.2:
            self.restart()
        if rng.random() < 0.4:
            yield rng.uniform(0.0, 100.0)
            self.wall, self.steady = self.wall + seconds, self.steady + seconds  # the lid is closed
            self.count("suspends")
        else:
            yield seconds
        if rng.random() < 0.1:
            self.clock += 1
            self.wall += rng.uniform(-4000.0, 4000.0)

    def _work_on(self, session: Session) -> Life:
        rng = self.random
        if not session.pid:
            self._open(session)
        elif session.kind == TUI:
            self._focus_in(session)
        yield rng.uniform(0.5, 70.0)
        for _ in range(rng.choice([0, 1, 1, 2, 3, 4])):
            if session.busy:
                break  # it still works on something; look at another one
            self._key(session)
            yield rng.uniform(2.0, 60.0)
            if len(session.file.turns) > 4 and rng.random() < 0.05:
                session.busy = False
                session.file.rewind(self.wall, rng.choice(session.file.turns[-3:]))
                session.native_since = session.file.state.turns_since_recap
                self.changed(session)
            duration = rng.choice([3.0, 20.0, 60.0, 60.0, 200.0, 1500.0])
            self._prompt(session, duration)
            if rng.random() < 0.8:
                yield min(duration, 240.0) + rng.uniform(1.0, 20.0)
        if session.kind == TUI:
            self._blur(session)
        if rng.random() < 0.1:
            self._close(session)

    def _open(self, session: Session) -> None:
        session.file.resumed()
        session.native_since = session.file.state.turns_since_recap
        self._next_pid += 1
        session.left = None
        session.pid = self._next_pid
        session.holds_title = self.random.random() < 0.5
        session.blurred_at, session.wants_recap = None, False
        self._key(session)
        self.look(session)

    def _close(self, session: Session) -> None:
        how = self.random.choice(["quit", "closed", "killed"])
        if how == "quit":
            self._key(session)
        if how != "killed" and session.holds_title:
            session.file.title_copy(self.wall)
            self.changed(session)
        session.pid, session.busy = 0, False
        session.left = session.tty_at if how != "closed" else None
        session.sign_lost = how == "closed"
        self.later(self.random.uniform(0.0, 10.0), lambda: self.look(session))  # the end of an owner is told

    def _key(self, session: Session) -> None:
        """Input at the terminal; the device's time moves in steps. What is typed in an editor shows nowhere."""
        if session.kind != TUI:
            return
        second = int(self.wall)
        if second // 8 != int(session.tty_at) // 8:
            session.tty_at = float(second)
        self._sign(session)

    def _sign(self, session: Session) -> None:
        if self.steady - session.last_sign >= AWAY_SECONDS:
            session.came_back = True
        session.last_sign, session.clock_of_sign, session.sign_lost = self.steady, self.clock, False

    def _blur(self, session: Session) -> None:
        if session.focus:
            self._key(session)
        session.blurred_at = self.steady

    def _focus_in(self, session: Session) -> None:
        blurred, session.blurred_at = session.blurred_at, None
        if not session.focus:
            return
        self._key(session)
        if session.native and blurred is not None and self.steady - blurred >= AWAY_SECONDS:
            session.wants_recap = True
            self._native_recap(session)

    def _native_recap(self, session: Session) -> None:
        """Qwen Code's own: past its gates, idle now and when the answer arrives (contract 6.3)."""
        if not session.wants_recap or session.busy:
            return
        session.wants_recap = False
        state, pid = session.file.state, session.pid
        if state.user_turns < 3 or session.native_since < 2:
            return

        def answered() -> None:
            if session.pid == pid and session.file.state.turn == state.turn and not session.busy:
                session.file.native_recap(self.wall)
                session.native_since = 0
                self.count("native recaps")
                self.changed(session)

        self.later(2.0, answered)

    def _prompt(self, session: Session, duration: float) -> None:
        self._sign(session)
        self._key(session)
        session.came_back = False
        turn, pid = session.file.turn(self.wall, answered=False), session.pid
        session.native_since += 1
        self.count("prompts")
        self.changed(session)
        session.busy = self.random.random() >= 0.05
        if not session.busy:
            return  # Esc before any output: it stays unfinished for ever

        def ended() -> None:
            if session.pid == pid and session.file.state.turn == turn:
                session.busy = False
                session.file.answer(self.wall)
                self.changed(session)
                self._native_recap(session)

        self.later(duration, ended)

    def _reboot(self) -> None:
        for session in self.sessions:
            session.pid, session.left, session.busy = 0, None, False
        self.count("reboots")
        self.restart()
