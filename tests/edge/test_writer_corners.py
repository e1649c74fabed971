"""The guarded append: what must hold to the last detail, each case found by breaking the writer on purpose."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.edge.writer_bench import OLD, TITLE, Bench, Cut, die, raising
from tests.safety import reader
from tests.safety.scene import Hooked
from tests.support.transcripts import Transcript, chain_of
from watcher.core.events import TitleSource
from watcher.core.reasons import Reason
from watcher.core.writing import Declined, Failed, Payload, RecapLine, SessionFile, TitleLine, Written
from watcher.edge.files import FileStat, RealFiles
from watcher.edge.writer import Target


@pytest.fixture
def session(tmp_path: Path) -> Transcript:
    made = Transcript(tmp_path / "chats")
    made.turn("fix the login test", "Done, added a wait.")
    made.set_mtime(OLD)
    return made


@pytest.fixture
def bench(session: Transcript) -> Bench:
    return Bench(session)


def tear(session: Transcript, line: bytes = b'{"uuid":"5b0ba2f4-torn","parentUuid":"') -> None:
    """Somebody's line that is not finished."""
    with session.path.open("ab") as file:
        file.write(line)


def cut_to(session: Transcript, size: int, mtime: float | None = None) -> None:
    """Somebody cuts the file off."""
    os.truncate(session.path, size)
    if mtime is not None:
        session.set_mtime(mtime)


def seen_by(bench: Bench) -> SessionFile:
    """What the decision is given."""
    seen: list[SessionFile] = []

    def decide(file: SessionFile) -> Declined:
        seen.append(file)
        return Declined(Reason.NOTHING_NEW)

    bench.writer.append(bench.target, decide)
    return seen[-1]


# -- the system calls --------------------------------------------------------------------------------------------------


def test_both_opens_refuse_links_and_never_wait(tmp_path: Path) -> None:
    """Hazard i: what may stand at the path is decided by the kernel at the open itself."""
    file, link, missing = tmp_path / "file", tmp_path / "link", tmp_path / "missing"
    file.touch()
    link.symlink_to(file)
    files = RealFiles()
    for opened in (files.open_append, files.open_read):
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            opened(str(link))
        with pytest.raises(FileNotFoundError):
            opened(str(missing))
        fd = opened(str(file))
        try:
            assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
        finally:
            os.close(fd)
    assert not missing.exists()


def test_a_write_is_one_call_and_never_continued(tmp_path: Path) -> None:
    """Contract rule 5 and 4.3 j: what the kernel did not take is told, not tried again."""
    reader_end, writer_end = os.pipe()
    try:
        os.set_blocking(writer_end, False)
        assert 0 < RealFiles().write(writer_end, bytes(1 << 22)) < 1 << 22
    finally:
        os.close(reader_end)
        os.close(writer_end)


def test_a_line_is_handed_over_in_one_piece() -> None:
    """Whoever reads beside us never sees a half of it: a socket that keeps pieces apart shows one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert RealFiles().write(ours.fileno(), b"x" * 1000) == 1000
        assert len(theirs.recv(4096)) == 1000


def test_a_read_is_as_long_as_the_file(tmp_path: Path) -> None:
    """What the kernel gives in pieces is put together; nothing is made up behind the end."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (3 << 12))
    with path.open("rb") as file:
        assert RealFiles().read_at(file.fileno(), 1 << 30, 1) == path.read_bytes()[1:]


def test_a_sync_asks_the_disk() -> None:
    """A pipe has none, and says so."""
    ends = os.pipe()
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            RealFiles().sync(ends[1])
    finally:
        for fd in ends:
            os.close(fd)


def test_the_room_ends_at_the_size_limit_of_the_process(tmp_path: Path) -> None:
    """A limit counts the file as it is, and the disk what is free."""
    path = tmp_path / "file"
    path.touch()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with path.open("rb") as file:
        free = os.fstatvfs(file.fileno())
        assert abs(RealFiles().room(file.fileno(), 0) - free.f_bavail * free.f_frsize) < 1 << 30
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        try:
            assert RealFiles().room(file.fileno(), 1000) == (1 << 20) - 1000
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


# -- before the write --------------------------------------------------------------------------------------------------


