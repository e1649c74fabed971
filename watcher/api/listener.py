"""The socket of the local API: made, guarded, and handed out one connection at a time.

All that an idle service pays is one thread that sleeps in `poll`; what answers a connection is imported with the first.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from watcher.edge.text_model import Abort
from watcher.errors import WatcherError, words_of

MAX_CONNECTIONS: Final = 64
"""So many are answered at once; one more is told at once to come back later."""
MAX_PATH_BYTES: Final = 103 if sys.platform == "darwin" else 107
"""Longest path of a socket: `sun_path` of unix(7) and unix(4), without the byte that ends it."""
STOP_SECONDS: Final = 1.0
"""How long `close` waits for the connections that it has cut off."""
_BACKLOG: Final = 512
"""So many may come at the same moment: where there is no room, a client that does not wait is refused by the system."""
_FULL_PAUSE_SECONDS: Final = 0.5
_TAKE_BYTES: Final = 65_536
_BUSY_BODY: Final = b'{"error": "too many clients at once", "reason": "busy"}'
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nRetry-After: 1\r\n"
    b"Connection: close\r\n\r\n%s"
) % (len(_BUSY_BODY), _BUSY_BODY)

Serve = Callable[[socket.socket, Abort], None]
"""Answers one connection, in a thread of its own. The abort is set when the service stops."""


class SocketError(WatcherError):
    """The socket cannot be had; the text says why. The service goes on without its local API."""


class Listener:
    """Listens from `start` to `close`. `failed` is told of exceptions that `serve` lets out, which it should not."""

    def __init__(self, path: Path, serve: Serve, failed: Callable[[BaseException], None]) -> None:
        self.path = path
        self._serve = serve
        self._failed = failed
        self._socket: socket.socket | None = None
        self._identity: os.stat_result | None = None
        self._thread = threading.Thread(target=self._accept_all, name="api", daemon=True)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, tuple[socket.socket, Abort]] = {}
        self._closing = False

    def start(self) -> None:
        """Take the socket, 0600, in place of one that nobody listens on any more. Raises `SocketError`."""
        try:
            self._socket = self._listen()
        except SocketError:
            raise
        except OSError as error:
            raise SocketError(f"{self.path}: {words_of(error)}") from error
        self._thread.start()

    def close(self) -> None:
        """Stop listening, remove the socket, end all connections; takes about a second at most. May be repeated."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            connections = list(self._open.items())
        if self._identity is not None:
            with contextlib.suppress(OSError):
                # Another watcher's socket may stand there by now.
                if os.path.samestat(self._identity, self.path.lstat()):
                    self.path.unlink()
        self._wake_writer.close()
        for _, (connection, abort) in connections:
            abort.set()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)
        deadline = time.monotonic() + STOP_SECONDS
        for thread, _ in connections:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._socket is not None:
            self._socket.close()
        self._wake_reader.close()

    # -- the socket ---------------------------------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        size = len(os.fsencode(self.path))
        if size > MAX_PATH_BYTES:
            raise SocketError(
                f"{self.path} is too long for a socket ({size} bytes, at most {MAX_PATH_BYTES}): set XDG_RUNTIME_DIR "
                "or QWEN_WATCHER_STATE_DIR to a shorter path"
            )
        self._refuse_other()
        # Made under a name that nobody knows and moved into place: a client meets the old one or the new one.
        making = self.path.with_name(f".qws-{os.getpid()}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                making.unlink()
            listener.bind(os.fspath(making))
            making.chmod(0o600)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            self._identity = making.lstat()
            making.replace(self.path)
        except BaseException:
            listener.close()
            with contextlib.suppress(OSError):
                making.unlink()
            raise
        return listener

    def _refuse_other(self) -> None:
        """Only a socket that nobody listens on may be replaced."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise SocketError(f"{self.path} is in the way and no socket: remove it")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(STOP_SECONDS)
            try:
                probe.connect(os.fspath(self.path))
            except (ConnectionRefusedError, FileNotFoundError):
                return
        raise SocketError(f"another watcher listens on {self.path}: give this one a QWEN_WATCHER_STATE_DIR of its own")

    # -- connections --------------------------------------------------------------------------------------------------

    def _accept_all(self) -> None:
        assert self._socket is not None
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        waiting.register(self._wake_reader, select.POLLIN)
        while True:
            waiting.poll()
            if self._closing:
                return
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError:  # no descriptors left: wait for some, instead of spinning
                select.select([self._wake_reader], [], [], _FULL_PAUSE_SECONDS)
                continue
            connection.setblocking(True)
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        abort = Abort()
        thread = threading.Thread(target=self._answer, args=(connection, abort), name="api-client", daemon=True)
        with self._lock:
            room = len(self._open) < MAX_CONNECTIONS and not self._closing
            if room:
                self._open[thread] = (connection, abort)
        if not room:
            _turn_away(connection)
            return
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads
            with self._lock:
                del self._open[thread]
            _turn_away(connection)

    def _answer(self, connection: socket.socket, abort: Abort) -> None:
        try:
            self._serve(connection, abort)
        except Exception as error:  # noqa: BLE001 - one client's trouble is not the service's
            self._failed(error)
        finally:
            connection.close()
            with self._lock:
                del self._open[threading.current_thread()]


def _turn_away(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.recv(_TAKE_BYTES)  # what is left unread would take the answer with it
        connection.send(_BUSY)
    connection.close()
