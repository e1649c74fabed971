"""`statusline`: one short line, quickly, whatever is or is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.home import SHOP, Home
from tests.support.live import running_at_terminal, sidecar_record, start_token, write_sidecar
from tests.support.transcripts import Transcript
from watcher.cli.statusline import FORMATS, MAX_COLUMNS, cut, for_display, layout
from watcher.edge.store import Heartbeat, JournalEntry, JournalKind, Pending, PendingKind, Store

HEAVY = ("pydantic", "structlog", "typer", "rich", "httpx", "psutil", "msgspec", "watchdog", "tomllib", "asyncio")


def line(home: Home, cwd: str = SHOP) -> str:
    """What the command prints, without its line end."""
    ran = home.run("statusline", "--cwd", cwd)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("\n")
    assert ran.out.count("\n") == 1
    return ran.out[:-1]


def state(home: Home) -> str:
    """The state that the line shows."""
    return line(home).split(" · ")[1]


def listed(home: Home) -> str:
    """The state that `sessions` shows."""
    found: str = home.run("sessions", "--json").json[0]["state"]
    return found


def test_title_state_and_recap_of_the_newest_session_there(home: Home) -> None:
    """The first prompt stands in for a title; older sessions and other directories do not matter."""
    old = home.session("Something else", age=9000)
    old.title("Old title")
    home.rest(old)
    home.session("Elsewhere", cwd="/home/user/blog", age=10)
    newest = home.session("Fix the flaky login test")
    assert line(home) == "Fix the flaky login test · ended"
    newest.title("Fix flaky login test")
    newest.recap("You fix the login test. Next: run it.")
    home.rest(newest)
    assert line(home) == "Fix flaky login test · ended · ※ You fix the login test. Next: run it."


def test_a_recap_goes_when_the_conversation_goes_on(home: Home) -> None:
    """What was true before the last prompt is not where the user is."""
    session = home.session("Fix the flaky login test")
    session.recap("You fix the login test.")
    session.title("Fix flaky login test")
    assert "※ You fix the login test." in line(home)
    session.turn("Now the logout test", "Done.")
    assert line(home) == "Fix flaky login test · ended"


def test_where_nothing_is_known_the_line_is_empty(home: Home) -> None:
    """No sessions, an empty file, a file of something else, a directory that does not exist."""
    assert line(home) == ""
    chats = home.qwen / "projects" / "-home-user-shop" / "chats"
    chats.mkdir(parents=True)
    for number, data in enumerate([b"", b"\0" * 100_000, b"not JSON\n" * 10, b"[]\n{}\n"]):
        (chats / f"0000000{number}-0000-4000-8000-000000000000.jsonl").write_bytes(data)
    (chats / "00000009-0000-4000-8000-000000000000.jsonl").mkdir()
    assert line(home) == ""
    assert line(home, "/none/of/that") == ""


def test_a_folder_may_stand_for_more_than_one_directory(home: Home) -> None:
    """`/a/b-c` and `/a/b/c` share one; what was said in the other is not shown."""
    home.session("Of the one", cwd="/home/user/a-b", age=100)
    home.session("Of the other", cwd="/home/user/a/b", age=10)
    assert line(home, "/home/user/a-b") == "Of the one · ended"
    assert line(home, "/home/user/a/b") == "Of the other · ended"


def test_runs_without_a_terminal_are_not_shown(home: Home) -> None:
    """As in `sessions`: a `-p` run leaves no snapshot and no sidecar."""
    home.session("By hand", age=100)
    script = Transcript(home.qwen / "projects" / "-home-user-shop" / "chats", cwd=SHOP, at=time.time())
    script.user("From a script")
    script.assistant("Done.")
    assert line(home) == "By hand · ended"
    write_sidecar(script.path.parent, sidecar_record(os.getpid(), script.session_id))
    assert line(home).startswith("From a script")


def test_the_directory_may_be_given_in_any_way(home: Home) -> None:
    """Relative, with `~`, through a link; by default the present one."""
    project = home.root / "project"
    project.mkdir()
    home.session("Here", cwd=str(project))
    link = home.root / "link"
    link.symlink_to(project)
    assert line(home, str(link)) == line(home, "~/project") == line(home, f"{project}/../project/.") == "Here · ended"
    command = [sys.executable, "-m", "watcher", "statusline"]
    here = subprocess.run(command, env=home.env, cwd=project, capture_output=True, text=True, check=True)
    assert here.stdout == "Here · ended\n"
    gone = home.root / "gone"
    gone.mkdir()
    code = f"import os, sys; os.rmdir({str(gone)!r}); os.execv(sys.executable, {command!r})"
    there = subprocess.run(
        [sys.executable, "-c", code], env=home.env, cwd=gone, capture_output=True, text=True, check=True
    )
    assert (there.stdout, there.stderr) == ("\n", "")


def test_the_state_is_that_of_sessions(home: Home) -> None:
    """Idle, working, away and ended, for an owner in the registry."""
    session = home.session("Fix the flaky login test", age=5)
    assert state(home) == listed(home) == "ended"
    with home.owner(session):
        assert state(home) == listed(home) == "idle"
        session.user("Go on")
        assert state(home) == listed(home) == "working"
        session.assistant("Wait", calls=("c1",))
        assert state(home) == listed(home) == "working"
        session.tool_result("c1")
        session.assistant("Done.")
        assert state(home) == listed(home) == "idle"
    old = home.session("Long ago", age=3600, cwd="/home/user/old")
    with home.owner(old):
        assert line(home, "/home/user/old").split(" · ")[1] == "away"


def test_keys_at_the_terminal_are_a_sign_of_life(home: Home) -> None:
    """The prompt is an hour old; the terminal was just used."""
    session = home.session("Fix the flaky login test", age=3600)
    with running_at_terminal() as owner:
        record = sidecar_record(owner.process.pid, session.session_id)
        write_sidecar(session.path.parent, record)
        assert state(home) == "idle"
        os.utime(owner.path, (time.time() - 3000, time.time()))
        assert state(home) == "away"


def test_an_owner_that_has_gone_is_none(home: Home) -> None:
    """A sidecar stays behind; its number may be another process's by now."""
    session = home.session("Fix the flaky login test", age=5)
    dead = subprocess.Popen(["true"])
    dead.wait()
    write_sidecar(session.path.parent, sidecar_record(dead.pid, session.session_id))
    assert state(home) == "ended"
    write_sidecar(session.path.parent, sidecar_record(os.getpid(), session.session_id, started_at=time.time() - 90_000))
    assert start_token(os.getpid())
    assert state(home) == "ended"


