"""Replies whose values have another type than documented: every wire format reads them, and none raises."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.edge.text_model.harness import NOW
from tests.edge.text_model.quirks import TITLE
from tests.support.odd_values import with_odd_values
from watcher.edge.text_model import WireApi, anthropic, gemini, openai_chat, openai_responses
from watcher.edge.text_model.refusals import judge
from watcher.edge.text_model.reply import Json, Reply

PARSERS: dict[WireApi, Callable[[Json, str | None], Reply]] = {
    WireApi.OPENAI: openai_chat.parse_reply,
    WireApi.OPENAI_RESPONSES: openai_responses.parse_reply,
    WireApi.ANTHROPIC: anthropic.parse_reply,
    WireApi.GEMINI: gemini.parse_reply,
}
CALL = {"name": "give_answer", "arguments": json.dumps({"title": TITLE})}
REPLIES: dict[WireApi, dict[str, object]] = {
    WireApi.OPENAI: {
        "error": None,
        "choices": [
            {
                "message": {
                    "content": [{"type": "text", "text": TITLE}],
                    "refusal": None,
                    "reasoning_content": "x",
                    "tool_calls": [{"function": CALL}],
                    "function_call": CALL,
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 1}},
    },
    WireApi.OPENAI_RESPONSES: {
        "error": None,
        "status": "completed",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "function_call", **CALL},
            {"type": "message", "phase": "final", "content": [{"type": "output_text", "text": TITLE}]},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 1}},
    },
    WireApi.ANTHROPIC: {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "x"},
            {"type": "text", "text": TITLE},
            {"type": "tool_use", "name": "give_answer", "input": {"title": TITLE}},
        ],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "cache_read_input_tokens": 1, "output_tokens": 1},
    },
    WireApi.GEMINI: {
        "promptFeedback": {"blockReason": None},
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "x", "thought": True},
                        {"text": TITLE},
                        {"functionCall": {"name": "give_answer", "args": {"title": TITLE}}},
                    ]
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "thoughtsTokenCount": 1},
    },
}
ERROR: dict[str, object] = {
    "type": "error",
    "error": {
        "message": "temperature is not supported",
        "code": 400,
        "type": "invalid_request_error",
        "param": "temperature",
        "details": [{"loc": ["body", "temperature"], "msg": "x"}],
        "metadata": {"raw": '{"error": "x"}'},
    },
}


@pytest.mark.parametrize("key", ["title", None])
@pytest.mark.parametrize("protocol", PARSERS)
def test_a_value_of_another_type_never_raises(protocol: WireApi, key: str | None) -> None:
    """Whatever stands in one place of a reply; and the sound one gives the title."""
    parse = PARSERS[protocol]
    assert parse(REPLIES[protocol], "title").text == TITLE
    for reply in with_odd_values(REPLIES[protocol]):
        if isinstance(reply, dict):
            read = parse(reply, key)
            assert isinstance(read.text, str)


def test_an_error_of_another_type_never_raises() -> None:
    """Whatever stands in one place of an error; it is judged by its status then."""
    sent = json.dumps({"temperature": 0.2, "messages": []}).encode()
    for error in with_odd_values(ERROR):
        assert judge(400, {}, json.dumps(error).encode(), sent, NOW).status == 400
