"""Requests made in a process of their own: the same outcomes as in this one, and nothing left behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.text_model.harness import KEY, Desk, make_endpoint, title_prompt
from tests.edge.text_model.quirks import always, chat_text, error
from tests.support.live import eventually
from tests.support.model_server import ModelServer, Request, Response
from watcher.core.generation import Answer, Failure, Outcome
from watcher.core.reasons import Reason
from watcher.edge.text_model import Abort, Endpoint, TextModelClient, in_another_process

PLENTY_SECONDS = 30.0


def ask(desk: Desk, endpoint: Endpoint, abort: Abort | None = None) -> Outcome:
    """One call, made apart."""
    client = TextModelClient(
        endpoint,
        learned=desk.store,
        budget=desk.budget,
        gate=desk.gate,
        clock=lambda: desk.now,
        environ=desk.environ,
        connect=in_another_process,
    )
    return client.generate(title_prompt(), abort or Abort())


def children() -> set[int]:
    """The processes that this one has started and that have not ended; none where there is no `/proc`."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


@contextlib.contextmanager
def hanging() -> Iterator[tuple[ModelServer, threading.Event]]:
    """A server that takes a request and does not answer it before it is told to."""
    release = threading.Event()

    def script(_: Request) -> Response:
        release.wait(PLENTY_SECONDS)
        return chat_text('{"title": "x"}')

    with ModelServer(script) as server:
        try:
            yield server, release
        finally:
            release.set()


def test_an_answer_comes_through() -> None:
    """Texts in any script, the key where it belongs, one request of the budget."""
    desk = Desk()
    with ModelServer(always(chat_text('{"title": "修复 登录 “naïve”"}'))) as server:
        outcome = ask(desk, make_endpoint(f"{server.url}/v1", timeout_seconds=PLENTY_SECONDS))
        [request] = server.requests
    assert isinstance(outcome, Answer)
    assert "修复 登录 “naïve”" in outcome.text
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert desk.budget.taken == 1


@pytest.mark.slow
def test_refusals_and_faults_are_the_same_as_here() -> None:
    """A refused key, a server that is not there, one that speaks no HTTP."""
    for script in (always(error("no", 401)), always(Response(body=b"x" * 100_000)), always(Response(200, b"{"))):
        with ModelServer(script) as server:
            endpoint = make_endpoint(f"{server.url}/v1", timeout_seconds=PLENTY_SECONDS)
            assert ask(Desk(), endpoint) == Desk().ask(endpoint)
    gone = make_endpoint(f"{server.url}/v1", timeout_seconds=PLENTY_SECONDS)
    outcome = ask(Desk(), gone)
    assert isinstance(outcome, Failure)
    assert outcome.detail == "connection refused"


def test_an_abort_ends_it_at_once() -> None:
    """The process is gone with it."""
    before, abort = children(), Abort()
    with hanging() as (server, _):

        def abort_it() -> None:
            server.wait_requests(1)
            abort.set()

        threading.Thread(target=abort_it).start()
        begun = time.monotonic()
        outcome = ask(Desk(), make_endpoint(f"{server.url}/v1", timeout_seconds=PLENTY_SECONDS), abort)
        assert time.monotonic() - begun < PLENTY_SECONDS / 2
    assert isinstance(outcome, Failure)
    assert outcome.reason is Reason.ABORTED
    assert children() == before


def test_the_time_limit_holds() -> None:
    """A server that does not answer."""
    before = children()
    with hanging() as (server, _):
        outcome = ask(Desk(), make_endpoint(f"{server.url}/v1", timeout_seconds=1.0))
    assert isinstance(outcome, Failure)
    assert outcome.detail == "no whole answer within 1 s"
    assert children() == before


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """Nothing is sent then, and the endpoint is not held back for it."""
    desk = Desk(environ={"SSL_CERT_FILE": str(tmp_path / "none.pem")})
    outcome = ask(desk, make_endpoint("https://model.test/v1", timeout_seconds=PLENTY_SECONDS))
    assert isinstance(outcome, Failure)
    assert outcome.detail == f"SSL_CERT_FILE: there is no file {tmp_path / 'none.pem'}"
    assert desk.client(make_endpoint("https://model.test/v1")).held() is None


def test_no_process_is_a_failure_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has no memory left."""
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    outcome = ask(Desk(), make_endpoint("http://127.0.0.1:9/v1"))
    assert isinstance(outcome, Failure)
    assert outcome.detail == "cannot start a process for the request: No such file or directory"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_key_stands_in_no_command_line_or_environment() -> None:
    """It goes through a pipe: others may read the rest with `ps`."""
    with hanging() as (server, release):
        before = children()
        endpoint = make_endpoint(f"{server.url}/v1", timeout_seconds=PLENTY_SECONDS)
        caller = threading.Thread(target=ask, args=(Desk(), endpoint))
        caller.start()
        server.wait_requests(1)
        [child] = children() - before
        shown = Path(f"/proc/{child}/cmdline").read_bytes() + Path(f"/proc/{child}/environ").read_bytes()
        release.set()
        caller.join()
    assert KEY.encode() not in shown


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.slow
def test_it_ends_with_the_watcher() -> None:
    """Even with one that was killed: nothing of ours goes on alone."""
    program = (
        "import sys\n"
        "from watcher.edge.text_model import Abort, in_another_process\n"
        "from watcher.edge.text_model.endpoint import HttpRequest\n"
        "from watcher.edge.text_model.network import Route\n"
        "exchange = in_another_process(Route(secure=False), {})\n"
        "exchange(HttpRequest(sys.argv[1], (), b'{}'), timeout_seconds=30.0, abort=Abort())\n"
    )
    with hanging() as (server, _):
        watcher = subprocess.Popen([sys.executable, "-c", program, f"{server.url}/v1"])
        try:
            server.wait_requests(1)
            [child] = Path(f"/proc/{watcher.pid}/task/{watcher.pid}/children").read_text().split()
        finally:
            watcher.send_signal(signal.SIGKILL)
            watcher.wait()
        eventually(lambda: not Path(f"/proc/{child}").exists())
