"""One execution of one procedure of ours, with what others do before which of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.safety.plan import Node
from tests.safety.reductions import impossible, left_out
from tests.safety.watching import Killed, Procedure
from tests.safety.world import World

if TYPE_CHECKING:
    from tests.safety.explore import Explorer

Schedule = tuple[tuple[int, str], ...]
"""`(number of the call, what happens before it)`, in order."""
Place = tuple[int, int, int]
"""A state, and how much is left to do in it, as `Visited` takes them."""
Waiting = list[tuple[Schedule, Place | None]]
"""What is still to be tried, and where it leads to."""


class _Merged(Exception):  # noqa: N818 - this state was seen before: what follows is known
    pass


class Course:
    """How far one procedure has come, which the results of its calls determine: equal courses go on equally."""

    def __init__(self, procedure: Procedure, begun: object) -> None:
        self.procedure = procedure
        self.progress = hash(begun)
        self._mark = self.progress
        self._rounds = 0
        self._looked_again = False
        procedure.store.on_drop = self._on_drop

    def before(self, call: str) -> None:
        """A call is about to be made. A procedure that begins its look anew knows nothing of its earlier looks."""
        if call == "open_append":
            self._mark, self._rounds = self.progress, 0
        if self._looked_again and call == "fstat":
            self._rounds += 1
            self.progress = hash((self._mark, "round", self._rounds))
        self._looked_again = False

    def after(self, call: str, result: object) -> None:
        """A call has had this result."""
        self.progress = hash((self.progress, call, result))

    def _on_drop(self) -> None:
        self._looked_again = True
        self.procedure.forget_uuid()


class Run:
    """One execution of one procedure with one schedule. `used` counts what happened meanwhile, `used_ours` what of that
    was the other watcher's.
    """

    def __init__(
        self, explorer: Explorer, node: Node, watcher: int, name: str, schedule: Schedule, waiting: Waiting
    ) -> None:
        self._explorer = explorer
        self.setup = explorer.setup
        self._reductions = explorer.reductions
        self._node = node
        self._watcher = watcher
        self._name = name
        self._schedule = schedule
        self._waiting = waiting
        self._world = node.world.copy()
        self._number = 0
        self._fresh_from = schedule[-1][0] if schedule else 0
        self._inserted = self.used = self.used_ours = 0
        self._killed = False
        self.happened: list[tuple[str, str]] = []
        self._courses: tuple[Course, ...] = ()
        """Ours, and while it waits for the other watcher's, that one's behind it."""
        self._procedure = self._begin(watcher, name)

    def _begin(self, watcher: int, name: str, *, locked: bool = False) -> Procedure:
        world = self._world
        procedure = Procedure(world, watcher, self.setup.build, self._before, self._after, locked_by_other=locked)
        # What a procedure took in when it began: the file as it was then, and what it will make of it.
        begun = (len(world.data), world.place, world.mtime, world.wish, world.serial, world.stores[watcher])
        self._courses = (*self._courses, Course(procedure, (watcher, name, begun)))
        return procedure

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

    def release(self) -> None:
        """It is over."""
        self._procedure.release()
        del self._procedure, self._courses

    def _check(self, procedure: Procedure) -> None:
        self._explorer.judge.check(procedure, self._node.world, self._world, self.path)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def _before(self, call: str) -> None:
        if self._killed:
            raise Killed
        self._courses[-1].before(call)
        if self._reductions.stops_at(call, locked_out=self._courses[-1].procedure.locked_by_other):
            self._boundary(call)

    def _after(self, call: str, result: object) -> None:
        self._courses[-1].after(call, result)

    def _boundary(self, call: str) -> None:
        number = self._number
        self._number += 1
        while self._inserted < len(self._schedule) and self._schedule[self._inserted][0] == number:
            self._inserted += 1
            self._insert(call, self._schedule[self._inserted - 1][1])
        if number < self._fresh_from:
            return
        left, left_ours = self._node.natives - self.used, self._node.ours - self.used_ours
        if self._reductions.merges and not self._explorer.inner.is_new(self._key(self._world, call), left, left_ours):
            raise _Merged
        done = self._schedule  # all of it: the boundaries before its last one are no longer looked at
        if self._reductions.kills_at(call) and self._world.kills < self.setup.kills:
            self._waiting.append(((*done, (number, "kill us")), None))
        for operations in self._meanwhile(self._world, call, left):
            leads_to = self._after_these(operations, call, left - len(operations), left_ours)
            self._waiting.append(((*done, *((number, operation) for operation in operations)), leads_to))
        if left and left_ours > 1 and self.setup.watchers > 1 and len(self._courses) == 1:
            for name in sorted(self.setup.ours) if self._reductions.turns_at(call) else ():
                self._waiting.append(((*done, (number, f"us.{1 - self._watcher}.{name}")), None))

    def _key(self, world: World, call: str) -> int:
        return hash((world.key(), *[course.progress for course in self._courses], call))

    def _after_these(self, operations: tuple[str, ...], call: str, left: int, left_ours: int) -> Place | None:
        """Where these lead to: whether that was met by then is found out more cheaply than by coming here again."""
        if any(operation.startswith("half") for operation in operations):
            return None  # it changes more than the world
        world = self._world.copy()
        for operation in operations:
            self._explorer.alter(world, operation, self._courses[-1].procedure.files, call)
        return self._key(world, call), left, left_ours

    def _meanwhile(self, world: World, call: str, left: int) -> Iterator[tuple[str, ...]]:
        """What may happen before this call: any number of operations that do not meet it, and one that does."""
        if not left:
            return
        for operation in self.setup.alphabet.enabled(world):
            if impossible(call, operation):
                continue
            reason = left_out(call, operation)
            if reason:
                self._explorer.summary.excluded[reason] += 1
                continue
            if self._reductions.meets(call, operation):
                yield (operation,)
            elif left > 1:
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
            self.used += 1
            self.used_ours += 1
            _, other, name = what.split(".")
            self._other(int(other), name)
            return
        self.used += 1
        course = self._courses[-1]
        self._explorer.happen(self._world, what, course.procedure.files, call)
        if what.startswith("half"):
            course.after(call, what)

    def _other(self, watcher: int, name: str) -> None:
        """The other watcher does something meanwhile; our lock keeps it out while we hold it."""
        outside = self._courses
        procedure = self._begin(watcher, name, locked=self._procedure.files.holds_lock)
        try:
            if name in procedure.can:
                procedure.run(name)
        finally:
            self._courses = outside
            procedure.release()


def _with(values: tuple[bool, ...], index: int, *, value: bool) -> tuple[bool, ...]:
    return (*values[:index], value, *values[index + 1 :])
