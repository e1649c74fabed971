"""How thinking is switched off, by dialect, and what the refusal of a switch tells (contract 7.5). Pure.

A generic endpoint gets no switch at all: many servers refuse fields that they do not know. The dialects were compared
with Qwen Code 0.24.4 (`openaiContentGenerator`, `getGptReasoningCapabilities`); what its tables do not know is learned
from the endpoint's own answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from watcher.edge.text_model.endpoint import Endpoint, WireApi

THINKING_TOKENS: Final = 1024
"""Answer tokens for a model that cannot be kept from thinking: less is used up before the first word (report G3)."""

_DASHSCOPE_HOSTS: Final = ("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com")
_DASHSCOPE_DOMAINS: Final = (".alibaba-inc.com", ".aliyun-inc.com", ".alicloudapi.com")

_GPT_REASONING: Final = re.compile(r"gpt-5\.(?:1|2|4|4-mini|4-nano|5|6|6-(?:sol|terra|luna))(?:-\d{4}-\d\d-\d\d)?")
_GPT_MANDATORY: Final = re.compile(
    r"(?:gpt-5(?:-mini|-nano|-pro)?|gpt-5\.\d+(?:\.\d+)*-(?:codex(?:-\w+)?|pro)|gpt-6-astra|o[1-9](?:-\w+)*)"
    r"(?:-\d{4}-\d\d-\d\d)?"
)
_GPT_ANY: Final = re.compile(r"gpt-[5-9](?!-chat)|o[1-9](?:-|$)")

_OFFER_WORDS: Final = (
    *("supported values", "expected one of", "must be one of", "valid values", "allowed values", "should be one of"),
)
_EFFORTS: Final = ("none", "minimal", "low")


class Switch(StrEnum):
    """One way of asking for no, or for the least, thinking; the value is what the store keeps."""

    NOTHING = "nothing"
    """No field at all."""
    ENABLE_THINKING = "enable_thinking"
    """DashScope: `enable_thinking: false` at the top level."""
    CHAT_TEMPLATE = "chat_template"
    """vLLM, SGLang, llama.cpp: the same inside `chat_template_kwargs`."""
    TYPE_DISABLED = "type_disabled"
    """DeepSeek and Anthropic: `thinking: {type: disabled}`."""
    REASONING_DISABLED = "reasoning_disabled"
    """OpenRouter: `reasoning: {enabled: false}`."""
    REASONING_LOW = "reasoning_low"
    """OpenRouter: `reasoning: {effort: low}`, for models that must think."""
    EFFORT_NONE = "effort_none"
    EFFORT_MINIMAL = "effort_minimal"
    EFFORT_LOW = "effort_low"
    BUDGET_ZERO = "budget_zero"
    """Gemini 2.5: a thinking budget of 0."""


_EFFORT_SWITCHES: Final[Mapping[str, Switch]] = {
    "none": Switch.EFFORT_NONE,
    "minimal": Switch.EFFORT_MINIMAL,
    "low": Switch.EFFORT_LOW,
}
_PROFILES: Final[Mapping[object, Switch]] = {
    "openai-reasoning": Switch.REASONING_DISABLED,
    "openai-effort": Switch.EFFORT_NONE,
    "dashscope-effort": Switch.EFFORT_NONE,
    "deepseek-openai": Switch.TYPE_DISABLED,
    "dashscope-thinking": Switch.ENABLE_THINKING,
    "qwen-chat-template": Switch.CHAT_TEMPLATE,
}
_CONTRARY: Final[Mapping[Switch, tuple[str, ...]]] = {
    Switch.CHAT_TEMPLATE: ("enable_thinking",),
    Switch.EFFORT_NONE: ("enable_thinking", "thinking_budget"),
}
"""Fields of other dialects that would switch thinking on beside our switch; Qwen Code deletes them as well."""
_DISABLE_FIELDS: Final[Mapping[object, Switch]] = {
    "enable_thinking": Switch.ENABLE_THINKING,
    "reasoning_effort": Switch.EFFORT_NONE,
    "thinking": Switch.TYPE_DISABLED,
}


def is_dashscope(endpoint: Endpoint) -> bool:
    """Whether the endpoint speaks DashScope's dialect (contract 7.5), judged by the host's name alone."""
    host = endpoint.host
    return (
        any(host == name or host.endswith("." + name) for name in _DASHSCOPE_HOSTS)
        or (host.startswith("token-plan.") and host.endswith(".maas.aliyuncs.com"))
        or host.endswith(_DASHSCOPE_DOMAINS)
    )


def must_think(endpoint: Endpoint) -> bool:
    """Whether it is known beforehand that the model thinks whatever it is told."""
    if endpoint.thinking_mandatory or endpoint.reasoning.get("canDisable") is False:
        return True
    return not _declared(endpoint) and _GPT_MANDATORY.fullmatch(_bare_model(endpoint)) is not None


def is_gpt_reasoning(endpoint: Endpoint) -> bool:
    """Whether this is one of OpenAI's reasoning models: they want `max_completion_tokens` and no temperature."""
    return _GPT_ANY.match(_bare_model(endpoint)) is not None


