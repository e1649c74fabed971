"""An error names what it refuses, and nothing else."""

from __future__ import annotations

import json

import pytest

from tests.edge.text_model.harness import NOW, SPOKEN
from watcher.edge.text_model.error_words import Feature
from watcher.edge.text_model.refusals import Trouble, judge, read_refusal

SENT = json.dumps(
    dict.fromkeys(("model", "messages", "tools", "tool_choice", "temperature", "max_tokens", "chat_template_kwargs"), 1)
).encode()


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("'max_tokens' is not supported with reasoning models", {Feature.ANSWER_LIMIT}),
        ("temperature is not supported by thinking models", {Feature.TEMPERATURE}),
        ("tool_choice 'required' is not supported, leave the choice of tools to the model", {Feature.TOOL_CHOICE}),
        ("the model does not support tools in thinking mode", {Feature.TOOLS}),
        ("start with --jinja to use tool_choice", {Feature.TOOLS}),
        ("temperature and enable_thinking: extra inputs are not permitted", {Feature.TEMPERATURE, Feature.THINKING}),
        ("this is a reasoning model", {Feature.THINKING}),
        ("max_tokens: minimum value is 1024", {Feature.MORE_TOKENS}),
        ("system role not supported", {Feature.SYSTEM_ROLE}),
        ("temperature must not be set beside a system message", {Feature.TEMPERATURE}),
        ("response_format is not supported", set()),
        ("bad request", set()),
    ],
)
def test_what_an_error_names(text: str, features: set[Feature]) -> None:
    """Only what was sent, and not what merely explains it."""
    assert read_refusal(text, SENT).features == features


def test_the_conversation_in_an_error_decides_nothing() -> None:
    """Fields that repeat the request are not read, however deep they lie."""
    spoken = f"{SPOKEN} insufficient_quota, context length, temperature, data_inspection_failed"
    body = {"error": {"message": "no", "metadata": {"raw": json.dumps({"error": {"message": "x", "input": spoken}})}}}
    for fields in ({}, {"request": {"messages": [spoken]}}, {"body": spoken}, {"input": spoken}):
        verdict = judge(400, {}, json.dumps({**body, **fields}).encode(), SENT, NOW)
        assert verdict.trouble is Trouble.REFUSED
        assert verdict.refusal.features == frozenset()
        assert SPOKEN not in repr(verdict)


def test_the_words_of_a_provider_behind_a_gateway_are_read() -> None:
    """OpenRouter and others pass the inner error on as a text."""
    raw = json.dumps({"error": {"message": "temperature is not supported"}})
    body = json.dumps({"error": {"message": "Provider returned error", "metadata": {"raw": raw}}}).encode()
    assert judge(400, {}, body, SENT, NOW).refusal.features == {Feature.TEMPERATURE}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"\xff\xfe", b"[" * 50_000, b'{"error": null}', b'{"error": [[[[[["x"]]]]]]}']
)
@pytest.mark.parametrize("status", [400, 401, 404, 418, 429, 500, 599, 302])
def test_any_error_is_judged(status: int, body: bytes) -> None:
    """Whatever the body is."""
    assert judge(status, {}, body, SENT, NOW).phrase.startswith(f"HTTP {status}: ")
