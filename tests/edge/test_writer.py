"""The guarded append on real files: what it writes, when it refuses, and what it does when another writer slips in."""

from __future__ import annotations

import json
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.edge.writer_bench import NOW, TITLE, Intents
from tests.support.transcripts import Transcript, chain_of
from watcher.core.events import TitleSource
from watcher.core.reasons import Reason
from watcher.core.writing import Declined, Failed, Payload, RecapLine, SessionFile, TitleLine, WriteOutcome, Written
from watcher.edge.files import FileStat, RealFiles
from watcher.edge.writer import SessionWriter, Target


class Interposed(RealFiles):
    """The real calls, with something happening before a named call or a call that fails."""

    def __init__(self) -> None:
        self.before: dict[str, list[Callable[[], object]]] = {}
        self.calls: list[str] = []
        self.take: int | None = None

    def _pass(self, name: str) -> None:
        self.calls.append(name)
        waiting = self.before.get(name)
        if waiting:
            waiting.pop(0)()

    def open_append(self, path: str) -> int:
        self._pass("open_append")
        return super().open_append(path)

    def open_read(self, path: str) -> int:
        self._pass("open_read")
        return super().open_read(path)

    def lstat(self, path: str) -> FileStat:
        self._pass("lstat")
        return super().lstat(path)

    def write(self, fd: int, data: bytes) -> int:
        self._pass("write")
        if self.take is not None:
            data, self.take = data[: self.take], None
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        self._pass("sync")
        super().sync(fd)

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        self._pass("set_times")
        super().set_times(fd, atime_ns, mtime_ns)


class Bench:
    """A writer, its seam and its intents."""

    def __init__(self) -> None:
        self.files = Interposed()
        self.intents = Intents()
        self.writer = SessionWriter(
            self.files,
            self.intents,
            clock=lambda: NOW,
            new_uuid=lambda: str(uuid.uuid4()),
            pause=lambda _: None,
        )

    def write(
        self, path: Path, payload: Payload | Declined = TITLE, blocked: Callable[[], str] = lambda: ""
    ) -> WriteOutcome:
        return self.writer.append(Target(str(path), blocked), lambda _: payload)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def session(tmp_path: Path) -> Transcript:
    made = Transcript(tmp_path / "chats")
    made.turn("fix the login test", "Done, added a wait.")
    made.set_mtime(1_796_000_050.5)
    return made


def test_a_title_is_one_compact_line_with_the_native_fields(bench: Bench, session: Transcript) -> None:
    """Fields and order of contract 4.5, parent = leaf, cwd and version copied, mtime as before."""
    before = session.path.read_bytes()
    leaf = session.tail
    mtime = session.path.stat().st_mtime_ns
    outcome = bench.write(session.path)
    assert isinstance(outcome, Written)
    added = session.path.read_bytes().removeprefix(before)
    assert added.endswith(b"\n")
    assert added.count(b"\n") == 1
    assert b'"subtype":"custom_title"' in added
    record = json.loads(added)
    assert list(record) == [
        "uuid", "parentUuid", "sessionId", "timestamp", "type", "provenance", "cwd", "version", "subtype",
        "systemPayload",
    ]  # fmt: skip
    assert record["parentUuid"] == leaf
    assert record["sessionId"] == session.session_id
    assert record["systemPayload"] == {"customTitle": "Fix login test", "titleSource": "auto"}
    assert (record["cwd"], record["version"]) == (session.cwd, session.version)
    assert json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" == added
    assert session.path.stat().st_mtime_ns == mtime
    assert (outcome.offset, outcome.end) == (len(before), len(before) + len(added))
    assert outcome.uuids == (record["uuid"],)


def test_a_recap_is_the_lone_command_result_that_qwen_code_renders(bench: Bench, session: Transcript) -> None:
    """The template of contract 4.5 for recaps."""
    assert isinstance(bench.write(session.path, RecapLine("Fixing login. Next: run tests.")), Written)
    payload = session.records()[-1]["systemPayload"]
    assert payload == {
        "phase": "result",
        "rawCommand": "/recap",
        "outputHistoryItems": [{"type": "away_recap", "text": "Fixing login. Next: run tests."}],
    }


def test_what_the_decision_declines_is_not_written(bench: Bench, session: Transcript) -> None:
    """A decision taken on the fresh file has the last word."""
    before = session.path.read_bytes()
    outcome = bench.write(session.path, Declined(Reason.MANUAL_TITLE))
    assert outcome == Declined(Reason.MANUAL_TITLE)
    assert session.path.read_bytes() == before
    assert not bench.intents.open


