"""All writing as the rest of the program asks for it: cases found by breaking the code that decides it on purpose."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.edge.test_recording import House, brought_back, grow, lease, old, owners
from tests.support.transcripts import Transcript, chain_of
from watcher.core.events import TitleSource
from watcher.core.generation import Kind
from watcher.core.owner import NOBODY
from watcher.core.reasons import Reason
from watcher.core.undo import title_before
from watcher.core.write_rules import RecapBasis
from watcher.core.writing import Declined, Failed, SessionFile, Written
from watcher.edge.files import RealFiles
from watcher.edge.store import JournalKind, PendingKind
from watcher.qwen.contract import lease_paths
from watcher.qwen.paths import session_ref


@pytest.fixture
def session(tmp_path: Path) -> Transcript:
    made = Transcript(tmp_path / ".qwen" / "projects" / "-home-user-proj" / "chats")
    made.turn("fix the login test", "Done, added a wait.")
    old_time(made)
    return made


@pytest.fixture
def house(tmp_path: Path, session: Transcript) -> Iterator[House]:
    made = House(tmp_path / "state", session)
    yield made
    made.store.close()


def old_time(session: Transcript) -> None:
    """Long ago."""
    session.set_mtime(1_796_000_050.25)


# -- the user's wishes -------------------------------------------------------------------------------------------------


def test_an_undo_replaces_the_name_that_was_kept(house: House) -> None:
    """Whatever the user asked for last is what comes back when the session closes, and nothing after it."""
    house.session.title("Theirs")
    house.owners = owners("tui")
    house.recorder.manual_title(house.ref, "First", house.look())
    house.recorder.undo_title(house.ref, "Theirs", TitleSource.AUTO, house.look())
    assert house.waiting == {PendingKind.UNDO}
    house.recorder.manual_title(house.ref, "Last", house.look())
    assert house.waiting == {PendingKind.MANUAL_TITLE}
    house.session.title("Theirs", side=True)
    house.owners = owners()
    old(house)
    house.deliver()
    assert house.shown == ("Last", "manual")
    before = house.data
    house.deliver()
    assert house.data == before


def test_a_name_makes_the_title_that_waits_needless(house: House) -> None:
    """The user has named the session: what the model found is forgotten."""
    house.recorder.keep_text(house.ref, Kind.TITLE, "By model", "m", house.state.turn)
    house.recorder.manual_title(house.ref, "Mine", house.look())
    assert not house.waiting


def test_a_name_is_not_kept_where_no_cli_holds_another(house: House) -> None:
    """A live terminal without a title writes none at its end: nothing to put last again, nothing to tell the user."""
    house.owners = owners("tui")
    outcome, kept = house.recorder.manual_title(house.ref, "Mine", house.look())
    assert isinstance(outcome, Written)
    assert not kept
    assert not house.waiting


def test_an_undo_that_was_refused_changes_nothing(house: House) -> None:
    """The session may still be titled: nothing was taken back."""
    lease(house)
    outcome, kept = house.recorder.undo_title(house.ref, "", TitleSource.MANUAL, house.look())
    assert isinstance(outcome, Declined)
    assert not kept
    assert not house.store.is_dismissed(house.ref.session_id)


def test_a_title_in_sight_again_is_undone_like_the_first(house: House) -> None:
    """`undo` goes back to what stood before it was first given."""
    house.session.title("Before", "manual")
    grow(house.session)
    look = house.look()
    basis = SessionFile(look.state, look.size, 0.0)
    house.recorder.requested_title(house.ref, "By model", "m", basis, look)
    for _ in range(2):
        grow(house.session)
        house.deliver()
    entries = house.store.entries()
    assert [entry.kind for entry in entries] == [JournalKind.TITLE, JournalKind.REANCHOR, JournalKind.REANCHOR]
    newest = house.recorder.titles.newest_title(house.ref.session_id)
    assert newest is not None
    assert title_before(house.state.titles, newest.offset) == ("Before", TitleSource.MANUAL)


def test_what_was_healed_is_not_what_an_undo_takes_back(house: House) -> None:
    """The user's own name put last again is no title of ours."""
    brought_back(house)
    house.deliver()
    assert house.shown == ("Mine", "manual")
    newest = house.recorder.titles.newest_title(house.ref.session_id)
    assert newest is not None
    assert newest.title == "Fix login test"


