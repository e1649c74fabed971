"""What to do about a session's title, decided from values.

Each decision is an ordered table of guards (design 6). The first guard that does not pass decides; `explain_*` shows
the whole table, so logs, `--dry-run`, `sessions` and `why` give the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from watcher.core.decisions import Decision, Guard, Skip, WaitUntil
from watcher.core.events import TitleSource
from watcher.core.generation import Kind
from watcher.core.guard_rows import Row, budget_detail, decided, guards
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.title_runs import TitleRun

NATIVE_PATIENCE_RECORDS: Final = 3
"""So many untitled assistant records show that a live Qwen Code will not title the session (its own limit, contract
6.1).
"""
ORPHAN_TURN_SECONDS: Final = 600.0
"""A turn that nobody is known to run counts as over when the file has been still for so long (contract 2.6)."""
FRESH_SECONDS: Final = 24 * 3600.0
"""Automatic titles are for sessions whose newest record is at most this old (design 6)."""
WINDOW_BYTES: Final = 65_536
"""What Qwen Code's picker reads at each end of a file (contract 3.1)."""


@dataclass(frozen=True, slots=True)
class TitleRules:
    """The part of the configuration that titling follows."""

    settle_seconds: float = 8.0
    max_attempts: int = 3
    all_sessions: bool = False


@dataclass(frozen=True, slots=True)
class TitleFacts:
    """All that the title decision looks at. Strings that explain are empty when there is nothing to explain."""

    state: SessionState
    still_since: float
    """When the file was last seen to change, seconds since the epoch."""
    unsafe: str = ""
    unsupported: str = ""
    moved: bool = True
    owned: bool = False
    owner_known: bool = False
    """An owner, or a sidecar that one left, has been seen for this session."""
    interactive: bool = True
    owner_titles: bool = False
    """The live owner titles sessions itself: terminal or ACP, a fast model, not disabled."""
    attempts: int = 0
    attempted_turn: str = ""
    dismissed: bool = False
    in_flight: bool = False
    disabled_by: str = ""
    paused: str = ""
    model: str = ""
    model_missing: str = ""
    calls_left: int = 1
    rules: TitleRules = TitleRules()


def _row(reason: Reason, detail: str, *, ok: bool, stop: Decision | None = None) -> Row:
    return Row(Guard(reason.value, ok, detail), None if ok else (stop or Skip(reason, detail)))


def title_standing(state: SessionState, *, dismissed: bool = False) -> tuple[Reason, str] | None:
    """Why no automatic title may be written to what the file holds, or None.

    Any title record anywhere in the file stops automatic titling; an empty one says that the user wants none (design
    6).
    """
    run = state.title
    if any(each.is_manual for each in state.titles):
        named = next(each for each in reversed(state.titles) if each.is_manual)
        return Reason.MANUAL_TITLE, "the user named it" if named.title else "the user wants no title"
    if run is not None:
        return Reason.TITLE_PRESENT, "an automatic title stands"
    if dismissed:
        return Reason.MANUAL_TITLE, "an automatic title was undone here"
    return None


def turn_over(
    state: SessionState, *, owned: bool, owner_known: bool, still_since: float, now: float
) -> Decision | None:
    """None when no turn is running, else the wait. A dead owner's turn is over; an unknown owner's ends by
    stillness.
    """
    if not state.running:
        return None
    if owned:
        return WaitUntil(None, Reason.WORKING, "a turn is running")
    # A time in the future (the clock was set back) counts as long ago, or the wait would never end.
    if owner_known or not still_since <= now < still_since + ORPHAN_TURN_SECONDS:
        return None
    return WaitUntil(still_since + ORPHAN_TURN_SECONDS, Reason.WORKING, "a turn seems to run and its owner is unknown")


def _title_rows(facts: TitleFacts, now: float) -> Iterator[Row]:
    state, rules = facts.state, facts.rules
    yield _row(Reason.UNSAFE_FILE, facts.unsafe, ok=not facts.unsafe)
    yield _row(Reason.UNSUPPORTED_VERSION, facts.unsupported, ok=not facts.unsupported)
    standing = title_standing(state, dismissed=facts.dismissed)
    yield (
        _row(Reason.TITLE_PRESENT, "no title record in the file", ok=True)
        if standing is None
        else _row(standing[0], standing[1], ok=False)
    )
    yield _row(
        Reason.IN_FLIGHT,
        "a model call is running" if facts.in_flight else "",
        ok=not facts.in_flight,
        stop=WaitUntil(None, Reason.IN_FLIGHT, "a model call is running"),
    )
    yield _row(
        Reason.ATTEMPTS_EXHAUSTED,
        f"{facts.attempts} of {rules.max_attempts} attempts used",
        ok=facts.attempts < rules.max_attempts,
    )
    yield _row(
        Reason.NOT_INTERACTIVE,
        "a terminal or editor session" if facts.interactive else "no sign of a terminal or editor session",
        ok=facts.interactive or rules.all_sessions,
    )
    yield _row(Reason.DISABLED, facts.disabled_by, ok=not facts.disabled_by)
    yield _row(Reason.PAUSED, facts.paused, ok=not facts.paused, stop=WaitUntil(None, Reason.PAUSED, facts.paused))
    yield _row(Reason.NO_FAST_MODEL, facts.model or facts.model_missing, ok=bool(facts.model))
    yield _row(
        Reason.BUDGET_EXHAUSTED,
        budget_detail(facts.calls_left),
        ok=facts.calls_left > 0,
        stop=WaitUntil(None, Reason.BUDGET_EXHAUSTED, "no calls left today"),
    )
    yield _native_row(facts)
    yield from _trigger_rows(facts, now)
    yield _working_row(facts, now)


