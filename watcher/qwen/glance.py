"""What the two ends of a session file tell at a glance, for a status line that has no time to load a real reader.

The standard library alone, and of it little. The real readers (`qwen.records`, `qwen.titles`, `core.session`) know
more; where they and this one see the same records, they say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from watcher.qwen.contract import FIRST_PROMPT_LENGTH, FIRST_PROMPT_LINES, WINDOW_BYTES

_TYPED_INPUT: Final = ("", "mid_turn_user_message", "realtime_message")
_TURN_ENDS: Final = ("branch_checkpoint", "turn_result", "rewind")
_SNAPSHOT: Final = b'"subtype":"file_history_snapshot"'
_SOURCES: Final = (b'"subtype":"session_source"', b'"subtype":"parent_session"')


class Glance(NamedTuple):
    """A session as its ends show it. Times are seconds since the epoch, None where the ends do not tell."""

    session_id: str
    cwd: str
    title: str
    prompt: str
    recap: str
    """The last recap, empty when a prompt came after it."""
    running: bool
    """By its records, a turn runs."""
    last_user_at: float | None
    last_activity_at: float | None
    interactive: bool
    """Records that only terminal and editor sessions have were seen."""


def glance(head: bytes, tail: bytes, size: int) -> Glance | None:
    """What a file of `size` bytes shows; `head` and `tail` are its first and last 64 KiB. None for one without records.

    Title and recap are the last ones in sight, as for Qwen Code's picker (contract 3.1).
    """
    first = next(_records(head.split(b"\n")), None)
    if first is None:
        return None
    lines = tail.split(b"\n")
    if size > len(tail):
        del lines[0]  # it begins before the window
    found = _Backwards()
    for record in _records(reversed(lines)):
        found.take(record)
    if found.title is None and size > WINDOW_BYTES:
        for record in _records(reversed(head[: head.rfind(b"\n") + 1].split(b"\n"))):
            if found.title is None and record.get("subtype") == "custom_title":
                found.take_title(record)
    ends = (head, tail)
    return Glance(
        _text(first.get("sessionId")),
        _text(first.get("cwd")),
        found.title or "",
        _first_prompt(head),
        found.recap or "",
        bool(found.running),
        found.last_user_at,
        found.last_activity_at,
        any(_SNAPSHOT in end for end in ends) and not any(mark in head for mark in _SOURCES),
    )


class _Backwards:
    """What is learnt by going through records from the last one to the first."""

    def __init__(self) -> None:
        self.title: str | None = None
        self.recap: str | None = None
        self.running: bool | None = None
        self.last_user_at: float | None = None
        self.last_activity_at: float | None = None
        self._answer: object = None

    def take(self, record: dict[str, Any]) -> None:
        """One more record, older than all before."""
        kind, subtype = record.get("type"), record.get("subtype") or ""
        if kind == "system":
            self._take_system(record, subtype)
        elif kind == "user":
            self._ran(True)
            if not subtype and any(text.strip() for text in _said(record)):
                self.recap = self.recap or ""
            if subtype in _TYPED_INPUT:
                at = _at(record)
                self.last_user_at = self.last_user_at or at
                self.last_activity_at = self.last_activity_at or at
        elif kind == "tool_result":
            self._ran(True)
        elif kind == "assistant":
            calls = any(part.get("functionCall") for part in _parts(record))
            fragment = self._answer is not None and record.get("uuid") == self._answer
            if self.running is None or (fragment and calls):
                self.running = calls
                self._answer = record.get("uuid")
            self.last_activity_at = self.last_activity_at or _at(record)

    def take_title(self, record: dict[str, Any]) -> None:
        """The last title counts, also an empty one, which hides older ones."""
        title = _payload(record).get("customTitle")
        if self.title is None and isinstance(title, str):
            self.title = title

    def _take_system(self, record: dict[str, Any], subtype: object) -> None:
        if subtype == "custom_title":
            self.take_title(record)
        elif subtype == "slash_command" and self.recap is None:
            self.recap = _recap(_payload(record))
        elif subtype in _TURN_ENDS:
            self._ran(False)

    def _ran(self, running: bool) -> None:
        self._answer = None
        if self.running is None:
            self.running = running


class Claim(NamedTuple):
    """What a live registry record or a runtime sidecar says of an owner (contract 1.3, 1.4).

    `started_at` is the time of the process or a little later, seconds since the epoch, 0.0 when it is not told; `start`
    is `<boot id>:<start ticks>`, which only the registry tells, "" when it does not.
    """

    pid: int
    session_id: str
    started_at: float
    start: str


def owner_of(data: bytes) -> Claim | None:
    """The claim that a registry record or a sidecar holds, None for what is neither."""
    record = _json(data)
    pid = record.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return None
    session = _text(record.get("sessionId")) or _text(record.get("session_id"))
    milliseconds, seconds = record.get("startedAt"), record.get("started_at")
    if isinstance(milliseconds, int | float):
        seconds = milliseconds / 1000
    started_at = float(seconds) if isinstance(seconds, int | float) else 0.0
    return Claim(pid, session.lower(), started_at, _text(record.get("procStart")))


def _records(lines: Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        record = _json(line)
        if record.get("type"):
            yield record


def _json(data: bytes) -> dict[str, Any]:
    if not data.strip():
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _payload(record: dict[str, Any]) -> dict[str, Any]:
    payload = record.get("systemPayload")
    return payload if isinstance(payload, dict) else {}


def _parts(record: dict[str, Any]) -> list[dict[str, Any]]:
    message = record.get("message")
    parts = message.get("parts") if isinstance(message, dict) else None
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _said(record: dict[str, Any]) -> Iterator[str]:
    return (text for part in _parts(record) if (text := _text(part.get("text"))))


def _at(record: dict[str, Any]) -> float | None:
    try:
        moment = datetime.fromisoformat(_text(record.get("timestamp")))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _recap(payload: dict[str, Any]) -> str | None:
    items = payload.get("outputHistoryItems")
    if payload.get("phase") != "result" or not isinstance(items, list):
        return None
    recaps = [item for item in items if isinstance(item, dict) and item.get("type") == "away_recap"]
    return next((text for item in recaps if (text := _text(item.get("text"))).strip()), None)


def _first_prompt(head: bytes) -> str:
    """As the picker finds it (contract 2.5), for files in the form that Qwen Code writes."""
    lines = [line for line in head.split(b"\n") if line.strip()][:FIRST_PROMPT_LINES]
    for record in _records(lines):
        if record.get("type") == "user" and "subtype" not in record:
            shown = _payload(record).get("displayText")
            text = shown if isinstance(shown, str) else next(_said(record), "")
            if text:
                return text[:FIRST_PROMPT_LENGTH]
    return ""
