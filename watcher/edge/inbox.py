"""The hand-over from all threads, and from signal handlers, to the one loop that owns the state."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

MAX_WAITING: Final = 4096
"""More distinct values than this are answered by looking at everything once."""

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue in which equal values wait once, and too many of them become one.

    Values for which `coalesces` is true are dropped while an equal one waits: whoever takes that one looks at the world
    afterwards and sees both happenings. When more than `limit` of them wait, they are replaced by `collapse`, which
    must stand for all of them. Every other value is kept, in order, without a limit; there are few of them.

    `put` may be called from any thread and from a signal handler, also one that interrupts `put` or `get`: nothing here
    takes a lock that the interrupted code could hold. Only one thread may call `get`. Waiting costs nothing: `get`
    sleeps in the kernel until something comes.
    """

    def __init__(self, collapse: T, coalesces: Callable[[T], bool], limit: int = MAX_WAITING) -> None:
        self._collapse = collapse
        self._coalesces = coalesces
        self._limit = limit
        self._queue: SimpleQueue[T] = SimpleQueue()  # its put is re-entrant (documented for that class)
        self._waiting: set[T] = set()

    def put(self, value: T) -> None:
        """Hand over a value; never waits."""
        if self._coalesces(value):
            waiting = self._waiting
            if value in waiting or self._collapse in waiting:
                return
            if len(waiting) >= self._limit:
                value = self._collapse
            # Two threads may get here with equal values: the value then waits twice, which does no harm.
            waiting.add(value)
        self._queue.put(value)

    def get(self, timeout_seconds: float | None = None) -> T | None:
        """The oldest value; None when none came in time. Without a timeout it waits for as long as it takes."""
        while True:
            try:
                value = self._queue.get(timeout=None if timeout_seconds is None else max(0.0, timeout_seconds))
            except Empty:
                return None
            # Before the value is acted on: an equal one that is put from now on is a new happening.
            self._waiting.discard(value)
            if self._collapse in self._waiting and self._coalesces(value):
                continue  # what stands for all of them is still to come
            return value

    @property
    def waiting(self) -> int:
        """How many values wait, for `status` and tests."""
        return self._queue.qsize()
