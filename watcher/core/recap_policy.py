"""When to make a recap, decided from values (design 7).

As in `core.policy`, a decision is an ordered table of guards, and the first that does not let pass decides. The order:
what can never change here, what the user decided, what the conversation holds, what it would cost, and last what only
time tells, so that a session that gets no recap anyway never asks for a wake-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from watcher.core.decisions import Decision, Guard, WaitUntil
from watcher.core.generation import Kind
from watcher.core.guard_rows import Row, budget_detail, decided, guards, skip_row, wait_row
from watcher.core.owner import NOBODY, TUI, Ownership
from watcher.core.policy import FRESH_SECONDS, turn_over
from watcher.core.presence import Away, Here, Status, Working, next_look
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.write_rules import RECAP_STILL_SECONDS

RETURN_LOOK_SECONDS: Final = 5.0
"""How often a terminal is looked at while a recap waits for the user's return, which raises no event."""
_TWO_MINUTES: Final = 120.0


class Trigger(StrEnum):
    """When a recap is made (design 5)."""

    AWAY = "away"
    RETURN = "return"


@dataclass(frozen=True, slots=True)
class RecapRules:
    """The part of the configuration that recaps follow. `enabled_by` says in words where `enabled` comes from."""

    enabled: bool
    enabled_by: str = ""
    trigger: Trigger = Trigger.AWAY
    away_seconds: float = 300.0
    after_exit: bool = True
    min_user_turns: int = 3
    min_user_turns_between: int = 2


@dataclass(frozen=True, slots=True)
class MadeRecap:
    """Our last recap of a session, delivered or not: the newest prompt it knew, and the user turns it had before it."""

    turn: str
    user_turns: int


@dataclass(frozen=True, slots=True)
class RecapFacts:
    """All that the recap decision looks at. Strings that explain are empty when there is nothing to explain."""

    state: SessionState
    still_since: float
    """When the file was last seen to change, seconds since the epoch."""
    status: Status
    rules: RecapRules
    ownership: Ownership = NOBODY
    unsafe: str = ""
    unsupported: str = ""
    moved: bool = True
    """Something was appended since the watcher first saw the file."""
    interactive: bool = True
    """A terminal or editor session (design 11)."""
    in_flight: bool = False
    attempted_turn: str = ""
    """The newest prompt at the last attempt, whatever became of it."""
    made: MadeRecap | None = None
    paused: str = ""
    """Paused by the user, or stopped by the brake."""
    model: str = ""
    """The model that would be asked, the main one included where the rules fall back to it."""
    model_missing: str = ""
    calls_left: int = 1
    native_recaps: bool = False
    """The live terminal's Qwen Code shows recaps itself."""
    no_focus_reports: bool = False
    """A return has shown that this owner's terminal sends none, so that its Qwen Code shows no recap after all."""
    native_look_at: float | None = None
    """When to look again whether it does (`native_recaps.next_weighing_at`)."""


def decide_recap(facts: RecapFacts, now: float) -> Decision:
    """Whether to ask for a recap now (design 7). The text is kept first and written as `core.recap_delivery` says."""
    return decided(_recap_rows(facts, now), Kind.RECAP)


def explain_recap(facts: RecapFacts, now: float) -> tuple[Guard, ...]:
    """Every guard of `decide_recap` in its order, also those behind the deciding one."""
    return guards(_recap_rows(facts, now))


def decide_recap_on_request(facts: RecapFacts, now: float, *, write: bool) -> Decision:
    """`recap S [--write]`: the user asks, so switches, gates and pause do not count; a running turn does (design 4)."""
    return decided(_request_rows(facts, now, write=write), Kind.RECAP)


def left_to_qwen(facts: RecapFacts) -> bool:
    """Whether the live terminal's own recaps are to be relied on (design 7)."""
    return facts.native_recaps and not facts.no_focus_reports and facts.ownership.is_tui