def test_a_clock_that_was_set_does_not_end_an_owner(home: Home) -> None:
    """The process looks a day younger than its record says; the start ticks tell that it is the same, or another."""
    session = home.session("Fix the flaky login test", age=5)
    yesterday = int((time.time() - 86_400) * 1000)
    with home.owner(session, startedAt=yesterday):
        assert state(home) == listed(home) == "idle"
    with home.owner(session, procStart=start_token(os.getppid())):
        assert state(home) == listed(home) == "ended"


def test_what_only_the_watcher_knows_is_shown(home: Home) -> None:
    """A recap kept for an editor session, one that a live terminal chained past, and where its sessions are."""
    session = home.session("Fix the flaky login test", age=100)
    entry = JournalEntry(
        kind=JournalKind.RECAP, session_id=session.session_id, path="x", at=time.time(), text="Written."
    )
    store = Store.open(home.state)
    store.record(entry)
    assert line(home).endswith("· ※ Written.")
    kept = Pending(
        session_id=session.session_id, kind=PendingKind.RECAP, path="x", created_at=time.time(), text="Kept."
    )
    store.put_pending(kept)
    assert line(home).endswith("· ※ Kept.")
    session.at = time.time() + 1
    session.turn("Go on", "Done.")
    assert "※" not in line(home)
    elsewhere = home.root / "elsewhere"
    moved = Transcript(elsewhere / "projects" / "-home-user-blog" / "chats", cwd="/home/user/blog", at=time.time())
    moved.turn("Write the post", "Written.")
    assert line(home, "/home/user/blog") == ""
    roots = [[str(elsewhere), str(elsewhere)], "nonsense", [1, 2]]
    store.put_heartbeat(Heartbeat(1, 0.0, 0.0, "0", {"roots": roots, "away_seconds": "nonsense"}))
    assert line(home, "/home/user/blog") == "Write the post · ended"
    store.close()


def test_a_database_that_cannot_be_used_costs_nothing(home: Home) -> None:
    """Damaged, empty, locked, or a directory: the file still tells."""
    home.session("Fix the flaky login test")
    database = home.state / "state.db"
    home.state.mkdir()
    for data in (b"", b"nonsense" * 1000):
        database.write_bytes(data)
        assert line(home) == "Fix the flaky login test · ended"
    database.unlink()
    database.mkdir()
    assert line(home) == "Fix the flaky login test · ended"
    database.rmdir()
    store = Store.open(home.state)
    code = (
        f"import sqlite3; c = sqlite3.connect({str(database)!r}); c.execute('BEGIN EXCLUSIVE')\n"
        "print(1, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        begun = time.monotonic()
        assert line(home) == "Fix the flaky login test · ended"
        assert time.monotonic() - begun < 2
        holder.communicate(b"\n")
    store.close()


def test_nothing_is_written(home: Home) -> None:
    """No state directory, no database, no change of a session."""
    session = home.session("Fix the flaky login test")
    before = session.path.stat()
    line(home)
    after = session.path.stat()
    assert not home.state.exists()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)


