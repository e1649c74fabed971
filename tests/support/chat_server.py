"""A small OpenAI-compatible model server for tests: it says what it is told to and remembers what it was asked.

It serves chat completions, streamed or not, and the list of models, on a free port of the loopback interface. The other
wire formats of `tests.support.chat_wires` get the same answers, as plain texts or calls.
It knows the three kinds of requests that matter here (a turn of Qwen Code's main model, its title request, its
recap request) and has a plain answer to each, so a test scripts only what it is about.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from tests.support.chat_wires import Wire, answer, events, offered_functions, wire_of

DEADLINE_SECONDS = 60.0
"""How long a wait for a request may take before the test fails."""


class Kind(Enum):
    """What a request is for, judged by its content alone."""

    TURN = "turn"
    """A turn of a coding session: streamed, with Qwen Code's main system prompt."""
    TITLE = "title"
    """A title asked for through a function with the one key `title`."""
    RECAP = "recap"
    """A recap asked for in `<recap>` tags."""
    OTHER = "other"
    """Anything else: helper agents, suggestions, other clients."""


@dataclass(frozen=True)
class ToolCall:
    """A function that the model calls, with its arguments as an object."""

    name: str
    arguments: Mapping[str, object]
    id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:12]}")


class Gate:
    """Holds an answer back until the test lets it go. One gate may hold several answers."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._released = threading.Event()

    def wait_arrived(self, timeout: float = DEADLINE_SECONDS) -> None:
        """Waits until a request stands at the gate. Raises `AssertionError` after `timeout` seconds."""
        if not self._arrived.wait(timeout):
            raise AssertionError(f"no request came to the gate within {timeout:g} s")

    def release(self) -> None:
        """Lets the answer go, and every later one."""
        self._released.set()

    def arrive(self) -> None:
        """Says that a request stands at the gate (the server's side)."""
        self._arrived.set()

    def released(self, timeout: float) -> bool:
        """Whether the gate is open, or opens within `timeout` seconds (the server's side)."""
        return self._released.wait(timeout)


@dataclass(frozen=True)
class Reply:
    """One answer of the model, or a failure of its server."""

    text: str = ""
    tool_calls: Sequence[ToolCall] = ()
    thought: str = ""
    """Reasoning that comes before the text, in the field `reasoning_content`."""
    delay_seconds: float = 0.0
    """Time before the first byte."""
    pause_seconds: float = 0.0
    """Time between the pieces of a streamed text."""
    gate: Gate | None = None
    """Holds the answer: all of it or, with `gate_midway`, what follows the first streamed piece of text."""
    gate_midway: bool = False
    status: int = 200
    """HTTP status; from 400 on the text is the error's message."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Additional response headers, such as Retry-After."""
    raw: bytes | None = None
    """A body sent as it is instead of a completion."""
    drop: bool = False
    """Close the connection without any answer."""


@dataclass(frozen=True)
class ChatRequest:
    """A request as it came in. `body` is the parsed JSON object; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    at: float
    """Arrival, in seconds since the epoch."""
    aborted: threading.Event = field(default_factory=threading.Event)
    """Set once the client was seen to leave before it had its answer."""

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def wire(self) -> Wire:
        """The wire format that it is in."""
        wire = wire_of(self.path.partition("?")[0])
        assert wire is not None, self.path
        return wire

    @property
    def stream(self) -> bool:
        return self.body.get("stream") is True or ":streamGenerateContent" in self.path

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        return list(self.body.get("messages", ()))

    @property
    def system(self) -> str:
        """The text of all system messages."""
        return "\n".join(_text_of(each) for each in self.messages if each.get("role") == "system")

    @property
    def prompt(self) -> str:
        """The last text part of the last user message: what was typed, without the reminders before it."""
        users = [each for each in self.messages if each.get("role") == "user"]
        parts = _text_parts(users[-1]) if users else []
        return parts[-1] if parts else ""

    @property
    def tools(self) -> dict[str, Mapping[str, Any]]:
        """The parameter schemas of the offered functions by name."""
        return offered_functions(self.body)

    @property
    def title_function(self) -> str | None:
        """The function through which a title is asked for, None when none is."""
        return next(
            (name for name, schema in self.tools.items() if set(schema.get("properties", ())) == {"title"}), None
        )

    @property
    def kind(self) -> Kind:
        if self.title_function is not None:
            return Kind.TITLE
        if "respond_in_schema" in self.tools:
            return Kind.OTHER
        if "<recap>" in self.system:
            return Kind.RECAP
        if self.stream and self.system.lstrip().startswith("You are Qwen Code"):
            return Kind.TURN
        return Kind.OTHER


Responder = Callable[[ChatRequest], "Reply | str | None"]


class ChatServer:
    """The server; runs from construction to `close`. Use as a context manager.

    Who answers a completion request, first that has an answer: `respond` (a function the test may set; None
    passes), the script of the request's kind, the default of that kind: "Answer 1.", "Answer 2.", ... to turns,
    `title`, `recap`, "OK." to the rest.
    """

    def __init__(self, title: str = "Title from the model", recap: str = "Recap from the model.") -> None:
        self.title = title
        self.recap = recap
        self.respond: Responder | None = None
        self.models = ["main-model", "fast-model"]
        self._scripts: dict[Kind, deque[Reply]] = {kind: deque() for kind in Kind}
        self._requests: list[ChatRequest] = []
        self._turns = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="chat-server")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """The URL that a client is configured with, ending in `/v1`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def script(self, *replies: Reply | str, kind: Kind = Kind.TURN) -> None:
        """Adds answers for the next requests of that kind, each used once, in this order."""
        with self._changed:
            self._scripts[kind].extend(_as_reply(reply) for reply in replies)

    def requests(self, kind: Kind | None = None) -> list[ChatRequest]:
        """The completion requests so far, oldest first; of one kind if given."""
        with self._changed:
            return [each for each in self._requests if kind is None or each.kind is kind]

    def requests_for(self, model: str) -> list[ChatRequest]:
        """The completion requests so far that named this model, oldest first."""
        return [each for each in self.requests() if each.model == model]

    def wait_requests(
        self, count: int, kind: Kind | None = None, timeout: float = DEADLINE_SECONDS
    ) -> list[ChatRequest]:
        """Waits until at least `count` requests (of the kind) have come; returns them all.

        Raises `AssertionError` after `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests(kind)) >= count, timeout):
                seen = [f"{each.kind.value} {each.model}" for each in self._requests]
                raise AssertionError(f"{count} requests did not come within {timeout:g} s, only {seen}")
            return self.requests(kind)

    def close(self) -> None:
        """Ends the server, its connections and its threads; held answers are never sent. May be repeated."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    # -- the server's side -----------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self._closing.is_set()

    def pause(self, seconds: float) -> None:
        """Waits so long, shorter when the server closes."""
        if seconds > 0:
            self._closing.wait(seconds)

    def take(self, request: ChatRequest) -> Reply:
        """Remembers a request and finds its answer."""
        kind = request.kind
        with self._changed:
            self._requests.append(request)
            self._turns += kind is Kind.TURN
            turn = self._turns
            self._changed.notify_all()
        reply = self.respond(request) if self.respond else None
        if reply is not None:
            return _as_reply(reply)
        with self._changed:
            if self._scripts[kind]:
                return self._scripts[kind].popleft()
        if kind is Kind.TITLE:
            return Reply(tool_calls=[ToolCall(request.title_function or "", {"title": self.title})])
        return Reply({Kind.TURN: f"Answer {turn}.", Kind.RECAP: f"<recap>{self.recap}</recap>"}.get(kind, "OK."))


def _as_reply(reply: Reply | str) -> Reply:
    return Reply(reply) if isinstance(reply, str) else reply


def _text_parts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [str(part["text"]) for part in content or () if part.get("type") == "text"]


def _text_of(message: Mapping[str, Any]) -> str:
    return "\n".join(_text_parts(message))


class _Server(ThreadingHTTPServer):
    """The HTTP server; knows its connections, since idle ones must be cut before their threads can be joined."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, owner: ChatServer) -> None:
        self.owner = owner
        self._connections: set[socket.socket] = set()
        self._connections_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def remember(self, connection: socket.socket) -> None:
        with self._connections_lock:
            self._connections.add(connection)

    def forget(self, connection: socket.socket) -> None:
        with self._connections_lock:
            self._connections.discard(connection)

    def hang_up(self) -> None:
        with self._connections_lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client was faster

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave in the middle are part of the tests; nothing is printed about them."""


class _ClientLeftError(Exception):
    """The client closed its connection before it had its answer, or the server is closing."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _owner(self) -> ChatServer:
        return cast(_Server, self.server).owner

    def setup(self) -> None:
        super().setup()
        cast(_Server, self.server).remember(self.connection)

    def finish(self) -> None:
        cast(_Server, self.server).forget(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name for it
        """Nothing is logged: the requests themselves are kept."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/v1/models":
            models = [{"id": each, "object": "model", "created": 0, "owned_by": "test"} for each in self._owner.models]
            self._send_json(200, {"object": "list", "data": models})
        else:
            self._send_json(404, _error("no such path", 404))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if wire_of(self.path.partition("?")[0]) is None:
            self._send_json(404, _error("no such path", 404))
            return
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._send_json(400, _error("the body is no JSON object", 400))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ChatRequest("POST", self.path, headers, body, time.time())
        try:
            self._answer(request, self._owner.take(request))
        except (_ClientLeftError, OSError):
            request.aborted.set()
            self.close_connection = True

    def _answer(self, request: ChatRequest, reply: Reply) -> None:
        self._owner.pause(reply.delay_seconds)
        if not reply.gate_midway:
            self._hold(reply)
        if reply.drop or self._owner.closing:
            raise _ClientLeftError
        if reply.raw is not None:
            self._send(reply.status, "application/json", reply.raw, reply.headers)
        elif reply.status >= 400:
            self._send_json(reply.status, _error(reply.text, reply.status), reply.headers)
        elif request.wire is not Wire.CHAT:
            self._answer_otherwise(request, reply)
        elif request.stream:
            self._stream(request, reply)
        else:
            self._send_json(200, _completion(request, reply), reply.headers)

    def _answer_otherwise(self, request: ChatRequest, reply: Reply) -> None:
        """An answer in another wire format; thoughts, pauses and calls in a stream are for chat completions only."""
        if request.stream:
            named = [(f"event: {name}\n" if name else "", data) for name, data in events(request.wire, reply.text)]
            body = "".join(f"{name}data: {json.dumps(data)}\n\n" for name, data in named)
            self._send(200, "text/event-stream", body.encode(), reply.headers)
        else:
            calls = [(call.name, call.arguments) for call in reply.tool_calls]
            self._send_json(200, answer(request.wire, reply.text, calls), reply.headers)

    def _hold(self, reply: Reply) -> None:
        """Waits at the reply's gate, with an eye on the client."""
        if reply.gate is None:
            return
        reply.gate.arrive()
        while not reply.gate.released(0.02):
            if self._owner.closing or self._client_left():
                raise _ClientLeftError

    def _client_left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def _stream(self, request: ChatRequest, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, chunk in enumerate(_chunks(request, reply)):
            if number == 2 and reply.gate_midway:
                self._hold(reply)
            self._send_piece(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self._owner.pause(reply.pause_seconds)
        self._send_piece(b"data: [DONE]\n\n")
        self._send_piece(b"")

    def _send_piece(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def _send_json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, "application/json", json.dumps(value).encode(), headers or {})

    def _send(self, status: int, kind: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _error(message: str, status: int) -> dict[str, object]:
    return {"error": {"message": message, "type": "server_error", "code": status}}


def _usage(request: ChatRequest, reply: Reply) -> dict[str, int]:
    prompt = len(json.dumps(request.body)) // 4
    answer = (len(reply.text) + len(reply.thought)) // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def _call(call: ToolCall) -> dict[str, object]:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _completion(request: ChatRequest, reply: Reply) -> dict[str, object]:
    """The answer to a request without streaming."""
    message: dict[str, object] = {"role": "assistant", "content": reply.text or None}
    if reply.thought:
        message["reasoning_content"] = reply.thought
    if reply.tool_calls:
        message["tool_calls"] = [_call(call) for call in reply.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    return _envelope(request, "chat.completion", choices=[choice], usage=_usage(request, reply))


def _chunks(request: ChatRequest, reply: Reply) -> Iterator[dict[str, object]]:
    """The answer to a streamed request: the role, thought, text in two pieces, calls, the end, and the usage."""

    def chunk(delta: Mapping[str, object], finish_reason: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return _envelope(request, "chat.completion.chunk", choices=[choice])

    first = {"reasoning_content": reply.thought} if reply.thought else {"content": ""}
    yield chunk({"role": "assistant", **first})
    middle = (len(reply.text) + 1) // 2
    for piece in (reply.text[:middle], reply.text[middle:]):
        if piece:
            yield chunk({"content": piece})
    for index, call in enumerate(reply.tool_calls):
        yield chunk({"tool_calls": [{"index": index, **_call(call)}]})
    yield chunk({}, _finish_reason(reply))
    yield _envelope(request, "chat.completion.chunk", choices=[], usage=_usage(request, reply))


def _finish_reason(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls else "stop"


def _envelope(request: ChatRequest, kind: str, **rest: object) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{id(request):x}",
        "object": kind,
        "created": int(request.at),
        "model": request.model,
        **rest,
    }
