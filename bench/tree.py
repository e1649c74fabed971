"""A home of Qwen Code with many sessions, the same ones for the same seed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

VERSION = "0.24.4"
PROJECT_BYTES = 2000
"""Average size of a record's text."""
NEWEST = 1_790_000_000.0
YEAR_SECONDS = 365 * 86_400.0

_WORDS = [
    "build",
    "the",
    "parser",
    "and",
    "check",
    "where",
    "session",
    "records",
    "end",
    "because",
    "a",
    "reader",
    "may",
    "stop",
    "between",
    "two",
    "lines",
    "then",
    "repair",
    "login",
    "form",
    "retry",
    "request",
    "timeout",
    "cache",
    "index",
    "migrate",
    "schema",
    "修复",
    "登录",
    "测试",
    "файл",
    "проверка",
    "naïve",
    "café",
]


@dataclass(frozen=True, slots=True)
class Tree:
    """A generated home: `home/.qwen/projects/<project>/chats/<id>.jsonl`."""

    home: Path
    files: int
    projects: int
    bytes: int

    @property
    def config_dir(self) -> Path:
        """Qwen Code's own directory."""
        return self.home / ".qwen"

    @property
    def root(self) -> Path:
        """The projects root."""
        return self.config_dir / "projects"

    def chats(self, number: int) -> Path:
        """The folder with the sessions of one project."""
        return self.root / f"-home-user-proj{number:03d}" / "chats"

    def sessions(self) -> list[Path]:
        """Every session file, sorted by path."""
        return sorted(self.root.glob("*/chats/*.jsonl"))


def make_tree(home: Path, *, files: int, projects: int, seed: int = 8, records: int = 30) -> Tree:
    """Write the sessions; `records` is their average length. Half of them have a title."""
    rng = random.Random(seed)
    texts = [_text(rng) for _ in range(200)]
    tree = Tree(home, files, projects, 0)
    for number in range(projects):
        tree.chats(number).mkdir(parents=True)
    total = 0
    for number in range(files):
        session_id = make_uuid(rng)
        path = tree.chats(number % projects) / f"{session_id}.jsonl"
        started = NEWEST - rng.random() * YEAR_SECONDS
        length = max(6, min(30 * records, round(rng.lognormvariate(0, 0.8) * records * 0.75)))
        cwd = f"/home/user/proj{number % projects:03d}"
        data = b"".join(session_lines(rng, texts, session_id, cwd, started, length, titled=number % 2 == 0))
        path.write_bytes(data)
        os.utime(path, (started + length * 5, started + length * 5))
        total += len(data)
    return Tree(home, files, projects, total)


def session_lines(
    rng: random.Random, texts: list[str], session_id: str, cwd: str, started: float, length: int, *, titled: bool
) -> Iterator[bytes]:
    """The records of one terminal session, as lines."""
    parent: str | None = None
    for number in range(length):
        uuid = make_uuid(rng)
        kind = ("user", "snapshot", "assistant", "tool_result", "assistant", "telemetry")[number % 6]
        yield record_line(kind, uuid, parent, session_id, cwd, started + number * 5, rng.choice(texts))
        parent = uuid
        if titled and number == 5:
            uuid = make_uuid(rng)
            yield record_line("title", uuid, parent, session_id, cwd, started + number * 5, "Repair the login form")
            parent = uuid


def record_line(
    kind: str, uuid: str, parent: str | None, session_id: str, cwd: str, at: float, text: str, version: str = VERSION
) -> bytes:
    """One record of the given kind as a line, in Qwen Code's form (contract 2)."""
    record: dict[str, object] = {
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": session_id,
        "timestamp": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "cwd": cwd,
        "version": version,
    }
    match kind:
        case "user":
            record |= {"type": "user", "provenance": "real_user", "message": _message("user", text[:400])}
        case "assistant":
            record |= {"type": "assistant", "provenance": "assistant_output", "message": _message("model", text)}
        case "tool_result":
            response = {"functionResponse": {"id": "call_1", "name": "shell", "response": {"output": text}}}
            record |= {
                "type": "tool_result",
                "provenance": "tool_result",
                "message": {"role": "user", "parts": [response]},
                "toolCallResult": {"callId": "call_1", "status": "success"},
            }
        case "snapshot":
            snapshot = {"promptId": "p", "timestamp": record["timestamp"], "trackedFileBackups": {}}
            record |= _system("file_history_snapshot", {"snapshots": [snapshot]})
        case "title":
            record |= _system("custom_title", {"customTitle": text, "titleSource": "auto"})
        case _:
            record |= _system("ui_telemetry", {"uiEvent": {"event.name": "qwen-code.api_response", "text": text[:600]}})
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def make_uuid(rng: random.Random) -> str:
    """A random id in the form of a version 4 UUID."""
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _system(subtype: str, payload: dict[str, object]) -> dict[str, object]:
    return {"type": "system", "provenance": "system", "subtype": subtype, "systemPayload": payload}


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "parts": [{"text": text}]}


def _text(rng: random.Random) -> str:
    length = max(80, round(rng.lognormvariate(0, 0.7) * PROJECT_BYTES))
    words: list[str] = []
    while length > 0:
        words.append(rng.choice(_WORDS))
        length -= len(words[-1]) + 1
    return " ".join(words)
