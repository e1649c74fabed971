"""Exhaustive exploration: every history of native writers and ours up to a length, at the level of single system calls.

Equal states are merged: a state is the content of the file, the memory of every process and of ours, and how far our
procedure has come, which the results of its calls determine. What else need not be tried: `reductions`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from tests.safety.judge import Judge
from tests.safety.memory_files import MemoryFiles
from tests.safety.plan import Node, Setup, Summary, Visited
from tests.safety.reductions import Reductions, blurs
from tests.safety.remembering import one_try_for_the_lock, remembered, seldom_collected, small_windows
from tests.safety.run import Run, Waiting
from tests.safety.watching import Procedure
from tests.safety.world import World


class Explorer:
    """Explores one configuration."""

    def __init__(self, setup: Setup, reductions: type[Reductions] = Reductions) -> None:
        self.setup = setup
        self.reductions = reductions(setup.alphabet.names, setup.watchers, setup.kills)
        self._seen = Visited(setup.native_operations, setup.our_operations)
        self.inner = Visited(setup.native_operations, setup.our_operations)
        self._contents: set[int] = set()
        self.summary = Summary()
        self.judge = Judge(setup, self.summary)

    def run(self) -> Summary:
        """Explore everything. Raises `Violation`, with the history that leads to it."""
        with seldom_collected(), remembered(), one_try_for_the_lock(), small_windows(self.setup.alphabet.window):
            return self._run()

    def _run(self) -> Summary:
        begun = time.perf_counter()
        setup = self.setup
        frontier = deque([Node(setup.begin, setup.native_operations, setup.our_operations, ())])
        while frontier:
            node = frontier.popleft()
            if self._seen.is_new(hash(node.world.key()), node.natives, node.ours):
                self._contents.add(hash(node.world.data))
                frontier += self._next(node)
        self.summary.states = len(self._seen) + len(self.inner)
        self.summary.contents = len(self._contents)
        self.summary.seconds = time.perf_counter() - begun
        return self.summary

    def _next(self, node: Node) -> Iterator[Node]:
        if node.natives:
            for operation in self.setup.alphabet.enabled(node.world):
                world = node.world.copy()
                self.happen(world, operation)
                if not world.unfinished:
                    world.settle()
                path = (*node.path, operation)
                self.judge.at_rest(world, path)
                yield Node(world, node.natives - 1, node.ours, path)
        if node.ours:
            for watcher in range(self.setup.watchers):
                procedure = Procedure(node.world.copy(), watcher, self.setup.build)
                possible = procedure.can
                procedure.release()
                for name in sorted(possible & (self.setup.ours | {"restart"})):
                    yield from self._procedures(node, watcher, name)

    def happen(self, world: World, operation: str, files: MemoryFiles | None = None, call: str = "") -> None:
        """Let it happen, before this call of ours where one is under way, and count it."""
        name, _, process = operation.partition(".")
        self.summary.operations[name] += 1
        self.alter(world, operation, files, call)
        if files is not None and name == "half":
            files.in_flight = int(process)
            files.complete = lambda process: self._complete(world, process)

    def alter(self, world: World, operation: str, files: MemoryFiles | None, call: str) -> None:
        """What it does to the world."""
        if operation.startswith(("start", "acp", "serve", "unsourced")) and world.is_stale:
            world.early = True
        blurred = files is not None and blurs(files, call, operation)
        self.setup.alphabet.apply(world, operation)
        world.blurred = world.blurred or blurred

    def _complete(self, world: World, process: int) -> None:
        if world.clis[process].rest:
            self.setup.alphabet.apply(world, f"rest.{process}")

    # -- one procedure of ours, with everything that can happen meanwhile ---------------------------------------------

    def _procedures(self, node: Node, watcher: int, name: str) -> Iterator[Node]:
        waiting: Waiting = [((), None)]
        while waiting:
            schedule, leads_to = waiting.pop()
            if leads_to is not None and self.inner.knows(*leads_to):
                continue
            run = Run(self, node, watcher, name, schedule, waiting)
            world = run.go()
            run.release()
            if world is None:
                continue
            yield Node(world, node.natives - run.used, node.ours - 1 - run.used_ours, run.path)
