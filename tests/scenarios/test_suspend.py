"""Many absences that come due at one moment: stopped processes that go on, and a machine that wakes up.

A suspend cannot be had in a test. A time namespace does not help, since its offsets are fixed once a process is in it.
So the watcher's own readings of the clocks are moved as a suspend moves them: wall and boot time go on, the monotonic
clock, by which threads sleep, does not.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.scenarios.conftest import FakeHome
from tests.scenarios.test_recaps import RECAP, WAIT_ALONE, recap_env, wait_recap
from tests.support.chat_server import ChatServer, Gate, Kind, Reply
from tests.support.live import registry_record, running, write_record
from tests.support.qwen_code import recap_texts
from tests.support.terminal import wait_until
from tests.support.transcripts import Transcript
from tests.support.watching import REPOSITORY, Watching
from watcher.api.client import ask
from watcher.paths import socket_path

pytestmark = pytest.mark.slow

SESSIONS = 6
AT_ONCE = 2
AWAY_SECONDS = 8.0
GRACE_SECONDS = 2.0

CLOCKS = f"""
import os, time
import watcher.core.presence as presence
presence.WAKE_GRACE_SECONDS = {GRACE_SECONDS}

def slept():
    with open(os.environ["SLEPT"]) as file:
        return int(file.read())

def moved(read, clocks=None, unit=1):
    def reading(*args):
        return read(*args) + (unit * slept() if clocks is None or args[0] in clocks else 0)
    return reading

time.clock_gettime = moved(time.clock_gettime, (time.CLOCK_BOOTTIME, time.CLOCK_REALTIME))
time.time = moved(time.time)
time.time_ns = moved(time.time_ns, unit=10**9)
"""
"""Python loads it at the start of the watcher. The file that `SLEPT` names holds for how long the machine slept."""


def stop_and_go(pids: list[int], slept: Path) -> None:
    """SIGSTOP to everybody for longer than the threshold, then SIGCONT."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until = time.time() + AWAY_SECONDS + 1.0
    wait_until(lambda: time.time() > until, "a long stop")
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def suspend(pids: list[int], slept: Path) -> None:
    """The machine sleeps for an hour, at the next reading of a clock."""
    sleep_for(slept, 3600)


def sleep_for(slept: Path, seconds: int) -> None:
    """From now on the machine has slept for so long in all."""
    new = slept.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(slept)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="needs the clock of Linux that counts suspended time")
@pytest.mark.parametrize("pause", [stop_and_go, suspend])
def test_absences_that_come_due_together_are_no_storm(
    home: FakeHome, server: ChatServer, tmp_path: Path, pause: Callable[[list[int], Path], None]
) -> None:
    """At most `max_concurrency` calls run, each session gets one; a second night brings none."""
    gates = [Gate() for _ in range(SESSIONS)]
    server.script(*(Reply(f"<recap>{RECAP}</recap>", gate=gate) for gate in gates), kind=Kind.RECAP)
    (tmp_path / "sitecustomize.py").write_text(CLOCKS)
    slept = tmp_path / "slept"
    sleep_for(slept, 0)
    settings = {"recap.away_minutes": AWAY_SECONDS / 60.0, "model.max_concurrency": AT_ONCE}
    extra = {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "SLEPT": str(slept)}
    env = recap_env(home, server, settings, extra)
    with ExitStack() as stack, Watching(env) as watching:
        sessions = []
        owners = [stack.enter_context(running(code=WAIT_ALONE)) for _ in range(SESSIONS)]
        for number, owner in enumerate(owners):
            session = Transcript(home.chats(), cwd="/home/user/proj", at=time.time() - 10.0)
            write_record(home.config_dir, registry_record(owner.pid, session.session_id))
            for step in ("Repair", "Test", "Deploy"):
                session.turn(f"{step} ticket {number}.", "Done.")
            sessions.append(session)
        for session in sessions:
            watching.wait_event("decision", session=session.session_id, reason="away_not_yet")
        assert server.requests() == []

        pause([watching.pid, *(owner.pid for owner in owners)], slept)
        for session in sessions:
            watching.wait_event("decision", session=session.session_id, verdict="act")
        for number, gate in enumerate(gates):
            gate.wait_arrived()
            if 0 < number < SESSIONS - 1:  # the first one to meet the endpoint goes alone
                gates[number + 1].wait_arrived()
            assert len(server.requests()) - number <= AT_ONCE
            gate.release()
        for session in sessions:
            wait_recap(session, watching)

        sleep_for(slept, 90_000)
        for session in sessions:
            found = ask(socket_path(env), f"/session/{session.session_id}/why", timeout_seconds=10.0)
            assert found is not None
            assert (found["recap"]["verdict"], found["recap"]["reason"]) == ("wait", "nothing_new")
    asked = [json.dumps(request.body) for request in server.requests()]
    assert len(asked) == SESSIONS
    assert all(sum(f"ticket {number}." in text for text in asked) == 1 for number in range(SESSIONS))
    assert [recap_texts(session.path) for session in sessions] == [[RECAP]] * SESSIONS
    if pause is suspend:
        told = [line["detail"] for line in watching.log("decision") if "has just woken" in line["detail"]]
        assert len(told) == SESSIONS
