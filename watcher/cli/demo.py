"""`demo`: the main job in half a minute, with nothing installed or configured.

A scripted session grows in a throw-away home, in the records that Qwen Code writes; the real `run` watches it with the
offline text model, and its title and recap appear.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final, TypeVar

from watcher.cli.interrupts import interrupt_on
from watcher.cli.output import say, say_filled
from watcher.edge.store import Store
from watcher.errors import WatcherError
from watcher.qwen.contract import CHATS_DIR, PROJECTS_DIR, sanitize_cwd
from watcher.qwen.records import format_timestamp

T = TypeVar("T")

AWAY_SECONDS: Final = 4.0
STEP_SECONDS: Final = 1.0
DEADLINE_SECONDS: Final = 25.0
STOP_SECONDS: Final = 5.0
VERSION: Final = "0.24.4"
_ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_TURNS: Final = (
    (
        "Hi! Could you please fix the flaky login test in tests/auth_test.py? It fails about one time in five.",
        "I found it: the test reads the session cookie before the redirect has finished. I added a wait for it.",
    ),
    (
        "Good. Does the logout test have the same problem?",
        "Yes, in two places. Both wait for the redirect now, and 50 runs in a row were green.",
    ),
    (
        "Great, I'll look at it after lunch.",
        "All changes are in the working tree. Next: run the whole suite once and commit.",
    ),
)


def demo(*, keep: bool) -> int:
    """Run the demo. Returns 0 when title and recap arrived; raises `WatcherError` when they did not."""
    interrupt_on(signal.SIGTERM, signal.SIGHUP)  # also a terminal that is closed leaves nothing behind
    with _home(keep) as home:
        session = _Script(home)
        say(f"A throw-away home: {home}")
        say("Starting `qwen-watcher run` on it, with the offline text model …")
        with _watcher(home):
            say("")
            for prompt, answer in _TURNS:
                session.turn(prompt, answer)
                say_filled(prompt, first="  > ", rest="    ")
                say_filled(answer, first="  ", rest="  ")
                say("")
                if session.title() is None:
                    title = _wait(session.title, "the title")
                    say_filled(title, first="  title written: ", rest="    ")
                    say("")
                time.sleep(STEP_SECONDS)
            say_filled(
                f"Nobody types any more; after {AWAY_SECONDS:g} s that counts as away (5 minutes in real life) …"
            )
            recap = _wait(session.recap, "the recap")
            say_filled(recap, first="  ※ recap: ", rest="    ")
        say("")
        say("Qwen Code shows both from the session file: the title in the list of `qwen --resume`,")
        say("the recap at the end of the resumed conversation. What was appended, in its own records:")
        for line in session.ours():
            say(f"  {line}")
        if keep:
            say(f"Kept: {home}")
        say_filled(
            "Next: `qwen-watcher run` watches your own sessions; `qwen-watcher service install` keeps it running."
        )
    return 0


@contextlib.contextmanager
def _home(keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(mkdtemp(prefix="qwen-watcher-demo-"))
        return
    with TemporaryDirectory(prefix="qwen-watcher-demo-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def _watcher(home: Path) -> Iterator[None]:
    """The real service as a process of its own, with everything below `home`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("QWEN_")} | {
        "HOME": str(home),
        "QWEN_HOME": str(home / ".qwen"),
        "QWEN_WATCHER_STATE_DIR": str(home / "state"),
        "QWEN_WATCHER_CONFIG": str(home / "config.toml"),
        "QWEN_WATCHER_LOG__FORMAT": "console",
    }
    (home / "config.toml").write_text(
        '[model]\nsource = "extractive"\n'
        "[title]\nsettle_seconds = 1.0\n"
        f"[recap]\nenabled = true\naway_minutes = {AWAY_SECONDS / 60:.4f}\n"
        '[log]\nlevel = "warning"\n'
    )
    # Held, so that an interrupt finds neither a child that nobody ends nor one that has not begun to take signals.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    process = subprocess.Popen([sys.executable, "-m", "watcher", "run"], env=env)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _wait(lambda: _is_watching(home / "state") or process.poll() is not None, "the watcher")
        if process.poll() is not None:
            raise WatcherError("the watcher did not start; its messages are above")
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_watching(state: Path) -> bool:
    """Whether the first look at all files is done: what is written from now on counts as new."""
    store = Store.open_existing(state)
    if store is None:
        return False
    beat = store.heartbeat()
    store.close()
    return beat is not None


def _wait(found: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise WatcherError(f"{what} did not appear within {DEADLINE_SECONDS:g} s; `qwen-watcher doctor` may know why")


class _Script:
    """A session file that grows as one of Qwen Code's does."""

    def __init__(self, home: Path) -> None:
        self._id = str(uuid.uuid4())
        self._cwd = str(home / "project")
        chats = home / ".qwen" / PROJECTS_DIR / sanitize_cwd(self._cwd) / CHATS_DIR
        chats.mkdir(parents=True)
        self._path = chats / f"{self._id}.jsonl"
        self._tail: str | None = None
        self._written: set[str] = set()

    def turn(self, prompt: str, answer: str) -> None:
        """One prompt and its answer."""
        self._append("user", provenance="real_user", message={"role": "user", "parts": [{"text": prompt}]})
        self._append("system", provenance="system", subtype="file_history_snapshot", systemPayload={"snapshots": []})
        message = {"role": "model", "parts": [{"text": answer}]}
        self._append("assistant", provenance="assistant_output", model="demo", message=message)

    def title(self) -> str | None:
        """The title in the file."""
        titles = [r["systemPayload"]["customTitle"] for r in self._foreign() if r["subtype"] == "custom_title"]
        return str(titles[-1]) if titles else None

    def recap(self) -> str | None:
        """The recap in the file."""
        items = [r["systemPayload"]["outputHistoryItems"] for r in self._foreign() if r["subtype"] == "slash_command"]
        return str(items[-1][0]["text"]) if items else None

    def ours(self) -> list[str]:
        """The lines that the watcher appended."""
        return [json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in self._foreign()]

    def _append(self, kind: str, **fields: Any) -> None:
        record: Mapping[str, Any] = {
            "uuid": str(uuid.uuid4()),
            "parentUuid": self._tail,
            "sessionId": self._id,
            "timestamp": format_timestamp(time.time()),
            "type": kind,
            "cwd": self._cwd,
            "version": VERSION,
        } | fields
        with self._path.open("ab") as file:
            file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        self._tail = record["uuid"]
        self._written.add(record["uuid"])

    def _foreign(self) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self._path.read_bytes().split(b"\n") if line]
        return [record for record in records if record["uuid"] not in self._written]
