"""The local API of the running service, over its real socket, with a real model server behind it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.api.house import House, house, read_answer
from tests.support.chat_server import ChatServer, Gate, Kind, Reply
from tests.support.live import eventually
from watcher.api.client import ask

RECAP = "You fix the flaky login test. Next: run the whole suite."
RECAPS_SOON = "[recap]\nenabled = true\naway_minutes = 0.02\n"
COMMAND = """
import os, sys
from watcher.catalog import Catalog
from watcher.edge.text_model import Abort
from watcher.requested import recap_on_request
from watcher.workplace import Workplace
with Workplace(os.environ) as place:
    ref = Catalog(place.roots, place.liveness, None).find(sys.argv[1])
    print(recap_on_request(place, ref, Abort()).text)
"""
"""What the command `recap` does, in a process of its own."""


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A model that answers."""
    with ChatServer(recap=RECAP) as made:
        yield made


@pytest.fixture
def home(server: ChatServer) -> Iterator[House]:
    """A home whose watcher asks that model."""
    with house(server.base_url) as made:
        yield made


def without_times(value: object) -> object:
    """The value without what differs from one look to the next."""
    if not isinstance(value, dict):
        return value
    return {key: without_times(each) for key, each in value.items() if key not in ("rss_bytes", "watched", "detail")}


def test_status_and_why_are_what_the_commands_say(home: House) -> None:
    """One JSON, whoever is asked."""
    session = home.session()
    with home.watching():
        status = home.run("status", "--json")
        assert status.returncode == 0, status.stderr
        assert without_times(home.ask("/status").value) == without_times(json.loads(status.stdout))
        why = home.ask(f"/session/{session.session_id[:8]}/why").value
        assert why["session_id"] == session.session_id
        assert why["title"]["verdict"] == "skip"
        assert why["title"]["reason"] == "nothing_new"
        assert why["recap"]["reason"] == "recaps_off"
        assert {"name", "ok", "detail"} == set(why["title"]["guards"][0])
        assert ask(home.socket, f"/session/{session.session_id}/why") == why


def test_why_knows_what_only_the_service_knows(home: House, server: ChatServer) -> None:
    """A model call that is running just now."""
    gate = Gate()
    server.script(Reply("", gate=gate), kind=Kind.TITLE)
    session = home.session(turns=0)
    with home.watching():
        session.turn("Please fix the flaky login test", "It is fixed.")
        gate.wait_arrived()
        why = home.ask(f"/session/{session.session_id}/why").value
        assert why["watched"] is True
        assert why["title"]["reason"] == "in_flight"
        gate.release()


def test_a_recap_costs_one_call_until_something_happens(home: House, server: ChatServer) -> None:
    """The stored one is given again; after another turn a new one is made."""
    session = home.session()
    target = f"/session/{session.session_id}/recap"
    with home.watching():
        expected = {"sessionId": session.session_id, "recap": RECAP, "reason": None}
        assert home.ask(target, "POST").value == expected
        assert home.ask(target, "POST").value == expected
        assert len(server.requests(Kind.RECAP)) == 1
        session.turn("And the logout test", "Done as well.")
        assert home.ask(target, "POST").value == expected
        assert len(server.requests(Kind.RECAP)) == 2
    assert RECAP not in session.path.read_text()  # shown, not recorded


def test_a_recap_that_stands_in_the_file_is_given(home: House, server: ChatServer) -> None:
    """Also one of Qwen Code's own, as long as no prompt came since."""
    session = home.session()
    session.recap("You were testing the login.")
    with home.watching():
        target = f"/session/{session.session_id}/recap"
        assert home.ask(target, "POST").value["recap"] == "You were testing the login."
        assert server.requests() == []
        session.turn("And the logout test", "Done as well.")
        assert home.ask(target, "POST").value["recap"] == RECAP


