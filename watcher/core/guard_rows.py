"""A decision as an ordered table: each row is a guard for `why`, and what it decides when it does not let pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from watcher.core.decisions import Act, Decision, Guard, Skip, WaitUntil
from watcher.core.generation import Kind
from watcher.core.reasons import Reason

UNLIMITED_CALLS: Final = 1_000_000_000
"""The extractive model makes no calls, so no budget applies to it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One guard; `stop` is None when it lets pass."""

    guard: Guard
    stop: Decision | None


def skip_row(reason: Reason, detail: str, *, ok: bool) -> Row:
    """A guard that says no for good when it does not let pass."""
    return Row(Guard(reason.value, ok, detail), None if ok else Skip(reason, detail))


def wait_row(reason: Reason, detail: str, *, ok: bool, at: float | None = None) -> Row:
    """A guard that says not yet: until `at` (seconds since the epoch), or until an event when that is None."""
    return Row(Guard(reason.value, ok, detail), None if ok else WaitUntil(at, reason, detail))


def budget_detail(calls_left: int) -> str:
    """What `why` says of the day's budget."""
    return "no call is needed" if calls_left == UNLIMITED_CALLS else f"{max(calls_left, 0)} calls left today"


def decided(rows: Iterable[Row], kind: Kind) -> Decision:
    """What the first row that does not let pass decides, else `Act`. Later rows are not asked for."""
    return next((row.stop for row in rows if row.stop is not None), Act(kind))


def guards(rows: Iterable[Row]) -> tuple[Guard, ...]:
    """Every guard, those behind the deciding one included."""
    return tuple(row.guard for row in rows)
