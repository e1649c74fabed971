"""`run` in surroundings that nobody would build on purpose: lost state, odd names, storms of signals."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.scenarios.conftest import MODEL, TITLE, FakeHome
from tests.support.chat_server import ChatServer
from tests.support.qwen_code import title_records
from tests.support.terminal import DEADLINE_SECONDS, ProcessTree, wait_until
from tests.support.transcripts import Transcript
from tests.support.watching import Watching, command, watcher_env
from watcher.edge.store import Store


def wait_titled(session: Transcript, watching: Watching) -> None:
    wait_until(lambda: (TITLE, "auto") in title_records(session.path), "the title", dump=watching.dump)


def _damage(state: Path) -> None:
    for path in state.glob("state.db*"):
        if path.suffix != ".lock":
            path.write_bytes(os.urandom(path.stat().st_size))


def _delete(state: Path) -> None:
    for path in state.glob("state.db*"):
        path.unlink()


def _indexed(state: Path) -> int:
    store = Store.open_existing(state)
    if store is None:
        return 0
    with contextlib.closing(store):
        return store.count_index()


@pytest.mark.parametrize("lose", [_damage, _delete, shutil.rmtree])
def test_a_lost_index_makes_no_old_session_new(
    home: FakeHome, server: ChatServer, env: dict[str, str], lose: object
) -> None:
    """The state is lost while it runs: what was written before costs no call, the next turn gets its title."""
    assert callable(lose)
    old = [home.session("old", ago=3600) for _ in range(3)]
    with Watching(env) as watching:
        wait_titled(home.session("first"), watching)
        lose(home.state)
        # Touched, not grown: only the lost index knows that they are old.
        for session in old:
            os.utime(session.path)
        second = home.session("old")
        wait_until(lambda: _indexed(home.state) == 5, "a new index", dump=watching.dump)
        second.turn("And the logout", "Yes.")
        wait_titled(second, watching)
        assert not watching.log("internal_error")
    assert len(server.requests()) == 2
    assert [title_records(session.path) for session in old] == [[], [], []]


def test_a_watcher_whose_state_somebody_else_took_ends(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Deleted while it slept, and a second one started: the first says so and fails; a session has one title."""
    with Watching(env) as first:
        shutil.rmtree(home.state)
        with Watching(env) as second:
            session = home.session()
            wait_titled(session, second)
            assert first.wait_end() == 1
            [line] = first.log("state", level="error")
            assert f"already running (pid {second.pid})" in line["detail"]
    assert len(server.requests()) == 1
    assert title_records(session.path) == [(TITLE, "auto")]


def test_a_state_that_was_deleted_is_said_once(home: FakeHome, env: dict[str, str]) -> None:
    """It goes on with a new one, which nobody else can take."""
    with Watching(env) as watching:
        shutil.rmtree(home.state)
        session = home.session()  # as old as on a very first start
        wait_until(lambda: _indexed(home.state) == 1, "a new index", dump=watching.dump)
        session.turn("And the logout", "Yes.")
        wait_titled(session, watching)
        assert len(watching.log("state")) == 1
        done = command(env, "run")
        assert f"already running (pid {watching.pid})" in done.stderr


def test_a_damaged_database_is_told_of(home: FakeHome, env: dict[str, str]) -> None:
    """What was found and where the old one is kept."""
    with Watching(env) as watching:
        _damage(home.state)
        home.session()
        wait_until(
            lambda: any("is kept as" in line["detail"] for line in watching.log("state")),
            "a line about it",
            dump=watching.dump,
        )