def turns_since_last(facts: RecapFacts) -> int:
    """Real user turns on the active chain since its last recap, ours included even where no record shows it.

    A live Qwen Code chains past our record, so the chain alone does not know of it. A recap of turns that were rewound
    away belongs to another conversation and does not count.
    """
    state, made = facts.state, facts.made
    if made is None:
        return state.turns_since_recap
    ours = max(0, state.user_turns - made.user_turns)
    rewound = made.turn != state.turn and state.chain.contains_on_active(made.turn) is False
    return state.turns_since_recap if rewound else min(state.turns_since_recap, ours)


def _recap_rows(facts: RecapFacts, now: float) -> Iterator[Row]:
    rules = facts.rules
    yield skip_row(Reason.UNSAFE_FILE, facts.unsafe, ok=not facts.unsafe)
    yield skip_row(Reason.UNSUPPORTED_VERSION, facts.unsupported, ok=not facts.unsupported)
    yield skip_row(Reason.RECAPS_OFF, rules.enabled_by, ok=rules.enabled)
    ended = not facts.ownership.owned and not rules.after_exit
    yield skip_row(
        Reason.RECAPS_OFF, 'its Qwen Code has ended and after_exit is "never"' if ended else "", ok=not ended
    )
    kind = "a terminal or editor session" if facts.interactive else "no sign of a terminal or editor session"
    yield skip_row(Reason.NOT_INTERACTIVE, kind, ok=facts.interactive)
    yield wait_row(Reason.IN_FLIGHT, "a model call is running" if facts.in_flight else "", ok=not facts.in_flight)
    old = _too_old(facts, now)
    yield wait_row(Reason.NOTHING_NEW, old, ok=not old)
    yield from _turn_rows(facts)
    yield wait_row(Reason.PAUSED, facts.paused, ok=not facts.paused)
    yield skip_row(Reason.NO_FAST_MODEL, facts.model or facts.model_missing, ok=bool(facts.model))
    yield wait_row(Reason.BUDGET_EXHAUSTED, budget_detail(facts.calls_left), ok=facts.calls_left > 0)
    yield _native_row(facts)
    yield running_row(facts.state, facts.ownership, facts.still_since, now)
    yield _presence_row(facts, now)
    yield still_row(facts.still_since, now)


def _too_old(facts: RecapFacts, now: float) -> str:
    """Why a session is left alone that was there before us, or came while we were not there; as for titles, design 6.

    A live owner makes it young: its user has left a terminal open, or a lid closed.
    """
    if not facts.moved:
        return "nothing was written since the watcher first saw it"
    last = facts.state.last_record_at
    if last is not None and now - last > FRESH_SECONDS and not facts.ownership.owned:
        return "it ended more than a day ago"
    return ""


def _turn_rows(facts: RecapFacts) -> Iterator[Row]:
    state, rules = facts.state, facts.rules
    turns = f"{state.user_turns} of {rules.min_user_turns} prompts"
    yield wait_row(Reason.TOO_FEW_TURNS, turns, ok=state.user_turns >= rules.min_user_turns)
    if state.turns_since_recap == state.user_turns and facts.made is None:
        yield skip_row(Reason.NOTHING_NEW, "no recap yet", ok=True)
    else:
        since = turns_since_last(facts)
        reason = Reason.TOO_FEW_TURNS if since else Reason.NOTHING_NEW
        detail = f"{since} of {rules.min_user_turns_between} prompts since the last recap"
        yield wait_row(reason, detail, ok=since >= rules.min_user_turns_between)
    tried = bool(state.turn) and facts.attempted_turn == state.turn
    detail = "this turn had its attempt; the next prompt allows another" if tried else ""
    yield wait_row(Reason.NOTHING_NEW, detail, ok=not tried)


