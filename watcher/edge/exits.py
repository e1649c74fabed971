"""Tells when a process ends, without asking again and again.

One thread for all processes. On Linux it sleeps on their pid descriptors and wakes only when one ends or another is
added; elsewhere it looks every `POLL_SECONDS` while there is anything to look at, and sleeps without end otherwise.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

POLL_SECONDS: Final = 10.0
"""Where the system has no pid descriptors: 0.1 wake-ups a second, and well inside the 15 s of design 11."""


@dataclass(frozen=True, slots=True)
class OwnerGone:
    """A watched process has ended, or turned out to be another one that was given its pid."""

    pid: int


class ExitWatch:
    """Watches processes and hands an `OwnerGone` to `sink` when one has ended; `sink` is called on the thread.

    `close` ends the thread; afterwards nothing is delivered any more.
    """

    def __init__(
        self,
        sink: Callable[[OwnerGone], None],
        *,
        pid_descriptors: bool | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`pid_descriptors` None: used where the system has them."""
        self._sink = sink
        self._pid_descriptors = hasattr(os, "pidfd_open") if pid_descriptors is None else pid_descriptors
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._added: dict[int, Callable[[], bool]] = {}
        self._watched: set[int] = set()
        self._closing = False
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        self._thread = threading.Thread(target=self._run, name="exit-watch", daemon=True)
        self._thread.start()

    def watch(self, pid: int, is_same: Callable[[], bool]) -> None:
        """Watch `pid`, unless it is watched already.

        `is_same` tells whether the pid still belongs to the process that is meant; it is called on the thread, once the
        descriptor holds the pid, and again at each look where there are no descriptors.
        """
        with self._lock:
            if self._closing or pid in self._watched:
                return
            self._watched.add(pid)
            self._added[pid] = is_same
        self._wake()

    def watched(self) -> frozenset[int]:
        """The pids that are watched now."""
        with self._lock:
            return frozenset(self._watched)

    def close(self) -> None:
        """End the thread and give back its descriptors. May be called twice."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake()
        self._thread.join()
        os.close(self._wake_in)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # a full pipe wakes it as well
            os.write(self._wake_in, b"x")

    def _take_added(self) -> dict[int, Callable[[], bool]] | None:
        """What was added since, None when it is time to end."""
        with self._lock:
            added, self._added = self._added, {}
            return None if self._closing else added

    def _run(self) -> None:
        held: dict[int, int] = {}  # descriptor → pid
        polled: dict[int, Callable[[], bool]] = {}  # pid → is it the same
        poll = select.poll()
        poll.register(self._wake_out, select.POLLIN)
        try:
            while True:
                ready = poll.poll(self._poll_seconds * 1000 if polled else None)
                if any(fd == self._wake_out for fd, _ in ready):
                    os.read(self._wake_out, 65_536)
                added = self._take_added()
                if added is None:
                    return
                for fd, _ in ready:
                    if fd in held:
                        poll.unregister(fd)
                        os.close(fd)
                        self._tell(held.pop(fd))
                for pid, is_same in added.items():
                    self._begin(pid, is_same, held, polled, poll)
                for pid in [pid for pid, is_same in polled.items() if not is_same()]:
                    del polled[pid]
                    self._tell(pid)
        finally:
            for fd in (*held, self._wake_out):
                os.close(fd)

    def _begin(
        self,
        pid: int,
        is_same: Callable[[], bool],
        held: dict[int, int],
        polled: dict[int, Callable[[], bool]],
        poll: select.poll,
    ) -> None:
        if not self._pid_descriptors:
            polled[pid] = is_same
            return
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._tell(pid)
            return
        except OSError:  # no descriptors left, an old kernel, or a sandbox that forbids the call
            polled[pid] = is_same
            return
        if not is_same():  # from here on the descriptor holds on to the process, whatever becomes of its number
            os.close(fd)
            self._tell(pid)
            return
        held[fd] = pid
        poll.register(fd, select.POLLIN)

    def _tell(self, pid: int) -> None:
        with self._lock:
            self._watched.discard(pid)
            if self._closing:
                return
        self._sink(OwnerGone(pid))
