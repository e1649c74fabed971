"""Files as reports have them: damaged in the middle, empty at first, titled long ago (reports A7, D3, D5, D10)."""

from __future__ import annotations

import json
import time

import pytest

from tests.scenarios.conftest import TITLE, FakeHome
from tests.support.chat_server import ChatServer
from tests.support.qwen_code import title_records
from tests.support.terminal import wait_until
from tests.support.transcripts import Transcript
from tests.support.watching import Watching


def titled(session: Transcript) -> bool:
    return (TITLE, "auto") in title_records(session.path)


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 400 + b"\n",
        b'{"uuid":"x","type":"assistant",\n"message":\n{"parts":[]}}\n',
        b"not json at all\n",
    ],
    ids=["nul-bytes", "an-object-on-three-lines", "text"],
)
def test_damage_in_the_middle_hides_nothing_behind_it(
    home: FakeHome, server: ChatServer, env: dict[str, str], damage: bytes
) -> None:
    """The turns before and after are read, the prompt behind the damage is sent, and the damage stays as it is."""
    session = home.session()
    session.path.write_bytes(session.path.read_bytes() + damage)
    with Watching(env) as watching:
        session.turn("And the ostrich page", "Fixed.")
        wait_until(lambda: titled(session), "the title", dump=watching.dump)
    assert "ostrich" in json.dumps(server.requests()[0].body)
    assert session.path.read_bytes().count(damage) == 1


def test_ten_files_that_are_empty_at_first_are_ten_sessions(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """They look alike until they grow."""
    sessions = [Transcript(home.chats(), at=time.time() - 1) for _ in range(10)]
    for session in sessions:
        session.path.write_bytes(b"")
    with Watching(env) as watching:
        for session in sessions:
            session.snapshot()
            session.turn("Please fix the login", "Done.")
        wait_until(lambda: all(map(titled, sessions)), "the titles", dump=watching.dump)
    assert len(server.requests()) == 10


def test_restarts_write_nothing_to_titled_sessions(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Not a byte, and no time of a file changes, so the order of the picker stays."""
    sessions = [home.session() for _ in range(10)]
    for session in sessions:
        session.title("An older title")
    before = {each.path: (each.path.read_bytes(), each.path.stat().st_mtime_ns) for each in sessions}
    for _ in range(3):
        with Watching(env) as watching:
            watching.wait_event("started")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    assert server.requests() == []
