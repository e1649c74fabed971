"""The OpenAI responses API. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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

_SAMPLING: Final = frozenset({"temperature", "top_p"})
"""What of `samplingParams` this API has a field for (as Qwen Code sends it)."""
_NOT_EXTRA: Final = frozenset({"enable_thinking", "include"})
"""Fields of `extra_body` that belong to conversations: Qwen Code leaves them out of side calls too."""


def build_request(endpoint: Endpoint, plan: Plan, prompt: Prompt) -> HttpRequest:
    """The request for one answer, not streamed and not stored by the provider, in the form that `plan` says."""
    system = system_text(prompt, plan.form)
    body: dict[str, object] = {name: value for name, value in plan.sampling.items() if name in _SAMPLING}
    body["model"] = endpoint.model.strip()
    if not plan.merge_system:
        body["instructions"] = system
    body["input"] = chat(turns(prompt, system=system if plan.merge_system else ""))
    if "store" not in plan.dropped:
        body["store"] = False
    if plan.temperature is not None:
        body["temperature"] = plan.temperature
    if plan.token_field:
        body[plan.token_field] = plan.max_tokens
    if prompt.answer_key is not None:
        body.update(_form_fields(plan.form, prompt.answer_key))
    body.update({name: value for name, value in extra_fields(endpoint).items() if name not in _NOT_EXTRA})
    thinking.merge_switch(body, plan.thinking, WireApi.OPENAI_RESPONSES)
    key = reveal_key(endpoint)
    # As Qwen Code does: the base URL may be given with or without its version.
    versioned = base_path(endpoint).endswith("/v1")
    return HttpRequest(
        request_url(endpoint.base_url, "/responses" if versioned else "/v1/responses"),
        build_headers(endpoint, {"authorization": f"Bearer {key}"} if key else {}),
        as_body(body),
    )


def parse_reply(payload: Json, key: str | None) -> Reply:
    """What a response holds. Reasoning items and messages of the phase `commentary` are never text."""
    error = embedded_error(payload)
    if error is not None:
        return error
    output = as_list(payload.get("output"))
    incomplete = as_object(payload.get("incomplete_details")).get("reason")
    usage = as_object(payload.get("usage"))
    details = as_object(usage.get("output_tokens_details"))
    pieces = Pieces(
        at_limit=incomplete == "max_output_tokens",
        blocked=incomplete == "content_filter",
        thoughts=bool(count(details.get("reasoning_tokens"))),
        tokens_in=count(usage.get("input_tokens")),
        tokens_out=count(usage.get("output_tokens")),
    )
    if not output and not pieces.at_limit and not pieces.blocked:
        return Reply(problem="the answer has no output", tokens_in=pieces.tokens_in, tokens_out=pieces.tokens_out)
    for item in map(as_object, output):
        match item.get("type"):
            case "function_call":
                if not pieces.called or item.get("name") == FUNCTION_NAME:
                    pieces.arguments, pieces.called = item.get("arguments"), True
            case "reasoning":
                pieces.thoughts = True
            case "message" if item.get("phase") != "commentary":
                for part in map(as_object, as_list(item.get("content"))):
                    if part.get("type") == "output_text":
                        pieces.texts.append(as_text(part.get("text")))
                    elif part.get("type") == "refusal":
                        pieces.blocked = True
    return assemble(pieces, key)


def _form_fields(form: Form, key: str) -> Mapping[str, object]:
    schema = answer_schema(key)
    match form:
        case Form.FUNCTION | Form.FUNCTION_AUTO:
            tool = {
                "type": "function",
                "name": FUNCTION_NAME,
                "description": FUNCTION_DESCRIPTION,
                "parameters": schema,
            }
            tools: dict[str, object] = {"tools": [tool]}
            if form is Form.FUNCTION:
                tools["tool_choice"] = "required"
            return tools
        case Form.JSON_SCHEMA:
            named = {"type": "json_schema", "name": FUNCTION_NAME, "schema": schema, "strict": True}
            return {"text": {"format": named}}
        case Form.JSON_OBJECT:
            return {"text": {"format": {"type": "json_object"}}}
        case Form.PLAIN:
            return {}
