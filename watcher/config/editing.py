"""Changing values in the user's file, as `service install --enable-recaps` does: everything else in it stays."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from watcher.atomic_file import replace_file
from watcher.config.sources import check_text, read_config_text
from watcher.config.text import default_config_text
from watcher.errors import ConfigError, words_of


def with_values(text: str, values: Mapping[str, object]) -> str:
    """The TOML text with those dotted keys set; comments, order and layout stay. The text must be valid TOML."""
    import tomlkit  # noqa: PLC0415 - only a command that changes the file needs it

    for key, value in values.items():
        section, _, name = key.partition(".")
        document = tomlkit.parse(text)
        if name in document.get(section, {}):
            document[section][name] = value
            text = tomlkit.dumps(document)
            continue
        placed = _in_place_of_its_comment(text, section, name, tomlkit.item(value).as_string())
        if placed is not None and tomlkit.parse(placed).get(section, {}).get(name) == value:
            text = placed
            continue
        if section not in document:
            document[section] = tomlkit.table()
        document[section][name] = value
        text = tomlkit.dumps(document)
    return text


def _in_place_of_its_comment(text: str, section: str, name: str, value: str) -> str | None:
    """The text with a new key where `config init` shows its default, else at the head of its section; None without one.

    A library would put it behind the comments at the end of the section, which introduce the next one.
    """
    lines = text.splitlines(keepends=True)
    headers = [number for number, line in enumerate(lines) if re.match(r"\s*\[", line)]
    start = next((number for number in headers if re.match(rf"\s*\[{section}\]\s*(#|$)", lines[number])), None)
    if start is None:
        return None
    end = min((number for number in headers if number > start), default=len(lines))
    line = f"{name} = {value}\n"
    for number in range(start + 1, end):
        if re.match(rf"#\s*{name}\s*=", lines[number]):
            return "".join([*lines[:number], line, *lines[number + 1 :]])
    head = lines[start] if lines[start].endswith("\n") else f"{lines[start]}\n"
    return "".join([*lines[:start], head, line, *lines[start + 1 :]])


def save_values(environ: Mapping[str, str], path: Path, values: Mapping[str, object]) -> None:
    """Set those keys in the file, which is made from `default_config_text` when it is missing.

    Raises ConfigError when the file, as it is or as it would be, is wrong; then nothing was written.
    """
    old = read_config_text(path)
    text = default_config_text() if old is None else old
    check_text(text, path, environ)
    new = with_values(text, values)
    check_text(new, path, environ)
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if old is not None else 0o600
        replace_file(path, new, mode)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {words_of(error)}") from error
