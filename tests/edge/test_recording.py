"""All writing to session files as the rest of the program asks for it, on real files and a real state database."""

from __future__ import annotations

import json
import os
import re
import traceback
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.transcripts import Transcript, chain_of
from watcher.core.events import TitleSource
from watcher.core.generation import Kind
from watcher.core.owner import NOBODY, Alive, Owner, Ownership, OwnerSource
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.write_rules import RecapBasis
from watcher.core.writing import Declined, Failed, SessionFile, Target, TitleLine, WriteOutcome, Written
from watcher.edge.files import RealFiles
from watcher.edge.store import JournalKind, PendingKind, Store
from watcher.edge.writer import SessionWriter
from watcher.qwen.contract import lease_paths
from watcher.qwen.paths import SessionRef, session_ref
from watcher.qwen.reading import Reading, read_state
from watcher.recording import Recorder, Retry, StoreIntents

NOW = 1_796_100_000.0
OLD = 1_796_000_050.25


def owners(*kinds: str) -> Ownership:
    """Live owners of these kinds, and one terminal that has gone."""
    live = tuple(
        Owner(pid=10 + number, kind=kind, session_id="", alive=Alive.LIVE, source=OwnerSource.REGISTRY)
        for number, kind in enumerate(kinds)
    )
    gone = Owner(pid=1, kind="tui", session_id="", alive=Alive.GONE, source=OwnerSource.REGISTRY)
    return Ownership((*live, gone))


class House:
    """One state directory with a recorder, and a session in a home."""

    def __init__(self, folder: Path, session: Transcript, *, refused: Callable[[str], str] = lambda _: "") -> None:
        self.session = session
        self.owners = owners()
        self.now = NOW
        self.refused = refused
        self.folder = folder
        self.files = RealFiles()
        self.store: Store
        self.recorder: Recorder
        self.start()

    def start(self) -> None:
        """A process of ours starts."""
        self.store = Store.open(self.folder)
        self.writer = SessionWriter(
            self.files,
            StoreIntents(self.store),
            clock=lambda: self.now,
            new_uuid=lambda: str(uuid.uuid4()),
            pause=lambda _: os.sched_yield(),
        )
        self.recorder = Recorder(
            self.store,
            self.writer,
            ownership=lambda _: self.owners,
            refused_mount=self.refused,
            clock=lambda: self.now,
        )

    def restart(self) -> None:
        """It ends, and another one starts."""
        self.store.close()
        self.start()
        self.recorder.recover(session_ref)

    @property
    def ref(self) -> SessionRef:
        """The session."""
        ref = session_ref(str(self.session.path))
        assert ref is not None
        return ref

    def look(self) -> Reading:
        """The file as it is."""
        with self.session.path.open("rb") as file:
            fd = file.fileno()
            found = os.fstat(fd)
            return read_state(
                lambda length, offset: os.pread(fd, length, offset),
                dev=found.st_dev,
                ino=found.st_ino,
                size=found.st_size,
                window=1 << 26,
            )

    @property
    def state(self) -> SessionState:
        """What the file says."""
        return self.look().state

    def title(self, text: str = "Fix login test") -> WriteOutcome:
        """An automatic title."""
        return self.recorder.automatic_title(self.ref, text, "m", self.look())

    def recap(self, text: str = "Fixing login. Next: tests.") -> WriteOutcome:
        """A recap of the session as it is."""
        look = self.look()
        return self.recorder.recap(self.ref, text, "m", RecapBasis(look.state.turn, look.state.moves), look)

    def deliver(self) -> Retry | None:
        """What is due without a model call."""
        look = self.look()
        return self.recorder.deliver(self.ref, look.state, look.size, self.session.path.stat().st_mtime, look)

    @property
    def shown(self) -> tuple[str, str | None] | None:
        """The title that stands last."""
        run = self.state.title
        return None if run is None else (run.title, run.source.value if run.source else None)

    @property
    def waiting(self) -> set[PendingKind]:
        """What is kept for later."""
        return {each.kind for each in self.store.pending(self.ref.session_id)}

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.session.path.read_bytes()


@pytest.fixture
def session(tmp_path: Path) -> Transcript:
    made = Transcript(tmp_path / ".qwen" / "projects" / "-home-user-proj" / "chats")
    made.turn("fix the login test", "Done, added a wait.")
    made.set_mtime(OLD)
    return made


