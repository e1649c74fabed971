"""What the guarded append does when the disk, the kernel or another process misbehaves, one case each.

`tests/safety` tries every call of a write; here stand the cases by name, with what must come of them.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from pathlib import Path

import pytest

from tests.edge.writer_bench import OLD, TITLE, Bench, Cut, die, raising
from tests.safety import reader
from tests.safety.scene import Hooked
from tests.support.transcripts import Transcript, chain_of
from watcher.core.events import TitleSource
from watcher.core.reasons import Reason
from watcher.core.writing import (
    Declined,
    Failed,
    Intent,
    IntentNotKeptError,
    Payload,
    RecapLine,
    SessionFile,
    TitleLine,
    Written,
)
from watcher.edge.lines import MAX_CORRECTIONS
from watcher.edge.writer import SPARE_BYTES, Target


@pytest.fixture
def session(tmp_path: Path) -> Transcript:
    made = Transcript(tmp_path / "chats")
    made.turn("fix the login test", "Done, added a wait.")
    made.set_mtime(OLD)
    return made


@pytest.fixture
def bench(session: Transcript) -> Bench:
    return Bench(session)


# -- before the write --------------------------------------------------------------------------------------------------


def test_the_file_is_looked_at_directly_before_the_write(bench: Bench) -> None:
    """Between the last look at its size and the write stands nothing that takes time."""
    bench.write()
    write = bench.files.names.index("write")
    assert bench.files.names[write - 3 : write] == ["fstat", "lstat", "fstat"]


def test_the_lease_is_the_last_thing_that_is_looked_at(bench: Bench) -> None:
    """One that appears after everything else was checked still stops the write (contract 5)."""
    before = bench.data

    def take() -> None:
        bench.leased = "a writer lease"

    looks = len([name for name in _calls(bench) if name == "fstat"])
    assert looks >= 4
    bench = Bench(bench.session)
    bench.session.path.write_bytes(before)
    bench.session.set_mtime(OLD)
    bench.at("fstat", take, nth=4)
    assert bench.write() == Declined(Reason.LOCKED, "a writer lease")
    assert bench.data == before
    assert not bench.intents.open
    assert bench.mtime == OLD


def _calls(bench: Bench) -> list[str]:
    bench.write()
    return bench.files.names[: bench.files.names.index("write")]


def test_a_record_that_lands_at_the_last_look_is_taken_in(bench: Bench) -> None:
    """The file grew between reading and writing: everything is read and decided again, no correction is needed."""
    bench.at("room", lambda: bench.session.turn("one more", "Yes."))
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert (outcome.parent, outcome.repairs, outcome.uuids) == (bench.session.tail, 0, (outcome.uuid,))


def test_a_file_that_keeps_growing_is_left_for_later(bench: Bench) -> None:
    """Bounded: after a few rounds the write is put off, with nothing written and nothing left open."""
    for nth in range(1, 9):
        bench.at("room", lambda: bench.session.user("again"), nth)
    outcome = bench.write()
    assert outcome == Declined(Reason.WORKING, "the file kept growing while it was read")
    assert "write" not in bench.files.names
    assert not bench.intents.open


def test_a_touched_file_is_read_again(bench: Bench) -> None:
    """The same size and another time: somebody may have rewritten it."""
    seen: list[SessionFile] = []
    bench.at("room", lambda: bench.session.set_mtime(OLD + 1))

    def decide(file: SessionFile) -> Payload:
        seen.append(file)
        return TITLE

    bench.writer.append(bench.target, decide)
    assert len(seen) == 2
    assert bench.mtime == OLD + 1


def test_a_record_within_the_same_tick_of_the_clock_is_taken_in(bench: Bench) -> None:
    """Another size and the same time: the clock of a file system stands still for milliseconds."""

    def go_on() -> None:
        bench.session.user("quick")
        bench.session.set_mtime(OLD)

    bench.at("room", go_on)
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert (outcome.repairs, outcome.parent) == (0, bench.session.tail)


def test_a_file_that_was_another_while_it_was_opened_to_read(bench: Bench, tmp_path: Path) -> None:
    """Replaced between our two opens and put back: what would be read is not what would be written to."""
    aside = tmp_path / "aside.jsonl"
    before = bench.data

    def replace() -> None:
        bench.session.path.rename(aside)
        bench.session.path.write_bytes(before)

    bench.at("open_read", replace)
    bench.at("lstat", lambda: aside.rename(bench.session.path))
    outcome = bench.write()
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.NOT_FOUND
    assert bench.data == before


@pytest.mark.parametrize("spare", [-1, 0])
def test_the_room_that_is_needed(bench: Bench, monkeypatch: pytest.MonkeyPatch, spare: int) -> None:
    """A line and a reserve: one byte less is too little."""
    before = bench.data
    bench.write()
    length = len(bench.data) - len(before)
    other = Bench(bench.session)
    monkeypatch.setattr(other.files, "room", lambda fd, size: length + SPARE_BYTES + spare)
    outcome = other.write()
    assert isinstance(outcome, Written if spare == 0 else Failed)
    assert not isinstance(outcome, Failed) or outcome.anomaly == ""


@pytest.mark.parametrize("name", ["open_append", "open_read", "fstat", "lstat", "read_at", "room"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_an_error_before_the_write_is_a_value(bench: Bench, name: str, code: int) -> None:
    """Nothing is written, nothing raises, no descriptor and no intent is left open."""
    before, descriptors = bench.data, len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    bench.at(name, raising(code))
    outcome = bench.write()
    assert isinstance(outcome, Declined | Failed)
    assert bench.data == before
    assert bench.mtime == OLD
    assert not bench.intents.open
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors


def test_an_intent_that_cannot_be_kept_forbids_the_write(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a crash could not be put right."""
    before = bench.data

    def refuse(intent: Intent) -> None:
        raise IntentNotKeptError("no space for the state database")

    monkeypatch.setattr(bench.intents, "begin", refuse)
    outcome = bench.write()
    assert isinstance(outcome, Failed)
    assert outcome.detail.endswith(": no space for the state database")
    assert not outcome.unfinished
    assert bench.data == before
    assert "write" not in bench.files.names


