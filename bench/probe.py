"""The watcher with a probe in it: when each session was read, how long the looks took, where reading ended.

Set up by the variable BENCH_PROBE, a JSON object: `out` is the file that is written at the end; `stamps` asks for the
time of each reading; `gauge` names a file that holds how much waits and how many sessions are known, all the time;
`constants` maps `module.NAME` to another value, so that months pass in minutes. The processes are compared by
CLOCK_MONOTONIC, which is one clock for the whole machine.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import watcher.daemon
from watcher.cli.plain import run_plain
from watcher.desk import Desk
from watcher.following import Look
from watcher.lookout import Lookout

GAUGE_SECONDS = 0.25


def main() -> None:
    """Run the watcher and write what was seen."""
    wanted: dict[str, Any] = json.loads(os.environ.pop("BENCH_PROBE"))
    found: dict[str, Any] = {"stamps": [], "looks": {}}
    if wanted.get("stamps"):
        _stamp_readings(found["stamps"])
    for name, value in wanted.get("constants", {}).items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    _time(found["looks"], "catch_up")
    _time(found["looks"], "rescan")
    daemons = _remember_daemons()
    if "gauge" in wanted:
        threading.Thread(target=_gauge, args=(daemons, Path(wanted["gauge"])), name="gauge", daemon=True).start()
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
    method = getattr(Lookout, name)

    def timed(self: Lookout) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        method(self)
        looks.setdefault(name, []).append((time.perf_counter() - wall, time.thread_time() - cpu))

    setattr(Lookout, name, timed)


def _remember_daemons() -> list[watcher.daemon.Daemon]:
    made: list[watcher.daemon.Daemon] = []
    build = watcher.daemon.Daemon._build

    def remembered(self: watcher.daemon.Daemon) -> None:
        build(self)
        made.append(self)

    watcher.daemon.Daemon._build = remembered  # type: ignore[method-assign]
    return made


def _gauge(daemons: list[watcher.daemon.Daemon], path: Path) -> None:
    while True:
        if daemons:
            text = json.dumps({"waiting": daemons[0]._inbox.waiting, "known": len(daemons[0]._pipeline)})
            new = path.with_name(f"{path.name}.new")
            new.write_text(text)
            new.replace(path)
        time.sleep(GAUGE_SECONDS)


if __name__ == "__main__":
    main()
