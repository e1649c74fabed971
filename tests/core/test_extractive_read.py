"""Titles of single prompts, as a person read and accepted them; null where a prompt names nothing to title."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from watcher.core.entries import DialogEntry, Origin
from watcher.core.extractive import extract_title
from watcher.core.generation import Role

READ: dict[str, str | None] = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "extractive_read.json").read_text("utf-8")
)


@pytest.mark.parametrize("prompt", READ, ids=lambda prompt: prompt[:40].encode("ascii", "replace").decode())
def test_a_title_that_was_read(prompt: str) -> None:
    """From one-word prompts to pasted logs, in nine languages."""
    entries = [
        DialogEntry("a", None, Role.USER, prompt, Origin.PROMPT),
        DialogEntry("b", "a", Role.ASSISTANT, "Sure, I did it.", Origin.ASSISTANT),
    ]
    assert extract_title(entries) == READ[prompt]
