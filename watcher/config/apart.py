"""Reads the configuration in a process of its own, for a service that stays: pydantic and its memory end with that.

Measured with Python 3.11 and pydantic 2.14: 13 MiB that a service would keep for months, for 0.2 s at each start and
reload. Where nothing is set, and where no process can be had, the configuration is read here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from watcher.config.model import Config, LoadedConfig, config_fields
from watcher.config.sources import is_set, load_config
from watcher.errors import ConfigError

TIMEOUT_SECONDS: Final = 30.0
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from watcher.config.apart import answer; answer()"
)


def load_config_apart(
    environ: Mapping[str, str], *, path: Path | None = None, flags: Mapping[str, object] | None = None
) -> LoadedConfig:
    """As `load_config`, in values and errors."""
    if not is_set(environ, path=path, flags=flags):
        return load_config(environ, path=path, flags=flags)
    question = {"environ": dict(environ), "path": str(path) if path is not None else None, "flags": dict(flags or {})}
    found = _ask(question)
    if found is None:
        return load_config(environ, path=path, flags=flags)
    if "error" in found:
        raise ConfigError(found["error"])
    return LoadedConfig(_config(found["values"]), found["origins"], Path(found["path"]), found["exists"])


def answer() -> None:
    """The other process: a question on stdin, the configuration or what is wrong with it on stdout, both JSON."""
    question = json.load(sys.stdin)
    path = question["path"]
    try:
        loaded = load_config(
            question["environ"], path=Path(path) if path is not None else None, flags=question["flags"]
        )
    except ConfigError as error:
        found: dict[str, object] = {"error": str(error)}
    else:
        values = {key: loaded.value(key) for key, origin in loaded.origins.items() if origin != "default"}
        found = {
            "values": values,
            "origins": dict(loaded.origins),
            "path": str(loaded.path),
            "exists": loaded.exists,
        }
    json.dump(found, sys.stdout, default=str)


def _ask(question: Mapping[str, object]) -> dict[str, Any] | None:
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path)],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
        found: dict[str, Any] = json.loads(ended.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return found


def _config(values: Mapping[str, Any]) -> Config:
    config = Config()
    keys = dict(config_fields())
    for dotted, value in values.items():
        section, _, name = dotted.partition(".")
        if isinstance(value, list):
            made: object = tuple(keys[dotted].item(each) for each in value)
        else:
            made = value
        config = replace(config, **{section: replace(getattr(config, section), **{name: made})})
    return config
