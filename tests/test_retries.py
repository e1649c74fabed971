"""When to look again at what could not be written now."""

from __future__ import annotations

import pytest

from watcher.core.reasons import Reason
from watcher.core.writing import Declined, Failed, WriteOutcome, Written
from watcher.retries import Retry, retry_after, soonest

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("outcome", "at"),
    [
        (Declined(Reason.LOCKED, "why"), NOW + 10.0),
        (Declined(Reason.WORKING, "why"), NOW + 15.0),
        (Declined(Reason.PAUSED, "why"), None),
        (Failed(Reason.UNSAFE_FILE, "why"), NOW + 300.0),
    ],
)
def test_what_may_still_be_written_is_tried_again(outcome: WriteOutcome, at: float | None) -> None:
    """A lease and a turn within 15 s of their end (design 11), a disk after minutes, a pause when it is over."""
    assert retry_after(outcome, NOW) == Retry(at, "why")


@pytest.mark.parametrize(
    "outcome",
    [
        Written("u", "p", 0, 1, ("u",)),
        *(Declined(each) for each in Reason if each not in (Reason.LOCKED, Reason.WORKING, Reason.PAUSED)),
        Failed(Reason.UNSAFE_FILE, "cut", "short write, closed"),
    ],
)
def test_what_is_done_or_lost_is_not(outcome: WriteOutcome) -> None:
    """It stands, it never will, or something of it was left behind."""
    assert retry_after(outcome, NOW) is None


def test_the_soonest_time_counts() -> None:
    """A time before an event, and either before nothing."""
    late, early, event = Retry(NOW + 9, "late"), Retry(NOW + 1, "early"), Retry(None, "event")
    assert soonest([]) is None
    assert soonest([None, None]) is None
    assert soonest([None, event]) == event
    assert soonest([event, late, None, early]) == early
