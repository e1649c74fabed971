"""When to look again at what could not be written now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from watcher.core.reasons import Reason
from watcher.core.writing import Declined, Failed, WriteOutcome

LOCKED_RETRY_SECONDS: Final = 10.0
WORKING_RETRY_SECONDS: Final = 15.0
FAILED_RETRY_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Retry:
    """Something waits; look again at `at` (seconds since the epoch), or only when an event changes it (None)."""

    at: float | None
    why: str


def retry_after(outcome: WriteOutcome, now: float) -> Retry | None:
    """When this write may be tried again, None when it is done or will never be."""
    if isinstance(outcome, Declined) and outcome.reason is Reason.LOCKED:
        return Retry(now + LOCKED_RETRY_SECONDS, outcome.detail)
    if isinstance(outcome, Declined) and outcome.reason is Reason.WORKING:
        return Retry(now + WORKING_RETRY_SECONDS, outcome.detail)
    if isinstance(outcome, Declined) and outcome.reason is Reason.PAUSED:
        return Retry(None, outcome.detail)
    if isinstance(outcome, Failed) and not outcome.anomaly:
        return Retry(now + FAILED_RETRY_SECONDS, outcome.detail)
    return None


def soonest(retries: Iterable[Retry | None]) -> Retry | None:
    """The first that has a time, else any, None when nothing waits."""
    waiting = [retry for retry in retries if retry is not None]
    timed = [retry for retry in waiting if retry.at is not None]
    if timed:
        return min(timed, key=lambda retry: retry.at or 0.0)
    return waiting[0] if waiting else None
