"""Here, away, working: folded from samples, whatever the clocks do."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.presence import (
    TERMINAL_STEP_SECONDS,
    WAKE_GRACE_SECONDS,
    Away,
    Here,
    Moment,
    Presence,
    Return,
    Sample,
    Source,
    Status,
    TerminalInput,
    Working,
    evidence,
    next_check_at,
    next_look,
    observe,
    status,
)

T0 = 1_800_000_000.0
AWAY = 300.0
TTY = "/dev/pts/3"


class Desk:
    """A machine with clocks, a terminal and a user, and what the presence makes of them."""

    def __init__(self) -> None:
        self.now = Moment(T0, 1000.0, 1000.0)
        self.presence = Presence()
        self.ttys: dict[str, float] = {}
        self.record: float | None = None
        self.running = False

    def passes(self, seconds: float) -> None:
        """Time goes by."""
        self.now = Moment(self.now.wall + seconds, self.now.steady + seconds, self.now.awake + seconds)

    def sleeps(self, seconds: float) -> None:
        """The machine is suspended for so long."""
        self.now = Moment(self.now.wall + seconds, self.now.steady + seconds, self.now.awake)

    def is_set(self, seconds: float) -> None:
        """The wall clock is set forward, or back."""
        self.now = replace(self.now, wall=self.now.wall + seconds)

    def types(self, tty: str = TTY) -> None:
        """A key is pressed; the device's time moves in steps of 8 s, cut to seconds, as Linux does it."""
        second = int(self.now.wall)
        if second // 8 != int(self.ttys.get(tty, -8.0)) // 8:
            self.ttys[tty] = float(second)

    def prompts(self) -> None:
        """A prompt is sent and recorded."""
        self.types()
        self.record = self.now.wall

    def look(self, away_seconds: float = AWAY) -> Status:
        """Take a sample and ask."""
        inputs = tuple(TerminalInput(tty, at) for tty, at in self.ttys.items())
        sample = Sample(now=self.now, user_record_at=self.record, inputs=inputs, turn_running=self.running)
        self.presence = observe(self.presence, sample, away_seconds)
        return status(self.presence, self.now, away_seconds)

    def look_after(self, seconds: float) -> Status:
        """Let time pass, then look."""
        self.passes(seconds)
        return self.look()


@pytest.fixture
def desk() -> Desk:
    """A user who has just sent a prompt, and was seen."""
    desk = Desk()
    desk.prompts()
    desk.look()
    return desk


def test_before_any_sample_nothing_is_known_and_a_look_is_due() -> None:
    """The first deadline is now."""
    now = Moment(T0, 5.0, 5.0)
    assert status(Presence(), now, AWAY) == Here(None)
    assert next_check_at(Presence(), now, AWAY) == T0


def test_away_is_dated_back_to_the_last_sign_of_life(desk: Desk) -> None:
    """Idle for 7 minutes with a threshold of 5: away since the input (report J3)."""
    assert isinstance(desk.look_after(299), Here)
    found = desk.look_after(121)
    assert isinstance(found, Away)
    assert found.since == pytest.approx(T0, abs=1.0)


def test_away_waits_out_the_step_of_the_terminal_where_that_is_the_newest_evidence(desk: Desk) -> None:
    """The input may be 8 s newer than shown."""
    desk.passes(1.0)
    desk.types()  # the same step: shown at T0
    assert isinstance(desk.look_after(AWAY + TERMINAL_STEP_SECONDS - 2.0), Here)
    assert isinstance(desk.look_after(1.5), Away)


def test_a_record_alone_needs_no_such_patience() -> None:
    """ACP owners and ended processes have records only."""
    desk = Desk()
    desk.record = T0
    desk.look()
    assert isinstance(desk.look_after(AWAY - 0.1), Here)
    assert isinstance(desk.look_after(0.2), Away)