def test_the_decision_sees_what_came_since(bench: Bench, session: Transcript) -> None:
    """A record that lands while the file is read makes the writer read and decide again."""
    seen: list[SessionFile] = []

    def decide(file: SessionFile) -> Payload | Declined:
        seen.append(file)
        if len(seen) == 1:
            session.title("My name", "manual")
        return Declined(Reason.MANUAL_TITLE) if file.state.title else TITLE

    outcome = bench.writer.append(Target(str(session.path), lambda: ""), decide)
    assert outcome == Declined(Reason.MANUAL_TITLE)
    assert len(seen) == 2
    assert session.records()[-1]["systemPayload"]["customTitle"] == "My name"


@pytest.mark.parametrize("moment", [1, 2])
def test_a_lease_stops_the_write_before_and_at_the_last_moment(bench: Bench, session: Transcript, moment: int) -> None:
    """The lease is looked at first, and once more directly before the write."""
    before = session.path.read_bytes()
    looks = iter(["", "held"] if moment == 2 else ["held"])
    outcome = bench.write(session.path, blocked=lambda: next(looks))
    assert outcome == Declined(Reason.LOCKED, "held")
    assert session.path.read_bytes() == before


def test_a_record_that_slips_in_before_ours_is_brought_back(bench: Bench, session: Transcript) -> None:
    """Hazard a: our record would be the leaf with a stale parent; the repair record takes the foreign one in (C04)."""
    bench.files.before["write"] = [lambda: session.turn("and now the logout", "Done too.")]
    outcome = bench.write(session.path)
    assert isinstance(outcome, Written)
    assert outcome.repairs == 1
    assert outcome.foreign
    records = session.records()
    active = chain_of(records)
    assert {each["uuid"] for each in records if each["type"] in ("user", "assistant")} <= set(active)
    assert active[-1] == outcome.uuid
    assert len(outcome.uuids) == 2


def test_a_record_that_lands_behind_ours_needs_no_repair(bench: Bench, session: Transcript) -> None:
    """The CLI chains to its own tail; ours is a side branch then, and harmless."""
    bench.files.before["sync"] = [lambda: session.turn("and now the logout", "Done too.")]
    outcome = bench.write(session.path)
    assert isinstance(outcome, Written)
    assert outcome.repairs == 0
    assert outcome.uuid not in chain_of(session.records())


def test_the_mtime_is_left_alone_when_somebody_else_wrote(bench: Bench, session: Transcript) -> None:
    """Only our own append is undone in the mtime."""
    bench.files.before["sync"] = [lambda: session.user("one more")]
    bench.write(session.path)
    assert session.path.stat().st_mtime > 1_796_000_051


def test_the_mtime_is_now_when_somebody_writes_while_it_is_put_back(bench: Bench, session: Transcript) -> None:
    """A record that lands around the restore must not look old (contract 3.6)."""
    bench.files.before["set_times"] = [lambda: session.user("one more")]
    bench.write(session.path)
    assert session.path.stat().st_mtime > 1_796_000_051


@pytest.mark.parametrize("source", ["manual", None, "auto"])
def test_a_title_that_lands_between_check_and_write_is_put_last(
    bench: Bench, session: Transcript, source: str | None
) -> None:
    """Promise 2: what another writer gave in that instant stands last, as manual where it had no source."""
    bench.files.before["write"] = [lambda: session.title("Mine", source)]
    outcome = bench.write(session.path)
    assert isinstance(outcome, Written)
    assert outcome.healed
    last = session.records()[-1]
    assert last["systemPayload"] == {"customTitle": "Mine", "titleSource": source or "manual"}
    assert chain_of(session.records())[-1] == last["uuid"]


def test_a_title_that_lands_behind_ours_stays_last(bench: Bench, session: Transcript) -> None:
    """A rename after our line needs no help."""
    bench.files.before["sync"] = [lambda: session.title("Mine", "manual")]
    outcome = bench.write(session.path)
    assert isinstance(outcome, Written)
    assert not outcome.healed
    assert session.records()[-1]["systemPayload"]["customTitle"] == "Mine"


def test_a_name_that_the_user_gives_now_does_not_yield(bench: Bench, session: Transcript) -> None:
    """`title S NAME` and another rename in the same instant: the later line stands."""
    bench.files.before["write"] = [lambda: session.title("Other", "manual")]
    outcome = bench.write(session.path, TitleLine("Now", TitleSource.MANUAL, yields=False))
    assert isinstance(outcome, Written)
    assert session.records()[-1]["systemPayload"] == {"customTitle": "Now", "titleSource": "manual"}


