"""Starts the user's own programs after something was written (design 5): argv, JSON on stdin, no shell, a time limit.

One after another, so that they see things in the order in which they happened. A thread exists only while one runs.
What a hook prints is discarded; that it failed is told in one sentence.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import subprocess

LIMIT_SECONDS: Final = 10.0
"""After so long a hook is killed, with everything that it started and did not put into a group of its own."""
MAX_WAITING: Final = 16
"""So many wait for their turn; more are dropped."""
_LOOK_SECONDS: Final = 0.1

Failed = Callable[[str, str], None]
"""`(name, detail)` of a hook that could not be run to a good end. Called in any thread."""


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    argv: tuple[str, ...]
    payload: bytes


class Hooks:
    """Runs hooks from `start` to their end or `close`. Safe to share between threads."""

    def __init__(self, failed: Failed, environ: Mapping[str, str], *, limit_seconds: float = LIMIT_SECONDS) -> None:
        """`environ` is the whole environment of a hook."""
        self._failed = failed
        self._environ = dict(environ)
        self._limit_seconds = limit_seconds
        self._lock = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def start(self, name: str, argv: Sequence[str], payload: bytes) -> None:
        """Have `argv` run with `payload` on its stdin. Returns at once; `name` is for the log."""
        with self._lock:
            if self._closing.is_set():
                return
            full = len(self._waiting) >= MAX_WAITING
            if not full:
                self._waiting.append(_Job(name, tuple(argv), payload))
            if not full and self._thread is None:
                self._thread = threading.Thread(target=self._run_all, name="hooks", daemon=True)
                self._thread.start()
        if full:
            self._failed(name, f"dropped: {MAX_WAITING} hooks wait already")

    def close(self) -> None:
        """Kill what runs, forget what waits. Returns when the thread has ended."""
        self._closing.set()
        with self._lock:
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join()

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        with self._lock:
            return self._thread is None

    def _run_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                job = self._waiting.popleft()
            problem = self._run(job)
            if problem and not self._closing.is_set():
                self._failed(job.name, problem)

    def _run(self, job: _Job) -> str:
        """Why the hook came to no good end, "" when it did."""
        import subprocess  # noqa: PLC0415 - most users have no hooks

        try:
            process = subprocess.Popen(
                job.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environ,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"cannot be started: {getattr(error, 'strerror', None) or error}"
        with process:
            return self._watch(process, job.payload)

    def _watch(self, process: subprocess.Popen[bytes], payload: bytes) -> str:
        from subprocess import TimeoutExpired  # noqa: PLC0415

        deadline = time.monotonic() + self._limit_seconds
        rest: bytes | None = payload
        while True:
            try:
                process.communicate(rest, timeout=_LOOK_SECONDS)
            except TimeoutExpired:
                rest = None  # what was begun goes on
                late = time.monotonic() >= deadline
                if not late and not self._closing.is_set():
                    continue
                # It has not been waited for, so the number of its group cannot mean another one yet.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"killed: it took more than {self._limit_seconds:g} s"
            return _end(process.returncode)


def _end(code: int) -> str:
    if code >= 0:
        return f"exit code {code}" if code else ""
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
