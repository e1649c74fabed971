"""`modelProviders` and what surrounds it: auth types, their variables, provider entries, the session's own selection.

Contract 7.3 and 7.4. Everything here is pure and tolerant: settings are written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from watcher.qwen.dotenv import Environment


class AuthType(StrEnum):
    """What a selector or `security.auth.selectedType` can name (contract 7.3)."""

    OPENAI = "openai"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    VERTEX_AI = "vertex-ai"
    QWEN_OAUTH = "qwen-oauth"


KEY_VARIABLES: Final[Mapping[AuthType, tuple[str, ...]]] = {
    AuthType.OPENAI: ("OPENAI_API_KEY",),
    AuthType.OPENAI_RESPONSES: ("OPENAI_API_KEY",),
    AuthType.ANTHROPIC: ("ANTHROPIC_API_KEY",),
    AuthType.GEMINI: ("GEMINI_API_KEY",),
    AuthType.VERTEX_AI: ("GOOGLE_API_KEY",),
    AuthType.QWEN_OAUTH: (),
}
"""The standard variables of a key (7.4)."""
URL_VARIABLES: Final[Mapping[AuthType, tuple[str, ...]]] = {
    AuthType.OPENAI: ("OPENAI_BASE_URL",),
    AuthType.OPENAI_RESPONSES: ("OPENAI_BASE_URL",),
    AuthType.ANTHROPIC: ("ANTHROPIC_BASE_URL",),
    AuthType.GEMINI: (),
    AuthType.VERTEX_AI: (),
    AuthType.QWEN_OAUTH: (),
}
"""The standard variables of a base URL (7.4)."""
MODEL_VARIABLES: Final[Mapping[AuthType, tuple[str, ...]]] = {
    AuthType.OPENAI: ("OPENAI_MODEL", "QWEN_MODEL"),
    AuthType.OPENAI_RESPONSES: ("OPENAI_MODEL",),
    AuthType.ANTHROPIC: ("ANTHROPIC_MODEL",),
    AuthType.GEMINI: ("GEMINI_MODEL",),
    AuthType.VERTEX_AI: ("GOOGLE_MODEL",),
    AuthType.QWEN_OAUTH: (),
}
"""The variables that name the main model where `model.name` does not (read in Qwen Code 0.24.4)."""
DEFAULT_BASE_URLS: Final[Mapping[AuthType, str]] = {
    AuthType.OPENAI: "https://api.openai.com/v1",
    AuthType.OPENAI_RESPONSES: "https://api.openai.com",
    AuthType.ANTHROPIC: "https://api.anthropic.com",
    AuthType.GEMINI: "https://generativelanguage.googleapis.com",
    AuthType.VERTEX_AI: "https://aiplatform.googleapis.com",
    AuthType.QWEN_OAUTH: "",
}
"""Where each service answers when nobody says otherwise."""

_OPENAI_WIRES: Final = {"chat-completions": AuthType.OPENAI, "responses": AuthType.OPENAI_RESPONSES}
_OPENAI_TYPES: Final = frozenset(_OPENAI_WIRES.values())
_GUESSED: Final = (AuthType.OPENAI, AuthType.ANTHROPIC, AuthType.GEMINI, AuthType.VERTEX_AI)
_SPECIAL: Final = {"voiceOnly": "voice", "imageOnly": "images", "visionOnly": "vision", "realtimeOnly": "realtime use"}
_RUNTIME_PREFIX: Final = "$runtime|"


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """One model of `modelProviders` (7.4). `special` is what alone it is for ("voice"), empty for a text model."""

    provider: str
    auth_type: AuthType
    id: str
    base_url: str = ""
    env_key: str = ""
    special: str = ""
    moves_wire: bool = False
    """The entry itself says which OpenAI API it speaks, so that a session of the other one follows it."""
    generation: Mapping[str, object] = field(default_factory=dict, repr=False)
    reasoning: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def origin(self) -> str:
        """Where the entry stands, for people."""
        return f"modelProviders.{self.provider}"


def section(settings: Mapping[str, object], *path: str) -> Mapping[str, object]:
    """The object at `path`, empty where something else or nothing stands there."""
    found: object = settings
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def string(value: object) -> str:
    """`value` when it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def number(value: object) -> float | None:
    """`value` when it is a number, else None; true and false are none, nor is one with hundreds of digits."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def as_auth_type(text: str) -> AuthType | None:
    """The auth type of that name, None when there is none."""
    try:
        return AuthType(text)
    except ValueError:
        return None


def read_entries(settings: Mapping[str, object]) -> tuple[tuple[ProviderEntry, ...], tuple[str, ...]]:
    """The entries of `modelProviders` in order, and what is wrong with those that are left out.

    `qwen-oauth` entries are ignored (7.4). Of two entries with the same auth type, id and base URL the first counts.
    """
    protocols = section(settings, "providerProtocol")
    entries: dict[tuple[AuthType, str, str], ProviderEntry] = {}
    problems = [
        f"{name} is not an object"
        for name in ("modelProviders", "providerProtocol", "env", "security", "model", "general")
        if settings.get(name) is not None and not isinstance(settings[name], Mapping)
    ]
    for provider, models in section(settings, "modelProviders").items():
        auth_type = as_auth_type(string(protocols.get(provider, provider)))
        if auth_type is None:
            problems.append(
                f"modelProviders.{provider} is no known auth type; map it in providerProtocol, for example to openai"
            )
            continue
        if not isinstance(models, list):
            problems.append(f"modelProviders.{provider} is not a list")
            continue
        if auth_type is AuthType.QWEN_OAUTH:
            continue
        for position, model in enumerate(models):
            entry = _read_entry(provider, auth_type, model)
            if isinstance(entry, str):
                problems.append(f"modelProviders.{provider}[{position}] {entry}")
            else:
                entries.setdefault((entry.auth_type, entry.id, entry.base_url), entry)
    return tuple(entries.values()), tuple(problems)


def _read_entry(provider: str, auth_type: AuthType, model: object) -> ProviderEntry | str:
    """The entry, or what is wrong with it."""
    if not isinstance(model, Mapping) or not string(model.get("id")).strip():
        return "has no id"
    moves_wire = auth_type is AuthType.OPENAI_RESPONSES
    wire = model.get("wireApi")
    if wire is not None:
        if not isinstance(wire, str) or wire not in _OPENAI_WIRES:
            return 'has a wireApi that is neither "chat-completions" nor "responses"'
        if auth_type not in _OPENAI_TYPES:
            return f"has a wireApi, which {auth_type} models do not have"
        auth_type = _OPENAI_WIRES[wire]
        moves_wire = True
    return ProviderEntry(
        provider=provider,
        auth_type=auth_type,
        id=string(model.get("id")).strip(),
        base_url=string(model.get("baseUrl")).strip(),
        env_key=string(model.get("envKey")).strip(),
        special=next((use for flag, use in _SPECIAL.items() if model.get(flag)), ""),
        moves_wire=moves_wire,
        generation=section(model, "generationConfig"),
        reasoning=section(model, "capabilities", "reasoning"),
    )


def session_auth_type(settings: Mapping[str, object], environment: Environment) -> AuthType | None:
    """`security.auth.selectedType`, else what the standard variables tell (read in Qwen Code 0.24.4), else None."""
    selected = string(section(settings, "security", "auth").get("selectedType")).strip()
    if selected:
        return as_auth_type(selected)
    has = environment.get
    if has("QWEN_OAUTH"):
        return AuthType.QWEN_OAUTH
    if has("OPENAI_API_KEY") and has("OPENAI_BASE_URL") and (has("OPENAI_MODEL") or has("QWEN_MODEL")):
        return AuthType.OPENAI
    if has("GEMINI_API_KEY") and has("GEMINI_MODEL"):
        return AuthType.GEMINI
    if has("GOOGLE_MODEL") and (has("GOOGLE_API_KEY") or has("GOOGLE_CLOUD_PROJECT")):
        return AuthType.VERTEX_AI
    if has("ANTHROPIC_API_KEY") and has("ANTHROPIC_MODEL") and has("ANTHROPIC_BASE_URL"):
        return AuthType.ANTHROPIC
    # A command-line flag may have chosen it, which nobody can see from here: then the only key there is tells.
    with_key = [auth_type for auth_type in _GUESSED if any(has(name) for name in KEY_VARIABLES[auth_type])]
    return with_key[0] if len(with_key) == 1 else None


def main_model_id(settings: Mapping[str, object], auth_type: AuthType | None, environment: Environment) -> str:
    """`model.name` without the mark of a model that was chosen by hand, else the auth type's variable; may be empty."""
    name = string(section(settings, "model").get("name")).strip()
    while name.startswith(_RUNTIME_PREFIX):
        name = name.removeprefix(_RUNTIME_PREFIX).partition("|")[2]
    if name or auth_type is None:
        return name
    return next(filter(None, (environment.value(variable) for variable in MODEL_VARIABLES[auth_type])), "")


def find_main_entry(
    entries: tuple[ProviderEntry, ...], auth_type: AuthType | None, model_id: str, base_url: str
) -> ProviderEntry | None:
    """The entry of the main model, by id and, where several have it, by `model.baseUrl`; None outside the list."""
    if auth_type is None or not model_id:
        return None
    found = [entry for entry in entries if entry.id == model_id and _is_reachable(entry, auth_type)]
    return min(
        found,
        key=lambda entry: (bool(base_url) and entry.base_url != base_url, entry.auth_type is not auth_type),
        default=None,
    )


def _is_reachable(entry: ProviderEntry, auth_type: AuthType) -> bool:
    """Whether a session of `auth_type` can have this entry: of the same type, or the other OpenAI API if it says so."""
    if entry.auth_type is auth_type:
        return True
    return entry.moves_wire and auth_type in _OPENAI_TYPES and entry.auth_type in _OPENAI_TYPES
