"""What the exploration leaves out makes no difference: with nothing left out, short histories reach the same states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.safety.explore import Explorer
from tests.safety.judge import Judge
from tests.safety.plan import Setup, Summary
from tests.safety.reductions import Reductions, Unreduced
from tests.safety.setups import SETUPS, setup
from tests.safety.world import World

LENGTHS = [(1, 2), (2, 1)]
"""Native operations and ours: the longest that can be tried before every call, each history by itself."""


class _Noting(Judge):
    """Remembers each state in which our side is at rest."""

    def __init__(self, setup: Setup, summary: Summary) -> None:
        super().__init__(setup, summary)
        self.seen: set[tuple[object, ...]] = set()

    def at_rest(self, world: World, path: tuple[str, ...]) -> None:
        self.seen.add(_essence(world))
        super().at_rest(world, path)


def _essence(world: World) -> tuple[object, ...]:
    """All of it but what is counted only: killed when nothing was under way, we are as at rest."""
    crashed = tuple(each and bool(store.intents) for each, store in zip(world.crashed, world.stores, strict=True))
    essence = replace(world, crashed=crashed, kills=0, blurred=False)
    if not essence.unfinished:
        essence.settle()
    return essence.key()


def _reached(name: str, natives: int, ours: int, reductions: type[Reductions]) -> set[tuple[object, ...]]:
    explorer = Explorer(setup(name, natives, ours), reductions)
    explorer.judge = judge = _Noting(explorer.setup, explorer.summary)
    explorer.run()
    return judge.seen


@pytest.mark.parametrize(("natives", "ours"), LENGTHS)
@pytest.mark.parametrize("name", list(SETUPS))
def test_nothing_is_missed(name: str, natives: int, ours: int) -> None:
    """With everything tried before every call, no other state is reached than with what is left out left out."""
    assert _reached(name, natives, ours, Reductions) == _reached(name, natives, ours, Unreduced)