def test_a_fifo_that_somebody_reads_is_refused(bench: Bench) -> None:
    """It can be opened to write then, but is no session."""
    bench.session.path.unlink()
    os.mkfifo(bench.session.path)
    fd = os.open(bench.session.path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert bench.write() == Declined(Reason.UNSAFE_FILE, "not a regular file")
    finally:
        os.close(fd)


def test_a_file_of_the_same_number_on_another_disk_is_another_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that was mounted over the folder meanwhile."""
    look = bench.files.lstat

    def mounted_over(path: str) -> FileStat:
        found = look(path)
        return replace(found, dev=found.dev + 1)

    monkeypatch.setattr(bench.files, "lstat", mounted_over)
    before = bench.data
    assert bench.write() == Declined(Reason.NOT_FOUND, "replaced or archived meanwhile")
    assert bench.data == before


def test_a_link_to_the_file_itself_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    """Moved away while we look, with a link to it left at the path."""

    def move() -> None:
        bench.session.path.rename(tmp_path / "moved")
        bench.session.path.symlink_to(tmp_path / "moved")

    before = bench.data
    bench.at("lstat", move, nth=2)
    assert bench.write() == Declined(Reason.NOT_FOUND, "replaced or archived meanwhile")
    assert bench.data == before


def test_a_file_cut_off_within_the_same_tick_is_read_again(bench: Bench) -> None:
    """A smaller size and the same time."""
    bench.session.user("cut away")
    bench.session.set_mtime(OLD)
    kept = bench.data.rindex(b"\n", 0, -1) + 1
    bench.at("room", lambda: cut_to(bench.session, kept, OLD))
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert (outcome.repairs, outcome.offset) == (0, kept)
    assert outcome.parent in {record["uuid"] for record in bench.session.records()}


def test_a_file_without_a_conversation_is_refused(bench: Bench) -> None:
    """Artifact records are nothing to chain to (contract 2.3)."""
    bench.session.path.write_bytes(b"")
    bench.session.system("session_artifact_event", {})
    before = bench.data
    assert bench.write() == Declined(Reason.UNSAFE_FILE, "no conversation record in it")
    assert bench.data == before


@pytest.mark.parametrize("subtype", sorted(reader.ARTIFACTS))
def test_no_artifact_record_is_a_parent(bench: Bench, subtype: str) -> None:
    """Of no kind: the reader leaves them out of the chain (contract rule 2, vector C13)."""
    leaf = bench.session.tail
    bench.session.system(subtype, {}, side=True)
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert outcome.parent == leaf


def test_the_lock_is_waited_for(bench: Bench) -> None:
    """The other one of us needs some milliseconds."""
    other = RealFiles()
    fd = other.open_append(str(bench.session.path))
    assert other.try_lock(fd)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            other.close(fd)

    bench.writer._pause = pause
    assert isinstance(bench.write(), Written)
    assert len(waited) == 3


def test_the_decision_is_given_the_time_of_the_file_in_full(bench: Bench) -> None:
    """Two seconds of stillness are two seconds."""
    assert seen_by(bench).mtime == OLD


def test_a_torn_name_in_the_head_of_the_file_is_seen(bench: Bench) -> None:
    """The picker shows it when no other title is in sight (contract 3.1)."""
    record = bench.session.record(
        "system", subtype="custom_title", systemPayload={"customTitle": "Torn", "titleSource": "x"}
    )
    line = json.dumps(record, separators=(",", ":")).encode()
    tear(bench.session, line[: line.index(b'"titleSource"')] + b"\n")
    for _ in range(5):
        bench.session.turn("more", "x" * 30_000)
    assert reader.shown_title(bench.data) == ("Torn", None)
    assert seen_by(bench).torn_title == "Torn"


def test_what_only_looks_like_a_title_is_no_torn_name(bench: Bench) -> None:
    """A tool call whose arguments the picker takes for a title (vector T10b) is nobody's word."""
    call = {"functionCall": {"id": "c", "name": "write", "args": {"subtype": "custom_title", "customTitle": "Evil"}}}
    bench.session.append(bench.session.record("assistant", message={"role": "model", "parts": [call]}))
    assert reader.shown_title(bench.data) == ("Evil", None)
    assert seen_by(bench).torn_title == ""


# -- the line ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [TITLE, RecapLine("Fixing login.")])
def test_a_record_says_where_and_when_as_the_newest_one_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, payload: Payload
) -> None:
    """Contract 4.5: directory and version of the leaf, not of the first record; UTC to the millisecond."""
    monkeypatch.setattr(bench.writer._lines, "_clock", lambda: 1_796_000_100.25)
    bench.session.cwd, bench.session.version = "/home/user/proj/sub", "0.23.0"
    bench.session.turn("go on there", "Yes.")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        outcome = bench.write(payload)
    time.tzset()
    assert isinstance(outcome, Written)
    last = bench.session.records()[-1]
    assert (last["cwd"], last["version"]) == ("/home/user/proj/sub", "0.23.0")
    assert last["timestamp"] == "2026-11-30T00:55:00.250Z"


