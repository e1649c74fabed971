"""Which paths are session files, and what lies around them (contract 1.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from watcher.qwen.paths import session_ref

ID = "800ec011-bd66-45b3-b7e5-27e3387a2e2a"


def test_a_session_file_knows_its_id_base_and_sidecar() -> None:
    """The runtime base is where leases and projects lie; the id keeps the case of the name."""
    ref = session_ref(f"/home/user/.qwen/projects/-p/chats/{ID.upper()}.jsonl")
    assert ref is not None
    assert (ref.session_id, ref.runtime_base) == (ID.upper(), Path("/home/user/.qwen"))
    assert str(ref.sidecar) == f"/home/user/.qwen/projects/-p/chats/{ID.upper()}.runtime.json"


@pytest.mark.parametrize(
    "path",
    [
        f"/home/user/.qwen/projects/-p/chats/archive/{ID}.jsonl",
        f"/home/user/.qwen/projects/-p/archive/{ID}.jsonl",
        f"/home/user/.qwen/projects/-p/subagents/{ID}.jsonl",
        f"/home/user/.qwen/projects/-p/chats/sub/{ID}.jsonl",
        f"/home/user/.qwen/projects/-p/chats/{ID}.ledger.jsonl",
        f"/home/user/.qwen/projects/-p/chats/{ID}.runtime.json",
        f"/home/user/.qwen/projects/-p/chats/.{ID}.fork.tmp",
        f"/home/user/.qwen/elsewhere/-p/chats/{ID}.jsonl",
        f"/home/user/.qwen/projects/chats/{ID}.jsonl",
        f"/chats/{ID}.jsonl",
        f"{ID}.jsonl",
        "",
    ],
)
def test_nothing_else_is_one(path: str) -> None:
    """Archived sessions above all: they are never touched (contract 1.2 and rule 10)."""
    assert session_ref(path) is None
