"""What may be appended to a file, rule by rule: each alone, on what the file holds under the writer's lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.core.test_policy import Story
from watcher.core.events import AssistantSaid, InputArrived, InputKind, RecapShown, Rewound, TitleSource, UserSaid
from watcher.core.policy import OurTitle
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.write_rules import (
    RECAP_STILL_SECONDS,
    TORN_QUIET_SECONDS,
    Circumstances,
    RecapBasis,
    Rule,
    automatic_title,
    given_title,
    healed_title,
    kept_title,
    recap,
    requested_title,
    title_again,
)
from watcher.core.writing import Declined, Payload, RecapLine, SessionFile, TitleLine

NOW = 1_800_000_000.0
AUTO, MANUAL = TitleSource.AUTO, TitleSource.MANUAL
FREE = Circumstances(owned=False, owner_known=True, unsupported=lambda _: "", now=lambda: NOW)
OWNED = replace(FREE, owned=True)
UNKNOWN = replace(FREE, owner_known=False)
OLD_VERSION = replace(FREE, unsupported=lambda _: "too old")


def file(story: Story | SessionState, *, mtime: float = NOW - 5000, torn: int = 0, torn_title: str = "") -> SessionFile:
    """A file that holds this."""
    state = story if isinstance(story, SessionState) else story.state
    return SessionFile(state, state.end, mtime, torn, torn_title)


def reason(outcome: Payload | Declined) -> Reason | None:
    """Why nothing is written, None when something is."""
    return outcome.reason if isinstance(outcome, Declined) else None


def healing() -> Story:
    """Our title, the user's, and ours again from the memory of a CLI."""
    return Story().turn().title("Ours", AUTO).title("Mine", MANUAL).title("Ours", AUTO)


def drifted(source: TitleSource = AUTO) -> Story:
    """Our title, out of both windows."""
    story = Story().turn().add(AssistantSaid, size=70_000, visible=True).title("Ours", source)
    return story.add(AssistantSaid, size=70_000, visible=True)


HEALED = (OurTitle("Ours", AUTO, frozenset({"u4"}), 300),)


def again(source: TitleSource = AUTO) -> tuple[OurTitle, ...]:
    """Our title in `drifted`."""
    return (OurTitle("Ours", source, frozenset({"u5"}), 70_300),)


def basis(story: Story, moves: int | None = None) -> RecapBasis:
    """What a recap of this was made of."""
    return RecapBasis(story.state.turn, story.state.moves if moves is None else moves)


MidTurn: Any = partial(InputArrived, kind=InputKind.MID_TURN)
Notification: Any = partial(InputArrived, kind=InputKind.NOTIFICATION)

Make = Callable[[Circumstances], Rule]
RULES: dict[str, tuple[Callable[[], Story], Make]] = {
    "automatic": (lambda: Story().turn(), lambda now: automatic_title("New", now)),
    "requested": (
        lambda: Story().turn().title("Before", AUTO),
        lambda now: requested_title("New", file(Story().turn().title("Before", AUTO)), now),
    ),
    "given": (lambda: Story().turn(), lambda now: given_title("New", MANUAL, now)),
    "kept": (
        lambda: Story().turn().title("Held", AUTO).title("New", MANUAL).title("Held", AUTO),
        lambda now: kept_title("New", MANUAL, 400, frozenset({"u5"}), now),
    ),
    "recap": (lambda: Story().turn(), lambda now: recap("Where it stood.", basis(Story().turn()), now)),
    "healed": (healing, lambda now: healed_title(HEALED, now)),
    "again": (drifted, lambda now: title_again(again(), now)),
}


@pytest.mark.parametrize("name", list(RULES))
def test_a_free_quiet_file_is_written(name: str) -> None:
    """The same file and circumstances that the tests below change in one thing."""
    story, rule = RULES[name]
    assert reason(rule(FREE)(file(story()))) is None