def test_a_correction_says_where_the_raced_record_stands(bench: Bench) -> None:
    """It is made of the file as it is by then."""

    def move() -> None:
        bench.session.cwd = "/home/user/other"
        bench.session.turn("go on there", "Yes.")

    bench.at("write", move)
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert (outcome.repairs, outcome.cwd) == (1, "/home/user/other")
    assert bench.session.records()[-1]["cwd"] == "/home/user/other"


def test_a_long_record_that_raced_ours_is_brought_back(bench: Bench) -> None:
    """However much came in between, our line is found behind it."""
    bench.at("write", lambda: bench.session.turn("second", "x" * 3_000_000))
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert outcome.repairs == 1
    assert bench.session.tail in chain_of(bench.session.records())


def test_nobody_else_is_seen_where_nobody_was(bench: Bench) -> None:
    """A newline of ours in front, and a correction, are ours too."""
    for prepare in (lambda: None, lambda: tear(bench.session)):
        prepare()
        bench.session.set_mtime(OLD)
        outcome = bench.write()
        assert isinstance(outcome, Written)
        assert not outcome.foreign


# -- after the write ---------------------------------------------------------------------------------------------------


def test_the_times_are_put_back_to_the_nanosecond(bench: Bench) -> None:
    """Contract 3.6: the order of two sessions of the same millisecond too; and when it was last read."""
    times = (1_795_000_000_123_456_789, 1_796_000_050_987_654_321)
    os.utime(bench.session.path, ns=times)
    assert isinstance(bench.write(), Written)
    found = bench.session.path.stat()
    assert (found.st_atime_ns, found.st_mtime_ns) == times


def test_the_time_that_somebody_gave_is_kept(bench: Bench) -> None:
    """Whoever wrote behind us: the time is theirs, not ours and not now."""

    def go_on() -> None:
        bench.session.user("one more")
        bench.session.set_mtime(OLD + 5)

    bench.at("sync", go_on)
    assert isinstance(bench.write(), Written)
    assert bench.mtime == OLD + 5
    assert "set_times" not in bench.files.names


def test_the_time_of_a_file_that_was_cut_off_is_not_put_back(bench: Bench) -> None:
    """Somebody changed it: it must not look as if nobody had."""
    size = len(bench.data)
    bench.write()
    looks = bench.files.names[: bench.files.names.index("set_times")].count("fstat")
    cut_to(bench.session, size, OLD)
    bench.use(Hooked())
    bench.at("fstat", lambda: cut_to(bench.session, size - 1), nth=looks)
    bench.write()
    assert bench.mtime > OLD + 1
    assert "set_times" not in bench.files.names


def test_a_line_that_is_not_in_the_file_is_an_anomaly(bench: Bench) -> None:
    """Promise 6: something is wrong with this file, so it is left alone from now on."""
    size = len(bench.data)
    bench.at("sync", lambda: cut_to(bench.session, size))
    outcome = bench.write()
    assert isinstance(outcome, Failed)
    assert outcome.anomaly == "line not found after the write"