@pytest.fixture
def house(tmp_path: Path, session: Transcript) -> Iterator[House]:
    made = House(tmp_path / "state", session)
    yield made
    made.store.close()


def old(house: House) -> None:
    """Time passes."""
    house.session.set_mtime(OLD)


# -- the user's own words ----------------------------------------------------------------------------------------------


def test_a_name_given_to_a_free_session_is_done_at_once(house: House) -> None:
    """Nobody can write over it, so nothing is kept."""
    outcome, kept = house.recorder.manual_title(house.ref, "My name", house.look())
    assert isinstance(outcome, Written)
    assert not kept
    assert house.shown == ("My name", "manual")
    assert not house.waiting


@pytest.mark.parametrize("restart", [False, True])
def test_a_name_is_put_last_when_the_cli_that_held_another_has_ended(house: House, restart: bool) -> None:
    """Design 4: written now, kept, put last when the session closes; also by the next process of ours."""
    house.session.title("Theirs")
    house.owners = owners("tui")
    outcome, kept = house.recorder.manual_title(house.ref, "My name", house.look())
    assert isinstance(outcome, Written)
    assert kept
    house.session.title("Theirs", side=True)
    retry = house.deliver()
    assert retry is not None
    assert retry.at is None
    assert house.shown == ("Theirs", "auto")
    if restart:
        house.restart()
    house.owners = owners()
    old(house)
    assert house.deliver() is None
    assert house.shown == ("My name", "manual")
    assert not house.waiting
    before = house.data
    assert house.deliver() is None
    assert house.data == before


def test_a_name_is_not_put_over_a_newer_rename(house: House) -> None:
    """The user renamed in the CLI meanwhile, and somebody's memory came last: nothing of ours on top."""
    house.session.title("Theirs")
    house.owners = owners("tui")
    house.recorder.manual_title(house.ref, "My name", house.look())
    house.session.title("Newer", "manual")
    house.session.title("Theirs", side=True)
    house.owners = owners()
    old(house)
    before = house.data
    assert house.deliver() is None
    assert house.data == before
    assert not house.waiting


def test_a_second_wish_replaces_the_first(house: House) -> None:
    """Only the newest name comes back."""
    house.session.title("Theirs")
    house.owners = owners("tui")
    house.recorder.manual_title(house.ref, "First", house.look())
    house.recorder.manual_title(house.ref, "Second", house.look())
    house.session.title("Theirs", side=True)
    house.owners = owners()
    old(house)
    house.deliver()
    assert house.shown == ("Second", "manual")


def test_a_refused_wish_leaves_the_earlier_one(house: House) -> None:
    """A name that could not be written changes nothing of what is kept."""
    house.session.title("Theirs")
    house.owners = owners("tui")
    house.recorder.manual_title(house.ref, "First", house.look())
    lease(house)
    outcome, kept = house.recorder.manual_title(house.ref, "Second", house.look())
    assert isinstance(outcome, Declined)
    assert not kept
    assert house.waiting == {PendingKind.MANUAL_TITLE}


def test_the_last_words_of_an_owner_are_seen_before_a_wish_is_dropped(house: House) -> None:
    """The CLI wrote its title and ended after the file was looked at: the name is put last all the same."""
    house.session.title("Theirs")
    house.owners = owners("tui")
    house.recorder.manual_title(house.ref, "My name", house.look())
    look = house.look()
    house.session.title("Theirs", side=True)
    house.owners = owners()
    old(house)
    house.recorder.deliver(house.ref, look.state, look.size, OLD, look)
    assert house.shown == ("My name", "manual")


class Meanwhile(RealFiles):
    """The real calls, with something happening once before our write and once behind all of it."""

    def __init__(self, before: Callable[[], object], behind: Callable[[], object]) -> None:
        self._todo = {"write": before, "behind": behind}

    def write(self, fd: int, data: bytes) -> int:
        self._todo.pop("write", lambda: None)()
        return super().write(fd, data)

    def close(self, fd: int) -> None:
        super().close(fd)
        if "write" not in self._todo:
            self._todo.pop("behind", lambda: None)()


