"""`config`: what is configured and where each value came from, Qwen Code's own settings included; never a secret."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from watcher.atomic_file import replace_file
from watcher.cli.output import Cell, Column, print_table, say, say_filled, say_json, styled
from watcher.config import LoadedConfig, default_config_text
from watcher.core.controls import printable
from watcher.core.redact import mask
from watcher.core.secret import MASK
from watcher.errors import ConfigError, UsageError, words_of
from watcher.paths import config_path, socket_path
from watcher.qwen.model_choice import Choice, ModelChoice
from watcher.qwen.settings import QwenSettings
from watcher.workplace import Workplace

FILE_MODE: Final = 0o600
_COLUMNS: Final = (
    Column("KEY", "key"),
    Column("VALUE", "value", flexible=True, min_width=16),
    Column("FROM", "origin", flexible=True, min_width=30, style="dim"),
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_QUERY = re.compile(r"\?.*")


def show_path() -> int:
    """Print where the configuration file is, or would be; also when it cannot be read."""
    say(str(config_path(os.environ)))
    return 0


def init_config(*, force: bool) -> int:
    """Write a file with every key, described and commented out, so that it changes nothing."""
    path = config_path(os.environ)
    if path.is_dir() or (path.exists() and not force):
        raise UsageError(f"{path} is there already; --force replaces it")
    try:
        replace_file(path, default_config_text(), FILE_MODE)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {words_of(error)}; set QWEN_WATCHER_CONFIG to another") from error
    say(f"written: {path}")
    return 0


def show_config(*, as_json: bool) -> int:
    """Print the configuration in force."""
    with Workplace(os.environ) as place:
        if as_json:
            say_json(_as_dict(place))
            return 0
        loaded, settings = place.loaded, place.general_settings
        there = "" if loaded.exists else " (not there: `qwen-watcher config init` writes one)"
        say_filled(f"{loaded.path}{there}", first="file     ", rest="         ")
        say_filled(str(place.state_directory), first="state    ", rest="         ")
        say_filled(str(socket_path(place.environ)), first="socket   ", rest="         ")
        say_filled(", ".join(str(root.runtime_base) for root in place.roots), first="sessions ", rest="         ")
        say("")
        print_table(_COLUMNS, [_row(key, _text(value), origin) for key, value, origin in _values(loaded)])
        say("")
        say(styled("Qwen Code's own settings, as they are outside of any project", "bold"))
        print_table(_COLUMNS, [_row(*each) for each in _qwen_rows(settings)])
        for problem in settings.errors:
            say_filled(printable(problem), first="problem: ", rest="         ", style="yellow")
    return 0


def _row(key: str, value: str, origin: str) -> dict[str, str | Cell]:
    return {"key": key, "value": Cell(value, "" if origin == "default" else "bold"), "origin": origin}


def _values(loaded: LoadedConfig) -> Iterator[tuple[str, Any, str]]:
    """Every key with its value, made safe to show, and its origin."""
    for key, origin in loaded.origins.items():
        yield key, _safe(key, loaded.value(key)), origin


def _safe(key: str, value: object) -> Any:
    if isinstance(value, list | tuple):
        return [_safe(key, each) for each in value]
    if isinstance(value, Path):
        return str(value)
    if key == "model.api_key_env" and isinstance(value, str):
        # It is the name of a variable. A key that was put here by mistake is not printed.
        return value if re.fullmatch(r"[A-Z_][A-Z0-9_]*", value) else MASK
    return _without_credentials(value) if isinstance(value, str) else value


def _without_credentials(text: str) -> str:
    if "://" in text:
        text = _QUERY.sub(f"?{MASK}", _USERINFO.sub(MASK, text))
    return mask(text).text


def _text(value: object) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _qwen_rows(settings: QwenSettings) -> Iterator[tuple[str, str, str]]:
    origins = settings.origins
    for name, setting, choice in (
        ("fast model", "fastModel", settings.fast_model),
        ("main model", "mainModel", settings.main_model),
    ):
        where = origins.get("model.name" if setting == "mainModel" else setting, "default")
        if not isinstance(choice, ModelChoice):
            yield name, f"none: {choice.missing}", where
            continue
        yield name, f"{choice.id} ({choice.protocol.value})", where
        yield f"{name}'s key", _key(choice), origins.get(f"{setting}.apiKey", "")
        yield f"{name}'s URL", _without_credentials(choice.base_url), origins.get(f"{setting}.baseUrl", "default")
    shown = "on" if settings.show_session_recap else "off"
    yield "session recaps", shown, origins.get("general.showSessionRecap", "default")
    minutes = f"{settings.away_threshold_minutes:g} minutes"
    yield "away after", minutes, origins.get("general.sessionRecapAwayThresholdMinutes", "default")
    language = settings.output_language or ("as output-language.md says" if settings.output_language_text else "")
    yield "output language", language or "that of the conversation", origins.get("general.outputLanguage", "default")
    yield "titles", "off" if settings.title_disabled_by else "on", settings.title_disabled_by or "default"
    recording = "on" if settings.chat_recording else "off: there are no session files"
    yield "chat recording", recording, origins.get("general.chatRecording", "default")


def _key(choice: ModelChoice) -> str:
    if choice.api_key is None:
        return "none: requests go without one"
    return f"set, from {choice.key_name}" if choice.key_name else "set"


def _as_dict(place: Workplace) -> dict[str, Any]:
    loaded, settings = place.loaded, place.general_settings
    return {
        "path": str(loaded.path),
        "exists": loaded.exists,
        "state_directory": str(place.state_directory),
        "socket": str(socket_path(place.environ)),
        "roots": [{"config_dir": str(each.config_dir), "runtime_base": str(each.runtime_base)} for each in place.roots],
        "values": {key: {"value": value, "origin": origin} for key, value, origin in _values(loaded)},
        "qwen": {
            "fast_model": _choice_as_dict(settings.fast_model),
            "main_model": _choice_as_dict(settings.main_model),
            "show_session_recap": settings.show_session_recap,
            "away_threshold_minutes": settings.away_threshold_minutes,
            "output_language": settings.output_language or None,
            "title_disabled_by": settings.title_disabled_by,
            "chat_recording": settings.chat_recording,
            "origins": {name: where for name, where in settings.origins.items() if not name.startswith("env.")},
            "errors": list(settings.errors),
        },
    }


def _choice_as_dict(choice: Choice) -> dict[str, Any]:
    if not isinstance(choice, ModelChoice):
        return {"id": None, "missing": choice.missing}
    return {
        "id": choice.id,
        "missing": None,
        "protocol": choice.protocol.value,
        "base_url": _without_credentials(choice.base_url),
        "key_set": choice.api_key is not None,
        "key_name": choice.key_name or None,
    }
