"""The watcher with a probe in it: when each session was read, how long the looks took, where reading ended.

Set up by the variable BENCH_PROBE, a JSON object: `out` is the file that is written at the end; `stamps` asks for the
time of each reading; `reconcile_seconds` for another interval. The processes are compared by CLOCK_MONOTONIC, which is
one clock for the whole machine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import watcher.daemon
from watcher.cli.plain import run_plain
from watcher.desk import Desk
from watcher.following import Look


def main() -> None:
    """Run the watcher and write what was seen."""
    wanted: dict[str, Any] = json.loads(os.environ.pop("BENCH_PROBE"))
    found: dict[str, Any] = {"stamps": [], "looks": {}}
    if wanted.get("stamps"):
        _stamp_readings(found["stamps"])
    if "reconcile_seconds" in wanted:
        watcher.daemon.RECONCILE_SECONDS = wanted["reconcile_seconds"]  # type: ignore[misc]
    _time(found["looks"], "_catch_up")
    _time(found["looks"], "_rescan")
    daemons = _remember_daemons()
    code = run_plain(["run"])
    found["ends"] = {session.path: session.seen.size for session in daemons[0]._pipeline.sessions()}
    Path(wanted["out"]).write_text(json.dumps(found))
    sys.exit(code)


def _stamp_readings(stamps: list[tuple[int, str, int]]) -> None:
    read = Desk.read

    def stamped(self: Desk, path: str, known: Any) -> Any:
        seen = read(self, path, known)
        if isinstance(seen, Look):
            stamps.append((time.monotonic_ns(), path, seen.size))
        return seen

    Desk.read = stamped  # type: ignore[method-assign]


def _time(looks: dict[str, list[tuple[float, float]]], name: str) -> None:
    method = getattr(watcher.daemon.Daemon, name)

    def timed(self: watcher.daemon.Daemon) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        method(self)
        looks.setdefault(name, []).append((time.perf_counter() - wall, time.thread_time() - cpu))

    setattr(watcher.daemon.Daemon, name, timed)


def _remember_daemons() -> list[watcher.daemon.Daemon]:
    made: list[watcher.daemon.Daemon] = []
    build = watcher.daemon.Daemon._build

    def remembered(self: watcher.daemon.Daemon) -> None:
        made.append(self)
        build(self)

    watcher.daemon.Daemon._build = remembered  # type: ignore[method-assign]
    return made


if __name__ == "__main__":
    main()