@pytest.mark.parametrize("raced", [False, True])
def test_a_name_outlives_a_cli_that_came_and_went_while_it_was_written(house: House, raced: bool) -> None:
    """A CLI that held another title, read before our line or given beside it, wrote it behind our line and has ended
    before anybody could see it live: the name is put last at once, and nothing is kept.
    """
    if not raced:
        house.session.title("Theirs", "manual")
        old(house)
    house.files = Meanwhile(
        lambda: house.session.title("Theirs", "manual") if raced else None,
        lambda: house.session.title("Theirs", "manual", side=True),
    )
    house.restart()
    outcome, kept = house.recorder.manual_title(house.ref, "My name", house.look())
    assert isinstance(outcome, Written)
    assert house.shown == ("My name", "manual")
    assert not kept
    assert not house.waiting


def test_undo_on_a_live_session_holds_to_the_end(house: House) -> None:
    """Our title is taken back, the CLI that adopted it writes it again, and it is taken back for good."""
    house.title()
    house.owners = owners("tui")
    outcome, kept = house.recorder.undo_title(house.ref, "", TitleSource.MANUAL, house.look())
    assert isinstance(outcome, Written)
    assert kept
    assert house.store.is_dismissed(house.ref.session_id)
    house.session.title("Fix login test", side=True)
    house.owners = owners()
    old(house)
    house.deliver()
    assert house.shown == ("", "manual")
    assert isinstance(house.title("Another"), Declined)


def test_undo_leaves_a_recap_that_waits(house: House) -> None:
    """Taking a title back is no reason to lose a recap."""
    house.title()
    house.recorder.keep_text(house.ref, Kind.RECAP, "Fixing login.", "m", house.state.turn)
    house.recorder.undo_title(house.ref, "", TitleSource.MANUAL, house.look())
    assert house.waiting == {PendingKind.RECAP}


def test_a_title_on_request_yields_to_a_name_given_meanwhile(house: House) -> None:
    """`title S --auto`: the user renamed while the model answered."""
    house.session.title("Before", "manual")
    look = house.look()
    basis = SessionFile(look.state, look.size, OLD)
    house.session.title("Meanwhile", "manual")
    old(house)
    outcome, kept = house.recorder.requested_title(house.ref, "By model", "m", basis, look)
    assert outcome == Declined(Reason.MANUAL_TITLE, "a title was given while the model answered")
    assert not kept


def test_a_title_on_request_stays_over_the_name_that_it_replaced(house: House) -> None:
    """The same words as our old title, asked for over a manual one: not taken for a thing to heal."""
    house.title("By model")
    house.session.title("Mine", "manual")
    look = house.look()
    house.recorder.requested_title(house.ref, "By model", "m", SessionFile(look.state, look.size, OLD), look)
    assert house.shown == ("By model", "auto")
    old(house)
    assert house.deliver() is None
    assert house.shown == ("By model", "auto")


# -- healing -----------------------------------------------------------------------------------------------------------


def brought_back(house: House) -> None:
    """Our title, the user's name, and our title again from the memory of a CLI."""
    house.title()
    house.session.title("Mine", "manual")
    house.session.title("Fix login test", side=True)
    old(house)


def test_our_title_from_a_clis_memory_gives_way_to_the_users(house: House) -> None:
    """Promise 2: once nobody owns the session, once, journaled, in the user's words and as the user's."""
    brought_back(house)
    house.owners = owners("tui")
    before = house.data
    assert house.deliver() is not None
    assert house.data == before
    house.owners = owners()
    assert house.deliver() is None
    assert house.shown == ("Mine", "manual")
    assert [entry.kind for entry in house.store.entries()] == [JournalKind.TITLE, JournalKind.HEAL]
    before = house.data
    assert house.deliver() is None
    assert house.data == before


def test_healing_survives_a_restart_and_an_unsourced_name(house: House) -> None:
    """A name without a source is the user's too; the journal remembers what was ours."""
    house.title()
    house.session.title("Mine", None)
    house.session.title("Fix login test", side=True)
    old(house)
    house.restart()
    house.deliver()
    assert house.shown == ("Mine", "manual")


def test_another_writers_title_is_never_healed(house: House) -> None:
    """What somebody else put over the user's name stays (we never fight)."""
    house.title()
    house.session.title("Mine", "manual")
    house.session.title("Somebody else's", "auto")
    old(house)
    before = house.data
    assert house.deliver() is None
    assert house.data == before