def _native_row(facts: RecapFacts) -> Row:
    if left_to_qwen(facts):
        detail = "this terminal's Qwen Code shows recaps itself when focus returns"
        return wait_row(Reason.LEFT_TO_QWEN, detail, ok=False, at=facts.native_look_at)
    silent = facts.native_recaps and facts.ownership.is_tui
    detail = "a return without a recap has shown that this terminal sends no focus reports" if silent else ""
    return skip_row(Reason.LEFT_TO_QWEN, detail, ok=True)


def running_row(state: SessionState, ownership: Ownership, still_since: float, now: float) -> Row:
    """Whether a turn runs (contract 2.6)."""
    running = turn_over(
        state, owned=ownership.owned, owner_known=ownership.ever_known, still_since=still_since, now=now
    )
    detail = running.detail if isinstance(running, WaitUntil) else ""
    return Row(Guard(Reason.WORKING.value, running is None, detail), running)


def _presence_row(facts: RecapFacts, now: float) -> Row:
    status, rules = facts.status, facts.rules
    waits_for_return = rules.trigger is Trigger.RETURN and facts.ownership.owned
    match status:
        case Working():
            return wait_row(Reason.WORKING, "a turn is running", ok=False)
        case Away() if waits_for_return:
            # Only a terminal tells of a return; of an editor, the next prompt is the first sign, and comes too late.
            looks = any(owner.kind == TUI and owner.tty is not None for owner in facts.ownership.live)
            at = next_look(now, RETURN_LOOK_SECONDS) if looks else None
            detail = f"away for more than {_span(rules.away_seconds)}, waits for the return"  # the same at every look
            return wait_row(Reason.AWAY_NOT_YET, detail, ok=False, at=at)
        case Away():
            detail = f"away for {_span(now - status.since)}"
            if now < status.act_from:
                return wait_row(
                    Reason.AWAY_NOT_YET, f"{detail}, the machine has just woken", ok=False, at=status.act_from
                )
            return skip_row(Reason.AWAY_NOT_YET, detail, ok=True)
        case Here(until, returned) if waits_for_return:
            came = returned is not None and not returned.prompted
            detail = "back from an absence" if came else f"the user was not away for {_span(rules.away_seconds)}"
            return wait_row(Reason.AWAY_NOT_YET, detail, ok=came, at=until)
        case Here(until):
            detail = f"the user was here less than {_span(rules.away_seconds)} ago"
            return wait_row(Reason.AWAY_NOT_YET, detail, ok=False, at=until)


def still_row(still_since: float, now: float) -> Row:
    """Whether the file is still: Qwen Code writes on after the end of a turn (contract 2.6).

    A change in the future was made before the clock was set back, and is no reason to wait until then.
    """
    due = still_since + RECAP_STILL_SECONDS
    still = not still_since <= now < due
    detail = "" if still else f"the file has been still for less than {RECAP_STILL_SECONDS:g} s"
    return wait_row(Reason.WORKING, detail, ok=still, at=due)


def _request_rows(facts: RecapFacts, now: float, *, write: bool) -> Iterator[Row]:
    yield skip_row(Reason.UNSAFE_FILE, facts.unsafe, ok=not facts.unsafe)
    if write:
        yield skip_row(Reason.UNSUPPORTED_VERSION, facts.unsupported, ok=not facts.unsupported)
    yield skip_row(Reason.EMPTY_HISTORY, "no prompt yet", ok=facts.state.user_turns > 0)
    yield skip_row(Reason.NO_FAST_MODEL, facts.model or facts.model_missing, ok=bool(facts.model))
    yield skip_row(Reason.BUDGET_EXHAUSTED, budget_detail(facts.calls_left), ok=facts.calls_left > 0)
    if write:
        yield running_row(facts.state, facts.ownership, facts.still_since, now)


def _span(seconds: float) -> str:
    """A duration for people; fractions of a minute only below two."""
    seconds = max(0.0, seconds)
    return f"{seconds:.0f} s" if seconds < _TWO_MINUTES else f"{seconds / 60:.0f} min"
