"""Whether a session's user is here, away, or waiting for a turn to end (design 7).

All is folded from samples, and all durations are measured on a clock that neither jumps nor stops: a sign of life is
placed on that clock when it is first seen and stays there, whatever the wall clock does afterwards.

Rules:

* The last sign of life is the newest of what any owner's terminal shows and the last real user record. Evidence that
  vanishes (a closed terminal) or turns back (a rewound conversation) leaves the newest that it ever showed. A session
  that shows nothing counts from when it was first seen.
* Away begins when there was none for `away_seconds`, and is dated back to the last one. A terminal's time moves in
  steps and may be `TERMINAL_STEP_SECONDS` too old, so where it is the newest evidence, away waits so much longer.
* Suspended time counts: who closes the lid is away. Where the wall clock alone jumps, nobody is.
* A time in the future counts as now, once: only a change of it is another sign of life.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

TERMINAL_STEP_SECONDS: Final = 8.0
"""Linux moves a terminal's times in steps of so much; the input may be as much newer than shown (design 7)."""
JUMP_SECONDS: Final = 2.0
"""Wall and steady clock that drift apart by more than this between two samples: the wall clock was set."""
WHOLE_SECOND: Final = 1.0
"""Terminals' times are cut to whole seconds: a return may look so much older than it is."""
SUSPEND_SECONDS: Final = 5.0
"""A pause of the awake clock that counts as a suspend."""
WAKE_GRACE_SECONDS: Final = 15.0
"""After a suspend nothing is begun for so long: the network comes back, and perhaps the user."""


class Source(IntEnum):
    """Where a sign of life comes from; of equally new ones the smaller ranks first."""

    TERMINAL = 1
    RECORD = 2
    FIRST_SEEN = 3


@dataclass(frozen=True, slots=True)
class Moment:
    """All clocks, read together, in seconds.

    `wall` is since the epoch and may be set. `steady` is never set and goes on while the machine is suspended. `awake`
    is never set and stands still then. The zero points of the last two mean nothing.
    """

    wall: float
    steady: float
    awake: float


@dataclass(frozen=True, slots=True)
class TerminalInput:
    """The input time of an owner's terminal: path of the device, seconds since the epoch."""

    tty: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What is known of a session's user at one moment.

    `turn_running` is the final word on that (`policy.turn_over`): of a dead owner no turn runs. `user_record_at` is the
    time of the last real user record, None without one.
    """

    now: Moment
    user_record_at: float | None = None
    inputs: tuple[TerminalInput, ...] = ()
    turn_running: bool = False


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign of life: its source, the terminal's path if it is one, the time as found, and on the steady clock."""

    source: Source
    name: str
    raw: float
    steady: float

    @property
    def latest(self) -> float:
        """The newest that it can have been, on the steady clock."""
        return self.steady + (TERMINAL_STEP_SECONDS if self.source is Source.TERMINAL else 0.0)


@dataclass(frozen=True, slots=True)
class Return:
    """The user came back from the absence `span_id`, whose last sign of life before was at `since` (wall time).

    `steady` is when it was noticed. `prompted`: a prompt has been typed since, so a recap comes too late.
    """

    span_id: int
    since: float
    steady: float
    prompted: bool = False


@dataclass(frozen=True, slots=True)
class Presence:
    """All that was learnt of a session's user.

    `span_id` is the number of the present absence, away or not: it grows with each newer sign of life.
    """

    now: Moment | None = None
    """When the last sample was taken."""
    signs: tuple[Sign, ...] = ()
    """Newest first, at most one a terminal."""
    span_id: int = 0
    turn_running: bool = False
    returned: Return | None = None
    woke: float | None = None
    """When the end of a suspend was last noticed, on the steady clock."""


@dataclass(frozen=True, slots=True)
class Here:
    """The user is here, or was lately. `until`: wall time at which away begins without another sign, None before any
    sample. `returned` tells of the last return as long as the user has not left again.
    """

    until: float | None
    returned: Return | None = None


@dataclass(frozen=True, slots=True)
class Working:
    """A turn runs; the clock of the absence goes on."""


@dataclass(frozen=True, slots=True)
class Away:
    """Away since the last sign of life, at wall time `since`. Nothing should be begun before wall time `act_from`."""

    since: float
    span_id: int
    act_from: float


Status = Here | Working | Away


def observe(presence: Presence, sample: Sample, away_seconds: float) -> Presence:
    """The presence after a sample; samples must come in the order of the steady clock."""
    now, before = sample.now, presence.now
    signs = _merged(presence, sample)
    known, newest = presence.signs[:1], signs[0]
    is_newer = bool(known) and newest.steady > known[0].steady
    prompted = _changed(presence.signs, signs, Source.RECORD)
    returned = presence.returned
    if is_newer and _ends_absence(presence, now, newest, away_seconds):
        since = _wall(now, known[0].steady)
        returned = Return(presence.span_id, since, now.steady, prompted)
    elif returned is not None and prompted:
        returned = replace(returned, prompted=True)
    suspended = 0.0 if before is None else (now.steady - before.steady) - (now.awake - before.awake)
    return Presence(
        now=now,
        signs=signs,
        span_id=presence.span_id + (1 if is_newer or not known else 0),
        turn_running=sample.turn_running,
        returned=returned,
        woke=now.steady if suspended > SUSPEND_SECONDS else presence.woke,
    )


