"""What a service tells systemd: sd_notify(3) is one datagram, so no library.

Nothing here starts a thread: the daemon's loop sends `watchdog()` when it is due, and proves that the loop itself runs.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

NOTIFY_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables that are meant for this process only; a child must not inherit them."""

_SEND_TIMEOUT_SECONDS = 1.0
_WATCHDOG_FRACTION = 0.5  # sd_watchdog_enabled(3) recommends half of the time


def watchdog_interval(environ: Mapping[str, str], *, pid: int | None = None) -> float | None:
    """Seconds between two `watchdog()`s, half of what systemd allows; None when no watchdog is set for this process.

    `pid` is this process's when None. Variables that make no sense count as unset (sd_watchdog_enabled(3)).
    """
    owner = environ.get("WATCHDOG_PID", "")
    if owner and owner != str(os.getpid() if pid is None else pid):
        return None
    usec = environ.get("WATCHDOG_USEC", "")
    if not usec.isascii() or not usec.isdigit() or int(usec) == 0:
        return None
    return int(usec) / 1_000_000 * _WATCHDOG_FRACTION


class Notifier:
    """Sends the state of this process to the service manager, if there is one that wants it.

    Every method returns True when the datagram was handed over and False otherwise, and raises nothing: a manager that
    is restarting must not stop the service. The socket is a path, or an abstract name when it starts with `@`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")

    @property
    def enabled(self) -> bool:
        """Whether a manager asked to be told."""
        return self._address[:1] in ("/", "@")

    def ready(self, status: str = "") -> bool:
        """Start-up, or a reload, is done."""
        return self._send("READY=1", _status(status))

    def status(self, text: str) -> bool:
        """One line for `systemctl status`."""
        return self._send(_status(text))

    def watchdog(self) -> bool:
        """The loop is alive; due every `watchdog_interval()` seconds."""
        return self._send("WATCHDOG=1")

    def reloading(self) -> bool:
        """A reload begins; `ready()` ends it. The time stamp is what `Type=notify-reload` asks for."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> bool:
        """The stop has begun."""
        return self._send("STOPPING=1", _status(status))

    def _send(self, *assignments: str) -> bool:
        if not self.enabled:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = "\n".join(line for line in assignments if line).encode("utf-8", "replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as sender:
                sender.settimeout(_SEND_TIMEOUT_SECONDS)  # a full queue must not hold up the loop
                sender.connect(address)
                sender.sendall(message)
        except OSError:
            return False
        return True


def _status(text: str) -> str:
    """A status line; a line break would start another assignment."""
    return f"STATUS={' '.join(text.split())}" if text else ""
