"""What an endpoint has taught, as a value that the store keeps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from watcher.core.generation import Kind
from watcher.edge.text_model.thinking import Switch

MAX_THINKING_TOKENS: Final = 4096
"""Answer tokens for a model that used up `THINKING_TOKENS` without a word; there is no third step."""

_FORMAT_VERSION: Final = 1


class Form(StrEnum):
    """How a keyed answer is asked for."""

    FUNCTION = "function"
    """A function call, forced."""
    FUNCTION_AUTO = "function_auto"
    """A function that the model may call."""
    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    PLAIN = "plain"
    """Text; the prompt itself asks for JSON or tags."""


class TokenField(StrEnum):
    """The name of the limit on answer tokens in OpenAI chat completions; the other formats have one name each."""

    BY_MODEL = "by_model"
    MAX_TOKENS = "max_tokens"
    MAX_COMPLETION_TOKENS = "max_completion_tokens"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Learned:
    """What one endpoint and model (`Endpoint.key`) have taught; kept in the store, never shared between endpoints."""

    form: Form = Form.FUNCTION
    token_field: TokenField = TokenField.BY_MODEL
    thinking: Switch | None = None
    """None: as contract 7.5 says."""
    min_tokens: int = 0
    dropped: frozenset[str] = frozenset()
    """Names of body fields that are refused."""
    merge_system: bool = False
    """The model takes no system text of its own."""
    extra_requests: int = 0
    """Requests that learning has cost so far, at most `MAX_EXTRA_REQUESTS`."""
    answered: frozenset[Kind] = frozenset()
    """The kinds of text that this endpoint has given."""

    def to_json(self) -> str:
        """One line of JSON for the store."""
        return json.dumps(
            {
                "v": _FORMAT_VERSION,
                "form": self.form,
                "token_field": self.token_field,
                "thinking": self.thinking,
                "min_tokens": self.min_tokens,
                "dropped": sorted(self.dropped),
                "merge_system": self.merge_system,
                "extra_requests": self.extra_requests,
                "answered": sorted(self.answered),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Learned | None:
        """What `to_json` wrote; None for anything else, so that a foreign or broken entry is learned anew."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data["v"] != _FORMAT_VERSION:
                return None
            return cls(
                form=Form(data["form"]),
                token_field=TokenField(data["token_field"]),
                thinking=None if data["thinking"] is None else Switch(data["thinking"]),
                min_tokens=min(MAX_THINKING_TOKENS, max(0, int(data["min_tokens"]))),
                dropped=frozenset(str(name) for name in data["dropped"]),
                merge_system=bool(data["merge_system"]),
                extra_requests=max(0, int(data["extra_requests"])),
                answered=frozenset(Kind(kind) for kind in data["answered"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
