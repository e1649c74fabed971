"""One connection of the local API: every request has an answer, every client an end."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.house import Answer, read_answer
from watcher.api.server import MAX_BODY_BYTES, MAX_HEAD_BYTES, serve
from watcher.edge.text_model import Abort
from watcher.errors import NotFoundError, StateError, UsageError

SESSION = "800ec011-bd66-45b3-b7e5-27e3387a2e2a"
RECAP = f"POST /session/{SESSION}/recap HTTP/1.1\r\n".encode()


class Told:
    """Answers that say what they were asked."""

    def __init__(self, recap: Callable[[Abort], object] = lambda _: "where you were") -> None:
        self._recap = recap

    def status(self, abort: Abort) -> Mapping[str, Any]:
        return {"running": True, "lone": "\udc80"}

    def why(self, session: str, abort: Abort) -> Mapping[str, Any]:
        if session == "latest":
            raise NotFoundError("there is no interactive session yet")
        if session == "00000000":
            raise UsageError("which one?")
        if session == "eeeeeeee":
            raise StateError("the disk is full")
        if session == "ffffffff":
            raise ZeroDivisionError
        return {"session_id": session}

    def recap(self, session: str, abort: Abort) -> Mapping[str, Any]:
        return {"sessionId": session, "recap": self._recap(abort), "reason": None}


@contextlib.contextmanager
def served(answers: Told | None = None, seconds: float = 5.0) -> Iterator[socket.socket]:
    """A client's end; when it is left, the server's end has come to its end too."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs, contextlib.suppress(ZeroDivisionError):
            serve(theirs, answers or Told(), Abort(), request_seconds=seconds)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with ours:
            ours.settimeout(20)
            yield ours
    finally:
        thread.join(20)
        assert not thread.is_alive()


def answer_to(request: bytes, answers: Told | None = None, seconds: float = 5.0) -> Answer:
    """What comes back for these bytes."""
    with served(answers, seconds) as client:
        client.sendall(request)
        return read_answer(client)


def asked(method: str, target: str, head: str = "") -> Answer:
    """What comes back for a plain request."""
    return answer_to(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())


def test_each_resource_answers_in_json() -> None:
    """Design 4; a query is nobody's business."""
    features = ["session_recap", "session_title", "status", "why"]
    assert asked("GET", "/capabilities").value == {"v": 1, "features": features}
    assert asked("GET", "/status?x=1").value["running"] is True
    assert asked("GET", f"/session/{SESSION}/why").value == {"session_id": SESSION}
    answer = asked("POST", f"/session/{SESSION}/recap")
    assert (answer.status, answer.value) == (200, {"sessionId": SESSION, "recap": "where you were", "reason": None})
    assert "Content-Type: application/json" in answer.head
    assert "Connection: close" in answer.head


@pytest.mark.parametrize(
    ("method", "target", "status", "reason"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/session", 404, "not_found"),
        ("GET", f"/session/{SESSION}/why/", 404, "not_found"),
        ("GET", f"/session/{SESSION}/recap", 405, "bad_request"),
        ("POST", "/status", 405, "bad_request"),
        ("DELETE", "/status", 405, "bad_request"),
        ("GET", "http://[::1/status", 400, "bad_request"),
        ("GET", "/session/800/why", 400, "bad_request"),
        ("GET", "http://[::bad/status", 400, "bad_request"),
        ("GET", "/session/..%2f..%2fetc/why", 400, "bad_request"),
        ("GET", "/session/%00%00%00%00/why", 400, "bad_request"),
        ("GET", "/session/latest/why", 404, "not_found"),
        ("GET", "/session/00000000/why", 400, "bad_request"),
        ("GET", "/session/eeeeeeee/why", 500, "state"),
        ("GET", "/session/ffffffff/why", 500, "failed"),
    ],
)
def test_every_refusal_says_why(method: str, target: str, status: int, reason: str) -> None:
    """A status, a sentence and a word for scripts."""
    answer = asked(method, target)
    assert (answer.status, answer.value["reason"]) == (status, reason)
    assert isinstance(answer.value["error"], str)
    assert set(answer.value) == {"error", "reason"}


def test_a_method_that_is_wrong_is_told_the_right_one() -> None:
    """As HTTP asks for."""
    assert "Allow: POST" in asked("GET", f"/session/{SESSION}/recap").head


@pytest.mark.parametrize(
    ("body", "head", "status"),
    [
        (b"{}", "Content-Length: 2", 200),
        (b'{"later": true}', "Content-Length: 15", 200),
        (b"[]", "Content-Length: 2", 400),
        (b"{", "Content-Length: 1", 400),
        (b"[" * 60_000, "Content-Length: 60000", 400),
        (b"\xff\xfe", "Content-Length: 2", 400),
        (b"", "Content-Length: -1", 400),
        (b"", "Content-Length: two", 400),
        (b"0\r\n\r\n", "Transfer-Encoding: chunked", 400),
        (b"", "Content-Length: 104857600", 413),
        (b"", f"Content-Length: {'9' * 500}", 413),
        (b"", "Expect: 100-continue\r\nContent-Length: 104857600", 413),
    ],
)
def test_a_body_is_a_small_json_object_or_refused(body: bytes, head: str, status: int) -> None:
    """Nothing is read of one that is too large."""
    request = f"POST /session/{SESSION}/recap HTTP/1.1\r\n{head}\r\n\r\n".encode() + body
    assert answer_to(request).status == status


