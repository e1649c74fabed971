"""The JSON shapes of design 4 that more than one part of the program gives out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from watcher.core.generation import Kind
from watcher.edge.store import JournalEntry, JournalKind


def iso(seconds: float | None) -> str | None:
    """ISO 8601 in UTC with milliseconds, as every JSON shape of design 4 has it; None for None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(round(seconds, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def entry_as_dict(entry: JournalEntry) -> dict[str, Any]:
    """One line of `tail --json`, which is also what hooks read; titles also tell their `source`."""
    shown = {
        "kind": Kind.RECAP.value if entry.kind is JournalKind.RECAP else Kind.TITLE.value,
        "session_id": entry.session_id,
        "text": entry.text,
        "timestamp": iso(entry.at),
        "path": entry.path,
        "cwd": entry.cwd,
        "model": entry.model,
        "record_uuid": entry.record_uuid,
    }
    return shown | ({"source": entry.source} if entry.source else {})