@pytest.mark.parametrize("name", list(RULES))
def test_no_rule_writes_what_no_write_may(name: str) -> None:
    """An old version; a last line that may be in flight; a turn that runs: whoever asks, and whatever for."""
    story, rule = RULES[name]
    quiet = file(story())
    assert reason(rule(OLD_VERSION)(quiet)) is Reason.UNSUPPORTED_VERSION
    young = replace(quiet, torn=20, mtime=NOW - TORN_QUIET_SECONDS + 0.5)
    assert reason(rule(FREE)(young)) is Reason.WORKING
    assert reason(rule(FREE)(replace(young, mtime=NOW - TORN_QUIET_SECONDS))) is None
    assert reason(rule(FREE)(replace(young, mtime=NOW + 3600))) is None
    assert reason(rule(OWNED)(replace(young, mtime=NOW - 5000))) is Reason.WORKING
    working = file(replace(story().state, running=True), mtime=NOW - 100)
    assert reason(rule(OWNED)(working)) is Reason.WORKING
    assert reason(rule(FREE)(working)) is None
    assert reason(rule(UNKNOWN)(replace(working, mtime=NOW - 599))) is Reason.WORKING
    assert reason(rule(UNKNOWN)(replace(working, mtime=NOW - 600))) is None


@pytest.mark.parametrize("name", ["kept", "healed"])
def test_nothing_is_brought_back_while_an_owner_lives(name: str) -> None:
    """It would write its own title again at its end."""
    story, rule = RULES[name]
    assert rule(OWNED)(file(story())) == Declined(Reason.WORKING, "its owner lives")


@pytest.mark.parametrize("name", ["automatic", "healed", "again"])
def test_a_name_on_a_torn_line_is_the_users_last_word(name: str) -> None:
    """Nothing that nobody asked for is put over it (vector T09)."""
    story, rule = RULES[name]
    assert reason(rule(FREE)(file(story(), torn_title="Torn"))) is Reason.MANUAL_TITLE


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("automatic", TitleLine("New", AUTO, yields=True)),
        ("requested", TitleLine("New", AUTO, yields=True)),
        ("given", TitleLine("New", MANUAL, yields=False)),
        ("kept", TitleLine("New", MANUAL, yields=True)),
        ("recap", RecapLine("Where it stood.")),
        ("healed", TitleLine("Mine", MANUAL, yields=True)),
        ("again", TitleLine("Ours", AUTO, yields=True)),
    ],
)
def test_what_each_rule_writes(name: str, payload: Payload) -> None:
    """The source is whose title it is; only a name given in this moment does not give way to one given beside it."""
    story, rule = RULES[name]
    assert rule(FREE)(file(story())) == payload


def test_what_the_user_gave_is_brought_back_as_the_users() -> None:
    """Into sight, and over a CLI's memory."""
    assert title_again(again(MANUAL), FREE)(file(drifted(MANUAL))) == TitleLine("Ours", MANUAL)


@pytest.mark.parametrize("source", [AUTO, MANUAL, None])
@pytest.mark.parametrize("title", ["Given", ""])
def test_an_automatic_title_yields_to_every_title(title: str, source: TitleSource | None) -> None:
    """An empty one too: it says that the user wants none."""
    assert reason(automatic_title("New", FREE)(file(Story().turn().title(title, source)))) is not None


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (Story().turn(), Story().turn(), None),
        (Story().turn(), Story().turn().title("Given", MANUAL), Reason.MANUAL_TITLE),
        (Story().turn(), Story().turn().title("Given", AUTO), Reason.TITLE_PRESENT),
        (Story().turn().title("Mine", MANUAL), Story().turn().title("Mine", MANUAL), None),
        (Story().turn().title("Mine", MANUAL), Story().turn().title("Mine", MANUAL).title("Mine", MANUAL), None),
        (Story().turn().title("Same", AUTO), Story().turn().title("Same", MANUAL), Reason.MANUAL_TITLE),
        (Story().turn().title("Old", AUTO), Story().turn().title("New", AUTO), Reason.TITLE_PRESENT),
    ],
)
def test_a_title_on_request_replaces_only_what_stood_there_when_it_was_asked_for(
    before: Story, now: Story, expected: Reason | None
) -> None:
    """One that was given while the model answered is newer, whoever gave it."""
    assert reason(requested_title("By model", file(before), FREE)(file(now))) is expected


