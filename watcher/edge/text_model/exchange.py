"""What one HTTP request brings, and the ways to make one: here, or in a process of its own (`apart`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from watcher.edge.text_model.abort import Abort
from watcher.edge.text_model.endpoint import HttpRequest
from watcher.edge.text_model.network import Route, make_tls_context


class Fault(Enum):
    """Why there is no reply."""

    ABORTED = "aborted"
    UNREACHABLE = "unreachable"
    """No name, no connection, no trusted certificate, no proxy, no answer in time, or half an answer."""
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    """The server is there, but does not speak HTTP as it should."""
    SETUP = "setup"
    """Nothing was sent: the environment names certificates that cannot be used, or no process can be started."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A reply as it came: header names in lower case, the body as sent, at most `MAX_ANSWER_BYTES`."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoReply:
    """No reply; `phrase` is ours and may be logged."""

    fault: Fault
    phrase: str = ""


class Exchange(Protocol):
    """POSTs a request and gives what came. Blocks, returns at once when `abort` is set, and raises nothing."""

    def __call__(self, request: HttpRequest, *, timeout_seconds: float, abort: Abort) -> HttpReply | NoReply: ...


Connect = Callable[[Route, Mapping[str, str]], Exchange]
"""An exchange by a route; the environment names certificates. May raise `ModelSetupError`."""


def in_this_process(route: Route, environ: Mapping[str, str]) -> Exchange:
    """For a command, which ends soon: httpx and TLS are loaded by the first request and stay."""
    tls = make_tls_context(environ) if route.secure else None

    def exchange(request: HttpRequest, *, timeout_seconds: float, abort: Abort) -> HttpReply | NoReply:
        from watcher.edge.text_model.transport import send  # noqa: PLC0415 - httpx: not before the first call

        return send(request, route, tls, timeout_seconds=timeout_seconds, abort=abort)

    return exchange
