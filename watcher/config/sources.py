"""The sources of the configuration and their order: flags, environment, file, defaults.

Plain pydantic and `tomllib`, not pydantic-settings: that merges its sources before it validates, so a wrong value can
no longer be traced to the file or variable that set it, and a misspelt `QWEN_WATCHER_…` variable passes in silence.
Both are promised (design 5). Where nothing is set there is nothing to check, and pydantic is not loaded.

Qwen Code's own settings are no source here: a value that follows them is `None`, `"auto"` or empty.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from watcher.config.model import ENV_PREFIX, Config, Key, LoadedConfig, config_fields, env_variable, sections
from watcher.config.text import display_value, expected_values
from watcher.errors import ConfigError, words_of
from watcher.paths import CONFIG_VARIABLE, STATE_DIR_VARIABLE, config_path, home_dir

PLAIN_VARIABLES = (CONFIG_VARIABLE, STATE_DIR_VARIABLE)
"""The variables of this program that are not configuration keys."""
MAX_CONFIG_BYTES = 1024 * 1024


def load_config(
    environ: Mapping[str, str], *, path: Path | None = None, flags: Mapping[str, object] | None = None
) -> LoadedConfig:
    """The effective configuration: flags over environment over file over defaults.

    `path` is an explicit file (`--config`). `flags` maps dotted keys to values; `None` means: the flag was not given.

    Raises ConfigError for an unknown key or variable, a bad value, bad TOML, and a missing explicit file; the text
    names key, value and where it was set.
    """
    file = path.absolute() if path is not None else config_path(environ)
    must_exist = path is not None or bool(environ.get(CONFIG_VARIABLE))
    fields = dict(config_fields())
    text = read_config_text(file)
    if text is None and must_exist:
        raise ConfigError(f"{file}: no such file; `qwen-watcher config init` writes one")

    values: dict[str, object] = {}
    origins = dict.fromkeys(fields, "default")
    for key, value in _file_values(text, file, fields):
        values[key], origins[key] = value, f"file {file}"
    for key, value in _environment_values(environ, fields):
        values[key], origins[key] = value, f"env {env_variable(key)}"
    for key, value in (flags or {}).items():
        if key not in fields:
            raise ConfigError(_unknown_key(key, value, fields, "flag"))
        if value is not None:
            values[key], origins[key] = value, "flag"

    config = _validate(values, origins, fields, home_dir(environ))
    return LoadedConfig(config=config, origins=origins, path=file, exists=text is not None)


def is_set(environ: Mapping[str, str], *, path: Path | None = None, flags: Mapping[str, object] | None = None) -> bool:
    """Whether anything but defaults may come of `load_config`, or an error."""
    if path is not None or any(value is not None for value in (flags or {}).values()):
        return True
    ours = (name for name in environ if name.startswith(ENV_PREFIX))
    if any(name == CONFIG_VARIABLE or name not in PLAIN_VARIABLES for name in ours):
        return True
    try:
        config_path(environ).lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def check_text(text: str, file: Path, environ: Mapping[str, str]) -> None:
    """Raises ConfigError, as `load_config`, when a file with this text would be wrong by itself. Only HOME counts."""
    fields = dict(config_fields())
    values = dict(_file_values(text, file, fields))
    _validate(values, dict.fromkeys(fields, f"file {file}"), fields, home_dir(environ))


def read_config_text(file: Path) -> str | None:
    """The text of a configuration file, None when there is none. Raises ConfigError when it cannot be read."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_CONFIG_BYTES + 1)
        if len(data) > MAX_CONFIG_BYTES:
            raise ConfigError(f"{file}: larger than {MAX_CONFIG_BYTES // 1024} KiB, so it is no configuration")
        # A byte order mark, as some editors write it, is no reason to refuse a file.
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {words_of(error)}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


def _file_values(text: str | None, file: Path, fields: Mapping[str, Key]) -> Iterator[tuple[str, object]]:
    if text is None:
        return
    import tomllib  # noqa: PLC0415 - only where there is a file

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from error
    for section, table in document.items():
        if section not in sections():
            raise ConfigError(_unknown_key(section, table, fields, f"file {file}"))
        if not isinstance(table, dict):
            raise ConfigError(f"{section} = {display_value(section, table)}: [{section}] is a section (in {file})")
        for key, value in table.items():
            if f"{section}.{key}" not in fields:
                raise ConfigError(_unknown_key(f"{section}.{key}", value, fields, f"file {file}"))
            yield f"{section}.{key}", value


def _environment_values(environ: Mapping[str, str], fields: Mapping[str, Key]) -> Iterator[tuple[str, object]]:
    keys = {env_variable(key): key for key in fields}
    for name, text in environ.items():
        if not name.startswith(ENV_PREFIX) or name in PLAIN_VARIABLES:
            continue
        if name not in keys:
            close = _closest(name, [*keys, *PLAIN_VARIABLES])
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{name} = {display_value(name, text)}: no such variable{hint} (in the environment)")
        if text:  # as everywhere in the environment, an empty value is an unset one
            yield keys[name], _parse_text(text, fields[keys[name]])


def _parse_text(text: str, field: Key) -> object:
    """A variable's text as the type that the field takes; what does not parse stays text, which validation refuses."""
    for kind in field.alternatives:
        if kind is bool and text.strip().lower() in ("true", "false", "1", "0", "yes", "no", "on", "off"):
            return text.strip().lower() in ("true", "1", "yes", "on")
        if kind in (int, float) or typing.get_origin(kind) is tuple:
            try:
                return json.loads(text)
            except ValueError:
                return text
    return text


def _unknown_key(key: str, value: object, fields: Mapping[str, Key], origin: str) -> str:
    name = key.rpartition(".")[2]
    same_name = [known for known in fields if known.rpartition(".")[2] == name]
    near = _closest(key, [*sections(), *fields])
    found = near or same_name
    hint = f"; did you mean {' or '.join(found)}?" if found else ""
    return f"{key} = {display_value(key, value)}: unknown key{hint} ({_place(origin)})"


def _closest(name: str, known: Sequence[str]) -> list[str]:
    """The known name that it looks most like; empty when it looks like none."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for an error

    return get_close_matches(name, known, n=1, cutoff=0.7)


def _place(origin: str) -> str:
    kind, _, where = origin.partition(" ")
    return {"file": f"in {where}", "env": f"from {where}"}.get(kind, f"from a {kind}")


def _validate(
    values: Mapping[str, object], origins: Mapping[str, str], fields: Mapping[str, Key], home: Path
) -> Config:
    if not values:
        return Config()
    from watcher.config.validation import validate  # noqa: PLC0415 - pydantic: only where there is something to check

    found = validate(values, home)
    if isinstance(found, Config):
        return found
    raise ConfigError("; ".join(_words(fault.key, fault.message, values, origins, fields) for fault in found))


def _words(
    key: str, message: str, values: Mapping[str, object], origins: Mapping[str, str], fields: Mapping[str, Key]
) -> str:
    if key not in fields:
        return f"{message} ({_place(origins.get('model.source', 'default'))})"
    reason = message or f"expected {expected_values(fields[key])}"
    return f"{key} = {display_value(key, values[key])}: {reason} ({_place(origins[key])})"
