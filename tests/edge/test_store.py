"""The state database, as one process and as several."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.generation import Kind
from watcher.edge.database import Database
from watcher.edge.store import (
    FILE_NAME,
    Anomaly,
    Attempts,
    Baseline,
    Heartbeat,
    IndexRow,
    JournalEntry,
    JournalKind,
    Paused,
    Pending,
    PendingKind,
    Stamp,
    Store,
)
from watcher.edge.store_schema import APPLICATION_ID, MIGRATIONS
from watcher.errors import StateError

SESSION = "0B8F4C1E-7a52-4f0e-9d53-5c1f0f7a9e01"
NOW = 1_800_000_000.0
DAY = 86_400.0


@contextmanager
def opened(directory: Path) -> Iterator[Store]:
    with closing(Store.open(directory)) as store:
        yield store


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    with opened(directory) as store:
        yield store


def entry(text: str = "Fix login", at: float = NOW, **fields: object) -> JournalEntry:
    values: dict[str, object] = {
        "kind": JournalKind.TITLE,
        "session_id": SESSION,
        "path": "/p/x.jsonl",
        "source": "auto",
        "record_uuid": "u1",
    }
    return JournalEntry(text=text, at=at, **(values | fields))  # type: ignore[arg-type]


def row(path: str, **fields: object) -> IndexRow:
    return IndexRow(path, os.path.basename(path).removesuffix(".jsonl"), **fields)  # type: ignore[arg-type]


# -- attempts and budget ---------------------------------------------------------------------------------------------


def test_attempts_are_counted_before_the_call_and_survive_a_restart(directory: Path) -> None:
    """The count, its turn and the result are there for the next process, whatever the id's case."""
    with opened(directory) as store:
        assert store.attempts(SESSION) == Attempts()
        assert store.note_attempt(SESSION, "turn-1", NOW) == 1
        assert store.note_attempt(SESSION.lower(), "turn-2", NOW + 1) == 2
        store.note_result(SESSION, "model_error", "host 500")
    with opened(directory) as store:
        assert store.attempts(SESSION.upper()) == Attempts(2, "turn-2", "model_error", "host 500", NOW + 1)
        assert store.failed_attempts(NOW) == 1


def test_what_was_made_is_remembered_whatever_becomes_of_later_attempts(directory: Path) -> None:
    """Of a later attempt that fails, is taken back, or is cut off by the end of the process."""
    with opened(directory) as store:
        store.note_attempt(SESSION, "turn-3", NOW, Kind.RECAP)
        assert store.attempts(SESSION, Kind.RECAP).made_turn == ""
        store.note_made(SESSION, "turn-3", 3, Kind.RECAP)
        store.note_attempt(SESSION, "turn-5", NOW + 1, Kind.RECAP)
        store.note_result(SESSION, "model_error", "host 500", Kind.RECAP)
        store.note_attempt(SESSION, "turn-6", NOW + 2, Kind.RECAP)
        store.take_back_attempt(SESSION, Kind.RECAP)
        store.note_attempt(SESSION, "turn-7", NOW + 3, Kind.RECAP)
    with opened(directory) as store:
        found = store.attempts(SESSION, Kind.RECAP)
        assert (found.last_turn, found.made_turn, found.made_user_turns) == ("turn-7", "turn-3", 3)
        assert store.attempts(SESSION).made_turn == ""


def test_titles_and_recaps_are_counted_apart(store: Store) -> None:
    """A new attempt forgets the last result, a reset only its own kind."""
    store.note_attempt(SESSION, "t", NOW)
    store.note_result(SESSION, "empty_result")
    assert store.note_attempt(SESSION, "t", NOW, Kind.RECAP) == 1
    store.note_attempt(SESSION, "t", NOW)
    assert store.attempts(SESSION).last_reason == ""
    store.reset_attempts(SESSION, Kind.RECAP)
    assert (store.attempts(SESSION).count, store.attempts(SESSION, Kind.RECAP).count) == (2, 0)


