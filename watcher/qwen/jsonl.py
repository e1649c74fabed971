"""Bytes into whole lines, and one line into the JSON objects that Qwen Code's tolerant parser finds in it.

Lines end at the byte `\\n` and nowhere else: JSON text may hold U+2028 and U+0085, at which `str.splitlines` cuts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from watcher.qwen.contract import JS_WHITESPACE

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Longer lines are skipped, not held."""

MAX_DEPTH: Final = 200
"""Containers nested deeper than this are read as null; no field that matters lies so deep."""

_BRACE_OR_QUOTE = re.compile(rb'[{}"]')
_BRACKET_OR_QUOTE = re.compile(r'[{}\[\]"]')
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_REST_OF_TEXT_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_MAX_DIGITS = 19


@dataclass(frozen=True, slots=True)
class RawLine:
    """A physical line: the byte range `[offset, end)` of the file, and its bytes without the newline.

    The newline belongs to the range where there is one. An `oversized` line has no `data`.
    """

    offset: int
    end: int
    data: bytes
    oversized: bool = False

    @property
    def length(self) -> int:
        """Bytes of the file that the line takes, its newline included."""
        return self.end - self.offset


class LineSplitter:
    """Cuts a stream of bytes into lines; what follows the last newline is held back until its newline comes.

    `offset` is the file position of the first byte fed. The cost is linear in the bytes fed, in whatever pieces they
    come, and at most one line of `max_line_bytes` is held.
    """

    def __init__(self, offset: int = 0, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._offset = offset
        self._held = bytearray()
        self._dropped = 0

    def feed(self, chunk: bytes) -> list[RawLine]:
        """The lines that `chunk` completes, oldest first."""
        *whole, rest = chunk.split(b"\n")
        lines = [self._complete(piece) for piece in whole]
        self._held += rest
        if self._dropped or len(self._held) > self._max:
            self._dropped += len(self._held)
            self._held = bytearray()
        return lines

    def _complete(self, piece: bytes) -> RawLine:
        length = self.pending_length + len(piece)
        oversized = length > self._max
        data = b"" if oversized else piece
        if length > len(piece):
            if not oversized:
                data = b"".join((self._held, piece))
            self._held = bytearray()
            self._dropped = 0
        offset, self._offset = self._offset, self._offset + length + 1
        return RawLine(offset, self._offset, data, oversized)

    @property
    def pending_length(self) -> int:
        """Bytes that wait for their newline."""
        return len(self._held) + self._dropped

    @property
    def pending_offset(self) -> int:
        """File position of the first byte that waits for its newline; without one, of the next byte to come."""
        return self._offset

    @property
    def pending(self) -> bytes:
        """A copy of the bytes that wait for their newline; empty when they are too many to hold."""
        return bytes(self._held)


def split_lines(data: bytes, offset: int = 0) -> Iterator[RawLine]:
    """All lines of `data`, an unterminated last one included, as a reader of the whole file sees them."""
    splitter = LineSplitter(offset)
    yield from splitter.feed(data)
    if splitter.pending_length:
        rest = splitter.pending
        yield RawLine(splitter.pending_offset, offset + len(data), rest, oversized=not rest)


def parse_objects(data: bytes) -> list[dict[str, object]]:
    """The JSON objects of one line, as Qwen Code's tolerant parser recovers them (contract 2.4). Never raises.

    A line that is one JSON value gives that object, or nothing when it is no object. Any other line is scanned for
    balanced objects outside of strings: glued ones are split, a truncated one swallows what follows it. Invalid UTF-8
    is replaced, lone surrogates stay, of repeated keys the last counts. The cost is linear in the line.
    """
    text = data.decode("utf-8", "replace").strip(JS_WHITESPACE)
    if "{" not in text:
        return []
    try:
        value = parse_json(text)
    except ValueError:
        found = [_parse_or_none(data[start:end].decode("utf-8", "replace")) for start, end in object_ranges(data)]
        return [one for one in found if isinstance(one, dict)]
    return [value] if isinstance(value, dict) else []


def object_ranges(data: bytes) -> Iterator[tuple[int, int]]:
    """The byte ranges of `data` that are balanced in braces outside of strings; whether they are JSON is open."""
    depth = start = position = 0
    while found := _BRACE_OR_QUOTE.search(data, position):
        position = found.end()
        mark = found[0]
        if mark == b'"':
            rest = _REST_OF_STRING.match(data, position)
            if rest is None:
                return
            position = rest.end()
        elif mark == b"{":
            if depth == 0:
                start = found.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                yield start, position


def parse_json(text: str) -> object:
    """The value of a JSON text, as strict as `JSON.parse`, with numbers only as exact as fields need.

    Containers nested deeper than `MAX_DEPTH` may come as None. Raises ValueError when it is no JSON.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        return _DECODER.decode(_without_depths(text))


def _parse_or_none(text: str) -> object:
    try:
        return parse_json(text)
    except ValueError:
        return None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")


def _parse_int(digits: str) -> int:
    # Python refuses to convert very long numbers and is quadratic in them; no field that matters is long.
    return int(digits) if len(digits) <= _MAX_DIGITS else 0


def _parse_float(digits: str) -> float:
    number = float(digits) if len(digits) <= _MAX_DIGITS else 0.0
    return number if math.isfinite(number) else 0.0


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_parse_int, parse_float=_parse_float)


def _without_depths(text: str) -> str:
    """`text` with `null` in place of the containers that are nested deeper than `MAX_DEPTH`.

    What is cut out is checked for balance only. Raises ValueError when brackets do not match.
    """
    closers: list[str] = []
    kept: list[str] = []
    kept_until = position = 0
    while found := _BRACKET_OR_QUOTE.search(text, position):
        position = found.end()
        mark = found[0]
        if mark == '"':
            rest = _REST_OF_TEXT_STRING.match(text, position)
            if rest is None:
                raise ValueError("a string has no end")
            position = rest.end()
        elif mark in "[{":
            if len(closers) == MAX_DEPTH:
                kept.append(text[kept_until : found.start()])
            closers.append("]" if mark == "[" else "}")
        else:
            if not closers or closers.pop() != mark:
                raise ValueError("brackets do not match")
            if len(closers) == MAX_DEPTH:
                kept.append("null")
                kept_until = position
    if closers:
        raise ValueError("a bracket has no end")
    kept.append(text[kept_until:])
    return "".join(kept)
