"""How long it takes until something is there: the commands, and the first and later look at every session."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, Unit
from bench.process import Cost, environment, probed_service, run_to_end
from bench.stage import Stage

SHORT_RUNS = 12
LONG_RUNS = 5
LOOKS = 3
LIMITS = {"statusline": 5.0, "--version": 5.0, "sessions": 30.0}


def commands(stage: Stage, state: Path) -> Iterator[Figure]:
    """The commands that people wait for, with the index of a service that has run."""
    env = environment(stage.tree.home, state)
    bare = _median(run_to_end([sys.executable, "-c", "pass"], env) for _ in range(SHORT_RUNS))
    for words, limit in LIMITS.items():
        runs = LONG_RUNS if words == "sessions" else SHORT_RUNS
        took = _median(run_to_end([sys.executable, "-m", "watcher", *words.split()], env) for _ in range(runs))
        yield Figure(
            f"`{words}`, {stage.tree.files} sessions",
            took.cpu * 1e3,
            Unit.MILLISECONDS,
            bare.cpu * 1e3,
            "bare Python start",
            limit,
        )


def looks(stage: Stage) -> Iterator[Figure]:
    """The first and a later start: the look alone, processor time; the start as a whole for the record."""
    for mode in ("read", "stat"):
        _bare_scan(stage, mode)  # so that nobody is the first to ask the file system
    first: list[float] = []
    later: list[float] = []
    read: list[float] = []
    only_stat: list[float] = []
    whole: tuple[list[float], list[float]] = ([], [])
    for _ in range(LOOKS):
        state = stage.new_path("state")
        for number, times in enumerate((first, later)):
            seconds, start = _look(stage, state)
            times.append(seconds)
            whole[number].append(start)
        read.append(_bare_scan(stage, "read"))
        only_stat.append(_bare_scan(stage, "stat"))
    files = stage.tree.files
    yield Figure(
        f"first start: the look at {files} files",
        statistics.median(first) * 1e3,
        Unit.MILLISECONDS,
        statistics.median(read) * 1e3,
        "scandir + pread of 4 KiB tail and head",
        1.8,
    )
    yield Figure(
        f"later start: the look at {files} files",
        statistics.median(later) * 1e3,
        Unit.MILLISECONDS,
        statistics.median(only_stat) * 1e3,
        "scandir + stat",
        1.5,
    )
    for name, times in zip(("first", "later"), whole, strict=True):
        yield Figure(f"{name} start as a whole, until it watches", statistics.median(times) * 1e3, Unit.MILLISECONDS)


def _look(stage: Stage, state: Path) -> tuple[float, float]:
    """Start and stop a service: processor seconds of its look at everything, and the seconds until it was up."""
    out = stage.new_path("probe")
    with probed_service(stage.tree.home, state, out, {"model.source": "extractive"}) as service:
        seconds = service.start_seconds
        service.stop()
    return float(json.loads(out.read_text())["looks"]["catch_up"][0][1]), seconds


def reconcile_seconds(stage: Stage, state: Path) -> float:
    """Processor seconds that one reconcile of the whole tree takes in a running service: the median of some."""
    out = stage.new_path("probe")
    with probed_service(
        stage.tree.home,
        state,
        out,
        {"model.source": "extractive"},
        constants={"watcher.lookout.RECONCILE_SECONDS": 1.0},
    ) as service:
        before = service.cpu()
        time.sleep(6.0)
        spent = service.cpu() - before
        service.stop()
    looks = json.loads(out.read_text())["looks"]["rescan"]
    return float(spent / max(1, len(looks)))


def _bare_scan(stage: Stage, mode: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.bare_scan", mode, str(stage.tree.root)],
        env=environment(stage.tree.home, stage.folder / "unused"),
        capture_output=True,
        check=True,
    )
    return float(json.loads(done.stdout)[1])


def _median(costs: Iterator[Cost]) -> Cost:
    found = list(costs)
    return Cost(statistics.median(each.wall for each in found), statistics.median(each.cpu for each in found))
