"""One record as it stands in the file: the few fields that are read, None where missing or of a wrong type.

Big tool output, telemetry and thoughts are skipped by the decoder and never become Python values.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

from watcher.qwen.contract import ARTIFACT_SUBTYPES, JS_WHITESPACE, RECORD_TYPES
from watcher.qwen.jsonl import RawLine, parse_json, parse_objects

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_SPACE: Final = ord(" ")
_LAST_ASCII: Final = 0x7E
_SHORTEST_TEXT: Final = len('"x"')


class Call(Struct):
    """A `functionCall` or `functionResponse`: only which call it is."""

    id: str | None = None


class CallResult(Struct):
    """A `toolCallResult`: only which call it is of."""

    call_id: str | None = field(default=None, name="callId")


class Part(Struct):
    """One of `message.parts` (contract 2.2). `text` and `thought_signature` are undecoded JSON."""

    text: Raw = Raw()
    thought: bool | None = False
    thought_signature: Raw = field(default=Raw(), name="thoughtSignature")
    call: Call | None = field(default=None, name="functionCall")
    response: Call | None = field(default=None, name="functionResponse")


class Message(Struct):
    """`message` (contract 2.1); its role is that of the record's type, but for compressed history."""

    role: str | None = None
    parts: list[Part] | None = None


class Record(Struct):
    """A record (contract 2.1). `payload` is undecoded JSON, empty when absent.

    `parent` and `subtype` tell absent (UNSET) from null; a subtype that is no string counts as null.
    """

    uuid: str | None = None
    parent: str | UnsetType | None = field(default=UNSET, name="parentUuid")
    session_id: str | None = field(default=None, name="sessionId")
    timestamp: str | None = None
    type: str | None = None
    cwd: str | None = None
    version: str | None = None
    subtype: str | UnsetType | None = UNSET
    message: Message | None = None
    result: CallResult | None = field(default=None, name="toolCallResult")
    payload: Raw = field(default=Raw(), name="systemPayload")

    @property
    def parts(self) -> list[Part]:
        """`message.parts`, empty where there is none."""
        return (self.message.parts or []) if self.message else []

    @property
    def identified(self) -> bool:
        """Whether the identity fields are those of a record: without them the chain ignores it (contract 4.1)."""
        return bool(self.uuid and self.session_id) and self.parent is not UNSET

    @property
    def counted(self) -> bool:
        """Whether the reader takes it for a record at all: identified and of a known type (contract 4.1)."""
        return self.identified and self.type in RECORD_TYPES

    @property
    def chained(self) -> bool:
        """Whether it is a conversation record: one that counts and is no artifact (contract 2.3, 4.1)."""
        return self.counted and not (self.type == "system" and self.subtype in ARTIFACT_SUBTYPES)


_DECODER = msgspec.json.Decoder(Record)
_STRING_DECODER = msgspec.json.Decoder(str)


def records_of(line: RawLine) -> list[Record]:
    """The records that Qwen Code's tolerant reader finds in a line (contract 2.4). Never raises."""
    data = line.data
    if b"\r" in data:
        # Qwen Code's line reader ends a line at a bare carriage return, too.
        return [record for piece in data.split(b"\r") for record in _records_in(piece)]
    return _records_in(data)


def _records_in(data: bytes) -> list[Record]:
    try:
        return [_DECODER.decode(data)]
    except (ValueError, RecursionError):
        return [_lenient_record(found) for found in parse_objects(data)] if data else []


def is_blank(text: Raw) -> bool:
    """Whether a `text` field is absent, no string, or only white space in the sense of JavaScript."""
    view = memoryview(text)
    if view.nbytes < _SHORTEST_TEXT or view[0] != _QUOTE:
        return True
    if _SPACE < view[1] <= _LAST_ASCII and view[1] != _BACKSLASH:
        return False
    return not (text_of(text) or "").strip(JS_WHITESPACE)


def text_of(text: Raw) -> str | None:
    """The string that a field holds, None when it is absent or no string. Lone surrogates come as U+FFFD."""
    data = bytes(text)
    if not data or data[0] != _QUOTE:
        return None
    try:
        return _STRING_DECODER.decode(data)
    except ValueError:
        value = value_of(text)
        return well_formed(value) if isinstance(value, str) else None


def value_of(raw: Raw) -> object:
    """The Python value of an undecoded field, None when it is absent. Its strings may hold lone surrogates."""
    data = bytes(raw)
    if not data:
        return None
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        return parse_json(data.decode("utf-8", "replace"))
    except ValueError:
        return None


def messages_of(contents: object) -> list[Message]:
    """The messages of a decoded `compressedHistory`; what is no message is left out."""
    return [_lenient_message(one) for one in contents if isinstance(one, dict)] if isinstance(contents, list) else []


def is_truthy(raw: Raw) -> bool:
    """Whether JavaScript takes the field for true."""
    return bytes(raw) not in {b"", b"null", b"false", b"0", b'""'}


def well_formed(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD, so that it can be encoded."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def merge(fragments: list[Record]) -> Record:
    """One record of the records with the same uuid: the first, with the message parts of all (contract 2.4)."""
    first = fragments[0]
    if len(fragments) == 1:
        return first
    return structs.replace(first, message=Message(parts=[part for each in fragments for part in each.parts]))


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


def _lenient_record(found: dict[str, object]) -> Record:
    parent = found.get("parentUuid", UNSET)
    message, result = found.get("message"), found.get("toolCallResult")
    return Record(
        uuid=_string(found.get("uuid")),
        parent=parent if parent is None or isinstance(parent, str) else UNSET,
        session_id=_string(found.get("sessionId")),
        timestamp=_string(found.get("timestamp")),
        type=_string(found.get("type")),
        cwd=_string(found.get("cwd")),
        version=_string(found.get("version")),
        subtype=_string(found["subtype"]) if "subtype" in found else UNSET,
        message=_lenient_message(message) if isinstance(message, dict) else None,
        result=CallResult(call_id=_string(result.get("callId"))) if isinstance(result, dict) else None,
        payload=_raw(found["systemPayload"]) if "systemPayload" in found else Raw(),
    )


def _lenient_message(found: dict[str, object]) -> Message:
    parts = found.get("parts")
    return Message(
        role=_string(found.get("role")),
        parts=[_lenient_part(one) for one in parts if isinstance(one, dict)] if isinstance(parts, list) else None,
    )


def _lenient_part(found: dict[str, object]) -> Part:
    thought = found.get("thought")
    return Part(
        text=_raw(found["text"]) if "text" in found else Raw(),
        thought=isinstance(thought, (list, dict)) or bool(thought),
        thought_signature=_raw(found["thoughtSignature"]) if "thoughtSignature" in found else Raw(),
        call=_lenient_call(found.get("functionCall")),
        response=_lenient_call(found.get("functionResponse")),
    )


def _lenient_call(value: object) -> Call | None:
    if isinstance(value, dict):
        return Call(id=_string(value.get("id")))
    return Call() if value else None