def test_the_daily_calls_stop_at_the_limit(store: Store) -> None:
    """A limit that is lowered later holds at once; another day starts at zero."""
    assert [store.take_call("2026-11-30", 2) for _ in range(3)] == [True, True, False]
    assert store.calls_on("2026-11-30") == 2
    assert not store.take_call("2026-11-30", 1)
    assert store.take_call("2026-12-01", 1)
    assert not store.take_call("2026-12-02", 0)
    assert store.calls_on("2026-12-02") == 0


def test_tokens_add_up_and_take_no_calls(store: Store) -> None:
    """Tokens of a day, with and without a call before."""
    store.add_tokens("2026-11-30", 10, 1)
    store.take_call("2026-11-30", 5)
    store.add_tokens("2026-11-30", 20, 2)
    assert (store.tokens_on("2026-11-30"), store.calls_on("2026-11-30")) == ((30, 3), 1)
    assert store.tokens_on("2026-12-01") == (0, 0)


def test_several_processes_never_take_more_calls_than_there_are(directory: Path) -> None:
    """Six processes that race for 100 calls get exactly 100, while others write; none fails."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from watcher.edge.store import Store\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "taken = 0\n"
        "for number in range(60):\n"
        "    taken += store.take_call('today', 100)\n"
        "    store.note_attempt('s', 't', 1.0)\n"
        "print(taken)\n"
        "store.close()\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    results = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * 6, results
    assert sum(int(out) for out, _ in results) == 100
    with opened(directory) as store:
        assert store.calls_on("today") == 100
        assert store.attempts("s").count == 360
        assert store.warnings() == []


def test_threads_may_share_one_store(store: Store) -> None:
    """Every attempt of every thread is counted."""
    threads = [
        threading.Thread(target=lambda: [store.note_attempt(SESSION, "t", NOW) for _ in range(100)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.attempts(SESSION).count == 400


def test_what_an_endpoint_refuses_is_remembered(store: Store) -> None:
    """Replaced as a whole; nothing for another endpoint."""
    assert store.learned("https://a|m") is None
    store.learn("https://a|m", {"tools": False})
    store.learn("https://a|m", {"max_tokens": "max_completion_tokens"})
    assert store.learned("https://a|m") == {"max_tokens": "max_completion_tokens"}
    assert store.learned("https://b|m") is None


# -- journal, pending, intents ---------------------------------------------------------------------------------------


def test_the_journal_gives_back_what_was_recorded(store: Store) -> None:
    """All fields, with the given number, the id in lower case."""
    whole = entry(cwd="/p", model="m", parent_uuid="u0", offset=12, note="n", uuids=("u1", "u2"))
    seq = store.record(whole)
    (found,) = store.entries()
    assert found == store.entry(seq)
    assert found.seq == seq
    assert found.session_id == SESSION.lower()
    assert (found.text, found.source, found.uuids, found.offset) == ("Fix login", "auto", ("u1", "u2"), 12)
    assert store.entry(seq + 1) is None


def test_entries_are_filtered_and_the_limit_keeps_the_newest(store: Store) -> None:
    """Oldest first, by number, kind, session and time."""
    kinds = (JournalKind.TITLE, JournalKind.RECAP, JournalKind.HEAL, JournalKind.TITLE)
    seqs = [
        store.record(entry(f"t{number}", NOW + number, kind=kind, source="" if kind is JournalKind.RECAP else "auto"))
        for number, kind in enumerate(kinds)
    ]
    store.record(entry("other", NOW + 9, session_id="another"))
    assert [found.text for found in store.entries(session_id=SESSION)] == ["t0", "t1", "t2", "t3"]
    assert [found.text for found in store.entries(session_id=SESSION, limit=2)] == ["t2", "t3"]
    assert [found.text for found in store.entries(kinds=(JournalKind.TITLE, JournalKind.RECAP), limit=3)] == [
        "t1",
        "t3",
        "other",
    ]
    assert [found.text for found in store.entries(after_seq=seqs[2], since=NOW + 4)] == ["other"]
    assert [found.text for found in store.our_titles(SESSION)] == ["t0", "t2", "t3"]
    assert store.count_entries(JournalKind.TITLE, since=NOW + 1) == 2


def test_a_text_delivered_again_stays_one_entry(store: Store) -> None:
    """The newest record is named, all records are remembered, the time of the first delivery stays (design 11)."""
    seq = store.record(entry())
    store.redelivered(seq, "u2", NOW + 5, offset=77)
    store.redelivered(seq, "u3", NOW + 9)
    (found,) = store.entries()
    assert (found.record_uuid, found.uuids, found.at, found.offset) == ("u3", ("u1", "u2", "u3"), NOW, 77)


def test_another_process_can_follow_the_journal(directory: Path) -> None:
    """`data_version` moves when somebody else writes and not otherwise; the new entries are found by number."""
    with opened(directory) as ours, opened(directory) as theirs:
        seen = ours.record(entry("a"))
        version = theirs.data_version()
        assert theirs.data_version() == version
        ours.record(entry("b"))
        assert theirs.data_version() != version
        assert [found.text for found in theirs.entries(after_seq=seen)] == ["b"]


def test_texts_wait_until_they_are_dropped(store: Store) -> None:
    """One of each kind a session; a newer one replaces it; ordered by age."""
    recap = Pending(session_id=SESSION, kind=PendingKind.RECAP, path="/p/x.jsonl", created_at=NOW + 1, text="r")
    title = Pending(
        session_id=SESSION.lower(),
        kind=PendingKind.MANUAL_TITLE,
        path="/p/x.jsonl",
        created_at=NOW,
        text="T",
        source="manual",
        model="m",
        basis_moves=3,
        basis_turn="t1",
        journal_seq=4,
        note="n",
    )
    store.put_pending(recap)
    store.put_pending(title)
    store.put_pending(Pending(session_id="b", kind=PendingKind.TITLE, path="/p/b.jsonl", created_at=NOW - 1))
    assert store.pending(SESSION)[0] == title
    assert [found.kind for found in store.pending(SESSION)] == [PendingKind.MANUAL_TITLE, PendingKind.RECAP]
    assert [found.session_id for found in store.all_pending()] == ["b", SESSION.lower(), SESSION.lower()]
    store.drop_pending(SESSION, PendingKind.RECAP)
    assert store.pending(SESSION) == [title]
    store.drop_pending("b")
    store.drop_pending(SESSION)
    assert store.all_pending() == []


def test_an_intent_survives_a_kill(directory: Path) -> None:
    """A write that was begun and never verified is known to the next process."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from watcher.edge.store import Store\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "store.put_intent('u1', {'uuid': 'u1', 'offset': 5})\n"
        "store.put_intent('u2', {'uuid': 'u2'})\n"
        "store.drop_intent('u2')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(directory)], check=False)
    assert done.returncode == -signal.SIGKILL
    with opened(directory) as store:
        assert store.intents() == [{"uuid": "u1", "offset": 5}]


