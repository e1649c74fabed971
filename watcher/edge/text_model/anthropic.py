"""Anthropic messages. Pure."""

from __future__ import annotations

from typing import Final

from watcher.core.generation import Prompt
from watcher.edge.text_model import thinking
from watcher.edge.text_model.endpoint import (
    Endpoint,
    HttpRequest,
    WireApi,
    base_path,
    build_headers,
    request_url,
    reveal_key,
)
from watcher.edge.text_model.ladder import Plan
from watcher.edge.text_model.learned import Form
from watcher.edge.text_model.messages import (
    FUNCTION_DESCRIPTION,
    FUNCTION_NAME,
    answer_schema,
    as_body,
    chat,
    extra_fields,
    system_text,
    turns,
)
from watcher.edge.text_model.reply import (
    Json,
    Pieces,
    Reply,
    as_list,
    as_object,
    as_text,
    assemble,
    count,
    embedded_error,
)

API_VERSION: Final = "2023-06-01"
"""The one version of the messages API; it is a header of every request."""

_SAMPLING: Final = frozenset({"temperature", "top_p", "top_k", "stop_sequences"})


def build_request(endpoint: Endpoint, plan: Plan, prompt: Prompt) -> HttpRequest:
    """The request for one answer, not streamed, in the form that `plan` says."""
    system = system_text(prompt, plan.form)
    body: dict[str, object] = {name: value for name, value in plan.sampling.items() if name in _SAMPLING}
    body["model"] = endpoint.model.strip()
    body["max_tokens"] = plan.max_tokens
    if system and not plan.merge_system:
        body["system"] = system
    body["messages"] = chat(turns(prompt, system=system if plan.merge_system else ""))
    if plan.temperature is not None:
        body["temperature"] = plan.temperature
    if prompt.answer_key is not None and plan.form in (Form.FUNCTION, Form.FUNCTION_AUTO):
        schema = answer_schema(prompt.answer_key)
        body["tools"] = [{"name": FUNCTION_NAME, "description": FUNCTION_DESCRIPTION, "input_schema": schema}]
        if plan.form is Form.FUNCTION:
            body["tool_choice"] = {"type": "tool", "name": FUNCTION_NAME}
    body.update(extra_fields(endpoint))
    thinking.merge_switch(body, plan.thinking, WireApi.ANTHROPIC)
    key = reveal_key(endpoint)
    own = {"anthropic-version": API_VERSION}
    if key:
        own |= {"authorization": f"Bearer {key}"} if endpoint.bearer else {"x-api-key": key}
    suffix = "/messages" if base_path(endpoint).endswith("/v1") else "/v1/messages"
    return HttpRequest(request_url(endpoint.base_url, suffix), build_headers(endpoint, own), as_body(body))


def parse_reply(payload: Json, key: str | None) -> Reply:
    """What a message holds. Thinking blocks, shown or redacted, are never text."""
    if payload.get("type") == "error":
        payload = {"error": payload.get("error") or {"type": "error"}}
    error = embedded_error(payload)
    if error is not None:
        return error
    usage = as_object(payload.get("usage"))
    stop = payload.get("stop_reason")
    cached = (usage.get("cache_creation_input_tokens"), usage.get("cache_read_input_tokens"))
    pieces = Pieces(
        at_limit=stop == "max_tokens",
        blocked=stop == "refusal",
        tokens_in=count(usage.get("input_tokens"), *cached),
        tokens_out=count(usage.get("output_tokens")),
    )
    content = payload.get("content")
    if not isinstance(content, list | str):
        return Reply(problem="the answer has no content", tokens_in=pieces.tokens_in, tokens_out=pieces.tokens_out)
    if isinstance(content, str):
        pieces.texts.append(content)
    for block in map(as_object, as_list(content)):
        match block.get("type"):
            case "tool_use":
                if not pieces.called or block.get("name") == FUNCTION_NAME:
                    pieces.arguments, pieces.called = block.get("input"), True
            case "thinking" | "redacted_thinking":
                pieces.thoughts = True
            case "text":
                pieces.texts.append(as_text(block.get("text")))
    return assemble(pieces, key)
