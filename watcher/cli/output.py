"""What commands print: JSON for scripts, tables for people, one line for an error. Never a traceback for a user's
mistake.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TextIO

from watcher.core.controls import printable
from watcher.core.reasons import Reason
from watcher.errors import NotFoundError, RefusedError, WatcherError

FALLBACK_COLUMNS: Final = 80
MIN_COLUMNS: Final = 40
GAP: Final = "  "
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What `json.dumps` leaves as it is of control, line-breaking and bidirectional characters, and lone surrogates."""
_SGR: Final = re.compile(r"\x1b\[[0-9;]*m")
_STYLES: Final = {"bold": "1", "dim": "2", "italic": "3", "red": "31", "green": "32", "yellow": "33"}


def ago(seconds: float | None, now: float) -> str:
    """A short age: `12 s`, `5 min`, `3 h`, `8 d`."""
    if seconds is None:
        return ""
    age = max(0.0, now - seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age >= length:
            return f"{int(age // length)} {unit}"
    return f"{int(age)} s"


def clock_time(seconds: float) -> str:
    """A time for people, in their own zone: `2026-11-30 04:12:33`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def clock_time_of(stamp: str) -> str:
    """The same for a time of one of the JSON shapes."""
    return clock_time(datetime.fromisoformat(stamp).timestamp())


# -- the terminal ------------------------------------------------------------------------------------------------------


def at_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person reads the stream (standard output)."""
    return (stream or sys.stdout).isatty()


def columns(stream: TextIO | None = None) -> int:
    """The width of the stream's terminal; 80 where it tells none."""
    with contextlib.suppress(OSError, ValueError):
        found = os.get_terminal_size((stream or sys.stdout).fileno()).columns
        if found > 0:
            return max(found, MIN_COLUMNS)
    return FALLBACK_COLUMNS


def takes_screen(stream: TextIO | None = None) -> bool:
    """Whether the stream is a terminal that can show a screen of our own."""
    return at_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb"


def colours(stream: TextIO | None = None) -> bool:
    """Whether the stream takes colours: a terminal, unless the user or the terminal says no (no-color.org)."""
    return at_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """`text` in a style such as `bold` or `dim italic`, where the stream takes colours."""
    if not style or not text or not colours(stream):
        return text
    return f"\x1b[{';'.join(_STYLES[name] for name in style.split())}m{text}\x1b[0m"


# -- lines -------------------------------------------------------------------------------------------------------------


def say(text: str, stream: TextIO | None = None) -> None:
    """One line for a person; a character that the terminal's encoding lacks becomes `?`."""
    stream = stream or sys.stdout
    encoding = stream.encoding or "utf-8"
    write(text.encode(encoding, "replace").decode(encoding) + "\n", stream)


def write(text: str, stream: TextIO) -> None:
    """Write and flush. A reader that went away (`| head`) ends the command, in silence and well; but what is only said
    beside the result, on stderr, changes nothing about the work or how it ends.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        # Python flushes once more at exit; give it somewhere to go.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        if stream is sys.stderr:
            return
        if isinstance(error, BrokenPipeError):
            raise SystemExit(0) from None
        raise


def wait_while_read(seconds: float) -> None:
    """Sleep, in a command that goes on for ever; ends it at once when nobody reads its pipe any more."""
    if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
        time.sleep(seconds)
        return
    waiting = select.poll()
    waiting.register(sys.stdout.fileno(), 0)  # told without asking: that the reader has hung up
    if waiting.poll(seconds * 1000):
        raise SystemExit(0)


def say_filled(text: str, *, first: str = "", rest: str = "", style: str = "") -> None:
    """A text of any length: lines that fit the terminal, `first` and `rest` before them; one line in a pipe."""
    if not at_terminal():
        say(first + text)
        return
    from watcher.cli import cells  # noqa: PLC0415 - only people at a terminal pay for it

    room = max(columns() - max(cells.width(_SGR.sub("", first)), cells.width(rest)), MIN_COLUMNS // 2)
    for number, line in enumerate(cells.wrap(cells.plain(text), room)):
        say((rest if number else first) + styled(line, style))


def takes_utf8() -> bool:
    """Whether stdout can print every character."""
    return (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"


def say_json(value: object) -> None:
    """One line of JSON on stdout. Lone surrogates stay escaped, so any locale can print it; so do characters that could
    move a terminal's cursor or turn its text around.
    """
    text = json.dumps(value, ensure_ascii=not takes_utf8())
    write(_UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n", sys.stdout)


def fail(error: WatcherError) -> int:
    """Print an error as one line on stderr and return its exit code."""
    text = printable(str(error))
    reason = error.reason if isinstance(error, RefusedError) else None
    if isinstance(error, NotFoundError):
        reason = Reason.NOT_FOUND.value
    if reason is not None:
        text = f"reason: {reason}" + (f" ({text})" if text and text != reason else "")
    else:
        text = f"qwen-watcher: {text}"
    say(text, sys.stderr)
    return error.exit_code


def note(text: str) -> None:
    """A remark beside the result: on stderr, so that stdout holds the result alone."""
    say(printable(text), sys.stderr)


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Show what is being waited for, while it is; only to a person at a terminal."""
    stream = sys.stderr
    if not at_terminal(stream):
        yield
        return
    from watcher.cli import cells  # noqa: PLC0415 - only people at a terminal pay for it

    shown = cells.cut(cells.plain(text), columns(stream) - 1)
    encoding = stream.encoding or "utf-8"
    write(shown.encode(encoding, "replace").decode(encoding), stream)
    try:
        yield
    finally:
        write(f"\r{' ' * cells.width(shown)}\r", stream)


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading and the key of its cells.

    On a terminal that is too narrow, `flexible` columns are cut down, the last one first: all of them to `enough`, then
    to `min_width`. Then `optional` ones are left out, the one with the highest number first; 0 stays.
    """

    heading: str
    key: str
    flexible: bool = False
    style: str = ""
    min_width: int = 8
    enough: int = 20
    optional: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with a style of its own, such as the dim title of an automatic one."""

    text: str
    style: str = ""


Rows = Sequence[Mapping[str, str | Cell]]


def print_table(table: Sequence[Column], rows: Rows) -> None:
    """A table that never wraps: fitted to the terminal; tab-separated and whole in a pipe. Cells are made printable
    first.
    """
    lines = fitted_table(table, rows, columns()) if at_terminal() else plain_table(table, rows)
    for line in lines:
        say(line)


def plain_table(table: Sequence[Column], rows: Rows) -> list[str]:
    """The table as tab-separated lines with a heading, for pipes."""
    lines = ["\t".join(column.heading for column in table)]
    lines += ["\t".join(printable(_cell(row, column).text) for column in table) for row in rows]
    return lines


def fitted_table(table: Sequence[Column], rows: Rows, room: int) -> list[str]:
    """The table as lines of at most `room` cells, with a heading, styled where stdout takes colours."""
    from watcher.cli import cells  # noqa: PLC0415 - only people at a terminal pay for it

    texts = {
        column.key: [cells.plain(column.heading), *(cells.plain(_cell(row, column).text) for row in rows)]
        for column in table
    }
    natural = {key: max(map(cells.width, texts[key])) for key in texts}
    widths = fit(table, natural, room)
    shown = [column for column in table if column.key in widths]
    lines: list[str] = []
    for number in range(len(rows) + 1):
        line, blanks = "", ""
        for column in shown:
            text = cells.cut(texts[column.key][number], widths[column.key])
            style = "bold" if number == 0 else _cell(rows[number - 1], column).style or column.style
            line += blanks + styled(text, style)
            blanks = " " * (widths[column.key] - cells.width(text)) + GAP
        lines.append(line)
    return lines


def fit(table: Sequence[Column], natural: Mapping[str, int], room: int) -> dict[str, int]:
    """The width of each column that is shown, for columns of a `natural` width, to take at most `room` together."""
    shown = list(table)
    while True:
        widths = {column.key: natural[column.key] for column in shown}
        excess = sum(widths.values()) + len(GAP) * (len(shown) - 1) - room
        flexible = [column for column in reversed(shown) if column.flexible]
        for column, least in [(each, each.enough) for each in flexible] + [(each, each.min_width) for each in flexible]:
            spared = min(max(0, excess), max(0, widths[column.key] - max(least, len(column.heading))))
            widths[column.key] -= spared
            excess -= spared
        dropped = max(shown, key=lambda column: column.optional)
        if excess <= 0 or not dropped.optional:
            return widths
        shown.remove(dropped)


def _cell(row: Mapping[str, str | Cell], column: Column) -> Cell:
    value = row.get(column.key, "")
    return value if isinstance(value, Cell) else Cell(value)
