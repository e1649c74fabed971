"""Exhaustive exploration: every history of native writers and ours up to a length, at the level of single system calls.

Equal states are merged: a state is the content of the file, the memory of every process and of ours, and how far our
procedure has come, which the results of its calls determine. What else need not be tried: `reductions`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.safety import invariants
from tests.safety.invariants import Violation
from tests.safety.memory_files import MemoryFiles
from tests.safety.operations import Alphabet
from tests.safety.reductions import (
    CHANGING,
    DIED_BESIDE,
    ENDING_WITH,
    LOADED_EARLY,
    blurs,
    impossible,
    left_out,
    noticed,
)
from tests.safety.remembering import remembered, seldom_collected, small_windows
from tests.safety.rows import count_outcome, count_rows, pretty
from tests.safety.watching import Build, Killed, Procedure
from tests.safety.world import World
from watcher.core.writing import Written

CALM_ROUNDS = 6
"""After so many looks with nothing happening, our side must have come to rest."""

MAX_WRITES = 8
"""No procedure of ours writes more often: one line and three corrections, twice."""

Schedule = tuple[tuple[int, str], ...]
"""`(number of the call, what happens before it)`, in order."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration: who takes part, what each can do, and how often."""

    name: str
    begin: World
    alphabet: Alphabet
    ours: frozenset[str]
    native_operations: int
    our_operations: int
    kills: int = 0
    watchers: int = 1
    build: Build = field(default_factory=Build)


