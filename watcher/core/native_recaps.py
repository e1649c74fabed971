"""Whether a live Qwen Code really shows recaps itself, learnt from what happens when its user comes back (design 7).

Qwen Code shows a recap when its terminal reports that the focus has returned. Some terminals never report it; then a
return that is past every gate brings no recap. That can only be seen from outside by its absence, a minute later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from watcher.core.presence import Away, Here, Moment, Presence, Status, next_look

PATIENCE_SECONDS: Final = 60.0
"""A native recap stands in the file so long after the return, or there is none (design 7)."""
LOOK_EVERY_SECONDS: Final = 30.0
"""How often to look for the return from an absence that would tell something; looks of all sessions coincide."""
NATIVE_TURNS: Final = 3
"""User turns that Qwen Code itself wants before its first recap (contract 6.3)."""
NATIVE_TURNS_BETWEEN: Final = 2
"""User turns that Qwen Code itself wants after a recap (contract 6.3)."""

Identity = tuple[int, str, float]


class Focus(StrEnum):
    """What an owner's terminal has shown."""

    UNKNOWN = "unknown"
    REPORTED = "reported"
    """A return brought a native recap: this terminal reports focus."""
    SILENT = "silent"
    """A return that was past every gate brought none: it does not."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A return that should bring a recap. `due` is on the steady clock, None while a turn runs."""

    due: float | None


@dataclass(frozen=True, slots=True)
class NativeRecaps:
    """What is known of one owner. Another owner starts anew."""

    owner: Identity | None = None
    focus: Focus = Focus.UNKNOWN
    judged_span: int = 0
    """The newest absence whose end was looked at."""
    newest: str | None = None
    """uuid of the newest recap that is not ours."""
    past_gates: bool = False
    """Whether the conversation was past Qwen Code's own gates at the last look."""
    wait: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the session shows now: its live terminal, its user, and the newest recap that is not ours (uuid).

    `user_turns` and `turns_since_recap` are those of the active chain.
    """

    owner: Identity
    presence: Presence
    newest: str | None
    user_turns: int
    turns_since_recap: int


def weigh(known: NativeRecaps, seen: Seen, now: Moment) -> NativeRecaps:
    """What is known after a look. To be called whenever the session or its presence changed, and when a wait is due."""
    past_gates = seen.user_turns >= NATIVE_TURNS and seen.turns_since_recap >= NATIVE_TURNS_BETWEEN
    returned = seen.presence.returned
    span = returned.span_id if returned is not None else 0
    if known.owner != seen.owner:  # what happened before it came says nothing about it
        return NativeRecaps(seen.owner, judged_span=span, newest=seen.newest, past_gates=past_gates)
    arrived = seen.newest is not None and seen.newest != known.newest
    came_back = returned is not None and span > known.judged_span
    after = replace(known, newest=seen.newest, judged_span=max(span, known.judged_span), past_gates=past_gates)
    if arrived:
        told = came_back or known.wait is not None  # else it was typed, or comes from a return that nobody saw
        return replace(after, focus=Focus.REPORTED if told else known.focus, wait=None)
    if came_back:  # what the user did since (a prompt, a rewind) came after the focus: the last look counts
        return _waiting(replace(after, wait=Wait(None)), seen, now) if known.past_gates else replace(after, wait=None)
    if known.wait is None:
        return after
    if known.wait.due is None or seen.presence.turn_running or now.steady < known.wait.due:
        return _waiting(after, seen, now)
    return replace(after, wait=None, focus=Focus.SILENT if known.focus is Focus.UNKNOWN else known.focus)


def _waiting(known: NativeRecaps, seen: Seen, now: Moment) -> NativeRecaps:
    """The wait, begun when no turn runs; a turn that begins stops it: Qwen Code shows a recap only when it is idle."""
    if known.wait is None or seen.presence.turn_running:
        return replace(known, wait=Wait(None))
    return known if known.wait.due is not None else replace(known, wait=Wait(now.steady + PATIENCE_SECONDS))


def next_weighing_at(known: NativeRecaps, status: Status, now: Moment) -> float | None:
    """Wall time of the next look, None when only an event can tell more.

    As long as nothing is known, the user's return from an absence is worth a look from time to time; and a return that
    was seen wants an answer.
    """
    looks: list[float] = []
    if known.wait is not None and known.wait.due is not None:
        looks.append(now.wall + max(0.0, known.wait.due - now.steady))
    if known.focus is Focus.UNKNOWN:
        if isinstance(status, Away):
            looks.append(next_look(now.wall, LOOK_EVERY_SECONDS))
        elif isinstance(status, Here) and status.until is not None:
            looks.append(status.until)
    return min(looks, default=None)
