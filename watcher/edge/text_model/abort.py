"""The one way to stop a model call from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Abort:
    """A request to stop, which any thread may make, once and for good. Safe to share between threads."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may call `set` in a thread that is just about to listen.
        self._lock = threading.RLock()
        self._set = threading.Event()
        self._callbacks: list[Callable[[], object]] = []

    def set(self) -> None:
        """Stop whatever waits on this; returns at once."""
        with self._lock:
            self._set.set()
            for callback in tuple(self._callbacks):
                callback()

    def is_set(self) -> bool:
        """Whether somebody asked to stop."""
        return self._set.is_set()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for at most `timeout_seconds`; True as soon as somebody asks to stop."""
        return self._set.wait(timeout_seconds)

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Iterator[None]:
        """Within, `callback` is called when `set` is, or at once if it was; never any more afterwards.

        It runs in the thread that calls `set` and must neither block nor raise.
        """
        with self._lock:
            self._callbacks.append(callback)
            if self._set.is_set():
                callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)