def test_the_deadline_is_when_away_begins_and_then_there_is_none(desk: Desk) -> None:
    """No polling: one look at the deadline, none after it, none while a turn runs."""
    due = next_check_at(desk.presence, desk.now, AWAY)
    assert due is not None
    assert due == pytest.approx(T0 + AWAY + TERMINAL_STEP_SECONDS, abs=1.0)
    desk.passes(due - desk.now.wall)
    assert isinstance(desk.look(), Away)
    assert next_check_at(desk.presence, desk.now, AWAY) is None
    desk.running = True
    desk.look()
    assert next_check_at(desk.presence, desk.now, AWAY) is None


def test_input_seen_at_the_deadline_moves_it(desk: Desk) -> None:
    """Terminal input raises no event; it is found when the deadline falls due."""
    desk.passes(200)
    desk.types()
    desk.passes(AWAY - 200 + TERMINAL_STEP_SECONDS)
    found = desk.look()
    assert isinstance(found, Here)
    assert found.until == pytest.approx(T0 + 200 + AWAY + TERMINAL_STEP_SECONDS, abs=1.0)


def test_a_running_turn_keeps_the_clock_and_delays(desk: Desk) -> None:
    """Away at the end of the turn, since the last sign of life."""
    desk.running = True
    assert isinstance(desk.look_after(1200), Working)
    desk.running = False
    found = desk.look_after(1)
    assert isinstance(found, Away)
    assert found.since == pytest.approx(T0, abs=1.0)


def test_suspended_time_counts_as_away_with_a_grace_after_it(desk: Desk) -> None:
    """Lid closed at t0 + 1 min, opened hours later: away from t0 (report J2), but nothing is begun at once."""
    desk.passes(60)
    desk.sleeps(8 * 3600)
    found = desk.look_after(1)
    assert isinstance(found, Away)
    assert found.since == pytest.approx(T0, abs=1.0)
    assert found.act_from == pytest.approx(desk.now.wall + WAKE_GRACE_SECONDS)
    assert next_check_at(desk.presence, desk.now, AWAY) == found.act_from
    later = desk.look_after(WAKE_GRACE_SECONDS)
    assert isinstance(later, Away)
    assert later.act_from <= desk.now.wall
    assert later.span_id == found.span_id
    assert next_check_at(desk.presence, desk.now, AWAY) is None


def test_a_user_who_opens_the_lid_and_types_is_back(desk: Desk) -> None:
    """Input within the grace ends the absence before anything was done."""
    desk.sleeps(3600)
    away = desk.look_after(1)
    assert isinstance(away, Away)
    desk.passes(5)
    desk.types()
    found = desk.look()
    assert isinstance(found, Here)
    assert found.returned is not None
    assert found.returned.span_id == away.span_id
    assert found.returned.since == pytest.approx(T0, abs=1.0)


@pytest.mark.parametrize("jump", [3600.0, 86_400.0 * 365, 120.0])
def test_a_wall_clock_set_forward_makes_nobody_away(desk: Desk, jump: float) -> None:
    """Only time that has passed counts."""
    desk.passes(60)
    desk.is_set(jump)
    assert isinstance(desk.look(), Here)
    assert isinstance(desk.look_after(AWAY - 70), Here)
    assert isinstance(desk.look_after(20), Away)


@pytest.mark.parametrize("jump", [-3600.0, -86_400.0 * 365, -120.0])
def test_a_wall_clock_set_back_keeps_nobody_here(desk: Desk, jump: float) -> None:
    """The old time lies in the future then; it counts once."""
    desk.passes(60)
    desk.is_set(jump)
    assert isinstance(desk.look(), Here)
    assert isinstance(desk.look_after(AWAY - 50), Away)


def test_input_after_the_clock_was_set_back_is_a_sign_of_life(desk: Desk) -> None:
    """Though its time is older than the one before."""
    desk.is_set(-3600)
    desk.passes(250)
    desk.types()
    desk.look()
    assert isinstance(desk.look_after(200), Here)
    assert isinstance(desk.look_after(AWAY - 200 + TERMINAL_STEP_SECONDS + 1), Away)


