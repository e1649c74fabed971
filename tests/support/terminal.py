"""A real pseudo-terminal with a program in it and a screen that tests can read.

The program gets what a terminal emulator would give it: it leads a session whose controlling terminal is the
pty, it may ask the terminal about itself and is answered, and its output ends up on a `pyte` screen. Nothing
here knows Qwen Code.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil
import pyte
from wcwidth import wcwidth

T = TypeVar("T")

DEADLINE_SECONDS = 60.0
"""How long a wait may take: generous, since a loaded machine is slow and a wait that succeeds ends early."""

KEYS: Mapping[str, str] = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "shift-tab": "\x1b[Z",
    "backspace": "\x7f",
    "newline": "\n",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "page-up": "\x1b[5~",
    "page-down": "\x1b[6~",
    **{f"ctrl-{letter}": chr(ord(letter) - ord("a") + 1) for letter in "abcdefghijklmnopqrstuvwxyz"},
}
"""What a plain xterm sends for a key. `newline` is Ctrl+J, which input boxes take as "a new line, do not send"."""

# Makes the pty the controlling terminal, then becomes the program. A tiny program of its own because the
# alternative, Python code between fork and exec in a process with threads, may deadlock.
_BECOME_FOREGROUND = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)

_HISTORY_LINES = 5000
_FRAME_LIMIT_BYTES = 1 << 20


class WaitTimeoutError(AssertionError):
    """A condition did not come true in time, or its program ended first; the message holds the screen."""


def wait_until(
    condition: Callable[[], T],
    what: str,
    timeout: float = DEADLINE_SECONDS,
    dump: Callable[[], str] | None = None,
) -> T:
    """The first truthy value of `condition`, which is asked every 20 ms for at most `timeout` seconds.

    For things that cannot announce themselves, such as files of another process. Raises `WaitTimeoutError` naming
    `what`, with the text of `dump` below it.
    """
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"not within {timeout:g} s: {what}" + (f"\n{dump()}" if dump else ""))
        time.sleep(0.02)
    return value


def running(pid: int) -> bool:
    """Whether the process exists and has not ended; one that only waits for its parent to notice its end has."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class ProcessTree:
    """A started process and its descendants, including those seen earlier that outlived their parents."""

    def __init__(self, leader: subprocess.Popen[Any]) -> None:
        self._leader = leader
        self._seen: list[psutil.Process] = []

    def pids(self) -> list[int]:
        """All of them that run now, parents first."""
        if self._leader.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                leader = psutil.Process(self._leader.pid)
                found = [leader, *leader.children(recursive=True)]
                self._seen = found + [process for process in self._seen if process not in found]
        return [process.pid for process in self._seen if process.is_running() and running(process.pid)]

    def kill(self) -> None:
        """SIGKILL to all of them at once; waits for their end."""
        self.pids()
        for process in self._seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._leader.wait()
        self.wait_ended()

    def wait_ended(self) -> None:
        """Waits until none of them runs. Raises `WaitTimeoutError`."""
        wait_until(lambda: not self.pids(), f"the end of process {self._leader.pid} and its children")


def squeeze(text: str) -> str:
    """`text` without white space: equal for a text and for the same text wrapped or indented by a screen."""
    return "".join(text.split())


@dataclass(frozen=True)
class Cell:
    """One character of the screen. Colours are names ("red", "default") or six hex digits."""

    text: str
    foreground: str
    background: str
    bold: bool
    dim: bool
    italic: bool
    underline: bool
    reverse: bool

    @property
    def style(self) -> tuple[str, str, bool, bool, bool, bool, bool]:
        """Everything but the character, to compare the looks of two texts."""
        return (self.foreground, self.background, self.bold, self.dim, self.italic, self.underline, self.reverse)


