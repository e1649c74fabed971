"""A reader of session files, written from contract 2.4, 3.1 and 4.1 alone.

It judges what the product wrote, so it shares no code with it: `json` and `re` of the standard library, nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

WINDOW_BYTES = 65_536
TYPES = frozenset({"user", "assistant", "tool_result", "system"})
ARTIFACTS = frozenset(
    {
        "session_artifact_event",
        "session_artifact_snapshot",
        "session_sources_snapshot",
        "managed_session_header_v1",
        "managed_session_event_v1",
        "managed_session_commit_v1",
    }
)
_TITLE = re.compile(rb'"customTitle"[ \t]*:[ \t]*"((?:[^"\\\n]|\\[^\n])*)"')
_SOURCE = re.compile(rb'"titleSource"[ \t]*:[ \t]*"((?:[^"\\\n]|\\[^\n])*)"')

Record = dict[str, Any]


class MixedIds(Exception):  # noqa: N818 - the name of the condition
    """More than one session id: Qwen Code ends at start-up with a critical error (contract 4.1, step 2)."""


@lru_cache(maxsize=200_000)
def objects(line: bytes) -> tuple[Record, ...]:
    """The JSON objects of one physical line (contract 2.4); shared, not to be changed."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return ()
    try:
        value = json.loads(text)
    except ValueError:
        return tuple(_balanced(text))
    return (value,) if isinstance(value, dict) else ()


def _balanced(text: str) -> Iterator[Record]:
    """Balanced top-level objects; a truncated one swallows what is glued behind it."""
    depth = start = 0
    quoted = escaped = False
    for position, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            quoted = True
        elif character == "{":
            start = position if depth == 0 else start
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                try:
                    value = json.loads(text[start : position + 1])
                except ValueError:
                    continue
                if isinstance(value, dict):
                    yield value


@lru_cache(maxsize=20_000)
def records(data: bytes) -> list[Record]:
    """All records with a good identity and a known type, in file order (contract 4.1, step 1); not to be changed."""
    return [record for line in data.split(b"\n") for record in objects(line) if _identified(record)]


def _identified(record: Record) -> bool:
    has_ids = all(isinstance(record.get(name), str) and record[name] for name in ("uuid", "sessionId"))
    parent = record.get("parentUuid", 0)
    return has_ids and (parent is None or isinstance(parent, str)) and record.get("type") in TYPES


def conversation(data: bytes) -> list[Record]:
    """The conversation records in file order. Raises `MixedIds`."""
    found = records(data)
    if len({record["sessionId"] for record in found}) > 1:
        raise MixedIds
    return [record for record in found if record.get("subtype") not in ARTIFACTS]


def leaf(data: bytes) -> str | None:
    """The uuid of the last conversation record in file order."""
    found = conversation(data)
    return found[-1]["uuid"] if found else None


@lru_cache(maxsize=20_000)
def active_chain(data: bytes) -> list[Record]:
    """The records that a resumed conversation has, oldest first; not to be changed. Raises `MixedIds`."""
    found = conversation(data)
    first: dict[str, Record] = {}
    for record in found:
        first.setdefault(record["uuid"], record)
    steps: list[Record] = []
    visited: set[str] = set()
    step = found[-1]["uuid"] if found else None
    while step is not None and step in first and step not in visited:
        visited.add(step)
        steps.append(first[step])
        step = first[step]["parentUuid"]
    return steps[::-1]


def shown_title(data: bytes, window: int = WINDOW_BYTES) -> tuple[str, str | None] | None:
    """The title and source that the picker shows, None for none; a source of None counts as manual (contract 3.1)."""
    found = _last_title(data[-window:])
    if found is None and len(data) > window:
        head = data[:window]
        found = _last_title(head[: head.rfind(b"\n") + 1])
    return found if found is not None and found[0] else None


def last_title(data: bytes) -> tuple[str, str | None] | None:
    """The last title anywhere in the file, an empty one included."""
    return _last_title(data)


def _last_title(part: bytes) -> tuple[str, str | None] | None:
    for line in reversed(part.split(b"\n")):
        if b'"subtype":"custom_title"' not in line:
            continue
        titles = _TITLE.findall(line)
        if titles:
            sources = _SOURCE.findall(line)
            source = _text(sources[0]) if sources else None
            return _text(titles[-1]), source if source in ("auto", "manual") else None
    return None


def _text(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text
