"""One execution of one procedure of ours, with what others do before which of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.safety.plan import Node
from tests.safety.reductions import CHANGING, ENDING_WITH, impossible, left_out
from tests.safety.watching import Killed, Procedure
from tests.safety.world import World

if TYPE_CHECKING:
    from tests.safety.explore import Explorer

Schedule = tuple[tuple[int, str], ...]
"""`(number of the call, what happens before it)`, in order."""


class _Merged(Exception):  # noqa: N818 - this state was seen before: what follows is known
    pass


class Run:
    """One execution of one procedure with one schedule."""

    def __init__(
        self, explorer: Explorer, node: Node, watcher: int, name: str, schedule: Schedule, waiting: list[Schedule]
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
        if not world.unfinished:
            world.settle()
        self._explorer.judge.at_rest(world, self.path)
        return world

    def _check(self, procedure: Procedure) -> None:
        self._explorer.judge.check(procedure, self._node.world, self._world, self.path)

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


def _with(values: tuple[bool, ...], index: int, *, value: bool) -> tuple[bool, ...]:
    return (*values[:index], value, *values[index + 1 :])
