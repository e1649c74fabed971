"""Asks the running watcher over its socket; for commands that can also find out by themselves."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any, Final

TIMEOUT_SECONDS: Final = 1.0
MAX_ANSWER_BYTES: Final = 4 << 20


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(os.fspath(self._path))
        except BaseException:
            self.sock.close()
            raise


def ask(
    socket_path: Path, target: str, *, method: str = "GET", timeout_seconds: float = TIMEOUT_SECONDS
) -> dict[str, Any] | None:
    """The JSON object that the running watcher answers, such as `ask(path, "/status")`.

    None when nobody answers within `timeout_seconds`, or with anything but success: then find out yourself.
    """
    connection = _UnixConnection(socket_path, timeout_seconds)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        found = json.loads(response.read(MAX_ANSWER_BYTES)) if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return found if isinstance(found, dict) else None
