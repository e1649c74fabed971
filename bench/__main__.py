"""`python -m bench`: measure every row some times, print the table, write it to `bench/results.md`."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench import big, following, idle, starts
from bench.figures import Figure, rows_of, table
from bench.process import service
from bench.stage import Stage, stage
from bench.tree import Tree, make_tree

RESULTS = Path(__file__).with_name("results.md")
NOTES = Path(__file__).with_name("notes.md")


def main() -> int:
    """Exit code 0 when every goal was met, 1 when not."""
    options = _options()
    if sys.platform != "linux":
        raise SystemExit("only on Linux: processes are measured through /proc")
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="qwen-watcher-bench-"))
    try:
        _say("generating the sessions …")
        tree = make_tree(folder / "home", files=options.files, projects=options.projects)
        with stage(tree, folder) as on:
            figures = list(_figures(on, options.rounds, set(options.only)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = rows_of(figures)
    text = _header(tree, options.rounds, time.monotonic() - begun) + table(rows) + _missing()
    print(text)
    if not options.only:
        notes = NOTES.read_text() if NOTES.exists() else ""
        RESULTS.write_text(text + ("\n" + notes if notes else ""))
    return int(any(row.met is False for row in rows))


def _figures(on: Stage, rounds: int, only: set[str]) -> Iterator[Figure]:
    big_home = on.folder / "big-home"
    parts: dict[str, Callable[[], Iterator[Figure]]] = {
        "looks": lambda: starts.looks(on),
        "commands": lambda: starts.commands(on, _indexed(on)),
        "idle": lambda: idle.measure(on),
        "latency": lambda: following.latency(on),
        "throughput": lambda: following.throughput(on),
        "big": lambda: big.measure(on, big_home),
        "peers": lambda: following.peers(on),
    }
    unknown = only - set(parts)
    if unknown:
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}")
    for number in range(rounds):
        for name, measure in parts.items():
            if only and name not in only:
                continue
            if name == "peers" and number:
                continue
            if name == "big" and not big_home.exists():
                big.make_big_home(big_home)
            _say(f"round {number + 1} of {rounds}: {name} …")
            for figure in measure():
                _say(f"    {figure.row}: {figure.ours:.3f} {figure.unit.value}, judged {figure.judged:.3f}")
                yield figure


def _indexed(on: Stage) -> Path:
    """A state directory with the index of a service that has run."""
    state = on.new_path("state")
    with service(on.tree.home, state, {"model.source": "extractive"}) as running:
        running.stop()
    return state


def _header(tree: Tree, rounds: int, seconds: float) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d")
    return (
        f"# Benchmark results\n\n"
        f"Made by `make bench` on {now} in {seconds / 60:.0f} min: {tree.files} sessions, {tree.projects} projects, "
        f"{tree.bytes / 1e9:.2f} GB; {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}. "
        f"Every figure was measured {rounds} times with its reference beside it; the columns show medians, `worst` the "
        f"worst of the rounds, which is what must meet the goal. Where there is a reference, `worst` and `goal` are "
        f"ratios to it. The endurance run is in [soak.md](soak.md).\n\n"
    )


def _missing() -> str:
    return "".join(f"\nPeer `{name}`: not installed here.\n" for name in following.missing_peers())


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("only", nargs="*", help="parts to measure; without any all of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--projects", type=int, default=200)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
