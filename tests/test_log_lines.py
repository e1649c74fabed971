"""Log lines never wait for their reader: real pipes that are full, slow or closed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tests.support.terminal import DEADLINE_SECONDS
from watcher.log_lines import MAX_WAITING_BYTES, LineWriter

FILLING = b"#" * 511 + b"\n"


@contextmanager
def pipe() -> Iterator[tuple[int, TextIO]]:
    """A pipe: the reader's descriptor, the writer's stream."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield reader, stream


def fill(descriptor: int) -> None:
    """Leave no room in the pipe."""
    os.set_blocking(descriptor, False)
    try:
        while True:
            os.write(descriptor, FILLING)
    except BlockingIOError:
        os.set_blocking(descriptor, True)


def read_to_end(reader: int) -> list[str]:
    """All lines but those of `fill`."""
    with os.fdopen(reader, encoding="utf-8") as stream:
        return [line.rstrip("\n") for line in stream if not line.startswith("#")]


def test_a_line_is_written_at_once_while_the_reader_keeps_up() -> None:
    """No thread, nothing held back, whatever its length is below what a pipe takes whole."""
    with pipe() as (reader, stream):
        before = threading.active_count()
        lines = LineWriter(stream)
        lines.write("one")
        lines.write("zwei ä")
        assert os.read(reader, 100).decode() == "one\nzwei ä\n"
        assert threading.active_count() == before
        os.close(reader)


def test_nobody_waits_for_a_reader_that_does_not_read_and_no_line_is_lost_when_it_does() -> None:
    """All lines in order, long ones whole, once somebody reads; afterwards no thread is left."""
    with pipe() as (reader, stream):
        fill(stream.fileno())
        lines = LineWriter(stream)
        wanted = [f"{number} {'x' * (number * 1000 % 20_000)}" for number in range(20)]
        for line in wanted:
            lines.write(line)
        assert not lines.drain(0.0)
        found: list[str] = []
        reading = threading.Thread(target=lambda: found.extend(read_to_end(reader)))
        reading.start()
        assert lines.drain(DEADLINE_SECONDS)
        lines.write("again")
        assert lines.drain(DEADLINE_SECONDS)
        stream.close()
        reading.join()
    assert found == [*wanted, "again"]


def test_what_is_dropped_is_told() -> None:
    """A reader that is away for very long finds the oldest lines, and how many are missing."""
    told: list[int] = []
    with pipe() as (reader, stream):
        fill(stream.fileno())
        lines = LineWriter(stream, told.append)
        line = "y" * 1023
        count = MAX_WAITING_BYTES // 1024 + 50
        for _ in range(count):
            lines.write(line)
        found: list[str] = []
        reading = threading.Thread(target=lambda: found.extend(read_to_end(reader)))
        reading.start()
        assert lines.drain(DEADLINE_SECONDS)
        stream.close()
        reading.join()
    assert len(found) + sum(told) == count
    assert 48 <= sum(told) <= 50


def test_a_reader_that_went_away_is_no_fault() -> None:
    """A broken pipe takes nothing and raises nothing, also while lines wait."""
    with pipe() as (reader, stream):
        fill(stream.fileno())
        lines = LineWriter(stream)
        lines.write("waits")
        os.close(reader)
        assert lines.drain(DEADLINE_SECONDS)
        lines.write("lost")
    lines.write("closed")