# -- dismissed, pause, brake -----------------------------------------------------------------------------------------


def test_dismissed_sessions_stay_dismissed(directory: Path) -> None:
    """After `undo` a session is left alone, also after a restart."""
    with opened(directory) as store:
        assert not store.is_dismissed(SESSION)
        store.dismiss(SESSION, NOW)
    with opened(directory) as store:
        assert store.is_dismissed(SESSION.upper())


def test_pause_for_a_time_and_for_ever(directory: Path) -> None:
    """A timed pause ends by itself, another one with `resume`; both survive a restart."""
    with opened(directory) as store:
        assert store.paused(NOW) is None
        store.pause(NOW + 10)
    with opened(directory) as store:
        assert store.paused(NOW) == Paused(NOW + 10)
        assert store.paused(NOW + 10) is None
        store.pause(None)
        assert store.paused(NOW + 1e9) == Paused(None)
        store.resume()
        assert store.paused(NOW) is None


def test_an_anomaly_stops_its_session_and_three_in_a_day_stop_all(directory: Path) -> None:
    """The brake holds across restarts and days until it is cleared; the sessions stay stopped (design promise 6)."""
    with opened(directory) as store:
        store.note_anomaly("A", "first", NOW)
        store.note_anomaly("b", "second", NOW + 1)
        assert (store.session_stopped("a"), store.session_stopped("c")) == ("first", None)
        assert store.stopped_all() is None
        store.note_anomaly("c", "third", NOW + DAY - 1)
    with opened(directory) as store:
        assert "third" in (store.stopped_all() or "")
        store.clear_brake(NOW + DAY)
        assert store.stopped_all() is None
        assert store.session_stopped("a") == "first"
        store.note_anomaly("d", "fourth", NOW + DAY + 1)
        assert store.stopped_all() is None, "those before the brake was cleared do not count"
        assert store.anomalies(NOW + DAY) == [Anomaly("d", "fourth", NOW + DAY + 1)]


