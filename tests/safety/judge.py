"""The verdict on one configuration's states: what every history must come to, and what is counted instead."""

from __future__ import annotations

from collections.abc import Callable

from tests.safety import invariants
from tests.safety.invariants import Violation
from tests.safety.plan import Setup, Summary
from tests.safety.reductions import DIED_BESIDE, LOADED_EARLY
from tests.safety.rows import count_outcome, count_rows, pretty
from tests.safety.watching import Procedure
from tests.safety.world import World
from watcher.core.writing import Written

CALM_ROUNDS = 6
"""After so many looks with nothing happening, our side must have come to rest."""

MAX_WRITES = 8
"""No procedure of ours writes more often: one line and three corrections, twice."""


class Judge:
    """Judges each state once. What was seen goes into `summary`."""

    def __init__(self, setup: Setup, summary: Summary) -> None:
        self.setup = setup
        self.summary = summary
        self._checked: set[int] = set()

    def at_rest(self, world: World, path: tuple[str, ...]) -> None:
        """Check what must hold whenever our side is at rest, and that it comes to rest; where we were killed, or could
        not finish a write, what must hold after the next start.
        """
        key = hash(world.key())
        if key in self._checked:
            return
        self._checked.add(key)
        self.summary.rests += 1
        try:
            if world.broken:
                raise Violation(world.broken)
            if world.unfinished:
                self._next_start(world)
                return
            if not world.torn and not world.data.endswith(b"\n"):
                raise Violation("a torn line of ours was left behind")
            if world.place != "replaced":
                invariants.check_turns(world)
            self._calm(world)
        except Violation as violation:
            raise Violation(f"{violation}\nafter: {' '.join(path)}\n{pretty(world)}") from violation
        count_rows(self.summary.rows, world)

    def _next_start(self, world: World) -> None:
        """Started again with nothing else happening, our side finishes what it had begun, unless it must wait."""
        after = world.copy()
        for watcher, crashed in enumerate(world.crashed):
            procedure = Procedure(after, watcher, self.setup.build)
            procedure.run("restart" if crashed else "deliver")
            self.summary.lines += invariants.check_lines(world, after)
        invariants.check_ids(world, after)
        if after.broken:
            raise Violation(after.broken)
        if after.place != "chats" or after.turns() is None or after.room is not None or after.lease:
            return
        if world.short:
            return
        if any(cli.live and cli.kind != "tui" for cli in after.clis):
            return
        if after.unfinished:
            raise Violation("a write is still open after the next start")
        invariants.check_turns(after)
        after.settle()
        self._calm(after)

    def check(self, procedure: Procedure, before: World, after: World, path: tuple[str, ...]) -> None:
        """Check what one procedure of ours has done."""
        try:
            if after.torn or after.data.endswith(b"\n"):
                self.summary.lines += invariants.check_lines(before, after)
            invariants.check_ids(before, after)
            if not procedure.files.lease_seen:  # its holder remembers the times, so they are left as they are
                invariants.check_mtime(after)
            files = procedure.files
            repaired = any(isinstance(each, Written) and each.repairs for each in procedure.outcomes)
            if files.writes > 1 and not files.raced and repaired:
                raise Violation("a correction was written although nobody came in between")
            if files.writes > MAX_WRITES:
                raise Violation("too many writes")
        except Violation as violation:
            raise Violation(f"{violation}\nafter: {' '.join(path)}\n{pretty(after)}") from violation
        count_outcome(self.summary.rows, procedure, before)

    def _calm(self, world: World) -> None:
        """With nobody there and nothing happening, our side writes what is due, and then nothing more."""
        if any(cli.live for cli in world.clis) or world.place != "chats" or world.turns() is None:
            return
        calm = world.copy()
        for _ in range(CALM_ROUNDS):
            before = (calm.data, calm.stores)
            for watcher in range(self.setup.watchers):
                Procedure(calm, watcher, self.setup.build).run("deliver")
            if (calm.data, calm.stores) == before:
                break
            calm.settle()
        else:
            raise Violation("our side does not come to rest")
        self.summary.lines += invariants.check_lines(world, calm)
        invariants.check_turns(calm)
        self._judge(invariants.check_recaps, calm, calm.early, LOADED_EARLY)
        braked = any(store.anomalies for store in calm.stores)
        if calm.blurred and braked:
            self._judge(invariants.check_title, calm, calm.blurred, DIED_BESIDE)
        if not calm.lease and calm.room is None and not braked:
            invariants.check_title(calm)
            invariants.check_sight(calm, self.setup.alphabet.window)

    def _judge(self, check: Callable[[World], None], world: World, excused: bool, reason: str) -> None:
        try:
            check(world)
        except Violation:
            if not excused:
                raise
            self.summary.excluded[reason] += 1
