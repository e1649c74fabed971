"""sd_notify: the datagrams that systemd receives, on real sockets."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from watcher.sdnotify import Notifier, watchdog_interval


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A socket such as systemd opens, and its address."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        receiver.settimeout(5)
        yield address, receiver


def test_each_state_is_one_datagram(manager: tuple[str, socket.socket]) -> None:
    """READY, STATUS, WATCHDOG and STOPPING arrive in the protocol's own words."""
    address, receiver = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert notifier.enabled
    assert notifier.ready("watching 3 sessions")
    assert receiver.recv(4096) == b"READY=1\nSTATUS=watching 3 sessions"
    assert notifier.ready()
    assert receiver.recv(4096) == b"READY=1"
    assert notifier.status("titles: 2")
    assert receiver.recv(4096) == b"STATUS=titles: 2"
    assert notifier.watchdog()
    assert receiver.recv(4096) == b"WATCHDOG=1"
    assert notifier.stopping("bye")
    assert receiver.recv(4096) == b"STOPPING=1\nSTATUS=bye"


def test_a_reload_carries_the_monotonic_time(manager: tuple[str, socket.socket]) -> None:
    """RELOADING comes with MONOTONIC_USEC, the moment at which it was sent."""
    address, receiver = manager
    before = time.monotonic_ns() // 1000
    Notifier({"NOTIFY_SOCKET": address}).reloading()
    state, stamp = receiver.recv(4096).decode().split("\n")
    assert state == "RELOADING=1"
    name, _, value = stamp.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(value) <= time.monotonic_ns() // 1000


def test_a_status_cannot_smuggle_another_assignment(manager: tuple[str, socket.socket]) -> None:
    """A line break in a status becomes a space, a lone surrogate does no harm."""
    address, receiver = manager
    Notifier({"NOTIFY_SOCKET": address}).status("a\nMAINPID=1 \udc80")
    assert receiver.recv(4096) == b"STATUS=a MAINPID=1 ?"


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_an_abstract_socket_is_reached() -> None:
    """A name that starts with @ is an abstract socket."""
    name = f"qwen-watcher-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        receiver.settimeout(5)
        assert Notifier({"NOTIFY_SOCKET": f"@{name}"}).watchdog()
        assert receiver.recv(4096) == b"WATCHDOG=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}])
def test_without_a_manager_nothing_is_sent(environ: dict[str, str]) -> None:
    """Outside a service every call is a quiet no."""
    notifier = Notifier(environ)
    assert not notifier.enabled
    assert not notifier.ready()


def test_a_manager_that_went_away_disturbs_nobody(tmp_path: Path) -> None:
    """A socket that no longer exists, or whose queue is full, is a False and no exception."""
    assert not Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).watchdog()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wrong_kind:
        wrong_kind.bind(str(tmp_path / "stream"))
        assert not Notifier({"NOTIFY_SOCKET": str(tmp_path / "stream")}).watchdog()


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "42"}, 60.0),
        ({"WATCHDOG_USEC": "500000"}, 0.25),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({}, None),
    ],
)
def test_watchdog_interval_is_half_of_what_is_allowed(environ: dict[str, str], interval: float | None) -> None:
    """The interval is half the limit, and None for another process's or a senseless watchdog."""
    assert watchdog_interval(environ, pid=42) == interval
