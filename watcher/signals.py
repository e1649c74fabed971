"""Signals as values for a loop that sleeps in a queue.

A handler in Python runs only when the main thread gets to it. One that arrives while that thread is about to fall
asleep in a queue is not looked at before something else wakes it. What the C part of Python writes to the wake-up
descriptor at once, in whatever thread, has no such gap: a thread reads it and puts the value into the queue.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def signals_as_values(values: Mapping[signal.Signals, T], put: Callable[[T], object]) -> Iterator[None]:
    """Within, each of these signals calls `put` with its value, in a thread of its own. For the main thread only.

    Those that were blocked before arrive now, and are blocked again afterwards.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def hand_over() -> None:
        while data := reader.recv(64):
            for number in data:
                if number in values:
                    put(values[signal.Signals(number)])

    thread = threading.Thread(target=hand_over, name="signals", daemon=True)
    thread.start()
    descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in values}
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, values)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)
        writer.close()
        thread.join()
        reader.close()
