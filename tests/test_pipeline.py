"""The main flow on a world of values: what is asked when, what is written, what is waited for, what is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.test_policy import AUTO, MANUAL, Story
from tests.support.fakes import FakeFile, FakeWorld, reason_of, text
from watcher.core.decisions import Decision, WaitUntil
from watcher.core.generation import Kind
from watcher.core.reasons import Reason
from watcher.core.writing import Declined, Failed, WriteOutcome
from watcher.errors import StateError
from watcher.pipeline import FORGET_SECONDS, Pipeline, Refusal, Text, Tracked, Unsafe

PATH = "/h/projects/p/chats/a.jsonl"
SETTLE = 8.0


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def pipeline(world: FakeWorld) -> Pipeline:
    return Pipeline(world, kinds=(Kind.TITLE,))


def put(world: FakeWorld, story: Story, path: str = PATH) -> None:
    """The file at `path` now holds this story, just changed."""
    state = replace(story.state, last_record_at=world.clock)
    world.files[path] = FakeFile(state, story.size, world.clock)


def advance(world: FakeWorld, pipeline: Pipeline, seconds: float) -> None:
    """Time passes; deadlines on the way are kept."""
    until = world.clock + seconds
    while (due := pipeline.next_deadline()) is not None and due <= until:
        world.clock = max(world.clock, due)
        pipeline.on_deadline(world.clock)
    world.clock = until


def test_a_new_session_is_asked_for_once_it_is_still(world: FakeWorld, pipeline: Pipeline) -> None:
    """One change, one quiet time, one call, one title."""
    put(world, Story().turn())
    pipeline.on_change(PATH)
    assert world.calls == []
    advance(world, pipeline, SETTLE)
    assert world.calls == [(PATH, "u1")]
    pipeline.on_answer(PATH, text("u1"))
    assert [each.text for each in world.written] == ["Fix login test"]


def test_a_burst_of_changes_is_decided_once(world: FakeWorld, pipeline: Pipeline) -> None:
    """A file that keeps growing is not looked at more often than it settles."""
    story = Story().turn()
    for _ in range(50):
        story.turn()
        put(world, story)
        pipeline.on_change(PATH)
        advance(world, pipeline, 0.1)
    assert world.decisions == []
    advance(world, pipeline, SETTLE)
    assert len(world.calls) == 1


def test_growth_of_a_known_session_is_read_on_alone(world: FakeWorld, pipeline: Pipeline) -> None:
    """It tells how soon something is to be looked at, and decides nothing; the quiet time begins anew."""
    story = Story().turn()
    put(world, story)
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE - 1.0)
    put(world, story.turn())
    assert pipeline.read_on(PATH) == 1.0
    assert world.decisions == []
    advance(world, pipeline, SETTLE - 1.0)
    assert world.calls == []
    advance(world, pipeline, SETTLE)
    assert world.calls == [(PATH, "u4")]


def test_growth_tells_of_what_is_overdue(world: FakeWorld, pipeline: Pipeline) -> None:
    """The clock went on while the machine slept: another session is to be looked at already."""
    other = PATH.replace("a.jsonl", "b.jsonl")
    for path in (PATH, other):
        put(world, Story().turn(), path)
        pipeline.on_change(path)
    world.clock += 3600.0
    put(world, Story().turn().turn())
    wanted_in = pipeline.read_on(PATH)
    assert wanted_in is not None
    assert wanted_in < 0.0


@pytest.mark.parametrize("tracked", [False, True])
def test_what_is_more_than_growth_is_not_read_on(world: FakeWorld, pipeline: Pipeline, *, tracked: bool) -> None:
    """A session that is not known, or not there any more: nothing is done, `on_change` does it."""
    put(world, Story().turn())
    if tracked:
        pipeline.on_change(PATH)
        del world.files[PATH]
    known = pipeline.sessions()
    assert pipeline.read_on(PATH) is None
    assert pipeline.sessions() == known


def test_each_ended_turn_gets_one_attempt(world: FakeWorld, pipeline: Pipeline) -> None:
    """A failed attempt is not repeated for the same turn; the next turn gets another."""
    story = Story().turn()
    put(world, story)
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    pipeline.on_answer(PATH, Refusal(Kind.TITLE, Reason.MODEL_ERROR))
    advance(world, pipeline, 500)
    assert len(world.calls) == 1
    put(world, story.turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    assert [turn for _, turn in world.calls] == ["u1", "u4"]
    assert [refusal.reason for refusal in world.refusals] == [Reason.MODEL_ERROR]


def test_only_what_moved_since_it_was_last_seen_counts(world: FakeWorld, pipeline: Pipeline) -> None:
    """A file as an earlier run left it costs nothing; one that has grown since is new work."""
    story = Story().turn()
    put(world, story)
    world.baselines[PATH] = story.size
    pipeline.on_change(PATH)
    advance(world, pipeline, 100)
    assert world.calls == []
    assert reason_of(world.decisions[-1]) is Reason.NOTHING_NEW
    put(world, story.turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    assert len(world.calls) == 1


def test_a_copy_that_is_still_being_made_is_not_new(world: FakeWorld, pipeline: Pipeline) -> None:
    """It grows to the size of its original; only what comes beyond is new."""
    half, whole = Story().turn(), Story().turn().turn()
    world.originals[PATH] = whole.size
    for story in (half, whole):
        put(world, story)
        pipeline.on_change(PATH)
        advance(world, pipeline, 100)
    assert world.calls == []
    put(world, whole.turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    assert len(world.calls) == 1


def test_a_text_that_is_locked_out_is_kept(world: FakeWorld, pipeline: Pipeline) -> None:
    """The write is refused for now: the text is stored, and no second call is made for it."""
    put(world, Story().turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    world.outcome = Declined(Reason.LOCKED, "a lease")
    world.due = WaitUntil(world.clock + 10, Reason.LOCKED)
    pipeline.on_answer(PATH, text("u1"))
    assert len(world.kept) == 1
    advance(world, pipeline, 100)
    assert len(world.calls) == 1


def refuse_state(*_: object) -> None:
    """What a full disk does to the state database."""
    raise StateError("disk is full")


@pytest.mark.parametrize("failing", ["write", "keep"])
def test_an_answer_outlives_a_state_that_cannot_be_used(
    world: FakeWorld, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """It is paid: held, tried again at each look and at the stop, never asked for again, and written once."""
    put(world, Story().turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    world.outcome = Declined(Reason.LOCKED, "a lease") if failing == "keep" else world.outcome
    with monkeypatch.context() as patch:
        patch.setattr(world, failing, refuse_state)
        with pytest.raises(StateError):
            pipeline.on_answer(PATH, text("u1"))
        put(world, Story().turn().turn())
        for attempt in (pipeline.on_circumstances, lambda: pipeline.on_change(PATH), pipeline.on_stop):
            with pytest.raises(StateError):
                attempt()
                pipeline.on_circumstances()
        assert len(world.calls) == 1
    pipeline.on_circumstances()
    pipeline.on_circumstances()
    assert len(world.kept if failing == "keep" else world.written) == 1


def test_an_answer_of_a_deleted_session_is_not_held(
    world: FakeWorld, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is gone: so is its text."""
    put(world, Story().turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    with monkeypatch.context() as patch:
        patch.setattr(world, "write", refuse_state)
        with pytest.raises(StateError):
            pipeline.on_answer(PATH, text("u1"))
        world.files.clear()
        pipeline.on_circumstances()
    put(world, Story().turn())
    pipeline.on_circumstances()
    assert world.written == []


def test_held_answers_are_bounded(world: FakeWorld, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the oldest is given up, and its session asked for again at its next turn."""
    monkeypatch.setattr("watcher.pipeline.MAX_UNPLACED", 2)
    with monkeypatch.context() as patch:
        patch.setattr(world, "write", refuse_state)
        for path in ("/p/1", "/p/2", "/p/3"):
            put(world, Story().turn(), path)
            with pytest.raises(StateError):
                pipeline.on_answer(path, text("u1"))
    pipeline.on_stop()
    assert len(world.written) == 2


@pytest.mark.parametrize(
    "outcome",
    [
        Declined(Reason.LOCKED, "a lease"),
        Declined(Reason.WORKING, "a turn is running"),
        Declined(Reason.PAUSED, "until `resume`"),
        Failed(Reason.UNSAFE_FILE, "no space left on the device"),
    ],
)
def test_a_text_that_can_be_written_later_is_kept(
    world: FakeWorld, pipeline: Pipeline, outcome: Declined | Failed
) -> None:
    """It is paid, and nothing of it stands in the file."""
    put(world, Story().turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    world.outcome = outcome
    pipeline.on_answer(PATH, text("u1"))
    assert len(world.kept) == 1
    pipeline.on_circumstances()
    assert (len(world.kept), len(world.calls)) == (1, 1)


@pytest.mark.parametrize(
    "outcome",
    [
        Declined(Reason.MANUAL_TITLE),
        Declined(Reason.NOTHING_NEW),
        Declined(Reason.UNSAFE_FILE),
        Declined(Reason.UNSUPPORTED_VERSION),
        Failed(Reason.UNSAFE_FILE, "cut", anomaly="short write"),
    ],
)
def test_a_text_that_lost_is_dropped(world: FakeWorld, pipeline: Pipeline, outcome: Declined | Failed) -> None:
    """A title that came in between, or an anomaly: nothing is kept."""
    put(world, Story().turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    world.outcome = outcome
    pipeline.on_answer(PATH, text("u1"))
    assert world.kept == []


def test_the_end_of_an_owner_is_looked_at_at_once(world: FakeWorld, pipeline: Pipeline) -> None:
    """A turn that ran when its Qwen Code ended is over then."""
    put(world, Story().turn(calls=("c",)))
    world.owners.add(PATH)
    pipeline.on_change(PATH)
    advance(world, pipeline, 3600)
    assert world.calls == []
    world.owners.clear()
    world.changed_owners.add(PATH)
    pipeline.on_owners()
    assert len(world.calls) == 1


def test_an_owned_session_stays_known_and_a_quiet_one_is_forgotten(world: FakeWorld, pipeline: Pipeline) -> None:
    """Memory is for sessions that move, or that somebody has open."""
    put(world, Story().turn().title("x", MANUAL))
    world.owners.add(PATH)
    pipeline.on_change(PATH)
    advance(world, pipeline, 10 * FORGET_SECONDS)
    assert len(pipeline) == 1
    world.owners.clear()
    world.changed_owners.add(PATH)
    pipeline.on_owners()
    assert world.left == [PATH]
    assert len(pipeline) == 0
    assert pipeline.next_deadline() is None


def test_the_end_of_an_owner_is_judged_on_the_file_as_it_is_then(world: FakeWorld, pipeline: Pipeline) -> None:
    """What it wrote at its end counts, also where the event of the file is still on its way."""
    story = Story().turn()
    put(world, story)
    pipeline.on_change(PATH)
    put(world, story.turn())
    world.changed_owners.add(PATH)
    pipeline.on_owners()
    session = pipeline.session(PATH)
    assert session is not None
    assert (session.state.user_turns, len(world.decisions)) == (2, 1)


@pytest.mark.parametrize("obstacle", [{"paused": "until resume"}, {"calls_left": 0}])
def test_what_waits_for_the_world_is_not_forgotten(
    world: FakeWorld, pipeline: Pipeline, obstacle: dict[str, object]
) -> None:
    """A pause or an empty budget ends some day: the session is titled then, though it has long been quiet."""
    free = world.facts
    world.facts = replace(world.facts, **obstacle)  # type: ignore[arg-type]
    put(world, Story().turn())
    pipeline.on_change(PATH)
    advance(world, pipeline, 5 * FORGET_SECONDS)
    assert (len(pipeline), world.calls) == (1, [])
    world.facts = free
    pipeline.on_circumstances()
    assert len(world.calls) == 1


def test_a_deleted_file_is_forgotten_with_its_deadlines(world: FakeWorld, pipeline: Pipeline) -> None:
    """Nothing is asked or written for a file that has gone."""
    put(world, Story().turn())
    pipeline.on_change(PATH)
    del world.files[PATH]
    advance(world, pipeline, 100)
    assert len(pipeline) == 0
    assert world.forgotten == [PATH]
    pipeline.on_answer(PATH, text("u1"))
    assert (world.calls, world.written) == ([], [])


def test_an_unsafe_file_is_told_of_and_left_alone(world: FakeWorld, pipeline: Pipeline) -> None:
    """A link or FIFO is never tracked."""
    world.files[PATH] = Unsafe("a symbolic link")
    pipeline.on_change(PATH)
    assert world.told == [PATH]
    assert pipeline.next_deadline() is None


def test_the_same_decision_is_told_once(world: FakeWorld, pipeline: Pipeline) -> None:
    """One line for a reason, not one for each look."""
    put(world, Story().turn().title("x", MANUAL))
    pipeline.on_change(PATH)
    for _ in range(5):
        pipeline.on_circumstances()
    assert [reason_of(each) for each in world.decisions] == [Reason.MANUAL_TITLE]


def test_a_fault_in_one_session_keeps_no_other_from_its_turn(
    world: FakeWorld, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is told; the sessions after it are decided all the same."""
    paths = ["/p/1", "/p/2", "/p/3"]
    for path in paths:
        put(world, Story().turn(), path)
        pipeline.on_change(path)
    decide = world.decide

    def faulty(kind: Kind, session: Tracked, now: float) -> Decision:
        if session.path == "/p/1":
            raise ZeroDivisionError
        return decide(kind, session, now)

    monkeypatch.setattr(world, "decide", faulty)
    world.clock += SETTLE
    pipeline.on_circumstances()
    assert world.faults == [("/p/1", ZeroDivisionError)]
    assert [path for path, _ in world.calls] == ["/p/2", "/p/3"]


def test_memory_is_bounded(world: FakeWorld, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """More sessions than the bound: the stillest are left."""
    monkeypatch.setattr("watcher.pipeline.MAX_TRACKED", 10)
    for number in range(25):
        put(world, Story().turn(), f"/p/{number}")
        pipeline.on_change(f"/p/{number}")
        world.clock += 0.01
    assert len(pipeline) == 10
    assert world.left == world.forgotten == [f"/p/{number}" for number in range(15)]


def test_one_look_at_a_time_when_asked_for(world: FakeWorld, pipeline: Pipeline) -> None:
    """Many sessions that are due at once do not keep what comes in from being taken."""
    for number in range(5):
        put(world, Story().turn(), f"/p/{number}")
        pipeline.on_change(f"/p/{number}")
    world.clock += SETTLE
    for looked in range(1, 6):
        pipeline.on_deadline(world.clock, most=1)
        assert len(world.calls) == looked
    assert pipeline.next_deadline() != world.clock


def test_what_waits_in_a_session_is_looked_at_when_it_is_due(world: FakeWorld, pipeline: Pipeline) -> None:
    """A kept text, a title to heal: also where nothing else is to be decided, and however long it is quiet."""
    put(world, Story().turn().title("x", MANUAL))
    looks: list[float] = []

    def deliver(session: Tracked, now: float) -> WaitUntil | None:
        looks.append(now)
        return WaitUntil(now + 10.0, Reason.LOCKED) if len(looks) < 200 else WaitUntil(None, Reason.LOCKED)

    world.deliver = deliver  # type: ignore[method-assign]
    pipeline.on_change(PATH)
    begun = world.clock
    advance(world, pipeline, 100.0)
    assert len(looks) >= 9
    advance(world, pipeline, 10 * FORGET_SECONDS)
    assert len(looks) >= 200
    assert (len(pipeline), world.left) == (1, [])
    assert looks[-1] > begun + FORGET_SECONDS


def test_our_own_line_is_no_movement(world: FakeWorld, pipeline: Pipeline) -> None:
    """The session is as still as before it."""
    story = Story().turn()
    put(world, story)
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE)
    session = pipeline.session(PATH)
    assert session is not None
    assert session.in_flight == {Kind.TITLE}
    still = session.still_since
    wrote = world.write

    def write(session: Tracked, text: Text) -> WriteOutcome:
        world.files[PATH] = FakeFile(story.title("Fix login test", AUTO).state, story.size, world.clock)
        return wrote(session, text)

    world.write = write  # type: ignore[method-assign]
    world.clock += 5.0
    pipeline.on_answer(PATH, text("u1"))
    assert session.in_flight == set()
    pipeline.on_circumstances()
    assert session.still_since == still


def test_a_file_that_has_long_been_still_is_not_waited_for(world: FakeWorld, pipeline: Pipeline) -> None:
    """Its event was late, or the watcher was not there: stillness counts from its last change."""
    put(world, Story().turn())
    world.clock += 3600.0
    pipeline.on_change(PATH)
    pipeline.on_deadline(world.clock)
    assert len(world.calls) == 1


def test_a_file_that_was_cut_off_is_not_still(world: FakeWorld, pipeline: Pipeline) -> None:
    """Whatever changes its size is a change."""
    long, short = Story().turn().turn(), Story().turn()
    put(world, long)
    pipeline.on_change(PATH)
    world.clock += SETTLE - 1.0
    put(world, short)
    pipeline.on_change(PATH)
    advance(world, pipeline, SETTLE - 1.0)
    assert world.calls == []
    advance(world, pipeline, 1.0)
    assert len(world.calls) == 1


def test_a_session_with_a_kept_text_is_tracked_though_its_file_did_not_move(
    world: FakeWorld, pipeline: Pipeline
) -> None:
    """After a start nothing else tells of it."""
    story = Story().turn().title("x", MANUAL)
    put(world, story)
    world.baselines[PATH] = story.size
    world.due = WaitUntil(world.clock + 10.0, Reason.LOCKED)
    pipeline.track(PATH)
    assert pipeline.session(PATH) is not None
    assert pipeline.next_deadline() == world.clock + 10.0
