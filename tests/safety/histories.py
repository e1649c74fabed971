"""Long histories drawn by chance, played on the same world and judged by the same invariants as the exhaustive ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.safety.explore import Explorer
from tests.safety.fake_store import FakeStore
from tests.safety.plan import Setup
from tests.safety.reductions import impossible, left_out
from tests.safety.remembering import remembered, small_windows
from tests.safety.watching import Killed, Procedure
from tests.safety.world import World

MakeStore = Callable[[World, int, Callable[[str], None]], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One native operation, or one procedure of ours with what happens meanwhile: `(number of the call, which)`.

    Numbers choose among what is possible then; `kill` is the number of the call before which we are killed.
    """

    which: int
    is_ours: bool = False
    meanwhile: tuple[tuple[int, int], ...] = ()
    kill: int | None = None


@dataclass(slots=True)
class Player:
    """Plays histories. `world` is where the last one has led."""

    setup: Setup
    make_store: MakeStore = FakeStore
    world: World = field(init=False)
    path: list[str] = field(init=False, default_factory=list)
    _explorer: Explorer = field(init=False)

    def __post_init__(self) -> None:
        self._explorer = Explorer(self.setup)
        self.world = self.setup.begin.copy()

    def play(self, steps: list[Step]) -> World:
        """Play one history. Raises `Violation`."""
        with remembered(), small_windows(self.setup.alphabet.window):
            for step in steps:
                if step.is_ours or any(self.world.crashed):
                    self._ours(step)
                else:
                    self._native(step)
        return self.world

    def _native(self, step: Step) -> None:
        possible = self.setup.alphabet.enabled(self.world)
        if not possible:
            return
        operation = possible[step.which % len(possible)]
        self.path.append(operation)
        self._explorer.happen(self.world, operation)
        self._rest()

    def _ours(self, step: Step) -> None:
        world = self.world
        watcher = step.which % self.setup.watchers
        before = world.copy()
        calls: Counter[str] = Counter()

        def hook(call: str) -> None:
            if call != "store" and not self._explorer.reductions.stops_at(call, locked_out=False):
                return
            if calls.total() == step.kill and self.setup.kills:
                world.kills += 1
                raise Killed
            kind = "store" if call == "store" else "noticed"
            for number, which in step.meanwhile:
                if number == calls["noticed"] and kind == "noticed":
                    self._meanwhile(procedure, call, which)
            calls[kind] += 1

        procedure = Procedure(world, watcher, self.setup.build, before=hook, make_store=self.make_store)
        procedure.store.on_drop = procedure.forget_uuid
        possible = sorted(procedure.can & (self.setup.ours | {"restart"}))
        if not possible:
            return
        name = possible[(step.which // 2) % len(possible)]
        self.path.append(f"[{name}{watcher or ''}")
        try:
            procedure.run(name)
        except Killed:
            procedure.before = _killed
            world.crashed = (*world.crashed[:watcher], True, *world.crashed[watcher + 1 :])
        self.path.append("]")
        self._explorer.judge.check(procedure, before, world, tuple(self.path))
        self._rest()

    def _meanwhile(self, procedure: Procedure, call: str, which: int) -> None:
        possible = [
            operation
            for operation in self.setup.alphabet.enabled(self.world)
            if not impossible(call, operation) and not left_out(call, operation)
        ]
        if possible:
            operation = possible[which % len(possible)]
            self.path.append(f"{operation} before {call}")
            self._explorer.happen(self.world, operation, procedure.files, call)

    def _rest(self) -> None:
        if not self.world.unfinished:
            self.world.settle()
        self._explorer.judge.at_rest(self.world, tuple(self.path))


def _killed(_: str) -> None:
    raise Killed
