"""When a recap is made: every guard, its place and its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.conversation import Conversation
from watcher.core.decisions import Act, Decision, Skip, WaitUntil
from watcher.core.generation import Kind
from watcher.core.owner import HEADLESS, NOBODY, TUI, Alive, Owner, Ownership, OwnerSource
from watcher.core.presence import Away, Here, Return, Working
from watcher.core.reasons import Reason
from watcher.core.recap_policy import (
    RETURN_LOOK_SECONDS,
    MadeRecap,
    RecapFacts,
    RecapRules,
    Trigger,
    decide_recap,
    decide_recap_on_request,
    explain_recap,
    left_to_qwen,
    turns_since_last,
)

NOW = 1_800_000_000.0
RULES = RecapRules(enabled=True, enabled_by="general.showSessionRecap")
AWAY = Away(NOW - 400.0, 1, NOW - 100.0)
ACT = Act(Kind.RECAP)


def owned(kind: str = TUI, tty: str | None = "/dev/pts/3") -> Ownership:
    """A session with one live owner."""
    owner = Owner(pid=10, kind=kind, session_id="s", alive=Alive.LIVE, source=OwnerSource.REGISTRY, tty=tty)
    return Ownership((owner,))


def talk(turns: int = 3) -> Conversation:
    """A conversation of so many finished turns, the last one 400 s ago."""
    conversation = Conversation()
    for _ in range(turns):
        conversation.turn(NOW - 400.0)
    return conversation


def facts(conversation: Conversation | None = None, **changes: Any) -> RecapFacts:
    """A session that everything allows a recap for, changed."""
    values: dict[str, Any] = {
        "state": (conversation or talk()).state,
        "still_since": NOW - 400.0,
        "status": AWAY,
        "rules": RULES,
        "ownership": owned(),
        "model": "fast",
    }
    return RecapFacts(**(values | changes))


def test_a_user_who_went_away_gets_a_recap() -> None:
    """With a live terminal, a live editor, and when nobody owns the session any more."""
    assert decide_recap(facts(), NOW) == ACT
    assert decide_recap(facts(ownership=owned(HEADLESS, None)), NOW) == ACT
    assert decide_recap(facts(ownership=NOBODY), NOW) == ACT


NEVER: list[tuple[dict[str, Any], Reason]] = [
    ({"unsafe": "a link"}, Reason.UNSAFE_FILE),
    ({"unsupported": "0.15.10"}, Reason.UNSUPPORTED_VERSION),
    ({"rules": replace(RULES, enabled=False)}, Reason.RECAPS_OFF),
    ({"rules": replace(RULES, after_exit=False), "ownership": NOBODY}, Reason.RECAPS_OFF),
    ({"interactive": False}, Reason.NOT_INTERACTIVE),
    ({"model": "", "model_missing": "no fast model and fallback_to_main is off"}, Reason.NO_FAST_MODEL),
]
NOT_NOW: list[tuple[dict[str, Any], Reason, float | None]] = [
    ({"in_flight": True}, Reason.IN_FLIGHT, None),
    ({"moved": False}, Reason.NOTHING_NEW, None),
    ({"state": talk(2).state}, Reason.TOO_FEW_TURNS, None),
    ({"attempted_turn": talk().turns[-1]}, Reason.NOTHING_NEW, None),
    ({"paused": "paused for 2 h"}, Reason.PAUSED, None),
    ({"calls_left": 0}, Reason.BUDGET_EXHAUSTED, None),
    ({"native_recaps": True, "native_look_at": 7.0}, Reason.LEFT_TO_QWEN, 7.0),
    ({"status": Working()}, Reason.WORKING, None),
    ({"status": Here(NOW + 60.0)}, Reason.AWAY_NOT_YET, NOW + 60.0),
    ({"status": Away(NOW - 400.0, 1, NOW + 9.0)}, Reason.AWAY_NOT_YET, NOW + 9.0),
    ({"still_since": NOW - 0.5}, Reason.WORKING, NOW + 1.5),
]


@pytest.mark.parametrize(("changes", "reason"), NEVER)
def test_what_says_no(changes: dict[str, Any], reason: Reason) -> None:
    """Each with its reason; no deadline, so no wake-up."""
    decision = decide_recap(facts(**changes), NOW)
    assert isinstance(decision, Skip)
    assert decision.reason is reason


@pytest.mark.parametrize(("changes", "reason", "due"), NOT_NOW)
def test_what_says_not_yet(changes: dict[str, Any], reason: Reason, due: float | None) -> None:
    """Each with its reason, and the time where time alone can change it."""
    decision = decide_recap(facts(**changes), NOW)
    assert isinstance(decision, WaitUntil)
    assert (decision.reason, decision.at) == (reason, due)


def test_a_guard_decides_before_those_behind_it() -> None:
    """With everything wrong at once, mending one after the other shows the documented order."""
    order: list[tuple[dict[str, Any], Reason]] = [
        ({"unsafe": "a link"}, Reason.UNSAFE_FILE),
        ({"unsupported": "0.15.10"}, Reason.UNSUPPORTED_VERSION),
        ({"rules": replace(RULES, enabled=False)}, Reason.RECAPS_OFF),
        ({"interactive": False}, Reason.NOT_INTERACTIVE),
        ({"in_flight": True}, Reason.IN_FLIGHT),
        ({"moved": False}, Reason.NOTHING_NEW),
        ({"state": talk(2).state}, Reason.TOO_FEW_TURNS),
        ({"attempted_turn": talk().turns[-1]}, Reason.NOTHING_NEW),
        ({"paused": "paused"}, Reason.PAUSED),
        ({"model": ""}, Reason.NO_FAST_MODEL),
        ({"calls_left": 0}, Reason.BUDGET_EXHAUSTED),
        ({"native_recaps": True}, Reason.LEFT_TO_QWEN),
        ({"status": Working()}, Reason.WORKING),
        ({"still_since": NOW - 0.5}, Reason.WORKING),
    ]
    for first in range(len(order)):
        changes: dict[str, Any] = {}
        for wrong, _ in reversed(order[first:]):
            changes |= wrong
        decision = decide_recap(facts(**changes), NOW)
        assert not isinstance(decision, Act)
        assert decision.reason is order[first][1]


def test_every_guard_is_shown_also_behind_the_one_that_decides() -> None:
    """`why` prints the whole table, and names the deciding row."""
    allowed = explain_recap(facts(), NOW)
    assert all(guard.ok for guard in allowed)
    refused = explain_recap(facts(unsafe="a link", model="", model_missing="no key"), NOW)
    assert [guard.name for guard in refused] == [guard.name for guard in allowed]
    assert [(guard.name, guard.detail) for guard in refused if not guard.ok] == [
        ("unsafe_file", "a link"),
        ("no_fast_model", "no key"),
    ]


def test_a_session_that_never_gets_a_recap_never_asks_for_a_wake_up() -> None:
    """With recaps off nothing about them costs one (issue 5)."""
    here = Here(NOW + 60.0)
    for changes, _ in NEVER:
        assert isinstance(decide_recap(facts(**({"status": here} | changes)), NOW), Skip)


# ---- gates


def turns(*, first: int, between: int) -> RecapRules:
    """Rules with these gates."""
    return replace(RULES, min_user_turns=first, min_user_turns_between=between)


def test_a_recap_in_the_file_counts_for_the_gate_between() -> None:
    """One new prompt is too few, none is nothing new, two are enough."""
    conversation = talk()
    conversation.native_recap(NOW - 390.0)
    expected: list[Reason | None] = [Reason.NOTHING_NEW, Reason.TOO_FEW_TURNS, None]
    for reason in expected:
        decision = decide_recap(facts(conversation), NOW)
        assert (decision.reason if not isinstance(decision, Act) else None) is reason
        conversation.turn(NOW - 380.0)


def test_our_own_recap_counts_also_where_the_chain_does_not_show_it() -> None:
    """A live terminal chains past our record, and a kept text is not in the file at all."""
    conversation = talk()
    made = MadeRecap(conversation.turns[-1], conversation.state.user_turns)
    conversation.our_recap(NOW - 390.0)
    assert turns_since_last(facts(conversation, made=made)) == 0
    conversation.turn(NOW - 380.0)
    assert conversation.state.turns_since_recap == 4
    assert turns_since_last(facts(conversation, made=made)) == 1
    assert isinstance(decide_recap(facts(conversation, made=made), NOW), WaitUntil)
    conversation.turn(NOW - 370.0)
    assert decide_recap(facts(conversation, made=made), NOW) == ACT


def test_a_recap_of_turns_that_were_rewound_away_does_not_count() -> None:
    """It tells of another conversation; the attempt of the same prompt still does."""
    conversation = talk(6)
    made = MadeRecap(conversation.turns[-1], 6)
    conversation.rewind(NOW - 390.0, conversation.turns[3])
    conversation.turn(NOW - 380.0)
    assert conversation.state.user_turns == 4
    assert decide_recap(facts(conversation, made=made), NOW) == ACT
    assert decide_recap(facts(conversation, made=made, attempted_turn=conversation.turns[-1]), NOW) != ACT


def test_only_turns_on_the_active_chain_count() -> None:
    """Rewound ones are gone (design 11)."""
    conversation = talk(4)
    conversation.rewind(NOW - 390.0, conversation.turns[1])
    conversation.turn(NOW - 380.0)
    decision = decide_recap(facts(conversation), NOW)
    assert decision == WaitUntil(None, Reason.TOO_FEW_TURNS, "2 of 3 prompts")


def test_a_failed_recap_is_tried_again_only_after_a_new_prompt() -> None:
    """One attempt a state of the conversation, whatever became of it."""
    conversation = talk()
    tried = conversation.turns[-1]
    assert decide_recap(facts(conversation, attempted_turn=tried), NOW) != ACT
    conversation.turn(NOW - 380.0)
    assert decide_recap(facts(conversation, attempted_turn=tried), NOW) == ACT


def test_five_flips_in_ten_minutes_give_one_recap() -> None:
    """Coming and going without a prompt is nothing new (report J8)."""
    conversation = talk()
    made: MadeRecap | None = None
    recaps = 0
    for span in range(1, 6):
        changes = {"status": Away(NOW - 400.0, span, NOW), "made": made}
        if decide_recap(facts(conversation, **changes), NOW) == ACT:
            recaps += 1
            made = MadeRecap(conversation.turns[-1], conversation.state.user_turns)
    assert recaps == 1


def test_gates_can_be_set() -> None:
    """One prompt is enough for who says so."""
    assert decide_recap(facts(talk(1), rules=turns(first=1, between=1)), NOW) == ACT


# ---- old sessions


def test_sessions_that_ended_long_ago_are_left_alone_but_not_those_still_open() -> None:
    """No storm at the first start, or after a month without the watcher; a lid closed for three days is no reason."""
    later = NOW + 2 * 86_400.0
    assert decide_recap(facts(ownership=NOBODY), later) == WaitUntil(
        None, Reason.NOTHING_NEW, "it ended more than a day ago"
    )
    assert decide_recap(facts(), later) == ACT
    assert isinstance(decide_recap(facts(moved=False), NOW), WaitUntil)


# ---- who does it


def test_it_is_left_to_a_terminal_that_does_it_itself_as_long_as_that_lives() -> None:
    """Not when the terminal has shown that it cannot, has ended, or is an editor."""
    assert left_to_qwen(facts(native_recaps=True))
    assert decide_recap(facts(native_recaps=True, no_focus_reports=True), NOW) == ACT
    assert decide_recap(facts(native_recaps=True, ownership=NOBODY), NOW) == ACT
    assert decide_recap(facts(native_recaps=True, ownership=owned(HEADLESS, None)), NOW) == ACT


def test_why_says_that_the_terminal_sends_no_focus_reports() -> None:
    """Design 7."""
    guards = explain_recap(facts(native_recaps=True, no_focus_reports=True), NOW)
    (guard,) = [guard for guard in guards if guard.name == "left_to_qwen"]
    assert guard.ok
    assert "no focus reports" in guard.detail


def test_the_turn_of_a_live_owner_is_waited_for_and_that_of_a_dead_one_is_over() -> None:
    """A prompt cancelled before any answer stays unfinished in the file for ever (contract 2.6)."""
    conversation = talk()
    conversation.turn(NOW - 390.0, answered=False)
    gone = Ownership(tuple(replace(owner, alive=Alive.GONE) for owner in owned().owners))
    assert decide_recap(facts(conversation), NOW) == WaitUntil(None, Reason.WORKING, "a turn is running")
    assert decide_recap(facts(conversation, ownership=gone), NOW) == ACT


def test_a_change_in_the_future_is_not_waited_for() -> None:
    """The clock was set back by a year; nobody waits so long."""
    assert decide_recap(facts(still_since=NOW + 3e7), NOW) == ACT


# ---- return

RETURN = replace(RULES, trigger=Trigger.RETURN)


def test_with_trigger_return_an_absence_is_watched_until_the_user_is_back() -> None:
    """Every few seconds, together with all other sessions; only where a terminal can tell."""
    decision = decide_recap(facts(rules=RETURN), NOW)
    assert isinstance(decision, WaitUntil)
    assert decision.reason is Reason.AWAY_NOT_YET
    assert decision.at is not None
    assert 0.0 < decision.at - NOW <= RETURN_LOOK_SECONDS
    editor = decide_recap(facts(rules=RETURN, ownership=owned(HEADLESS, None)), NOW)
    assert isinstance(editor, WaitUntil)
    assert editor.at is None


def test_with_trigger_return_the_first_sign_of_life_makes_the_recap() -> None:
    """Unless the user has typed on already; without an absence there is none."""
    back = Here(NOW + 300.0, Return(1, NOW - 400.0, 0.0))
    typed = Here(NOW + 300.0, Return(1, NOW - 400.0, 0.0, prompted=True))
    assert decide_recap(facts(rules=RETURN, status=back), NOW) == ACT
    for status in (typed, Here(NOW + 300.0)):
        decision = decide_recap(facts(rules=RETURN, status=status), NOW)
        assert isinstance(decision, WaitUntil)
        assert decision.at == NOW + 300.0
    assert decide_recap(facts(status=back), NOW) != ACT


def test_with_trigger_return_and_nobody_there_away_is_enough() -> None:
    """Once the owner is gone it acts as away (design 11)."""
    assert decide_recap(facts(rules=RETURN, ownership=NOBODY), NOW) == ACT


# ---- on request


def asked(*, write: bool = False, conversation: Conversation | None = None, **changes: Any) -> Decision:
    """The decision for `recap S`."""
    return decide_recap_on_request(facts(conversation, **changes), NOW, write=write)


def test_on_request_neither_switch_nor_gate_nor_pause_counts() -> None:
    """The user asks (design 4)."""
    off: dict[str, Any] = {"rules": replace(RULES, enabled=False), "paused": "paused", "status": Here(NOW + 60.0)}
    assert asked(conversation=talk(1), native_recaps=True, moved=False, attempted_turn="r1", **off) == ACT


def test_on_request_the_model_the_budget_and_the_file_still_count() -> None:
    """Nothing can be made of an empty conversation; a running turn and an old version only matter for writing."""
    assert asked(unsafe="a link") == Skip(Reason.UNSAFE_FILE, "a link")
    assert asked(model="", model_missing="no key") == Skip(Reason.NO_FAST_MODEL, "no key")
    assert asked(calls_left=0) == Skip(Reason.BUDGET_EXHAUSTED, "0 calls left today")
    assert asked(conversation=Conversation()) == Skip(Reason.EMPTY_HISTORY, "no prompt yet")
    busy = talk()
    busy.turn(NOW, answered=False)
    assert asked(conversation=busy, unsupported="0.15.10") == ACT
    assert asked(conversation=busy, write=True) == WaitUntil(None, Reason.WORKING, "a turn is running")
    assert asked(unsupported="0.15.10", write=True) == Skip(Reason.UNSUPPORTED_VERSION, "0.15.10")