@pytest.mark.parametrize("source", [TitleSource.AUTO, TitleSource.MANUAL])
def test_what_is_put_last_again_keeps_its_source(house: House, source: TitleSource) -> None:
    """An automatic title that `undo` put back stays automatic, also over a restart."""
    house.session.title("Held", "manual")
    house.owners = owners("tui")
    house.recorder.undo_title(house.ref, "Back", source, house.look())
    house.session.title("Held", "manual", side=True)
    house.restart()
    house.owners = owners()
    old(house)
    house.deliver()
    assert house.shown == ("Back", source.value)


def test_a_name_wins_over_what_the_program_would_heal(house: House) -> None:
    """A CLI brings our old title back over the user's name, and the user has given a newer name through us: that one is
    put last, and nothing else.
    """
    house.title("Ours")
    house.session.title("Old name", "manual")
    house.owners = owners("tui")
    house.recorder.manual_title(house.ref, "New name", house.look())
    house.session.title("Ours", side=True)
    house.owners = owners()
    old(house)
    house.deliver()
    assert house.shown == ("New name", "manual")
    names = [each["systemPayload"]["customTitle"] for each in house.session.records() if "custom_title" in str(each)]
    assert names == ["Ours", "Old name", "New name", "Ours", "New name"]


def test_healing_waits_for_an_event_while_an_owner_lives(house: House) -> None:
    """Not for a time: the end of the owner is told."""
    brought_back(house)
    house.owners = owners("tui")
    retry = house.deliver()
    assert retry is not None
    assert retry.at is None


def test_a_title_in_a_running_turn_waits_though_it_was_asked_for(house: House) -> None:
    """A turn that began while the model answered is never written into, whoever asks (design 4)."""
    look = house.look()
    house.session.user("one more")
    old(house)
    house.owners = owners("tui")
    basis = SessionFile(look.state, look.size, 0.0)
    before = house.data
    for outcome in (
        house.recorder.requested_title(house.ref, "By model", "m", basis, look)[0],
        house.recorder.manual_title(house.ref, "Mine", look)[0],
        house.recorder.undo_title(house.ref, "", TitleSource.MANUAL, look)[0],
        house.recorder.automatic_title(house.ref, "By model", "m", look),
        house.recorder.recap(house.ref, "Stale.", "m", RecapBasis(house.state.turn), look),
    ):
        assert outcome == Declined(Reason.WORKING, "a turn is running")
    assert house.data == before


# -- kept recaps -------------------------------------------------------------------------------------------------------


def test_a_recap_that_was_resumed_behind_is_not_written_again(house: House) -> None:
    """A terminal loaded it and went on from it with something that nobody typed: it has been seen."""
    house.owners = owners("tui")
    outcome = house.recap()
    assert isinstance(outcome, Written)
    house.session.tail = outcome.uuid
    house.session.at += 10_000_000
    house.session.user("a task has ended", subtype="notification")
    house.session.assistant("Noted.")
    old(house)
    house.owners = owners()
    before = house.data
    assert house.deliver() is None
    assert house.data == before
    assert not house.waiting


def test_a_kept_recap_knows_its_moves_and_model(house: House) -> None:
    """What it was made of decides whether it still tells how things stand, and `tail` says who made it."""
    state = house.state
    house.recorder.keep_text(house.ref, Kind.RECAP, "Fixing login.", "small", state.turn, moves=state.moves)
    house.restart()
    assert house.deliver() is None
    (entry,) = house.store.entries(kinds=(JournalKind.RECAP,))
    assert (entry.text, entry.model) == ("Fixing login.", "small")
    house.recorder.keep_text(house.ref, Kind.RECAP, "Stale.", "small", state.turn, moves=state.moves + 1)
    assert house.deliver() is None
    assert len(house.store.entries(kinds=(JournalKind.RECAP,))) == 1
    assert not house.waiting


# -- what another look must finish -------------------------------------------------------------------------------------


class Failing(RealFiles):
    """A disk that cannot read any more once our line stands."""

    def __init__(self) -> None:
        self.written = False

    def write(self, fd: int, data: bytes) -> int:
        self.written = True
        return super().write(fd, data)

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        if self.written:
            raise OSError(5, os.strerror(5))
        return super().read_at(fd, length, offset)


