"""The glance at a session file agrees with the real readers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.transcripts import Transcript
from watcher.core.session import SessionState, fold_all
from watcher.qwen.contract import WINDOW_BYTES
from watcher.qwen.glance import Glance, glance, owner_of
from watcher.qwen.reading import events_of
from watcher.qwen.titles import first_prompt, read_title

_TEXTS = st.text(min_size=1, max_size=30) | st.sampled_from(["fix it", " ", "修复登录测试", '"customTitle":"x"'])
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["user", "assistant", "calls", "tool", "title", "manual", "untitle", "recap", "snapshot", "mark"]
        ),
        _TEXTS,
        st.sampled_from([0, 0, 0, 20_000, 70_000]),
    ),
    max_size=14,
)


def write(folder: Path, steps: list[tuple[str, str, int]]) -> Transcript:
    """A session in which these things happened; the number fills a record up to that size."""
    made = Transcript(folder)
    made.append(made.record("system", provenance="system", subtype="session_start", systemPayload={}))
    for kind, text, filler in steps:
        words = text + "x" * filler
        match kind:
            case "user":
                made.user(words)
            case "assistant":
                made.assistant(words)
            case "calls":
                made.assistant(words, calls=("call",))
            case "tool":
                made.tool_result("call")
            case "title":
                made.title(text)
            case "manual":
                made.title(text, None)
            case "untitle":
                made.title("", "manual")
            case "recap":
                made.recap(text)
            case "snapshot":
                made.snapshot()
            case "mark":
                made.system("turn_result", {})
    return made


def seen(path: Path) -> Glance:
    """The glance at a file."""
    data = path.read_bytes()
    found = glance(data[:WINDOW_BYTES], data[-WINDOW_BYTES:], len(data))
    assert found is not None
    return found


@settings(max_examples=150, deadline=None)
@given(_STEPS)
def test_a_glance_sees_what_the_readers_see(steps: list[tuple[str, str, int]]) -> None:
    """Title and prompt as the picker; turn, recap and times as the fold, as far as they are in sight."""
    with tempfile.TemporaryDirectory() as folder:
        made = write(Path(folder), steps)
        data = made.path.read_bytes()
        found = seen(made.path)
    shown = read_title(data[:WINDOW_BYTES], data[-WINDOW_BYTES:], len(data))
    assert found.title == (shown.title if shown is not None else "")
    assert found.prompt == first_prompt(data[:WINDOW_BYTES])
    assert found.cwd == made.cwd
    assert found.session_id == made.session_id
    if len(data) <= WINDOW_BYTES:
        state = fold_all(SessionState(), events_of(data, 0))
        assert found.running == state.running
        assert found.last_user_at == state.last_user_at
        assert found.last_activity_at == state.last_activity_at
        assert found.interactive == state.has_snapshot
        current = state.recap is not None and state.turns_since_recap == 0
        if current:
            assert state.recap is not None
            assert found.recap in (state.recap.text, "")
        else:
            assert found.recap == ""


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.binary(max_size=60) | st.sampled_from([b"{}", b"[]", b"null", b'{"type":1}', b'{"type":"user"}']), max_size=8
    )
)
def test_whatever_the_bytes_are_it_does_not_fail(lines: list[bytes]) -> None:
    """A file may hold anything."""
    data = b"\n".join(lines)
    glance(data, data, len(data))
    owner_of(data)


def test_odd_records_are_looked_past() -> None:
    """Fields of a kind that nobody expects."""
    odd: list[object] = [
        {"type": "user", "message": None, "timestamp": 7},
        {"type": "user", "message": {"parts": {}}, "timestamp": "soon"},
        {"type": "assistant", "message": {"parts": [None, {"text": 3}, {"functionCall": 1}]}},
        {"type": "system", "subtype": ["custom_title"], "systemPayload": 1},
        {"type": "system", "subtype": "custom_title", "systemPayload": {"customTitle": 5}},
        {"type": "system", "subtype": "slash_command", "systemPayload": {"phase": "result", "outputHistoryItems": [1]}},
        {"type": {"a": 1}, "cwd": 3, "sessionId": None},
    ]
    data = b"\n".join(json.dumps(record).encode() for record in odd)
    found = glance(data, data, len(data))
    assert found is not None
    assert (found.title, found.recap, found.prompt) == ("", "", "")


def test_an_owner_is_read_from_both_kinds_of_records() -> None:
    """The registry tells milliseconds, the sidecar seconds; anything else is nobody."""
    assert owner_of(b'{"pid": 7, "sessionId": "ABC", "startedAt": 1500, "procStart": "b:9"}') == (7, "abc", 1.5, "b:9")
    assert owner_of(b'{"pid": 7, "session_id": "abc", "started_at": 1.5, "procStart": 9}') == (7, "abc", 1.5, "")
    assert owner_of(b'{"pid": 7}') == (7, "", 0.0, "")
    for nobody in (b"", b"{", b"[]", b'{"pid": "7"}', b'{"pid": -7, "sessionId": "abc"}'):
        assert owner_of(nobody) is None
