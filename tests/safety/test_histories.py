"""Longer histories than the exhaustive ones, and the state database of the model beside the real one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.safety.histories import Player, Step
from tests.safety.setups import SETUPS, setup
from tests.safety.world import World
from watcher.edge.store import Store

numbers = st.integers(0, 40)
native_steps = st.builds(Step, numbers)
our_steps = st.builds(
    Step,
    numbers,
    st.just(True),
    st.lists(st.tuples(st.integers(0, 20), numbers), max_size=3).map(tuple),
    st.one_of(st.none(), st.integers(0, 30)),
)
histories = st.lists(st.one_of(native_steps, native_steps, our_steps), max_size=24)


@pytest.mark.parametrize("name", list(SETUPS))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(steps=histories)
def test_long_histories_harm_nobody(name: str, steps: list[Step]) -> None:
    """Up to two dozen operations of everybody, in any order and at any call: every invariant holds."""
    Player(setup(name)).play(steps)


class RealStore(Store):
    """The real state database where the model has its own."""

    on_drop: Callable[[], None] = staticmethod(lambda: None)

    def drop_intent(self, uuid: str) -> None:
        super().drop_intent(uuid)
        self.on_drop()


@pytest.mark.parametrize("name", ["one terminal", "the user's wishes"])
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(steps=histories)
def test_the_model_keeps_what_the_real_state_database_keeps(name: str, steps: list[Step]) -> None:
    """The same history with the real database behind the writes leaves the same bytes in the session file."""
    modelled = Player(setup(name)).play(steps)
    with tempfile.TemporaryDirectory() as folder:
        stores: list[RealStore] = []

        def make(world: World, watcher: int, before: Callable[[str], None]) -> Any:
            if not stores:
                stores.append(RealStore(RealStore.open(Path(folder))._db))
            return stores[0]

        try:
            real = _Unjudged(setup(name), make).play(steps)
        finally:
            for store in stores:
                store.close()
    assert real.data == modelled.data


class _Unjudged(Player):
    """Plays without judging: the invariants look into the model's own database."""

    def _rest(self) -> None:
        self.world.settle()
