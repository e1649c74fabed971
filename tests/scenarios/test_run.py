"""`run` on real files: new sessions, old ones, moved ones, odd ones; restarts, reloads and a model that misbehaves."""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from tests.scenarios.conftest import MODEL, TITLE, FakeHome
from tests.support.chat_server import ChatServer, Gate, Kind, Reply, ToolCall
from tests.support.qwen_code import title_records
from tests.support.terminal import wait_until
from tests.support.transcripts import Transcript
from tests.support.watching import Watching, command, watcher_env
from watcher.edge.store import Store


def titled(session: Transcript) -> bool:
    return (TITLE, "auto") in title_records(session.path)


def wait_titled(session: Transcript, watching: Watching) -> None:
    wait_until(lambda: titled(session), "the title", dump=watching.dump)


def test_two_thousand_existing_sessions_cost_nothing(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """The very first start: no model call, no changed file, whatever stands there untitled."""
    model = home.session("p0", turns=2)
    data = model.path.read_bytes()
    for number in range(2000):
        session_id = str(uuid.uuid4())
        folder = home.chats(f"p{number % 40}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{session_id}.jsonl").write_bytes(data.replace(model.session_id.encode(), session_id.encode()))
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in home.projects.rglob("*.jsonl")}
    with Watching(env) as watching:
        started = watching.wait_event("started")
        assert started["sessions"] == 2001
        fresh = home.session("p1")
        wait_titled(fresh, watching)
    assert len(server.requests()) == 1
    after = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in before}
    assert after == before


def test_a_home_that_appears_later_is_watched(home: FakeHome, env: dict[str, str]) -> None:
    """No `~/.qwen` at the start; then folder, project and a whole session at once."""
    with Watching(env) as watching:
        wait_titled(home.session(), watching)


def test_a_project_that_is_moved_in_is_found(home: FakeHome, env: dict[str, str], tmp_path: Path) -> None:
    """A directory moved into the tree brings no events for its files; it is looked at all the same."""
    home.session("first", ago=100)
    outside = FakeHome(tmp_path / "outside")
    session = outside.session("moved")
    with Watching(env) as watching:
        target = home.chats("moved").parent
        shutil.move(outside.chats("moved").parent, target)
        session.path = home.chats("moved") / session.path.name
        wait_titled(session, watching)


def test_a_project_that_vanishes_is_no_fault(home: FakeHome, env: dict[str, str]) -> None:
    """A folder deleted while running: nothing is made again, others go on."""
    doomed = home.session("doomed")
    with Watching(env) as watching:
        doomed.turn("More", "Yes.")
        shutil.rmtree(home.chats("doomed").parent)
        wait_titled(home.session("other"), watching)
        assert not home.chats("doomed").exists()
        assert not watching.log("internal_error")


def test_a_session_that_grows_while_we_are_down_is_titled_later(home: FakeHome, env: dict[str, str]) -> None:
    """Written between two runs: it moved since it was last seen."""
    old = home.session("a", ago=50)
    with Watching(env):
        pass
    old.turn("More", "Yes.")
    new = home.session("b")
    with Watching(env) as watching:
        wait_titled(old, watching)
        wait_titled(new, watching)


