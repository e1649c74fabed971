"""The state of a session, folded from events."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core import session
from watcher.core.events import (
    AssistantSaid,
    Compressed,
    Event,
    InputArrived,
    InputKind,
    Noted,
    RecapShown,
    Rewound,
    SnapshotTaken,
    SourceNamed,
    TitleSet,
    TitleSource,
    ToolReturned,
    TurnEnded,
    Unknown,
    UserSaid,
)
from watcher.core.session import MAX_OPEN_CALLS, SessionState, fold, fold_all
from watcher.core.title_runs import MAX_RUN_UUIDS, MAX_RUNS

AUTO, MANUAL = TitleSource.AUTO, TitleSource.MANUAL


class Script:
    """Makes events as a session would: each chained to the one before, a second and a hundred bytes later."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tail: str | None = None

    def add(self, event_type: type[Event], /, **given: object) -> Script:
        """One more event; given fields win. A side record leaves the tail where it was."""
        number = len(self.events)
        side = bool(given.pop("side", False))
        common = {
            "uuid": f"u{number}",
            "parent": self.tail,
            "session_id": "s",
            "at": 1000.0 + number,
            "cwd": "/c",
            "version": "0.24.4",
            "offset": 100 * number,
            "end": 100 * number + 100,
        }
        event = event_type(**{**common, **given})  # type: ignore[arg-type]
        self.events.append(event)
        if not side:
            self.tail = event.uuid
        return self

    def user(self, **given: object) -> Script:
        """A real prompt."""
        return self.add(UserSaid, **given)

    def answer(self, *calls: str, visible: bool = True, **given: object) -> Script:
        """A model answer that opens these calls."""
        return self.add(AssistantSaid, visible=visible, calls=calls, **given)

    def result(self, *calls: str) -> Script:
        """Tool results that close these calls."""
        return self.add(ToolReturned, calls=calls)

    def title(self, title: str, source: TitleSource | None = AUTO, **given: object) -> Script:
        """A title record."""
        return self.add(TitleSet, title=title, source=source, **given)

    @property
    def state(self) -> SessionState:
        """The state after all of it."""
        return fold_all(SessionState(), self.events)


def test_an_empty_session_is_idle_and_not_sound() -> None:
    """There is nothing to chain to."""
    state = SessionState()
    assert (state.leaf, state.title, state.user_turns, state.running, state.sound) == (None, None, 0, False, False)


def test_identity_comes_from_the_records() -> None:
    """The first directory and time, the leaf's directory and version, the end of what was folded."""
    state = Script().user(cwd="/first").answer(cwd="/second", version="0.25.0").add(Noted, cwd="", version="").state
    assert (state.session_id, state.mixed_ids, state.sound) == ("s", False, True)
    assert (state.first_cwd, state.cwd, state.version) == ("/first", "/second", "0.25.0")
    assert (state.first_at, state.last_record_at) == (1000.0, 1002.0)
    assert (state.records, state.end, state.leaf) == (3, 300, "u2")


def test_a_second_session_id_is_told() -> None:
    """Qwen Code refuses such a file, artifacts included; records that it ignores do not count."""
    assert Script().user().user(session_id="other").state.mixed_ids
    assert Script().user().add(Noted, session_id="other", chained=False).state.mixed_ids
    state = Script().user().title("T", session_id="", chained=False).add(Unknown, session_id="x", chained=False).state
    assert (state.mixed_ids, state.session_id) == (False, "s")
    first = Script().add(Unknown, session_id="x", chained=False).add(Noted, session_id="", chained=False).user().state
    assert (first.mixed_ids, first.session_id) == (False, "s")


def test_records_left_out_of_the_chain_change_nothing_of_the_turn() -> None:
    """They are counted and dated, and that is all."""
    before = Script().user().answer()
    after = Script().user().answer().user(chained=False).answer("c", chained=False, visible=True)
    after.add(Rewound, chained=False).add(RecapShown, text="r", chained=False)
    for name in ("leaf", "user_turns", "running", "open_calls", "turn", "shown_turn", "moves", "recap", "cwd"):
        assert getattr(after.state, name) == getattr(before.state, name)
    assert (after.state.records, after.state.end, after.state.last_record_at) == (6, 600, 1005.0)


def test_unknown_types_are_counted() -> None:
    """A file with types that the contract does not know; a fragment without a type is no new type."""
    script = Script().user().add(Unknown, chained=False, type="weird").add(Unknown, chained=False, type="")
    assert script.state.unknown_types == 1


def test_a_turn_runs_from_the_prompt_to_an_answer_without_calls() -> None:
    """Prompt, call, result and the wait after it are work; the last answer ends it (contract 2.6)."""
    script = Script()
    script.add(Noted).user().add(Noted).answer("c1", "c2").result("c1").result("c2").answer().add(Noted).title("T")
    states = [fold_all(SessionState(), script.events[: count + 1]) for count in range(len(script.events))]
    assert [state.running for state in states] == [False, True, True, True, True, True, False, False, False]
    assert states[-1].open_calls == frozenset()


