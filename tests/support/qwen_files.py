"""Session files as Qwen Code writes them, for tests: read back, and appended to without any precaution."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def records(session: Path) -> list[dict[str, Any]]:
    """The records of a session file, none if it was not made yet; without `broken_lines`."""
    return [record for line in _lines(session) if (record := _parsed(line)) is not None]


def broken_lines(session: Path) -> list[bytes]:
    """The lines of a session file that hold no JSON object."""
    return [line for line in _lines(session) if _parsed(line) is None]


def _lines(session: Path) -> list[bytes]:
    """The whole lines that are not blank; what stands behind the last newline may still be in the writing."""
    try:
        data = session.read_bytes()
    except FileNotFoundError:
        return []
    return [line for line in data.split(b"\n")[:-1] if line.strip()]


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def title_records(session: Path) -> list[tuple[str, str | None]]:
    """Every title record in file order: the title, and its source (None if it has none)."""
    payloads = [each["systemPayload"] for each in records(session) if each.get("subtype") == "custom_title"]
    return [(payload["customTitle"], payload.get("titleSource")) for payload in payloads]


def recap_texts(session: Path) -> list[str]:
    """The texts of all away recaps in file order."""
    results = [each["systemPayload"] for each in records(session) if each.get("subtype") == "slash_command"]
    items = [item for result in results for item in result.get("outputHistoryItems", ())]
    return [item["text"] for item in items if item["type"] == "away_recap"]


def record_text(record: Mapping[str, Any]) -> str:
    """The visible text of a user or assistant record, without thoughts."""
    parts = record.get("message", {}).get("parts", ())
    return "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))


def turns(session: Path) -> list[tuple[str, str]]:
    """What was said, in file order: ("user", text) and ("assistant", text); records without text are left out."""
    said = [each for each in records(session) if each["type"] in ("user", "assistant") and not each.get("subtype")]
    return [(each["type"], text) for each in said if (text := record_text(each).strip())]


def append_record(session: Path, subtype: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Appends a system record to the end of a session's chain, without any precaution; returns the record."""
    last = records(session)[-1]
    record = {
        "uuid": str(uuid.uuid4()),
        "parentUuid": last["uuid"],
        "sessionId": last["sessionId"],
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "type": "system",
        "provenance": "system",
        "cwd": last["cwd"],
        "version": last["version"],
        "subtype": subtype,
        "systemPayload": payload,
    }
    line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
    with session.open("ab", buffering=0) as file:
        file.write(line.encode())
    return record


def append_title(session: Path, title: str, source: str | None = "auto") -> dict[str, Any]:
    """Appends a title record, as another program would; returns it."""
    payload = {"customTitle": title} | ({"titleSource": source} if source else {})
    return append_record(session, "custom_title", payload)


def append_recap(session: Path, text: str) -> dict[str, Any]:
    """Appends a recap record, as another program would; returns it."""
    items = [{"type": "away_recap", "text": text}]
    return append_record(
        session, "slash_command", {"phase": "result", "rawCommand": "/recap", "outputHistoryItems": items}
    )


def turn_ended(turn: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these records, from a prompt on, are a finished turn: the last answer calls no tool."""
    said = [record for record in turn if record["type"] != "system"]
    if not said or said[-1]["type"] != "assistant":
        return False
    return not any("functionCall" in part for part in said[-1].get("message", {}).get("parts", ()))


def from_prompt(after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records from the first user prompt on."""
    prompts = [index for index, each in enumerate(after) if each["type"] == "user" and not each.get("subtype")]
    return after[prompts[0] :] if prompts else []