def first_switch(endpoint: Endpoint) -> Switch:
    """The switch that contract 7.5 gives for this endpoint and model before anything was learned."""
    if must_think(endpoint):
        return Switch.NOTHING
    match endpoint.protocol:
        case WireApi.OPENAI:
            return _first_openai_switch(endpoint)
        case WireApi.GEMINI:
            # 2.5 Flash thinks by default and counts it as output. The names of later models say nothing certain.
            return Switch.BUDGET_ZERO if _bare_model(endpoint).startswith("gemini-2.5-flash") else Switch.NOTHING
        case WireApi.ANTHROPIC | WireApi.OPENAI_RESPONSES:
            # Whose models do not think unless they are asked to, or cannot be kept from it.
            return Switch.NOTHING


def is_certain(endpoint: Endpoint, switch: Switch) -> bool:
    """Whether the host's own documentation knows `switch`, so that it is not the likely cause of an unexplained 400."""
    if switch is Switch.ENABLE_THINKING:
        return is_dashscope(endpoint)
    return switch in (Switch.TYPE_DISABLED, Switch.REASONING_DISABLED) and switch is first_switch(endpoint)


def switch_when_thoughts_came(endpoint: Endpoint, switch: Switch) -> Switch:
    """What to try when a reply held thoughts and no answer, although `switch` was sent (report G1); may be `switch`."""
    if must_think(endpoint) or switch in (Switch.EFFORT_MINIMAL, Switch.EFFORT_LOW, Switch.REASONING_LOW):
        return switch
    match endpoint.protocol:
        case WireApi.ANTHROPIC:
            return Switch.TYPE_DISABLED
        case WireApi.GEMINI:
            return Switch.BUDGET_ZERO
        case WireApi.OPENAI | WireApi.OPENAI_RESPONSES:
            return Switch.EFFORT_NONE


def switch_after_refusal(endpoint: Endpoint, switch: Switch, error: str) -> Switch:
    """The switch to send after an error text (lower case) about thinking.

    The text can ask for either direction: some models refuse to think less, others refuse to be left to their default
    (reports G4 and G6).
    """
    if _asks_for_off(error) and switch is not Switch.ENABLE_THINKING:
        return Switch.ENABLE_THINKING if endpoint.protocol is WireApi.OPENAI else switch
    if switch in _EFFORT_SWITCHES.values():
        offered = _offered_efforts(error)
        for effort in _EFFORTS:
            if effort in offered and _EFFORT_SWITCHES[effort] is not switch:
                return _EFFORT_SWITCHES[effort]
    if _asks_for_on(error):
        if switch is Switch.REASONING_DISABLED:
            return Switch.REASONING_LOW
        if switch in (Switch.EFFORT_NONE, Switch.EFFORT_MINIMAL):
            return Switch.EFFORT_LOW
    return Switch.NOTHING


def switch_fields(switch: Switch, protocol: WireApi) -> dict[str, object]:
    """The body fields of `switch`; for Gemini they belong into `generationConfig`."""
    effort = {Switch.EFFORT_NONE: "none", Switch.EFFORT_MINIMAL: "minimal", Switch.EFFORT_LOW: "low"}.get(switch)
    if effort is not None:
        match protocol:
            case WireApi.GEMINI:
                return {"thinkingConfig": {"thinkingLevel": "minimal" if effort == "none" else effort}}
            case WireApi.OPENAI_RESPONSES:
                return {"reasoning": {"effort": effort}}
            case _:
                return {"reasoning_effort": effort}
    match switch:
        case Switch.ENABLE_THINKING:
            return {"enable_thinking": False}
        case Switch.CHAT_TEMPLATE:
            return {"chat_template_kwargs": {"enable_thinking": False}}
        case Switch.TYPE_DISABLED:
            return {"thinking": {"type": "disabled"}}
        case Switch.REASONING_DISABLED:
            return {"reasoning": {"enabled": False}}
        case Switch.REASONING_LOW:
            return {"reasoning": {"effort": "low"}}
        case Switch.BUDGET_ZERO:
            return {"thinkingConfig": {"thinkingBudget": 0}}
        case _:
            return {}


def without_effort(fields: Mapping[str, object]) -> dict[str, object]:
    """The user's own fields without a wish for more thinking, which is meant for the conversation (contract 7.5)."""
    return {
        name: value
        for name, value in fields.items()
        if name != "reasoning" and not (name == "reasoning_effort" and value != "none")
    }


def merge_switch(body: dict[str, object], switch: Switch, protocol: WireApi) -> None:
    """Put the fields of `switch` into `body`; settings that stand beside ours inside one object stay.

    What the user's own fields say to the contrary is meant for the conversation, and left out.
    """
    for name in _CONTRARY.get(switch, ()):
        body.pop(name, None)
    for name, value in switch_fields(switch, protocol).items():
        present = body.get(name)
        body[name] = {**present, **value} if isinstance(present, dict) and isinstance(value, dict) else value


def _first_openai_switch(endpoint: Endpoint) -> Switch:
    declared = _declared(endpoint)
    if declared is not None:
        return declared
    host, model = endpoint.host, endpoint.model.strip().lower()
    if host == "openrouter.ai" or host.endswith(".openrouter.ai"):
        return Switch.REASONING_DISABLED
    if host == "api.deepseek.com" or host.endswith(".api.deepseek.com"):
        return Switch.TYPE_DISABLED
    if model.startswith("qwen") or model == "coder-model":
        if not is_dashscope(endpoint):
            return Switch.CHAT_TEMPLATE
        return Switch.EFFORT_NONE if model.startswith("qwen3.8-max") else Switch.ENABLE_THINKING
    return Switch.EFFORT_NONE if _GPT_REASONING.fullmatch(_bare_model(endpoint)) else Switch.NOTHING


def _declared(endpoint: Endpoint) -> Switch | None:
    """The switch that the entry's own `capabilities.reasoning` names, if any."""
    profile, field = endpoint.reasoning.get("profile"), endpoint.reasoning.get("disableField")
    if isinstance(profile, str) and profile in _PROFILES:
        return _PROFILES[profile]
    return _DISABLE_FIELDS.get(field) if isinstance(field, str) else None


def _bare_model(endpoint: Endpoint) -> str:
    """The model's name without a vendor before it (`openai/gpt-5.2`, `models/gemini-2.5-flash`), lower case."""
    return endpoint.model.strip().lower().rpartition("/")[2]


def _asks_for_off(error: str) -> bool:
    """`enable_thinking must be set to false for non-streaming calls`, and ModelScope's wording of it."""
    words = ("false for non-streaming", "must be false", "set to false", "stream=")
    return "thinking" in error and any(word in error for word in words)


def _asks_for_on(error: str) -> bool:
    words = ("mandatory", "cannot be disabled", "can't be disabled", "restricted to true", "must be true", "only works")
    return any(word in error for word in words)


def _offered_efforts(error: str) -> frozenset[str]:
    """Efforts that the text lists as possible, after words like "supported values are"."""
    for lead in _OFFER_WORDS:
        _, found, listed = error.partition(lead)
        if found:
            return frozenset(re.findall(r"\b(?:none|minimal|low|medium|high|xhigh|max)\b", listed[:400]))
    return frozenset()
