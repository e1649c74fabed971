"""Real sockets: bounded in time and size, stopped at once, trusted certificates only, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import gzip
import logging
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.edge.text_model.harness import KEY, SPOKEN, Desk, make_endpoint, title_prompt
from tests.edge.text_model.quirks import TITLE, always, chat_text, error, unless
from tests.support.model_server import DEADLINE_SECONDS, ModelServer, Response
from watcher.core.generation import Answer, Failure, Outcome
from watcher.core.reasons import Reason
from watcher.core.secret import SecretText
from watcher.edge.text_model import Abort, Endpoint

HOST = "model.test"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a private CA (`ca.pem`) and a server's certificate by it (`server.pem`, key included)."""
    folder = tmp_path_factory.mktemp("ca")

    def run(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    subject = f"subjectAltName=DNS:localhost,DNS:{HOST},IP:127.0.0.1"
    (folder / "ext").write_text(subject)
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run("req", "-x509", *new, "-days", "2", "-subj", "/CN=Test CA", "-keyout", "ca.key", "-out", "ca.pem")
    run("req", *new, "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext")
    run("x509", "-req", "-in", "server.csr", *signing, "-out", "server.crt")
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())
    return folder


@pytest.fixture
def server_tls(authority: Path) -> ssl.SSLContext:
    """What a server with that certificate speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem")
    return context


def detail(outcome: Outcome) -> str:
    """The detail of a model error."""
    assert isinstance(outcome, Failure), outcome
    assert outcome.reason is Reason.MODEL_ERROR
    return outcome.detail


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_trickle_is_cut_at_the_time_limit() -> None:
    """A byte now and then keeps no connection alive: the limit is for the whole answer."""
    with ModelServer(always(Response(body=b" " * 10_000, trickle_seconds=0.05))) as server:
        started = time.monotonic()
        outcome = Desk().ask(make_endpoint(f"{server.url}/v1", timeout_seconds=0.6))
        assert time.monotonic() - started < 5.0
    assert detail(outcome) == "no whole answer within 0.6 s"


def test_an_answer_without_end_is_dropped_at_its_limit() -> None:
    """Nothing is read beyond 64 KiB, so a server that goes on for ever is no different from a long answer."""
    with ModelServer(always(Response(body=b" " * 66_000, length=10**12, stall=True))) as server:
        outcome = Desk().ask(make_endpoint(f"{server.url}/v1", timeout_seconds=15.0))
    assert detail(outcome) == "the answer is longer than 64 KiB"


def test_a_packed_answer_is_not_unpacked_beyond_its_limit() -> None:
    """50 KiB can hold 50 MiB."""
    bomb = Response(200, gzip.compress(b" " * 50_000_000), {"content-encoding": "gzip"})
    with ModelServer(always(bomb)) as server:
        endpoint = make_endpoint(f"{server.url}/v1")
        tracemalloc.start()
        try:
            outcome = Desk().ask(endpoint)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
    assert detail(outcome) == "the answer is longer than 64 KiB"


def test_a_status_counts_even_if_its_body_never_ends() -> None:
    """An error's body is only read to explain it."""
    with ModelServer(always(Response(401, b" " * 10_000, trickle_seconds=0.05))) as server:
        outcome = Desk().ask(make_endpoint(f"{server.url}/v1", timeout_seconds=0.6))
    assert "HTTP 401" in detail(outcome)


def slow_error(seconds: float) -> Response:
    """A refusal that takes `seconds` to say."""
    return Response(400, b"no!", trickle_seconds=seconds / 2)


def test_no_extra_request_is_begun_too_late() -> None:
    """An attempt takes at most twice the time of a request, and a third one would have no time left."""
    with ModelServer(always(slow_error(0.95))) as server:
        assert isinstance(Desk().ask(make_endpoint(f"{server.url}/v1", timeout_seconds=1.0)), Failure)
        assert len(server.requests) == 2


@pytest.mark.slow
def test_a_late_extra_request_gets_only_the_time_that_is_left() -> None:
    """More than half of the time is gone after two requests."""
    answers = [slow_error(0.8), slow_error(0.8), Response(hold=True)]
    with ModelServer(lambda _: answers.pop(0)) as server:
        outcome = Desk().ask(make_endpoint(f"{server.url}/v1", timeout_seconds=1.5))
    seconds = re.fullmatch(r"no whole answer within ([\d.]+) s", detail(outcome))
    assert seconds is not None
    assert float(seconds[1]) < 1.45


# -- abort -------------------------------------------------------------------------------------------------------------


