"""Records of a session file ⇄ events, and the exact lines that we append.

A record becomes one event (see `core.events` for what each means). Decoding never raises and never depends on a field
being of the right type. Encoding gives the bytes of contract 4.5, field for field.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypedDict

from watcher.core.events import (
    AssistantSaid,
    Compressed,
    Event,
    InputArrived,
    InputKind,
    Noted,
    RecapShown,
    Rewound,
    SnapshotTaken,
    SourceNamed,
    TitleSet,
    TitleSource,
    ToolReturned,
    TurnEnded,
    Unknown,
    UserSaid,
)
from watcher.qwen.contract import WINDOW_BYTES
from watcher.qwen.entries import decode_dialog
from watcher.qwen.jsonl import RawLine
from watcher.qwen.wire import Record, is_blank, records_of, value_of, well_formed

__all__ = [
    "decode",
    "decode_dialog",
    "encode_recap",
    "encode_title",
    "format_timestamp",
    "parse_timestamp",
    "title_source",
]

MAX_TITLE_LENGTH: Final = WINDOW_BYTES
"""Code points of a title that are kept; no reader sees more than its window (contract 3.1)."""


class _Common(TypedDict):
    uuid: str
    parent: str | None
    session_id: str
    at: float | None
    cwd: str
    version: str
    offset: int
    end: int
    chained: bool


def decode(line: RawLine) -> tuple[Event, ...]:
    """The events of a line, in order: usually one, none for a line that holds no record, more where records are glued.

    A record with a bad identity has `chained` False and an empty `session_id`, since Qwen Code leaves it out when it
    compares ids (contract 4.1); an artifact record keeps its id. An empty `parentUuid` counts as null there, and here.
    """
    return tuple([_event(record, line) for record in records_of(line)])


def encode_title(
    *,
    uuid: str,
    parent: str,
    session_id: str,
    at: float,
    cwd: str,
    version: str,
    title: str,
    source: TitleSource = TitleSource.AUTO,
) -> bytes:
    """The line of a title record (contract 4.5), its newline included. `at` is seconds since the epoch."""
    record = _system_record(uuid=uuid, parent=parent, session_id=session_id, at=at, cwd=cwd, version=version)
    # The subtype stands before the payload: a cut line loses the value, not the marker that the picker looks for.
    record["subtype"] = "custom_title"
    record["systemPayload"] = {"customTitle": title, "titleSource": source.value}
    return _line(record)


def encode_recap(*, uuid: str, parent: str, session_id: str, at: float, cwd: str, version: str, text: str) -> bytes:
    """The line of an away recap (contract 4.5), its newline included. `at` is seconds since the epoch."""
    record = _system_record(uuid=uuid, parent=parent, session_id=session_id, at=at, cwd=cwd, version=version)
    record["subtype"] = "slash_command"
    items = [{"type": "away_recap", "text": text}]
    record["systemPayload"] = {"phase": "result", "rawCommand": "/recap", "outputHistoryItems": items}
    return _line(record)


def format_timestamp(at: float) -> str:
    """Seconds since the epoch as a record's `timestamp`: ISO 8601, UTC, milliseconds, `Z` (contract 2.1)."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_timestamp(text: str) -> float | None:
    """A record's `timestamp` as seconds since the epoch, None when it is none. Without a zone it is taken for UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _system_record(*, uuid: str, parent: str, session_id: str, at: float, cwd: str, version: str) -> dict[str, object]:
    return {
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": session_id,
        "timestamp": format_timestamp(at),
        "type": "system",
        "provenance": "system",
        "cwd": cwd,
        "version": version,
    }


def _line(record: dict[str, object]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    # What UTF-8 cannot hold is a lone surrogate, and `backslashreplace` writes it just as JSON escapes it.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _event(record: Record, line: RawLine) -> Event:
    kind = record.type or ""
    subtype = record.subtype or ""
    common: _Common = {
        "uuid": record.uuid or "",
        "parent": record.parent or None,
        "session_id": (record.session_id or "") if record.identified else "",
        "at": parse_timestamp(record.timestamp) if record.timestamp else None,
        "cwd": record.cwd or "",
        "version": record.version or "",
        "offset": line.offset,
        "end": line.end,
        "chained": record.chained,
    }
    if kind == "system":
        make = _SYSTEM_EVENTS.get(subtype)
        return make(record, common) if make else Noted(**common, subtype=subtype)
    if kind == "assistant":
        return AssistantSaid(**common, visible=_is_visible(record), calls=_opened_calls(record))
    if kind == "user":
        return _input_event(record, subtype, common)
    if kind == "tool_result":
        return ToolReturned(**common, calls=_closed_calls(record))
    return Unknown(**common, type=kind)


def _input_event(record: Record, subtype: str, common: _Common) -> Event:
    if subtype:
        return InputArrived(**common, kind=_INPUT_KINDS.get(subtype, InputKind.OTHER))
    if all(is_blank(part.text) for part in record.parts):
        return InputArrived(**common, kind=InputKind.BLANK)
    return UserSaid(**common)


_INPUT_KINDS = {
    kind.value: kind
    for kind in (InputKind.MID_TURN, InputKind.NOTIFICATION, InputKind.CRON, InputKind.GOAL, InputKind.REALTIME)
}


def _is_visible(record: Record) -> bool:
    return any(not part.thought and not is_blank(part.text) for part in record.parts)


def _opened_calls(record: Record) -> tuple[str, ...]:
    return tuple([part.call.id or "" for part in record.parts if part.call])


def _closed_calls(record: Record) -> tuple[str, ...]:
    closed = tuple([part.response.id for part in record.parts if part.response and part.response.id])
    if not closed and record.result and record.result.call_id:
        return (record.result.call_id,)
    return closed


def _title_event(record: Record, common: _Common) -> Event:
    payload = value_of(record.payload)
    if not isinstance(payload, dict) or not isinstance(title := payload.get("customTitle"), str):
        return Noted(**common, subtype="custom_title")
    source = title_source(payload.get("titleSource"))
    return TitleSet(**common, title=well_formed(title)[:MAX_TITLE_LENGTH], source=source)


def title_source(value: object) -> TitleSource | None:
    """The `titleSource` of a title; None, which counts as the user's, for anything but the two known (contract 3.1)."""
    return TitleSource(value) if isinstance(value, str) and value in _TITLE_SOURCES else None


_TITLE_SOURCES = frozenset(TitleSource)


def _command_event(record: Record, common: _Common) -> Event:
    payload = value_of(record.payload)
    if isinstance(payload, dict) and payload.get("phase") == "result":
        items = payload.get("outputHistoryItems")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and item.get("type") == "away_recap":
                text = item.get("text")
                if isinstance(text, str) and text.strip():
                    return RecapShown(**common, text=well_formed(text))
    return Noted(**common, subtype="slash_command")


_SYSTEM_EVENTS: dict[str, Callable[[Record, _Common], Event]] = {
    "custom_title": _title_event,
    "slash_command": _command_event,
    "rewind": lambda _, common: Rewound(**common),
    "chat_compression": lambda _, common: Compressed(**common),
    "file_history_snapshot": lambda _, common: SnapshotTaken(**common),
    "session_source": lambda _, common: SourceNamed(**common),
    "parent_session": lambda _, common: SourceNamed(**common),
    "branch_checkpoint": lambda _, common: TurnEnded(**common),
    "turn_result": lambda _, common: TurnEnded(**common),
}
