"""What a chosen model is: endpoint, key and the user's wishes for calling it, or the precise missing piece.

Contract 7.4 and 7.5. `qwen.model_chooser` chooses from Qwen Code's settings, `explicit_choice` from our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from watcher.core.secret import SecretText
from watcher.qwen.providers import DEFAULT_BASE_URLS, KEY_VARIABLES, AuthType


class Protocol(StrEnum):
    """How the model's endpoint is spoken to."""

    OPENAI = "openai"
    OPENAI_RESPONSES = "openai_responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"


PROTOCOLS: Final = {
    AuthType.OPENAI: Protocol.OPENAI,
    AuthType.OPENAI_RESPONSES: Protocol.OPENAI_RESPONSES,
    AuthType.ANTHROPIC: Protocol.ANTHROPIC,
    AuthType.GEMINI: Protocol.GEMINI,
    AuthType.VERTEX_AI: Protocol.GEMINI,
}
"""How each auth type is spoken to; qwen-oauth is not (contract 7.6)."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One model that can be called, with everything that the user's settings say about calling it.

    `api_key` None: the request goes without one. `key_name` is the variable or setting that the key came from, empty
    without a key. `sampling` None: no `samplingParams` were given. `timeout_seconds` None: none was given.
    `capabilities_reasoning` is the entry's `capabilities.reasoning` as it stands (contract 7.5). `bearer`: the key goes
    into the header `Authorization`, although the protocol has another one for it.
    """

    id: str
    auth_type: str
    protocol: Protocol
    base_url: str = field(repr=False)  # it may hold a password
    api_key: SecretText | None = None
    key_name: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sampling: Mapping[str, object] | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict, repr=False)
    timeout_seconds: float | None = None
    thinking_mandatory: bool = False
    capabilities_reasoning: Mapping[str, object] = field(default_factory=dict)
    bearer: bool = False

    @property
    def missing(self) -> str:
        """Always empty: nothing is missing. The counterpart of `Missing.missing`."""
        return ""


@dataclass(frozen=True, slots=True)
class Missing:
    """No model can be called; `reason` is the precise missing piece, for people.

    `variable` names the environment variable that should hold the key, where that is the missing piece.
    """

    reason: str
    variable: str = field(default="", compare=False)

    @property
    def missing(self) -> str:
        """The reason."""
        return self.reason

    @property
    def id(self) -> str:
        """Always empty: there is no model."""
        return ""


Choice = ModelChoice | Missing


def explicit_choice(
    api: str, name: str, base_url: str | None, api_key_env: str | None, environ: Mapping[str, str]
) -> Choice:
    """The model of `[model] source = "explicit"`: `api` is `openai`, `anthropic` or `gemini`.

    Without `api_key_env` the API's standard variable is used, but for the API's own address only: a key is not sent to
    another service because of its name.
    """
    auth_type = AuthType(api)
    if not name.strip():
        return Missing('model.name is not set, which model.source = "explicit" needs')
    key = environ.get(api_key_env, "") if api_key_env else ""
    if api_key_env and not key:
        return Missing(f"{api_key_env} is not set, which model.api_key_env names", api_key_env)
    key_name = api_key_env or ""
    if not api_key_env and not base_url:
        key_name = next((variable for variable in KEY_VARIABLES[auth_type] if environ.get(variable)), "")
        key = environ.get(key_name, "")
    return ModelChoice(
        id=name.strip(),
        auth_type=auth_type.value,
        protocol=PROTOCOLS[auth_type],
        base_url=base_url or DEFAULT_BASE_URLS[auth_type],
        api_key=SecretText(key) if key else None,
        key_name=key_name,
    )