def test_another_users_file_is_refused(session: Transcript) -> None:
    """Only what belongs to the user whom this process works for."""
    bench = Bench(session)
    bench.writer._uid = os.geteuid() + 1
    outcome = bench.write()
    assert outcome == Declined(Reason.UNSAFE_FILE, "owned by another user")


def test_a_session_id_that_is_not_the_file_name_is_refused(bench: Bench, tmp_path: Path) -> None:
    """Hazard e: a copied file under a new name holds another session's id."""
    copy = tmp_path / "chats" / f"{uuid.uuid4()}.jsonl"
    copy.write_bytes(bench.data)
    outcome = bench.writer.append(Target(str(copy), lambda: ""), lambda _: TITLE)
    assert outcome == Declined(Reason.UNSAFE_FILE, "its session id is not its file name")
    assert copy.read_bytes() == bench.data


def test_a_name_in_capitals_is_the_same_session(bench: Bench, tmp_path: Path) -> None:
    """Ids are compared without case; the record's own spelling is kept."""
    shouted = bench.session.path.with_name(bench.session.path.stem.upper() + ".jsonl")
    bench.session.path.rename(shouted)
    assert isinstance(bench.writer.append(Target(str(shouted), lambda: ""), lambda _: TITLE), Written)
    assert json.loads(shouted.read_bytes().splitlines()[-1])["sessionId"] == bench.session.session_id


def test_a_link_is_refused_by_the_open_itself(bench: Bench, tmp_path: Path) -> None:
    """Hazard i: the kernel is told not to follow it, whatever it leads to."""
    bench.session.path.rename(tmp_path / "target")
    bench.session.path.symlink_to(tmp_path / "target")
    assert bench.write() == Declined(Reason.UNSAFE_FILE, "a symbolic link")
    assert bench.files.names == ["open_append"]


def test_a_second_name_given_at_the_last_look_is_seen(bench: Bench, tmp_path: Path) -> None:
    """Hazard i: a hard link that appears while we read."""
    before = bench.data
    bench.at("lstat", lambda: os.link(bench.session.path, tmp_path / "second"), nth=2)
    assert bench.write() == Declined(Reason.UNSAFE_FILE, "has a second hard link")
    assert bench.data == before


# -- the write ---------------------------------------------------------------------------------------------------------