def test_two_watchers_heal_once(house: House, tmp_path: Path) -> None:
    """Another state directory knows nothing of our title, and does not undo what we heal."""
    other = House(tmp_path / "other", house.session)
    try:
        brought_back(house)
        for _ in range(3):
            other.deliver()
            house.deliver()
        titles = [each for each in house.session.records() if each.get("subtype") == "custom_title"]
        assert len(titles) == 4
        assert house.shown == ("Mine", "manual")
    finally:
        other.store.close()


# -- leases, daemons, pause and brake ----------------------------------------------------------------------------------


def lease(house: House, which: int = 0) -> Path:
    """Somebody takes the writer lease."""
    path = Path(lease_paths(str(house.ref.runtime_base), house.ref.session_id)[which])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("not even JSON")
    return path


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", [Kind.TITLE, Kind.RECAP])
def test_a_text_waits_for_the_lease_to_go(house: House, kind: Kind, which: int) -> None:
    """`locked`, kept, looked at again within 15 s, and written without another model call."""
    path = lease(house, which)
    outcome = house.title() if kind is Kind.TITLE else house.recap()
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.LOCKED
    house.recorder.keep_text(house.ref, kind, "Kept words", "m", house.state.turn, moves=house.state.moves)
    before = house.data
    retry = house.deliver()
    assert retry is not None
    assert retry.at is not None
    assert retry.at - house.now <= 15
    assert house.data == before
    path.unlink()
    house.restart()
    assert house.deliver() is None
    assert b"Kept words" in house.data
    assert not house.waiting
    assert house.session.path.stat().st_mtime == OLD


@pytest.mark.parametrize("kind", ["serve", "headless", "print", "something-new"])
def test_nothing_is_written_while_a_daemon_lives(house: House, kind: str) -> None:
    """Live records of any kind but a terminal's count like a lease (contract 5), a terminal beside them or not."""
    house.owners = owners("tui", kind)
    before = house.data
    outcome, _ = house.recorder.manual_title(house.ref, "My name", house.look())
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.LOCKED
    house.recorder.keep_text(house.ref, Kind.TITLE, "Kept words", "m", house.state.turn)
    assert house.deliver() is not None
    assert house.data == before
    house.owners = owners()
    assert house.deliver() is None
    assert house.shown == ("Kept words", "auto")


def test_a_pause_stops_what_is_automatic(house: House) -> None:
    """Kept texts and healing wait for `resume`; what the user asks for does not."""
    house.store.pause(None)
    house.recorder.keep_text(house.ref, Kind.TITLE, "Kept words", "m", house.state.turn)
    before = house.data
    retry = house.deliver()
    assert retry is not None
    assert "paused" in retry.why
    assert house.data == before
    outcome, _ = house.recorder.manual_title(house.ref, "My name", house.look())
    assert isinstance(outcome, Written)
    house.session.title("Theirs")
    house.store.resume()
    assert house.recorder.stopped(house.ref.session_id) == ""


def test_a_pause_ends_by_itself_and_lasts_over_a_restart(house: House) -> None:
    """`pause --for 2h`."""
    house.store.pause(NOW + 7200)
    house.restart()
    assert re.fullmatch(r"paused until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", house.recorder.stopped(house.ref.session_id))
    house.recorder.keep_text(house.ref, Kind.TITLE, "Kept words", "m", house.state.turn)
    assert house.deliver() is not None
    house.now += 7201
    assert house.deliver() is None
    assert house.shown == ("Kept words", "auto")


def test_healing_waits_for_the_end_of_a_pause(house: House) -> None:
    """`pause` stops all writing at once."""
    brought_back(house)
    house.store.pause(None)
    before = house.data
    assert house.deliver() is not None
    assert house.data == before
    house.store.resume()
    house.deliver()
    assert house.shown == ("Mine", "manual")


