"""Records into events, and our own lines."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.qwen.building import SESSION_ID, encoded, line, record, said, system, titled
from watcher.core.events import (
    AssistantSaid,
    Compressed,
    Event,
    InputArrived,
    InputKind,
    Noted,
    RecapShown,
    Rewound,
    SnapshotTaken,
    SourceNamed,
    TitleSet,
    TitleSource,
    ToolReturned,
    TurnEnded,
    Unknown,
    UserSaid,
)
from watcher.qwen.jsonl import RawLine
from watcher.qwen.records import MAX_TITLE_LENGTH, decode, encode_recap, encode_title, format_timestamp, parse_timestamp

COMMON: dict[str, Any] = {
    "uuid": "u",
    "parent": "p",
    "session_id": SESSION_ID,
    "at": 1_767_261_601.25,
    "cwd": "/c",
    "version": "0.24.4",
}


def one(whole: dict[str, object] | bytes) -> Event:
    """The only event of a line."""
    (event,) = decode(line(whole, 40))
    return event


def test_an_event_carries_what_every_record_has() -> None:
    """Identity, time, directory, version and the byte range of the line."""
    whole = said("b", "a", "user", "hi")
    assert one(whole) == UserSaid(
        uuid="b",
        parent="a",
        session_id=SESSION_ID,
        at=1_767_261_601.25,
        cwd="/home/user/proj",
        version="0.24.4",
        offset=40,
        end=40 + len(encoded(whole)) + 1,
    )


@pytest.mark.parametrize("text", ["x", " x", "\u0085", "\x1c", "\\", "é", "\u200b"])
def test_a_user_record_with_text_is_a_prompt(text: str) -> None:
    """One part that is not blank makes a user turn; what JavaScript does not trim is not blank."""
    assert isinstance(one(said("b", None, "user", "", text)), UserSaid)


@pytest.mark.parametrize("texts", [(), ("",), (" \n\t",), ("\u3000\ufeff\u00a0\u2028",)])
def test_a_user_record_without_text_is_blank_input(texts: tuple[str, ...]) -> None:
    """No part, or only white space in the sense of JavaScript: no user turn."""
    event = one(said("b", None, "user", *texts))
    assert isinstance(event, InputArrived)
    assert event.kind is InputKind.BLANK


@pytest.mark.parametrize(
    ("subtype", "kind"),
    [
        ("mid_turn_user_message", InputKind.MID_TURN),
        ("notification", InputKind.NOTIFICATION),
        ("cron", InputKind.CRON),
        ("goal_runtime", InputKind.GOAL),
        ("realtime_message", InputKind.REALTIME),
        ("blank", InputKind.OTHER),
        ("new_thing", InputKind.OTHER),
    ],
)
def test_a_user_record_with_a_subtype_is_no_prompt(subtype: str, kind: InputKind) -> None:
    """Each kind of input has its name; an unknown one is OTHER."""
    event = one(said("b", "a", "user", "text", subtype=subtype))
    assert isinstance(event, InputArrived)
    assert event.kind is kind


@pytest.mark.parametrize(
    ("parts", "visible", "calls"),
    [
        ([{"text": "hm", "thought": True}, {"text": "done"}], True, ()),
        ([{"text": "hm", "thought": True}], False, ()),
        ([{"text": " "}, {"functionCall": {"id": "c1", "name": "glob", "args": {}}}], False, ("c1",)),
        ([{"text": "calling"}, {"functionCall": {"id": "c1"}}, {"functionCall": {}}], True, ("c1", "")),
        ([{"functionCall": None}, {"text": 5}, 7, None, {"text": "x", "thought": "yes"}], False, ()),
        ([{"functionCall": "odd"}, {"text": "x", "thought": 0}], True, ("",)),
        ([{"text": "signed", "thoughtSignature": "abc"}], True, ()),
    ],
)
def test_an_answer_tells_visible_text_and_open_calls(
    parts: list[object], visible: bool, calls: tuple[str, ...]
) -> None:
    """Thoughts are not visible; each call is named, without an id as an empty string."""
    event = one(record("b", "a", "assistant", message={"role": "model", "parts": parts}))
    assert isinstance(event, AssistantSaid)
    assert (event.visible, event.calls) == (visible, calls)


def test_a_tool_result_names_the_calls_it_closes() -> None:
    """The ids of its function responses; where there is none, that of the recorded result."""
    parts = [{"functionResponse": {"id": "c1", "response": {"output": "x" * 10_000}}}, {"functionResponse": {}}]
    event = one(record("b", "a", "tool_result", message={"parts": parts}, toolCallResult={"callId": "c9"}))
    assert isinstance(event, ToolReturned)
    assert event.calls == ("c1",)
    event = one(record("b", "a", "tool_result", toolCallResult={"callId": "c9", "resultDisplay": {}}))
    assert isinstance(event, ToolReturned)
    assert event.calls == ("c9",)


@pytest.mark.parametrize(
    ("subtype", "kind"),
    [
        ("rewind", Rewound),
        ("chat_compression", Compressed),
        ("file_history_snapshot", SnapshotTaken),
        ("session_source", SourceNamed),
        ("parent_session", SourceNamed),
        ("branch_checkpoint", TurnEnded),
        ("turn_result", TurnEnded),
        ("ui_telemetry", Noted),
        ("attribution_snapshot", Noted),
        ("goal_turn_end", Noted),
        ("never_seen", Noted),
    ],
)
def test_system_records_become_their_events(subtype: str, kind: type[Event]) -> None:
    """Each subtype that matters has its event; every other one is a conversation record, and noted."""
    event = one(system("b", "a", subtype, {"any": 1}))
    assert type(event) is kind
    assert event.chained


@pytest.mark.parametrize(
    ("payload", "title", "source"),
    [
        ({"customTitle": "A", "titleSource": "auto"}, "A", TitleSource.AUTO),
        ({"customTitle": "A", "titleSource": "manual"}, "A", TitleSource.MANUAL),
        ({"customTitle": "A", "titleSource": "robot"}, "A", None),
        ({"customTitle": "A", "titleSource": ["auto"]}, "A", None),
        ({"customTitle": "", "titleSource": "manual"}, "", TitleSource.MANUAL),
        ({"customTitle": "\ud800"}, "\ufffd", None),
        ({"customTitle": "t" * 100_000}, "t" * MAX_TITLE_LENGTH, None),
    ],
)
def test_a_title_record_sets_a_title(payload: object, title: str, source: TitleSource | None) -> None:
    """Any string is a title, also an empty one; a source that is not known is none."""
    event = one(system("b", "a", "custom_title", payload))
    assert isinstance(event, TitleSet)
    assert (event.title, event.source) == (title, source)


@pytest.mark.parametrize("payload", [..., None, {}, [], {"customTitle": 5}, {"customTitle": None}, "x"])
def test_a_title_record_without_a_title_sets_none(payload: object) -> None:
    """It stays a conversation record."""
    event = one(system("b", "a", "custom_title", payload))
    assert type(event) is Noted
    assert event.chained


@pytest.mark.parametrize("strip", ["uuid", "parentUuid", "sessionId"])
def test_a_title_without_identity_still_is_a_title(strip: str) -> None:
    """The picker reads it as text (vectors T15, C24); the chain leaves it out, and its session id does not count."""
    event = one({**titled("b", "a", "Named"), strip: 5})
    assert isinstance(event, TitleSet)
    assert (event.title, event.chained, event.session_id) == ("Named", False, "")


def test_a_recap_is_an_away_recap_item_of_a_result() -> None:
    """An invocation, another item or a blank text is none."""
    item = {"type": "away_recap", "text": "Fixing login. Next: tests."}
    event = one(system("b", "a", "slash_command", {"phase": "result", "outputHistoryItems": [5, {"type": "x"}, item]}))
    assert isinstance(event, RecapShown)
    assert event.text == "Fixing login. Next: tests."
    for payload in (
        {"phase": "invocation", "outputHistoryItems": [item]},
        {"phase": "result", "outputHistoryItems": item},
        {"phase": "result", "outputHistoryItems": [{"type": "away_recap", "text": " "}]},
        {"phase": "result", "outputHistoryItems": [{"type": "error", "text": "no"}]},
        None,
    ):
        assert type(one(system("b", "a", "slash_command", payload))) is Noted


@pytest.mark.parametrize(
    ("change", "chained"),
    [
        ({}, True),
        ({"parentUuid": None}, True),
        ({"uuid": ""}, False),
        ({"uuid": 5}, False),
        ({"parentUuid": 5}, False),
        ({"parentUuid": ...}, False),
        ({"sessionId": ...}, False),
        ({"type": "weird"}, False),
        ({"type": ["user"]}, False),
        ({"type": ...}, False),
        ({"type": "system", "subtype": "session_artifact_event"}, False),
        ({"type": "system", "subtype": "managed_session_commit_v1"}, False),
        ({"type": "user", "subtype": "session_artifact_event"}, True),
        ({"timestamp": 5, "cwd": [], "version": {}, "message": 7, "systemPayload": 1, "toolCallResult": "x"}, True),
    ],
)
def test_only_conversation_records_are_chained(change: dict[str, object], chained: bool) -> None:
    """A bad identity, an unknown type and artifact groups are left out; odd values elsewhere change nothing (4.1)."""
    event = one(
        record("b", "a", "system", **change) if "uuid" not in change else {**record("b", "a", "user"), **change}
    )
    assert event.chained is chained


def test_an_unknown_type_is_named() -> None:
    """It is skipped by the chain, and remembered as what it is."""
    event = one(record("b", "a", "weird"))
    assert isinstance(event, Unknown)
    assert event.type == "weird"


def test_an_empty_parent_is_no_parent() -> None:
    """Qwen Code stops at it as at null, without a gap."""
    event = one(said("b", "", "user", "hi"))
    assert (event.parent, event.chained) == (None, True)


@pytest.mark.parametrize(
    ("mangle", "uuids"),
    [
        (lambda data: data, ["b"]),
        (lambda data: data + b"\r", ["b"]),
        (lambda data: b"\xef\xbb\xbf" + data, ["b"]),
        (lambda data: b"\0\0" + data, ["b"]),
        (lambda data: data + data, ["b", "b"]),
        (lambda data: data + b"\r" + data, ["b", "b"]),
        (lambda data: data[:50] + b"\r" + data, ["b"]),
        (lambda data: data[:50] + data, []),
        (lambda data: data.replace(b"hi", b"h\xff"), ["b"]),
        (lambda data: data.replace(b"hi", b"\\ud83d"), ["b"]),
        (lambda data: data.replace(b'"type"', b'"deep":' + b"[" * 3_000 + b"]" * 3_000 + b',"type"'), ["b"]),
        (lambda data: data.replace(b'"type"', b'"uuid":"c","n":' + b"9" * 5_000 + b',"type"'), ["c"]),
        (lambda data: data.replace(b'"type"', b'"\\u0075uid":"d","type"'), ["d"]),
        (lambda data: b"[" + data + b"]", []),
        (lambda data: data[:-1], []),
    ],
)
def test_records_are_found_as_the_native_reader_finds_them(mangle: Callable[[bytes], bytes], uuids: list[str]) -> None:
    """CRLF, BOM, NUL bytes, glue, odd characters, depth, long numbers and repeated keys (contract 2.4)."""
    assert [event.uuid for event in decode(line(mangle(encoded(said("b", "a", "user", "hi")))))] == uuids


def test_text_with_line_separators_is_one_record() -> None:
    """U+2028 and U+0085 inside a string are content."""
    assert isinstance(one(said("b", "a", "user", "a\u2028b\u0085c")), UserSaid)


def test_a_damaged_file_gives_its_good_records() -> None:
    """A bad third line of a hundred, a run of NUL bytes, and an object broken over three lines cost nothing else."""
    good = [encoded(said(f"u{index}", f"u{index - 1}", "user", "hi")) for index in range(100)]
    good[2] = good[2][:40]
    good[50] = b"\0" * 400
    good[60:60] = encoded(said("broken", "x", "user", "one\\ntwo")).replace(b"\\\\n", b"\n").split(b"\n")
    uuids = [event.uuid for data in good for event in decode(line(data))]
    assert uuids == [f"u{index}" for index in range(100) if index not in (2, 50)]


def test_an_oversized_line_has_no_events() -> None:
    """It was skipped, so nothing is known of it."""
    assert decode(RawLine(0, 100_000_000, b"", oversized=True)) == ()


def test_big_tool_output_is_not_taken_into_memory() -> None:
    """A record of 40 MB costs no more than a small one (report D8)."""
    big = {"output": "x" * 20_000_000}
    raw = line(record("b", "a", "tool_result", toolCallResult={"callId": "c", "resultDisplay": big}, extra=big))
    tracemalloc.start()
    try:
        events = decode(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [type(event) for event in events] == [ToolReturned]
    assert peak < 100_000


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    """Whatever a line holds, decoding gives events or none."""
    assert all(isinstance(event, Event) for event in decode(line(data)))


odd_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["text", "id", "parts"]), inner),
    max_leaves=4,
)
fields = [
    "uuid",
    "parentUuid",
    "sessionId",
    "timestamp",
    "type",
    "subtype",
    "cwd",
    "version",
    "message",
    "systemPayload",
]


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*fields, "toolCallResult"]), odd_values),
    st.sampled_from(["user", "assistant", "system"]),
)
def test_no_field_of_a_wrong_type_raises(change: dict[str, object], kind: str) -> None:
    """Every field may hold anything; the event is there all the same."""
    subtype = "custom_title" if kind == "system" else ...
    whole = {**record("b", "a", kind, message={"parts": [{"text": "x"}]}, subtype=subtype), **change}
    assert isinstance(one(json.dumps(whole).encode()), Event)


def test_our_title_line_is_the_template() -> None:
    """Byte for byte the record of contract 4.5: order, compact separators, one newline."""
    assert (
        encode_title(**COMMON, title='登录 "x"\n\u2028')
        == (
            '{"uuid":"u","parentUuid":"p","sessionId":"11111111-1111-4111-8111-111111111111",'
            '"timestamp":"2026-01-01T10:00:01.250Z","type":"system","provenance":"system","cwd":"/c","version":"0.24.4",'
            '"subtype":"custom_title","systemPayload":{"customTitle":"登录 \\"x\\"\\n\u2028","titleSource":"auto"}}\n'
        ).encode()
    )


def test_our_recap_line_is_the_template() -> None:
    """The lone result record that a focus-triggered recap of Qwen Code writes."""
    assert encode_recap(**COMMON, text="Adding a retry.").endswith(
        b'"version":"0.24.4","subtype":"slash_command","systemPayload":{"phase":"result","rawCommand":"/recap",'
        b'"outputHistoryItems":[{"type":"away_recap","text":"Adding a retry."}]}}\n'
    )


def test_lone_surrogates_are_written_as_escapes() -> None:
    """What UTF-8 cannot hold keeps its value: a directory read from a record is copied exactly."""
    data = encode_title(**{**COMMON, "cwd": "/a\ud800b"}, title="x")
    assert b'"cwd":"/a\\ud800b"' in data
    assert json.loads(data)["cwd"] == "/a\ud800b"
    assert one(data[:-1]).cwd == "/a\ud800b"


texts = st.text(st.characters(exclude_categories=()), max_size=30)


@settings(deadline=None)
@given(texts, st.sampled_from(TitleSource))
def test_a_title_comes_back_as_it_was_written(title: str, source: TitleSource) -> None:
    """Encoding and decoding agree; only what no text can hold is replaced."""
    data = encode_title(**COMMON, title=title, source=source)
    assert data.count(b"\n") == 1
    event = one(data[:-1])
    assert isinstance(event, TitleSet)
    assert (event.title, event.source) == (title.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), source)
    assert (event.uuid, event.parent, event.session_id, event.at) == ("u", "p", SESSION_ID, COMMON["at"])
    assert b'"subtype":"custom_title"' in data


@settings(deadline=None)
@given(texts.filter(lambda text: text.strip() != ""), st.text(max_size=10))
def test_a_recap_comes_back_as_it_was_written(text: str, cwd: str) -> None:
    """The recap and what was copied from the parent."""
    event = one(encode_recap(**{**COMMON, "cwd": cwd}, text=text)[:-1])
    assert isinstance(event, RecapShown)
    assert event.text == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert (event.cwd, event.version) == (cwd, "0.24.4")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-01T10:00:01.250Z", 1_767_261_601.25),
        ("2026-01-01T12:00:01.250+02:00", 1_767_261_601.25),
        ("2026-01-01T10:00:01.250", 1_767_261_601.25),
        ("nope", None),
        ("", None),
        ("2026-13-01T00:00:00Z", None),
    ],
)
def test_timestamps_are_read_as_seconds(text: str, at: float | None) -> None:
    """ISO 8601 with or without a zone; what cannot be read is none."""
    assert parse_timestamp(text) == at


@settings(deadline=None)
@given(st.integers(0, 4_102_444_800_000))
def test_a_timestamp_comes_back(milliseconds: int) -> None:
    """Writing and reading agree to the millisecond, in the 24 characters that Qwen Code writes."""
    text = format_timestamp(milliseconds / 1000)
    assert len(text) == 24
    assert text.endswith("Z")
    assert parse_timestamp(text) == pytest.approx(milliseconds / 1000, abs=0.001)