def test_no_recap_has_a_reason(home: House, server: ChatServer) -> None:
    """Null and the word that the command would print."""
    empty = home.session(turns=0)
    empty.append(empty.record("system", provenance="system", subtype="session_start", systemPayload={}))
    full = home.session()
    server.script(Reply("overloaded", status=500), kind=Kind.RECAP)
    with home.watching():
        answer = home.ask(f"/session/{empty.session_id}/recap", "POST")
        assert answer.value == {"sessionId": empty.session_id, "recap": None, "reason": "empty_history"}
        answer = home.ask(f"/session/{full.session_id}/recap", "POST")
        assert answer.value == {"sessionId": full.session_id, "recap": None, "reason": "model_error"}
        assert answer.status == 200


@pytest.mark.slow
def test_two_triggers_and_a_command_in_the_same_instant_cost_one_call(home: House, server: ChatServer) -> None:
    """The away recap, the local API and a command in another process: one request, one text (report C14)."""
    home.configure(server.base_url, RECAPS_SOON)
    gate = Gate()
    server.script(Reply(f"<recap>{RECAP}</recap>", gate=gate), kind=Kind.RECAP)
    session = home.session(turns=2, title="Login test")
    with home.watching(), ThreadPoolExecutor(3) as pool:
        session.at = time.time() - 2
        session.turn("And the last part of the login test", "It is fixed.")
        gate.wait_arrived()  # the service's own away recap
        target = f"/session/{session.session_id}/recap"
        api = [pool.submit(home.ask, target, "POST") for _ in range(2)]
        command = pool.submit(
            subprocess.run,
            [sys.executable, "-c", COMMAND, session.session_id],
            env=home.environ | {"PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            timeout=60,
        )
        eventually(lambda: len(list((home.state / "calls").iterdir())) == 1)
        gate.release()
        assert [each.result(30).value["recap"] for each in api] == [RECAP, RECAP]
        assert command.result(60).stdout.strip() == RECAP, command.result().stderr
        eventually(lambda: RECAP in session.path.read_text())
    assert len(server.requests()) == 1


def test_a_client_that_leaves_ends_the_model_call(home: House, server: ChatServer) -> None:
    """The endpoint sees the connection close, long before any timeout."""
    gate = Gate()
    server.script(Reply(RECAP, gate=gate), kind=Kind.RECAP)
    session = home.session()
    with home.watching():
        with home.connect() as client:
            client.sendall(f"POST /session/{session.session_id}/recap HTTP/1.1\r\n\r\n".encode())
            gate.wait_arrived()
        (request,) = server.requests(Kind.RECAP)
        assert request.aborted.wait(10)
        assert home.ask(f"/session/{session.session_id}/recap", "POST").value["recap"] == RECAP


def test_a_stop_does_not_wait_for_a_model(home: House, server: ChatServer) -> None:
    """SIGTERM while a recap is asked for: the service ends within two seconds, and the client hears of its end."""
    gate = Gate()
    server.script(Reply(RECAP, gate=gate), kind=Kind.RECAP)
    session = home.session()
    with home.watching() as process, home.connect() as client:
        client.sendall(f"POST /session/{session.session_id}/recap HTTP/1.1\r\n\r\n".encode())
        gate.wait_arrived()
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - begun < 2.0
        client.recv(65536)
    assert not home.socket.exists()


def test_fifty_clients_at_once_are_all_answered(home: House) -> None:
    """While others say nothing."""
    session = home.session()
    with home.watching():
        silent = [home.connect() for _ in range(10)]
        targets = ["/status", "/capabilities", f"/session/{session.session_id}/why", "/session/00000000/why", "/"]
        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(home.ask, targets * 10))
        assert [answer.status for answer in answers] == [200, 200, 200, 404, 404] * 10
        for connection in silent:
            connection.close()
    assert "warning" not in home.log.read_text()


def test_no_tcp_port_is_opened(home: House) -> None:
    """The socket in the file system is the only one that listens."""
    with home.watching() as process:
        home.ask("/status")
        assert psutil.Process(process.pid).net_connections("inet") == []


def test_what_a_killed_service_left_is_replaced(home: House) -> None:
    """Its socket still stands there."""
    with home.watching() as process:
        process.kill()
        process.wait()
        assert home.socket.exists()
        assert ask(home.socket, "/capabilities") is None
    with home.watching():
        assert home.ask("/capabilities").status == 200