def test_an_anomaly_stops_all_writing_to_its_session(house: House, tmp_path: Path) -> None:
    """Also what the user asks for: something is wrong with what we write there. Other sessions go on."""
    house.store.note_anomaly(house.ref.session_id, "corrections did not settle", NOW)
    before = house.data
    for outcome in (house.title(), house.recap(), house.recorder.manual_title(house.ref, "My name", house.look())[0]):
        assert isinstance(outcome, Declined)
        assert outcome.reason is Reason.PAUSED
    house.recorder.keep_text(house.ref, Kind.TITLE, "Kept words", "m", house.state.turn)
    assert house.deliver() is not None
    assert house.data == before
    assert house.waiting == {PendingKind.TITLE}
    other = Transcript(house.session.path.parent)
    other.turn("something else", "Yes.")
    os.utime(other.path, (OLD, OLD))
    ref = session_ref(str(other.path))
    assert ref is not None
    assert isinstance(house.recorder.automatic_title(ref, "Other", "m"), Written)


def test_three_anomalies_in_a_day_stop_everything(house: House) -> None:
    """Promise 6: until `doctor` has been run."""
    for number in range(3):
        assert house.recorder.stopped(house.ref.session_id) == ""
        house.store.note_anomaly(f"session {number}", "line not found after the write", NOW - number)
    assert "doctor" in house.recorder.stopped(house.ref.session_id)
    before = house.data
    assert isinstance(house.title(), Declined)
    assert isinstance(house.recorder.manual_title(house.ref, "My name", house.look())[0], Declined)
    assert house.data == before
    house.store.clear_brake(NOW)
    assert isinstance(house.title(), Written)


def test_three_anomalies_in_three_days_do_not(house: House) -> None:
    """The brake counts those of one day."""
    for day in range(3):
        house.store.note_anomaly(f"session {day}", "what", NOW - 86_401 * (2 - day))
    assert house.recorder.stopped(house.ref.session_id) == ""


# -- our title in sight ------------------------------------------------------------------------------------------------

KIB = 1024


def grow(session: Transcript, size: int = 70 * KIB) -> None:
    """A long turn; returns with the turn over."""
    session.turn("more", "x" * size)
    session.set_mtime(OLD)


def test_our_title_comes_back_into_sight_once_per_window(house: House) -> None:
    """Out of the first and last 64 KiB: appended again, the same, once; and again only 64 KiB later."""
    grow(house.session)
    house.title()
    old(house)
    before = house.data
    assert house.deliver() is None
    assert house.data == before, "it is in sight"
    for round_ in range(1, 3):
        grow(house.session)
        assert house.deliver() is None
        assert b'"customTitle":"Fix login test"' in house.data[-64 * KIB :]
        assert house.data.count(b'"customTitle":"Fix login test"') == 1 + round_
        assert house.session.path.stat().st_mtime == OLD
        before = house.data
        house.session.turn("a little more", "y" * 30 * KIB)
        old(house)
        house.deliver()
        assert house.data.count(b'"customTitle"') == 1 + round_, "still in sight"


def test_nobody_elses_title_is_brought_into_sight(house: House) -> None:
    """Neither the CLI's own, nor ours once a CLI has written it as its own."""
    grow(house.session)
    house.session.title("Theirs", "auto")
    grow(house.session)
    before = house.data
    assert house.deliver() is None
    assert house.data == before


def test_a_title_that_a_cli_took_over_is_left_to_it(house: House) -> None:
    """The last record of it is not ours: that CLI re-anchors it itself (contract 3.3)."""
    grow(house.session)
    house.title()
    house.session.title("Fix login test", side=True)
    grow(house.session)
    before = house.data
    assert house.deliver() is None
    assert house.data == before


def test_no_title_is_brought_into_sight_while_a_turn_runs(house: House) -> None:
    """With a live owner: when the turn has ended. Its owner gone: at once, the turn will never end."""
    grow(house.session)
    house.title()
    grow(house.session)
    house.session.user("one more")
    old(house)
    house.owners = owners("tui")
    before = house.data
    retry = house.deliver()
    assert retry is not None
    assert retry.at is None
    assert house.data == before
    house.owners = owners()
    assert house.deliver() is None
    assert house.data != before


# -- recaps ------------------------------------------------------------------------------------------------------------


