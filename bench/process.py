"""Processes under measurement: started with an environment of their own, watched through /proc, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

REPOSITORY = Path(__file__).resolve().parents[1]
MIB = 1 << 20


def environment(home: Path, state: Path, settings: Mapping[str, object] | None = None) -> dict[str, str]:
    """The whole environment of a measured process; `settings` are dotted configuration keys."""
    env = {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(REPOSITORY),
        "QWEN_WATCHER_STATE_DIR": str(state),
        "XDG_CONFIG_HOME": str(home / ".config"),
    }
    for key, value in (settings or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        env["QWEN_WATCHER_" + key.upper().replace(".", "__")] = text
    return env


@dataclass(frozen=True, slots=True)
class Cost:
    """What a finished process took. Seconds."""

    wall: float
    cpu: float


def run_to_end(args: Sequence[str], env: Mapping[str, str]) -> Cost:
    """Run a program that must succeed, its output thrown away."""
    begun = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        list(args),
        env=dict(env),
        cwd=env["HOME"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.perf_counter() - begun, cpu)


class Running:
    """A process that stays until it is told to end. Use as a context manager; its stderr is read all the time."""

    def __init__(self, args: Sequence[str], env: Mapping[str, str], *, ready: str = "") -> None:
        """`ready` is text of the line on stderr that says that it is up; without any it is up at once."""
        self._lines: list[str] = []
        self._ended = False
        self._arrived = threading.Condition()
        self._begun = time.perf_counter()
        self._process = subprocess.Popen(
            list(args),
            env=dict(env),
            cwd=env["HOME"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="bench-stderr")
        self._reader.start()
        self._ready = ready
        self.start_seconds = 0.0

    def __enter__(self) -> Self:
        if self._ready:
            try:
                self.wait_line(self._ready, 120.0)
            except BaseException:
                self.end()
                raise
        self.start_seconds = time.perf_counter() - self._begun
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def count(self, text: str) -> int:
        """How many lines of its stderr hold this text so far."""
        with self._arrived:
            return sum(text in line for line in self._lines)

    def wait_line(self, text: str, seconds: float, count: int = 1) -> None:
        """Wait for `count` lines of stderr that hold this text. Raises `TimeoutError` with the last lines."""
        with self._arrived:
            came = self._arrived.wait_for(
                lambda: sum(text in line for line in self._lines) >= count or self._ended, seconds
            )
            if not came or sum(text in line for line in self._lines) < count:
                raise TimeoutError(f"no {count} lines with {text!r}:\n" + "".join(self._lines[-20:]))

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60.0)

    def hang_up(self) -> None:
        """SIGHUP: read the configuration again."""
        self._process.send_signal(signal.SIGHUP)

    def end(self) -> None:
        """End it in any case."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._arrived:
                self._lines.append(line)
                self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    # -- what /proc says -----------------------------------------------------------------------------------------------

    def rss(self) -> int:
        """Resident memory in bytes."""
        return self._status("VmRSS") * 1024

    def peak(self) -> int:
        """The highest resident memory since `reset_peak`, in bytes."""
        return self._status("VmHWM") * 1024

    def reset_peak(self) -> None:
        """Forget the highest resident memory (proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def cpu(self) -> float:
        """Processor time of all its living threads in seconds, to the nanosecond."""
        return sum(int(text.split()[0]) for text in self._tasks("schedstat")) / 1e9

    def wakeups(self) -> int:
        """How often its living threads have gone to sleep, and so been woken."""
        total = 0
        for text in self._tasks("status"):
            for line in text.splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
        return total

    def descriptors(self) -> int:
        """How many files it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        """How many threads it has."""
        return self._status("Threads")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise ValueError(name)

    def _tasks(self, name: str) -> Iterator[str]:
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield Path(f"/proc/{self.pid}/task/{task}/{name}").read_text()


def service(home: Path, state: Path, settings: Mapping[str, object] | None = None) -> Running:
    """The watcher as its users start it."""
    env = environment(home, state, {"log.format": "json"} | dict(settings or {}))
    return Running([sys.executable, "-m", "watcher", "run"], env, ready='"started"')


def probed_service(home: Path, state: Path, out: Path, settings: Mapping[str, object], **probe: object) -> Running:
    """The watcher with a probe in it (`bench.probe`), which writes to `out` as it ends."""
    env = environment(home, state, {"log.format": "json"} | dict(settings))
    env["BENCH_PROBE"] = json.dumps({"out": str(out)} | probe)
    return Running([sys.executable, "-m", "bench.probe"], env, ready='"started"')


def script(name: str, home: Path, *args: str) -> Running:
    """A reference program of this package, up once it says `ready`."""
    env = environment(home, home / "unused-state")
    return Running([sys.executable, "-m", f"bench.{name}", *args], env, ready="ready")


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> None:
    """Return as soon as the condition holds. Raises `TimeoutError`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)
