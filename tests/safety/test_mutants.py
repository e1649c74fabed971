"""Each invariant has a mutant that breaks it, and the exploration finds it."""

from __future__ import annotations

import pytest

from tests.safety.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_found(mutant: Mutant) -> None:
    """With this one thing broken, some history harms the session, and an invariant says so."""
    assert mutant.hunt()
