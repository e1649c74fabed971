"""The title decision as a table: which guard decides, in which order, and what would change it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watcher.core import policy
from watcher.core.decisions import Act, Decision, Skip, WaitUntil
from watcher.core.events import AssistantSaid, SnapshotTaken, TitleSet, TitleSource, UserSaid
from watcher.core.generation import Kind
from watcher.core.policy import (
    OurTitle,
    TitleFacts,
    TitleRules,
    decide_backfill,
    decide_title,
    decide_title_on_request,
    explain_title,
    heal_wanted,
    reanchor_wanted,
    turn_over,
)
from watcher.core.reasons import Reason
from watcher.core.session import SessionState, fold
from watcher.qwen import contract

NOW = 1_800_000_000.0
GUARD_ORDER = (
    "unsafe_file",
    "unsupported_version",
    "title_present",
    "in_flight",
    "attempts_exhausted",
    "not_interactive",
    "disabled",
    "paused",
    "no_fast_model",
    "budget_exhausted",
    "left_to_qwen",
    "empty_history",
    "nothing_new",
    "working",
)


class Story:
    """Builds a state event by event, each chained to the one before."""

    def __init__(self) -> None:
        self.state = SessionState()
        self._count = 0
        self._offset = 0

    def add(self, kind: type, *, size: int = 100, **fields: object) -> Story:
        self._count += 1
        event = kind(
            uuid=f"u{self._count}",
            parent=self.state.leaf,
            session_id="s",
            at=NOW - 60,
            cwd="/p",
            version="0.24.4",
            offset=self._offset,
            end=self._offset + size,
            **fields,
        )
        self._offset += size
        self.state = fold(self.state, event)
        return self

    def turn(self, *, visible: bool = True, calls: tuple[str, ...] = ()) -> Story:
        return self.add(UserSaid).add(SnapshotTaken).add(AssistantSaid, visible=visible, calls=calls)

    def title(self, text: str, source: TitleSource | None) -> Story:
        return self.add(TitleSet, title=text, source=source)

    @property
    def size(self) -> int:
        return self._offset


def facts(state: SessionState | None = None, **changes: object) -> TitleFacts:
    base = TitleFacts(state=state or Story().turn().state, still_since=NOW - 30, model="m", calls_left=9)
    return replace(base, **changes)  # type: ignore[arg-type]


AUTO, MANUAL = TitleSource.AUTO, TitleSource.MANUAL


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (facts(), Act(Kind.TITLE)),
        (facts(unsafe="a FIFO"), Skip(Reason.UNSAFE_FILE, "a FIFO")),
        (facts(unsupported="0.15.10"), Skip(Reason.UNSUPPORTED_VERSION, "0.15.10")),
        (facts(Story().turn().title("x", AUTO).state), Reason.TITLE_PRESENT),
        (facts(Story().turn().title("x", MANUAL).state), Reason.MANUAL_TITLE),
        (facts(Story().turn().title("x", None).state), Reason.MANUAL_TITLE),
        (facts(Story().turn().title("", MANUAL).state), Reason.MANUAL_TITLE),
        (facts(Story().turn().title("x", MANUAL).title("y", AUTO).state), Reason.MANUAL_TITLE),
        (facts(dismissed=True), Reason.MANUAL_TITLE),
        (facts(in_flight=True), Reason.IN_FLIGHT),
        (facts(attempts=3), Reason.ATTEMPTS_EXHAUSTED),
        (facts(interactive=False), Reason.NOT_INTERACTIVE),
        (facts(interactive=False, rules=TitleRules(all_sessions=True)), Act(Kind.TITLE)),
        (facts(disabled_by="settings env"), Skip(Reason.DISABLED, "settings env")),
        (facts(paused="until 12:00"), WaitUntil(None, Reason.PAUSED, "until 12:00")),
        (facts(model="", model_missing="no fastModel is set"), Skip(Reason.NO_FAST_MODEL, "no fastModel is set")),
        (facts(calls_left=0), Reason.BUDGET_EXHAUSTED),
        (facts(owner_titles=True, owned=True), Reason.LEFT_TO_QWEN),
        (facts(owner_titles=True, owned=False), Act(Kind.TITLE)),
        (facts(Story().turn().turn().turn().state, owner_titles=True, owned=True), Act(Kind.TITLE)),
        (facts(SessionState()), Reason.EMPTY_HISTORY),
        (facts(Story().turn(visible=False).state), Reason.EMPTY_HISTORY),
        (facts(moved=False), Reason.NOTHING_NEW),
        (facts(replace(Story().turn().state, last_record_at=NOW - 24 * 3600 - 1)), Reason.NOTHING_NEW),
        (facts(replace(Story().turn().state, last_record_at=NOW - 24 * 3600)), Act(Kind.TITLE)),
        (facts(attempted_turn="u1"), Reason.NOTHING_NEW),
        (facts(Story().turn().turn().state, attempted_turn="u1"), Act(Kind.TITLE)),
        (facts(still_since=NOW - 5), WaitUntil(NOW + 3, Reason.WORKING, "still for less than 8 s")),
        (facts(Story().turn(calls=("c",)).state, owned=True), Reason.WORKING),
        (facts(Story().turn(calls=("c",)).state, owned=False, owner_known=True), Act(Kind.TITLE)),
        (facts(Story().turn(calls=("c",)).state, owned=False), Reason.WORKING),
        (facts(Story().turn().add(UserSaid).state, owned=True), Reason.WORKING),
    ],
)
def test_the_first_guard_that_does_not_pass_decides(given: TitleFacts, expected: Decision | Reason) -> None:
    """Each guard alone stops an otherwise ready session, with its own reason."""
    decision = decide_title(given, NOW)
    if isinstance(expected, Reason):
        assert isinstance(decision, Skip | WaitUntil)
        assert decision.reason is expected
    else:
        assert decision == expected


def test_guards_stand_in_the_documented_order() -> None:
    """`why` shows the guards in the order of design 6, whatever decides."""
    assert tuple(guard.name for guard in explain_title(facts(), NOW)) == GUARD_ORDER


def test_every_earlier_guard_outranks_every_later_one() -> None:
    """With several obstacles at once, the one earlier in the order is named."""
    obstacles: list[dict[str, object]] = [
        {"unsafe": "x"},
        {"unsupported": "x"},
        {"state": Story().turn().title("x", AUTO).state},
        {"in_flight": True},
        {"attempts": 3},
        {"interactive": False},
        {"disabled_by": "x"},
        {"paused": "x"},
        {"model": ""},
        {"calls_left": 0},
        {"owner_titles": True, "owned": True},
    ]
    for first in range(len(obstacles)):
        changes = {key: value for each in obstacles[first:] for key, value in each.items()}
        decision = decide_title(replace(facts(), **changes), NOW)  # type: ignore[arg-type]
        assert isinstance(decision, Skip | WaitUntil)
        assert decision.reason.value == GUARD_ORDER[first]


def test_a_turn_of_an_unknown_owner_ends_by_long_stillness() -> None:
    """Without any sign of an owner, ten still minutes end a turn; nothing shorter does."""
    state = Story().turn(calls=("c",)).state
    assert isinstance(decide_title(facts(state, still_since=NOW - 599), NOW), WaitUntil)
    assert decide_title(facts(state, still_since=NOW - 600), NOW) == Act(Kind.TITLE)


def test_a_title_on_request_ignores_switches_but_not_a_running_turn() -> None:
    """`title S --auto` passes titles, switches, pause and attempts; it stops at a turn of a live owner and the
    budget.
    """
    state = Story().turn().title("mine", MANUAL).state
    asked = facts(state, disabled_by="env", paused="x", attempts=9, interactive=False, moved=False)
    assert decide_title_on_request(asked, NOW) == Act(Kind.TITLE)
    running = facts(Story().turn().add(UserSaid).state, owned=True)
    assert decide_title_on_request(running, NOW) == WaitUntil(None, Reason.WORKING, "a turn is running")
    assert decide_title_on_request(facts(calls_left=0), NOW) == Skip(Reason.BUDGET_EXHAUSTED, "no calls left today")


def test_backfill_takes_old_sessions_and_obeys_every_switch() -> None:
    """Age and stillness do not stop `backfill`; a switch does."""
    assert decide_backfill(facts(moved=False), NOW) == Act(Kind.TITLE)
    assert decide_backfill(facts(moved=False, disabled_by="env"), NOW) == Skip(Reason.DISABLED, "env")


def ours(title: str, *uuids: str, offset: int = 0) -> tuple[OurTitle, ...]:
    return (OurTitle(title, AUTO, frozenset(uuids), offset),)


def test_our_old_title_brought_back_over_a_manual_one_is_healed() -> None:
    """auto (ours), manual, auto again with the same text: the manual one is wanted last (promise 2)."""
    state = Story().turn().title("Ours", AUTO).title("Mine", MANUAL).title("Ours", AUTO).state
    run = heal_wanted(state, ours("Ours", "u4", offset=state.titles[0].first_offset))
    assert run is not None
    assert run.title == "Mine"


@pytest.mark.parametrize(
    "state",
    [
        Story().turn().title("Ours", AUTO).state,
        Story().turn().title("Ours", AUTO).title("Mine", MANUAL).state,
        Story().turn().title("Mine", MANUAL).title("Ours", AUTO).state,
        Story().turn().title("Ours", AUTO).title("Mine", MANUAL).title("Theirs", AUTO).state,
        Story().turn().title("Ours", AUTO).title("Mine", MANUAL).title("Ours", MANUAL).state,
    ],
)
def test_nothing_else_is_healed(state: SessionState) -> None:
    """Foreign titles, the user's own words and a manual title from before ours stay as they are."""
    first = next((run.first_offset for run in state.titles if run.title == "Ours"), 0)
    assert heal_wanted(state, ours("Ours", "u4", offset=first)) is None