def test_a_recap_that_a_terminal_wrote_over_is_delivered_again(house: House) -> None:
    """Design 7: the title copy at the CLI's exit hides it; the same text is appended again, as one journal entry."""
    house.session.title("Theirs")
    old(house)
    house.owners = owners("tui")
    assert isinstance(house.recap(), Written)
    assert house.waiting == {PendingKind.RECAP}
    house.session.title("Theirs", side=True)
    old(house)
    assert house.deliver() is not None
    house.owners = owners()
    assert house.deliver() is None
    recaps = [each["uuid"] for each in house.session.records() if each.get("subtype") == "slash_command"]
    assert len(recaps) == 2
    active = chain_of(house.session.records())
    assert recaps[1] in active
    assert recaps[0] not in active
    (entry,) = house.store.entries(kinds=(JournalKind.RECAP,))
    assert entry.record_uuid == recaps[1]
    assert entry.uuids == tuple(recaps)
    before = house.data
    assert house.deliver() is None
    assert house.data == before


def test_a_recap_that_still_stands_is_not_delivered_twice(house: House) -> None:
    """The terminal ended without a word: the first record is on the active chain."""
    house.owners = owners("tui")
    house.recap()
    house.owners = owners()
    before = house.data
    assert house.deliver() is None
    assert house.data == before
    assert not house.waiting


def test_a_recap_is_dropped_when_the_conversation_moves_on(house: House) -> None:
    """A prompt, a rewind or a compression since it was made (contract 4.3 d)."""
    for move in ("turn", "rewind", "compression"):
        look = house.look()
        basis = RecapBasis(look.state.turn, look.state.moves)
        if move == "turn":
            house.session.turn("next", "Yes.")
        elif move == "rewind":
            house.session.system("rewind", {"truncatedCount": 1})
        else:
            house.session.system("chat_compression", {"info": {}, "compressedHistory": []})
        old(house)
        outcome = house.recorder.recap(house.ref, "Stale", "m", basis, look)
        assert isinstance(outcome, Declined), move
        assert outcome.reason is Reason.NOTHING_NEW


def test_a_kept_recap_is_dropped_after_a_compression(house: House) -> None:
    """Also when it had waited for a lease, over a restart."""
    state = house.state
    house.recorder.keep_text(house.ref, Kind.RECAP, "Stale", "m", state.turn, moves=state.moves)
    house.session.system("chat_compression", {"info": {}, "compressedHistory": []})
    old(house)
    house.restart()
    before = house.data
    assert house.deliver() is None
    assert house.data == before
    assert not house.waiting


def test_two_watchers_leave_one_recap(house: House, tmp_path: Path) -> None:
    """The second one finds the first one's behind the last turn, before and after the terminal hid them."""
    other = House(tmp_path / "other", house.session)
    try:
        house.owners = other.owners = owners("tui")
        assert isinstance(house.recap("First"), Written)
        outcome = other.recap("Second")
        assert outcome == Declined(Reason.NOTHING_NEW, "another recap stands behind the last turn")
        other.recorder.keep_text(other.ref, Kind.RECAP, "Second", "m", other.state.turn)
        house.session.title("Theirs", side=True)
        old(house)
        house.owners = other.owners = owners()
        for _ in range(3):
            house.deliver()
            other.deliver()
        active = chain_of(house.session.records())
        recaps = [each for each in house.session.records() if each.get("subtype") == "slash_command"]
        assert [each for each in recaps if each["uuid"] in active] == recaps[1:]
        assert len(recaps) == 2
    finally:
        other.store.close()


@pytest.mark.parametrize("noted", [True, False], ids=["noted by it", "not noted yet"])
def test_what_a_command_writes_meanwhile_is_not_told_as_ours(house: House, noted: bool) -> None:
    """Both share one journal: the service tells its hooks of its own texts, each once."""
    command = House(house.folder, house.session)

    def given_meanwhile(_: SessionRef) -> Ownership:
        if noted and not command.store.our_titles(command.ref.session_id):
            assert isinstance(command.title("Given by a command"), Written)
        return owners()

    try:
        house.recorder.keep_text(house.ref, Kind.RECAP, "Kept", "m", house.state.turn)
        if not noted:
            line = TitleLine("Given by a command", TitleSource.AUTO)
            assert isinstance(command.writer.append(Target(house.ref.path, lambda: ""), lambda _: line), Written)
        service = Recorder(
            house.store,
            house.writer,
            ownership=given_meanwhile,
            refused_mount=house.refused,
            clock=lambda: house.now,
        )
        look = house.look()
        service.deliver(house.ref, look.state, look.size, OLD, look)
        told = [house.store.entry(noted.seq) for noted in service.take_noted()]
        assert [each.text for each in told if each] == ["Kept"]
        assert {each.text for each in house.store.entries()} == {"Given by a command", "Kept"}
        assert service.take_noted() == ()
    finally:
        command.store.close()


