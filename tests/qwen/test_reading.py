"""Bytes of a session file to its state: in one go, or onward from an earlier reading that is not trusted blindly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.safety.native import record_line
from watcher.qwen.reading import PRINT_BYTES, Reading, continues, events_of, lines_of, read_state

TITLE = record_line("t1", "u1", "t", "My name", "manual")
PROMPT = record_line("u1", None, "u")
ANSWER = record_line("a1", "u1", "a")
WINDOW = 1 << 20


def read(data: bytes, known: Reading | None = None, *, size: int | None = None, window: int = WINDOW) -> Reading:
    """The reading of a file with this content."""
    return read_state(
        lambda length, offset: data[offset : offset + length],
        dev=1,
        ino=2,
        size=len(data) if size is None else size,
        window=window,
        known=known,
    )


def same(known: Reading, data: bytes, **other: int) -> bool:
    """Whether the reading still fits this content."""
    where = {"dev": 1, "ino": 2, "size": len(data)} | other
    return continues(known, lambda length, offset: data[offset : offset + length], **where)


lines = st.lists(st.sampled_from([PROMPT, ANSWER, TITLE, b"\n", b"junk\n", b'{"torn":"', b"\r\n"]), max_size=12)


@given(parts=lines, cut=st.integers(0, 3000))
def test_reading_on_is_reading_anew(parts: list[bytes], cut: int) -> None:
    """Wherever the earlier reading ended, inside a line or between two."""
    data = b"".join(parts)
    known = read(data[:cut])
    on, anew = read(data, known), read(data)
    assert (on.state, on.base, on.end, on.torn_bytes, on.print) == (
        anew.state, anew.base, anew.end, anew.torn_bytes, anew.print,
    )  # fmt: skip


def test_another_file_is_read_anew() -> None:
    """Another device or inode, a shorter file, other bytes before the offset: each alone."""
    data = PROMPT + ANSWER + TITLE
    known = read(data)
    assert len(known.print) == PRINT_BYTES == 64
    assert same(known, data)
    assert same(known, data + ANSWER)
    assert not same(known, data, dev=9)
    assert not same(known, data, ino=9)
    assert not same(known, data[: known.end - 1])
    assert not same(known, data, size=known.end - 1)
    for place in range(len(data) - PRINT_BYTES, len(data)):
        assert not same(known, data[:place] + b"?" + data[place + 1 :])
    assert read(PROMPT + TITLE, known).state.title is not None
    other = PROMPT + ANSWER + TITLE.replace(b"My name", b"My game")
    found = read(other + b" ", replace(known, print=b"x" * PRINT_BYTES)).state.title
    assert found is not None
    assert found.title == "My game"


def test_a_torn_line_is_seen_and_not_kept() -> None:
    """A whole record without its newline counts now (contract 2.4), and once, when its newline has come."""
    torn = read(PROMPT + ANSWER[:-1])
    assert (torn.state.leaf, torn.base.leaf, torn.torn_bytes) == ("a1", "u1", len(ANSWER) - 1)
    assert torn.end == len(PROMPT)
    whole = read(PROMPT + ANSWER, torn)
    assert (whole.state.leaf, whole.state.records, whole.torn_bytes) == ("a1", 2, 0)
    assert [event.uuid for event in events_of(ANSWER + TITLE[:-1], 0)] == ["a1", "t1"]
    assert [line.data for line in lines_of(lambda length, offset: (ANSWER + b"x")[offset:][:length], 0, 9)] == []


def test_a_window_begins_with_a_whole_line() -> None:
    """A line that it cuts is dropped, one that it does not cut is not; and what comes before is unknown."""
    data = PROMPT + ANSWER + TITLE
    whole = read(data, window=len(ANSWER + TITLE))
    assert (whole.state.records, whole.state.partial) == (2, True)
    cut = read(data, window=len(ANSWER + TITLE) - 1)
    assert (cut.state.records, cut.state.partial) == (1, True)
    assert not read(data).state.partial
    glued = read(b"x" * 500 + TITLE, window=len(TITLE))
    assert glued.state.title is None


def test_nothing_is_read_beyond_the_size_that_was_seen() -> None:
    """What landed since is for the next round: the decision and the look before the write speak of the same bytes."""
    found = read(PROMPT + ANSWER + TITLE, size=len(PROMPT))
    assert (found.state.leaf, found.size, found.end) == ("u1", len(PROMPT), len(PROMPT))


@pytest.mark.parametrize("window", [len(TITLE), len(ANSWER + TITLE), 1 << 20])
def test_lines_of_a_window(window: int) -> None:
    """The same lines, one by one."""
    data = PROMPT + ANSWER + TITLE
    found = [line.data + b"\n" for line in lines_of(lambda length, offset: data[offset:][:length], len(data), window)]
    assert b"".join(found) == data[-window:]
