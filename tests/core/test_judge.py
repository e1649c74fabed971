"""What the bytes behind a write mean: when a record of ours hides what somebody else wrote (contract 4.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watcher.core.events import AssistantSaid, Event, RecapShown, TitleSet, TitleSource, UserSaid
from watcher.core.session import SessionState, fold_all
from watcher.core.writing import Clean, Correct, RecapLine, TitleLine, judge

RECAP = RecapLine("Where it stood.")


def title(uuid: str, parent: str | None, text: str, source: TitleSource | None) -> Event:
    """A title record."""
    event = record(uuid, parent, "title")
    assert isinstance(event, TitleSet)
    return replace(event, title=text, source=source)


def record(uuid: str, parent: str | None, kind: str = "user") -> Event:
    """One record, as its line would be read."""
    common = {"session_id": "s", "at": 1.0, "cwd": "/p", "version": "0.24.4", "offset": 0, "end": 1}
    common |= {"uuid": uuid, "parent": parent}
    if kind == "title":
        return TitleSet(title="T", source=TitleSource.AUTO, **common)  # type: ignore[arg-type]
    if kind == "recap":
        return RecapShown(text="R", **common)  # type: ignore[arg-type]
    if kind == "assistant":
        return AssistantSaid(visible=True, **common)  # type: ignore[arg-type]
    return UserSaid(**common)  # type: ignore[arg-type]


BASE = fold_all(SessionState(), [record("n0", None), record("n1", "n0", "assistant")])
OURS = record("o", "n1", "recap")


@pytest.mark.parametrize(
    "since",
    [
        [OURS],
        [OURS, record("n2", "n1")],
        [record("n2", "n1"), OURS, record("n3", "n2", "assistant")],
        [OURS, record("b", "o", "title")],
        [OURS, record("b", "o", "title"), record("c", "b", "recap")],
        [OURS, record("t", "n1", "title")],
        # A terminal that loaded the stale line went on from it: whichever record came last, one of two turns is hidden.
        [record("n2", "n1"), OURS, record("n3", "o")],
        [record("n2", "n1"), OURS, record("n3", "o"), record("b", "n3", "title")],
    ],
)
def test_nothing_of_anybody_is_hidden_by_ours(since: list[Event]) -> None:
    """Ours knows what came before it, or the chain does not go through it, or a turn hangs on it already."""
    verdict, _ = judge(BASE, since, {"o": "n1"}, RECAP)
    assert verdict == Clean()


@pytest.mark.parametrize(
    "behind",
    [
        [],
        [record("b", "o", "title")],
        [record("b", "o", "recap"), record("c", "b", "title")],
    ],
)
def test_a_record_that_ours_hides_is_brought_back(behind: list[Event]) -> None:
    """Also when another watcher's title or recap, or a rename, hangs on ours by then."""
    since = [record("n2", "n1"), record("n3", "n2", "assistant"), OURS, *behind]
    verdict, _ = judge(BASE, since, {"o": "n1"}, RECAP)
    assert verdict == Correct(RECAP, "n3")


def test_what_was_brought_back_stays() -> None:
    """The correction is the end of it, and so is a name that is put last behind what hangs on ours."""
    since = [record("n2", "n1"), OURS, record("b", "o", "title"), record("o2", "n2", "recap")]
    assert judge(BASE, since, {"o": "n1", "o2": "n2"}, RECAP)[0] == Clean()
    since = [OURS, record("b", "o", "title"), record("o2", "b", "title")]
    assert judge(BASE, since, {"o": "n1", "o2": "b"}, RECAP)[0] == Clean()


def test_a_circle_of_parents_ends() -> None:
    """Nobody writes one, and nobody hangs on one."""
    since = [record("n2", "n1"), record("o", "o2", "recap"), record("o2", "o", "recap")]
    assert judge(BASE, since, {"o": "o2", "o2": "o"}, RECAP)[0] == Correct(RECAP, "n2")


AUTO, MANUAL = TitleSource.AUTO, TitleSource.MANUAL


def test_the_same_words_from_the_user_are_the_users() -> None:
    """A rename to what the model found raced ours: put last as the user's, or it would count as automatic."""
    since = [title("n2", "n1", "Same", MANUAL), title("o", "n1", "Same", AUTO)]
    verdict, _ = judge(BASE, since, {"o": "n1"}, TitleLine("Same", AUTO))
    assert verdict == Correct(TitleLine("Same", MANUAL), "n2")
    verdict, _ = judge(BASE, [*since, record("n3", "n2")], {"o": "n1"}, TitleLine("Same", AUTO))
    assert verdict == Correct(TitleLine("Same", MANUAL), "n3")


@pytest.mark.parametrize("source", [AUTO, MANUAL, None])
def test_the_newest_of_two_names_beside_ours_is_put_last(source: TitleSource | None) -> None:
    """With its own source; one without is the user's."""
    since = [title("n2", "n1", "First", MANUAL), title("n3", "n2", "Second", source), title("o", "n1", "Ours", AUTO)]
    verdict, _ = judge(BASE, since, {"o": "n1"}, TitleLine("Ours", AUTO))
    assert verdict == Correct(TitleLine("Second", source or MANUAL), "n3")


def test_a_name_given_now_stands_above_a_copy_of_what_it_raced() -> None:
    """Somebody's title raced ours, and its CLI writes it once more from memory behind ours: no newer name."""
    since = [title("n2", "n1", "Raced", AUTO), title("o", "n2", "Mine", MANUAL), title("n3", "n2", "Raced", AUTO)]
    verdict, _ = judge(BASE, since, {"o": "n2"}, TitleLine("Mine", MANUAL, yields=False))
    assert verdict == Clean()
    since[2] = title("n3", "n2", "Newer", AUTO)
    verdict, _ = judge(BASE, since, {"o": "n2"}, TitleLine("Mine", MANUAL, yields=False))
    assert verdict == Clean(overruled=True)


def test_titles_are_nothing_to_a_recap() -> None:
    """A rename beside a recap stands where it stands."""
    since = [OURS, title("n2", "n1", "Mine", MANUAL)]
    assert judge(BASE, since, {"o": "n1"}, RECAP)[0] == Clean()
    since = [title("n2", "n1", "Mine", MANUAL), OURS]
    assert judge(BASE, since, {"o": "n1"}, RECAP)[0] == Correct(RECAP, "n2")


def test_the_state_after_is_told_by_others() -> None:
    """A correction copies directory and version of the record that it brings back, not those of our stale line."""
    moved = replace(record("n2", "n1"), cwd="/q", version="0.25.0")
    _, state = judge(BASE, [moved, OURS], {"o": "n1"}, RECAP)
    assert (state.cwd, state.version, state.leaf) == ("/q", "0.25.0", "o")
