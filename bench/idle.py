"""What the service costs while nothing happens, after an hour in which much did."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure, Unit
from bench.load import Session, new_sessions
from bench.process import MIB, Running, service, wait_for
from bench.stage import TEXT, Stage
from bench.starts import reconcile_seconds
from bench.tree import Tree

SESSIONS = 40
TURNS = 25
TITLED = 12
QUIET_SECONDS = 20.0
READ_CHUNK = 1 << 20


def measure(stage: Stage) -> Iterator[Figure]:
    """Memory, processor time and wake-ups of an idle service."""
    state = stage.new_path("state")
    settings = stage.with_model | {"title.settle_seconds": 0.5, "title.sessions": "all"}
    with service(stage.tree.home, state, settings) as running, new_sessions(stage.tree, SESSIONS, seed=3) as sessions:
        _an_hour_of_events(running, sessions)
        with stage.five_libraries() as reference:
            yield Figure(
                f"RSS of idle `run`, {stage.tree.files} files, after an hour's worth of events",
                running.rss() / MIB,
                Unit.MIB,
                reference.rss() / MIB,
                "Python with the five libraries imported",
                1.0,
            )
        wakes, cpu = running.wakeups(), running.cpu()
        time.sleep(QUIET_SECONDS)
        quiet_wakes, quiet_cpu = running.wakeups() - wakes, running.cpu() - cpu
        with _another_reader(stage.tree) as opened:
            wakes = running.wakeups()
            time.sleep(QUIET_SECONDS / 2)
            read_wakes, files_opened = running.wakeups() - wakes, opened[0]
    one_reconcile = reconcile_seconds(stage, state)
    per_minute = quiet_cpu / QUIET_SECONDS * 60.0 + one_reconcile / 5.0
    yield Figure("idle CPU a minute, one reconcile per 5 min included", per_minute * 1e3, Unit.MILLISECONDS, most=20.0)
    yield Figure("one reconcile, CPU", one_reconcile * 1e3, Unit.MILLISECONDS)
    yield Figure("idle wake-ups a second", quiet_wakes / QUIET_SECONDS, Unit.PER_SECOND, most=0.2)
    yield Figure(
        "the same while another program reads the whole tree",
        read_wakes / QUIET_SECONDS * 2,
        Unit.PER_SECOND,
        most=0.2,
    )
    yield Figure("files a second that it opened", files_opened / QUIET_SECONDS * 2, Unit.PER_SECOND)


def _an_hour_of_events(running: Running, sessions: list[Session]) -> None:
    """Forty sessions with a thousand turns among them, twelve titles over HTTP, some sessions deleted and renamed."""
    rng = random.Random(5)
    for _ in range(TURNS):
        for session in sessions:
            session.turn(TEXT[: rng.randrange(100, len(TEXT))])
            time.sleep(0.001)
    for session in sessions[TITLED:]:
        # A title of the user's own, so that no model call is made.
        session.append(session.line("A name of the user's own", "title"))
    running.wait_line('"title_written"', 60.0, count=TITLED)
    for session in sessions[-5:]:
        session.path.unlink()
    moved = sessions[-6].path
    moved.rename(moved.with_name(f"{moved.stem}.jsonl.bak"))
    moved.with_name(f"{moved.stem}.jsonl.bak").rename(moved)
    before = [0.0]

    def is_quiet() -> bool:
        now, before[0] = running.cpu(), running.cpu()
        time.sleep(1.0)
        return running.cpu() - now < 0.001

    wait_for(is_quiet, 60.0, "the service to become quiet")


@contextmanager
def _another_reader(tree: Tree) -> Iterator[list[int]]:
    """Another program that opens and reads session after session; gives how many it opened."""
    opened = [0]
    stop = threading.Event()
    paths = tree.sessions()

    def read() -> None:
        for path in _for_ever(paths):
            if stop.is_set():
                return
            with path.open("rb") as file:
                while file.read(READ_CHUNK):
                    pass
            opened[0] += 1

    thread = threading.Thread(target=read, name="bench-reader")
    thread.start()
    try:
        yield opened
    finally:
        stop.set()
        thread.join()


def _for_ever(paths: list[Path]) -> Iterator[Path]:
    while True:
        yield from paths