@dataclass(slots=True)
class Summary:
    """What an exploration has seen."""

    interleavings: int = 0
    states: int = 0
    contents: int = 0
    lines: int = 0
    rests: int = 0
    seconds: float = 0.0
    rows: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)

    def add(self, other: Summary) -> None:
        """Take in another one."""
        for name in ("interleavings", "states", "contents", "lines", "rests", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("rows", "excluded", "operations"):
            getattr(self, name).update(getattr(other, name))


class _Merged(Exception):  # noqa: N818 - this state was seen before: what follows is known
    pass


@dataclass(slots=True)
class _Node:
    """Our side is at rest."""

    world: World
    natives: int
    ours: int
    path: tuple[str, ...]


class _Visited:
    """States that were met, each with how much was left to do then: with less left, nothing new can follow."""

    def __init__(self, natives: int, ours: int) -> None:
        self._width = ours + 1
        self._met: dict[int, int] = {}
        self._covering = {
            (some, few): sum(
                1 << (more * self._width + most) for more in range(some, natives + 1) for most in range(few, ours + 1)
            )
            for some in range(natives + 1)
            for few in range(ours + 1)
        }

    def __len__(self) -> int:
        return len(self._met)

    def is_new(self, key: int, natives: int, ours: int) -> bool:
        """Whether this state was not met before with at least as much left; it is noted."""
        met = self._met.get(key, 0)
        if met & self._covering[natives, ours]:
            return False
        self._met[key] = met | 1 << (natives * self._width + ours)
        return True


class Explorer:
    """Explores one configuration."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.noticed = noticed(setup.alphabet.names, setup.watchers)
        self._seen = _Visited(setup.native_operations, setup.our_operations)
        self.inner = _Visited(setup.native_operations, setup.our_operations)
        self._checked: set[int] = set()
        self._contents: set[int] = set()
        self.summary = Summary()

    def run(self) -> Summary:
        """Explore everything. Raises `Violation`, with the history that leads to it."""
        with seldom_collected(), remembered(), small_windows(self.setup.alphabet.window):
            return self._run()

    def _run(self) -> Summary:
        begun = time.perf_counter()
        setup = self.setup
        frontier = deque([_Node(setup.begin, setup.native_operations, setup.our_operations, ())])
        while frontier:
            node = frontier.popleft()
            if self._seen.is_new(hash(node.world.key()), node.natives, node.ours):
                self._contents.add(hash(node.world.data))
                frontier += self._next(node)
        self.summary.states = len(self._seen) + len(self.inner)
        self.summary.contents = len(self._contents)
        self.summary.seconds = time.perf_counter() - begun
        return self.summary

    def _next(self, node: _Node) -> Iterator[_Node]:
        if node.natives:
            for operation in self.setup.alphabet.enabled(node.world):
                world = node.world.copy()
                self.happen(world, operation)
                if not unfinished(world):
                    world.settle()
                path = (*node.path, operation)
                self.at_rest(world, path)
                yield _Node(world, node.natives - 1, node.ours, path)
        if node.ours:
            for watcher in range(self.setup.watchers):
                possible = Procedure(node.world.copy(), watcher, self.setup.build).can
                for name in sorted(possible & (self.setup.ours | {"restart"})):
                    yield from self._procedures(node, watcher, name)

    def happen(self, world: World, operation: str, files: MemoryFiles | None = None, call: str = "") -> None:
        """Let it happen, before this call of ours where one is under way, and count it."""
        name, _, process = operation.partition(".")
        self.summary.operations[name] += 1
        if name in ("start", "acp", "serve", "unsourced") and world.is_stale:
            world.early = True
        if files is None:
            self.setup.alphabet.apply(world, operation)
            return
        blurred = blurs(files, call, operation)
        self.setup.alphabet.apply(world, operation)
        world.blurred = world.blurred or blurred
        if name == "half":
            files.in_flight = int(process)
            files.complete = lambda process: self._complete(world, process)

    def _complete(self, world: World, process: int) -> None:
        if world.clis[process].rest:
            self.setup.alphabet.apply(world, f"rest.{process}")

    # -- one procedure of ours, with everything that can happen meanwhile ---------------------------------------------

    def _procedures(self, node: _Node, watcher: int, name: str) -> Iterator[_Node]:
        waiting: list[Schedule] = [()]
        while waiting:
            run = _Run(self, node, watcher, name, waiting.pop(), waiting)
            world = run.go()
            if world is None:
                continue
            natives = node.natives - sum(1 for _, what in run.happened if what != "kill us")
            yield _Node(world, natives, node.ours - 1, run.path)

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
            if unfinished(world):
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
        if unfinished(after):
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


class _Run:
    """One execution of one procedure with one schedule."""

    def __init__(
        self, explorer: Explorer, node: _Node, watcher: int, name: str, schedule: Schedule, waiting: list[Schedule]
    ) -> None:
        self._explorer = explorer
        self.setup = explorer.setup
        self._noticed = explorer.noticed
        self._node = node
        self._watcher = watcher
        self._name = name
        self._schedule = schedule
        self._waiting = waiting
        self._world = node.world.copy()
        self._number = 0
        self._fresh_from = schedule[-1][0] if schedule else 0
        # What a procedure took in when it began: the file as it was then, and what it will make of it.
        world = node.world
        begun = (len(world.data), world.place, world.mtime, world.wish, world.serial, world.stores[watcher])
        self._progress = hash((watcher, name, begun))
        self._mark = self._progress
        self._rounds = 0
        self._looked_again = False
        self._killed = False
        self.happened: list[tuple[str, str]] = []
        self._procedure = Procedure(self._world, watcher, self.setup.build, self._before, self._after)
        self._procedure.store.on_drop = self._on_drop

    @property
    def path(self) -> tuple[str, ...]:
        """The history so far, in words."""
        inside = ", ".join(f"{what} before {call}" for call, what in self.happened)
        return (*self._node.path, f"[{self._name}{self._watcher or ''}{': ' if inside else ''}{inside}]")

    def go(self) -> World | None:
        """The world afterwards, None when the rest is known from an earlier run."""
        summary = self._explorer.summary
        world, procedure = self._world, self._procedure
        try:
            procedure.run(self._name)
        except _Merged:
            return None
        except Killed:
            summary.rows["killed"] += 1
            world.crashed = _with(world.crashed, self._watcher, value=True)
        summary.interleavings += 1
        self._check(procedure)
        if not unfinished(world):
            world.settle()
        self._explorer.at_rest(world, self.path)
        return world

    def _check(self, procedure: Procedure) -> None:
        self._explorer.check(procedure, self._node.world, self._world, self.path)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def _before(self, call: str) -> None:
        if self._killed:
            raise Killed
        is_store = call == "store"
        if call == "open_append":
            self._mark, self._rounds = self._progress, 0
        if self._looked_again and call == "fstat":
            self._rounds += 1
            self._progress = hash((self._mark, "round", self._rounds))
        self._looked_again = False
        if call not in self._noticed and not (is_store and self.setup.kills):
            return
        self._boundary(call)

    def _after(self, call: str, result: object) -> None:
        self._progress = hash((self._progress, call, result))

    def _on_drop(self) -> None:
        self._looked_again = True
        self._procedure.forget_uuid()

    def _boundary(self, call: str) -> None:
        number = self._number
        self._number += 1
        for at, what in self._schedule:
            if at == number:
                self._insert(call, what)
        if number < self._fresh_from:
            return
        left = self._node.natives - sum(1 for _, what in self.happened if what != "kill us")
        key = hash((self._world.key(), self._progress, call))
        if not self._explorer.inner.is_new(key, left, self._node.ours):
            raise _Merged
        done = tuple(each for each in self._schedule if each[0] <= number)
        if call in CHANGING and self._world.kills < self.setup.kills:
            self._waiting.append((*done, (number, "kill us")))
        if call == "store":
            return
        for operations in self._meanwhile(self._world, call, left):
            self._waiting.append((*done, *((number, operation) for operation in operations)))
        if left and self.setup.watchers > 1 and call in ("try_lock", "write"):
            # While we hold the lock the other one finds it taken and does nothing: one such place stands for all.
            other = 1 - self._watcher
            for name in sorted(self.setup.ours):
                self._waiting.append((*done, (number, f"us.{other}.{name}")))

    def _meanwhile(self, world: World, call: str, left: int) -> Iterator[tuple[str, ...]]:
        """What may happen before this call. Before one that only a certain kind of operation can influence, the last
        thing that happens is of that kind: anything else may as well happen later.
        """
        if not left:
            return
        kind = ENDING_WITH.get(call)
        for operation in self.setup.alphabet.enabled(world):
            if impossible(call, operation):
                continue
            reason = left_out(call, operation)
            if reason:
                self._explorer.summary.excluded[reason] += 1
                continue
            if kind is None or operation.partition(".")[0] in kind:
                yield (operation,)
            if kind is not None and left > 1:
                after = world.copy()
                self.setup.alphabet.apply(after, operation)
                for more in self._meanwhile(after, call, left - 1):
                    yield (operation, *more)

    def _insert(self, call: str, what: str) -> None:
        self.happened.append((call, what))
        if what == "kill us":
            self._killed = True
            self._world.kills += 1
            raise Killed
        if what.startswith("us."):
            _, other, name = what.split(".")
            self._other(int(other), name)
            return
        self._explorer.happen(self._world, what, self._procedure.files, call)
        if what.startswith("half"):
            self._progress = hash((self._progress, what))

    def _other(self, watcher: int, name: str) -> None:
        """The other watcher does something meanwhile; our lock keeps it out while we hold it."""
        procedure = Procedure(self._world, watcher, self.setup.build, locked_by_other=self._procedure.files.holds_lock)
        if name in procedure.can:
            procedure.run(name)


def unfinished(world: World) -> bool:
    """We were killed, or a write of ours is still to be verified."""
    return any(world.crashed) or any(store.intents for store in world.stores)


def _with(values: tuple[bool, ...], index: int, *, value: bool) -> tuple[bool, ...]:
    return (*values[:index], value, *values[index + 1 :])