def test_input_before_the_clock_was_set_forward_is_newer_than_the_last_look(desk: Desk) -> None:
    """Its time looks an hour old; it is known to be younger."""
    desk.passes(250)
    desk.look()
    desk.types()
    desk.is_set(3600)
    desk.look()
    assert isinstance(desk.look_after(200), Here)


def test_a_time_in_the_future_counts_as_now_once() -> None:
    """A terminal, or a record, of tomorrow is a sign of life when it is first seen, not at each look."""
    desk = Desk()
    desk.ttys[TTY] = T0 + 86_400
    desk.record = T0 + 86_400
    desk.look()
    for _ in range(10):
        desk.look_after(31)
    assert isinstance(status(desk.presence, desk.now, AWAY), Away)


def test_a_terminal_that_vanished_keeps_what_it_said_last(desk: Desk) -> None:
    """The window was closed after the input."""
    desk.passes(100)
    desk.types()
    desk.look()
    desk.ttys.clear()
    assert isinstance(desk.look_after(AWAY - 10), Here)
    found = desk.look_after(20)
    assert isinstance(found, Away)
    assert found.since == pytest.approx(T0 + 100, abs=1.0)


def test_of_two_terminals_the_newest_sign_of_either_counts(desk: Desk) -> None:
    """Two CLIs on one session; the silent one does not make the user away, nor does a look make both new."""
    for _ in range(5):
        desk.passes(200)
        desk.types("/dev/pts/9")
        assert isinstance(desk.look(), Here)
    assert isinstance(desk.look_after(AWAY + TERMINAL_STEP_SECONDS), Away)


def test_a_conversation_that_turned_back_does_not_undo_a_sign_of_life(desk: Desk) -> None:
    """After a rewind the last prompt on the active chain is an older one."""
    desk.ttys.clear()
    desk.passes(200)
    desk.record = desk.now.wall
    desk.look()
    desk.record = T0
    assert isinstance(desk.look_after(200), Here)
    assert isinstance(desk.look_after(AWAY - 199), Away)


def test_a_session_that_shows_nothing_counts_from_when_it_was_first_seen() -> None:
    """No terminal, no readable timestamp; a record that turns up later says more."""
    desk = Desk()
    desk.look()
    assert isinstance(desk.look_after(AWAY - 1), Here)
    assert isinstance(desk.look_after(2), Away)
    assert [each.source for each in evidence(desk.presence, desk.now)] == [Source.FIRST_SEEN]
    desk.record = T0 - 5000
    found = desk.look()
    assert isinstance(found, Away)
    assert found.since == T0 - 5000


def test_a_return_is_told_with_its_absence_and_once_prompted_stays_so(desk: Desk) -> None:
    """A key is a return; the prompt that follows makes a recap come too late."""
    away = desk.look_after(AWAY + 100)
    assert isinstance(away, Away)
    desk.types()
    found = desk.look()
    assert isinstance(found, Here)
    assert found.returned is not None
    assert (found.returned.span_id, found.returned.prompted) == (away.span_id, False)
    desk.passes(20)
    desk.prompts()
    found = desk.look()
    assert isinstance(found, Here)
    assert found.returned is not None
    assert found.returned.prompted


def test_a_return_by_a_prompt_is_one_that_needs_no_recap(desk: Desk) -> None:
    """The user typed before anyone looked again."""
    desk.look_after(AWAY + 20)
    desk.passes(AWAY * 3)
    desk.prompts()
    found = desk.look()
    assert isinstance(found, Here)
    assert found.returned is not None
    assert found.returned.prompted


def test_a_return_is_only_told_of_an_absence_that_was_found(desk: Desk) -> None:
    """Between two looks only the newest input is seen; the user may have been there all the time."""
    desk.running = True
    desk.look()
    for _ in range(4):
        desk.passes(AWAY - 100)
        desk.types()
    desk.running = False
    found = desk.look()
    assert isinstance(found, Here)
    assert found.returned is None


