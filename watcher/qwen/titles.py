"""What Qwen Code's session picker shows for a file, read from its two ends as text (contract 2.5, 3.1).

All functions are linear in the window, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from msgspec import UNSET

from watcher.core.events import TitleSet, TitleSource
from watcher.qwen.contract import FIRST_PROMPT_LENGTH, FIRST_PROMPT_LINES, JS_WHITESPACE, WINDOW_BYTES
from watcher.qwen.jsonl import RawLine, parse_json, split_lines
from watcher.qwen.records import title_source
from watcher.qwen.wire import Record, records_of, text_of, value_of, well_formed

_MARKER = b'"subtype":"custom_title"'
# A key and a string on one line; the value may hold escapes, but neither a bare quote nor the end of the line.
_STRING_FIELD = rb'"%s"[ \t]*+:[ \t]*+"([^"\\\r\n]*+(?:\\[^\r\n][^"\\\r\n]*+)*+)"'
_TITLE_FIELD = re.compile(_STRING_FIELD % b"customTitle")
_SOURCE_FIELD = re.compile(_STRING_FIELD % b"titleSource")


class Evidence(StrEnum):
    """Whether the text that the picker takes for a title is one."""

    RECORD = "record"
    """Its line parses to a title record."""
    TORN = "torn"
    """Its line cannot be parsed whole: cut off, glued to a torn one, or begun before the window."""
    SPOOF = "spoof"
    """Its line is a whole record of another kind, such as a tool call whose arguments look like a title."""


@dataclass(frozen=True, slots=True)
class PickerTitle:
    """The title that the picker shows; a `source` of None counts as the user's."""

    title: str
    source: TitleSource | None
    evidence: Evidence


def read_title(head: bytes, tail: bytes, size: int) -> PickerTitle | None:
    """The title that the picker shows for a file of `size` bytes, None when it shows none.

    `head` and `tail` are its first and last 64 KiB (or more), the whole of a shorter file. None can also mean that the
    last title in sight is an empty one, which hides older ones.
    """
    tail = tail[-WINDOW_BYTES:]
    found = _last_title(tail, cut_front=len(tail) < size)
    if found is None and size > WINDOW_BYTES:
        head = head[:WINDOW_BYTES]
        found = _last_title(head[: head.rfind(b"\n") + 1], cut_front=False)
    return found if found is not None and found.title else None


def torn_titles(line: RawLine, ours: Iterable[str]) -> list[TitleSet]:
    """What the picker takes for titles on a line that is no whole record: a name that was cut off (vector T09), or what
    somebody appended behind a cut line. They stand in no chain, and have no id.

    Where one of `ours`, record ids, stands on the line, it was glued on: what stands before it counts on its own, and
    what the whole line shows then has that id.
    """
    glued = [(at, uuid) for uuid in ours if (at := line.data.find(b'{"uuid":"%s"' % uuid.encode())) > 0]
    start, uuid = min(glued, default=(0, ""))
    parts = [(line.data[:start], ""), (line.data, uuid)] if uuid else [(line.data, "")]
    return [
        TitleSet(
            uuid=uuid,
            parent=None,
            session_id="",
            at=None,
            cwd="",
            version="",
            offset=line.offset,
            end=line.end,
            chained=False,
            title=shown.title,
            source=shown.source,
        )
        for part, uuid in parts
        if (shown := _last_title(part, cut_front=False)) is not None and shown.evidence is Evidence.TORN
    ]


def first_prompt(head: bytes) -> str:
    """The first prompt that the picker shows for a session without a title, empty when there is none (contract 2.5).

    `head` is the beginning of the file; a line that is cut at its end is not seen. Cut at 200 code points; where the
    picker cuts, it puts three dots behind.
    """
    lines = (piece for line in split_lines(head) for piece in line.data.split(b"\r"))
    full = (piece for piece in lines if piece.decode("utf-8", "replace").strip(JS_WHITESPACE))
    records = (
        record for piece in islice(full, FIRST_PROMPT_LINES) for record in records_of(RawLine(0, len(piece), piece))
    )
    for record in islice(records, FIRST_PROMPT_LINES):
        if record.type == "user" and record.subtype is UNSET and (text := _prompt_text(record)):
            return text[:FIRST_PROMPT_LENGTH]
    return ""


def _prompt_text(record: Record) -> str:
    payload = value_of(record.payload)
    if isinstance(payload, dict) and "displayText" in payload:
        shown = payload["displayText"]
        return well_formed(shown) if isinstance(shown, str) else ""
    return next((text_of(part.text) or "" for part in record.parts if bytes(part.text)), "")


def _last_title(window: bytes, *, cut_front: bool) -> PickerTitle | None:
    """The last title on the last line of the window that has one, looking at each line once."""
    end = len(window)
    while (marker := window.rfind(_MARKER, 0, end)) >= 0:
        start = window.rfind(b"\n", 0, marker) + 1
        stop = window.find(b"\n", marker)
        line = window[start : len(window) if stop < 0 else stop]
        titles = list(_TITLE_FIELD.finditer(line))
        if titles:
            source = _SOURCE_FIELD.search(line)
            return PickerTitle(
                _unescaped(titles[-1][1]),
                title_source(_unescaped(source[1])) if source else None,
                _evidence(line, is_cut=cut_front and start == 0),
            )
        end = start
    return None


def _evidence(line: bytes, *, is_cut: bool) -> Evidence:
    records = records_of(RawLine(0, len(line), line))
    if any(record.type == "system" and record.subtype == "custom_title" for record in records):
        return Evidence.RECORD
    if is_cut:
        return Evidence.TORN
    try:
        parse_json(line.decode("utf-8", "replace").strip(JS_WHITESPACE))
    except ValueError:
        return Evidence.TORN
    return Evidence.SPOOF


def _unescaped(raw: bytes) -> str:
    """The value of a string between its quotes; as it stands where it is no valid JSON string."""
    text = raw.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    try:
        value = parse_json(f'"{text}"')
    except ValueError:
        return text
    return well_formed(value) if isinstance(value, str) else text