class Call:
    """A call of `generate` in a thread of its own."""

    def __init__(self, desk: Desk, endpoint: Endpoint) -> None:
        self.abort = Abort()
        self.outcomes: list[Outcome] = []
        client = desk.client(endpoint)
        self._thread = threading.Thread(
            target=lambda: self.outcomes.append(client.generate(title_prompt(), self.abort)), daemon=True
        )
        self._thread.start()

    def stop(self) -> tuple[Outcome, float]:
        """Abort it; its outcome, and how long that took."""
        started = time.monotonic()
        self.abort.set()
        self._thread.join(DEADLINE_SECONDS)
        took = time.monotonic() - started
        assert self.outcomes, "the call did not end"
        return self.outcomes[0], took


def assert_stops(call: Call) -> None:
    outcome, took = call.stop()
    assert isinstance(outcome, Failure)
    assert outcome.reason is Reason.ABORTED
    assert took < 2.0


def test_abort_ends_a_call_that_waits_for_the_answer() -> None:
    """Within a second, and the address is not blamed for it."""
    desk = Desk()
    with ModelServer(always(Response(hold=True))) as server:
        endpoint = make_endpoint(f"{server.url}/v1", timeout_seconds=60.0)
        call = Call(desk, endpoint)
        server.wait_requests(1)
        assert_stops(call)
    assert desk.client(endpoint).held() is None


def test_abort_ends_a_call_in_the_middle_of_a_body() -> None:
    """A trickling answer is dropped."""
    with ModelServer(always(Response(body=b" " * 60_000, trickle_seconds=0.01))) as server:
        call = Call(Desk(), make_endpoint(f"{server.url}/v1", timeout_seconds=60.0))
        server.wait_requests(1)
        assert_stops(call)


