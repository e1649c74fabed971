"""How soon and at what cost an appended record is part of a session's state, beside a bare watchdog handler."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from bench.figures import Figure, Unit
from bench.load import append_paced, delays, new_sessions, percentile
from bench.process import MIB, Running, environment, probed_service
from bench.stage import TEXT, Stage

WATCHED = 20
BACKGROUND = 60
APPENDS_A_SECOND = 400.0
"""One of four goes to a watched session, so 300 a second are in the background."""
APPENDS = 4000
TURNS = 4
BUSY_SESSIONS = 200
RECORDS_A_SECOND = 10_000.0
RECORDS = 40_000
SETTINGS: dict[str, object] = {"model.source": "extractive"}


def latency(stage: Stage) -> Iterator[Figure]:
    """The time from an append to the reading that reached it.

    Not side by side: on two cores the one that the kernel wakes first would always win. In short turns instead, so that
    what else the machine does hits both.
    """
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(TURNS):
        ours += _delays(stage, lambda out: _ours(stage, out, stamps=True))
        bare += _delays(stage, stage.bare_handler)
    for name, share, limit in (("p50", 0.5, 1.5), ("p99", 0.99, 2.0)):
        yield Figure(
            f"append to folded state, {name}",
            percentile(ours, share) * 1e3,
            Unit.MILLISECONDS,
            percentile(bare, share) * 1e3,
            "bare watchdog handler",
            limit,
        )


def throughput(stage: Stage) -> Iterator[Figure]:
    """Processor time a record while 200 sessions grow by 50 records a second each; peers beside it."""
    ours = _cost_a_record(stage, lambda out: _ours(stage, out))
    bare = _cost_a_record(stage, stage.bare_handler)
    yield Figure(
        f"CPU a record, {BUSY_SESSIONS} sessions × 50 records/s",
        ours.cpu * 1e6,
        Unit.MICROSECONDS,
        bare.cpu * 1e6,
        "bare watchdog handler",
        1.3,
    )
    yield Figure("records lost there", ours.lost, Unit.COUNT, most=0.0)
    yield Figure("records a second that were really written there", ours.pace, Unit.PER_SECOND)


def peers(stage: Stage) -> Iterator[Figure]:
    """Other programs that follow files: what they take under the same load, and what they weigh."""
    yield from _peer(stage, "bare watchdog handler", stage.bare_handler)
    if shutil.which("tail"):
        yield from _peer(stage, "`tail -F` of the 200 files", lambda _: _tail(stage))
    if shutil.which("inotifywait"):
        yield from _peer(stage, "`inotifywait -m -r`", lambda _: _inotifywait(stage))


def missing_peers() -> list[str]:
    """Peers that this machine does not have."""
    return [name for name in ("tail", "inotifywait") if not shutil.which(name)]


class _Costs:
    def __init__(self, cpu: float, lost: int, pace: float, rss: int) -> None:
        self.cpu, self.lost, self.pace, self.rss = cpu, lost, pace, rss


def _ours(stage: Stage, out: Path, **probe: object) -> Running:
    return probed_service(stage.tree.home, stage.new_path("state"), out, SETTINGS, **probe)


def _delays(stage: Stage, start: Callable[[Path], Running]) -> list[float]:
    out = stage.new_path("stamps")
    with new_sessions(stage.tree, WATCHED + BACKGROUND, seed=1) as sessions:
        for session in sessions:
            session.append(session.line(TEXT))
        with start(out) as running:
            time.sleep(0.5)
            count = APPENDS // TURNS
            appended, _ = append_paced(sessions, per_second=APPENDS_A_SECOND, count=count, text=TEXT, watched=WATCHED)
            _until_quiet(running)
            running.stop()
    return delays(appended, json.loads(out.read_text())["stamps"])


def _cost_a_record(stage: Stage, start: Callable[[Path], Running]) -> _Costs:
    out = stage.new_path("ends")
    with new_sessions(stage.tree, BUSY_SESSIONS, seed=2) as sessions:
        for session in sessions:
            session.append(session.line(TEXT))
        with start(out) as running:
            time.sleep(0.5)
            before = running.cpu()
            _, pace = append_paced(sessions, per_second=RECORDS_A_SECOND, count=RECORDS, text=TEXT, watched=0)
            _until_quiet(running)
            cpu, rss = running.cpu() - before, running.rss()
            with suppress(subprocess.TimeoutExpired):
                running.stop()
        ends = json.loads(out.read_text())["ends"] if out.exists() else None
        lost = sum(session.size != ends.get(str(session.path)) for session in sessions) if ends is not None else 0
    return _Costs(cpu / RECORDS, lost, pace, rss)


def _peer(stage: Stage, name: str, start: Callable[[Path], Running]) -> Iterator[Figure]:
    costs = _cost_a_record(stage, start)
    yield Figure(f"peer: {name}, CPU a record", costs.cpu * 1e6, Unit.MICROSECONDS)
    yield Figure(f"peer: {name}, RSS", costs.rss / MIB, Unit.MIB)


def _tail(stage: Stage) -> Running:
    hot = sorted(stage.tree.root.glob("*/chats/*.jsonl"), key=lambda path: path.stat().st_mtime)[-BUSY_SESSIONS:]
    env = environment(stage.tree.home, stage.folder / "unused")
    return Running(["tail", "-q", "-n", "0", "-F", *map(str, hot)], env)


def _inotifywait(stage: Stage) -> Running:
    env = environment(stage.tree.home, stage.folder / "unused")
    return Running(["inotifywait", "-m", "-r", "-e", "modify,create", str(stage.tree.root)], env, ready="established")


def _until_quiet(running: Running) -> None:
    last = running.cpu()
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = running.cpu()
        if now - last < 0.002:
            return
        last = now