def test_the_wish_for_no_title_is_healed_like_a_name() -> None:
    """What `undo` leaves where there was none: a CLI that adopted ours writes it again at its exit."""
    state = Story().turn().title("Ours", AUTO).title("", MANUAL).title("Ours", AUTO).state
    run = heal_wanted(state, ours("Ours", "u4"))
    assert run is not None
    assert (run.title, run.source) == ("", MANUAL)


def test_the_newest_name_is_healed() -> None:
    """The user renamed twice before a CLI brought ours back."""
    story = Story().turn().title("Ours", AUTO).title("First", MANUAL).title("Second", None).title("Ours", AUTO)
    run = heal_wanted(story.state, ours("Ours", "u4"))
    assert run is not None
    assert run.title == "Second"


def test_the_users_own_words_found_by_a_cli_are_not_ours() -> None:
    """We wrote them as the user's; the automatic title of the same words is the CLI's own, and stays."""
    state = Story().turn().title("Same", MANUAL).title("Mine", MANUAL).title("Same", AUTO).state
    assert heal_wanted(state, (OurTitle("Same", MANUAL, frozenset({"u4"}), 300),)) is None


def test_a_turn_does_not_run_until_a_time_in_the_future() -> None:
    """The clock was set back since the file was written."""
    state = Story().turn(calls=("c",)).state
    assert turn_over(state, owned=False, owner_known=False, still_since=NOW + 90_000, now=NOW) is None
    assert turn_over(state, owned=False, owner_known=False, still_since=NOW, now=NOW) is not None