def test_abort_ends_a_call_in_the_middle_of_a_tls_handshake() -> None:
    """A server that accepts and says nothing; the connection is closed at once, not when memory is tidied up."""
    with socket.create_server(("127.0.0.1", 0)) as listener, without_collector():
        descriptors = open_descriptors()
        call = Call(Desk(), make_endpoint(f"https://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=60.0))
        listener.settimeout(DEADLINE_SECONDS)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(DEADLINE_SECONDS)
            assert connection.recv(1)
            assert_stops(call)
            assert open_descriptors() == descriptors + 1  # this end


def test_a_handshake_that_takes_too_long_leaves_no_connection() -> None:
    """Neither does the time limit."""
    with socket.create_server(("127.0.0.1", 0)) as listener, without_collector():
        descriptors = open_descriptors()
        endpoint = make_endpoint(f"https://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=0.3)
        assert "no whole answer" in detail(Desk().ask(endpoint))
        assert open_descriptors() == descriptors


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Within, cycles of objects are not found, so what they hold stays open."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def silent_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A resolver that does not answer before the test is over; set once it was asked. No real one can be made to."""
    asked, release = threading.Event(), threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        asked.set()
        release.wait(DEADLINE_SECONDS)
        raise socket.gaierror(socket.EAI_AGAIN, "test")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    yield asked
    release.set()
    for thread in threading.enumerate():
        if thread.name == "text-model-resolver":
            thread.join(DEADLINE_SECONDS)


def test_abort_ends_a_call_while_the_name_is_looked_up(silent_resolver: threading.Event) -> None:
    """A look-up cannot be stopped, but nobody waits for it."""
    call = Call(Desk(), make_endpoint(f"https://{HOST}/v1", timeout_seconds=60.0))
    assert silent_resolver.wait(DEADLINE_SECONDS)
    assert_stops(call)


def test_a_look_up_without_an_answer_is_cut_at_the_time_limit(silent_resolver: threading.Event) -> None:
    """The limit is for the whole request, from the name on."""
    started = time.monotonic()
    assert "no whole answer" in detail(Desk().ask(make_endpoint(f"https://{HOST}/v1", timeout_seconds=0.5)))
    assert time.monotonic() - started < 5.0


def test_a_process_can_end_while_a_name_is_looked_up() -> None:
    """SIGTERM must end the service within 2 s: no thread of ours may be waited for."""
    program = """
import socket, sys, threading, time
from watcher.edge.text_model import Abort
from tests.edge.text_model.harness import Desk, make_endpoint, title_prompt
asked = threading.Event()
socket.getaddrinfo = lambda *a, **k: (asked.set(), time.sleep(60))
abort = Abort()
call = threading.Thread(target=Desk().client(make_endpoint("https://h.test/v1")).generate, args=(title_prompt(), abort))
call.start()
assert asked.wait(20)
abort.set()
call.join()
print("ended", flush=True)
"""
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ended\n"
        started = time.monotonic()
        assert process.wait(DEADLINE_SECONDS) == 0
        assert time.monotonic() - started < 10.0


# -- the network -------------------------------------------------------------------------------------------------------


def test_a_name_that_does_not_exist_is_said_so() -> None:
    """`.invalid` never resolves (RFC 2606)."""
    assert detail(Desk().ask(make_endpoint("https://model.invalid/v1"))) == "the host's name cannot be resolved"


def test_a_closed_port_is_said_so() -> None:
    """The local server that was not started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert detail(Desk().ask(make_endpoint(f"http://127.0.0.1:{port}/v1"))) == "connection refused"


def test_https_to_a_plain_server_is_said_so() -> None:
    """A wrong scheme in the base URL."""
    with ModelServer(always(Response(raw=b"HTTP/1.1 400 Bad Request\r\n\r\n"))) as server:
        # The server takes the client's hello for a request that never ends, so it is told to answer at once.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=_speak_plainly, args=(listener,), daemon=True)
            thread.start()
            outcome = Desk().ask(make_endpoint(f"https://127.0.0.1:{listener.getsockname()[1]}/v1"))
            thread.join(DEADLINE_SECONDS)
        assert server.requests == []
    assert "is the address really https?" in detail(outcome)


def _speak_plainly(listener: socket.socket) -> None:
    listener.settimeout(DEADLINE_SECONDS)
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(DEADLINE_SECONDS)
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")


def test_a_redirect_takes_no_key_along() -> None:
    """It is not followed at all, so neither the key nor the conversation goes to another place."""
    with ModelServer(always(chat_text(TITLE))) as other:
        away = Response(307, b"", {"location": f"{other.url}/v1/chat/completions"})
        with ModelServer(always(away)) as server:
            assert "redirect" in detail(Desk().ask(make_endpoint(f"{server.url}/v1")))
        assert other.requests == []


@pytest.mark.parametrize("location", ["", "http://[::bad", "javascript:alert(1)", "http://\xff\xfe/", "https://a b/"])
def test_a_redirect_to_nowhere_is_a_redirect_like_others(location: str) -> None:
    """Its address is not even read, so it is neither an outage nor a fault of the settings."""
    with ModelServer(always(Response(301, b"", {"location": location}))) as server:
        outcome = Desk().ask(make_endpoint(f"{server.url}/v1"))
    assert "redirect" in detail(outcome)
    assert isinstance(outcome, Failure)
    assert (outcome.status, outcome.retry_at) == (301, None)


def test_a_private_authority_is_trusted_when_it_is_named(authority: Path, server_tls: ssl.SSLContext) -> None:
    """By SSL_CERT_FILE, or by the variable that Node has for it; else the failure says what to do (report H3)."""
    with ModelServer(unless(), tls=server_tls) as server:
        endpoint = make_endpoint(f"{server.url}/v1")
        for variable in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
            outcome = Desk(environ={variable: str(authority / "ca.pem")}).ask(endpoint)
            assert isinstance(outcome, Answer), outcome
        assert "SSL_CERT_FILE" in detail(Desk().ask(endpoint))
        assert "no file" in detail(Desk(environ={"SSL_CERT_FILE": str(authority / "none.pem")}).ask(endpoint))
        assert len(server.requests) == 2


def test_a_certificate_for_another_name_is_not_trusted(authority: Path, server_tls: ssl.SSLContext) -> None:
    """The right authority is not enough."""
    with ModelServer(unless(), tunnel=server_tls) as proxy:
        environ = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(authority / "ca.pem")}
        assert "not trusted" in detail(Desk(environ=environ).ask(make_endpoint("https://other.test/v1")))
        assert proxy.connects == ["other.test:443"]
        assert proxy.requests == []


def test_a_bad_setting_costs_no_call_of_the_budget(tmp_path: Path) -> None:
    """Neither a broken proxy, nor missing certificates, nor a key that cannot be sent: all before the first byte."""
    desk = Desk(environ={"HTTPS_PROXY": "socks://p.example"})
    assert detail(desk.ask(make_endpoint("https://h.example/v1"))).startswith("HTTPS_PROXY: ")
    desk.environ = {"SSL_CERT_FILE": str(tmp_path / "none.pem")}
    assert detail(desk.ask(make_endpoint("https://h.example/v1"))).startswith("SSL_CERT_FILE: ")
    desk.environ = {}
    assert "API key" in detail(desk.ask(make_endpoint("https://h.example/v1", api_key=SecretText("a b\nc"))))
    assert desk.budget.taken == 0
    assert desk.client(make_endpoint("https://h.example/v1")).held() is None


def test_a_plain_address_is_asked_through_the_proxy() -> None:
    """With the whole address in the request line; the proxy resolves the name."""
    with ModelServer(unless()) as proxy:
        desk = Desk(environ={"HTTP_PROXY": f"http://user:hunter2@127.0.0.1:{proxy.port}"})
        assert isinstance(desk.ask(make_endpoint(f"http://{HOST}/v1")), Answer)
        assert proxy.requests[0].target == f"http://{HOST}/v1/chat/completions"
        assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")


def test_a_secure_address_is_asked_through_a_tunnel(authority: Path, server_tls: ssl.SSLContext) -> None:
    """The proxy sees the name, not the key."""
    with ModelServer(unless(), tunnel=server_tls) as proxy:
        environ = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(authority / "ca.pem")}
        assert isinstance(Desk(environ=environ).ask(make_endpoint(f"https://{HOST}/v1")), Answer)
        assert proxy.connects == [f"{HOST}:443"]
        assert proxy.requests[0].target == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", "the connection was refused"),
        (b"", "closed before the answer was whole"),
    ],
)
def test_a_proxy_that_refuses_is_said_so(reply: bytes, words: str) -> None:
    """The failure is the proxy's, not the model's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            listener.settimeout(DEADLINE_SECONDS)
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(DEADLINE_SECONDS)
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        environ = {"HTTPS_PROXY": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        outcome = Desk(environ=environ).ask(make_endpoint(f"https://{HOST}/v1"))
        thread.join(DEADLINE_SECONDS)
    assert words in detail(outcome)
    assert detail(outcome).endswith(", by way of the proxy")


@pytest.mark.parametrize("name", ["xn--", "a" * 70, "a..b", "a b", "\u2460", "-"])
def test_a_name_that_cannot_exist_is_an_error_like_any_other(name: str) -> None:
    """The libraries below have an exception of their own for each kind."""
    assert detail(Desk().ask(make_endpoint(f"https://{name}.invalid/v1")))
    environ = {"HTTPS_PROXY": f"http://{name}.invalid:3128"}
    assert detail(Desk(environ=environ).ask(make_endpoint("https://h.invalid/v1")))


def test_the_environment_of_the_process_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the one that is handed in, which knows Qwen Code's own `.env` as well."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks://rubbish")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent.pem")
    assert detail(Desk().ask(make_endpoint("https://model.invalid/v1"))) == "the host's name cannot be resolved"


# -- nothing left ------------------------------------------------------------------------------------------------------


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if Path("/proc/self/fd").exists() else "/dev/fd"))


def test_two_hundred_calls_leave_nothing_behind() -> None:
    """No descriptor, no thread, whatever the server does."""
    answers: list[Callable[[], Response]] = [
        lambda: chat_text(TITLE),
        lambda: Response(body=b'{"choices":', length=500),
        lambda: Response(raw=b""),
        lambda: chat_text("x" * 70_000),
        lambda: Response(404),
    ]
    count = [0]

    def script(_: object) -> Response:
        count[0] += 1
        return answers[count[0] % len(answers)]()

    with ModelServer(script) as server:
        endpoint = make_endpoint(f"{server.url}/v1")
        Desk().ask(endpoint)
        descriptors, threads = open_descriptors(), own_threads()
        for _ in range(200):
            Desk().ask(endpoint)
        settled = _wait_until(lambda: open_descriptors() <= descriptors + 1 and own_threads() <= threads)
    assert settled, (open_descriptors(), descriptors, own_threads(), threads)


def own_threads() -> int:
    return sum(not thread.name.startswith("model-server") for thread in threading.enumerate())


def _wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        threading.Event().wait(0.02)
    return False


def test_importing_the_package_loads_no_http_client() -> None:
    """The idle service must not pay for what it has not used yet."""
    program = (
        "import sys, watcher.edge.text_model; "
        "print([name for name in ('httpx', 'asyncio', 'ssl', 'anyio') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout.strip() == "[]"


def test_credentials_in_an_address_reach_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """They are sent, and written nowhere."""
    caplog.set_level(logging.DEBUG)
    with ModelServer(unless()) as server:
        address = f"http://user:hunter2@127.0.0.1:{server.port}/v1?key=hunter3"
        outcome = Desk().ask(make_endpoint(address, api_key=None))
        assert server.requests[0].headers["authorization"].startswith("Basic ")
        assert server.requests[0].target.endswith("?key=hunter3")
    assert "hunter" not in caplog.text + repr(outcome)


def test_no_key_and_no_text_in_any_phrase() -> None:
    """Every failure above was made of our own words: the marks of key and prompt stand in none."""
    with contextlib.ExitStack() as stack:
        desk, outcomes = Desk(), []
        for response in (Response(raw=KEY.encode()), error(SPOKEN), error(KEY, 401), Response(500, SPOKEN.encode())):
            server = stack.enter_context(ModelServer(always(response)))
            outcomes.append(desk.ask(make_endpoint(f"{server.url}/v1")))
    assert all(isinstance(outcome, Failure) for outcome in outcomes)
    assert SPOKEN not in repr(outcomes)
    assert KEY not in repr(outcomes)
