"""The user's own programs, started after something was written."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import eventually
from watcher.edge.hooks import MAX_WAITING, Hooks

Failures = list[tuple[str, str]]
PAYLOAD = b'{"kind": "title"}\n'


@pytest.fixture
def failures() -> Failures:
    """What was told of failed hooks."""
    return []


@pytest.fixture
def hooks(failures: Failures) -> Iterator[Hooks]:
    """Hooks that may take a short while, with an environment of their own."""
    environ = {"PATH": os.environ["PATH"], "COLOUR": "blue"}
    made = Hooks(lambda name, detail: failures.append((name, detail)), environ, limit_seconds=5.0)
    yield made
    made.close()


def script(folder: Path, text: str) -> str:
    """An executable shell script."""
    path = folder / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def ended(hooks: Hooks) -> None:
    """Wait until nothing runs any more."""
    eventually(lambda: hooks.idle, 20)


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_hook_reads_the_event_and_has_its_own_environment(hooks: Hooks, failures: Failures, tmp_path: Path) -> None:
    """The whole environment is the one that was given; arguments are not looked at by any shell."""
    out = tmp_path / "out"
    code = "import json,os,sys; json.dump([sys.argv[2:], sys.stdin.read(), dict(os.environ)], open(sys.argv[1], 'w'))"
    hooks.start("on_title", [sys.executable, "-c", code, str(out), "$HOME; ls", ""], PAYLOAD)
    ended(hooks)
    arguments, read, environ = json.loads(out.read_text())
    assert arguments == ["$HOME; ls", ""]
    assert read == PAYLOAD.decode()
    assert environ["COLOUR"] == "blue"
    assert set(environ) <= {"PATH", "COLOUR", "LC_CTYPE"}
    assert failures == []


def test_what_a_hook_prints_goes_nowhere(
    hooks: Hooks, failures: Failures, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither to the log nor to a pipe that could fill up."""
    hooks.start("on_recap", [script(tmp_path, "head -c 1000000 /dev/zero; echo trouble >&2")], PAYLOAD)
    ended(hooks)
    assert capfd.readouterr() == ("", "")
    assert failures == []


def test_a_failing_hook_is_one_sentence(hooks: Hooks, failures: Failures, tmp_path: Path) -> None:
    """Its exit code, its signal, or why it could not be started; the next ones run."""
    hooks.start("on_title", [script(tmp_path, "exit 3")], PAYLOAD)
    hooks.start("on_title", ["/bin/sh", "-c", "kill -TERM $$"], PAYLOAD)
    hooks.start("on_title", [str(tmp_path / "none")], PAYLOAD)
    hooks.start("on_title", ["/bin/true", "nul\0byte"], PAYLOAD)
    ended(hooks)
    assert failures == [
        ("on_title", "exit code 3"),
        ("on_title", "killed by SIGTERM"),
        ("on_title", "cannot be started: No such file or directory"),
        ("on_title", "cannot be started: embedded null byte"),
    ]


def test_a_hook_that_reads_nothing_is_fine(hooks: Hooks, failures: Failures) -> None:
    """Also with more on its stdin than a pipe holds."""
    hooks.start("on_title", ["/bin/true"], b"x" * 1_000_000)
    ended(hooks)
    assert failures == []


def test_a_hook_that_takes_too_long_is_killed_with_its_children(failures: Failures, tmp_path: Path) -> None:
    """The whole group, also one that ignores polite signals."""
    hooks = Hooks(lambda name, detail: failures.append((name, detail)), os.environ, limit_seconds=1.0)
    pids = tmp_path / "pids"
    text = f"trap '' TERM HUP INT\nsleep 300 &\necho $! $$ > {pids}.new\nmv {pids}.new {pids}\nwait\nsleep 300"
    hooks.start("on_recap", [script(tmp_path, text)], PAYLOAD)
    eventually(pids.exists)
    child, parent = (int(word) for word in pids.read_text().split())
    assert is_running(child)
    assert os.getpgid(child) == parent
    ended(hooks)
    eventually(lambda: not is_running(child) and not is_running(parent))
    assert failures == [("on_recap", "killed: it took more than 1 s")]
    hooks.close()


def test_hooks_run_in_order_one_at_a_time(hooks: Hooks, failures: Failures, tmp_path: Path) -> None:
    """A notification does not overtake the one before; no thread is left behind."""
    out = tmp_path / "out"
    program = script(tmp_path, f"echo begin $1 >> {out}; sleep 0.02; echo end $1 >> {out}")
    for number in range(5):
        hooks.start("on_title", [program, str(number)], PAYLOAD)
    ended(hooks)
    assert out.read_text().split("\n")[:-1] == [f"{word} {n}" for n in range(5) for word in ("begin", "end")]
    assert failures == []
    eventually(lambda: all(thread.name != "hooks" for thread in threading.enumerate()))


def test_more_than_can_wait_are_dropped_and_told(hooks: Hooks, failures: Failures, tmp_path: Path) -> None:
    """One runs, the limit waits, the rest is gone."""
    gate, out = tmp_path / "gate", tmp_path / "out"
    program = script(tmp_path, f"echo x >> {out}; while [ ! -e {gate} ]; do sleep 0.02; done")
    hooks.start("on_title", [program], PAYLOAD)
    eventually(out.exists)
    for _ in range(MAX_WAITING + 3):
        hooks.start("on_title", [program], PAYLOAD)
    assert failures == [("on_title", f"dropped: {MAX_WAITING} hooks wait already")] * 3
    gate.touch()
    ended(hooks)
    assert len(out.read_text().split()) == MAX_WAITING + 1


def test_closing_kills_what_runs_and_forgets_what_waits(hooks: Hooks, failures: Failures, tmp_path: Path) -> None:
    """At once and without a word: the service is stopping."""
    pid = tmp_path / "pid"
    program = script(tmp_path, f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 300")
    hooks.start("on_title", [program], PAYLOAD)
    hooks.start("on_title", [program], PAYLOAD)
    eventually(pid.exists)
    begun = time.monotonic()
    hooks.close()
    assert time.monotonic() - begun < 2
    assert not is_running(int(pid.read_text()))
    hooks.start("on_title", [program], PAYLOAD)
    assert hooks.idle
    assert failures == []


def test_a_hook_starts_with_plain_signals(hooks: Hooks, failures: Failures, tmp_path: Path) -> None:
    """SIGPIPE, which Python ignores, ends a pipeline in a hook as it does in a shell."""
    out = tmp_path / "out"
    hooks.start("on_title", [script(tmp_path, f"kill -PIPE $$; echo survived > {out}")], PAYLOAD)
    ended(hooks)
    assert not out.exists()
    assert failures == [("on_title", f"killed by {signal.SIGPIPE.name}")]