def test_one_write_holds_the_whole_line(bench: Bench) -> None:
    """One call, one line, one newline at its end (contract rule 5)."""
    before = bench.data
    bench.write()
    assert bench.files.names.count("write") == 1
    assert bench.data[len(before) :].count(b"\n") == 1


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_sync_that_fails_does_not_undo_the_write(bench: Bench, code: int) -> None:
    """The line stands and was read back; how safe it is from a power cut is the disk's."""
    bench.at("sync", raising(code))
    assert isinstance(bench.write(), Written)
    assert bench.mtime == OLD


def test_a_line_that_was_left_open_is_ended_by_the_next_start(bench: Bench) -> None:
    """The system took a part and had no room for the newline: the intent stays, and the next start ends the line."""
    before = bench.data
    bench.files.take = 50
    bench.at("write", raising(errno.ENOSPC), nth=2)
    outcome = bench.write()
    assert isinstance(outcome, Failed)
    assert outcome.anomaly == "short write, left open"
    assert outcome.unfinished
    assert len(bench.data) == len(before) + 50
    assert bench.mtime == OLD
    outcome = bench.recover()
    assert isinstance(outcome, Failed)
    assert not outcome.unfinished
    assert bench.data[len(before) + 50 :] == b"\n"
    assert bench.mtime == OLD


def test_a_torn_line_of_somebody_else_is_not_ended_by_recovery(bench: Bench) -> None:
    """Behind our whole line somebody is writing: a newline of ours would cut theirs."""
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    with bench.session.path.open("ab") as file:
        file.write(b'{"uuid":"77777777-in-flight","parentUuid":')
    before = bench.data
    assert isinstance(bench.recover(), Written)
    assert bench.data == before


def test_a_write_that_takes_nothing_leaves_nothing(bench: Bench) -> None:
    """Zero bytes: no lone newline either."""
    before = bench.data
    bench.files.take = 0
    outcome = bench.write()
    assert isinstance(outcome, Failed)
    assert outcome.anomaly == ""
    assert bench.data == before
    assert bench.mtime == OLD
    assert not bench.intents.open


# -- after the write ---------------------------------------------------------------------------------------------------


def test_a_name_between_look_and_write_is_put_last_with_the_whole_chain(bench: Bench) -> None:
    """The user's name and the turn before it, both in the instant: both stand."""

    def go_on() -> None:
        bench.session.turn("and the logout", "Done too.")
        bench.session.title("My name", "manual")

    bench.at("write", go_on)
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert (outcome.healed, outcome.overruled, outcome.repairs) == (True, True, 1)
    assert reader.shown_title(bench.data) == ("My name", "manual")
    assert bench.session.tail in chain_of(bench.session.records())


def test_a_name_between_look_and_write_is_put_last_though_a_turn_followed(bench: Bench) -> None:
    """The record behind ours makes ours a harmless side branch, but ours still hides the name."""
    bench.at("write", lambda: bench.session.title("My name", "manual"))
    bench.at("sync", lambda: bench.session.user("and the logout"))
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert (outcome.healed, outcome.repairs) == (True, 1)
    assert reader.shown_title(bench.data) == ("My name", "manual")
    assert bench.session.tail in chain_of(bench.session.records())


def torn_name(session: Transcript) -> None:
    """A process dies inside its own write of a name; the picker shows it (vector T09)."""
    record = session.record("system", subtype="custom_title", systemPayload={"customTitle": "Torn", "titleSource": "x"})
    line = json.dumps(record, separators=(",", ":"))
    with session.path.open("ab") as file:
        file.write(line[: line.index('"titleSource"')].encode())


@pytest.mark.parametrize("call", ["sync", "room"])
def test_a_name_cut_off_behind_our_line_is_put_last(bench: Bench, call: str) -> None:
    """A name raced ours, and the next one was cut off by the end of its process before the correction was decided
    (then it is put last) or written (then its line swallows the correction, which is seen and done again).
    """
    bench.at("write", lambda: bench.session.title("My name", "manual"))
    bench.at(call, lambda: torn_name(bench.session), nth=1 if call == "sync" else 2)
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert outcome.overruled
    assert not outcome.anomaly
    assert reader.shown_title(bench.data) == ("Torn", "manual")
    assert bench.session.tail in chain_of(reader.records(bench.data))


def test_a_correction_on_a_torn_line_is_written_again(bench: Bench) -> None:
    """A turn raced ours, and its process died inside its next write just before the correction: that one is swallowed
    by the torn line, and the turn is brought back all the same.
    """

    def torn() -> None:
        with bench.session.path.open("ab") as file:
            file.write(b'{"uuid":"5b0ba2f4-torn","parentUuid":"')

    bench.at("write", lambda: bench.session.user("second"))
    bench.at("write", torn, nth=2)
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert bench.session.tail in chain_of(reader.records(bench.data))
    assert reader.shown_title(bench.data) == ("Fix login test", "auto")


def test_a_copy_from_memory_is_no_name(bench: Bench) -> None:
    """A CLI writes again what stood there before (contract 3.3): a title that was asked for does not give way to it."""
    bench.session.title("Before", "auto")
    bench.session.set_mtime(OLD)
    bench.at("write", lambda: bench.session.title("Before", "auto", side=True))
    outcome = bench.write(TitleLine("Asked for", TitleSource.AUTO))
    assert isinstance(outcome, Written)
    assert not outcome.overruled
    assert reader.shown_title(bench.data) == ("Asked for", "auto")


def test_a_name_given_behind_ours_is_not_hidden_by_a_repair(bench: Bench) -> None:
    """The user's own `title S NAME` raced a turn, and a rename came before the repair: the rename is newer."""
    bench.at("write", lambda: bench.session.user("one more"))
    bench.at("write", lambda: bench.session.title("Newer", "manual"), nth=2)
    outcome = bench.write(TitleLine("Mine", TitleSource.MANUAL, yields=False))
    assert isinstance(outcome, Written)
    assert outcome.overruled
    assert reader.shown_title(bench.data) == ("Newer", "manual")
    assert bench.session.tail in chain_of(bench.session.records())


def test_a_repair_that_raced_again_is_repaired(bench: Bench) -> None:
    """Each correction is verified like the first write."""
    for nth in (1, 2, 3):
        bench.at("write", lambda: bench.session.user("again"), nth)
    outcome = bench.write(RecapLine("Fixing login."))
    assert isinstance(outcome, Written)
    assert outcome.repairs == 3
    assert outcome.uuids[-1] == outcome.uuid
    active = chain_of(bench.session.records())
    assert active[-1] == outcome.uuid
    assert bench.session.tail in active
    assert not set(outcome.uuids[:-1]) & set(active)


def test_corrections_end_and_are_taken_up_again(bench: Bench) -> None:
    """Never a loop: after three the write is an anomaly with its intent open; the next look has three more, and does
    what is left. They are noted first, so that the one after it knows them for ours.
    """
    for nth in range(1, 5):
        bench.at("write", lambda: bench.session.user("again"), nth)
    outcome = bench.write()
    assert isinstance(outcome, Failed)
    assert outcome.anomaly == "corrections did not settle"
    assert outcome.unfinished
    assert bench.files.names.count("write") == 1 + MAX_CORRECTIONS
    assert bench.session.tail not in chain_of(bench.session.records())
    (intent,) = bench.intents.open.values()
    bench.use(Hooked())
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.writer.recover(bench.target, intent)
    (renewed,) = bench.intents.open.values()
    assert len(renewed.spare) == 2 * MAX_CORRECTIONS
    assert set(intent.spare) < set(renewed.spare)
    outcome = bench.recover()
    assert isinstance(outcome, Written)
    assert len(outcome.uuids) == 2 + MAX_CORRECTIONS
    assert bench.session.tail in chain_of(bench.session.records())


def test_a_lease_that_comes_between_write_and_repair_is_respected(bench: Bench) -> None:
    """The repair waits: its holder would break (contract 5); when it is gone, it is done."""
    bench.at("write", lambda: bench.session.turn("one more", "Yes."))

    def take() -> None:
        bench.blocked = "a writer lease"

    bench.at("sync", take)
    outcome = bench.write()
    assert isinstance(outcome, Failed)
    assert outcome.unfinished
    written = bench.data
    assert bench.recover() == Declined(Reason.LOCKED, "a writer lease")
    assert bench.data == written
    bench.blocked = ""
    assert isinstance(bench.recover(), Written)
    assert bench.session.tail in chain_of(bench.session.records())