@pytest.fixture
def unfinished(house: House) -> House:
    """A line of ours stands that was never read back."""
    house.files = Failing()
    house.restart()
    outcome = house.title()
    assert isinstance(outcome, Failed)
    assert outcome.unfinished
    return house


def test_an_unfinished_write_keeps_the_session_in_view(unfinished: House) -> None:
    """Though nothing else waits there, it is looked at again, and nothing more is written before."""
    before = unfinished.data
    retry = unfinished.deliver()
    assert retry is not None
    assert retry.at is not None
    assert retry.at - unfinished.now <= 15
    for outcome in (unfinished.recap(), unfinished.recorder.manual_title(unfinished.ref, "Mine", unfinished.look())[0]):
        assert isinstance(outcome, Declined)
        assert outcome.reason is Reason.LOCKED
    assert unfinished.data == before
    unfinished.files = RealFiles()
    unfinished.restart()
    assert unfinished.deliver() is None
    assert [entry.text for entry in unfinished.store.entries()] == ["Fix login test"]


def test_an_unfinished_write_of_one_session_stops_no_other(unfinished: House) -> None:
    """A disk error in one file is nothing to the next one."""
    other = Transcript(unfinished.session.path.parent)
    other.turn("something else", "Yes.")
    old_time(other)
    unfinished.files.written = False  # type: ignore[attr-defined]
    ref = session_ref(str(other.path))
    assert ref is not None
    unfinished.files = RealFiles()
    unfinished.store.close()
    unfinished.start()
    assert isinstance(unfinished.recorder.automatic_title(ref, "Other", "m"), Written)
    assert len(unfinished.store.intents()) == 1


def test_every_kind_of_write_is_finished_by_the_next_start(house: House) -> None:
    """A title, a recap, and both at once in two sessions: each is journaled with its own words and model."""
    other = Transcript(house.session.path.parent)
    other.turn("something else", "Yes.")
    old_time(other)
    ref = session_ref(str(other.path))
    assert ref is not None
    for write in (
        lambda: house.recorder.automatic_title(house.ref, "Fix login test", "small"),
        lambda: house.recorder.recap(ref, "Something else.", "small", RecapBasis(turn_of(other)), None),
    ):
        house.files = Failing()
        house.store.close()
        house.start()
        assert isinstance(write(), Failed)
    assert len(house.store.intents()) == 2
    house.files = RealFiles()
    house.restart()
    assert house.store.intents() == []
    found = [(entry.kind, entry.text, entry.model) for entry in house.store.entries()]
    assert sorted(found) == [
        (JournalKind.RECAP, "Something else.", "small"),
        (JournalKind.TITLE, "Fix login test", "small"),
    ]


def turn_of(session: Transcript) -> str:
    """The newest prompt."""
    return str(next(each["uuid"] for each in session.records() if each["type"] == "user"))


def test_a_write_that_waits_for_a_lease_is_counted(unfinished: House) -> None:
    """The service looks again as long as anything waits; an intent that nobody can read is forgotten."""
    unfinished.store.put_intent("broken", {"uuid": "broken", "path": 7})
    unfinished.files = RealFiles()
    path = lease(unfinished)
    unfinished.store.close()
    unfinished.start()
    assert unfinished.recorder.recover(session_ref) == 1
    assert len(unfinished.store.intents()) == 1
    path.unlink()
    assert unfinished.recorder.recover(session_ref) == 0
    assert unfinished.store.intents() == []


def test_the_brake_stops_a_recovery_too(unfinished: House) -> None:
    """Until `doctor` has been run nothing is written at all."""
    for number in range(3):
        unfinished.store.note_anomaly(f"session {number}", "what", unfinished.now)
    unfinished.session.user("raced")
    unfinished.files = RealFiles()
    unfinished.store.close()
    unfinished.start()
    before = unfinished.data
    assert unfinished.recorder.recover(session_ref) == 1
    assert unfinished.data == before