# -- what is never written to ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.20.4", "0.15.10", "0.12.0", "weird", ""])
def test_files_of_old_versions_are_not_written(house: House, tmp_path: Path, version: str) -> None:
    """Below 0.21, or of no version that can be read: read only, whoever asks."""
    made = Transcript(house.session.path.parent, version=version)
    made.turn("fix the login test", "Done.")
    made.set_mtime(OLD)
    house.session = made
    before = house.data
    for outcome in (house.title(), house.recorder.manual_title(house.ref, "My name", house.look())[0]):
        assert isinstance(outcome, Declined)
        assert outcome.reason is Reason.UNSUPPORTED_VERSION
    assert house.data == before


def test_a_newer_version_is_written_as_long_as_it_looks_the_same(house: House) -> None:
    """Design 6: an untested version by the look of its files."""
    made = Transcript(house.session.path.parent, version="0.99.0")
    made.turn("fix the login test", "Done.")
    made.set_mtime(OLD)
    house.session = made
    assert isinstance(house.title(), Written)
    other = Transcript(house.session.path.parent, version="0.99.0")
    other.turn("fix the login test", "Done.")
    other.append(other.record("hologram"))
    other.set_mtime(OLD)
    house.session = other
    outcome = house.title()
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.UNSUPPORTED_VERSION


def test_network_mounts_are_refused_with_a_reason(tmp_path: Path, session: Transcript) -> None:
    """NFS, CIFS/SMB and sshfs: said in words, and the file is not even opened."""
    house = House(tmp_path / "state", session, refused=lambda path: "nfs4: another machine may write to it as well")
    try:
        session.path.chmod(0)
        outcome = house.recorder.automatic_title(house.ref, "x", "m")
        assert outcome == Declined(Reason.UNSAFE_FILE, "nfs4: another machine may write to it as well")
    finally:
        house.store.close()


def test_a_name_on_a_torn_line_is_the_users(house: House) -> None:
    """The picker shows it (vector T09), so no automatic title is put over it; a name that is asked for is."""
    line = json.dumps(
        house.session.record(
            "system", subtype="custom_title", systemPayload={"customTitle": "Torn", "titleSource": "x"}
        ),
        separators=(",", ":"),
    )
    with house.session.path.open("ab") as file:
        file.write(line[: line.index('"titleSource"')].encode())
    old(house)
    outcome = house.title()
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.MANUAL_TITLE
    assert isinstance(house.recorder.manual_title(house.ref, "My name", house.look())[0], Written)
    assert house.shown == ("My name", "manual")


def test_a_torn_line_waits_for_its_writer(house: House) -> None:
    """Hazard b: left alone while it may be in flight or somebody lives; completed, it is the parent; never, it is
    ended first.
    """
    whole = house.data
    line = json.dumps(house.session.record("user", message={"role": "user", "parts": [{"text": "in flight"}]})).encode()
    house.session.path.write_bytes(whole + line[:40])
    os.utime(house.session.path, (NOW - 5, NOW - 5))
    assert house.title() == Declined(Reason.WORKING, "its last line is unfinished")
    old(house)
    house.owners = owners("tui")
    assert house.title() == Declined(Reason.WORKING, "its last line is unfinished")
    house.owners = owners()
    house.session.path.write_bytes(whole + line + b"\n")
    house.session.assistant("Yes.")
    old(house)
    outcome = house.title()
    assert isinstance(outcome, Written)
    assert outcome.parent == house.session.tail


def test_a_torn_line_that_nobody_completes_is_ended(house: House) -> None:
    """Old, and without a live owner: a newline and our line in one write."""
    with house.session.path.open("ab") as file:
        file.write(b'{"uuid":"torn","parentUuid":"')
    old(house)
    before = house.data
    assert isinstance(house.title(), Written)
    assert house.data[len(before) :].startswith(b'\n{"uuid":"')
    assert house.session.tail in chain_of([json.loads(each) for each in house.data.split(b"\n") if each[-1:] == b"}"])