@pytest.mark.slow
def test_a_restart_never_titles_twice(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Ten restarts, five of them hard: one call a session, no byte more, no other mtime."""
    sessions = []
    with Watching(env) as watching:
        for number in range(5):
            sessions.append(home.session(f"p{number}"))
        for session in sessions:
            wait_titled(session, watching)
    before = {each.path: (each.path.stat().st_size, each.path.stat().st_mtime_ns) for each in sessions}
    for number in range(10):
        with Watching(env) as watching:
            if number % 2:
                watching.kill9()
    assert {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in before} == before
    assert len(server.requests()) == 5


def test_a_failed_first_try_is_made_good_by_the_next_turn(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """One attempt an ended turn, also across a restart; at most three in all (report B11)."""
    server.script(Reply(status=500, text="no"), kind=Kind.TITLE)
    with Watching(env) as watching:
        session = home.session()
        watching.wait_event("title_failed", session=session.session_id)
    with Watching(env):
        pass
    assert len(server.requests()) == 1
    with Watching(env | {"QWEN_WATCHER_TITLE__SETTLE_SECONDS": "0.1"}) as watching:
        session.turn("And the logout", "Yes.")
        wait_titled(session, watching)
    assert len(server.requests()) == 2


BAD_REPLIES = {
    "unauthorized": Reply(status=401, text="bad key"),
    "not found": Reply(status=404, text="no such model"),
    "busy": Reply(status=429, text="slow down"),
    "broken": Reply(status=500, text="oops"),
    "html": Reply(raw=b"<html><body>It works!</body></html>"),
    "half a body": Reply(raw=b'{"choices":[{"message":{"content":"Repa'),
    "no choices": Reply(raw=b'{"choices":[]}'),
    "empty text": Reply(""),
    "ten thousand characters": Reply(tool_calls=[ToolCall("name", {"title": "word " * 2000})]),
    "refusal": Reply("I'm sorry, I cannot help with that."),
    "hang up": Reply(drop=True),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_model_that_misbehaves_costs_three_attempts_and_one_line_each(
    home: FakeHome, server: ChatServer, env: dict[str, str], name: str
) -> None:
    """No title or a clean one; never more than three attempts; one WARN line a failure, without the conversation."""
    server.respond = lambda request: BAD_REPLIES[name]
    with Watching(env) as watching:
        session = home.session()
        for number in range(5):
            watching.wait_event("decision", session=session.session_id, verdict="act")
            wait_until(
                lambda: watching.log("title_failed") or watching.log("title_written") or watching.log("model_held"),
                "an outcome",
                dump=watching.dump,
            )
            session.turn(f"secret conversation {number}", "Yes.")
        failed = watching.log("title_failed")
        assert len(failed) <= 3
        for line in failed:
            assert line["level"] == "warning"
            assert line["logger"] == "SESSION_TITLE"
            assert line["session"] == session.session_id
        assert "secret conversation" not in watching.dump()
        assert "login bug" not in watching.dump()
    for title, source in title_records(session.path):
        assert source == "auto"
        assert 0 < len(title) <= 200


def test_escape_sequences_and_thoughts_never_reach_a_title(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """Terminal controls and reasoning around the answer are taken off."""
    answer = "<think>The user wants…</think>\x1b]0;evil\x07\x1b[31mRepair the login form\x1b[0m\u202e."
    server.script(Reply(tool_calls=[ToolCall("name", {"title": answer})], thought="Hmm."), kind=Kind.TITLE)
    with Watching(env) as watching:
        session = home.session()
        wait_titled(session, watching)
    assert title_records(session.path) == [(TITLE, "auto")]


def make_odd(path: Path, kind: str, spare: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "empty":
        path.touch()
    elif kind == "binary":
        path.write_bytes(bytes(range(256)) * 100)
    elif kind == "symlink":
        spare.write_text("{}\n")
        path.symlink_to(spare)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "hard link":
        spare.write_text("{}\n")
        os.link(spare, path)
    elif kind == "foreign":
        path.write_text("{}\n")
        os.chown(path, 12345, 12345)
    elif kind == "unreadable":
        path.write_text("{}\n")
        path.chmod(0)


@pytest.mark.parametrize("kind", ["empty", "binary", "symlink", "fifo", "hard link", "foreign", "unreadable"])
def test_odd_files_are_skipped_with_one_line(
    home: FakeHome, server: ChatServer, env: dict[str, str], kind: str, tmp_path: Path
) -> None:
    """Said once, not once an event; a good session beside it is served."""
    if kind == "foreign" and os.geteuid() != 0:
        pytest.skip("only root can make a file of another user")
    odd = home.chats() / f"{uuid.uuid4()}.jsonl"
    with Watching(env) as watching:
        make_odd(odd, kind, tmp_path / "spare")
        good = home.session()
        wait_titled(good, watching)
        for _ in range(3):
            os.utime(odd, follow_symlinks=False)
        another = home.session("other")
        wait_titled(another, watching)
        lines = watching.log("skipped", path=str(odd))
        readable = kind in ("empty", "binary") or (kind == "unreadable" and os.geteuid() == 0)
        assert len(lines) == (0 if readable else 1)
        assert not watching.log("internal_error")


def test_archived_during_the_call_means_no_write(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Moved to `archive/` while the model answers: nothing is written there, nothing is made again (report D12)."""
    gate = Gate()
    server.script(Reply(tool_calls=[ToolCall("name", {"title": TITLE})], gate=gate), kind=Kind.TITLE)
    with Watching(env) as watching:
        session = home.session()
        gate.wait_arrived()
        archive = session.path.parent / "archive"
        archive.mkdir()
        moved = archive / session.path.name
        data = session.path.read_bytes()
        session.path.rename(moved)
        gate.release()
        wait_titled(home.session("other"), watching)
        assert moved.read_bytes() == data
        assert not session.path.exists()


def test_a_rewritten_file_is_read_anew(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Rewritten in place, longer than before and with a title: no call for what is not there any more (report D11)."""
    gate = Gate()
    server.script(Reply(tool_calls=[ToolCall("name", {"title": TITLE})], gate=gate), kind=Kind.TITLE)
    with Watching(env) as watching:
        session = home.session()
        gate.wait_arrived()
        data = session.path.read_bytes()
        session.path.write_bytes(b"")
        session.tail = None
        session.turn("A whole new beginning", "Yes.")
        session.title("My name", "manual")
        while session.path.stat().st_size < len(data):
            session.user("more")
        gate.release()
        watching.wait_event("not_written", session=session.session_id, reason="manual_title")
    assert title_records(session.path) == [("My name", "manual")]


def test_a_second_watcher_is_refused(home: FakeHome, env: dict[str, str]) -> None:
    """One state directory, one watcher: exit 1 and the pid of the first."""
    with Watching(env) as watching:
        done = command(env, "run")
        assert done.returncode == 1
        assert f"already running (pid {watching.pid})" in done.stderr


def test_a_signal_ends_it_also_during_a_call(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """SIGTERM while the model thinks: the call is aborted, the exit is clean."""
    gate = Gate()
    server.script(Reply(gate=gate), kind=Kind.TITLE)
    with Watching(env) as watching:
        home.session()
        gate.wait_arrived()
        watching.stop(signal.SIGINT)
    gate.release()


def test_a_dry_run_decides_and_does_nothing(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Every decision is logged with session and reason; no call, no write, and nothing is remembered."""
    with Watching(env, "--dry-run") as watching:
        session = home.session()
        watching.wait_event("decision", session=session.session_id, verdict="act")
    assert server.requests() == []
    assert title_records(session.path) == []
    assert not home.state.exists()
    with Watching(env) as watching:
        session.turn("More", "Yes.")
        wait_titled(session, watching)


def test_a_reload_with_a_bad_file_keeps_the_old_configuration(
    home: FakeHome, server: ChatServer, env: dict[str, str], tmp_path: Path
) -> None:
    """SIGHUP: a good file takes effect, a bad one is one WARN line that names key and file."""
    config = tmp_path / "config.toml"
    config.write_text("[title]\nenabled = false\n")
    env = env | {"QWEN_WATCHER_CONFIG": str(config)}
    with Watching(env) as watching:
        session = home.session()
        watching.wait_event("decision", session=session.session_id, reason="disabled")
        config.write_text("[title]\nenabled = maybe\n")
        watching.send_signal(signal.SIGHUP)
        assert str(config) in watching.wait_event("reload_failed")["detail"]
        config.write_text("[title]\nenabled = true\n")
        watching.send_signal(signal.SIGHUP)
        watching.wait_event("reloaded")
        wait_titled(session, watching)


def test_a_reload_tells_statusline_the_new_away_time(home: FakeHome, env: dict[str, str], tmp_path: Path) -> None:
    """`statusline` reads from the heartbeat after how many seconds a user counts as away."""

    def away_seconds() -> object:
        with closing(Store.open(home.state)) as store:
            beat = store.heartbeat()
        return beat.data["away_seconds"] if beat is not None else None

    config = tmp_path / "config.toml"
    config.write_text("[recap]\naway_minutes = 2.0\n")
    with Watching(env | {"QWEN_WATCHER_CONFIG": str(config)}) as watching:
        assert away_seconds() == 120.0
        config.write_text("[recap]\naway_minutes = 7.0\n")
        watching.send_signal(signal.SIGHUP)
        wait_until(lambda: away_seconds() == 420.0, "the new away time", dump=watching.dump)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[title]\nmax_attempts = 0\n", "max_attempts"),
        ("[titel]\nenabled = true\n", "titel"),
        ("[title\n", "line 1"),
    ],
)
def test_a_broken_configuration_is_exit_2(
    home: FakeHome, env: dict[str, str], tmp_path: Path, text: str, named: str
) -> None:
    """One line with the key or place and the file."""
    config = tmp_path / "config.toml"
    config.write_text(text)
    done = command(env, "run", "--config", str(config))
    assert done.returncode == 2
    assert named in done.stderr
    assert str(config) in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_fast_model_nothing_is_asked_and_it_says_so(home: FakeHome, tmp_path: Path) -> None:
    """Plain words at the start, and the reason for each session."""
    env = watcher_env(home.path, home.state, {"title.settle_seconds": 0.2})
    with Watching(env) as watching:
        assert any(line["event"].startswith("titles: none, no fastModel") for line in watching.log())
        session = home.session()
        watching.wait_event("decision", session=session.session_id, reason="no_fast_model")


