"""`sessions`."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from ptyprocess import PtyProcess

from tests.cli.home import SHOP, Home
from tests.support.transcripts import Transcript
from tests.support.users import open_directory, without_privileges

FIELDS = [
    "session_id",
    "path",
    "cwd",
    "title",
    "title_source",
    "first_prompt",
    "user_turns",
    "last_activity",
    "state",
    "pid",
    "recap",
]


def one_shot(home: Home, *prompts: str, **options: Any) -> Transcript:
    """A `-p` run: no snapshot, no sidecar, no owner."""
    session = home.session(*prompts, **options)
    lines = session.path.read_bytes().splitlines(keepends=True)
    session.path.write_bytes(b"".join(line for line in lines if b"file_history_snapshot" not in line))
    home.rest(session)
    return session


def listed(home: Home, *arguments: str) -> list[dict[str, Any]]:
    ran = home.run("sessions", "--json", *arguments)
    assert (ran.code, ran.err) == (0, "")
    found: list[dict[str, Any]] = ran.json
    return found


def test_the_json_shape_is_that_of_the_design(home: Home) -> None:
    """Every field by its name, in one array."""
    session = home.session("Fix the login", "And logout?")
    session.title("Fix login and logout")
    session.recap("Both wait now. Next: run the suite.")
    home.rest(session)
    (found,) = listed(home)
    assert list(found) == FIELDS
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("last_activity"))
    assert found == {
        "session_id": session.session_id,
        "path": str(session.path),
        "cwd": SHOP,
        "title": "Fix login and logout",
        "title_source": "auto",
        "first_prompt": "Fix the login",
        "user_turns": 2,
        "state": "ended",
        "pid": None,
        "recap": "Both wait now. Next: run the suite.",
    }


def test_titles_and_sources(home: Home) -> None:
    """An unsourced title is manual; none, or an empty one, is null with a null source."""
    cases = (("Mine", "manual"), ("Theirs", "auto"), ("Unsourced", None), ("", "manual"), (None, None))
    for number, (title, source) in enumerate(cases):
        session = home.session(age=100.0 * (number + 1))
        if title is not None:
            session.title(title, source)
        home.rest(session)
    found = [(each["title"], each["title_source"]) for each in listed(home)]
    assert found == [("Mine", "manual"), ("Theirs", "auto"), ("Unsourced", "manual"), (None, None), (None, None)]


def test_order_limit_and_kind(home: Home) -> None:
    """Newest first; fifty interactive ones; `--limit` and `--all` change that."""
    sessions = [home.session(age=1000.0 + 60 * number) for number in range(52)]
    shot = one_shot(home, age=10.0)
    assert [each["session_id"] for each in listed(home)] == [each.session_id for each in sessions[:50]]
    assert [each["session_id"] for each in listed(home, "--limit", "2")] == [each.session_id for each in sessions[:2]]
    everything = listed(home, "--all")
    assert len(everything) == 53
    assert everything[0]["session_id"] == shot.session_id
    assert len(listed(home, "--all", "--limit", "7")) == 7
    assert home.run("sessions", "--limit", "0").code == 2


def test_a_one_shot_run_with_a_long_prompt_is_no_interactive_session(home: Home) -> None:
    """Also a file that is larger than the picker's window is judged by all of it."""
    one_shot(home, "x" * 200_000)
    interactive = home.session("y" * 200_000)
    assert [each["session_id"] for each in listed(home)] == [interactive.session_id]


def test_project_is_the_directory_and_its_worktrees(home: Home) -> None:
    """`--project` takes the directory as named or as it really is, and sessions in its worktrees."""
    place = home.root / "work" / "app"
    place.mkdir(parents=True)
    link = home.root / "app"
    link.symlink_to(place)
    inside = home.session(cwd=str(place))
    below = home.session(cwd=str(place / "deep"))
    tree = Transcript(inside.path.parent, cwd=f"{place}/.qwen/worktrees/fix", at=inside.at)
    tree.turn("In a worktree", "Done.")
    home.rest(tree)
    home.session(cwd="/home/user/other")
    for name in (str(place), str(link), f"{place}/../app"):
        assert {each["session_id"] for each in listed(home, "--project", name)} == {
            inside.session_id,
            tree.session_id,
        }
    assert [each["session_id"] for each in listed(home, "--project", str(place / "deep"))] == [below.session_id]
    assert listed(home, "--project", "/nowhere") == []


def test_states(home: Home) -> None:
    """`ended` without an owner; else `working`, `idle` or `away`, with the owner's pid."""
    ended = home.session(age=7000.0)
    idle, away = home.session(age=60.0), home.session(age=3600.0)
    working = home.session(age=60.0)
    working.user("And now?")
    home.rest(working)
    with home.owner(idle) as first, home.owner(away), home.owner(working):
        found = {each["session_id"]: each for each in listed(home)}
        assert [found[each.session_id]["state"] for each in (ended, idle, away, working)] == [
            "ended",
            "idle",
            "away",
            "working",
        ]
        assert found[idle.session_id]["pid"] == first.pid
        assert found[ended.session_id]["pid"] is None


