"""A model server that misbehaves as it is told to: real sockets, real threads, any bytes at any pace.

Unlike `chat_server`, which plays a good server for scenarios, this one leaves the whole answer to the test, down to
where the connection is cut. It also plays an HTTP proxy, and speaks TLS when given a context.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

DEADLINE_SECONDS = 20.0
"""How long a wait may take before the test fails."""

_REASONS = {200: "OK", 400: "Bad Request", 429: "Too Many Requests"}


@dataclass(frozen=True)
class Request:
    """One request as it came in; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object."""
        parsed = json.loads(self.body)
        assert isinstance(parsed, dict)
        return parsed


@dataclass(frozen=True)
class Response:
    """What to send back.

    `length` is the content length to claim when it is not the true one. `trickle_seconds` is the pause after each byte
    of the body. `hold`: nothing is sent until the server is closed. `stall`: the connection stays open after the body.
    `raw` is sent as it is, in place of everything.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    trickle_seconds: float = 0.0
    hold: bool = False
    stall: bool = False
    raw: bytes | None = None


def json_response(value: object, status: int = 200, **headers: str) -> Response:
    """`value` as JSON; underscores in header names become hyphens."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(status, json.dumps(value).encode(), {"content-type": "application/json", **named})


class ModelServer:
    """Listens on a free port of the loopback interface until it is closed; use it as a context manager.

    `script` answers each request, from any thread. With `tls`, every connection is TLS. `tunnel` is the TLS context
    that stands behind a `CONNECT` request, as a proxy's target would.
    """

    def __init__(
        self,
        script: Callable[[Request], Response],
        *,
        tls: ssl.SSLContext | None = None,
        tunnel: ssl.SSLContext | None = None,
    ) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connects: list[str] = []
        """Targets of the `CONNECT` requests that came."""
        self._tls = tls
        self._tunnel = tunnel
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="model-server", daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def wait_requests(self, count: int) -> None:
        """Wait until `count` requests have come in. Raises `AssertionError` when they do not come."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.requests) + len(self.connects) >= count, DEADLINE_SECONDS)
        assert arrived, f"{len(self.requests)} of {count} requests came within {DEADLINE_SECONDS:g} s"

    def close(self) -> None:
        """Stop, cut what is open, and wait for all threads."""
        self._closing.set()
        with contextlib.suppress(OSError):
            # A connection of our own ends the waiting for the next one.
            socket.create_connection(("127.0.0.1", self.port), DEADLINE_SECONDS).close()
        self._acceptor.join(DEADLINE_SECONDS)
        self._listener.close()
        with self._changed:
            connections, threads = list(self._open), list(self._threads)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(DEADLINE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            connection, _ = self._listener.accept()
            if self._closing.is_set():
                connection.close()
                return
            connection.settimeout(DEADLINE_SECONDS)
            thread = threading.Thread(target=self._serve, args=(connection,), name="model-server-call", daemon=True)
            with self._changed:
                self._threads = [each for each in self._threads if each.is_alive()]
                self._threads.append(thread)
                self._open.add(connection)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection
        try:
            if self._tls is not None:
                stream = self._tls.wrap_socket(connection, server_side=True)
            request = _read_request(stream)
            if request is not None and request.method == "CONNECT":
                with self._changed:
                    self.connects.append(request.target)
                    self._changed.notify_all()
                stream.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                if self._tunnel is not None:
                    stream = self._tunnel.wrap_socket(stream, server_side=True)
                request = _read_request(stream)
            if request is not None:
                with self._changed:
                    self.requests.append(request)
                    self._changed.notify_all()
                self._respond(stream, self.script(request))
        except OSError:
            # The client went away, or does not trust the certificate: what some tests are about.
            pass
        finally:
            with self._changed:
                self._open.discard(connection)
            stream.close()
            connection.close()

    def _respond(self, stream: socket.socket, response: Response) -> None:
        if response.hold:
            self._closing.wait(DEADLINE_SECONDS)
            return
        if response.raw is not None:
            stream.sendall(response.raw)
            return
        length = len(response.body) if response.length is None else response.length
        lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in {"content-length": str(length), **response.headers}.items()]
        head = ("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode()
        if not response.trickle_seconds:
            stream.sendall(head + response.body)
            if response.stall:
                self._closing.wait(DEADLINE_SECONDS)
            return
        stream.sendall(head)
        for byte in response.body:
            stream.sendall(bytes([byte]))
            if self._closing.wait(response.trickle_seconds):
                return


def _read_request(stream: socket.socket) -> Request | None:
    """The next request, None when the client leaves before it is whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = stream.recv(65536)
        if not chunk:
            return None
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        chunk = stream.recv(65536)
        if not chunk:
            return None
        body += chunk
    return Request(method, target, headers, body)
