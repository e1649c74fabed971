"""The independent reader against what Qwen Code's own reader made of the vectors, and against real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.safety import reader

DATA = Path(__file__).parent.parent / "data"
VECTORS: list[dict[str, Any]] = json.loads((DATA / "vectors.json").read_bytes())["session_files"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_it_reads_as_qwen_code_does(vector: dict[str, Any]) -> None:
    """Chain, refusal and title of every vector."""
    data = vector["file"].encode()
    expect = vector["expect"]
    if expect["error"]:
        with pytest.raises(reader.MixedIds):
            reader.active_chain(data)
    elif expect["chain"] is not None:
        assert [int(record["uuid"][:8], 16) for record in reader.active_chain(data)] == expect["chain"]
    found = reader.shown_title(data)
    assert (found[0] if found else None) == expect["title"]
    assert (found[1] if found else None) == expect["title_source"]


@pytest.mark.parametrize("path", sorted((DATA / "real").glob("*.jsonl")), ids=lambda path: path.stem)
def test_real_sessions_load(path: Path) -> None:
    """Every session that the real CLI wrote has a chain that ends in its last conversation record."""
    data = path.read_bytes()
    assert reader.active_chain(data)[-1]["uuid"] == reader.leaf(data)
