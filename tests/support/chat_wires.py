"""The wire formats that the chat server speaks beside OpenAI chat completions: what is offered, and how it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any


class Wire(Enum):
    """How a client speaks to the server, told by the path of its request."""

    CHAT = "chat completions"
    RESPONSES = "OpenAI responses"
    MESSAGES = "Anthropic messages"
    GEMINI = "Gemini generateContent"


Call = tuple[str, Mapping[str, object]]
"""A function call: its name and arguments."""


def wire_of(path: str) -> Wire | None:
    """The wire format of a request to `path` (without a query); None for any other path."""
    if path == "/v1/chat/completions":
        return Wire.CHAT
    if path.endswith("/v1/responses"):
        return Wire.RESPONSES
    if path.endswith("/v1/messages"):
        return Wire.MESSAGES
    return Wire.GEMINI if path.endswith((":generateContent", ":streamGenerateContent")) else None


def offered_functions(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The parameter schemas of the functions that a request offers, by name, in whichever wire format."""
    offered: list[Mapping[str, Any]] = []
    for tool in body.get("tools", ()):
        offered += tool.get("functionDeclarations", [tool.get("function", tool)])
    names = ("parameters", "input_schema", "parametersJsonSchema")
    return {str(each.get("name")): next((each[name] for name in names if name in each), {}) for each in offered}


def answer(wire: Wire, text: str, calls: Sequence[Call]) -> dict[str, object]:
    """A whole answer in that wire format (not chat completions): a text, function calls, or both."""
    match wire:
        case Wire.RESPONSES:
            content = [{"type": "output_text", "text": text, "annotations": []}]
            message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
            called = [
                {"type": "function_call", "call_id": "call_1", "name": name, "arguments": json.dumps(dict(arguments))}
                for name, arguments in calls
            ]
            usage = {"input_tokens": 50, "output_tokens": 9, "total_tokens": 59}
            output = [*([message] if text else []), *called]
            return {"id": "resp_1", "object": "response", "status": "completed", "output": output, "usage": usage}
        case Wire.MESSAGES:
            blocks = [{"type": "text", "text": text}] if text else []
            used = [
                {"type": "tool_use", "id": "toolu_1", "name": name, "input": dict(arguments)}
                for name, arguments in calls
            ]
            return {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [*blocks, *used],
                "stop_reason": "tool_use" if used else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 50, "output_tokens": 9},
            }
        case _:
            parts: list[object] = [{"text": text}] if text else []
            parts += [{"functionCall": {"name": name, "args": dict(arguments)}} for name, arguments in calls]
            candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
            usage = {"promptTokenCount": 50, "candidatesTokenCount": 9, "totalTokenCount": 59}
            return {"candidates": [candidate], "usageMetadata": usage}


def events(wire: Wire, text: str) -> Iterator[tuple[str, dict[str, object]]]:
    """A streamed answer that is a text: pairs of an event's name, "" for none, and its data."""
    whole = answer(wire, text, ())
    match wire:
        case Wire.RESPONSES:
            yield "response.created", {"type": "response.created", "response": {**whole, "output": []}}
            delta = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text}
            yield "response.output_text.delta", {"type": "response.output_text.delta", **delta}
            yield "response.completed", {"type": "response.completed", "response": whole}
        case Wire.MESSAGES:
            start = {**whole, "content": [], "stop_reason": None}
            yield "message_start", {"type": "message_start", "message": start}
            block = {"type": "text", "text": ""}
            yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
            piece = {"type": "text_delta", "text": text}
            yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": piece}
            yield "content_block_stop", {"type": "content_block_stop", "index": 0}
            end = {"stop_reason": "end_turn", "stop_sequence": None}
            yield "message_delta", {"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}}
            yield "message_stop", {"type": "message_stop"}
        case _:
            yield "", whole