def test_a_state_database_that_cannot_be_written_forbids_the_write(house: House) -> None:
    """Without a durable intent a crash could not be repaired, so nothing is appended."""
    before = house.data
    house.store._db.run("DROP TABLE intents")
    house.store._db.run("CREATE VIEW intents AS SELECT '' AS uuid, '{}' AS data WHERE 0")
    outcome = house.title()
    assert isinstance(outcome, Failed)
    assert f"state database {house.store._db.path}" in outcome.detail
    assert "[Errno" not in outcome.detail
    assert house.data == before


def test_a_file_beyond_two_gibibytes(house: House) -> None:
    """Offsets beyond 32 bits; only the last 64 MiB are read."""
    records = house.data
    with house.session.path.open("r+b") as file:
        file.truncate(2**31 + 100)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + records)
    old(house)
    size = house.session.path.stat().st_size
    outcome = house.recorder.automatic_title(house.ref, "Fix login test", "m")
    assert isinstance(outcome, Written)
    assert outcome.offset == size > 2**31
    with house.session.path.open("rb") as file:
        file.seek(size)
        line = json.loads(file.read())
    assert line["parentUuid"] == house.session.tail
    assert house.session.path.stat().st_mtime == OLD
    assert house.recorder.recover(session_ref) == 0


# -- several processes of ours -----------------------------------------------------------------------------------------

ROUNDS = 500


def in_processes(works: list[Callable[[], object]]) -> None:
    """Run these at the same time, each in a process of its own."""
    pids: list[int] = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work()
                code = 0
            except BaseException:  # noqa: BLE001 - the process ends here, and its parent is to see why
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


def journaled(folder: Path, session: Transcript) -> list[str]:
    """Every record that this state directory knows for its own, after a start that finishes what is open."""
    house = House(folder, session)
    try:
        house.recorder.recover(session_ref)
        assert house.store.intents() == []
        return [each for entry in house.store.entries() for each in entry.uuids]
    finally:
        house.store.close()


@pytest.mark.slow
def test_many_writers_at_once_lose_nothing(tmp_path: Path, session: Transcript) -> None:
    """Report A9: names, undos and the watcher from different state directories, and a terminal that goes on, 500
    rounds: no line is torn, every accepted operation is there once, every turn is there.
    """

    def names() -> None:
        house = House(tmp_path / "names", session)
        house.owners = NOBODY
        for number in range(ROUNDS // 4):
            house.recorder.manual_title(house.ref, f"Name {number}")

    def undos() -> None:
        house = House(tmp_path / "undos", session)
        for number in range(ROUNDS // 4):
            house.recorder.undo_title(house.ref, f"Back {number}", TitleSource.MANUAL)

    def watcher() -> None:
        house = House(tmp_path / "watcher", session)
        for number in range(ROUNDS // 4):
            house.title(f"Automatic {number}")
            house.deliver()

    def terminal() -> None:
        for number in range(ROUNDS // 4):
            session.user(f"prompt {number}")
            session.assistant(f"answer {number}")

    in_processes([names, undos, watcher, terminal])
    ours = [each for name in ("names", "undos", "watcher") for each in journaled(tmp_path / name, session)]
    records = session.records()
    turns = [each["uuid"] for each in records if each["type"] in ("user", "assistant")]
    assert len(turns) == 2 * (ROUNDS // 4) + 2
    titles = [each["uuid"] for each in records if each.get("subtype") == "custom_title"]
    assert sorted(titles) == sorted(ours)
    assert len(titles) > ROUNDS // 50  # some get through on any machine
    active = chain_of(records)
    assert [each for each in active if each in set(turns)] == turns


def test_several_recorders_title_once(tmp_path: Path, session: Transcript) -> None:
    """Four watchers with a title each, at the same instant: one is written."""
    folders = [tmp_path / f"state{number}" for number in range(4)]
    in_processes([partial(_title_once, folder, session) for folder in folders])
    assert sum(len(journaled(folder, session)) for folder in folders) == 1
    assert sum(each.get("subtype") == "custom_title" for each in session.records()) == 1


def _title_once(folder: Path, session: Transcript) -> None:
    House(folder, session).title(f"Title of {folder.name}")
