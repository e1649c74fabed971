"""One connection of the local API: reads a request within its limits, has it answered, says goodbye.

Each connection carries one request. Whatever a client does or leaves undone, it ends: it has `REQUEST_SECONDS` for its
request, which may hold `MAX_HEAD_BYTES` and `MAX_BODY_BYTES`, and loses its answer when it does not take it.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from watcher import __version__
from watcher.edge.text_model import Abort
from watcher.errors import NotFoundError, StateError, UsageError, WatcherError

REQUEST_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
MAX_HEAD_BYTES: Final = 32 * 1024
MAX_BODY_BYTES: Final = 64 * 1024
_LINGER_SECONDS: Final = 0.5
_LINGER_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 65_536

FEATURES: Final = ("session_recap", "session_title", "status", "why")
_SESSION: Final = re.compile(r"[0-9a-fA-F-]{4,36}|latest")


class Answers(Protocol):
    """What the service has to say. Each raises `WatcherError`, or `Aborted` when `abort` was set."""

    def status(self, abort: Abort) -> Mapping[str, Any]:
        """The object of `status --json`."""

    def why(self, session: str, abort: Abort) -> Mapping[str, Any]:
        """The object of `why --json`. `session` is an id, a unique prefix or `latest`."""

    def recap(self, session: str, abort: Abort) -> Mapping[str, Any]:
        """`{sessionId, recap, reason}`."""


class BusyError(WatcherError):
    """The service has no time for an answer."""


class Problem(Exception):  # noqa: N818 - not an error of ours
    """The answer is an error: status, a sentence, and a word for scripts."""

    def __init__(self, status: HTTPStatus, error: str, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.reason = reason
        self.headers = dict(headers or {})


def serve(
    connection: socket.socket, answers: Answers, abort: Abort, *, request_seconds: float = REQUEST_SECONDS
) -> None:
    """Answer the one request of this connection; the caller closes it. Returns when that is done, at most
    `request_seconds` and `ANSWER_SECONDS` more than the answer itself takes.
    """
    with contextlib.suppress(OSError):  # the client went away
        _Handler(connection, answers, abort, request_seconds)
        _linger(connection)


def route(method: str, target: str, answers: Answers, abort: Abort) -> Callable[[], Mapping[str, Any]]:
    """What gives the answer to a request. Raises `Problem` for one that has none."""
    try:
        path = urlsplit(target).path
    except ValueError:
        raise Problem(HTTPStatus.BAD_REQUEST, "that is no address of anything", "bad_request") from None
    steps = tuple(unquote(step) for step in path.split("/")[1:])
    match steps:
        case ("capabilities",):
            _allow(method, "GET")
            return lambda: {"v": 1, "features": list(FEATURES)}
        case ("status",):
            _allow(method, "GET")
            return lambda: answers.status(abort)
        case ("session", name, "why"):
            _allow(method, "GET")
            _check_session(name)
            return lambda: answers.why(name, abort)
        case ("session", name, "recap"):
            _allow(method, "POST")
            _check_session(name)
            return lambda: answers.recap(name, abort)
    raise Problem(
        HTTPStatus.NOT_FOUND,
        "there is GET /capabilities, GET /status, GET /session/{id}/why and POST /session/{id}/recap",
        "not_found",
    )


def _allow(method: str, allowed: str) -> None:
    if method != allowed:
        raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}", "bad_request", {"Allow": allowed})


def _check_session(name: str) -> None:
    if not _SESSION.fullmatch(name):
        raise Problem(
            HTTPStatus.BAD_REQUEST, "a session is an id, 4 or more of its first characters, or latest", "bad_request"
        )


def problem_of(error: WatcherError) -> Problem:
    """The answer to a request that failed."""
    if isinstance(error, NotFoundError):
        return Problem(HTTPStatus.NOT_FOUND, str(error), "not_found")
    if isinstance(error, UsageError):
        return Problem(HTTPStatus.BAD_REQUEST, str(error), "bad_request")
    if isinstance(error, BusyError):
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), "busy", {"Retry-After": "1"})
    reason = "state" if isinstance(error, StateError) else "failed"
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), reason)


class _TooMuchError(Exception):
    """More bytes than a request may have."""


class _Limited(io.RawIOBase):
    """The bytes of a connection until a deadline, and not more than `left` of them."""

    def __init__(self, connection: socket.socket, seconds: float, left: int) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + seconds
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        if self._left <= 0:
            raise _TooMuchError
        self._connection.settimeout(seconds)
        count = self._connection.recv_into(memoryview(buffer)[: min(len(buffer), self._left)])
        self._left -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    """The standard library's reader of requests, within limits, and with answers in JSON."""

    protocol_version = "HTTP/1.1"
    server_version = f"qwen-watcher/{__version__}"

    def __init__(self, connection: socket.socket, answers: Answers, abort: Abort, request_seconds: float) -> None:
        self._answers = answers
        self._seconds = request_seconds
        self._abort = abort
        self._answered = False
        super().__init__(connection, ("", 0), None)  # type: ignore[arg-type]  # it never looks at its server

    def setup(self) -> None:
        self.connection = self.request
        raw = _Limited(self.connection, self._seconds, MAX_HEAD_BYTES + MAX_BODY_BYTES)
        self.rfile = io.BufferedReader(raw)
        self.wfile = io.BytesIO()

    def handle(self) -> None:
        self.requestline, self.request_version, self.command = "", "HTTP/1.1", ""
        self.close_connection = True
        try:
            self._handle()
        except TimeoutError:
            self._fail(Problem(HTTPStatus.REQUEST_TIMEOUT, f"no request within {self._seconds:g} s", "timeout"))
        except _TooMuchError:
            self._fail(Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long", "bad_request"))

    def _handle(self) -> None:
        self.raw_requestline = self.rfile.readline(MAX_HEAD_BYTES + 1)
        if len(self.raw_requestline) > MAX_HEAD_BYTES:
            raise _TooMuchError
        if not self.raw_requestline or not self.parse_request():
            return  # it went away, or has its answer
        self.close_connection = True
        try:
            answer = route(self.command, self.path, self._answers, self._abort)
            self._read_body()
            with hang_up_aborts(self.connection, self._abort):
                found = answer()
        except Problem as problem:
            self._fail(problem)
        except WatcherError as error:
            self._fail(problem_of(error))
        except (TimeoutError, _TooMuchError):
            raise  # the request's, as in its head
        except Exception:
            self._fail(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log", "failed"))
            raise
        else:
            self._send(HTTPStatus.OK, found, {})

    def _read_body(self) -> None:
        """A body is read and must be a JSON object, for which there is no use yet."""
        if self.headers.get("Transfer-Encoding") is not None:
            raise Problem(HTTPStatus.BAD_REQUEST, "send a Content-Length, not chunks", "bad_request")
        length = self._body_length()
        body = self.rfile.read(length)
        if len(body) < length:
            raise Problem(HTTPStatus.BAD_REQUEST, "the body is shorter than its Content-Length", "bad_request")
        try:
            value = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise Problem(HTTPStatus.BAD_REQUEST, "the body is no JSON object", "bad_request")

    def _body_length(self) -> int:
        text = self.headers.get("Content-Length", "0").strip()
        if not text.isascii() or not text.isdigit():
            raise Problem(HTTPStatus.BAD_REQUEST, "Content-Length is no number", "bad_request")
        if len(text) > len(str(MAX_BODY_BYTES)) or int(text) > MAX_BODY_BYTES:
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have {MAX_BODY_BYTES} bytes", "bad_request")
        return int(text)

    def version_string(self) -> str:
        return self.server_version

    def handle_expect_100(self) -> bool:
        try:
            self._body_length()
        except Problem as problem:
            self._fail(problem)
            return False
        self.connection.settimeout(ANSWER_SECONDS)
        self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong with a request."""
        del explain
        status = HTTPStatus(code)
        self._fail(Problem(status, message or status.phrase, "bad_request"))

    def _fail(self, problem: Problem) -> None:
        self._send(problem.status, {"error": str(problem), "reason": problem.reason}, problem.headers)

    def _send(self, status: HTTPStatus, value: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        if self._answered:
            return
        self._answered = True
        body = json.dumps(value).encode()
        self.send_response(status)
        shown = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close", **headers}
        for name, text in shown.items():
            self.send_header(name, text)
        self.end_headers()
        self.connection.settimeout(ANSWER_SECONDS)
        if self.command == "HEAD":
            body = b""  # its answer ends with the head, whatever length that tells
        self.connection.sendall(self.wfile.getvalue() + body)  # type: ignore[attr-defined]

    def finish(self) -> None:
        self.rfile.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name for it
        """Nothing is logged: paths name sessions, and a client's mistakes are its own."""


@contextlib.contextmanager
def hang_up_aborts(connection: socket.socket, abort: Abort) -> Iterator[None]:
    """Within, `abort` is set as soon as the other side has closed the connection.

    A client that only stops sending (`SHUT_WR`) still waits for its answer.
    """
    ours, theirs = socket.socketpair()

    def watch() -> None:
        waiting = select.poll()
        waiting.register(connection, 0)  # POLLHUP and POLLERR are always told
        waiting.register(theirs, select.POLLIN)
        for fd, _ in waiting.poll():
            if fd == connection.fileno():
                abort.set()

    thread = threading.Thread(target=watch, name="api-hang-up", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ours.close()
        thread.join()
        theirs.close()


def _linger(connection: socket.socket) -> None:
    """Let the answer arrive: closing at once would throw it away while bytes of the request are unread."""
    connection.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + _LINGER_SECONDS
    left = _LINGER_BYTES
    while left > 0 and (seconds := deadline - time.monotonic()) > 0:
        connection.settimeout(seconds)
        data = connection.recv(_CHUNK_BYTES)
        if not data:
            return
        left -= len(data)
