"""The systemd unit as a text: rendered from the template, and read again. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from watcher.errors import ServiceError

_MARK = (
    "# Written by `qwen-watcher service install`. Put changes of your own into a drop-in: they survive the next one."
)
_DAMAGED = "the unit template is damaged; install qwen-session-watcher again"
_SAFE = re.compile(r"[\w@%+=:,./$-]+", re.ASCII)


def render_unit(template: str, command: Sequence[str], environment_file: Path) -> str:
    """The unit: the template with our mark, this command, and this file of variables.

    Raises ServiceError when the template is not the expected one.
    """
    comment, found, body = template.partition("[Unit]\n")
    if not found or not comment.startswith("#"):
        raise ServiceError(_DAMAGED)
    text = f"{_MARK}\n\n[Unit]\n{body}"
    text = _with_setting(text, "ExecStart", quote_command(command))
    return _with_setting(text, "EnvironmentFile", f"-{_escape(str(environment_file))}")


def quote_command(command: Sequence[str]) -> str:
    """The value of `ExecStart=`: no word is a specifier, and none but the first could be a variable.

    Rules: systemd.service(5), "Command lines". The first word is a path, in which `$` means itself.
    """
    program, *arguments = (_escape(word) for word in command)
    return " ".join(_quote(word) for word in (program, *(word.replace("$", "$$") for word in arguments)))


def parse_command(unit: str, home: str) -> tuple[str, ...]:
    """The words of the unit's `ExecStart=`, `%h` as `home`; empty when there is none, or none that can be read."""
    match = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    try:
        words = shlex.split(match[1]) if match else []
    except ValueError:
        return ()
    if not words:
        return ()
    specifiers = {"%%": "%", "%h": home}
    program, *arguments = (re.sub("%[%h]", lambda match: specifiers[match[0]], word) for word in words)
    return (program, *(word.replace("$$", "$") for word in arguments))


def is_ours(unit: str) -> bool:
    """Whether `service install` wrote this unit."""
    return unit.startswith(_MARK)


def _escape(text: str) -> str:
    return text.replace("%", "%%")


def _quote(word: str) -> str:
    if _SAFE.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _with_setting(text: str, name: str, value: str) -> str:
    lines = text.split("\n")
    found = [index for index, line in enumerate(lines) if line.startswith(f"{name}=")]
    if len(found) != 1:
        raise ServiceError(_DAMAGED)
    lines[found[0]] = f"{name}={value}"
    return "\n".join(lines)
