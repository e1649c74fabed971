"""The values of one model endpoint and of one HTTP request to it. Their `repr` shows no key, header or conversation."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from watcher import __version__
from watcher.core.secret import SecretText
from watcher.core.text import without_surrogates

MAX_ANSWER_BYTES: Final = 64 * 1024
"""Longer answers are refused (design 11)."""
USER_AGENT: Final = f"qwen-session-watcher/{__version__}"

_OWN_HEADERS: Final = frozenset(
    (
        "host",
        "connection",
        "upgrade",
        "te",
        "transfer-encoding",
        "content-length",
        "content-encoding",
        "accept-encoding",
    )
)
"""Headers of the connection itself: a custom one would break the framing of the request or the bound on the answer."""
_TOKEN_EXTRAS: Final = frozenset("!#$%&'*+-.^_`|~")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class WireApi(StrEnum):
    """How an endpoint is spoken to."""

    OPENAI = "openai"
    """OpenAI chat completions and everything compatible with it."""
    OPENAI_RESPONSES = "openai_responses"
    ANTHROPIC = "anthropic"
    """Anthropic messages."""
    GEMINI = "gemini"
    """Gemini `generateContent` with an API key."""


DEFAULT_BASE_URLS: Final[Mapping[WireApi, str]] = {
    WireApi.OPENAI: "https://api.openai.com/v1",
    WireApi.OPENAI_RESPONSES: "https://api.openai.com",
    WireApi.ANTHROPIC: "https://api.anthropic.com",
    WireApi.GEMINI: "https://generativelanguage.googleapis.com",
}
"""Where the public service of each kind answers; for endpoints whose settings name no address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model at one address, with what the user's settings say about it (contract 7.4).

    `sampling` (None: not given) replaces the temperature and caps the answer's tokens; `extra_body` is merged into the
    request last; `headers` override ours. `timeout_seconds` bounds one HTTP request as a whole, from the look-up of the
    name to the last byte; an attempt with all that it may learn takes at most twice as long. `reasoning` is the entry's
    `capabilities.reasoning`. `bearer`: an Anthropic endpoint takes the key as a bearer token.
    """

    protocol: WireApi
    base_url: str = field(repr=False)
    """May hold a user and a password."""
    model: str
    api_key: SecretText | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sampling: Mapping[str, object] | None = field(default=None, repr=False)
    extra_body: Mapping[str, object] = field(default_factory=dict, repr=False)
    timeout_seconds: float = 30.0
    thinking_mandatory: bool = False
    reasoning: Mapping[str, object] = field(default_factory=dict, repr=False)
    bearer: bool = False

    @property
    def address(self) -> SplitResult | None:
        """The parts of the base URL, None where it is no http or https address."""
        return split_address(self.base_url)

    @property
    def host(self) -> str:
        """The host's name alone, for logs; empty where the base URL is no address."""
        return (self.address.hostname or "") if self.address else ""

    @property
    def origin(self) -> str:
        """Scheme, host and port: what shares a rate limit."""
        address = self.address
        if address is None:
            return ""
        return f"{address.scheme}://{address.hostname}:{address.port or _DEFAULT_PORTS[address.scheme]}"

    @property
    def key(self) -> str:
        """What learned facts are kept under: protocol, address and model, without credentials or query."""
        return f"{self.protocol} {self.origin}{base_path(self)} {self.model.strip()}"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One POST: the address, the headers in order, and a JSON body in UTF-8."""

    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)


def split_address(url: str) -> SplitResult | None:
    """The parts of an http or https address that has a host and a possible port, else None."""
    try:
        parts = urlsplit(url.strip())
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or (parts.port is not None and parts.port <= 0):
            return None
    except ValueError:
        return None
    return parts


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine; such an address is never asked for through a proxy."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def request_url(base_url: str, suffix: str) -> str:
    """`suffix` appended to the path of `base_url`; a query in the base URL stays (gateways keep a version there)."""
    parts = urlsplit(base_url.strip())
    path = parts.path.rstrip("/") + suffix
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def base_path(endpoint: Endpoint) -> str:
    """The path of the base URL without a slash at its end."""
    return endpoint.address.path.rstrip("/") if endpoint.address else ""


def build_headers(endpoint: Endpoint, own: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Our headers, overridden by the user's own ones without regard to case; those of the connection stay ours."""
    merged = {"content-type": "application/json", "accept": "application/json", "user-agent": USER_AGENT}
    merged.update({name.lower(): value for name, value in own.items()})
    custom = {name.lower(): value.strip() for name, value in endpoint.headers.items()}
    merged.update({name: value for name, value in custom.items() if name not in _OWN_HEADERS})
    merged["accept-encoding"] = "identity"
    return tuple(merged.items())


def reveal_key(endpoint: Endpoint) -> str:
    """The API key as it is sent, empty when the request goes without one."""
    return endpoint.api_key.reveal().strip() if endpoint.api_key is not None else ""


def setup_problem(endpoint: Endpoint) -> str:
    """Why no request can be built for `endpoint`, in words that hold no secret; empty when one can."""
    if endpoint.address is None:
        return "the base URL is not an http or https address"
    if not endpoint.model.strip():
        return "the model has no name"
    if not _sendable(reveal_key(endpoint)):
        return "the API key holds characters that no HTTP header can carry; was more than the key pasted?"
    for name, value in endpoint.headers.items():
        if not name or not all(c.isascii() and (c.isalnum() or c in _TOKEN_EXTRAS) for c in name):
            return "customHeaders holds a name that no HTTP header can have"
        if not _sendable(value):
            return f"customHeaders.{name} holds characters that no HTTP header can carry"
    return ""


def clean_texts(value: object) -> object:
    """`value`, a tree of JSON values, without lone surrogates: strict servers refuse the whole body for one."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, Mapping):
        return {clean_texts(key): clean_texts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [clean_texts(each) for each in value]
    return value


def _sendable(value: str) -> bool:
    return value.isascii() and value.isprintable()