@pytest.mark.slow
def test_a_second_instance_leaves_the_socket_of_the_first(home: House) -> None:
    """It ends before it comes that far; a dry run beside the service opens none."""
    with home.watching():
        assert home.run("run").returncode == 1
        assert home.ask("/capabilities").status == 200
        dry = subprocess.Popen(
            [sys.executable, "-m", "watcher", "run", "--dry-run"], env=home.environ, stderr=subprocess.PIPE, text=True
        )
        assert dry.stderr is not None
        with dry:
            lines = iter(dry.stderr.readline, "")
            assert any("started" in line for line in lines)
            dry.terminate()
        assert home.ask("/capabilities").status == 200


def test_without_a_socket_the_service_goes_on(home: House, server: ChatServer) -> None:
    """A path that is too long is one warning, with the remedy."""
    runtime = home.home / ("r" * 100)
    runtime.mkdir()
    del home.environ["QWEN_WATCHER_STATE_DIR"]
    home.environ |= {"XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(home.home / "x")}
    home.socket = Path("/nonexistent")
    session = home.session(turns=0)
    with home.log.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "watcher", "run"], env=home.environ, stderr=log)
    try:
        eventually(lambda: '"started"' in home.log.read_text(), 20)
        session.turn("Please fix the flaky login test", "It is fixed.")
        eventually(lambda: server.title in session.path.read_text(), 20)
    finally:
        process.terminate()
        assert process.wait(10) == 0
    warnings = [json.loads(line) for line in home.log.read_text().splitlines() if '"warning"' in line]
    assert [warning["event"] for warning in warnings] == ["api"]
    assert "too long for a socket" in warnings[0]["detail"]


def test_nobody_answers_the_command_then(home: House) -> None:
    """No socket, a dead one, one that never answers, and one that answers nonsense."""
    assert ask(home.socket, "/status") is None
    home.state.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(home.socket))
        assert ask(home.socket, "/status") is None
        listener.listen()
        begun = time.monotonic()
        assert ask(home.socket, "/status", timeout_seconds=0.2) is None
        assert time.monotonic() - begun < 2
        listener.accept()[0].close()  # the one that was given up
        for nonsense in (
            b"",
            b"hello\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
            b"HTTP/1.1 200 OK\r\n\r\n{",
        ):
            thread = threading.Thread(target=_say, args=(listener, nonsense))
            thread.start()
            assert ask(home.socket, "/status") is None
            thread.join()


def _say(listener: socket.socket, data: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(data)


def test_the_hooks_of_the_configuration_are_called(home: House, server: ChatServer) -> None:
    """With the line that `tail --json` prints, and without the variables that are the service's own."""
    out = home.home / "out"
    hook = home.home / "hook"
    hook.write_text(
        f'#!/bin/sh\ncat > {out}.new\necho "[$NOTIFY_SOCKET$WATCHDOG_USEC]" >> {out}.new\nmv {out}.new {out}\n'
    )
    hook.chmod(0o755)
    home.configure(
        server.base_url, f'[recap]\nenabled = false\n[hooks]\non_title = ["{hook}"]\non_recap = ["/bin/false"]\n'
    )
    home.environ |= {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "30000000"}
    session = home.session(turns=0)
    with home.watching():
        session.turn("Please fix the flaky login test", "It is fixed.")
        eventually(out.exists, 20)
        event, environ, _ = out.read_text().split("\n")
        assert json.loads(event) == json.loads(home.run("tail", "--json").stdout)
        assert json.loads(event)["text"] == server.title
        assert environ == "[]"


def test_an_api_answer_can_be_read_by_curl(home: House) -> None:
    """As the documentation shows it."""
    with home.watching():
        command = ["curl", "-s", "--unix-socket", str(home.socket), "http://localhost/capabilities"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=20)
        assert json.loads(done.stdout)["v"] == 1


def test_a_large_body_has_its_answer_although_it_is_not_read(home: House) -> None:
    """A client that has sent everything before it looks finds the refusal."""
    with home.watching(), home.connect() as client:
        client.sendall(b"POST /session/latest/recap HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000)
        assert read_answer(client).status == 413