def test_a_file_cut_off_before_the_write_is_judged_as_a_whole(bench: Bench) -> None:
    """Our line stands where nothing was read yet, and its parent is gone: it is chained to what is left. What stood
    there before is no newer name.
    """
    bench.session.title("Before", "auto")
    kept = len(bench.data)
    bench.session.turn("cut away", "x" * 500)
    bench.at("write", lambda: cut_to(bench.session, kept))
    outcome = bench.write(TitleLine("Asked for", TitleSource.AUTO))
    assert isinstance(outcome, Written)
    assert (outcome.repairs, outcome.overruled) == (1, False)
    assert reader.shown_title(bench.data) == ("Asked for", "auto")
    records = bench.session.records()
    assert records[0]["uuid"] in chain_of(records)


def test_each_correction_has_an_id_of_its_own(bench: Bench) -> None:
    """One that a torn line swallowed is in the file all the same: a second record of its id would be a fragment of it
    for whoever reads more of that line.
    """
    bench.at("write", lambda: bench.session.user("second"))
    bench.at("write", lambda: tear(bench.session), nth=2)
    assert isinstance(bench.write(), Written)
    (intent,) = bench.intents.open.values()
    uses = [bench.data.count(b'"uuid":"%s"' % each.encode()) for each in intent.spare]
    assert uses == [1, 1, 0]


def test_a_correction_behind_a_torn_line_begins_a_line(bench: Bench) -> None:
    """As the first line does; and only there."""
    bench.at("write", lambda: bench.session.user("second"))
    bench.at("sync", lambda: tear(bench.session))
    outcome = bench.write()
    assert isinstance(outcome, Written)
    assert (outcome.repairs, bench.files.names.count("write")) == (1, 2)
    assert json.loads(bench.data.splitlines()[-1])["uuid"] == outcome.uuid
    assert b"\n\n" not in bench.data


def test_a_correction_leaves_no_blank_line(bench: Bench) -> None:
    """The file ends with a newline: it needs no other one."""
    bench.at("write", lambda: bench.session.user("second"))
    assert isinstance(bench.write(), Written)
    assert b"\n\n" not in bench.data


@pytest.mark.parametrize(
    ("call", "nth", "what", "anomaly"),
    [
        ("room", 2, "full", ""),
        ("sync", 1, "lease", "a correction was not possible"),
        ("write", 2, "error", "a correction could not be written"),
    ],
)
def test_a_correction_that_is_due_is_told(bench: Bench, call: str, nth: int, what: str, anomaly: str) -> None:
    """Promise 6: what we left behind in a file stops writing to it; that there was no room for more does not."""

    def lease() -> None:
        bench.blocked = "a writer lease"

    def full() -> None:
        bench.files.room = lambda fd, size: 0  # type: ignore[method-assign]

    happens: dict[str, Callable[[], object]] = {"full": full, "lease": lease, "error": raising(errno.EIO)}
    bench.at("write", lambda: bench.session.user("second"))
    bench.at(call, happens[what], nth)
    if what == "full":
        bench.at("sync", full)
    outcome = bench.write()
    assert isinstance(outcome, Failed)
    assert outcome.unfinished
    assert outcome.anomaly == anomaly
    assert bench.intents.open


# -- the next start ----------------------------------------------------------------------------------------------------


def killed(bench: Bench, taken: int) -> bytes:
    """We are killed inside our own write; so many bytes of it stand in the file. Returns what stood there before."""
    bench.at("write", die)
    with pytest.raises(Cut):
        bench.write()
    (intent,) = bench.intents.open.values()
    before = bench.data
    tear(bench.session, intent.line[:taken])
    return before


@pytest.mark.parametrize("taken", [2, 12, 60, 150])
@pytest.mark.parametrize("torn", [False, True])
def test_a_cut_line_of_ours_is_ended_wherever_it_was_cut(bench: Bench, taken: int, torn: bool) -> None:
    """Also where a newline stands before it, since the line before was torn; and it is told."""
    if torn:
        tear(bench.session)
        bench.session.set_mtime(OLD)
    before = killed(bench, taken)
    outcome = bench.recover()
    assert isinstance(outcome, Failed)
    assert outcome.anomaly == "short write, closed later"
    assert not outcome.unfinished
    assert len(bench.data) == len(before) + taken + 1
    assert bench.data.endswith(b"\n")