def test_corrections_are_bounded(bench: Bench, session: Transcript) -> None:
    """Another writer that slips in every time ends in an anomaly, not in a loop."""
    bench.files.before["write"] = [lambda: session.user("again") for _ in range(20)]
    outcome = bench.write(session.path)
    assert isinstance(outcome, Failed)
    assert outcome.anomaly
    assert bench.files.calls.count("write") <= 4


def test_a_torn_line_is_ended_first(bench: Bench, session: Transcript) -> None:
    """Hazard b: the newline and our line go in one write; the torn line is dropped, the chain is whole (C10)."""
    with session.path.open("ab") as file:
        file.write(b'{"uuid":"x","parentUuid":"')
    outcome = bench.write(session.path)
    assert isinstance(outcome, Written)
    assert bench.files.calls.count("write") == 1
    lines = session.path.read_bytes().split(b"\n")
    assert json.loads(lines[-2])["uuid"] == outcome.uuid
    assert json.loads(lines[-2])["parentUuid"] == session.tail


def test_a_whole_record_without_its_newline_is_the_parent(bench: Bench, session: Transcript) -> None:
    """A complete last record that lacks only its newline counts, as for Qwen Code's reader (C11)."""
    session.user("one more")
    data = session.path.read_bytes()
    session.path.write_bytes(data.removesuffix(b"\n"))
    outcome = bench.write(session.path)
    assert isinstance(outcome, Written)
    assert outcome.parent == session.tail


def test_a_short_write_is_closed_and_never_continued(bench: Bench, session: Transcript) -> None:
    """Hazard j: a newline alone, and an anomaly that stops writing to this session."""
    before = session.path.read_bytes()
    bench.files.take = 20
    outcome = bench.write(session.path)
    assert isinstance(outcome, Failed)
    assert outcome.anomaly
    added = session.path.read_bytes().removeprefix(before)
    assert len(added) == 21
    assert added.endswith(b"\n")
    assert not bench.intents.open


def refuse(code: int) -> Callable[[], object]:
    def fail() -> object:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [5, 28, 30, 122])
def test_an_error_of_the_write_leaves_the_file_as_it_was(bench: Bench, session: Transcript, code: int) -> None:
    """EIO, ENOSPC, EROFS, EDQUOT: a value with the system's words, the file untouched, no intent left."""
    before = session.path.read_bytes()
    bench.files.before["write"] = [refuse(code)]
    outcome = bench.write(session.path)
    assert isinstance(outcome, Failed)
    assert os.strerror(code) in outcome.detail
    assert session.path.read_bytes() == before
    assert not bench.intents.open