def test_three_anomalies_on_three_days_stop_only_their_sessions(store: Store) -> None:
    """What is spread over more than a day does not stop all."""
    for number in range(5):
        store.note_anomaly(f"s{number}", "w", NOW + number * DAY * 0.6)
    assert store.stopped_all() is None


# -- index -----------------------------------------------------------------------------------------------------------


def test_a_baseline_is_a_row_of_which_nothing_is_known_yet(store: Store) -> None:
    """What a first look finds: identity, size and time, and a digest for each directory; all of it or nothing."""
    name = os.fsdecode(b"0B8F4C1E-7a52-4f0e-9d53-5c1f0f7a9e01\xff.jsonl")
    found = Baseline(name, "0B8F4C1E-7a52-4f0e-9d53-5c1f0f7a9e01", 2**64 - 1, 2**63 + 5, 10, 20)
    store.save_baselines([("/p/chats", b"d", [found]), ("/q/chats", b"e", [])])
    assert store.index_rows() == [
        IndexRow(f"/p/chats/{name}", found.session_id.lower(), 2**64 - 1, 2**63 + 5, size=10, mtime_ns=20)
    ]
    assert store.stamps("/p/chats") == {name: (2**64 - 1, 2**63 + 5, 10, 20)}
    assert store.digests() == {"/p/chats": b"d", "/q/chats": b"e"}

    def broken() -> Iterator[tuple[str, bytes, list[Baseline]]]:
        yield "/r/chats", b"f", [found]
        raise OSError("the disk went away")

    with pytest.raises(StateError):
        store.save_baselines(broken())
    assert set(store.digests()) == {"/p/chats", "/q/chats"}


def test_memory_that_is_released_changes_nothing(store: Store) -> None:
    """Pages that SQLite holds are given back; what is stored stays."""
    store.set_flag("a", "b")
    store.release_memory()
    assert store.get_flag("a") == "b"


def test_index_rows_come_back_as_they_were(store: Store) -> None:
    """All fields, also 64-bit inode numbers, paths that are no text, and lone surrogates in titles."""
    strange = os.fsdecode(b"/p/\xff\xfe/chats/0b8f4c1e-7a52-4f0e-9d53-5c1f0f7a9e01.jsonl")
    whole = row(
        strange,
        dev=2**64 - 1,
        ino=2**63,
        size=10,
        mtime_ns=20,
        offset=9,
        head_print=b"\x00{",
        tail_print=b"}\n",
        title="修复 ※ \ud800",
        title_source="auto",
        first_prompt="p",
        cwd="/p",
        user_turns=3,
        last_activity=NOW,
        interactive=True,
        recap_text="r",
        recap_at=NOW,
        version="0.24.4",
    )
    store.upsert_index([whole])
    (found,) = store.index_rows()
    assert found == whole._replace(title="修复 ※ ?")
    assert store.index_at(strange) == found
    assert store.index_for_dir(os.path.dirname(strange)) == [found]
    assert store.stamps(os.path.dirname(strange)) == {os.path.basename(strange): Stamp(2**64 - 1, 2**63, 10, 20)}
    assert store.index_at("/p/none.jsonl") is None