def test_an_empty_home_says_so(home: Home) -> None:
    """No table without a row; JSON is an empty array."""
    assert listed(home) == []
    ran = home.run("sessions")
    assert ran.code == 0
    assert ran.out == f"no sessions yet below {home.qwen}\n"
    assert home.run("sessions", "--project", "/nowhere").out == "no sessions of /nowhere\n"
    home.session().path.write_bytes(b"")
    assert home.run("sessions").out == f"no sessions yet below {home.qwen}; `--all` also lists `qwen -p` runs\n"


def test_a_closed_directory_is_named(home: Home) -> None:
    """Sessions that cannot be seen are not called missing."""
    with open_directory() as directory:
        home.env["HOME"] = home.env["QWEN_HOME"] = home.env["XDG_CONFIG_HOME"] = str(directory)
        home.env["QWEN_WATCHER_STATE_DIR"] = str(directory / "state")
        assert home.run("sessions").code == 0  # what it imports is for root's eyes only
        chats = directory / "projects" / "-p" / "chats"
        chats.mkdir(parents=True)
        chats.chmod(0)
        with without_privileges():
            ran = home.run("sessions")
    assert (ran.code, ran.out) == (0, f"{chats} cannot be read; `qwen-watcher doctor` tells more\n")


def test_a_pipe_gets_whole_plain_rows(home: Home) -> None:
    """Tab-separated, nothing cut, no colour codes; what could move a cursor is taken out."""
    session = home.session("x" * 90 + "\x1b[2J\x1b]0;evil\x07 \x9b31m\u202e tail")
    session.title("A\ttitle with \x1b[31mcolour and\nnewline " + "y" * 90)
    home.rest(session)
    home.session("\x1b[Hfirst prompt")
    ran = home.run("sessions")
    rows = [line.split("\t") for line in ran.out.splitlines()]
    assert [len(row) for row in rows] == [7, 7, 7]
    assert any("y" * 90 in row[1] for row in rows)
    assert not any(character in ran.out for character in "\x1b\x9b\x07\u202e")


def test_any_locale_can_print_it(home: Home) -> None:
    """In an ASCII locale a character that is missing becomes `?`, and JSON escapes it."""
    session = home.session("请重构用户鉴权中间件 🚀")
    session.title("重构用户鉴权中间件")
    home.rest(session)
    assert "?????????" in home.run("sessions", encoding="ascii").out
    (found,) = json.loads(home.run("sessions", "--json", encoding="ascii").out)
    assert found["title"] == "重构用户鉴权中间件"
    home.env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with home.process("sessions", encoding="ascii") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert session.session_id[:8] in out


def test_a_reader_that_goes_away_is_no_error(home: Home, tmp_path: Path) -> None:
    """`| head -1` ends the command in silence."""
    for _ in range(3):
        home.session("z" * 3000)
    command = 'set -o pipefail; "$0" -m watcher sessions --all --json | head -c 1; echo " $?"'
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    ran = subprocess.run(
        ["/bin/bash", "-c", command, sys.executable],
        env=home.env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("[ 0\n", "")


def test_what_was_indexed_by_the_watcher_is_the_same(home: Home) -> None:
    """With the index of a running watcher the list is quicker, and equal."""
    from watcher.catalog import read_session  # noqa: PLC0415
    from watcher.edge.store import IndexRow, Store  # noqa: PLC0415
    from watcher.qwen.paths import session_ref  # noqa: PLC0415

    session = home.session("Fix the login", "And logout?")
    session.title("Fix login")
    session.recap("Both wait now.")
    home.rest(session)
    before = listed(home)
    ref = session_ref(str(session.path))
    assert ref is not None
    reading = read_session(ref)
    status = session.path.stat()
    recap = reading.state.recap
    assert recap is not None
    store = Store.open(home.state)
    row = IndexRow(
        path=str(session.path),
        session_id=session.session_id,
        dev=status.st_dev,
        ino=status.st_ino,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        offset=status.st_size,
        cwd=reading.state.first_cwd,
        user_turns=reading.state.user_turns,
        last_activity=reading.state.last_activity_at,
        interactive=True,
        recap_text=recap.text,
    )
    store.upsert_index([row._replace(path=str(session.path.with_name("gone.jsonl"))), row])
    store.close()
    assert listed(home) == before


def test_watch_draws_again_on_a_screen_of_its_own(home: Home) -> None:
    """`--watch` shows what changed within two seconds, fits the screen, and Ctrl-C ends it."""
    sessions = [home.session(age=3600.0 + number) for number in range(30)]
    with home.terminal("sessions", "--watch", rows=12) as terminal:
        terminal.wait_for(sessions[0].session_id[:8])
        assert not terminal.shows(sessions[20].session_id[:8])
        sessions[20].title("A brand new title")
        terminal.wait_for("A brand new title")
        terminal.send("\x03")
        assert terminal.wait_exit() == 130


def test_watch_on_a_dumb_terminal_is_one_table_after_another(home: Home) -> None:
    """Where nothing can move the cursor, nothing tries to."""
    home.session()
    home.env["TERM"] = "dumb"
    command = [sys.executable, "-m", "watcher", "sessions", "--watch"]
    process = PtyProcess.spawn(command, env=home.env, cwd=str(home.root))
    with contextlib.closing(process):
        data = b""
        while data.count(b"SESSION") < 2:
            data += process.read(65536)
    assert b"\x1b" not in data
