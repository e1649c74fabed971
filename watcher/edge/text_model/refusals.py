"""What an HTTP error means, and which part of the request it refuses. Pure.

Error texts may repeat the conversation, so only the fields that hold a server's own words are read, and nothing of them
leaves this package but a closed set of phrases and names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from watcher.edge.text_model import error_words
from watcher.edge.text_model.error_words import Feature, has

MAX_RETRY_SECONDS: Final = 24 * 3600.0
"""A longer `Retry-After` is taken for a mistake and cut to this."""
SITE_OVERLOADED: Final = 529
"""Anthropic's own status for an overload."""

_MAX_ERROR_CHARS: Final = 4096
_MAX_WORDS: Final = 64
_MAX_DEPTH: Final = 10


class Trouble(StrEnum):
    """What kind of error it is; each calls for something else."""

    REFUSED = "refused"
    """Something in the request is not supported: worth another form."""
    DENIED = "denied"
    """Key, account or balance: no further request until the settings change."""
    BUSY = "busy"
    """Asked to slow down: a pause."""
    UNAVAILABLE = "unavailable"
    """The server or a gateway before it is broken: a pause."""
    CONTENT = "content"
    """This conversation is refused, by a filter or for its length: other sessions are not concerned."""
    WRONG_ADDRESS = "wrong_address"
    """Nothing there, no such model, or a redirect."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an error names: `features`, and `fields`, the names of body fields. Both empty: it does not say.

    `text` is the error in lower case, for `thinking.switch_after_refusal` only.
    """

    features: frozenset[Feature] = frozenset()
    fields: frozenset[str] = frozenset()
    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An error, judged. `phrase` is ours and may be logged; `retry_after` counts seconds."""

    trouble: Trouble
    phrase: str
    status: int
    refusal: Refusal = Refusal()
    retry_after: float | None = None


_REFUSING: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.NOT_IMPLEMENTED,
)
_MAYBE_REFUSING: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR)
"""OpenRouter says 404 when no endpoint has a feature, llama.cpp says 500."""
_OVERLOADED: Final = (HTTPStatus.SERVICE_UNAVAILABLE, SITE_OVERLOADED)
_TRANSIENT: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY)


def judge(status: int, headers: Mapping[str, str], body: bytes, sent: bytes, now: float) -> Verdict:
    """What an error reply means.

    `headers` have lower-case names, `sent` is the body of our request, `now` (seconds since the epoch) is for dates in
    `Retry-After`.
    """
    text = _error_text(body)
    access = _judge_access(status, text)
    if access is not None:
        return access
    if status in (HTTPStatus.TOO_MANY_REQUESTS, *_OVERLOADED) or (status in _REFUSING and has(text, error_words.SLOW)):
        said = "the service is overloaded" if status in _OVERLOADED else "the rate limit is reached"
        return Verdict(Trouble.BUSY, f"HTTP {status}: {said}", status, retry_after=_retry_after(headers, body, now))
    if has(text, error_words.FILTER):
        return Verdict(Trouble.CONTENT, f"HTTP {status}: refused by the provider's content filter", status)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (status in _REFUSING and has(text, error_words.LENGTH)):
        return Verdict(Trouble.CONTENT, f"HTTP {status}: the request is too long for the model", status)
    if status in (*_REFUSING, HTTPStatus.NOT_FOUND) and has(text, error_words.MODEL):
        return Verdict(Trouble.WRONG_ADDRESS, f"HTTP {status}: the endpoint does not know this model", status)
    refusal = read_refusal(text, sent)
    hard = refusal.features - {Feature.ANSWER_LIMIT, Feature.MORE_TOKENS, Feature.SYSTEM_ROLE}
    if status in _REFUSING or (status in _MAYBE_REFUSING and hard and has(text, error_words.UNSUPPORTED)):
        named = ", ".join(sorted(refusal.features))
        phrase = f"HTTP {status}: the request was refused" + (f" ({named})" if named else "")
        return Verdict(Trouble.REFUSED, phrase, status, refusal)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _TRANSIENT:
        phrase = f"HTTP {status}: the server failed"
        return Verdict(Trouble.UNAVAILABLE, phrase, status, retry_after=_retry_after(headers, body, now))
    return Verdict(Trouble.WRONG_ADDRESS, _address_phrase(status), status)


def read_refusal(text: str, sent: bytes) -> Refusal:
    """Which parts of the request in `sent` an error `text` (lower case) names."""
    names = _field_names(sent)
    features = {each.feature for each in error_words.FEATURES if each.fields & names and has(text, each.words)}
    if Feature.TOOL_CHOICE in features:
        features.discard(Feature.TOOLS)
    if has(text, error_words.ALL_TOOLS) and "tools" in names:
        features = (features - {Feature.TOOL_CHOICE}) | {Feature.TOOLS}
    if Feature.ANSWER_LIMIT in features and has(text, error_words.MORE_TOKENS):
        features = (features - {Feature.ANSWER_LIMIT}) | {Feature.MORE_TOKENS}
    reasons = {Feature.TOOL_CHOICE, Feature.TOOLS, Feature.RESPONSE_FORMAT}
    if not features & reasons and has(text, error_words.THINKING_FIELDS if features else error_words.THINKING):
        features.add(Feature.THINKING)
    if len(features) > 1:
        # "system message" and the like stand in many an explanation; only alone they are the cause.
        features.discard(Feature.SYSTEM_ROLE)
    fields = frozenset(name for name in names if re.search(rf"\b{re.escape(name.lower())}\b", text))
    return Refusal(frozenset(features), fields, text)


def _judge_access(status: int, text: str) -> Verdict | None:
    refusing = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
    if status == HTTPStatus.PAYMENT_REQUIRED or (status in refusing and has(text, error_words.MONEY)):
        return Verdict(Trouble.DENIED, f"HTTP {status}: the account has no credit or quota left", status)
    if status == HTTPStatus.UNAUTHORIZED or (status == HTTPStatus.BAD_REQUEST and has(text, error_words.KEY)):
        return Verdict(Trouble.DENIED, f"HTTP {status}: the API key is missing or was refused", status)
    if status == HTTPStatus.FORBIDDEN and not has(text, error_words.FILTER):
        return Verdict(Trouble.DENIED, f"HTTP {status}: access to this address or model is denied", status)
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        phrase = f"HTTP {status}: the proxy asks for a login; put it into the proxy variable"
        return Verdict(Trouble.UNAVAILABLE, phrase, status)
    return None


def _address_phrase(status: int) -> str:
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return f"HTTP {status}: a redirect, which is not followed; set the final base URL"
    if status == HTTPStatus.NOT_FOUND:
        return f"HTTP {status}: no such address or model; check the base URL and the model's name"
    return f"HTTP {status}: this address does not take such a request; check the base URL"


def _field_names(sent: bytes) -> frozenset[str]:
    """The names of the fields of our own request body; those of Gemini's `generationConfig` stand beside the others."""
    body = json.loads(sent)
    return frozenset(body) | frozenset(body.get("generationConfig", {}))