def test_a_title_that_was_asked_for_again_counts_from_there() -> None:
    """Ours, the user's name, ours again because the user asked, another CLI's, and ours from a memory: not healed."""
    story = Story().turn().title("Ours", AUTO).title("Mine", MANUAL).title("Ours", AUTO)
    state = story.title("Theirs", AUTO).title("Ours", AUTO).state
    assert heal_wanted(state, ours("Ours", "u4", "u6")) is None
    assert heal_wanted(state, ours("Ours", "u4")) is not None


def test_our_title_is_wanted_again_only_when_no_window_shows_it() -> None:
    """Outside the first and last 64 KiB: yes; in either, or written by somebody else: no."""
    middle = Story().turn().add(AssistantSaid, size=70_000, visible=True).title("Ours", AUTO)
    uuid = middle.state.titles[-1].last_uuid
    drifted = middle.add(AssistantSaid, size=70_000, visible=True)
    assert reanchor_wanted(drifted.state, drifted.size, ours("Ours", uuid)) is not None
    assert reanchor_wanted(drifted.state, drifted.size, ours("Ours", "other")) is None
    fresh = Story().turn().add(AssistantSaid, size=70_000, visible=True).title("Ours", AUTO)
    assert reanchor_wanted(fresh.state, fresh.size, ours("Ours", uuid)) is None
    head = Story().turn().title("Ours", AUTO)
    uuid = head.state.titles[-1].last_uuid
    head.add(AssistantSaid, size=200_000, visible=True)
    assert reanchor_wanted(head.state, head.size, ours("Ours", uuid)) is None


def test_a_title_that_our_correction_put_last_is_not_ours_to_show() -> None:
    """The record is ours and the words are somebody's: their CLI re-anchors them (contract 3.3)."""
    story = Story().turn().add(AssistantSaid, size=70_000, visible=True).title("Theirs", AUTO)
    uuid = story.state.titles[-1].last_uuid
    story.add(AssistantSaid, size=70_000, visible=True)
    assert reanchor_wanted(story.state, story.size, ours("Ours", uuid)) is None
    assert reanchor_wanted(story.state, story.size, ours("Theirs", uuid)) is not None


def test_a_title_that_the_head_shows_is_in_sight() -> None:
    """However often it was written since, the first one is enough (contract 3.1); and an empty one shows nothing."""
    story = Story().turn().title("Ours", AUTO).add(AssistantSaid, size=70_000, visible=True).title("Ours", AUTO)
    uuid = story.state.titles[-1].last_uuid
    story.add(AssistantSaid, size=70_000, visible=True)
    assert len(story.state.titles) == 1
    assert reanchor_wanted(story.state, story.size, ours("Ours", uuid)) is None
    empty = Story().turn().add(AssistantSaid, size=70_000, visible=True).title("", MANUAL)
    uuid = empty.state.titles[-1].last_uuid
    empty.add(AssistantSaid, size=70_000, visible=True)
    assert reanchor_wanted(empty.state, empty.size, (OurTitle("", MANUAL, frozenset({uuid})),)) is None


@pytest.mark.parametrize(("behind", "wanted"), [(65_436, False), (65_437, True)])
def test_the_window_ends_at_the_byte(behind: int, wanted: bool) -> None:
    """A title whose record begins in the last 64 KiB is in sight; one byte more is too far."""
    story = Story().turn().add(AssistantSaid, size=70_000, visible=True).title("Ours", AUTO)
    uuid = story.state.titles[-1].last_uuid
    story.add(AssistantSaid, size=behind, visible=True)
    assert policy.WINDOW_BYTES == contract.WINDOW_BYTES == 65_536
    assert (reanchor_wanted(story.state, story.size, ours("Ours", uuid)) is not None) is wanted