class Terminal:
    """A program in a pty of `columns` x `rows` characters.

    Use it as a context manager: leaving it ends every process of it. `env` is the whole environment of the program;
    nothing is inherited.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, columns: int = 100, rows: int = 40
    ) -> None:
        self._screen = _Screen(columns, rows)
        self._changed = threading.Condition()
        self._write_lock = threading.Lock()
        self._ended = False
        self._master, slave = os.openpty()
        self.tty = Path(os.ttyname(slave))
        """The device of the terminal, whose access time is the time of the last input."""
        self._wake_reader, self._waker = os.pipe()
        self._open = True
        try:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BECOME_FOREGROUND, *argv],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException:
            self._close_descriptors()
            raise
        finally:
            os.close(slave)
        self._tree = ProcessTree(self._process)
        self._reader = threading.Thread(target=self._read, name=f"terminal-{self.pid}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the program -----------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Process id of the program that was started, which leads the terminal's session. It may have children."""
        return self._process.pid

    def pids(self) -> list[int]:
        """The program and all its living descendants, parents first; also those that outlived the program."""
        return self._tree.pids()

    def wait_exit(self, timeout: float = DEADLINE_SECONDS) -> int:
        """The exit status, minus the signal's number if one ended it; waited for at most `timeout` seconds."""
        self._tree.pids()  # to know them, should one stay behind
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise WaitTimeoutError(self._dump(f"still running after {timeout:g} s")) from None
        self._reader.join(1.0)
        return status

    def hangup(self) -> None:
        """Closes the terminal's window: the kernel sends SIGHUP to the program and to the foreground processes."""
        self._tree.pids()
        self._stop_reader()
        self._close_descriptors()

    def kill(self) -> None:
        """SIGKILL to the program and all its descendants at once; waits for their end."""
        self._tree.kill()

    def close(self) -> None:
        """Ends whatever still runs and closes the pty. May be called again."""
        self.kill()
        self.hangup()

    # -- what the user does ----------------------------------------------------------------------------------

    def send(self, text: str) -> None:
        """Writes `text` to the program as if typed, in one go, without waiting for any effect."""
        self._write(text.encode())

    def press(self, *keys: str) -> None:
        """Presses the named `KEYS` one after another. Two in a row may reach the program in one read."""
        for key in keys:
            self.send(KEYS[key])

    def focus_in(self) -> None:
        """Reports that the terminal's window got the focus. The program must have asked for such reports."""
        self._report("\x1b[I")

    def focus_out(self) -> None:
        """Reports that the terminal's window lost the focus. The program must have asked for such reports."""
        self._report("\x1b[O")

    # -- what the user sees ----------------------------------------------------------------------------------

    def screen(self) -> list[str]:
        """The visible lines from top to bottom, without trailing spaces."""
        with self._changed:
            return self._screen.lines()

    def text(self) -> str:
        """The visible lines joined by newlines."""
        return "\n".join(self.screen())

    def history(self) -> list[str]:
        """The lines that have scrolled off the top, oldest first."""
        with self._changed:
            return self._screen.history()

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Holds the screen still while the block reads it more than once."""
        with self._changed:
            yield

    def row(self, row: int) -> list[Cell]:
        """The cells of the visible line `row`, counted from 0."""
        with self._changed:
            return self._screen.cells(row)

    def line(self, text: str) -> list[Cell]:
        """The cells of the first visible line that contains `text`. Raises `WaitTimeoutError` when there is none."""
        with self._changed:
            for row, line in enumerate(self._screen.lines()):
                if text in line:
                    return self._screen.cells(row)
        raise WaitTimeoutError(self._dump(f"not on the screen: {text!r}"))

    def cells(self, text: str) -> list[Cell]:
        """The cells that show `text`, where it is seen first on one line, to look at its colours."""
        line = self.line(text)
        start = "".join(cell.text for cell in line).index(text)
        found: list[Cell] = []
        position = 0
        for cell in line:
            if start <= position < start + len(text):
                found.append(cell)
            position += len(cell.text)
        return found

    def shows(self, text: str) -> bool:
        """Whether `text` is visible now; white space and line wraps do not count."""
        return squeeze(text) in squeeze(self.text())

    def wait_for(
        self, what: str | Callable[[list[str]], T], timeout: float = DEADLINE_SECONDS, why: str = ""
    ) -> str | T:
        """Waits until a text is visible (as `shows`) or a predicate of the visible lines is true; returns either.

        Raises `WaitTimeoutError` with the screen after `timeout` seconds, or as soon as the program has ended
        without it.
        """
        name = why or (repr(what) if isinstance(what, str) else getattr(what, "__name__", "the condition"))
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                lines = self._screen.lines()
                if isinstance(what, str):
                    if squeeze(what) in squeeze("".join(lines)):
                        return what
                elif value := what(lines):
                    return value
                if self._ended:
                    raise WaitTimeoutError(self._dump(f"the program ended before it showed {name}"))
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise WaitTimeoutError(self._dump(f"not shown within {timeout:g} s: {name}"))
                self._changed.wait(remaining)

    # -- inside ----------------------------------------------------------------------------------------------

    def _report(self, focus: str) -> None:
        with self._changed:
            assert self._screen.wants_focus, "the program has not asked for focus reports"
        self.send(focus)

    def _read(self) -> None:
        """Feeds the screen until the pty is closed on either side (the reader thread)."""
        while True:
            readable, _, _ = select.select([self._master, self._wake_reader], [], [])
            if self._wake_reader in readable:
                break
            try:
                data = os.read(self._master, 65536)
            except OSError:  # EIO: no process has the terminal open any more
                break
            if not data:
                break
            with self._changed:
                answers = self._screen.feed(data)
                self._changed.notify_all()
            if answers:
                with contextlib.suppress(OSError, WaitTimeoutError):
                    self._write(answers)
        with self._changed:
            self._screen.flush()
            self._ended = True
            self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        with self._write_lock:
            assert self._open, "the terminal is closed"
            while data:
                _, writable, _ = select.select([], [self._master], [], max(0.0, deadline - time.monotonic()))
                if not writable:
                    raise WaitTimeoutError(self._dump("the program does not read its terminal"))
                data = data[os.write(self._master, data[:1024]) :]

    def _stop_reader(self) -> None:
        if self._open:
            os.write(self._waker, b"x")
        # The kernel hangs up only when no read is in progress on the descriptor that is closed.
        self._reader.join()

    def _close_descriptors(self) -> None:
        with self._write_lock:
            was_open, self._open = self._open, False
        if was_open:
            for descriptor in (self._master, self._wake_reader, self._waker):
                os.close(descriptor)

    def _dump(self, reason: str) -> str:
        with self._changed:
            lines = [*self._screen.history()[-20:], *self._screen.lines()]
        status = self._process.poll()
        state = "running" if status is None else f"exit status {status}"
        shown = "\n".join(f"| {line}" for line in lines if line.strip())
        return f"{reason} ({state})\n{shown}"


class _Screen:
    """Bytes of a program in, screen contents and the terminal's answers out. Not thread-safe.

    `pyte` draws; around it stand the things that it does not know: it takes private sequences of newer
    protocols for colours, prints the inside of device control strings, has no dim attribute, and would show
    half-drawn frames.
    """

    # A device control, application or privacy string; an operating system command; a control sequence.
    _SEQUENCE = re.compile(
        rb"\x1b[PX^_][^\x1b]*(?:\x1b\\|\x1b(?=[^\\]))"
        rb"|\x1b\]([^\x07\x1b]*)(?:\x07|\x1b\\)"
        rb"|\x1b\[([<-?]?)([0-9;:]*)([ -/]*)([@-~])"
    )
    _UNFINISHED = re.compile(rb"\x1b(?:[PX^_\]][^\x07\x1b]*\x1b?|\[[<-?]?[0-9;:]*[ -/]*)?\Z")

    def __init__(self, columns: int, rows: int) -> None:
        self._pyte = pyte.HistoryScreen(columns, rows, history=_HISTORY_LINES, ratio=0.5)
        self._stream = pyte.Stream(self._pyte)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = b""
        self._frame: list[bytes] | None = None
        self._answers = b""

    def feed(self, data: bytes) -> bytes:
        """Draws `data`; returns what the terminal has to answer to queries in it."""
        data, self._pending = self._pending + data, b""
        if unfinished := self._UNFINISHED.search(data):
            data, self._pending = data[: unfinished.start()], data[unfinished.start() :]
        position = 0
        for match in self._SEQUENCE.finditer(data):
            self._draw(data[position : match.start()])
            self._sequence(match)
            position = match.end()
        self._draw(data[position:])
        answers, self._answers = self._answers, b""
        return answers

    def flush(self) -> None:
        """Shows a frame that was begun and never finished."""
        if self._frame is not None:
            frame, self._frame = self._frame, None
            self._stream.feed(_printable(self._decoder.decode(b"".join(frame))))

    @property
    def wants_focus(self) -> bool:
        """Whether the program has asked for focus reports (private mode 1004)."""
        return 1004 << 5 in self._pyte.mode

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._pyte.display]

    def history(self) -> list[str]:
        columns = self._pyte.columns
        return ["".join(row[x].data for x in range(columns)).rstrip() for row in self._pyte.history.top]

    def cells(self, row: int) -> list[Cell]:
        """The cells of a visible row; the empty second halves of wide characters are left out."""
        line = self._pyte.buffer[row]
        return [_cell(line[x]) for x in range(self._pyte.columns) if line[x].data]

    def _draw(self, data: bytes) -> None:
        if not data:
            return
        if self._frame is None:
            self._stream.feed(_printable(self._decoder.decode(data)))
            return
        self._frame.append(data)
        if sum(map(len, self._frame)) > _FRAME_LIMIT_BYTES:
            self.flush()

    def _sequence(self, match: re.Match[bytes]) -> None:
        command, private, arguments, _, final = match.groups()
        if command is not None:
            self._system_command(command)
        elif final is None:
            pass  # a device control string: sixel, terminfo queries; none of them changes the text
        elif (private, arguments, final) == (b"?", b"2026", b"h"):
            self._frame = self._frame or []
        elif (private, arguments, final) == (b"?", b"2026", b"l"):
            self.flush()
        elif final in b"cn" and self._query(private, arguments, final):
            pass
        elif final == b"m" and not private:
            self._draw(b"\x1b[" + _dim_as_blink(arguments) + b"m")
        elif private in (b"", b"?") and final != b"u":
            self._draw(match.group())
        # Left out: keyboard protocols (`CSI > 1 u`, `CSI > 4 m`), which pyte takes for colours. Their queries
        # stay unanswered, as on a terminal that does not know them, so keys are sent the classic way.

    def _query(self, private: bytes, arguments: bytes, final: bytes) -> bool:
        """Answers what a program asks about the device; whether it was such a question."""
        if final == b"c" and private in (b"", b">"):
            self._answers += b"\x1b[>0;0;0c" if private else b"\x1b[?62;22c"  # a VT220 with colours
        elif final == b"n" and arguments == b"6":
            cursor = self._pyte.cursor
            self._answers += b"\x1b[%d;%dR" % (cursor.y + 1, cursor.x + 1)
        elif final == b"n" and arguments == b"5":
            self._answers += b"\x1b[0n"
        else:
            return False
        return True

    def _system_command(self, command: bytes) -> None:
        """Answers the questions for the colours of text and background: light grey on black."""
        for number, colour in ((b"10", b"d0d0/d0d0/d0d0"), (b"11", b"0000/0000/0000")):
            if command == number + b";?":
                self._answers += b"\x1b]" + number + b";rgb:" + colour + b"\x1b\\"


def _printable(text: str) -> str:
    """`text` without characters of no width (variation selectors): pyte drops what follows one in a line."""
    if text.isascii():
        return text
    return "".join(char for char in text if wcwidth(char) != 0 or unicodedata.combining(char))


def _dim_as_blink(arguments: bytes) -> bytes:
    """The arguments of a colour sequence with "dim" (2) as "blink" (5), which pyte knows and nobody uses."""
    codes = iter(arguments.replace(b":", b";").split(b";"))
    return b";".join(_translate_codes(codes))


def _translate_codes(codes: Iterator[bytes]) -> Iterator[bytes]:
    for code in codes:
        if code in (b"38", b"48"):  # a colour, whose numbers follow: 5;N or 2;R;G;B
            kind = next(codes, b"")
            yield from (code, kind, *(next(codes, b"0") for _ in range(1 if kind == b"5" else 3)))
        elif code == b"2":
            yield b"5"
        elif code == b"22":
            yield from (b"22", b"25")
        else:
            yield code


def _cell(char: Any) -> Cell:  # a pyte Char, which has no types
    return Cell(
        text=char.data,
        foreground=char.fg,
        background=char.bg,
        bold=char.bold,
        dim=char.blink,
        italic=char.italics,
        underline=char.underscore,
        reverse=char.reverse,
    )
