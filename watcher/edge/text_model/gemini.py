"""Gemini `generateContent` with an API key. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from watcher.core.generation import Message, Prompt, Role
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
    as_body,
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

_SAMPLING: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "topP": "topP",
    "topK": "topK",
}
_VERSIONED: Final = ("/v1beta", "/v1", "/v1alpha", "/publishers/google")
"""Ends of base URLs that name the version of the API already; the last one is Vertex AI's, with an API key."""
_BLOCKED: Final = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"})


def build_request(endpoint: Endpoint, plan: Plan, prompt: Prompt) -> HttpRequest:
    """The request for one answer, in the form that `plan` says. The key goes into a header, never the address."""
    system = system_text(prompt, plan.form)
    settings: dict[str, object] = {_SAMPLING[name]: value for name, value in plan.sampling.items() if name in _SAMPLING}
    settings["maxOutputTokens"] = plan.max_tokens
    if plan.temperature is not None:
        settings["temperature"] = plan.temperature
    body: dict[str, object] = {"contents": _contents(turns(prompt, system=system if plan.merge_system else ""))}
    if system and not plan.merge_system:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if prompt.answer_key is not None:
        _add_form(body, settings, plan.form, prompt.answer_key)
    extra = extra_fields(endpoint)
    more = extra.pop("generationConfig", None)
    if isinstance(more, Mapping):
        settings.update(more)
    body.update(extra)
    thinking.merge_switch(settings, plan.thinking, WireApi.GEMINI)
    body["generationConfig"] = settings
    key = reveal_key(endpoint)
    model = quote(endpoint.model.strip().removeprefix("models/"), safe="")
    version = "" if base_path(endpoint).endswith(_VERSIONED) else "/v1beta"
    return HttpRequest(
        request_url(endpoint.base_url, f"{version}/models/{model}:generateContent"),
        build_headers(endpoint, {"x-goog-api-key": key} if key else {}),
        as_body(body),
    )


def parse_reply(payload: Json, key: str | None) -> Reply:
    """What a response holds. Parts marked as thought are never text."""
    error = embedded_error(payload)
    if error is not None:
        return error
    usage = as_object(payload.get("usageMetadata"))
    tokens_in = count(usage.get("promptTokenCount"))
    tokens_out = count(usage.get("candidatesTokenCount"), usage.get("thoughtsTokenCount"))
    candidates = as_list(payload.get("candidates"))
    if not candidates:
        if as_object(payload.get("promptFeedback")).get("blockReason"):
            return Reply(blocked=True, tokens_in=tokens_in, tokens_out=tokens_out)
        return Reply(problem="the answer has no candidates", tokens_in=tokens_in, tokens_out=tokens_out)
    candidate = as_object(candidates[0])
    pieces = Pieces(
        at_limit=candidate.get("finishReason") == "MAX_TOKENS",
        blocked=as_text(candidate.get("finishReason")) in _BLOCKED,
        thoughts=bool(count(usage.get("thoughtsTokenCount"))),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
    )
    for part in map(as_object, as_list(as_object(candidate.get("content")).get("parts"))):
        call = part.get("functionCall")
        if part.get("thought") is True:
            pieces.thoughts = True
        elif isinstance(call, Mapping):
            pieces.arguments, pieces.called = call.get("args"), True
        else:
            pieces.texts.append(as_text(part.get("text")))
    # Parts are pieces of one text here, not paragraphs.
    pieces.texts = ["".join(pieces.texts)]
    return assemble(pieces, key)


def _contents(messages: list[Message]) -> list[object]:
    roles = {Role.USER: "user", Role.ASSISTANT: "model"}
    return [{"role": roles[message.role], "parts": [{"text": message.text}]} for message in messages]


def _add_form(body: dict[str, object], settings: dict[str, object], form: Form, key: str) -> None:
    # This API's schemas know no `additionalProperties`.
    schema = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    if form in (Form.FUNCTION, Form.FUNCTION_AUTO):
        declaration = {"name": FUNCTION_NAME, "description": FUNCTION_DESCRIPTION, "parameters": schema}
        body["tools"] = [{"functionDeclarations": [declaration]}]
        if form is Form.FUNCTION:
            mode = {"mode": "ANY", "allowedFunctionNames": [FUNCTION_NAME]}
            body["toolConfig"] = {"functionCallingConfig": mode}
    elif form is Form.JSON_SCHEMA:
        settings["responseMimeType"] = "application/json"
        settings["responseSchema"] = schema
