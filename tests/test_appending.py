"""What is kept of a write over a restart: every field of it comes back."""

from __future__ import annotations

import json

import pytest

from watcher.appending import Purpose, intent_from_json, intent_to_json
from watcher.core.events import TitleSource
from watcher.core.writing import Intent, Payload, RecapLine, TitleLine
from watcher.edge.store import JournalKind

PURPOSE = Purpose(JournalKind.RECAP, "a model of two words", 17)


def intent(payload: Payload) -> Intent:
    """A write, with another value in each field."""
    line = '\n{"uuid":"u1","text":"修复登录测试"}\n'.encode()
    return Intent("u1", ("u2", "u3"), "p", "/h/x", "s", 1, 2, 3, line, 4, 5, payload, PURPOSE.label)


@pytest.mark.parametrize(
    "payload",
    [
        TitleLine("Mine", TitleSource.MANUAL, yields=False),
        TitleLine("Ours", TitleSource.AUTO, yields=True),
        RecapLine("Where it stood."),
    ],
)
def test_an_intent_comes_back_whole(payload: Payload) -> None:
    """A correction after a restart needs all of it: ids, place, times, and whose title it is."""
    before = intent(payload)
    after = intent_from_json(json.loads(json.dumps(intent_to_json(before))))
    assert after == before
    assert after is not None
    assert Purpose.of(after) == PURPOSE


@pytest.mark.parametrize("name", ["uuid", "spare", "offset", "line", "payload", "dev"])
def test_an_intent_that_is_not_whole_is_none(name: str) -> None:
    """Nothing is made up."""
    data = intent_to_json(intent(RecapLine("x")))
    del data[name]
    assert intent_from_json(data) is None
    assert intent_from_json({}) is None