@pytest.mark.parametrize("taken", [5, 30, 120])
def test_a_cut_correction_of_ours_is_ended(bench: Bench, taken: int) -> None:
    """Killed inside the write of a correction: its line is ended, and the turn is brought back."""
    bench.at("write", lambda: bench.session.user("second"))
    bench.at("write", die, nth=2)
    with pytest.raises(Cut):
        bench.write()
    (intent,) = bench.intents.open.values()
    tear(bench.session, (b'{"uuid":"%s","parentUuid":"%s"' % (intent.spare[0].encode(), b"p" * 36) + b"x" * 99)[:taken])
    cut = len(bench.data)
    outcome = bench.recover()
    assert isinstance(outcome, Written)
    assert bench.data[cut : cut + 1] == b"\n"
    assert bench.session.tail in chain_of(reader.records(bench.data))


def test_a_cut_correction_is_ended_though_there_is_no_room_for_more(bench: Bench) -> None:
    """A newline fits nearly always, and whoever writes next stands on a line of its own."""
    bench.at("write", lambda: bench.session.user("second"))
    bench.at("write", die, nth=2)
    with pytest.raises(Cut):
        bench.write()
    (intent,) = bench.intents.open.values()
    tear(bench.session, b'{"uuid":"%s","parentUu' % intent.spare[0].encode())
    bench.use(Hooked())
    bench.files.room = lambda fd, size: 0  # type: ignore[method-assign]
    outcome = bench.writer.recover(bench.target, intent)
    assert isinstance(outcome, Failed)
    assert outcome.unfinished
    assert bench.data.endswith(b'","parentUu\n')


def test_a_name_that_raced_a_write_that_was_cut_off_is_put_last(bench: Bench) -> None:
    """Promise 2 holds for the next start too: what stood there before our line is judged without it."""
    bench.at("write", lambda: bench.session.title("My name", "manual"))
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    outcome = bench.recover()
    assert isinstance(outcome, Written)
    assert outcome.healed
    assert reader.shown_title(bench.data) == ("My name", "manual")


def test_another_session_with_our_line_in_it_is_not_touched(bench: Bench) -> None:
    """The file was written anew with other records, and our line behind them."""
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    (intent,) = bench.intents.open.values()
    other = bench.data[: intent.offset].replace(bench.session.session_id.encode(), str(uuid.uuid4()).encode())
    with bench.session.path.open("r+b") as file:
        file.write(other)
    before = bench.data
    assert bench.recover() == Declined(Reason.NOTHING_NEW, "the file was replaced")
    assert bench.data == before


def test_a_file_that_was_linked_since_is_not_touched_by_recovery(bench: Bench, tmp_path: Path) -> None:
    """The next start looks at the file as every write does."""
    bench.at("write", lambda: bench.session.user("second"))
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    os.link(bench.session.path, tmp_path / "second")
    before = bench.data
    assert bench.recover() == Declined(Reason.UNSAFE_FILE, "has a second hard link")
    assert bench.data == before


def test_a_disk_that_cannot_be_read_leaves_the_write_open(bench: Bench) -> None:
    """What could not be looked at is looked at again."""
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write()
    (intent,) = bench.intents.open.values()
    bench.use(Hooked())
    bench.at("read_at", raising(errno.EIO))
    outcome = bench.writer.recover(bench.target, intent)
    assert isinstance(outcome, Failed)
    assert outcome.unfinished
    assert not outcome.anomaly


def test_recovery_knows_what_stood_there_before(bench: Bench) -> None:
    """A title that was asked for does not give way to the one that it replaced, however late it is verified."""
    bench.session.title("Before", "auto")
    bench.session.set_mtime(OLD)
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.write(TitleLine("Asked for", TitleSource.AUTO))
    outcome = bench.recover()
    assert isinstance(outcome, Written)
    assert (outcome.repairs, outcome.overruled) == (0, False)
    assert reader.shown_title(bench.data) == ("Asked for", "auto")


def test_the_caller_finds_its_own_word_again(bench: Bench) -> None:
    """The label comes back in the intent."""
    bench.at("sync", die)
    with pytest.raises(Cut):
        bench.writer.append(replace(bench.target, label="heal 7 m"), lambda _: TITLE)
    (intent,) = bench.intents.open.values()
    assert intent.label == "heal 7 m"
    assert intent.path == Target(str(bench.session.path), lambda: "").path
