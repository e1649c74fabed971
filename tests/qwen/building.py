"""Session records and lines for tests, in the compact form that Qwen Code writes."""

from __future__ import annotations

import json
from pathlib import Path

from watcher.qwen.jsonl import RawLine

DATA = Path(__file__).parent.parent / "data"
REAL = DATA / "real"
SESSION_ID = "11111111-1111-4111-8111-111111111111"


def record(uuid: str, parent: str | None, kind: str, **fields: object) -> dict[str, object]:
    """A record with the identity fields of contract 2.1; a field given as `...` is left out."""
    whole: dict[str, object] = {
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION_ID,
        "timestamp": "2026-01-01T10:00:01.250Z",
        "type": kind,
        "cwd": "/home/user/proj",
        "version": "0.24.4",
        **fields,
    }
    return {name: value for name, value in whole.items() if value is not ...}


def said(uuid: str, parent: str | None, kind: str, *texts: str, **fields: object) -> dict[str, object]:
    """A record with a message of text parts."""
    return record(uuid, parent, kind, message={"role": "user", "parts": [{"text": text} for text in texts]}, **fields)


def system(uuid: str, parent: str | None, subtype: str, payload: object = ..., **fields: object) -> dict[str, object]:
    """A system record."""
    return record(uuid, parent, "system", subtype=subtype, systemPayload=payload, **fields)


def titled(uuid: str, parent: str | None, title: str, source: str | None = "auto") -> dict[str, object]:
    """A title record; without a source when that is None."""
    payload = {"customTitle": title} if source is None else {"customTitle": title, "titleSource": source}
    return system(uuid, parent, "custom_title", payload)


def encoded(whole: dict[str, object]) -> bytes:
    """The bytes of a record's line, without the newline."""
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def file_of(*records: dict[str, object]) -> bytes:
    """The bytes of a file with these records."""
    return b"".join(encoded(each) + b"\n" for each in records)


def line(data: bytes | dict[str, object], offset: int = 0) -> RawLine:
    """One whole line."""
    content = encoded(data) if isinstance(data, dict) else data
    return RawLine(offset, offset + len(content) + 1, content)
