"""Builds session files for tests, record by record, in the form that Qwen Code writes (contract 2)."""

from __future__ import annotations

import json
import os
import uuid as uuids
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PROJECT = "/home/user/proj"
VERSION = "0.24.4"


def stamp(at: float) -> str:
    """Seconds since the epoch as a record's timestamp."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Transcript:
    """One session file, chained as Qwen Code chains it. `tail` is the writer's own idea of the last record."""

    def __init__(
        self,
        folder: Path,
        *,
        session_id: str | None = None,
        cwd: str = PROJECT,
        version: str = VERSION,
        at: float = 1_796_000_000.0,
    ) -> None:
        self.session_id = session_id or str(uuids.uuid4())
        self.path = folder / f"{self.session_id}.jsonl"
        self.cwd = cwd
        self.version = version
        self.at = at
        self.tail: str | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def record(self, type_: str, **fields: Any) -> dict[str, Any]:
        """A record chained to the tail; not written yet."""
        self.at += 1
        base = {
            "uuid": str(uuids.uuid4()),
            "parentUuid": self.tail,
            "sessionId": self.session_id,
            "timestamp": stamp(self.at),
            "type": type_,
            "cwd": self.cwd,
            "version": self.version,
        }
        return base | fields

    def append(self, record: Mapping[str, Any], *, side: bool = False) -> str:
        """Append a record as the native writer does; a side record leaves the tail where it was. Returns its uuid."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode("utf-8", "surrogatepass"))
        if not side:
            self.tail = str(record["uuid"])
        return str(record["uuid"])

    def user(self, text: str, **fields: Any) -> str:
        """A prompt."""
        message = {"role": "user", "parts": [{"text": text}]}
        return self.append(self.record("user", provenance="real_user", message=message, **fields))

    def snapshot(self) -> str:
        """The snapshot that only interactive sessions write after a prompt."""
        payload = {"snapshots": [{"promptId": "p", "timestamp": stamp(self.at), "trackedFileBackups": {}}]}
        return self.system("file_history_snapshot", payload)

    def assistant(self, text: str = "", *, thought: str = "", calls: tuple[str, ...] = ()) -> str:
        """A model answer."""
        parts: list[dict[str, Any]] = []
        if thought:
            parts.append({"text": thought, "thought": True})
        if text:
            parts.append({"text": text})
        parts += [{"functionCall": {"id": call, "name": "shell", "args": {"command": "ls"}}} for call in calls]
        message = {"role": "model", "parts": parts}
        return self.append(self.record("assistant", provenance="assistant_output", model="m", message=message))

    def tool_result(self, call: str) -> str:
        """What a tool returned."""
        part = {"functionResponse": {"id": call, "name": "shell", "response": {"output": "ok"}}}
        return self.append(
            self.record(
                "tool_result",
                provenance="tool_result",
                message={"role": "user", "parts": [part]},
                toolCallResult={"callId": call, "status": "success"},
            )
        )

    def system(self, subtype: str, payload: Mapping[str, Any], *, side: bool = False) -> str:
        """A system record."""
        record = self.record("system", provenance="system", subtype=subtype, systemPayload=dict(payload))
        return self.append(record, side=side)

    def title(self, title: str, source: str | None = "auto", *, side: bool = False) -> str:
        """A title record."""
        payload = {"customTitle": title} | ({"titleSource": source} if source else {})
        return self.system("custom_title", payload, side=side)

    def recap(self, text: str) -> str:
        """A native away recap."""
        items = [{"type": "away_recap", "text": text}]
        return self.system("slash_command", {"phase": "result", "rawCommand": "/recap", "outputHistoryItems": items})

    def turn(self, prompt: str, answer: str) -> str:
        """One whole turn of a terminal session. Returns the uuid of the answer."""
        self.user(prompt)
        self.snapshot()
        return self.assistant(answer)

    def records(self) -> list[dict[str, Any]]:
        """All records of the file that parse, in file order."""
        return [json.loads(line) for line in self.path.read_bytes().split(b"\n") if line.strip()]

    def set_mtime(self, at: float) -> None:
        """Give the file this modification time, seconds since the epoch."""
        os.utime(self.path, (at, at))


def chain_of(records: list[dict[str, Any]]) -> list[str]:
    """The uuids on the active branch by contract 4.1, oldest first; written apart from the product's own reader."""
    artifacts = ("session_artifact_", "session_sources_snapshot", "managed_session_")
    conversation = [each for each in records if not str(each.get("subtype", "")).startswith(artifacts)]
    parents: dict[str, str | None] = {}
    for each in conversation:
        parents.setdefault(each["uuid"], each["parentUuid"])
    steps: list[str] = []
    step = conversation[-1]["uuid"] if conversation else None
    while step is not None and step in parents and step not in steps:
        steps.append(step)
        step = parents[step]
    return steps[::-1]
