"""The tailer on a real file beside a model of it, through random histories.

Whatever happens to the file, what a consumer holds (everything delivered since the last reset) is at every poll exactly
the whole lines of the file: none lost, none twice, none torn.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from hashlib import sha512
from itertools import count
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from watcher.edge.tailer import Change, Tail
from watcher.qwen.jsonl import LineSplitter, RawLine

NAME = "0b8f4c1e-7a52-4f0e-9d53-5c1f0f7a9e01.jsonl"


class TailerHistory(RuleBasedStateMachine):
    """`content` is the file at the path as it should be, None when there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.path = self.directory / NAME
        self.archived = self.directory / "archive" / NAME
        self.archived.parent.mkdir()
        self.content: bytes | None = None
        self.numbers = count()
        self.delivered: list[RawLine] = []
        self.tail: Tail[RawLine, RawLine]

    @initialize(chunk=st.sampled_from([1, 5, 64, 1 << 20]))
    def start(self, chunk: int) -> None:
        self.chunk = chunk
        self.tail = Tail(str(self.path), LineSplitter, lambda line: (line,), chunk_bytes=chunk)

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def line(self, length: int) -> bytes:
        """A line that never was before, nor any longer part of it, so that no two histories look alike."""
        number = next(self.numbers)
        return b"%d:" % number + sha512(b"%d" % number).hexdigest().encode()[:length] + b"\n"

    def write(self, data: bytes, mode: str = "ab") -> None:
        with self.path.open(mode) as file:
            file.write(data)

    @rule(lengths=st.lists(st.integers(0, 128), min_size=1, max_size=4))
    def append_lines(self, lengths: list[int]) -> None:
        data = b"".join(map(self.line, lengths))
        self.write(data)
        self.content = (self.content or b"") + data

    @rule(length=st.integers(0, 128))
    def append_part(self, length: int) -> None:
        data = self.line(length)[:-1]
        self.write(data)
        self.content = (self.content or b"") + data

    @precondition(lambda self: self.content is not None)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        assert self.content is not None
        self.content = self.content[: int(len(self.content) * share)]
        os.truncate(self.path, len(self.content))

    @precondition(lambda self: self.content is not None)
    @rule(lengths=st.lists(st.integers(0, 128), max_size=5), whole=st.booleans())
    def rewrite(self, lengths: list[int], whole: bool) -> None:
        data = b"".join(map(self.line, lengths))
        self.content = data if whole else data[:-1]
        self.write(self.content, "wb")
        self.tick()

    @precondition(lambda self: self.content is not None)
    @rule(lengths=st.lists(st.integers(0, 128), max_size=5))
    def replace(self, lengths: list[int]) -> None:
        self.content = b"".join(map(self.line, lengths))
        other = self.directory / "other"
        other.write_bytes(self.content)
        other.replace(self.path)
        self.tick()

    @precondition(lambda self: self.content is not None)
    @rule()
    def delete(self) -> None:
        self.path.unlink()
        self.content = None

    @precondition(lambda self: self.content is not None)
    @rule(looked=st.booleans())
    def archive_and_back(self, looked: bool) -> None:
        if looked:
            self.look()
        self.path.rename(self.archived)
        if looked:
            assert self.tail.poll(0.0).change is Change.ARCHIVED
        self.archived.rename(self.path)

    @rule()
    def restart(self) -> None:
        """A new process with the saved checkpoint; what it has of the history is what was saved with it."""
        self.look()
        checkpoint = self.tail.checkpoint
        self.tail = Tail(
            str(self.path), LineSplitter, lambda line: (line,), checkpoint=checkpoint, chunk_bytes=self.chunk
        )
        if checkpoint is None:
            self.delivered = []

    @rule()
    def look(self) -> None:
        while True:
            result = self.tail.poll(0.0)
            if result.reset:
                self.delivered = []
            self.delivered += result.items
            if not result.more:
                break
        if self.content is None:
            assert result.change is Change.GONE
            return
        end = self.content.rfind(b"\n") + 1
        lines = self.content[:end].split(b"\n")[:-1]
        assert [line.data for line in self.delivered] == lines
        assert all(self.content[line.offset : line.end] == line.data + b"\n" for line in self.delivered)
        assert (self.tail.offset, self.tail.torn_bytes) == (end, len(self.content) - end)

    @invariant()
    def reads_never_change_the_file(self) -> None:
        assert self.content == (self.path.read_bytes() if self.path.exists() else None)

    def tick(self) -> None:
        """A new modification time: two writes within one tick of the clock could not be told apart by it."""
        os.utime(self.path, ns=(0, 10**18 + next(self.numbers)))


TestTailerHistory = TailerHistory.TestCase
TestTailerHistory.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