def test_a_key_before_a_suspend_is_no_return_after_it(desk: Desk) -> None:
    """Seen only after it, and whether the clock was set meanwhile or not."""
    desk.running = True
    desk.look()
    desk.passes(AWAY + 20)
    desk.types()
    desk.sleeps(3600)
    desk.running = False
    found = desk.look()
    assert isinstance(found, Away)
    assert desk.presence.returned is None
    desk.types()
    desk.look()
    desk.passes(50)
    desk.types()
    desk.sleeps(3600)
    desk.is_set(100)
    desk.look()
    assert desk.presence.returned is not None
    assert desk.presence.returned.steady < desk.now.steady, "only the return before"


def test_two_absences_have_two_spans(desk: Desk) -> None:
    """A key in between is enough."""
    first = desk.look_after(AWAY + 20)
    desk.types()
    desk.look()
    second = desk.look_after(AWAY + 20)
    assert isinstance(first, Away)
    assert isinstance(second, Away)
    assert first.span_id < second.span_id


def test_no_return_without_an_absence(desk: Desk) -> None:
    """Activity within the threshold ends nothing."""
    for _ in range(20):
        desk.passes(AWAY - 20)
        desk.types()
        found = desk.look()
        assert isinstance(found, Here)
        assert found.returned is None


def test_the_evidence_is_ranked_and_names_its_sources(desk: Desk) -> None:
    """The newest first, with what it may be off; `why` shows it (report J4)."""
    desk.passes(100)
    desk.types("/dev/pts/9")
    desk.look()
    found = evidence(desk.presence, desk.now)
    assert [(each.source, each.name) for each in found] == [
        (Source.TERMINAL, "/dev/pts/9"),
        (Source.TERMINAL, TTY),
        (Source.RECORD, ""),
    ]
    assert found[0].at == pytest.approx(T0 + 100, abs=1.0)
    assert [each.newer_seconds for each in found if each.source is Source.RECORD] == [0.0]
    assert found[0].newer_seconds == pytest.approx(TERMINAL_STEP_SECONDS)


def test_looks_for_a_return_fall_on_common_multiples() -> None:
    """Sessions that began to wait at different times share one wake-up."""
    assert next_look(1001.3, 5.0) == next_look(1004.9, 5.0) == 1005.0
    assert next_look(1005.0, 5.0) == 1010.0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.floats(0.0, 400.0)),
        st.tuples(st.just("sleeps"), st.floats(6.0, 90_000.0)),
        st.tuples(st.just("is_set"), st.floats(-90_000.0, 90_000.0)),
        st.tuples(st.just("types"), st.sampled_from([TTY, "/dev/pts/9"])),
        st.tuples(st.just("prompts"), st.none()),
        st.tuples(st.just("closes"), st.none()),
        st.tuples(st.just("turn"), st.booleans()),
        st.tuples(st.just("look"), st.none()),
    ),
    max_size=40,
)


def run(steps: list[tuple[str, object]], away_seconds: float) -> list[tuple[Desk, Status, float]]:
    """Play the steps; after each look: the desk then, the status, and how long ago the last real sign of life was."""
    desk, last_sign, looks = Desk(), -1e9, []
    for name, argument in steps:
        if name in ("types", "prompts"):
            desk.passes(0.001)  # nobody does two things at one instant
        if name == "types":
            desk.types(str(argument))
            last_sign = desk.now.steady
        elif name == "prompts":
            desk.prompts()
            last_sign = desk.now.steady
        elif name == "closes":
            desk.ttys.clear()
        elif name == "turn":
            desk.running = bool(argument)
        elif name == "look":
            found = desk.look(away_seconds)
            seen = Desk()
            seen.now, seen.presence = desk.now, desk.presence
            looks.append((seen, found, desk.now.steady - last_sign))
        else:
            assert isinstance(argument, float)
            getattr(desk, name)(argument)
    return looks


