"""Decisions as values: what to do, until when to wait, or why not, always with a `Reason`."""

from __future__ import annotations

from dataclasses import dataclass

from watcher.core.generation import Kind
from watcher.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Act:
    """Everything allows it now."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Not now. `at` (seconds since the epoch) is when to look again; None: only an event can change it."""

    at: float | None
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Skip:
    """No, until something in the session, the settings or the user's orders changes."""

    reason: Reason
    detail: str = ""


Decision = Act | WaitUntil | Skip


@dataclass(frozen=True, slots=True)
class Guard:
    """One row of `why`: a guard by the name of the reason it gives, whether it lets pass, and what was seen."""

    name: str
    ok: bool
    detail: str = ""
