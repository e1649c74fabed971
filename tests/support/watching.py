"""The real `qwen-watcher run` as a process, for tests: its environment is built from scratch, its log is read back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.terminal import DEADLINE_SECONDS, ProcessTree, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_SECONDS = 2.0
"""A watcher ends within this time after SIGTERM (design 4)."""


def watcher_env(
    home: Path, state: Path, settings: Mapping[str, object] | None = None, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a watcher: `settings` are dotted configuration keys, such as `title.settle_seconds`."""
    env = {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONWARNINGS": "error",
        "QWEN_WATCHER_STATE_DIR": str(state),
        "XDG_CONFIG_HOME": str(home / ".config"),
    }
    for key, value in (settings or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        env["QWEN_WATCHER_" + key.upper().replace(".", "__")] = text
    return env | dict(extra or {})


def command(env: Mapping[str, str], *args: str, timeout: float = DEADLINE_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run one `qwen-watcher` command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "watcher", *args],
        env=dict(env),
        cwd=env["HOME"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Watching:
    """A running watcher. Use as a context manager: leaving it stops it and sees to it that it stopped well."""

    def __init__(self, env: Mapping[str, str], *args: str) -> None:
        self.env = {**env, "QWEN_WATCHER_LOG__LEVEL": "debug", "QWEN_WATCHER_LOG__FORMAT": "json"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "watcher", "run", *args],
            env=self.env,
            cwd=self.env["HOME"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._tree = ProcessTree(self._process)
        self._lines: list[dict[str, Any]] = []
        self._raw: list[str] = []
        self._reader = threading.Thread(target=self._read, name="watcher-log")
        self._reader.start()

    def __enter__(self) -> Self:
        try:
            self.wait_event("started")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._process.poll() is None:
                self.stop()
        finally:
            self._end()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def log(self, event: str | None = None, **fields: object) -> list[dict[str, Any]]:
        """The log lines so far, those of one event and with these fields if given."""
        wanted = fields if event is None else {"event": event, **fields}
        return [line for line in list(self._lines) if all(line.get(key) == value for key, value in wanted.items())]

    def wait_event(self, event: str, timeout: float = DEADLINE_SECONDS, **fields: object) -> dict[str, Any]:
        """The first log line of this event, waited for."""

        def found() -> list[dict[str, Any]]:
            lines = self.log(event, **fields)
            if not lines and self._process.poll() is not None:
                raise AssertionError(f"the watcher ended ({self._process.returncode})\n{self.dump()}")
            return lines

        return wait_until(found, f"log event {event} {fields}", timeout, self.dump)[0]

    def dump(self) -> str:
        """The whole log as text, for messages."""
        return "\n".join(self._raw[-200:])

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it; it must end by itself, in time and with exit code 0."""
        self._process.send_signal(number)
        begun = time.monotonic()
        code = self._process.wait(DEADLINE_SECONDS)
        took = time.monotonic() - begun
        self._end()
        assert code == 0, f"exit code {code}\n{self.dump()}"
        assert took < STOP_SECONDS * 5, f"it took {took:.1f} s to stop"
        assert not [line for line in self._raw if "Traceback" in line], self.dump()

    def wait_end(self) -> int:
        """Its exit code, once it has ended by itself."""
        code = self._process.wait(DEADLINE_SECONDS)
        self._end()
        return code

    def kill9(self) -> None:
        """End it without warning."""
        self._tree.kill()
        self._end()

    def _end(self) -> None:
        self._tree.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            text = raw.decode("utf-8", "replace").rstrip("\n")
            self._raw.append(text)
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict):
                self._lines.append(line)


def open_descriptors(pid: int) -> int:
    """How many file descriptors the process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
