"""OpenAI chat completions, and everything that is compatible with them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from watcher.core.generation import Prompt
from watcher.edge.text_model import thinking
from watcher.edge.text_model.endpoint import Endpoint, HttpRequest, WireApi, build_headers, request_url, reveal_key
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

_NOT_SAMPLING: Final = frozenset(
    ("model", "messages", "stream", "stream_options", "n", "tools", "tool_choice", "functions", "response_format")
)
"""What `samplingParams` cannot change here: the request would be another one."""


def build_request(endpoint: Endpoint, plan: Plan, prompt: Prompt) -> HttpRequest:
    """The request for one answer, not streamed, in the form that `plan` says."""
    system = system_text(prompt, plan.form)
    body: dict[str, object] = {name: value for name, value in plan.sampling.items() if name not in _NOT_SAMPLING}
    body["model"] = endpoint.model.strip()
    if plan.merge_system:
        body["messages"] = chat(turns(prompt, system=system))
    else:
        body["messages"] = [{"role": "system", "content": system}, *chat(turns(prompt))]
    body["stream"] = False
    if plan.temperature is not None:
        body["temperature"] = plan.temperature
    if plan.token_field:
        body[plan.token_field] = plan.max_tokens
    if prompt.answer_key is not None:
        body.update(_form_fields(plan.form, prompt.answer_key))
    body.update(extra_fields(endpoint))
    thinking.merge_switch(body, plan.thinking, WireApi.OPENAI)
    key = reveal_key(endpoint)
    return HttpRequest(
        request_url(endpoint.base_url, "/chat/completions"),
        build_headers(endpoint, {"authorization": f"Bearer {key}"} if key else {}),
        as_body(body),
    )


def parse_reply(payload: Json, key: str | None) -> Reply:
    """What a chat completion holds. `reasoning_content`, `reasoning` and thought parts are never text."""
    error = embedded_error(payload)
    if error is not None:
        return error
    choices = as_list(payload.get("choices"))
    if not choices:
        return Reply(problem="the answer has no choices")
    choice = as_object(choices[0])
    message = as_object(choice.get("message"))
    usage = as_object(payload.get("usage"))
    details = as_object(usage.get("completion_tokens_details"))
    pieces = Pieces(
        at_limit=choice.get("finish_reason") in ("length", "max_tokens"),
        blocked=choice.get("finish_reason") == "content_filter" or bool(as_text(message.get("refusal")).strip()),
        thoughts=bool(count(details.get("reasoning_tokens")))
        or any(message.get(name) for name in ("reasoning_content", "reasoning", "reasoning_details")),
        tokens_in=count(usage.get("prompt_tokens")),
        tokens_out=count(usage.get("completion_tokens")),
    )
    _read_call(message, pieces)
    content = message.get("content")
    if isinstance(content, str):
        pieces.texts.append(content)
    for part in as_list(content):
        _read_part(as_object(part), pieces)
    if not message and isinstance(choice.get("text"), str):
        pieces.texts.append(as_text(choice.get("text")))
    return assemble(pieces, key)


def _form_fields(form: Form, key: str) -> Mapping[str, object]:
    schema = answer_schema(key)
    match form:
        case Form.FUNCTION | Form.FUNCTION_AUTO:
            function = {"name": FUNCTION_NAME, "description": FUNCTION_DESCRIPTION, "parameters": schema}
            tools: dict[str, object] = {"tools": [{"type": "function", "function": function}]}
            if form is Form.FUNCTION:
                # The word, not an object with the name: some servers know only the words.
                tools["tool_choice"] = "required"
            return tools
        case Form.JSON_SCHEMA:
            named = {"name": FUNCTION_NAME, "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        case Form.JSON_OBJECT:
            return {"response_format": {"type": "json_object"}}
        case Form.PLAIN:
            return {}


def _read_call(message: Json, pieces: Pieces) -> None:
    calls = [as_object(as_object(call).get("function")) for call in as_list(message.get("tool_calls"))]
    legacy = message.get("function_call")
    if legacy is not None:
        calls.append(as_object(legacy))
    for call in calls:
        if not pieces.called or call.get("name") == FUNCTION_NAME:
            pieces.arguments, pieces.called = call.get("arguments"), True


def _read_part(part: Json, pieces: Pieces) -> None:
    if part.get("type") in ("text", "output_text", None):
        pieces.texts.append(as_text(part.get("text")))
    elif part.get("type") in ("thinking", "reasoning", "thought"):
        pieces.thoughts = True
