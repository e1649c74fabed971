"""`statusline`: one short line about the newest session of a directory, for tmux and shell prompts.

Called every few seconds, or before every prompt: so nothing is imported here that takes time (no command-line
framework, no models of settings or records), and nothing fails. What is not known is not shown.
"""

from __future__ import annotations

import os
import re
import sys
import time
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from watcher.core.controls import printable
from watcher.edge.quick_look import QuickState, input_time, newest_session, owner_pid
from watcher.paths import expand_home, home_dir, state_dir
from watcher.qwen.contract import session_id_of
from watcher.qwen.glance import Glance

MAX_COLUMNS: Final = 120
TITLE_COLUMNS: Final = 50
ELLIPSIS: Final = "…"
DEFAULT_AWAY_SECONDS: Final = 300.0
FORMATS: Final = ("plain", "tmux", "zsh")
"""Who shows the line: nobody who would read commands in it, a tmux status bar, a zsh prompt."""
_TERMINAL_STEP_SECONDS: Final = 8.0  # see `core.presence.TERMINAL_STEP_SECONDS`
_DATABASE: Final = "state.db"  # see `edge.store.FILE_NAME`


def main(arguments: Sequence[str]) -> int:
    """Print the line, empty when there is nothing to tell. Returns 0; only wrong usage is for the framework to tell."""
    options = _options_of(arguments)
    if options is None:
        from watcher.cli.app import main as command_line  # noqa: PLC0415 - help, or what is wrong with it

        return command_line(["statusline", *arguments])
    try:
        line = for_display(statusline(options["--cwd"], os.environ, time.time()), options["--format"])
    except Exception:  # noqa: BLE001 - a prompt must not break, whatever is wrong
        line = ""
    _print(line)
    return 0


def _print(line: str) -> None:
    stream = sys.stdout
    if stream is None:  # it was closed before we began
        return
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
        stream.flush()
    except OSError:  # nobody reads it; Python flushes once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _options_of(arguments: Sequence[str]) -> dict[str, str] | None:
    """The options with their values; None for what is left to the command-line framework to explain."""
    options = {"--cwd": ".", "--format": "plain"}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            value = next(words, "-")
            if value.startswith("-"):
                return None
        if name not in options:
            return None
        options[name] = value
    return options if options["--format"] in FORMATS else None


def for_display(line: str, wanted: str) -> str:
    """The line as one of the `FORMATS`: nothing in it, which others wrote, is a command to whoever shows it."""
    if wanted == "zsh":
        return line.replace("%", "%%")
    return re.sub(r"(#+)(\[?)", _for_tmux, line) if wanted == "tmux" else line


def _for_tmux(run: re.Match[str]) -> str:
    """A run of `#` so that tmux shows just that: seen with tmux 3.3a.

    It halves runs when it expands formats and again, rounding up, when it draws them; but before `[`, which would begin
    a style, only when it draws. A single `#` is doubled in any case.
    """
    length = len(run[1])
    return "#" * (2 * length if run[2] else 4 * length - 2) + run[2]


def statusline(cwd: str, environ: Mapping[str, str], now: float) -> str:
    """`title · state · ※ recap` of the newest session of this directory, at most `MAX_COLUMNS` wide; "" without one."""
    home = str(home_dir(environ))
    given = os.path.abspath(expand_home(cwd, _path(home)))  # noqa: PTH100 - pathlib keeps ".."
    database = os.path.join(str(state_dir(environ)), _DATABASE)  # noqa: PTH118
    with QuickState(database) as state:
        beat = state.heartbeat()
        roots = _roots(environ, home, beat)
        names = list(dict.fromkeys([given, os.path.realpath(given)]))
        newest = newest_session([base for _, base in roots], names)
        if newest is None:
            return ""
        path, seen = newest
        session_id = (session_id_of(path) or "").lower()
        recap = seen.recap or state.recap(session_id, seen)
        owner = owner_pid(session_id, path, [config for config, _ in roots])
    away = beat.get("away_seconds")
    word = state_word(owner, seen, now, float(away) if isinstance(away, int | float) else DEFAULT_AWAY_SECONDS)
    return layout(seen.title or seen.prompt, word, recap)


def layout(title: str, state: str, recap: str) -> str:
    """The line; each part safe to print, the recap cut to what is left."""
    parts = [cut(printable(title), TITLE_COLUMNS), state]
    if recap:
        parts.append(f"※ {printable(recap)}")
    return cut(" · ".join(part for part in parts if part), MAX_COLUMNS)


def cut(text: str, columns: int) -> str:
    """`text`, or as much of it as fits, with an ellipsis. CJK characters and emoji take two columns."""
    used = 0
    end = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[:end].rstrip() + ELLIPSIS
        if used <= columns - 1:
            end = index + 1
    return text


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# -- where sessions are ------------------------------------------------------------------------------------------------


def _path(text: str) -> Any:
    from pathlib import Path  # noqa: PLC0415 - `watcher.paths` has loaded it

    return Path(text)


def _roots(environ: Mapping[str, str], home: str, beat: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Config directories and the runtime bases below which sessions are: what the environment names, and what the
    watcher found when it last ran, which has read the settings.
    """
    config = _expanded(environ.get("QWEN_HOME", ""), home) or f"{home}/.qwen"
    roots = [(config, config)]
    runtime = _expanded(environ.get("QWEN_RUNTIME_DIR", ""), home)
    if runtime:
        roots.append((config, runtime))
    told = beat.get("roots")
    for pair in told if isinstance(told, list) else ():
        if isinstance(pair, list) and [type(each) for each in pair] == [str, str]:
            roots.append((pair[0], pair[1]))
    return list(dict.fromkeys(roots))


def _expanded(path: str, home: str) -> str:
    return os.path.abspath(expand_home(path, _path(home))) if path else ""  # noqa: PTH100


def state_word(owner: int | None, seen: Glance, now: float, away_seconds: float) -> str:
    """`working`, `idle`, `away` or `ended` (design 4)."""
    if owner is None:
        return "ended"
    if seen.running:
        return "working"
    input_at = input_time(owner)
    signs = [seen.last_user_at, input_at + _TERMINAL_STEP_SECONDS if input_at is not None else None]
    last = max((sign for sign in signs if sign is not None), default=now)
    return "away" if now - last >= away_seconds else "idle"