def test_no_write_to_a_full_disk(bench: Bench, session: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    """With less room than a line and a reserve, nothing is tried: a short write would tear the file's end."""
    monkeypatch.setattr(bench.files, "room", lambda fd, size: 1000)
    outcome = bench.write(session.path)
    assert isinstance(outcome, Failed)
    assert "no space" in outcome.detail
    assert "write" not in bench.files.calls


def make_unsafe(path: Path, how: str, spare: Path) -> None:
    data = path.read_bytes()
    if how == "hard link":
        os.link(path, spare)
        return
    path.unlink()
    if how == "symlink":
        spare.write_bytes(data)
        path.symlink_to(spare)
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "directory":
        path.mkdir()


@pytest.mark.parametrize("how", ["symlink", "fifo", "hard link", "directory"])
def test_files_that_are_no_plain_sessions_are_refused(
    bench: Bench, session: Transcript, tmp_path: Path, how: str
) -> None:
    """Hazard i: links, FIFOs and directories at the path are refused without waiting."""
    make_unsafe(session.path, how, tmp_path / "spare")
    outcome = bench.write(session.path)
    assert isinstance(outcome, Declined | Failed)
    assert outcome.reason is Reason.UNSAFE_FILE


def test_a_missing_file_is_not_made(bench: Bench, session: Transcript) -> None:
    """Deleted is deleted."""
    session.path.unlink()
    assert bench.write(session.path) == Declined(Reason.NOT_FOUND, "no such file")
    assert not session.path.exists()


@pytest.mark.parametrize("call", ["open_append", "open_read", "lstat"])
def test_a_file_that_is_archived_meanwhile_is_left_alone(bench: Bench, session: Transcript, call: str) -> None:
    """Hazard g: moved away between our steps: no write, nothing created."""
    moved = session.path.parent / "archive" / session.path.name
    moved.parent.mkdir()
    before = session.path.read_bytes()
    bench.files.before[call] = [lambda: session.path.rename(moved)]
    outcome = bench.write(session.path)
    assert isinstance(outcome, Declined | Failed)
    assert moved.read_bytes() == before
    assert not session.path.exists()


def test_a_file_that_is_replaced_meanwhile_is_left_alone(bench: Bench, session: Transcript, tmp_path: Path) -> None:
    """Another file at the path: neither is written."""
    other = Transcript(tmp_path / "other", session_id=session.session_id)
    other.turn("something else", "Yes.")
    first, second = session.path.read_bytes(), other.path.read_bytes()
    kept = tmp_path / "kept.jsonl"

    def swap() -> None:
        session.path.rename(kept)
        other.path.rename(session.path)

    bench.files.before["lstat"] = [swap]
    outcome = bench.write(session.path)
    assert outcome == Declined(Reason.NOT_FOUND, "replaced or archived meanwhile")
    assert (kept.read_bytes(), session.path.read_bytes()) == (first, second)


def test_foreign_ids_are_refused(bench: Bench, session: Transcript) -> None:
    """Hazard e: a second session id, or one that is not the file's name."""
    record = session.record("user", message={"role": "user", "parts": [{"text": "x"}]})
    session.append(record | {"sessionId": "another"})
    outcome = bench.write(session.path)
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.UNSAFE_FILE


def test_an_empty_file_is_refused(bench: Bench, tmp_path: Path) -> None:
    """Nothing to chain to: nothing to write."""
    path = tmp_path / f"{uuid.uuid4()}.jsonl"
    path.touch()
    outcome = bench.write(path)
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.UNSAFE_FILE


def test_another_watcher_holds_the_lock(bench: Bench, session: Transcript) -> None:
    """Two of us exclude each other; the second one gives up after its tries, without a write."""
    other = RealFiles()
    fd = other.open_append(str(session.path))
    assert other.try_lock(fd)
    try:
        outcome = bench.write(session.path)
    finally:
        other.close(fd)
    assert isinstance(outcome, Declined)
    assert outcome.reason is Reason.LOCKED


class Cut(Exception):  # noqa: N818 - not an error of the program
    """The process ends here."""


def die() -> None:
    raise Cut


@pytest.mark.parametrize("call", ["write", "sync", "set_times"])
def test_a_write_that_was_cut_off_is_finished_by_the_next_start(bench: Bench, session: Transcript, call: str) -> None:
    """Before the write: nothing happened. After it: verified, and the mtime put back."""
    before = session.path.read_bytes()
    mtime = session.path.stat().st_mtime_ns
    bench.files.before[call] = [die]
    with pytest.raises(Cut):
        bench.write(session.path)
    (intent,) = bench.intents.open.values()
    outcome = bench.writer.recover(Target(str(session.path), lambda: ""), intent)
    if call == "write":
        assert isinstance(outcome, Declined)
        assert session.path.read_bytes() == before
    else:
        assert isinstance(outcome, Written)
        assert session.path.stat().st_mtime_ns == mtime


def test_recovery_corrects_a_stale_record(bench: Bench, session: Transcript) -> None:
    """A record slipped in before ours and we were killed: the next start brings the turn back."""
    bench.files.before["write"] = [lambda: session.turn("more", "Yes.")]
    bench.files.before["sync"] = [die]
    with pytest.raises(Cut):
        bench.write(session.path)
    (intent,) = bench.intents.open.values()
    outcome = bench.writer.recover(Target(str(session.path), lambda: ""), intent)
    assert isinstance(outcome, Written)
    assert outcome.repairs == 1
    assert session.tail in chain_of(session.records())


def test_recovery_ends_a_line_that_was_cut(bench: Bench, session: Transcript) -> None:
    """Killed inside our own line: a newline ends it, so that the next record stands on a line of its own."""
    bench.files.before["write"] = [die]
    with pytest.raises(Cut):
        bench.write(session.path)
    (intent,) = bench.intents.open.values()
    with session.path.open("ab") as file:
        file.write(b'{"uuid":"' + intent.uuid.encode() + b'","parentUuid":"')
    bench.writer.recover(Target(str(session.path), lambda: ""), intent)
    assert session.path.read_bytes().endswith(b"\n")


def test_nothing_is_created_and_modes_stay(bench: Bench, session: Transcript) -> None:
    """The directory holds what it held, the file's mode is what it was."""
    session.path.chmod(0o600)
    before = sorted(session.path.parent.iterdir())
    bench.write(session.path)
    assert sorted(session.path.parent.iterdir()) == before
    assert stat.S_IMODE(session.path.stat().st_mode) == 0o600
