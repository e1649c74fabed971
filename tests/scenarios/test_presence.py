"""Who is held for away, with real terminals behind the sessions and a real watcher that looks at them."""

from __future__ import annotations

import os
import pty
import time
from pathlib import Path

import pytest

from tests.scenarios.conftest import FakeHome
from tests.scenarios.test_recaps import RECAP, owned_session, recap_env, wait_recap
from tests.support.chat_server import ChatServer
from tests.support.live import AtTerminal, end, registry_record, running, running_at_terminal, write_record
from tests.support.qwen_code import recap_texts
from tests.support.terminal import wait_until
from tests.support.watching import Watching
from watcher.core.presence import TERMINAL_STEP_SECONDS

AWAY_SECONDS = 3.0

pytestmark = pytest.mark.slow

OUTLIVES_ITS_TERMINAL = """
import os, signal, sys
os.setsid()
os.open(sys.argv[1], os.O_RDWR)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
print('ready', flush=True)
sys.stdin.read()
"""
"""A process with a controlling terminal that goes on without it."""


def env_of(home: FakeHome, server: ChatServer) -> dict[str, str]:
    """A watcher that makes recaps after a short absence."""
    server.recap = RECAP
    return recap_env(home, server, {"recap.away_minutes": AWAY_SECONDS / 60.0})


def type_until_seen(owner: AtTerminal) -> float:
    """Lines typed until the terminal's time, which moves in steps, has moved; the time that it shows then."""
    before = owner.path.stat().st_atime

    def moved() -> float | None:
        os.write(owner.master, b"\n")
        return seen if (seen := owner.path.stat().st_atime) > before else None

    return float(wait_until(moved, "the terminal's time") or 0.0)


def test_two_terminals_on_one_session_have_one_user(home: FakeHome, server: ChatServer) -> None:
    """Keys at either of them count; the text is written once, and put last when both have gone, not before."""
    with (
        running_at_terminal() as first,
        running_at_terminal() as second,
        Watching(env_of(home, server)) as watching,
    ):
        session = owned_session(home, first.process.pid)
        write_record(home.config_dir, registry_record(second.process.pid, session.session_id))
        watching.wait_event("decision", session=session.session_id, reason="away_not_yet")
        typed_at = type_until_seen(second)
        wait_recap(session, watching)
        [request] = server.requests()
        assert request.at > typed_at + TERMINAL_STEP_SECONDS + AWAY_SECONDS - 0.1

        session.title("A name from its memory", "manual")  # as the first one writes at its exit: it hides the recap
        end(first.process)
        watching.wait_event("decision", session=session.session_id, reason="nothing_new")
        wait_until(lambda: not Path(f"/proc/{first.process.pid}").exists(), "the end of the first")
        assert recap_texts(session.path) == [RECAP]
        end(second.process)
        wait_recap(session, watching, 2)
    assert recap_texts(session.path) == [RECAP, RECAP]
    assert len(server.requests()) == 1


def test_a_terminal_whose_time_lies_in_the_future_does_not_keep_its_user_there(
    home: FakeHome, server: ChatServer
) -> None:
    """It counts as now, once: the recap comes after the threshold, not a day later."""
    with running_at_terminal() as owner, Watching(env_of(home, server)) as watching:
        tomorrow = time.time() + 86_400.0
        os.utime(owner.path, (tomorrow, tomorrow))
        session = owned_session(home, owner.process.pid)
        wait_recap(session, watching)
        assert owner.path.stat().st_atime > time.time() + 3600.0, "the time was moved by somebody else"
    assert len(server.requests()) == 1


def test_a_terminal_that_vanishes_leaves_the_absence_as_it_was(home: FakeHome, server: ChatServer) -> None:
    """Its device is gone while the process lives on: what it showed last still counts, and the recap comes."""
    master, slave = pty.openpty()
    path = Path(os.ttyname(slave))
    with running(str(path), code=OUTLIVES_ITS_TERMINAL) as owner, Watching(env_of(home, server)) as watching:
        os.close(slave)
        os.utime(path)
        touched_at = path.stat().st_atime
        session = owned_session(home, owner.pid)
        watching.wait_event("decision", session=session.session_id, reason="away_not_yet")
        os.close(master)
        wait_until(lambda: not path.exists(), "the end of the device")
        wait_recap(session, watching)
        assert owner.poll() is None
        [request] = server.requests()
        assert request.at > touched_at + TERMINAL_STEP_SECONDS + AWAY_SECONDS - 0.1
