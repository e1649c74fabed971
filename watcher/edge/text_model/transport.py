"""One HTTP request, bounded in time and size, and stopped at once when asked to.

Each request has its own event loop and its own connection, so nothing can leak or go stale over months; a title costs
one request in minutes or hours, and a kept-alive connection would be closed by then. Only this module imports httpx and
asyncio, and only the first model call imports this module.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import httpx

from watcher.edge.text_model.abort import Abort
from watcher.edge.text_model.endpoint import MAX_ANSWER_BYTES, HttpRequest
from watcher.edge.text_model.exchange import Fault, HttpReply, NoReply
from watcher.edge.text_model.network import Route

# Both write addresses, which may hold credentials, where anybody listens.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)

T = TypeVar("T")

_ERROR_STATUS: Final = 400


def send(
    request: HttpRequest, route: Route, tls: ssl.SSLContext | None, *, timeout_seconds: float, abort: Abort
) -> HttpReply | NoReply:
    """POST `request` and return what came.

    Blocks for at most `timeout_seconds`, whatever the server does, and returns at once when `abort` is set. Redirects
    are not followed. `tls` is needed when the route is secure.
    """
    if tls is None:
        # Never used, but without it httpx would read a list of authorities for nothing.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            return runner.run(_send(request, route, tls, timeout_seconds, abort))
    except asyncio.CancelledError:
        return NoReply(Fault.ABORTED)


async def _send(
    request: HttpRequest, route: Route, tls: ssl.SSLContext, timeout_seconds: float, abort: Abort
) -> HttpReply | NoReply:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    answer = _Answer()
    with abort.calling(lambda: loop.call_soon_threadsafe(task.cancel)):
        try:
            async with asyncio.timeout(timeout_seconds):
                await _exchange(request, route, tls, answer)
        except TimeoutError:
            answer.fault = NoReply(Fault.UNREACHABLE, f"no whole answer within {timeout_seconds:.3g} s")
        except httpx.UnsupportedProtocol:
            answer.fault = NoReply(Fault.UNREADABLE, "the address is neither http nor https")
        except (httpx.InvalidURL, ValueError):
            # ValueError: names that cannot be written in DNS, as the libraries below find out.
            answer.fault = NoReply(Fault.UNREADABLE, "the base URL, or the proxy's, cannot be used as an address")
        except (httpx.HTTPError, OSError) as error:
            answer.fault = _explain(error)
            if route.proxy is not None:
                answer.fault = replace(answer.fault, phrase=f"{answer.fault.phrase}, by way of the proxy")
    if answer.fault is not None and answer.status < _ERROR_STATUS:
        return answer.fault
    return answer.decoded()


async def _exchange(request: HttpRequest, route: Route, tls: ssl.SSLContext, answer: _Answer) -> None:
    async with (
        _make_client(route, tls) as client,
        client.stream("POST", request.url, headers=request.headers, content=request.body) as response,
    ):
        answer.status = response.status_code
        answer.headers = {name.lower(): value for name, value in response.headers.items()}
        async for chunk in response.aiter_raw():
            answer.body += chunk
            if len(answer.body) > MAX_ANSWER_BYTES:
                break


def _make_client(route: Route, tls: ssl.SSLContext) -> httpx.AsyncClient:
    proxy = None
    if route.proxy is not None:
        proxy = httpx.Proxy(route.proxy, ssl_context=tls if route.proxy.startswith("https:") else None)
    return httpx.AsyncClient(
        verify=tls,
        proxy=proxy,
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113 - the whole exchange is under one time limit
        event_hooks={"response": [_forget_location]},
    )


async def _forget_location(response: httpx.Response) -> None:
    """httpx reads the address of a redirect also when it is not to follow it, and fails on one that it cannot use."""
    response.headers.pop("location", None)


@dataclass(slots=True)
class _Answer:
    """A reply on its way in."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    fault: NoReply | None = None

    def decoded(self) -> HttpReply | NoReply:
        """The reply. Of an error the status is enough, so its body may be cut, or left out where it cannot be read."""
        is_error = self.status >= _ERROR_STATUS
        body = self._unpacked()
        if body is None:
            if not is_error:
                return NoReply(Fault.UNREADABLE, "the answer is packed in a way that cannot be read")
            body = b""
        if len(body) > MAX_ANSWER_BYTES and not is_error:
            return NoReply(Fault.TOO_LARGE, f"the answer is longer than {MAX_ANSWER_BYTES // 1024} KiB")
        return HttpReply(self.status, self.headers, body[:MAX_ANSWER_BYTES])

    def _unpacked(self) -> bytes | None:
        """The body, at most one byte too long, unpacked if the server packed it although it was asked not to."""
        packed = self.headers.get("content-encoding", "").strip().lower()
        if packed in ("", "identity"):
            return bytes(self.body)
        if packed not in ("gzip", "x-gzip", "deflate"):
            return None
        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(self.body, MAX_ANSWER_BYTES + 1)
        except zlib.error:
            return None


