"""Changing values in the user's file, as `service install --enable-recaps` does: everything else in it stays."""

from __future__ import annotations

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

    document = tomlkit.parse(text)
    for key, value in values.items():
        section, _, name = key.partition(".")
        if section not in document:
            document[section] = tomlkit.table()
        document[section][name] = value
    return tomlkit.dumps(document)


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
