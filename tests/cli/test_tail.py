"""`tail`."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import IO

import pytest

from tests.cli.home import SHOP, Home
from tests.support.live import eventually
from watcher.cli.tail import span_seconds
from watcher.edge.store import JournalEntry, JournalKind, Store
from watcher.errors import UsageError

FIELDS = {"kind", "session_id", "text", "timestamp", "path", "cwd", "model", "record_uuid"}
A, B = "aaaa1111-0000-4000-8000-000000000001", "bbbb2222-0000-4000-8000-000000000002"


def record(home: Home, text: str, *, kind: JournalKind = JournalKind.TITLE, session: str = A, ago: float = 0.0) -> None:
    """Note something in the journal, as the watcher does."""
    store = Store.open(home.state)
    store.record(
        JournalEntry(
            kind=kind,
            session_id=session,
            path=f"/x/{session}.jsonl",
            at=time.time() - ago,
            text=text,
            cwd=SHOP,
            source="" if kind is JournalKind.RECAP else "auto",
            model="flash",
            record_uuid=f"uuid of {text}",
        )
    )
    store.close()


def texts(home: Home, *arguments: str) -> list[str]:
    ran = home.run("tail", "--json", *arguments)
    assert ran.code == 0
    return [json.loads(line)["text"] for line in ran.out.splitlines()]


def test_one_object_a_line_newest_last(home: Home) -> None:
    """The fields of design 4; titles also tell their source."""
    record(home, "first", ago=20.0)
    record(home, "second", kind=JournalKind.RECAP, session=B)
    lines = [json.loads(line) for line in home.run("tail", "--json").out.splitlines()]
    assert [each["text"] for each in lines] == ["first", "second"]
    assert set(lines[0]) == FIELDS | {"source"}
    assert set(lines[1]) == FIELDS
    assert (lines[1]["kind"], lines[1]["session_id"], lines[1]["record_uuid"]) == ("recap", B, "uuid of second")


def test_kind_session_and_since(home: Home) -> None:
    """Each option narrows what is shown; healing and undo are no entries of their own."""
    record(home, "old", ago=7200.0 + 60)
    record(home, "recap", kind=JournalKind.RECAP)
    record(home, "healed", kind=JournalKind.HEAL)
    record(home, "other", session=B)
    assert texts(home) == ["old", "recap", "other"]
    assert texts(home, "--kind", "recap") == ["recap"]
    assert texts(home, "--kind", "title") == ["old", "other"]
    assert texts(home, "--since", "2h") == ["recap", "other"]
    assert texts(home, "--session", A) == ["old", "recap"]
    session = home.session(session_id=B)
    assert texts(home, "--session", session.session_id[:8]) == ["other"]


def test_the_last_twenty_unless_since_asks_for_more(home: Home) -> None:
    """Without `--since` the newest twenty."""
    for number in range(25):
        record(home, str(number))
    assert texts(home) == [str(number) for number in range(5, 25)]
    assert len(texts(home, "--since", "1h")) == 25


def test_nothing_yet_and_wrong_usage(home: Home) -> None:
    """Without a journal one line for people, none for scripts, no state directory; wrong options are exit 2."""
    assert home.run("tail").out == "nothing was written yet\n"
    assert home.run("tail", "--json").out == ""
    assert not home.state.exists()
    for arguments in (["--kind", "heal"], ["--since", "yesterday"], ["--since", ""]):
        assert home.run("tail", *arguments).code == 2
    assert home.run("tail", "--session", "ffffffff").err.startswith("reason: not_found (")


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("2h", 7200), ("1.5 h", 5400), ("7d", 604_800)])
def test_spans(text: str, seconds: float) -> None:
    """`30m`, `2h`, `7d` in seconds."""
    assert span_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "-1h", "2 hours", "1h30m"])
def test_no_spans(text: str) -> None:
    """Anything else says how to write it."""
    with pytest.raises(UsageError, match="30m"):
        span_seconds(text)


def next_text(stream: IO[str]) -> str:
    text: str = json.loads(stream.readline())["text"]
    return text


def test_follow_survives_restarts_and_a_new_database(home: Home) -> None:
    """`-f` shows what is written before there is a database, while it lives, and after it was deleted and made anew;
    nothing twice.
    """
    with home.process("tail", "-f", "--json", "--kind", "title") as process:
        assert process.stdout is not None
        eventually(lambda: _sleeping_in_follow(process.pid), 30.0)
        record(home, "before")
        assert next_text(process.stdout) == "before"
        record(home, "a recap", kind=JournalKind.RECAP)
        record(home, "while")
        assert next_text(process.stdout) == "while"
        for name in ("state.db", "state.db-wal", "state.db-shm"):
            (home.state / name).unlink(missing_ok=True)
        record(home, "of the past", ago=86_400.0)
        record(home, "after")
        assert next_text(process.stdout) == "after"
        shutil.rmtree(home.state)
        record(home, "again")
        assert next_text(process.stdout) == "again"


def test_following_ends_when_the_reader_goes(home: Home) -> None:
    """`tail -f | head -1` gives the shell back at once, not with the next entry."""
    record(home, "one")
    with home.process("tail", "-f", "--json") as process:
        assert process.stdout is not None
        assert next_text(process.stdout) == "one"
        process.stdout.close()
        assert process.wait(30.0) == 0


def _sleeping_in_follow(pid: int) -> bool:
    """Whether the process is past its start: its own modules are loaded and it waits."""
    wait = Path(f"/proc/{pid}/wchan").read_text()
    return any(word in wait for word in ("nanosleep", "hrtimer", "poll"))


def test_a_terminal_gets_lines_that_fit(home: Home) -> None:
    """A long recap is broken between words and indented; CJK counts two cells; no line is wrapped by the terminal."""
    record(home, "You fix the flaky login test. " * 6, kind=JournalKind.RECAP)
    record(home, "重构用户鉴权中间件" * 8)
    with home.terminal("tail", columns=80) as terminal:
        assert terminal.wait_exit() == 0
        lines = [line for line in terminal._screen.lines() if line]
    assert lines[0].startswith("20")
    assert all(line.startswith(("20", "    ")) for line in lines)
    assert "".join("".join(line.split()) for line in lines).count("重构用户鉴权中间件") == 8