def test_open_calls_are_known_by_id() -> None:
    """A result closes the calls that it names, and any call without an id."""
    assert Script().user().answer("a", "b", "").state.open_calls == {"a", "b", ""}
    assert Script().user().answer("a", "b", "").result("a").state.open_calls == {"b"}
    assert Script().user().answer("a").result().state.open_calls == {"a"}


def test_a_new_answer_settles_older_calls() -> None:
    """The model cannot answer before it has the results, recorded or not; a fragment adds to its answer."""
    assert not Script().user().answer("a").answer().state.running
    fragments = Script().user().answer("a").answer(uuid="u1").state
    assert (fragments.running, fragments.open_calls) == (True, frozenset({"a"}))


@pytest.mark.parametrize("count", [MAX_OPEN_CALLS, MAX_OPEN_CALLS + 50])
def test_open_calls_are_bounded(count: int) -> None:
    """A hostile file cannot grow them, in one record or in many fragments; the turn still runs."""
    state = Script().user().answer(*(f"c{number}" for number in range(count))).state
    assert (len(state.open_calls), state.running) == (MAX_OPEN_CALLS, True)
    script = Script().user()
    for number in range(count):
        script.answer(f"c{number}", uuid="same")
    assert 0 < len(script.state.open_calls) <= MAX_OPEN_CALLS


@pytest.mark.parametrize("kind", [TurnEnded, Rewound])
def test_an_end_mark_or_a_rewind_ends_the_turn(kind: type[Event]) -> None:
    """Whatever state it was in."""
    state = Script().user().answer("a").add(kind).state
    assert (state.running, state.open_calls) == (False, frozenset())
    assert state.has_turn_marks is (kind is TurnEnded)


def test_a_prompt_ends_what_an_earlier_turn_left_open() -> None:
    """A cancelled call is never answered."""
    assert Script().user().answer("a").user().state.open_calls == frozenset()


def test_a_compression_does_not_end_a_turn() -> None:
    """The model goes on with the summary."""
    assert Script().user().add(Compressed).state.running
    assert not Script().user().answer().add(Compressed).state.running


@pytest.mark.parametrize("kind", InputKind)
def test_any_input_means_work(kind: InputKind) -> None:
    """Also a blank prompt, a notification, a timer; none of them is a user turn."""
    state = Script().user().answer().add(InputArrived, kind=kind).state
    assert (state.running, state.user_turns, state.turn) == (True, 1, "u0")
    assert state.moves == (1 if kind is InputKind.BLANK else 2)
    assert not Script().user().answer().add(InputArrived, kind=kind).answer().state.running


def test_visible_answers_show_a_turn() -> None:
    """The newest prompt that was answered with text; a bare call or a cancelled prompt shows nothing."""
    script = Script().user().answer("a", visible=False).result("a")
    assert (script.state.turn, script.state.shown_turn) == ("u0", "")
    assert script.answer().state.shown_turn == "u0"
    assert script.user().state.shown_turn == "u0"
    assert script.answer(visible=False).state.shown_turn == "u0"
    assert script.answer().state.shown_turn == "u4"
    assert script.state.assistant_records == 4


def test_moves_make_prepared_texts_stale() -> None:
    """Prompts, rewinds, compressions and input count; answers, titles and notes do not."""
    script = Script().user().answer().title("T").add(Noted).add(RecapShown, text="r").add(SnapshotTaken)
    assert script.state.moves == 1
    script.add(Rewound).add(Compressed).user().add(InputArrived, kind=InputKind.CRON)
    assert script.state.moves == 5


def test_activity_is_the_users_and_the_models() -> None:
    """Tools, notes, titles and timers are nobody's life; what cannot be dated keeps the last date."""
    script = Script().user().answer()
    assert (script.state.last_user_at, script.state.last_activity_at) == (1000.0, 1001.0)
    script.result("x").add(Noted).title("T").add(InputArrived, kind=InputKind.CRON).user(at=None).answer(at=None)
    assert (script.state.last_user_at, script.state.last_activity_at) == (1000.0, 1001.0)
    script.add(InputArrived, kind=InputKind.MID_TURN)
    assert (script.state.last_user_at, script.state.last_activity_at, script.state.last_record_at) == (1008.0,) * 3


def test_flags_of_the_kind_of_session() -> None:
    """Snapshots are an interactive session's, sources and parents an agent's."""
    state = Script().user().add(SnapshotTaken).add(SourceNamed).state
    assert (state.has_snapshot, state.has_source, state.has_turn_marks) == (True, True, False)
    state = Script().user().state
    assert (state.has_snapshot, state.has_source) == (False, False)


def test_equal_titles_in_a_row_are_one_run() -> None:
    """With the places of its first and last record, its newest uuids, and how many there are."""
    script = Script().title("A").title("B", MANUAL)
    for _ in range(MAX_RUN_UUIDS + 4):
        script.title("B", MANUAL, side=True)
    script.title("B", None).title("A")
    assert [(run.title, run.source, run.count) for run in script.state.titles] == [
        ("A", AUTO, 1),
        ("B", MANUAL, MAX_RUN_UUIDS + 5),
        ("B", None, 1),
        ("A", AUTO, 1),
    ]
    run = script.state.titles[1]
    assert (run.first_offset, run.first_end, run.last_offset, run.last_end) == (100, 200, 2100, 2200)
    assert (run.last_uuid, run.uuids[-1], len(run.uuids)) == ("u21", "u21", MAX_RUN_UUIDS)
    assert [each.is_manual for each in script.state.titles] == [False, True, True, False]
    assert script.state.last_title_end == script.state.end