def _error_text(body: bytes) -> str:
    """The server's own words in an error body, lower case and of bounded length."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        # Plain text, a web page, or cut.
        return body[:_MAX_ERROR_CHARS].decode("utf-8", "replace").lower().replace('\\"', '"')
    words: list[str] = []
    _collect(parsed, words, _MAX_DEPTH)
    return " ".join(words)[:_MAX_ERROR_CHARS].lower()


_WORD_FIELDS: Final = (
    *("message", "code", "type", "param", "status", "reason", "msg", "error_msg", "error_code"),
    *("error", "errors", "detail", "details", "metadata", "raw", "innererror", "loc", "base_resp", "response"),
)
"""What is looked into. Left out on purpose: `input`, `body`, `request` and the like, which repeat what was sent."""


def _collect(value: object, words: list[str], depth: int) -> None:
    if depth == 0 or len(words) > _MAX_WORDS:
        return
    if isinstance(value, str):
        nested = _nested_json(value)
        if nested is None:
            words.append(value)
        else:
            _collect(nested, words, depth - 1)
    elif isinstance(value, int):
        words.append(str(value))
    elif isinstance(value, list):
        for each in value:
            _collect(each, words, depth - 1)
    elif isinstance(value, Mapping):
        for name in _WORD_FIELDS:
            if name in value:
                _collect(value[name], words, depth - 1)


def _nested_json(text: str) -> object:
    """The error of an upstream provider, which gateways pass on as a text; None where `text` is no JSON object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _retry_after(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """How long to wait, in seconds: `Retry-After` (seconds or a date), `retry-after-ms` or Gemini's `retryDelay`."""
    seconds = _seconds(headers.get("retry-after-ms", ""), 1000.0)
    if seconds is None:
        seconds = _seconds(headers.get("retry-after", ""), 1.0)
    if seconds is None and headers.get("retry-after"):
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - most servers name seconds

        try:
            seconds = parsedate_to_datetime(headers["retry-after"]).timestamp() - now
        except (ValueError, TypeError, OverflowError, OSError):
            seconds = None
    if seconds is None:
        delay = re.search(rb'"retryDelay"\s{0,8}:\s{0,8}"(\d{1,9}(?:\.\d{1,9})?)s"', body)
        seconds = _seconds(delay[1].decode(), 1.0) if delay else None
    return None if seconds is None else min(max(seconds, 1.0), MAX_RETRY_SECONDS)


def _seconds(text: str, parts: float) -> float | None:
    if not re.fullmatch(r"\s*\d{1,15}(?:\.\d{1,9})?\s*", text, re.ASCII):
        return None
    return float(text) / parts