def test_sessions_are_found_by_id_without_loading_all(store: Store) -> None:
    """By the id or the beginning of one, whatever its case."""
    store.upsert_index(row(f"/q/-p/chats/{number:032x}.jsonl") for number in range(30))
    assert [found.session_id for found in store.index_of_session("0" * 31 + "F")] == ["0" * 31 + "f"]
    assert len(store.index_of_session("0")) == 20
    assert store.index_of_session("1") == []
    assert store.count_index() == 30


def test_a_scan_is_saved_as_one(store: Store) -> None:
    """Rows, vanished paths and the digest of a directory together; forgetting removes a row."""
    store.upsert_index([row("/q/chats/a.jsonl", size=1), row("/q/chats/b.jsonl"), row("/r/chats/c.jsonl")])
    store.save_scan([("/q/chats", b"digest")], [row("/q/chats/a.jsonl", size=2)], ["/q/chats/b.jsonl"])
    assert store.digests() == {"/q/chats": b"digest"}
    assert {name: stamp.size for name, stamp in store.stamps("/q/chats").items()} == {"a.jsonl": 2}
    store.forget(["/r/chats/c.jsonl"])
    assert store.index_for_dir("/r/chats") == []


def test_ten_thousand_rows_load_in_a_moment(store: Store) -> None:
    """Loading all rows takes no longer than making as many rows by hand takes several times over."""
    rows = [row(f"/q/-{number % 200}/chats/{number:032x}.jsonl", head_print=b"x" * 64) for number in range(10_000)]
    store.upsert_index(rows)

    def seconds(work: object) -> float:
        start = time.process_time()
        work()  # type: ignore[operator]
        return time.process_time() - start

    by_hand = min(seconds(lambda: [IndexRow(*one) for one in rows]) for _ in range(3))
    loaded = min(seconds(store.index_rows) for _ in range(3))
    assert sorted(store.index_rows()) == sorted(rows)
    assert loaded < 40 * by_hand


# -- flags and heartbeat ---------------------------------------------------------------------------------------------


def test_flags_and_heartbeat(store: Store) -> None:
    """Set, replaced, forgotten; the heartbeat carries what `status` shows."""
    assert store.get_flag("a") is None
    store.set_flag("a", "1")
    store.set_flag("a", "2")
    assert store.get_flag("a") == "2"
    store.set_flag("a", None)
    assert store.get_flag("a") is None
    assert store.heartbeat() is None
    beat = Heartbeat(12, NOW, NOW + 1, "1.0", {"sessions": 3})
    store.put_heartbeat(beat)
    assert store.heartbeat() == beat


def test_an_unchanged_flag_is_not_written_again(directory: Path) -> None:
    """Saying the same again costs no write (report E4)."""
    with opened(directory) as store, opened(directory) as other:
        store.set_flag("a", "1")
        version = other.data_version()
        for _ in range(5):
            store.set_flag("a", "1")
        assert other.data_version() == version