class _Loop(asyncio.SelectorEventLoop):
    """The loop of one request: whatever it connected is closed with it, and no look-up of a name is waited for.

    httpcore leaves a connection open when it is stopped in the middle of a TLS handshake.
    """

    def __init__(self) -> None:
        super().__init__()
        self._connected: list[asyncio.BaseTransport] = []
        self.set_default_executor(_UnjoinedExecutor())

    async def create_connection(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        transport, protocol = await super().create_connection(*args, **kwargs)
        self._connected.append(transport)
        return transport, protocol

    def close(self) -> None:
        """Close the loop and all connections that were made on it."""
        if not self.is_closed():
            for transport in self._connected:
                if isinstance(transport, asyncio.WriteTransport):
                    transport.abort()
            # The sockets are closed in the loop's next round.
            self.call_soon(self.stop)
            self.run_forever()
        super().close()


class _UnjoinedExecutor(ThreadPoolExecutor):
    """Runs name look-ups, which nothing can interrupt, in threads that nobody waits for.

    With the usual executor both the end of a call and the end of the process would wait for a resolver that does not
    answer.
    """

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="text-model-resolver", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing to wait for."""


def _explain(error: Exception) -> NoReply:
    """Our words for a failure; the library's own can repeat addresses with credentials, and headers."""
    chain = _causes(error)
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in chain):
        phrase = "the server's certificate is not trusted; name your company's CA file in SSL_CERT_FILE"
        return NoReply(Fault.UNREACHABLE, phrase)
    if any(isinstance(each, ssl.SSLError) for each in chain):
        return NoReply(Fault.UNREACHABLE, "no TLS connection; is the address really https?")
    if any(isinstance(each, socket.gaierror) for each in chain):
        return NoReply(Fault.UNREACHABLE, "the host's name cannot be resolved")
    if isinstance(error, httpx.ProxyError):
        return NoReply(Fault.UNREACHABLE, "the connection was refused")
    if any(isinstance(each, ConnectionRefusedError) for each in chain):
        return NoReply(Fault.UNREACHABLE, "connection refused")
    if isinstance(error, httpx.ConnectError):
        return NoReply(Fault.UNREACHABLE, "no connection")
    if isinstance(error, httpx.RemoteProtocolError):
        return NoReply(Fault.UNREACHABLE, "the connection was closed before the answer was whole, or it is not HTTP")
    if isinstance(error, httpx.LocalProtocolError):
        return NoReply(Fault.UNREADABLE, "the request cannot be sent as HTTP; check the key and customHeaders")
    return NoReply(Fault.UNREACHABLE, "the connection broke")


def _causes(error: BaseException) -> list[BaseException]:
    """`error` with all that led to it, groups opened."""
    found: list[BaseException] = []
    open_ends: list[BaseException | None] = [error]
    while open_ends:
        each = open_ends.pop()
        if each is None or each in found:
            continue
        found.append(each)
        open_ends += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            open_ends += each.exceptions
    return found