def test_titles_count_without_identity_and_without_text() -> None:
    """The picker reads them as text; an empty one says that there is none."""
    state = Script().user().title("T", chained=False).title("", MANUAL).state
    assert state.title is not None
    assert (state.title.title, len(state.titles), state.leaf) == ("", 2, "u2")


def test_the_newest_manual_title_is_never_forgotten() -> None:
    """Of many runs the newest are kept, and the user's last word in any case."""
    script = Script().title("old", MANUAL).title("mine", None)
    for number in range(3 * MAX_RUNS):
        script.title(f"auto {number}")
    titles = script.state.titles
    assert len(titles) == MAX_RUNS
    assert (titles[0].title, titles[1].title, titles[-1].title) == ("mine", "auto 129", "auto 191")
    for number in range(MAX_RUNS):
        script.title(f"auto {number}").title(f"by hand {number}", MANUAL)
    assert len(script.state.titles) == MAX_RUNS
    assert script.state.titles[-1].title == "by hand 63"


def test_recaps_count_on_the_active_branch() -> None:
    """The mark is the newest in file order; turns are counted since the one on the branch."""
    script = Script().user().answer().add(RecapShown, text="one").user().answer()
    side = script.tail
    script.add(RecapShown, text="two", side=True)
    script.user(parent=side)
    state = script.state
    assert state.recap is not None
    assert (state.recap.uuid, state.recap.text, state.recap.at) == ("u5", "two", 1005.0)
    assert (state.user_turns, state.turns_since_recap) == (3, 2)
    assert Script().user().answer().add(RecapShown, text="x").state.turns_since_recap == 0


def test_a_rewind_takes_turns_back() -> None:
    """Abandoned turns do not count; a rewind to the first turn starts anew and breaks nothing."""
    script = Script().user().answer().user().answer()
    assert script.add(Rewound, parent="u1").state.user_turns == 1
    assert script.user().state.user_turns == 2
    script.add(Rewound, parent=None).user()
    assert (script.state.user_turns, script.state.sound) == (1, True)


@pytest.mark.parametrize("parent", [None, "nowhere"])
def test_hidden_history_makes_a_file_unsound(parent: str | None) -> None:
    """A wrong parent in the last record (vectors C05, C06)."""
    assert not Script().user().answer().title("T", parent=parent).state.sound


def test_a_tail_of_a_file_is_sound_without_its_beginning() -> None:
    """What came before was not read, which is no break; the counters say that they may miss something."""
    events = Script().user().answer().user().answer().events[2:]
    state = fold_all(SessionState(partial=True), events)
    assert (state.sound, state.user_turns, state.chain.exact) == (True, 1, False)
    assert not fold_all(SessionState(), events).sound


ids = st.sampled_from(["u1", "u2", "u3"])
common = {
    "uuid": ids,
    "parent": ids | st.none(),
    "session_id": st.sampled_from(["", "s", "t"]),
    "at": st.none() | st.floats(0, 10),
    "cwd": st.sampled_from(["", "/c"]),
    "version": st.just("v"),
    "offset": st.integers(0, 9),
    "end": st.integers(0, 9),
    "chained": st.booleans(),
}
calls = st.lists(ids, max_size=2).map(tuple)
any_event = st.one_of(
    st.builds(UserSaid, **common),
    st.builds(InputArrived, **common, kind=st.sampled_from(InputKind)),
    st.builds(AssistantSaid, **common, visible=st.booleans(), calls=calls),
    st.builds(ToolReturned, **common, calls=calls),
    st.builds(TurnEnded, **common),
    st.builds(TitleSet, **common, title=st.sampled_from(["", "T"]), source=st.sampled_from([AUTO, MANUAL, None])),
    st.builds(RecapShown, **common, text=st.just("r")),
    st.builds(Rewound, **common),
    st.builds(Compressed, **common),
    st.builds(Noted, **common),
    st.builds(Unknown, **common),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(any_event, max_size=20), st.integers(0, 20))
def test_folding_in_any_steps_gives_the_same_state(events: list[Event], cut: int) -> None:
    """One by one, in two parts or at once; and an older state is as it was."""
    whole = fold_all(SessionState(), events)
    half = fold_all(SessionState(), events[:cut])
    assert fold_all(half, events[cut:]) == whole
    state = SessionState()
    for event in events:
        state = fold(state, event)
    assert state == whole
    assert half == fold_all(SessionState(), events[:cut])


def test_the_draft_has_the_fields_of_the_state() -> None:
    """Values pass between the two by position."""
    assert [each.name for each in fields(session._Draft)] == [each.name for each in fields(SessionState)]
