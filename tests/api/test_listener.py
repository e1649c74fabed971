"""The socket of the local API: who may have it, and what becomes of each connection."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.live import eventually
from watcher.api.listener import MAX_CONNECTIONS, MAX_PATH_BYTES, Listener, Serve, SocketError
from watcher.edge.text_model import Abort


@pytest.fixture
def path() -> Iterator[Path]:
    """Where the socket is to stand; short, as it must be."""
    with tempfile.TemporaryDirectory(prefix="qw-", dir="/tmp") as folder:
        yield Path(folder) / "w.sock"


def hello(connection: socket.socket, abort: Abort) -> None:
    """Says who it is, and ends."""
    del abort
    connection.sendall(b"hello")


@contextlib.contextmanager
def listening(
    path: Path, serve: Serve = hello, failed: Callable[[BaseException], None] = lambda _: None
) -> Iterator[Listener]:
    """A listener that is closed in any case."""
    listener = Listener(path, serve, failed)
    try:
        listener.start()
        yield listener
    finally:
        listener.close()


@contextlib.contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    """A client."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        client.connect(str(path))
        yield client


def said(client: socket.socket) -> bytes:
    """All that the other side sends until it ends."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := client.recv(65536):
            data += chunk
    return data


def test_the_socket_is_the_users_own_and_goes_with_the_service(path: Path) -> None:
    """Mode 0600, also under a lax umask; nothing is left behind."""
    before = os.umask(0)
    try:
        with listening(path) as listener:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with connected(path) as client:
                assert said(client) == b"hello"
            listener.close()  # may be repeated
        assert list(path.parent.iterdir()) == []
    finally:
        os.umask(before)


def test_a_stale_socket_is_replaced(path: Path) -> None:
    """One that nobody listens on is what a killed service leaves."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with listening(path), connected(path) as client:
        assert said(client) == b"hello"


def test_another_watchers_socket_is_left_alone(path: Path) -> None:
    """It goes on working, also after the second one has closed."""
    with listening(path):
        with pytest.raises(SocketError, match="another watcher listens"), listening(path):
            pass
        with connected(path) as client:
            assert said(client) == b"hello"


def test_a_socket_that_was_replaced_is_not_removed(path: Path) -> None:
    """Who comes later owns the path."""
    with listening(path) as first:
        path.unlink()
        with listening(path):
            first.close()
            with connected(path) as client:
                assert said(client) == b"hello"


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_what_is_no_socket_is_not_replaced(path: Path, make: Callable[[Path], None]) -> None:
    """A file, a directory or a link is somebody's."""
    make(path)
    with pytest.raises(SocketError, match="in the way"), listening(path):
        pass
    assert os.path.lexists(path)


def test_a_path_that_is_too_long_is_named_with_the_remedy(path: Path) -> None:
    """The kernel's limit is on bytes."""
    longest = path.parent / ("x" * (MAX_PATH_BYTES - len(os.fsencode(path.parent)) - 1))
    with listening(longest), connected(longest) as client:
        assert said(client) == b"hello"
    with (
        pytest.raises(SocketError, match=r"too long for a socket .*QWEN_WATCHER_STATE_DIR"),
        listening(longest.with_name(longest.name + "x")),
    ):
        pass


def test_a_directory_that_is_missing_is_named(path: Path) -> None:
    """No directory is made where the system should have made one."""
    missing = path.parent / "none" / "w.sock"
    with pytest.raises(SocketError, match="No such file"), listening(missing):
        pass


def test_one_client_too_many_is_told_so(path: Path) -> None:
    """The others are answered all the same, and then there is room again."""
    go = threading.Event()

    def serve(connection: socket.socket, abort: Abort) -> None:
        go.wait(10)
        hello(connection, abort)

    with listening(path, serve), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(path)) for _ in range(MAX_CONNECTIONS)]
        with connected(path) as late:
            answer = said(late)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert answer.endswith(b'"reason": "busy"}')
        go.set()
        assert [said(client) for client in clients] == [b"hello"] * MAX_CONNECTIONS
        eventually(lambda: _answered(path))


def test_many_may_come_at_the_same_moment(path: Path) -> None:
    """Clients that do not wait for the accepting thread, as curl does not, are not refused by the system."""
    with listening(path), contextlib.ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            client.setblocking(False)
            client.connect(str(path))


def _answered(path: Path) -> bool:
    with connected(path) as client:
        return said(client) == b"hello"


def test_closing_ends_what_is_being_answered(path: Path) -> None:
    """The abort is set and the connection cut; no thread is left."""
    begun = threading.Event()

    def serve(connection: socket.socket, abort: Abort) -> None:
        del connection
        begun.set()
        assert abort.wait(10)

    before = threading.active_count()
    with listening(path, serve) as listener, connected(path) as client:
        assert begun.wait(10)
        listener.close()
        assert said(client) == b""
    assert threading.active_count() == before


def test_an_answer_that_fails_is_told_and_harms_nobody(path: Path) -> None:
    """The next client is served."""
    failures: list[BaseException] = []

    def serve(connection: socket.socket, abort: Abort) -> None:
        if not failures:
            raise ValueError("a fault of ours")
        hello(connection, abort)

    with listening(path, serve, failures.append):
        with connected(path) as client:
            assert said(client) == b""
        eventually(lambda: bool(failures))
        with connected(path) as client:
            assert said(client) == b"hello"
    assert [type(failure) for failure in failures] == [ValueError]


def test_an_idle_service_has_not_loaded_what_answers() -> None:
    """What an HTTP server needs is imported with the first connection."""
    code = "import sys, watcher.daemon; print([m for m in ('http.server', 'watcher.api.server') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