def test_what_a_recovery_finds_odd_stops_writing_too(house: House) -> None:
    """Promise 6: a line of ours that was cut is an anomaly whenever it is found."""

    class Cutting(RealFiles):
        def write(self, fd: int, data: bytes) -> int:
            super().write(fd, data[:50])
            raise KeyboardInterrupt

    house.files = Cutting()
    house.restart()
    with pytest.raises(KeyboardInterrupt):
        house.title()
    house.files = RealFiles()
    house.restart()
    assert house.store.session_stopped(house.ref.session_id) == "short write, closed later"
    assert house.store.intents() == []
    assert isinstance(house.title(), Declined)


def test_a_write_that_was_not_possible_is_no_anomaly(house: House) -> None:
    """A full disk leaves nothing behind: nothing is stopped for it, and it is tried again."""

    class Full(RealFiles):
        def write(self, fd: int, data: bytes) -> int:
            raise OSError(28, os.strerror(28))

    house.files = Full()
    house.restart()
    house.recorder.keep_text(house.ref, Kind.TITLE, "Kept words", "m", house.state.turn)
    for _ in range(4):
        retry = house.deliver()
        assert retry is not None
        assert retry.at is not None
    assert house.store.anomalies() == []
    assert house.waiting == {PendingKind.TITLE}
    house.files = RealFiles()
    house.restart()
    assert house.deliver() is None
    assert house.shown == ("Kept words", "auto")


def test_a_text_whose_write_went_wrong_is_not_tried_again(house: House) -> None:
    """Something of it stands in the file: another try would be a second one."""

    class Short(RealFiles):
        cut = 40

        def write(self, fd: int, data: bytes) -> int:
            taken, Short.cut = Short.cut, len(data)
            return super().write(fd, data[:taken])

    house.files = Short()
    house.restart()
    house.recorder.keep_text(house.ref, Kind.TITLE, "Kept words", "m", house.state.turn)
    house.deliver()
    assert house.store.session_stopped(house.ref.session_id)
    assert not house.waiting
    house.store._db.run("DELETE FROM anomalies")
    before = house.data
    house.deliver()
    assert house.data == before


# -- what is never written to ------------------------------------------------------------------------------------------


def test_a_lease_in_another_spelling_counts(house: House) -> None:
    """A file name in one case, records and lease in the other (contract 5)."""
    for rename, leased in ((str.upper, str.lower), (str.lower, str.upper)):
        path = house.session.path
        house.session.path = path.rename(path.with_name(rename(path.stem) + ".jsonl"))
        held = Path(lease_paths(str(house.ref.runtime_base), leased(house.ref.session_id))[0])
        held.parent.mkdir(parents=True, exist_ok=True)
        held.touch()
        outcome = house.title()
        assert isinstance(outcome, Declined)
        assert outcome.reason is Reason.LOCKED
        held.unlink()


def test_nothing_is_finished_on_a_file_system_that_is_not_written(unfinished: House) -> None:
    """The home was moved to a network file system since: a correction is a write like any other (design 8)."""
    unfinished.session.user("raced")
    unfinished.files = RealFiles()
    unfinished.refused = lambda path: "nfs4: another machine may write to it as well"
    unfinished.store.close()
    unfinished.start()
    before = unfinished.data
    assert unfinished.recorder.recover(session_ref) == 1
    assert unfinished.data == before
    assert len(unfinished.store.intents()) == 1


def test_a_name_beyond_a_long_conversation_still_wins(house: House) -> None:
    """Decisions look at the last 64 MiB, however little of it the picker reads (design 6)."""
    house.session.title("My name", "manual")
    records = house.data
    house.session.turn("more", "Yes.")
    tail = house.data[len(records) :]
    with house.session.path.open("r+b") as file:
        file.truncate(len(records))
        file.truncate(len(records) + 63 * 1024 * 1024)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + tail)
    old(house)
    outcome = house.recorder.automatic_title(house.ref, "Automatic", "m")
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.MANUAL_TITLE


def test_a_known_reading_of_another_file_is_not_trusted(house: House, tmp_path: Path) -> None:
    """Another file stands at the path, with the same size and the same end: its name is seen."""
    known = house.look()
    data = house.data
    last = data[data.rindex(b"\n", 0, -1) + 1 :]
    other = Transcript(tmp_path / "other", session_id=house.session.session_id)
    other.title("My name", "manual")
    name = other.path.read_bytes()
    other.path.write_bytes(name + b" " * (len(data) - len(name) - len(last) - 1) + b"\n" + last)
    other.path.replace(house.session.path)
    old(house)
    assert len(house.data) == len(data)
    outcome = house.recorder.automatic_title(house.ref, "Automatic", "m", known)
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.MANUAL_TITLE