def test_the_users_fast_model_from_settings_and_dotenv(home: FakeHome, server: ChatServer) -> None:
    """`fastModel` in settings.json, key and address in Qwen Code's own `.env`: nothing to configure."""
    home.config_dir.mkdir()
    (home.config_dir / "settings.json").write_text(
        '{"fastModel": "quick", // a comment\n "security": {"auth": {"selectedType": "openai"}},'
        '"modelProviders": {"openai": [{"id": "quick", "envKey": "MY_KEY"}]}}'
    )
    (home.config_dir / ".env").write_text(f"MY_KEY=sk-from-dotenv\nOPENAI_BASE_URL={server.base_url}\n")
    env = watcher_env(home.path, home.state, {"title.settle_seconds": 0.2})
    with Watching(env) as watching:
        assert any(line["event"].startswith("titles: with quick") for line in watching.log())
        # Qwen Code would title it itself while it lives; nobody owns this one.
        wait_titled(home.session(), watching)
    [request] = server.requests()
    assert request.model == "quick"
    assert request.headers["authorization"] == "Bearer sk-from-dotenv"


@pytest.mark.slow
def test_commands_beside_a_running_watcher(home: FakeHome, env: dict[str, str]) -> None:
    """`status`, `sessions` and `tail` in their JSON shapes (design 4)."""
    with Watching(env) as watching:
        session = home.session()
        wait_titled(session, watching)
        status = command(env, "status", "--json")
        listed = command(env, "sessions", "--json")
        tail = command(env, "tail", "--json")
    for done in (status, listed, tail):
        assert done.returncode == 0, done.stderr
    assert '"running": true' in status.stdout
    assert f'"pid": {watching.pid}' in status.stdout
    assert f'"title": "{TITLE}", "title_source": "auto"' in listed.stdout
    assert f'"text": "{TITLE}"' in tail.stdout
    assert f'"model": "{MODEL}"' in tail.stdout
    after = command(env, "status", "--json")
    assert after.returncode == 0
    assert '"running": false' in after.stdout


@pytest.mark.slow
def test_a_pause_ends_by_itself(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """What waited goes on at the end of the span, long before the next look at everything; a shorter pause counts."""
    with Watching(env) as watching:
        assert command(env, "pause", "--for", "1h").returncode == 0
        session = home.session()
        watching.wait_event("decision", session=session.session_id, reason="paused")
        assert command(env, "pause", "--for", "5s").returncode == 0
        wait_titled(session, watching)
    assert len(server.requests()) == 1


def test_resume_acts_at_once(home: FakeHome, env: dict[str, str]) -> None:
    """A pause without an end, and its end by the user."""
    with Watching(env) as watching:
        assert command(env, "pause").returncode == 0
        session = home.session()
        watching.wait_event("decision", session=session.session_id, reason="paused")
        assert command(env, "resume").returncode == 0
        wait_titled(session, watching)
