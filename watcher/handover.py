"""How the loop hears of what happened, and who may work on the sessions meanwhile.

One thread at a time works on them: the loop's, except while it sleeps. Then whoever brings the news that a known
session has grown reads on at once: to wake the loop for it would take longer than to do it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from watcher.edge.change_values import Touched
from watcher.happenings import Errand, Item, new_inbox


class Handover:
    """The inbox of the loop. `put` may be called from any thread, `get` by the one that made this, whose loop it is.

    `read_on(path)` takes in what came to a known session, and returns in how many seconds the loop has something to do;
    None when there is more to it than that: then it has done nothing, and the loop is to see to it.
    """

    def __init__(self, read_on: Callable[[str], float | None]) -> None:
        self._read_on = read_on
        self._inbox = new_inbox()
        self._sleeps_until = 0.0
        """By the monotonic clock, by which it sleeps: the other one may be set, or go on while the machine does not."""
        self._at_work = threading.Lock()
        """Held by who works on the sessions. Nobody waits for it but the loop when it wakes."""
        self._at_work.acquire()
        self._wakes = False
        """The loop waits for it: what comes now is for the loop, or much news could keep it waiting."""

    @property
    def waiting(self) -> int:
        """How many values wait."""
        return self._inbox.waiting

    def put(self, item: Item) -> None:
        """Hand over a value; never waits for the loop."""
        if isinstance(item, Touched) and not self._wakes and self._at_work.acquire(blocking=False):
            try:
                wanted_in = self._read_on(item.path)
                is_wanted = wanted_in is not None and wanted_in < self._sleeps_until - time.monotonic()
                if is_wanted:
                    self._sleeps_until = -math.inf  # it is woken once, however long it takes to wake
            except Exception as error:  # noqa: BLE001 - the loop tells of it, as of any other
                self._inbox.put(Errand(_raising(error)))
                return
            finally:
                self._at_work.release()
            if wanted_in is not None:
                if is_wanted:
                    self._inbox.put(Errand(_nothing))
                return
        self._inbox.put(item)

    def get(self, wait: float) -> Item | None:
        """The oldest value; None when none came within `wait` seconds."""
        self._sleeps_until = time.monotonic() + wait
        self._at_work.release()
        try:
            return self._inbox.get(wait)
        finally:
            self._wakes = True
            self._at_work.acquire()
            self._wakes = False


def _nothing() -> None:
    """To wake the loop: it then finds out by itself when it is to wake next."""


def _raising(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run
