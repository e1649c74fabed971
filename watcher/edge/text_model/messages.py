"""The conversation in the shape that wire formats take: the user first, roles in turn, nothing blank. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from watcher.core.generation import Message, Prompt, Role
from watcher.edge.text_model import thinking
from watcher.edge.text_model.endpoint import Endpoint, clean_texts
from watcher.edge.text_model.learned import Form

FUNCTION_NAME: Final = "give_answer"
FUNCTION_DESCRIPTION: Final = "Hand over the answer."

_STREAMING: Final = ("stream", "stream_options")
_EARLIER: Final = "(The conversation before this point is left out.)"


def system_text(prompt: Prompt, form: Form) -> str:
    """The prompt's system text; where nothing else enforces it, with the form of the answer said in words."""
    enforced = form in (Form.FUNCTION, Form.JSON_SCHEMA)
    if prompt.answer_key is None or enforced or "json" in prompt.system.lower():
        return prompt.system
    wanted = json.dumps({prompt.answer_key: "…"}, ensure_ascii=False)
    return f"{prompt.system}\n\nAnswer with nothing but one JSON object: {wanted}"


def turns(prompt: Prompt, *, system: str = "") -> list[Message]:
    """The messages, those of one role that follow each other merged, blank ones left out, the first one a user's.

    `system` is put before the first one, for models that take no system text of its own.
    """
    merged: list[Message] = []
    for message in prompt.messages:
        if not message.text.strip():
            continue
        if merged and merged[-1].role is message.role:
            merged[-1] = Message(message.role, f"{merged[-1].text}\n\n{message.text}")
        else:
            merged.append(message)
    if not merged or merged[0].role is not Role.USER:
        merged.insert(0, Message(Role.USER, _EARLIER))
    if system:
        merged[0] = Message(Role.USER, f"{system}\n\n{merged[0].text}")
    return merged


def extra_fields(endpoint: Endpoint) -> dict[str, object]:
    """The entry's `extra_body` as far as it concerns a side call: no wish for thinking, and no event stream."""
    extra = thinking.without_effort(endpoint.extra_body)
    return {name: value for name, value in extra.items() if name not in _STREAMING}


def answer_schema(key: str) -> dict[str, object]:
    """JSON schema of the object with one required text."""
    return {"type": "object", "properties": {key: {"type": "string"}}, "required": [key], "additionalProperties": False}


def as_body(fields: dict[str, object]) -> bytes:
    """The JSON text of a request body in UTF-8, without lone surrogates."""
    return json.dumps(clean_texts(fields), ensure_ascii=False, separators=(",", ":")).encode()


def chat(messages: Sequence[Message]) -> list[object]:
    """Messages as most formats spell them."""
    return [{"role": message.role.value, "content": message.text} for message in messages]