@pytest.mark.parametrize(
    "since",
    [
        lambda story: story,
        lambda story: story.title("Newer", MANUAL).title("Held", AUTO),
    ],
)
def test_a_kept_title_is_not_put_over_what_stands_rightly(since: Callable[[Story], Story]) -> None:
    """It stands itself, or another name was given since."""
    story = since(Story().turn().title("Held", AUTO).title("New", MANUAL))
    outcome = kept_title("New", MANUAL, 400, frozenset({"u5"}), FREE)(file(story))
    assert reason(outcome) is Reason.NOTHING_NEW


def test_what_needs_no_healing_by_now_is_left() -> None:
    """Decided again on the file as it is."""
    assert reason(healed_title(HEALED, FREE)(file(healing().title("Newest", MANUAL)))) is Reason.NOTHING_NEW
    assert reason(title_again(again(), FREE)(file(drifted().title("Newest", MANUAL)))) is Reason.NOTHING_NEW
    assert reason(title_again(again(), FREE)(file(drifted().title("Ours", AUTO)))) is Reason.NOTHING_NEW


# -- recaps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "move",
    [
        lambda story: story.turn(),
        lambda story: story.add(MidTurn).add(AssistantSaid, visible=True),
        lambda story: story.add(Notification).add(AssistantSaid, visible=True),
        lambda story: story.add(Rewound),
    ],
)
def test_a_recap_of_an_older_state_is_not_written(move: Callable[[Story], Story]) -> None:
    """Whatever has moved the conversation on (contract 4.3 d)."""
    story = Story().turn()
    rule = recap("Stale", basis(story), FREE)
    assert reason(rule(file(move(story)))) is Reason.NOTHING_NEW


def test_a_recap_of_a_newer_prompt_or_none_is_not_written() -> None:
    """The newest prompt is what it was made of, also where nobody remembers the moves."""
    story = Story().turn()
    assert reason(recap("x", RecapBasis("another"), FREE)(file(story))) is Reason.NOTHING_NEW
    first = RecapBasis(story.state.turn)
    assert reason(recap("x", first, FREE)(file(story))) is None
    assert reason(recap("x", first, FREE)(file(story.turn()))) is Reason.NOTHING_NEW


def test_a_recap_of_a_rewound_turn_is_not_written() -> None:
    """After a restart nobody remembers the moves: the chain tells."""
    story = Story().turn()
    first = story.state.leaf
    story.turn()
    rewound = story.state.turn
    state = replace(story.state, chain=story.state.chain.add("r", first))
    assert state.turn == rewound
    assert reason(recap("x", RecapBasis(rewound), FREE)(file(state))) is Reason.NOTHING_NEW


def test_moves_are_counted_only_where_all_was_read() -> None:
    """In a file that is too long to be read whole, another reading begins elsewhere and counts fewer."""
    story = Story().turn()
    rule = recap("Where it stood.", basis(story, moves=77), FREE)
    assert reason(rule(file(story))) is Reason.NOTHING_NEW
    assert reason(rule(file(replace(story.state, partial=True)))) is None


def test_a_second_recap_of_the_same_state_is_not_written() -> None:
    """Whoever wrote the first; but where something was said since, it tells of the past."""
    story = Story().turn().add(RecapShown, text="First")
    rule = recap("Second", basis(story), FREE)
    assert reason(rule(file(story))) is Reason.NOTHING_NEW
    mark, said = story.state.recap, story.state.last_activity_at
    assert mark is not None
    assert said is not None
    older = replace(story.state, recap=replace(mark, at=said - 1))
    assert reason(rule(file(older))) is None
    undated = replace(story.state, recap=replace(mark, at=None))
    assert reason(rule(file(undated))) is Reason.NOTHING_NEW
    answered = story.add(UserSaid).add(AssistantSaid, visible=True)
    assert reason(recap("Third", basis(answered), FREE)(file(answered))) is None


def test_a_recap_waits_for_a_still_file() -> None:
    """Two seconds (design 11); a time in the future is no reason to wait until then."""
    story = Story().turn()
    rule = recap("x", basis(story), FREE)
    assert RECAP_STILL_SECONDS == 2.0
    assert reason(rule(file(story, mtime=NOW - 1.9))) is Reason.WORKING
    assert reason(rule(file(story, mtime=NOW - 2.0))) is None
    assert reason(rule(file(story, mtime=NOW + 60.0))) is None
