"""Bytes into lines, and lines into JSON objects."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.qwen import jsonl
from watcher.qwen.jsonl import LineSplitter, RawLine, object_ranges, parse_json, parse_objects, split_lines

pieces = st.lists(st.sampled_from([b"a", b"{}", b"\n", b"\r\n", "\u2028".encode(), "\u0085".encode(), b"\0", b"x" * 9]))


@settings(max_examples=200, deadline=None)
@given(pieces, st.lists(st.integers(0, 40)), st.integers(0, 1 << 40), st.sampled_from([3, 9, 1 << 20]))
def test_any_chunks_give_the_lines_of_the_whole(
    content: list[bytes], cuts: list[int], offset: int, max_line_bytes: int
) -> None:
    """However the bytes come, the lines, their ranges and what is held back are the same."""
    data = b"".join(content)
    whole = LineSplitter(offset, max_line_bytes=max_line_bytes)
    lines = whole.feed(data)
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    parts = LineSplitter(offset, max_line_bytes=max_line_bytes)
    fed = [line for start, end in pairwise(bounds) for line in parts.feed(data[start:end])]
    assert fed == lines
    assert (parts.pending, parts.pending_length, parts.pending_offset) == (
        whole.pending,
        whole.pending_length,
        whole.pending_offset,
    )


@settings(deadline=None)
@given(pieces, st.integers(0, 1000))
def test_lines_cover_the_bytes_in_order(content: list[bytes], offset: int) -> None:
    """Ranges follow each other without a hole, and each holds the bytes of its line."""
    data = b"".join(content)
    lines = list(split_lines(data, offset))
    position = offset
    for line in lines:
        assert line.offset == position
        assert data[line.offset - offset :][: len(line.data)] == line.data
        position = line.end
    assert position == offset + len(data)
    assert b"".join(line.data + b"\n" for line in lines).rstrip(b"\n") == data.rstrip(b"\n")


def test_only_a_newline_ends_a_line() -> None:
    """U+2028, U+0085, form feed and a bare carriage return are content."""
    data = "a\u2028b\u0085c\x0cd\re\n".encode()
    assert [line.data for line in split_lines(data)] == [data[:-1]]


def test_a_partial_line_waits_for_its_newline() -> None:
    """What follows the last newline is held back, with its place and length."""
    splitter = LineSplitter(100)
    assert splitter.feed(b"one\ntw") == [RawLine(100, 104, b"one")]
    assert (splitter.pending, splitter.pending_offset, splitter.pending_length) == (b"tw", 104, 2)
    assert splitter.feed(b"o") == []
    assert splitter.feed(b"\n") == [RawLine(104, 108, b"two")]
    assert (splitter.pending, splitter.pending_offset) == (b"", 108)


def test_a_reader_of_the_whole_file_sees_an_unfinished_last_line() -> None:
    """Its range ends at the end of the file."""
    assert list(split_lines(b"a\nbc", 5)) == [RawLine(5, 7, b"a"), RawLine(7, 9, b"bc")]
    assert list(split_lines(b"")) == []


def test_a_line_over_the_limit_is_skipped_and_not_held() -> None:
    """It leaves a marker with its range, and the lines around it are whole (report D7)."""
    splitter = LineSplitter(max_line_bytes=10)
    assert splitter.feed(b"ok\n" + b"x" * 8) == [RawLine(0, 3, b"ok")]
    assert splitter.feed(b"y" * 8) == []
    assert (splitter.pending, splitter.pending_length) == (b"", 16)
    assert splitter.feed(b"z\nlater\n") == [RawLine(3, 21, b"", oversized=True), RawLine(21, 27, b"later")]
    assert splitter.feed(b"0123456789\n") == [RawLine(27, 38, b"0123456789")]


def cpu_seconds(chunks: int) -> float:
    """Processor time to take one line of `chunks` pieces of 64 bytes."""
    splitter = LineSplitter()
    started = time.process_time()
    for _ in range(chunks):
        assert splitter.feed(b"0123456789abcdef" * 4) == []
    (line,) = splitter.feed(b"\n")
    elapsed = time.process_time() - started
    assert len(line.data) == 64 * chunks
    return elapsed


def test_a_long_line_in_small_pieces_costs_its_length() -> None:
    """Eight times the line takes about eight times the work; joining or searching again what is held would take 64."""
    short = min(cpu_seconds(8_000) for _ in range(3))
    assert cpu_seconds(64_000) < 30 * short


@pytest.mark.parametrize(
    ("data", "objects"),
    [
        (b'{"a":1}', [{"a": 1}]),
        (b' {"a":1} \t', [{"a": 1}]),
        (b'\xef\xbb\xbf{"a":1}', [{"a": 1}]),
        (b'\0\0\0{"a":1}\0', [{"a": 1}]),
        (b"\0" * 400, []),
        (b"", []),
        (b"   ", []),
        (b"42", []),
        (b"null", []),
        (b'"{}"', []),
        (b'[{"a":1}]', []),
        (b'\xef\xbb\xbf[{"a":1}]', []),
        (b'[{"a":1}', [{"a": 1}]),
        (b"not json", []),
        (b'{"a":1}{"b":2}', [{"a": 1}, {"b": 2}]),
        (b'{"a":"}{"}{"b":"\\"}{"}', [{"a": "}{"}, {"b": '"}{'}]),
        (b'}}{"a":1}', [{"a": 1}]),
        (b'{"a":1{"b":2}', []),
        (b'{"a":"1{"b":2}', []),
        (b'{"a":tru}{"b":2}', [{"b": 2}]),
        (b'x"{"a":1}', []),
        (b'\\"x"{"a":1}', [{"a": 1}]),
        (b'{"a":NaN}', []),
        (b'{"a":"\x01"}', []),
        (b'{"a":01}', []),
        (b'{"a":"f\xff\xe2\x82"}', [{"a": "f\ufffd\ufffd"}]),
        (b'{"a":"\\ud800"}', [{"a": "\ud800"}]),
        (b'{"a":1,"a":2}', [{"a": 2}]),
        (b'{"a":1e999,"b":' + b"9" * 5000 + b"}", [{"a": 0.0, "b": 0}]),
    ],
)
def test_a_line_gives_the_objects_of_the_tolerant_parser(data: bytes, objects: list[object]) -> None:
    """One value as it stands; else whatever is balanced, glued ones apart, a truncated one swallowing the rest."""
    assert parse_objects(data) == objects


@settings(deadline=None)
@given(
    st.binary(max_size=200)
    | st.text(alphabet='{}[]":,\\ a1\ud800', max_size=60).map(lambda t: t.encode("utf-8", "replace"))
)
def test_no_bytes_raise(data: bytes) -> None:
    """Whatever stands in a line, parsing it gives objects or nothing."""
    assert all(isinstance(found, dict) for found in parse_objects(data))
    assert all(0 <= start < end <= len(data) for start, end in object_ranges(data))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=3), json_values, max_size=3), min_size=2, max_size=4))
def test_glued_objects_all_survive(objects: list[dict[str, object]]) -> None:
    """However many records lost their newlines, each is found."""
    assert parse_objects("".join(map(json.dumps, objects)).encode()) == objects


@pytest.mark.parametrize("depth", [150, 5_000, 200_000])
def test_deep_nesting_does_not_hide_a_record(depth: int) -> None:
    """A field nested deeper than the parser follows is read as null, its neighbours as they are."""
    text = '{"before":"]\\"","deep":' + '[{"a":' * depth + '"}"' + "}]" * depth + ',"after":2}'
    value = parse_json(text)
    assert isinstance(value, dict)
    assert (value["before"], value["after"]) == (']"', 2)


@pytest.mark.parametrize(
    "text", ["[" * 5_000, "[" * 5_000 + "}" * 5_000, '[{"a":' * 2_000 + '"', "[" * 3_000 + "]" * 2_999]
)
def test_deep_nesting_that_does_not_match_is_no_json(text: str) -> None:
    """Brackets without their partner, or with a wrong one, are refused as anywhere else."""
    with pytest.raises(ValueError, match=r"bracket|string"):
        parse_json(text)


def test_hostile_lines_are_scanned_once() -> None:
    """The scan for balanced objects visits each mark once, in a line of quotes, braces or escapes."""
    for data in (b'"' * 300_001, b"{" * 300_000, b"}" * 300_000, b'{"\\' * 100_000, b"{}" * 150_000):
        assert sum(1 for _ in object_ranges(data)) == (150_000 if data.startswith(b"{}") else 0)
    assert jsonl.MAX_LINE_BYTES == 64 * 1024 * 1024
