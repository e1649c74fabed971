"""The bounded form of the exhaustive exploration; `make safety` goes further."""

from __future__ import annotations

from functools import cache

import pytest

from tests.safety.explore import Explorer
from tests.safety.plan import Summary
from tests.safety.setups import SETUPS, setup

NATIVES = {"out of sight": 4, "a name out of sight": 4}
"""How many native operations a history has here, where it is not two."""
OURS = 4


@cache
def explored(name: str) -> Summary:
    """What the exploration of this configuration has seen. Raises `Violation`."""
    return Explorer(setup(name, NATIVES.get(name, 2), OURS)).run()


@pytest.mark.parametrize("name", list(SETUPS))
def test_no_interleaving_harms_a_session(name: str) -> None:
    """Every history of so many operations, at every call of ours: all invariants hold."""
    summary = explored(name)
    assert summary.states > 100
    assert summary.lines


@pytest.mark.parametrize("row", list("abcdefghij"))
def test_every_hazard_of_the_contract_is_met(row: str) -> None:
    """Each row of contract 4.3 is reached by some history, or the exploration proves nothing about it."""
    assert any(found.startswith(f"{row}:") for name in SETUPS for found in explored(name).rows)
