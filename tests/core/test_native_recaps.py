"""Learning whether a terminal reports focus, from what a return brings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.native_recaps import (
    LOOK_EVERY_SECONDS,
    PATIENCE_SECONDS,
    Focus,
    NativeRecaps,
    Seen,
    next_weighing_at,
    weigh,
)
from watcher.core.presence import Away, Here, Moment, Presence, Return, Working

OWNER = (10, "boot:1", 0.0)


def at(seconds: float) -> Moment:
    """A moment so many seconds after the start."""
    return Moment(1_800_000_000.0 + seconds, seconds, seconds)


def seen(
    *,
    span: int = 0,
    prompted: bool = False,
    running: bool = False,
    newest: str | None = None,
    turns: int = 5,
    since: int = 5,
    owner: tuple[int, str, float] = OWNER,
) -> Seen:
    """What the session shows after the return from absence `span`; 0: nobody returned yet."""
    returned = Return(span, 0.0, 0.0, prompted) if span else None
    return Seen(
        owner=owner,
        presence=Presence(returned=returned, turn_running=running),
        newest=newest,
        user_turns=turns,
        turns_since_recap=since,
    )


@pytest.fixture
def known() -> NativeRecaps:
    """An owner that was just met."""
    return weigh(NativeRecaps(), seen(), at(0))


def test_a_return_without_a_recap_within_a_minute_shows_silence(known: NativeRecaps) -> None:
    """Not before the minute is over; then for good."""
    known = weigh(known, seen(span=1), at(100))
    assert known.focus is Focus.UNKNOWN
    assert next_weighing_at(known, Here(None), at(110)) == pytest.approx(at(100 + PATIENCE_SECONDS).wall)
    assert weigh(known, seen(span=1), at(100 + PATIENCE_SECONDS - 1)).focus is Focus.UNKNOWN
    known = weigh(known, seen(span=1), at(100 + PATIENCE_SECONDS))
    assert known.focus is Focus.SILENT
    assert next_weighing_at(known, Away(0.0, 2, 0.0), at(500)) is None


def test_a_recap_within_the_minute_shows_focus_reports(known: NativeRecaps) -> None:
    """Also one that is seen together with the return; later misses do not undo it."""
    for newest_at in (100.0, 130.0):
        told = weigh(known, seen(span=1, newest="n1" if newest_at == 100.0 else None), at(100))
        told = weigh(told, seen(span=1, newest="n1", since=0), at(newest_at))
        assert told.focus is Focus.REPORTED
        told = weigh(told, seen(span=1, newest="n1"), at(900))
        told = weigh(told, seen(span=2, newest="n1"), at(1000))
        assert told.wait is not None
        assert weigh(told, seen(span=2, newest="n1"), at(1100)).focus is Focus.REPORTED


def test_a_recap_out_of_the_blue_was_typed_and_shows_nothing(known: NativeRecaps) -> None:
    """`/recap` writes the same record."""
    known = weigh(known, seen(newest="n1", since=0), at(50))
    assert known.focus is Focus.UNKNOWN


@pytest.mark.parametrize(("turns", "since"), [(2, 2), (5, 1), (5, 0)])
@pytest.mark.parametrize("later", [(8, 8), (3, 2)])
def test_a_return_that_is_not_past_the_gates_shows_nothing(turns: int, since: int, later: tuple[int, int]) -> None:
    """Nor would Qwen Code have shown one; a prompt or a rewind that marks the return came after the focus."""
    known = weigh(NativeRecaps(), seen(turns=turns, since=since), at(0))
    known = weigh(known, seen(span=1, prompted=True, turns=later[0], since=later[1]), at(100))
    assert weigh(known, seen(span=1, prompted=True, turns=later[0], since=later[1]), at(500)).focus is Focus.UNKNOWN


def test_a_return_by_a_prompt_tells_as_much_as_any(known: NativeRecaps) -> None:
    """The focus came before the typing."""
    known = weigh(known, seen(span=1, prompted=True, running=True), at(100))
    known = weigh(known, seen(span=1, prompted=True), at(120))
    assert weigh(known, seen(span=1, prompted=True), at(180)).focus is Focus.SILENT


def test_the_minute_begins_when_the_turn_ends_that_met_the_return(known: NativeRecaps) -> None:
    """Qwen Code waits until it is idle."""
    known = weigh(known, seen(span=1, running=True), at(100))
    assert next_weighing_at(known, Working(), at(100)) is None
    known = weigh(known, seen(span=1, running=True), at(900))
    known = weigh(known, seen(span=1), at(930))
    known = weigh(known, seen(span=1, running=True), at(980))  # and again with each turn that begins meanwhile
    known = weigh(known, seen(span=1), at(1000))
    assert weigh(known, seen(span=1), at(1059)).focus is Focus.UNKNOWN
    assert weigh(known, seen(span=1, running=True), at(1060)).focus is Focus.UNKNOWN
    assert weigh(known, seen(span=1), at(1060)).focus is Focus.SILENT


def test_another_owner_starts_anew(known: NativeRecaps) -> None:
    """Another terminal; the return that its start was says nothing about it."""
    silent = weigh(weigh(known, seen(span=1), at(100)), seen(span=1), at(200))
    assert silent.focus is Focus.SILENT
    other = weigh(silent, seen(span=2, owner=(11, "boot:2", 0.0)), at(300))
    assert other.focus is Focus.UNKNOWN
    assert weigh(other, seen(span=2, owner=(11, "boot:2", 0.0)), at(400)).focus is Focus.UNKNOWN


def test_an_absence_is_looked_at_from_time_to_time_only_while_nothing_is_known(known: NativeRecaps) -> None:
    """A return raises no event; looks of all sessions fall together."""
    look = next_weighing_at(known, Away(0.0, 1, 0.0), at(101))
    assert look is not None
    assert look % LOOK_EVERY_SECONDS == 0.0
    assert 0.0 < look - at(101).wall <= LOOK_EVERY_SECONDS
    assert next_weighing_at(known, Here(at(300).wall), at(101)) == at(300).wall
    reported = weigh(known, seen(span=1, newest="n1"), at(100))
    assert next_weighing_at(reported, Away(0.0, 2, 0.0), at(101)) is None
    assert next_weighing_at(reported, Here(at(300).wall), at(101)) is None


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 90.0), st.integers(0, 3), st.booleans(), st.booleans(), st.sampled_from([None, "a", "b"])
        ),
        max_size=30,
    )
)
@settings(max_examples=150)
def test_silence_is_never_concluded_within_a_minute_of_a_return(
    steps: list[tuple[float, int, bool, bool, str | None]],
) -> None:
    """And a looked-at absence is not looked at again."""
    known, now, top = NativeRecaps(), 0.0, 0
    first_seen: dict[int, float] = {}
    for wait, step, prompted, running, newest in steps:
        now += wait
        top = max(top, step)
        if top:
            first_seen.setdefault(top, now)
        before = known
        known = weigh(known, seen(span=top, prompted=prompted, running=running, newest=newest), at(now))
        assert known.judged_span >= before.judged_span
        if known.focus is Focus.SILENT and before.focus is not Focus.SILENT:
            assert now - first_seen[top] >= PATIENCE_SECONDS