def test_a_copy_of_old_sessions_is_not_new(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """`cp -r` of a project that stood there before the first start: no call, until the copy itself goes on."""
    old = home.session("old", ago=3600)
    with Watching(env) as watching:
        shutil.copytree(home.chats("old").parent, home.chats("copy").parent)
        watching.wait_event("decision", session=old.session_id, reason="nothing_new")
        old.path = home.chats("copy") / old.path.name
        old.turn("And the logout", "Yes.")
        wait_titled(old, watching)
    assert len(server.requests()) == 1


def test_a_pause_after_the_state_was_deleted_holds(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """The running watcher and the commands never use two databases (design promise 6)."""
    with Watching(env) as watching:
        _delete(home.state)
        assert command(env, "pause").returncode == 0
        session = home.session()
        wait_until(lambda: _indexed(home.state) == 1, "a new index", dump=watching.dump)
        session.turn("And the logout", "Yes.")
        watching.wait_event("decision", session=session.session_id, reason="paused")
    assert server.requests() == []


@pytest.mark.slow
def test_a_working_directory_that_cannot_exist_harms_no_other_session(home: FakeHome, env: dict[str, str]) -> None:
    """A record may hold a NUL or half a character where a path should stand."""
    with Watching(env) as watching:
        for number, cwd in enumerate(("/home/\0user", "/home/\ud800user")):
            odd = Transcript(home.chats(f"odd{number}"), cwd=cwd, at=time.time() - 1)
            odd.turn("Please fix it", "Done.")
            wait_titled(odd, watching)
            assert command(env, "why", odd.session_id).returncode == 0
        wait_titled(home.session(), watching)
        assert not watching.log("internal_error")


def test_a_damaged_session_is_named_once(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Two session ids in one file, or another than its name's: one line in the log, however often the file grows."""
    mixed, renamed = home.session("odd"), home.session("odd")
    mixed.path.write_bytes(mixed.path.read_bytes() + renamed.path.read_bytes())
    renamed.path.rename(renamed.path.with_name("0a1b2c3d-0000-4000-8000-000000000000.jsonl"))
    renamed.path = renamed.path.with_name("0a1b2c3d-0000-4000-8000-000000000000.jsonl")
    with Watching(env) as watching:
        for session in (mixed, renamed):
            session.turn("And the logout", "Yes.")
            watching.wait_event("skipped", path=str(session.path), reason="unsafe_file")
            session.turn("And the rest", "Yes.")
        wait_titled(home.session(), watching)
        assert len(watching.log("skipped")) == 2
    assert len(server.requests()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["/x\\u0000y", "/x\\ud800y"])
def test_a_runtime_directory_that_cannot_exist_is_left_out(
    home: FakeHome, server: ChatServer, env: dict[str, str], name: str
) -> None:
    """Qwen Code's settings may name one."""
    home.config_dir.mkdir()
    (home.config_dir / "settings.json").write_text(f'{{"advanced": {{"runtimeOutputDir": "{name}"}}}}')
    with Watching(env) as watching:
        wait_titled(home.session(), watching)
        assert "Traceback" not in command(env, "doctor").stderr


def test_a_home_that_cannot_exist_is_a_configuration_error(home: FakeHome, env: dict[str, str]) -> None:
    """Exit 2 with key and value."""
    done = command(env | {"QWEN_WATCHER_WATCH__HOMES": '["/x\\u0000y"]'}, "run")
    assert done.returncode == 2
    assert "watch.homes" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_whose_name_is_no_text_is_watched(server: ChatServer, tmp_path: Path) -> None:
    """Bytes of an old encoding in the path of the home directory."""
    home = FakeHome(tmp_path / os.fsdecode(b"caf\xe9 \xfc"))
    settings = {
        "model.source": "explicit",
        "model.name": MODEL,
        "model.base_url": server.base_url,
        "title.settle_seconds": 0.3,
    }
    with Watching(watcher_env(home.path, tmp_path / "state", settings)) as watching:
        wait_titled(home.session(), watching)


def test_a_storm_of_reloads_does_not_hold_up_the_stop(home: FakeHome, env: dict[str, str]) -> None:
    """Three hundred SIGHUP, then SIGTERM: one or two reloads, and an end in time (design 4)."""
    with Watching(env) as watching:
        for _ in range(300):
            watching.send_signal(signal.SIGHUP)
            time.sleep(0.001)  # closer together the kernel makes them one
        watching.wait_event("reloaded")
        watching.stop()


@pytest.mark.parametrize("closed", ["0<&- 1>&- 2>&-", "2>/dev/full"])
def test_it_runs_without_anybody_who_reads_its_log(home: FakeHome, env: dict[str, str], closed: str) -> None:
    """Standard streams closed or broken: sessions get their titles, and the end is a clean one."""
    shell = ["/bin/sh", "-c", f'exec "$0" -m watcher run {closed}', sys.executable]
    with subprocess.Popen(shell, env=env, cwd=home.path, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            wait_until(lambda: (home.state / "qwen-watcher.sock").exists(), "the end of the start")
            session = home.session()
            wait_until(lambda: (TITLE, "auto") in title_records(session.path), "the title")
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("reader", ["sleeps", "is gone"])
def test_nobody_reads_the_log(home: FakeHome, env: dict[str, str], reader: str) -> None:
    """A full pipe as stderr, or one without a reader, stops neither the start, the work, a reload nor the end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"#" * 4096)
    os.set_blocking(writing, True)
    if reader == "is gone":
        os.close(reading)
    session = home.session("old", ago=3600)
    process = subprocess.Popen(
        [sys.executable, "-m", "watcher", "run", "--log-level", "debug", "--log-format", "json"],
        env=env,
        cwd=home.path,
        stdout=writing,
        stderr=writing,
        start_new_session=True,
    )
    tree = ProcessTree(process)
    os.close(writing)
    try:
        wait_until(lambda: _indexed(home.state) == 1, "the first look")
        session.turn("And the logout", "Yes.")
        wait_until(lambda: (TITLE, "auto") in title_records(session.path), "the title")
        process.send_signal(signal.SIGHUP)
        session = home.session("new")
        wait_until(lambda: (TITLE, "auto") in title_records(session.path), "the title after a reload")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        tree.kill()
        if reader == "sleeps":
            os.close(reading)