def status(presence: Presence, now: Moment, away_seconds: float) -> Status:
    """Where the user is now, as far as the last sample tells."""
    if not presence.signs:
        return Here(None)
    if presence.turn_running:
        return Working()
    due = _due(presence.signs, away_seconds)
    if now.steady < due:
        return Here(_wall(now, due), presence.returned)
    ready = due if presence.woke is None else max(due, presence.woke + WAKE_GRACE_SECONDS)
    return Away(_wall(now, presence.signs[0].steady), presence.span_id, _wall(now, ready))


def next_check_at(presence: Presence, now: Moment, away_seconds: float) -> float | None:
    """Wall time at which a new sample is wanted, None when only an event can change anything.

    A user who is here may be away then. Of one who is away, or whose turn runs, an event will tell (but see
    `next_look`).
    """
    found = status(presence, now, away_seconds)
    if isinstance(found, Here):
        return now.wall if found.until is None else found.until
    return found.act_from if isinstance(found, Away) and found.act_from > now.wall else None


def next_look(now: float, every_seconds: float) -> float:
    """The next time for who waits for input at a terminal, which raises no event: looks fall on common multiples, so
    that many sessions share one wake-up.
    """
    return (math.floor(now / every_seconds) + 1) * every_seconds


@dataclass(frozen=True, slots=True)
class Evidence:
    """A sign of life for `why`: `at` is wall time, and the truth may be up to `newer_seconds` newer."""

    source: Source
    name: str
    at: float
    newer_seconds: float


def evidence(presence: Presence, now: Moment) -> tuple[Evidence, ...]:
    """Every sign of life that is known, the one that decides first."""
    return tuple(
        Evidence(sign.source, sign.name, _wall(now, sign.steady), sign.latest - sign.steady) for sign in presence.signs
    )


def _wall(now: Moment, steady: float) -> float:
    """A steady time as today's wall clock would have shown it."""
    return now.wall - (now.steady - steady)


def _due(signs: tuple[Sign, ...], away_seconds: float) -> float:
    """When away begins, on the steady clock."""
    return max(sign.latest for sign in signs) + away_seconds


def _merged(presence: Presence, sample: Sample) -> tuple[Sign, ...]:
    """The signs after a sample, newest first; never empty. Of those that vanished, only the newest is kept."""
    found: dict[tuple[Source, str], float] = {(Source.TERMINAL, each.tty): each.at for each in sample.inputs}
    if sample.user_record_at is not None:
        found[Source.RECORD, ""] = sample.user_record_at
    first_seen = tuple(sign for sign in presence.signs if sign.source is Source.FIRST_SEEN)
    before = {(sign.source, sign.name): sign for sign in presence.signs if sign not in first_seen}
    signs = [_placed(presence, sample.now, before.get(key), Sign(*key, raw, 0.0)) for key, raw in found.items()]
    vanished = [sign for key, sign in before.items() if key not in found]
    signs += sorted(vanished, key=lambda sign: -sign.steady)[:1]
    if not signs:
        return first_seen or (Sign(Source.FIRST_SEEN, "", sample.now.wall, sample.now.steady),)
    return tuple(sorted(signs, key=lambda sign: (-sign.steady, sign.source)))


def _placed(presence: Presence, now: Moment, before: Sign | None, found: Sign) -> Sign:
    """`found` on the steady clock: where it was when it has not changed, else as old as the wall clock of now says.

    That age is worth nothing when the clock was set since the last sample; then what changed meanwhile counts as now.
    """
    steady = now.steady - max(0.0, now.wall - found.raw)
    if before is None or presence.now is None:
        return replace(found, steady=steady)
    if before.raw == found.raw:
        return before
    # A terminal's time changes by input only; that of the last prompt also when a conversation turns back.
    is_new = found.source is Source.TERMINAL or found.raw > before.raw
    if is_new and _was_set(presence, now):
        steady = now.steady
    return replace(found, steady=max(steady, before.steady))


def _was_set(presence: Presence, now: Moment) -> bool:
    """Whether the wall clock was set since the last sample."""
    before = presence.now
    return before is not None and abs((now.wall - before.wall) - (now.steady - before.steady)) > JUMP_SECONDS


def _ends_absence(presence: Presence, now: Moment, sign: Sign, away_seconds: float) -> bool:
    """Whether a new sign ends an absence that was long enough, for certain.

    Between two samples only the newest sign is seen. So the absence must have been found at a sample, or lie in a
    suspend that came before the sign; and where the clock was set meanwhile, the sign may be as old as the last sample.
    """
    before = presence.now
    if before is None:
        return False
    due = _due(presence.signs, away_seconds) - WHOLE_SECOND
    if (before.steady if _was_set(presence, now) else sign.steady) < due:
        return False
    awake = now.awake - before.awake
    suspended = (now.steady - before.steady) - awake
    return before.steady >= due or (suspended >= away_seconds and sign.steady > before.steady + awake)


def _changed(before: tuple[Sign, ...], after: tuple[Sign, ...], source: Source) -> bool:
    return {s.raw for s in before if s.source is source} != {s.raw for s in after if s.source is source}
