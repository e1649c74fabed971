"""Writes log lines without ever waiting for whoever reads them.

A pipe that nobody empties would stop the whole service at its next line. While the reader keeps up, a line is written
at once, by whoever logs it. A thread exists only while lines wait for a reader.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

MAX_WAITING_BYTES: Final = 256 * 1024
"""So much waits for a slow reader; what comes beyond is dropped and counted."""


class LineWriter:
    """The end of the log. What cannot be written (a full disk, a closed pipe) is forgotten: nobody is left to tell."""

    def __init__(self, stream: TextIO, dropped: Callable[[int], None] = lambda _count: None) -> None:
        """`dropped` is called with the number of lines that were dropped, once the reader has caught up."""
        self.stream = stream
        self._dropped = dropped
        self._descriptor = _descriptor(stream)
        self._state = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped_lines = 0
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Write one line, now or as soon as the reader takes it. Any thread may call it."""
        if self.stream.closed:
            return  # its number may be another file's by now
        encoding = self.stream.encoding or "utf-8"
        data = line.encode(encoding, "backslashreplace") + b"\n"
        if self._descriptor is None:
            self._write_through(data.decode(encoding))
            return
        with self._state:
            if self._thread is None and _takes(self._descriptor, len(data)):
                _write(self._descriptor, data)
            elif self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
                self._dropped_lines += 1
            else:
                self._waiting.append(data)
                self._waiting_bytes += len(data)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                    self._thread.start()

    def drain(self, seconds: float) -> bool:
        """Wait until all is written, at most so long. False when the reader did not take it."""
        deadline = time.monotonic() + seconds
        with self._state:
            while self._thread is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._state.wait(left)
        return True

    def _run(self) -> None:
        assert self._descriptor is not None
        while True:
            with self._state:
                data, lost = b"", 0
                if self._waiting:
                    data = self._waiting.popleft()
                elif self._dropped_lines:
                    lost, self._dropped_lines = self._dropped_lines, 0
                else:
                    self._thread = None
                    self._state.notify_all()
                    return
            if lost:
                self._dropped(lost)
            _write(self._descriptor, data)
            with self._state:
                self._waiting_bytes -= len(data)

    def _write_through(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            return


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _takes(descriptor: int, count: int) -> bool:
    """Whether so many bytes can be written without waiting; for a pipe the system vouches for `PIPE_BUF` of them."""
    try:
        if count > select.PIPE_BUF and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        return bool(select.select((), (descriptor,), (), 0)[1])
    except (OSError, ValueError):
        return True  # the write itself will tell


def _write(descriptor: int, data: bytes) -> None:
    # One call for the whole line wherever the system takes it whole, so that lines of two processes do not mix.
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return
