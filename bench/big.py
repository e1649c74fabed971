"""What one huge session takes: a file of 1 GiB that grows by 1 MB a second, and a single line of nearly 64 MiB."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, Unit
from bench.load import Session
from bench.process import MIB, service
from bench.stage import TEXT, Stage
from bench.tree import make_uuid

FILE_BYTES = 1 << 30
GROWTH_BYTES = 1_000_000
GROWTH_SECONDS = 10
LINE_BYTES = 64 * MIB - 4096
"""The longest line that is read, less its frame."""
BLOCK_LINES = 512


def make_big_home(home: Path) -> None:
    """A home with one session of 1 GiB, its records like any other's. Its chain is one record long, again and again."""
    rng = random.Random(9)
    session_id = make_uuid(rng)
    path = home / ".qwen" / "projects" / "-home-user-big" / "chats" / f"{session_id}.jsonl"
    session = Session(rng, path, session_id, "/home/user/big")
    written = 0
    while written < FILE_BYTES:
        block = b"".join(session.line(TEXT) for _ in range(BLOCK_LINES))
        session.append(block)
        written += len(block)
    session.close()


def measure(stage: Stage, home: Path) -> Iterator[Figure]:
    """Memory above idle while the file grows and is titled, at the long line, and some time after it."""
    [path] = home.glob(".qwen/projects/*/chats/*.jsonl")
    size = path.stat().st_size
    session = Session(random.Random(10), path, path.stem, "/home/user/big")
    settings = stage.with_model | {"title.settle_seconds": 1.0}
    try:
        with service(home, stage.new_path("state"), settings) as running:
            time.sleep(1.0)
            idle = running.rss()
            running.reset_peak()
            for _ in range(GROWTH_SECONDS):
                begun = time.monotonic()
                grown = 0
                while grown < GROWTH_BYTES:
                    line = session.line(TEXT)
                    session.append(line)
                    grown += len(line)
                time.sleep(max(0.0, 1.0 - (time.monotonic() - begun)))
            session.turn("the last words")
            running.wait_line('"title_written"', 60.0)
            yield Figure(
                "1 GiB session that grows by 1 MB/s and is titled: peak above idle",
                (running.peak() - idle) / MIB,
                Unit.MIB,
                most=24.0,
            )
            after = running.rss()
            yield Figure("the same, kept a moment later", (after - idle) / MIB, Unit.MIB)
            running.reset_peak()
            session.append(session.line("x" * LINE_BYTES, "tool_result"))
            cpu = -1.0
            while running.cpu() - cpu > 0.002:
                cpu = running.cpu()
                time.sleep(2.0)
            yield Figure(
                "a single line of 64 MiB: peak above idle", (running.peak() - idle) / MIB, Unit.MIB, most=200.0
            )
            yield Figure("the same, kept afterwards", (running.rss() - idle) / MIB, Unit.MIB, most=24.0)
    finally:
        session.close()
        with path.open("rb+") as file:
            file.truncate(size)