def test_the_chain_of_a_second_record_of_ours_is_whole(house: House) -> None:
    """A recap behind a title, and a name behind both: each is the parent of the next, and no turn is hidden."""
    house.title()
    house.recap()
    house.recorder.manual_title(house.ref, "Mine", house.look())
    records = [json.loads(line) for line in house.data.splitlines()]
    assert chain_of(records) == [record["uuid"] for record in records]


# -- what an interruption must not lose --------------------------------------------------------------------------------


class Once(RealFiles):
    """The real calls, with something happening once before a call."""

    def __init__(self, call: str, what: Callable[[], object]) -> None:
        self._call = call
        self._what = what

    def _pass(self, call: str) -> None:
        if call == self._call:
            self._call = ""
            self._what()

    def write(self, fd: int, data: bytes) -> int:
        self._pass("write")
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        self._pass("sync")
        super().sync(fd)

    def room(self, fd: int, size: int) -> int:
        self._pass("room")
        return super().room(fd, size)


def use(house: House, files: RealFiles) -> None:
    """A process of ours with these calls; nothing is recovered."""
    house.files = files
    house.store.close()
    house.start()


def test_a_second_session_id_that_appears_stops_writing(house: House) -> None:
    """Our line stands, and the file is odd now (promise 6)."""
    record = house.session.record("system", subtype="slash_command", systemPayload={})
    use(house, Once("write", lambda: house.session.append(record | {"sessionId": "another"}, side=True)))
    assert isinstance(house.title(), Written)
    assert house.store.session_stopped(house.ref.session_id) == "a second session id appeared"


def test_a_name_that_was_overruled_is_not_kept(house: House) -> None:
    """A rename behind it is newer: the user is not told that this one comes back."""
    house.session.title("Theirs")
    house.owners = owners("tui")
    use(house, Once("sync", lambda: house.session.title("Newer", "manual")))
    outcome, kept = house.recorder.manual_title(house.ref, "Mine", house.look())
    assert isinstance(outcome, Written)
    assert outcome.overruled
    assert not kept
    assert not house.waiting


def test_a_recap_that_had_to_wait_outlives_the_terminal_too(house: House) -> None:
    """Written late into a live session: kept until that one has ended, and appended again where it was hidden."""
    house.session.title("Theirs")
    old(house)
    house.owners = owners("tui")
    house.recorder.keep_text(house.ref, Kind.RECAP, "Fixing login.", "m", house.state.turn, moves=house.state.moves)
    house.deliver()
    assert house.data.count(b"Fixing login.") == 1
    assert house.waiting == {PendingKind.RECAP}
    house.session.title("Theirs", side=True)
    house.owners = owners()
    old(house)
    assert house.deliver() is None
    assert house.data.count(b"Fixing login.") == 2
    assert len(house.store.entries(kinds=(JournalKind.RECAP,))) == 1
    assert house.store.intents() == []
    assert not house.waiting


@pytest.mark.parametrize("yields", [False, True], ids=["a name", "a title on request"])
def test_what_the_user_asked_for_is_finished_as_that(house: House, yields: bool) -> None:
    """Killed behind our line, which a rename raced: a name given in that moment stands above it, and as the user's; a
    title on request does not.
    """

    def die() -> None:
        raise KeyboardInterrupt

    class Killed(Once):
        def sync(self, fd: int) -> None:
            die()

    use(house, Killed("write", lambda: house.session.title("Raced", "manual")))
    look = house.look()
    with pytest.raises(KeyboardInterrupt):
        if yields:
            house.recorder.requested_title(house.ref, "Asked", "m", SessionFile(look.state, look.size, 0.0), look)
        else:
            house.recorder.manual_title(house.ref, "Asked", look)
    use(house, RealFiles())
    assert house.recorder.recover(session_ref) == 0
    assert house.shown == (("Raced", "manual") if yields else ("Asked", "manual"))
    (entry,) = house.store.entries()
    assert (entry.text, entry.source) == ("Asked", "auto" if yields else "manual")
    assert chain_of(house.session.records())[-1] == entry.uuids[-1]