def test_the_mtime_is_left_alone_under_a_lease(bench: Bench) -> None:
    """A holder that came right after our write remembers the times of the file (contract 5)."""

    def take() -> None:
        bench.leased = "a writer lease"

    bench.at("sync", take)
    assert isinstance(bench.write(), Written)
    assert "set_times" not in bench.files.names


def test_a_killed_repair_is_known_by_the_next_start(bench: Bench) -> None:
    """Killed behind a repair that itself raced: the next start knows the repair for ours and repairs it."""
    bench.at("write", lambda: bench.session.user("first"))
    bench.at("write", lambda: bench.session.user("second"), nth=2)
    bench.at("sync", die, nth=2)
    with pytest.raises(Cut):
        bench.write()
    assert bench.session.tail not in chain_of(bench.session.records())
    outcome = bench.recover()
    assert isinstance(outcome, Written)
    assert len(outcome.uuids) == 3
    assert bench.session.tail in chain_of(bench.session.records())


def test_a_time_that_was_put_back_over_a_write_is_put_right_by_the_next_start(bench: Bench) -> None:
    """Killed between putting the time back and looking again, while the terminal wrote."""
    bench.at("set_times", lambda: bench.session.user("one more"))
    bench.at("fstat", die, nth=6)
    with pytest.raises(Cut):
        bench.write()
    assert bench.mtime == OLD
    assert isinstance(bench.recover(), Written)
    assert bench.mtime > OLD + 1


def test_a_file_brought_back_from_a_backup_is_repaired(bench: Bench, tmp_path: Path) -> None:
    """Another inode with the same bytes: what is wrong in it is put right; its time is left alone."""
    bench.at("write", lambda: bench.session.turn("one more", "Yes."))
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    copy = tmp_path / "copy"
    copy.write_bytes(bench.data)
    copy.replace(bench.session.path)
    bench.session.set_mtime(OLD + 7)
    assert isinstance(bench.recover(), Written)
    assert bench.session.tail in chain_of(bench.session.records())


def test_a_file_brought_back_from_a_backup_keeps_its_time(bench: Bench, tmp_path: Path) -> None:
    """Nothing in it needs a correction, and the time that was to be put back is another file's."""
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    copy = tmp_path / "copy"
    copy.write_bytes(bench.data)
    copy.replace(bench.session.path)
    bench.session.set_mtime(OLD + 7)
    assert isinstance(bench.recover(), Written)
    assert bench.mtime == OLD + 7


def test_a_file_of_other_content_is_not_touched_by_recovery(bench: Bench) -> None:
    """Another session, or an older state of this one, at the same path."""
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    other = Transcript(bench.session.path.parent / "other", session_id=bench.session.session_id)
    for _ in range(9):
        other.turn("something else", "Yes.")
    os.replace(other.path, bench.session.path)
    before = bench.data
    assert bench.recover() == Declined(Reason.NOTHING_NEW, "the record was never written")
    assert bench.data == before


def test_an_archived_file_is_not_touched_by_recovery(bench: Bench) -> None:
    """It may come back, so the answer is not that there is nothing to do."""
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    archive = bench.session.path.parent / "archive"
    archive.mkdir()
    bench.session.path.rename(archive / bench.session.path.name)
    outcome = bench.recover()
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.NOT_FOUND
    assert not bench.session.path.exists()


def test_a_second_session_id_ends_all_corrections(bench: Bench) -> None:
    """Somebody wrote a foreign record right after us: Qwen Code refuses the file, and we add nothing."""
    record = bench.session.record("system", subtype="slash_command", systemPayload={})

    def spoil() -> None:
        bench.session.append(record | {"sessionId": str(uuid.uuid4())})

    bench.at("write", spoil)
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert outcome.anomaly == "a second session id appeared"
    assert bench.files.names.count("write") == 1


def test_lone_surrogates_in_a_title_are_written_as_json_escapes(bench: Bench) -> None:
    """What UTF-8 cannot hold does not break the line."""
    before = bench.data
    assert isinstance(bench.write(TitleLine("broken \ud83d here", TitleSource.AUTO)), Written)
    assert json.loads(bench.data[len(before) :])["systemPayload"]["customTitle"] == "broken \ud83d here"
