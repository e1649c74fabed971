"""Signals that arrive as values, whatever the main thread is doing."""

from __future__ import annotations

import os
import signal
import threading
from queue import SimpleQueue

from watcher.signals import signals_as_values


def test_a_signal_wakes_a_main_thread_that_sleeps_in_a_queue() -> None:
    """Also one that another thread was chosen for, which leaves the main thread asleep."""
    queue: SimpleQueue[str] = SimpleQueue()
    asleep, enough = threading.Event(), threading.Event()

    def other() -> None:
        asleep.wait(10)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        enough.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    with signals_as_values({signal.SIGUSR1: "first", signal.SIGUSR2: "second"}, queue.put):
        asleep.set()
        assert queue.get(timeout=10) == "first"
        os.kill(os.getpid(), signal.SIGUSR2)
        assert queue.get(timeout=10) == "second"
    enough.set()
    thread.join()


def test_afterwards_everything_is_as_before() -> None:
    """Handlers, the wake-up descriptor and the threads."""
    seen: list[int] = []
    threads = threading.active_count()
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: seen.append(number))
    try:
        with signals_as_values({signal.SIGUSR1: None}, lambda _: seen.append(0)):
            pass
        signal.raise_signal(signal.SIGUSR1)
        assert seen == [signal.SIGUSR1]
        assert signal.set_wakeup_fd(-1) == -1
        assert threading.active_count() == threads
    finally:
        signal.signal(signal.SIGUSR1, before)