def test_the_journal_holds_what_was_written_at_last(house: House) -> None:
    """The file moved on while we looked, and another name was put last than the one decided on first."""
    brought_back(house)

    def rename() -> None:
        house.session.title("Newer", "manual")
        house.session.title("Fix login test", side=True)
        old(house)

    use(house, Once("room", rename))
    house.deliver()
    assert house.shown == ("Newer", "manual")
    assert [entry.text for entry in house.store.entries(kinds=(JournalKind.HEAL,))] == ["Newer"]


def test_the_owner_is_asked_for_again_when_the_file_moved(house: House) -> None:
    """A terminal came and began a turn while we looked."""

    def come() -> None:
        house.owners = owners("tui")
        house.session.user("one more")

    use(house, Once("room", come))
    before = house.data
    assert house.title() == Declined(Reason.WORKING, "a turn is running")
    assert house.data.startswith(before)
    assert b"custom_title" not in house.data
    assert house.store.intents() == []


def test_a_turn_of_nobody_known_is_not_written_into(house: House) -> None:
    """Without any sign of an owner ten still minutes end it, nothing shorter."""
    house.session.user("one more")
    house.owners = NOBODY
    for still, written in ((599.0, False), (601.0, True)):
        house.session.set_mtime(house.now - still)
        assert isinstance(house.title(), Written) is written


def test_one_more_anomaly_after_the_doctor_does_not_stop_everything(house: House) -> None:
    """Those that were looked at count no more."""
    for number in range(3):
        house.store.note_anomaly(f"session {number}", "what", house.now - 60)
    house.store.clear_brake(house.now - 30)
    house.store.note_anomaly("session 3", "what", house.now)
    assert house.recorder.stopped(house.ref.session_id) == ""
    for number in (4, 5):
        house.store.note_anomaly(f"session {number}", "what", house.now)
    assert "doctor" in house.recorder.stopped(house.ref.session_id)


def test_a_turn_whose_owner_has_gone_is_over(house: House) -> None:
    """It was there and ended: nothing will go on."""
    house.session.user("one more")
    house.session.set_mtime(house.now - 100.0)
    assert isinstance(house.title(), Written)


def test_a_lease_taken_in_the_last_moment_is_seen(house: House) -> None:
    """After all else was looked at (contract 5)."""
    use(house, Once("room", lambda: lease(house)))
    before = house.data
    outcome = house.title()
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.LOCKED
    assert house.data == before
    assert house.store.intents() == []


def test_the_journal_knows_every_record_of_a_write(house: House) -> None:
    """The corrections of it too: `undo` and healing go by them."""
    use(house, Once("write", lambda: house.session.user("raced")))
    outcome = house.title()
    assert isinstance(outcome, Written)
    (entry,) = house.store.entries()
    assert entry.uuids == outcome.uuids
    assert len(entry.uuids) == 2
    assert house.store.record(entry, "an intent that is gone") == 0
    assert len(house.store.entries()) == 1


def test_an_archived_write_is_finished_when_the_file_comes_back(unfinished: House) -> None:
    """It is not there to be looked at, and nothing is made in its place."""
    path = unfinished.session.path
    archive = path.parent / "archive" / path.name
    archive.parent.mkdir()
    path.rename(archive)
    use(unfinished, RealFiles())
    unfinished.recorder.recover(session_ref)
    assert len(unfinished.store.intents()) == 1
    assert not path.exists()
    archive.rename(path)
    assert unfinished.recorder.recover(session_ref) == 0
    assert unfinished.store.intents() == []
    assert [entry.text for entry in unfinished.store.entries()] == ["Fix login test"]


def test_a_write_that_never_happened_is_forgotten(house: House) -> None:
    """Killed directly before it: the next start finds nothing of it, and writes anew when it is asked to."""

    def die() -> None:
        raise KeyboardInterrupt

    use(house, Once("write", die))
    with pytest.raises(KeyboardInterrupt):
        house.title()
    before = house.data
    use(house, RealFiles())
    assert len(house.store.intents()) == 1
    assert house.recorder.recover(session_ref) == 0
    assert house.store.intents() == []
    assert house.data == before
    assert house.store.entries() == []
