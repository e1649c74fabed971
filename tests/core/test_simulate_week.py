"""A simulated week of a heavy user: how often the model is called, and that it never should not have been."""

from __future__ import annotations

import pytest

from tests.core.simulate_week import Week
from tests.support.heavy_user import Session
from watcher.core.recap_policy import Trigger


def wake_ups_a_second(week: Week) -> float:
    """Of the watcher, while the machine was awake."""
    return week.total("wake-ups") / week.awake


def test_a_week_of_recaps_as_the_user_goes_away() -> None:
    """None twice for one state, none outside the gates, none while the user is there; and all are delivered."""
    weeks = [Week(seed).run() for seed in (1, 2)]
    for week in weeks:
        assert week.violations == []
        assert len({(call.session, call.turn) for call in week.calls}) == len(week.calls)
        assert 50 <= len(week.calls) <= week.total("prompts") / 2
        assert wake_ups_a_second(week) < 0.2
    happened = {row for week in weeks for day in week.table.values() for row in day}
    assert happened >= {"suspends", "restarts", "reboots", "native recaps", "silent terminals", "made", "written again"}


def test_days_of_recaps_as_the_user_comes_back() -> None:
    """Only after an absence and before the next prompt; the looks at the terminals meanwhile are few."""
    week = Week(3, trigger=Trigger.RETURN, days=3).run()
    assert week.violations == []
    assert len(week.calls) >= 20
    assert wake_ups_a_second(week) < 0.2


def test_with_recaps_off_nothing_costs_anything() -> None:
    """Not a call, not a wake-up, not a write (issue 5)."""
    week = Week(1, enabled=False, days=2).run()
    assert week.calls == []
    assert week.total("wake-ups") == 0
    assert week.total("written") == 0


class Forgetful(Week):
    """A watcher that does not remember what it tried or made."""

    def look(self, session: Session) -> None:
        """As usual, with an empty memory."""
        self.store[session.number].attempted = ""
        self.store[session.number].made = None
        super().look(session)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_oracle_catches_a_watcher_that_forgets(seed: int) -> None:
    """What the simulation says is worth something."""
    assert any("twice" in violation for violation in Forgetful(seed, days=3).run().violations)


def test_the_table_shows_days_and_sums() -> None:
    """As it is printed."""
    lines = Week(1, days=2).run().show().splitlines()
    assert lines[0].split() == ["day", "1", "2", "all"]
    calls = next(line.split() for line in lines if line.startswith("calls"))
    assert int(calls[1]) + int(calls[2]) == int(calls[3])
    assert lines[-1] == "violations: 0"