def without(steps: list[tuple[str, object]], *names: str) -> list[tuple[str, object]]:
    """The steps but those."""
    return [step for step in steps if step[0] not in names]


@given(STEPS, st.sampled_from([15.0, 300.0]))
@settings(max_examples=200)
def test_nobody_is_away_whose_sign_of_life_is_newer_than_the_threshold(
    steps: list[tuple[str, object]], away_seconds: float
) -> None:
    """Whatever the order of input, looks and suspends; a clock that is set is a property of its own."""
    # A window that is closed before anyone looked has taken its last input along; that cannot be known.
    for _, found, since_sign in run(without(steps, "is_set", "closes"), away_seconds):
        assert not (isinstance(found, Away) and since_sign < away_seconds)


@given(STEPS, st.sampled_from([15.0, 300.0]))
@settings(max_examples=200)
def test_deadlines_lie_ahead_and_looking_at_them_comes_to_an_end(
    steps: list[tuple[str, object]], away_seconds: float
) -> None:
    """At a deadline without new signs the status changes: no storm of looks, also after suspends and set clocks."""
    for desk, _, _ in run(steps, away_seconds):
        presence, now = desk.presence, desk.now
        for _ in range(4):
            due = next_check_at(presence, now, away_seconds)
            if due is None:
                break
            assert due >= now.wall
            ahead = due - now.wall + 1e-3
            now = Moment(now.wall + ahead, now.steady + ahead, now.awake + ahead)
        else:
            pytest.fail("a deadline follows a deadline without end")


@given(STEPS, st.sampled_from([15.0, 300.0]))
@settings(max_examples=200)
def test_one_absence_has_one_span(steps: list[tuple[str, object]], away_seconds: float) -> None:
    """Span ids never fall; within one, the time of the last sign stays; a new one needs a new sign of life."""
    looks = run(without(steps, "is_set"), away_seconds)
    spans = [(found.span_id, found.since) for _, found, _ in looks if isinstance(found, Away)]
    ids = [span for span, _ in spans]
    assert ids == sorted(ids)
    for span in set(ids):
        times = [since for each, since in spans if each == span]
        assert max(times) - min(times) < 0.01
    for (desk, earlier, before), (later_desk, later, after) in pairwise(looks):
        if isinstance(earlier, Away) and isinstance(later, Away) and later.span_id != earlier.span_id:
            assert desk.now.steady - before < later_desk.now.steady - after, "no sign of life came in between"


@given(STEPS, st.sampled_from([15.0, 300.0]))
@settings(max_examples=200)
def test_a_return_ends_an_absence_that_was_long_enough(steps: list[tuple[str, object]], away_seconds: float) -> None:
    """Never after a shorter one, each once, in order."""
    returns: dict[int, Return] = {}
    for desk, _, _ in run(without(steps, "is_set"), away_seconds):
        found = desk.presence.returned
        if found is not None:
            returns.setdefault(found.span_id, found)
            assert found.span_id < desk.presence.span_id
            assert desk.now.wall - found.since >= away_seconds - 1.0
    assert list(returns) == sorted(returns)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12),
    st.lists(st.floats(0.0, 100.0), min_size=1, max_size=12),
)
@settings(max_examples=150)
def test_setting_the_clock_changes_neither_who_is_here_nor_who_is_away(jumps: list[float], waits: list[float]) -> None:
    """Two users do the same; on one's machine the wall clock is set again and again."""
    calm, shaken = Desk(), Desk()
    for desk in (calm, shaken):
        desk.prompts()
        desk.look()
    for jump, wait in zip(jumps, waits, strict=False):
        shaken.is_set(jump)
        assert type(shaken.look_after(wait)) is type(calm.look_after(wait))
        assert shaken.presence.span_id == calm.presence.span_id
