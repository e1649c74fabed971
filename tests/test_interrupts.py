"""Signals at every moment of a command's life, in real processes: no traceback, no lost stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.conftest import MODEL, FakeHome
from tests.support.chat_server import ChatServer, Gate, Reply
from tests.support.terminal import DEADLINE_SECONDS, ProcessTree, wait_until
from tests.support.watching import watcher_env

READY = """
import os, sys
from watcher.cli.interrupts import end_quietly
end_quietly()
os.close(int(sys.argv.pop(1)))
from watcher.__main__ import main
main()
"""
"""Python itself takes some milliseconds before any line of ours can run; closing the descriptor tells when it can."""
INTERRUPTED = {0, 1, 130, -signal.SIGINT}
MOMENTS = 5


@pytest.fixture
def home(tmp_path: Path) -> FakeHome:
    """A home with one session."""
    return FakeHome(tmp_path)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A model that never answers."""
    gate = Gate()
    with ChatServer() as made:
        made.respond = lambda request: Reply(gate=gate)
        yield made
        gate.release()


@pytest.fixture
def env(home: FakeHome, server: ChatServer, tmp_path: Path) -> dict[str, str]:
    """Temporary files in a place of their own."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    settings = {"model.source": "explicit", "model.name": MODEL, "model.base_url": server.base_url}
    # As for a user: a file that an interrupted import left open is no matter.
    return watcher_env(home.path, home.state, settings, {"TMPDIR": str(temporary), "PYTHONWARNINGS": ""})


def masks(pid: int) -> int:
    """The signals that a process blocks or catches, as bits from SIGHUP on."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    found = dict(line.split(":\t") for line in lines if line.startswith("Sig"))
    return int(found.get("SigBlk", "0"), 16) | int(found.get("SigCgt", "0"), 16)


@pytest.mark.skipif(sys.platform != "linux", reason="from outside only Linux shows which signals are taken")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_service_can_be_reloaded_and_stopped_while_it_starts(home: FakeHome, env: dict[str, str]) -> None:
    """From the first line of ours on: SIGHUP does not end it, SIGINT ends it well, and neither shows a traceback."""
    home.session()
    arguments = [sys.executable, "-m", "watcher", "run", "--log-format", "json"]
    for moment in range(MOMENTS):
        process = subprocess.Popen(arguments, env=env, stderr=subprocess.PIPE, text=True)
        tree = ProcessTree(process)
        try:
            wait_until(lambda pid=process.pid: masks(pid) & 1, "the hold on signals")  # type: ignore[misc]
            time.sleep(moment * 0.2)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGINT if moment % 2 else signal.SIGTERM)
            _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            tree.kill()
        assert "Traceback" not in errors, f"moment {moment}\n{errors}"
        assert process.returncode == 0, f"moment {moment}\n{errors}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    [
        ["tail", "-f"],
        ["demo"],
        ["title", "latest", "--auto"],
        ["recap", "latest"],
        ["backfill", "--yes"],
        ["sessions", "--watch"],
        ["service", "logs", "-f"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_an_interrupt_ends_a_command_without_a_traceback(
    home: FakeHome, env: dict[str, str], command: list[str], tmp_path: Path
) -> None:
    """One Ctrl-C is enough at any moment, and nothing stays behind in the directory for temporary files."""
    home.session(ago=50)
    for moment in range(MOMENTS):
        reader, writer = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-c", READY, str(writer), *command],
            env=env,
            cwd=home.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(writer,),
            start_new_session=True,
        )
        tree = ProcessTree(process)
        os.close(writer)
        try:
            with os.fdopen(reader) as ready:
                ready.read()
            time.sleep(moment * 0.2)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all that runs in it
            _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            tree.kill()
        assert "Traceback" not in errors, f"moment {moment}\n{errors}"
        assert "Exception ignored" not in errors, f"moment {moment}\n{errors}"
        assert process.returncode in INTERRUPTED, f"moment {moment}\n{errors}"
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == []
