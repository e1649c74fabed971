"""The words by which providers' error texts are recognised, lower case. Samples: `tests/edge/text_model/quirks.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Feature(StrEnum):
    """A part of the request that an error can name."""

    TOOL_CHOICE = "tool_choice"
    TOOLS = "tools"
    RESPONSE_FORMAT = "response_format"
    TEMPERATURE = "temperature"
    ANSWER_LIMIT = "answer_limit"
    """The field that limits answer tokens."""
    MORE_TOKENS = "more_tokens"
    """That field is known, and its value too low."""
    THINKING = "thinking"
    SYSTEM_ROLE = "system_role"


@dataclass(frozen=True, slots=True)
class FeatureWords:
    """A feature is named when one of `fields` was sent and one of `words` stands in the error."""

    feature: Feature
    fields: frozenset[str]
    words: tuple[str, ...]


FEATURES: Final = (
    FeatureWords(
        Feature.TOOL_CHOICE,
        frozenset({"tool_choice", "toolConfig"}),
        (
            *("tool_choice", "tool choice", "toolchoice", "toolconfig", "tool_config", "forces tool use"),
            *("function_calling_config", "functioncallingconfig", "function calling config"),
        ),
    ),
    FeatureWords(
        Feature.TOOLS,
        frozenset({"tools"}),
        (
            *(
                "tools",
                "tool use",
                "tool_use",
                "tool call",
                "tool-call",
                "functiondeclarations",
                "function_declarations",
            ),
            *("function call", "functioncall", "function_call", "functions"),
        ),
    ),
    FeatureWords(
        Feature.RESPONSE_FORMAT,
        frozenset({"response_format", "text", "responseMimeType"}),
        (
            *(
                "response_format",
                "response format",
                "json_schema",
                "json schema",
                "json_object",
                "json mode",
                "text.format",
            ),
            *("structured output", "responsemimetype", "response_mime_type", "response mime type"),
            *("responseschema", "response_schema"),
        ),
    ),
    FeatureWords(Feature.TEMPERATURE, frozenset({"temperature"}), ("temperature",)),
    FeatureWords(
        Feature.ANSWER_LIMIT,
        frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"}),
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxoutputtokens", "max tokens"),
    ),
    FeatureWords(
        Feature.SYSTEM_ROLE,
        frozenset({"messages", "systemInstruction", "instructions"}),
        (
            *(
                "system role",
                "role 'system'",
                'role "system"',
                "role: system",
                "'system'",
                '"system"',
                "system message",
            ),
            *("system prompt", "developer instruction", "systeminstruction", "system_instruction"),
        ),
    ),
)

ALL_TOOLS: Final = ("--enable-auto-tool-choice", "--tool-call-parser", "--jinja")
"""Start options that a local server lacks: no kind of function call works."""
MORE_TOKENS: Final = (
    *("higher max_tokens", "output limit was reached", "minimum value", "greater than or equal", "must be at least"),
    *("too small", ">= "),
)
THINKING: Final = ("thinking", "reasoning", "chat_template_kwargs", "chat template kwargs")
THINKING_FIELDS: Final = (
    *("enable_thinking", "chat_template_kwargs", "reasoning_effort", "reasoning.effort", "thinking.type"),
    *("thinkingbudget", "thinkinglevel", "thinking_budget", "thinking_level"),
)
"""Beside another feature only these count: "… is not supported with reasoning models" is about the other one."""
UNSUPPORTED: Final = (
    *("support", "requires", "unsupported", "not allowed", "not permitted", "invalid", "unknown", "unrecognized"),
)

KEY: Final = (
    *(
        "api key not valid",
        "api_key_invalid",
        "invalid api key",
        "incorrect api key",
        "invalid_api_key",
        "invalidapikey",
    ),
    *("authentication_error", "invalid authentication"),
)
MONEY: Final = (
    *("insufficient_quota", "insufficient balance", "insufficient_balance", "insufficient credits", "arrearage"),
    *("credit balance", "billing_hard_limit", "billing_not_active", "account is in good standing", "payment required"),
)
FILTER: Final = (
    *("content_filter", "data_inspection_failed", "datainspectionfailed", "content management policy", "moderation"),
    *("inappropriate content", "content policy", "content_policy_violation", "responsibleaipolicy", "flagged"),
    "sensitive_words_detected",
)
LENGTH: Final = (
    *("context length", "context_length", "maximum context", "context window", "context size", "prompt is too long"),
    *("input is too long", "too many tokens", "range of input length", "string_above_max_length", "request too large"),
    "request_too_large",
)
MODEL: Final = (
    *("model_not_found", "model not found", "model not exist", "model_not_supported", "invalid model", "unknown model"),
    *("no such model", "modelnotfound", "is not a valid model"),
)
SLOW: Final = ("throttling", "rate limit", "rate_limit", "too many requests", "requests rate")


def has(text: str, words: tuple[str, ...]) -> bool:
    """Whether one of `words` stands in `text`."""
    return any(word in text for word in words)