def _native_row(facts: TitleFacts) -> Row:
    untitled = facts.state.assistant_records
    waits = facts.owner_titles and facts.owned and untitled < NATIVE_PATIENCE_RECORDS
    detail = (
        f"Qwen Code titles it itself; {untitled} of {NATIVE_PATIENCE_RECORDS} answers stand untitled" if waits else ""
    )
    return _row(Reason.LEFT_TO_QWEN, detail, ok=not waits, stop=WaitUntil(None, Reason.LEFT_TO_QWEN, detail))


def _trigger_rows(facts: TitleFacts, now: float) -> Iterator[Row]:
    state = facts.state
    yield _row(
        Reason.EMPTY_HISTORY,
        "" if state.shown_turn else "no user turn with a visible answer yet",
        ok=bool(state.shown_turn),
        stop=WaitUntil(None, Reason.EMPTY_HISTORY, "no user turn with a visible answer yet"),
    )
    age = now - (state.last_record_at if state.last_record_at is not None else now)
    if not facts.moved or age > FRESH_SECONDS:
        yield _row(Reason.NOTHING_NEW, "nothing was written lately; `backfill` titles older sessions", ok=False)
    else:
        tried = bool(state.shown_turn) and state.shown_turn == facts.attempted_turn
        detail = "this turn had its attempt; the next turn gets another" if tried else ""
        yield _row(Reason.NOTHING_NEW, detail, ok=not tried, stop=WaitUntil(None, Reason.NOTHING_NEW, detail))


def _working_row(facts: TitleFacts, now: float) -> Row:
    running = turn_over(
        facts.state,
        owned=facts.owned,
        owner_known=facts.owner_known,
        still_since=facts.still_since,
        now=now,
    )
    if running is not None:
        return _row(Reason.WORKING, "a turn is running", ok=False, stop=running)
    due = facts.still_since + facts.rules.settle_seconds
    still = not facts.still_since <= now < due
    detail = "" if still else f"still for less than {facts.rules.settle_seconds:g} s"
    return _row(Reason.WORKING, detail, ok=still, stop=WaitUntil(due, Reason.WORKING, detail))


def decide_title(facts: TitleFacts, now: float) -> Decision:
    """Whether to ask for an automatic title now (design 6)."""
    return decided(_title_rows(facts, now), Kind.TITLE)


def explain_title(facts: TitleFacts, now: float) -> tuple[Guard, ...]:
    """Every guard of `decide_title` in its order, also those behind the deciding one."""
    return guards(_title_rows(facts, now))


def decide_title_on_request(facts: TitleFacts, now: float) -> Decision:
    """`title S --auto`: the user asks, so switches, attempts and a standing title do not count (design 4)."""
    return decided(_request_rows(facts, now), Kind.TITLE)


def _request_rows(facts: TitleFacts, now: float) -> Iterator[Row]:
    yield _row(Reason.UNSAFE_FILE, facts.unsafe, ok=not facts.unsafe)
    yield _row(Reason.UNSUPPORTED_VERSION, facts.unsupported, ok=not facts.unsupported)
    yield _row(Reason.NO_FAST_MODEL, facts.model_missing, ok=bool(facts.model))
    yield _row(Reason.BUDGET_EXHAUSTED, "no calls left today", ok=facts.calls_left > 0)
    running = turn_over(
        facts.state, owned=facts.owned, owner_known=facts.owner_known, still_since=facts.still_since, now=now
    )
    yield _row(Reason.WORKING, "a turn is running", ok=running is None, stop=running)


def decide_backfill(facts: TitleFacts, now: float) -> Decision:
    """An old untitled session, asked for by `backfill`: every switch counts, age and movement do not."""
    rows = (row for row in _title_rows(facts, now) if row.guard.name != Reason.NOTHING_NEW)
    return decided(rows, Kind.TITLE)


@dataclass(frozen=True, slots=True)
class OurTitle:
    """A title that we wrote to this session, from the journal: its records and where the first one began."""

    title: str
    source: TitleSource
    uuids: frozenset[str]
    offset: int = 0


def heal_wanted(state: SessionState, ours: tuple[OurTitle, ...]) -> TitleRun | None:
    """The manual title to put last again, or None (design promise 2).

    A running CLI can bring back *our* old title from its memory. So: the last title is byte-identical to an automatic
    one of ours, is not by a record of ours itself, and a manual title stands after our last record of it. What any
    other writer put there stays, and so does what we put over a manual title because the user asked for it.
    """
    last = state.title
    if last is None or last.source is not TitleSource.AUTO:
        return None
    same = [each for each in ours if each.source is TitleSource.AUTO and each.title == last.title]
    uuids = {uuid for each in same for uuid in each.uuids}
    if not same:
        return None
    by_us = [run.last_offset for run in state.titles if run.title == last.title and uuids & set(run.uuids)]
    # A run that is long forgotten is known by where it began.
    since = by_us[-1] if by_us else max(each.offset for each in same)
    manual = [run for run in state.titles if run.is_manual and run.last_offset > since]
    return manual[-1] if manual else None


def reanchor_wanted(state: SessionState, size: int, ours: tuple[OurTitle, ...]) -> TitleRun | None:
    """Our title, when it has left both windows that the picker reads and must be written again (design 6), or None.

    Never somebody else's: the last title's record must be one that we wrote. Since a title leaves the tail window only
    when 64 KiB have been written behind it, this happens at most once per 64 KiB.
    """
    last = state.title
    if last is None or not last.title:
        return None
    if not any(each.title == last.title and last.last_uuid in each.uuids for each in ours):
        return None
    in_tail = size - last.last_offset <= WINDOW_BYTES
    in_head = last.first_end <= WINDOW_BYTES
    return None if in_tail or in_head else last