def test_a_title_cannot_move_the_cursor(home: Home) -> None:
    """Escape sequences, line breaks and bidirectional marks of a title or recap are gone."""
    session = home.session("x")
    session.title("Fix\x1b[2J \x1b]0;owned\x07the\nlogin\u202e test")
    session.recap("You\rfix \x9b31mit.")
    shown = line(home)
    assert shown.isprintable()
    assert shown == "Fix the login test · ended · ※ You fix it."


def test_tmux_and_zsh_read_no_command_in_it(home: Home) -> None:
    """What begins one there is doubled, after the line was cut; tests/cli/test_recipes.py shows that it works."""
    session = home.session("x")
    session.title("Fix #12 at 100% ##x ##[fg=red]")
    shown = {wanted: home.run("statusline", "--cwd", SHOP, "--format", wanted).out for wanted in FORMATS}
    assert shown["plain"] == home.run("statusline", f"--cwd={SHOP}").out == "Fix #12 at 100% ##x ##[fg=red] · ended\n"
    assert shown["tmux"] == "Fix ##12 at 100% ######x ####[fg=red] · ended\n"
    assert shown["zsh"] == "Fix #12 at 100%% ##x ##[fg=red] · ended\n"
    session.recap("#%" * 100)
    width = len(line(home))
    assert len(for_display(line(home), "zsh")) == width + line(home).count("%") > MAX_COLUMNS


def test_nothing_that_takes_time_is_loaded(home: Home) -> None:
    """The command-line framework, models of settings and records, HTTP: none of them."""
    home.session("Fix the flaky login test")
    Store.open(home.state).close()
    code = (
        "import sys; sys.argv[1:] = ['statusline', '--format=tmux', '--cwd', sys.argv[1]]\n"
        "from watcher.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, SHOP], env=home.env, cwd=home.root, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["Fix the flaky login test · ended", "[]"]


def test_a_locale_without_the_characters_does_not_stop_it(home: Home) -> None:
    """Nor does a reader that has gone away, a closed stdout, or a home that is nowhere."""
    home.session("修复登录测试 – now")
    command = [sys.executable, "-m", "watcher", "statusline", "--cwd", SHOP]
    plain = home.env | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=plain, cwd=home.root, capture_output=True, check=True)
    assert done.stdout == b"?????? ? now ? ended\n"
    shell = f"{' '.join(command)} | true; exit ${{PIPESTATUS[0]}}"
    piped = subprocess.run(["bash", "-c", shell], env=home.env, capture_output=True, check=False)
    assert (piped.returncode, piped.stderr) == (0, b"")
    closed = subprocess.run(["bash", "-c", f"{' '.join(command)} >&-"], env=home.env, capture_output=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, b"")
    lost = home.env | {"HOME": "/nonexistent/home", "QWEN_HOME": "", "QWEN_WATCHER_STATE_DIR": "relative"}
    nowhere = subprocess.run(command, env=lost, capture_output=True, check=True)
    assert (nowhere.stdout, nowhere.stderr) == (b"\n", b"")


def test_help_and_wrong_usage_are_those_of_the_command_line(home: Home) -> None:
    """The fast path takes only what it understands."""
    for arguments, code in (
        (["--help"], 0),
        (["--nonsense"], 2),
        (["extra"], 2),
        (["--cwd"], 2),
        (["--format", "x"], 2),
    ):
        with home.process("statusline", *arguments) as process:
            out, err = process.communicate(timeout=30)
        assert process.returncode == code
        assert "--cwd" in out if code == 0 else "--help`)" in err


def test_a_very_large_session_is_not_read_as_a_whole(home: Home) -> None:
    """Only its two ends; a title in between is out of sight, as for Qwen Code's picker."""
    session = home.session("Fix the flaky login test")
    size = session.path.stat().st_size
    with session.path.open("r+b") as file:
        file.truncate(5_000_000_000)  # a hole: no disk is used
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    session.turn("The last prompt", "Done.")
    home.rest(session)
    begun = time.monotonic()
    assert line(home) == "Fix the flaky login test · ended"
    assert time.monotonic() - begun < 5
    assert size < 10_000


def columns(text: str) -> int:
    """The width of a text without combining characters."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab 修复é…한🙂", max_size=200), st.integers(1, 140))
def test_a_cut_text_fits(text: str, width: int) -> None:
    """And is whole when it fits anyway."""
    short = cut(text, width)
    assert columns(short) <= width
    assert short == text if columns(text) <= width else short.endswith("…")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300), st.text(max_size=500))
def test_the_line_is_one_short_printable_line(title: str, recap: str) -> None:
    """Whatever title and recap are."""
    shown = layout(title, "idle", recap)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert "idle" in shown
    assert len(json.dumps(shown)) > 0
    assert columns("".join(c for c in shown if unicodedata.category(c) not in ("Mn", "Me", "Cf"))) <= MAX_COLUMNS