# -- files, versions, damage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_files_are_private_whatever_the_umask(directory: Path, umask: int) -> None:
    """The directory is 0700 and every file 0600, side files included (report K)."""
    before = os.umask(umask)
    try:
        with opened(directory) as store:
            store.set_flag("a", "1")
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {"state.db", "state.db-wal", "state.db-shm"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_a_loose_database_file_is_tightened_and_a_foreign_directory_left(directory: Path) -> None:
    """Only what is ours is changed: somebody may have pointed us at a shared directory."""
    directory.mkdir(mode=0o755)
    with opened(directory) as store:
        store.path.chmod(0o644)
    with opened(directory) as store:
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


def test_nothing_is_made_where_only_a_look_is_wanted(directory: Path) -> None:
    """A command that reads makes no state directory."""
    assert Store.open_existing(directory) is None
    assert not directory.exists()
    with opened(directory):
        pass
    found = Store.open_existing(directory)
    assert found is not None
    found.close()


def test_a_closed_store_opens_itself_again(store: Store) -> None:
    """`close` gives back the descriptors; the next use works."""
    store.set_flag("a", "1")
    store.close()
    assert store.get_flag("a") == "1"


@pytest.mark.parametrize("damage", ["garbage", "header", "middle"])
def test_a_damaged_database_is_put_aside_with_a_warning(directory: Path, damage: str) -> None:
    """Whatever was damaged: at the latest the second use works on a new file, and the old one is kept."""
    with opened(directory) as store:
        store.upsert_index(row(f"/q/chats/{number:032x}.jsonl") for number in range(500))
        store.prune(NOW)
    path = directory / "state.db"
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content = bytearray(b"this is not a database at all\n" * 500)
    elif damage == "header":
        content[:100] = b"\xff" * 100
    else:
        content[4096 * 2 : -4096] = b"\xff" * len(content[4096 * 2 : -4096])
    path.write_bytes(content)
    with closing(Store.open(directory)) as store:
        try:
            store.index_rows()
        except StateError as error:
            assert damage == "middle"
            assert str(path) in str(error)
        store.set_flag("a", "1")
        assert store.count_index() == 0
        (warning,) = store.warnings()
        assert "damaged" in warning
        assert store.warnings() == []
    (aside,) = (kept for kept in directory.glob("state.db.damaged-*") if not kept.name.endswith(("-wal", "-shm")))
    assert aside.read_bytes() == content
    assert aside.name in warning
    with opened(directory) as store:
        assert (store.get_flag("a"), store.warnings()) == ("1", [])


def test_two_processes_that_meet_the_same_damage_make_one_new_file(directory: Path) -> None:
    """The second one finds the work done and does not throw the new file away."""
    directory.mkdir()
    (directory / "state.db").write_bytes(b"no database " * 1000)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from watcher.edge.store import Store\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "for _ in range(20):\n"
        "    store.note_attempt('s', 't', 1.0)\n"
        "store.close()\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(directory)]) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    with opened(directory) as store:
        assert store.attempts("s").count == 80


def test_nobody_opens_a_database_while_another_process_replaces_it(directory: Path) -> None:
    """It would take the new one's journal, which stands there by name, for that of the old one, and delete it."""
    with opened(directory):
        pass
    done = threading.Event()

    def open_it() -> None:
        with opened(directory):
            done.set()

    opening = threading.Thread(target=open_it)
    with (directory / "state.db.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        opening.start()
        assert not done.wait(0.3)
    assert done.wait(60)
    opening.join()


def test_a_newer_database_is_left_alone(directory: Path) -> None:
    """The error says what to do, and the file is as it was."""
    with opened(directory):
        pass
    with closing(sqlite3.connect(directory / "state.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StateError, match="newer version"):
        Store.open(directory)
    with closing(sqlite3.connect(directory / "state.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (99,)


def test_an_older_database_is_brought_up_to_date(tmp_path: Path) -> None:
    """Only the missing steps are taken, in order, and the data stays; a step that fails leaves the old version."""
    path = tmp_path / "x.db"
    first = ("CREATE TABLE a (x)", "INSERT INTO a VALUES (1)")
    second = ("ALTER TABLE a ADD COLUMN y DEFAULT 7",)
    with closing(Database(path, (first,), 1)):
        pass
    with pytest.raises(StateError):
        Database(path, (first, second, ("NOT SQL",)), 1)
    with closing(Database(path, (first,), 1)) as database:
        assert database.rows("SELECT * FROM a") == [(1,)]
    with closing(Database(path, (first, second), 1)) as database:
        assert database.rows("SELECT * FROM a") == [(1, 7)]
        assert database.row("PRAGMA user_version") == (2,)
    with closing(Database(path, (first, second), 1)) as database:
        assert database.rows("SELECT * FROM a") == [(1, 7)]


def test_what_a_recap_knew_survives_the_change_of_the_schema(tmp_path: Path) -> None:
    """Version 2 kept it in the note of the last success, and lost it with the next attempt."""
    rows = {
        "made": ("recap", 2, "turn-3", "", "3"),
        "failed": ("recap", 1, "turn-4", "model_error", "500"),
        "begun": ("recap", 1, "turn-5", "", ""),
        "titled": ("title", 1, "turn-6", "", "7"),
    }
    with closing(Database(tmp_path / FILE_NAME, MIGRATIONS[:2], APPLICATION_ID)) as database:
        for session, row in rows.items():
            database.run("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, 1.0)", (session, *row))
    with closing(Store.open(tmp_path)) as store:
        found = {session: store.attempts(session, Kind(row[0])) for session, row in rows.items()}
    known = {session: (each.made_turn, each.made_user_turns) for session, each in found.items()}
    assert known == {"made": ("turn-3", 3), "failed": ("", 0), "begun": ("", 0), "titled": ("", 0)}
    assert found["failed"].last_detail == "500"


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    """Neither a half-written change nor a lock; the next one works."""
    with closing(Database(tmp_path / "x.db", (("CREATE TABLE a (x UNIQUE)",),), 1)) as database:
        with pytest.raises(StateError, match="UNIQUE"), database.transaction() as connection:
            connection.execute("INSERT INTO a VALUES (1)")
            connection.execute("INSERT INTO a VALUES (1)")
        assert database.rows("SELECT * FROM a") == []
        assert database.run("INSERT INTO a VALUES (2)") == 1


def test_a_transaction_reads_what_it_changes(tmp_path: Path) -> None:
    """Two connections that read a number and write it back one higher lose no step."""
    schema = (("CREATE TABLE a (x)", "INSERT INTO a VALUES (0)"),)

    def work() -> None:
        with closing(Database(tmp_path / "x.db", schema, 1)) as database:
            for _ in range(50):
                with database.transaction() as connection:
                    (number,) = connection.execute("SELECT x FROM a").fetchone()
                    connection.execute("UPDATE a SET x = ?", (number + 1,))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(Database(tmp_path / "x.db", schema, 1)) as database:
        assert database.row("SELECT x FROM a") == (200,)


def test_a_full_disk_is_a_narrow_error(directory: Path) -> None:
    """A write that finds no room raises with a remedy; reading goes on, and writing too once there is room."""
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from watcher.edge.store import IndexRow, Store\n"
        "from watcher.errors import StateError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "store.set_flag('before', '1')\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))\n"
        "try:\n"
        "    store.upsert_index(IndexRow(f'/q/chats/{n}.jsonl', str(n), title='x' * 500) for n in range(5000))\n"
        "except StateError as error:\n"
        "    print(error)\n"
        "print(store.get_flag('before'), store.count_index())\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\n"
        "store.set_flag('after', '1')\n"
        "print(store.get_flag('after'))\n"
        "store.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(directory)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    error, *rest = done.stdout.splitlines()
    assert "state.db" in error
    assert "space" in error
    assert rest == ["1 0", "1"]


def test_a_directory_that_cannot_be_used_is_a_narrow_error(tmp_path: Path) -> None:
    """A file in its place, or in its parent's: the error names the path."""
    file = tmp_path / "file"
    file.write_text("")
    for directory in (file, file / "state"):
        with pytest.raises(StateError, match="file"):
            Store.open(directory)


def test_a_read_only_database_can_be_read(directory: Path) -> None:
    """Commands of a user who may not write still see what is there; writing raises with a remedy."""
    with opened(directory) as store:
        store.set_flag("a", "1")
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from watcher.edge.store import Store\n"
        "from watcher.errors import StateError\n"
        "if os.geteuid() == 0:\n"
        "    os.seteuid(65534)\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "print(store.get_flag('a'))\n"
        "try:\n"
        "    store.set_flag('a', '2')\n"
        "except StateError as error:\n"
        "    print('writable' in str(error))\n"
    )
    copy = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    try:
        shutil.copy(directory / "state.db", copy / "state.db")
        with closing(sqlite3.connect(copy / "state.db")) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
        (copy / "state.db").chmod(0o444)
        copy.chmod(0o555)
        done = subprocess.run([sys.executable, "-c", script, str(copy)], capture_output=True, text=True, check=False)
        assert done.stdout.splitlines() == ["1", "True"], done.stderr
    finally:
        copy.chmod(0o700)
        shutil.rmtree(copy)


def test_another_process_that_holds_the_file_is_waited_for(directory: Path) -> None:
    """A write that meets somebody's transaction waits for its end."""
    with (
        opened(directory) as store,
        closing(sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.2, other.execute, ("COMMIT",))
        timer.start()
        store.set_flag("a", "1")
        timer.join()
        assert store.get_flag("a") == "1"


# -- retention -------------------------------------------------------------------------------------------------------


def test_prune_drops_what_is_old_and_keeps_the_rest(store: Store) -> None:
    """The journal 400 days; attempts and dismissals of sessions that are gone, later; those of present ones never."""
    store.upsert_index([row("/q/chats/present.jsonl")])
    for days, text in ((0, "new"), (399, "kept"), (401, "old")):
        store.record(entry(text, NOW - days * DAY))
    for session in ("present", "gone"):
        store.note_attempt(session, "t", NOW - 61 * DAY)
        store.dismiss(session, NOW - 401 * DAY)
    store.note_attempt("recent", "t", NOW - 59 * DAY)
    store.note_anomaly("s", "old", NOW - 401 * DAY)
    for number in range(500):
        store.take_call(f"day-{number:03}", 5)
    store.prune(NOW)
    assert [found.text for found in store.entries()] == ["new", "kept"]
    assert [store.attempts(name).count for name in ("present", "gone", "recent")] == [1, 0, 1]
    assert [store.is_dismissed(name) for name in ("present", "gone")] == [True, False]
    assert store.anomalies() == []
    assert (store.calls_on("day-099"), store.calls_on("day-100"), store.calls_on("day-499")) == (0, 1, 1)


def test_a_write_under_way_is_noted_durably(store: Store) -> None:
    """Its note reaches the disk before the session file is touched, whatever happens to the power; others need not."""
    said: list[str] = []
    connection = store._db._connection
    assert connection is not None
    connection.set_trace_callback(said.append)
    store.put_intent("o1", {"uuid": "o1"})
    full, begin, commit = (said.index(each) for each in ("PRAGMA synchronous = FULL", "BEGIN IMMEDIATE", "COMMIT"))
    assert full < begin < commit
    said.clear()
    store.drop_intent("o1")
    assert not any("FULL" in each for each in said)


def test_space_is_given_back(store: Store) -> None:
    """The file shrinks when most of it was dropped."""
    for number in range(400):
        store.record(entry("x" * 2000, NOW + number))
    store.prune(NOW)
    full = store.path.stat().st_size
    store.prune(NOW + 500 * DAY)
    assert store.entries() == []
    assert store.path.stat().st_size < full / 2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["attempt", "result", "reset", "restart"]), max_size=30))
def test_attempts_follow_a_model(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    """Any order of attempts, results, resets and restarts gives the counts that it should."""
    directory = tmp_path_factory.mktemp("s") / "state"
    store = Store.open(directory)
    count, reason = 0, ""
    try:
        for number, step in enumerate(steps):
            if step == "attempt":
                count, reason = count + 1, ""
                assert store.note_attempt(SESSION, f"t{number}", NOW) == count
            elif step == "result":
                reason = f"r{number}" if count else ""
                store.note_result(SESSION, f"r{number}")
            elif step == "reset":
                count, reason = 0, ""
                store.reset_attempts(SESSION)
            else:
                store.close()
                store = Store.open(directory)
            found = store.attempts(SESSION)
            assert (found.count, found.last_reason) == (count, reason)
    finally:
        store.close()


def test_no_descriptor_is_left_behind(directory: Path) -> None:
    """Opening, failing and closing leave as many descriptors as before."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    before = len(os.listdir("/dev/fd"))
    for _ in range(min(limit, 50)):
        with opened(directory) as store:
            store.set_flag("a", None)
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "state.db").write_bytes(b"x" * 4096)
    with opened(directory):
        pass
    assert len(os.listdir("/dev/fd")) == before