def test_a_client_that_expects_to_be_asked_is_asked() -> None:
    """`curl` sends longer bodies so."""
    with served() as client:
        head = "Expect: 100-continue\r\nContent-Length: 2\r\n"
        client.sendall(f"POST /session/{SESSION}/recap HTTP/1.1\r\n{head}\r\n".encode())
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"{}")
        assert read_answer(client).status == 200


def pour(client: socket.socket, chunk: bytes, total: int) -> None:
    """Send so many bytes, or as many as are taken."""
    client.settimeout(5)
    with contextlib.suppress(OSError):
        for _ in range(total // len(chunk)):
            client.sendall(chunk)


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET /status HTTP/1.1\r\nX: ",
        b"GET /status HTTP/1.1\r\n",
        f"POST /session/{SESSION}/recap HTTP/1.1\r\nContent-Length: 104857600\r\n\r\n".encode(),
    ],
)
def test_a_hundred_megabytes_end_soon(start: bytes) -> None:
    """Most of them are never read."""
    chunk = (b"a: b\r\n" if start.endswith(b"1.1\r\n") else b"x") * 10_000
    begun = time.monotonic()
    with served() as client:
        client.sendall(start)
        pour(client, chunk, 100_000_000)
    assert time.monotonic() - begun < 10


def test_a_client_that_sends_nothing_is_told_and_sent_away() -> None:
    """Within the time that a request has."""
    for sent in (b"", RECAP + b"Content-Length: 9\r\n\r\n{}"):
        answer = answer_to(sent, seconds=0.2)
        assert (answer.status, answer.value["reason"]) == (408, "timeout")


def test_the_answer_to_head_is_a_head() -> None:
    """A body would be taken for the start of another answer."""
    with served() as client:
        client.sendall(b"HEAD /status HTTP/1.1\r\n\r\n")
        data = b"".join(iter(lambda: client.recv(65536), b""))
    assert data.startswith(b"HTTP/1.1 405 ")
    assert data.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("drop", [b"G", b"GET /status HTTP/1.1\r\nA: b\r\n"])
def test_a_client_that_drips_has_no_more_time_than_others(drop: bytes) -> None:
    """Each byte on its own comes in time; all of them do not."""
    with served(seconds=0.5) as client:
        begun = time.monotonic()
        client.settimeout(0.05)
        client.sendall(drop)
        data = b""
        while not data:
            with contextlib.suppress(TimeoutError):
                data = client.recv(65536)
            with contextlib.suppress(OSError):
                client.sendall(b"x")
            assert time.monotonic() - begun < 10
    assert data.startswith(b"HTTP/1.1 408 ")


def test_a_client_that_stops_sending_still_gets_its_answer() -> None:
    """`nc -N` and the like close their side at once."""
    with served() as client:
        client.sendall(b"GET /capabilities HTTP/1.1\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert read_answer(client).status == 200


def test_a_client_that_goes_away_aborts_its_answer() -> None:
    """And nothing else happens."""
    begun = threading.Event()
    aborted: list[bool] = []

    def recap(abort: Abort) -> str:
        begun.set()
        aborted.append(abort.wait(10))
        return ""

    with served(Told(recap)) as client:
        client.sendall(f"POST /session/{SESSION}/recap HTTP/1.1\r\n\r\n".encode())
        assert begun.wait(10)
    assert aborted == [True]


def test_a_client_that_does_not_take_its_answer_does_not_hold_it_up() -> None:
    """The answer is small enough for the socket, or lost."""
    with served(Told(lambda _: "x" * 100)) as client:
        client.sendall(f"POST /session/{SESSION}/recap HTTP/1.1\r\n\r\n".encode())


def test_one_connection_has_one_answer() -> None:
    """What comes behind the first request is not read."""
    answer = answer_to(b"GET /capabilities HTTP/1.1\r\n\r\nGET /status HTTP/1.1\r\n\r\n")
    assert answer.value["v"] == 1


_WORDS = [
    "GET ",
    "POST ",
    "/status",
    f"/session/{SESSION}/recap",
    " HTTP/1.1",
    " HTTP/9",
    "\r\n",
    "\n",
    ": ",
    "{}",
    "\0",
]
_HEADS = ["Content-Length: 3", "Content-Length: 99999999", "Expect: 100-continue", "x" * 300]
_PIECES = st.sampled_from([piece.encode() for piece in (*_WORDS, *_HEADS)])


@settings(max_examples=150, deadline=None)
@given(st.lists(_PIECES | st.binary(max_size=20), max_size=20).map(b"".join))
def test_whatever_comes_in_ends_with_one_answer_or_none(request: bytes) -> None:
    """Never a hang, never anything but JSON."""
    with served(seconds=2.0) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        data = b""
        while chunk := client.recv(65536):
            data += chunk
    data = data.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    if data.startswith(b"HTTP/1.1 "):
        head, _, body = data.partition(b"\r\n\r\n")
        assert head
        assert isinstance(json.loads(body), dict)


def test_limits_leave_room_for_what_editors_send() -> None:
    """A long but honest head."""
    assert MAX_HEAD_BYTES >= 16 * 1024
    assert MAX_BODY_BYTES >= 1024
    assert asked("GET", "/capabilities", f"Cookie: {'x' * 8000}\r\n").status == 200
