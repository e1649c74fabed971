"""`config`: what is configured and where each value came from, Qwen Code's own settings included; never a secret."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from watcher.atomic_file import replace_file
from watcher.cli.output import Cell, Column, print_table, say, say_filled, say_json, styled
from watcher.config import LoadedConfig, default_config_text
from watcher.core.controls import printable
from watcher.core.redact import mask
from watcher.core.secret import MASK
from watcher.errors import ConfigError, UsageError, words_of
from watcher.paths import CONFIG_VARIABLE, STATE_DIR_VARIABLE, config_path, socket_path
from watcher.plan import titles_off
from watcher.qwen.model_choice import Choice, ModelChoice
from watcher.qwen.roots import HOME_VARIABLE, RUNTIME_VARIABLE, bootstrap
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
    try:
        if path.is_dir() or (path.exists() and not force):
            raise UsageError(f"{path} is there already; --force replaces it")
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
        for name, path, origin in _places(place):
            say_filled(f"{path} ({origin})", first=f"{name:<9}", rest=" " * 9)
        say("")
        follows = _follows(loaded, settings)
        print_table(
            _COLUMNS,
            [_row(key, _text(value), follows.get(key, (None, origin))[1]) for key, value, origin in _values(loaded)],
        )
        say("")
        say(styled("Qwen Code's own settings, as they are outside of any project", "bold"))
        print_table(_COLUMNS, [_row(*each) for each in _qwen_rows(place)])
        for problem in settings.errors:
            say_filled(printable(problem), first="problem: ", rest="         ", style="yellow")
    return 0


def _places(place: Workplace) -> Iterator[tuple[str, str, str]]:
    """The files and directories in use: what each is, where it is, and why there."""
    loaded, environ = place.loaded, place.environ
    there = "" if loaded.exists else "; not there: `qwen-watcher config init` writes one"
    yield "file", str(loaded.path), _variable(environ, CONFIG_VARIABLE, "XDG_CONFIG_HOME") + there
    yield "state", str(place.state_directory), _variable(environ, STATE_DIR_VARIABLE, "XDG_STATE_HOME")
    yield (
        "socket",
        str(socket_path(environ)),
        _variable(environ, STATE_DIR_VARIABLE, "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    )
    start = bootstrap(place.settings)
    for number, root in enumerate(place.roots):
        if root.runtime_base != root.config_dir:
            settings = place.settings.resolve("", False, root.config_dir)
            origin = start.origins.get(
                RUNTIME_VARIABLE,
                f"advanced.runtimeOutputDir in {settings.origins.get('advanced.runtimeOutputDir', 'its settings')}",
            )
        elif place.config.watch.homes:
            origin = loaded.origins["watch.homes"]
        else:
            origin = start.origins.get(HOME_VARIABLE, "default")
        yield "" if number else "sessions", str(root.runtime_base), origin


def _variable(environ: Mapping[str, str], *names: str) -> str:
    """The first of these variables that is set, as an origin."""
    for name in names:
        value = environ.get(name, "")
        if value.startswith("/") or (value and not name.startswith("XDG_")):
            return f"env {name}"
    return "default"


def _follows(loaded: LoadedConfig, settings: QwenSettings) -> dict[str, tuple[Any, str]]:
    """Keys that nobody has set and that follow a setting of Qwen Code: the value that comes of it, and from where."""
    language = settings.output_language or settings.output_language_text
    followed = {
        "recap.enabled": ("general.showSessionRecap", settings.show_session_recap),
        "recap.away_minutes": ("general.sessionRecapAwayThresholdMinutes", settings.away_threshold_minutes),
        "model.language": ("general.outputLanguage", language.split("\n")[0] if language else None),
    }
    found: dict[str, tuple[Any, str]] = {}
    for key, (setting, value) in followed.items():
        if value is not None and loaded.value(key) in (None, "auto"):
            origin = loaded.origins[key]
            where = settings.origins.get(setting, "its default")
            found[key] = (value, f"{origin}: {_text(value)} by {setting} ({where})")
    return found


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


def _qwen_rows(place: Workplace) -> Iterator[tuple[str, str, str]]:
    settings = place.general_settings
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
        provider, _, file = origins.get(f"{setting}.entry", "").partition(", ")
        if provider:
            yield f"{name}'s entry", provider, file
        yield f"{name}'s key", _key(choice), origins.get(f"{setting}.apiKey", "")
        yield f"{name}'s URL", _without_credentials(choice.base_url), origins.get(f"{setting}.baseUrl", "default")
    shown = "on" if settings.show_session_recap else "off"
    yield "session recaps", shown, origins.get("general.showSessionRecap", "default")
    minutes = f"{settings.away_threshold_minutes:g} minutes"
    yield "away after", minutes, origins.get("general.sessionRecapAwayThresholdMinutes", "default")
    language = settings.output_language or ("as output-language.md says" if settings.output_language_text else "")
    yield "output language", language or "that of the conversation", origins.get("general.outputLanguage", "default")
    off = titles_off(place.loaded, settings, place.environ)
    yield "titles", "off" if off else "on", off or "default"
    recording = "on" if settings.chat_recording else "off: there are no session files"
    yield "chat recording", recording, origins.get("general.chatRecording", "default")


def _key(choice: ModelChoice) -> str:
    if choice.api_key is None:
        return "none: requests go without one"
    return f"set, from {choice.key_name}" if choice.key_name else "set"


def _as_dict(place: Workplace) -> dict[str, Any]:
    loaded, settings = place.loaded, place.general_settings
    follows = _follows(loaded, settings)
    return {
        "path": str(loaded.path),
        "exists": loaded.exists,
        "state_directory": str(place.state_directory),
        "socket": str(socket_path(place.environ)),
        "roots": [{"config_dir": str(each.config_dir), "runtime_base": str(each.runtime_base)} for each in place.roots],
        "places": [{"what": what, "path": path, "origin": origin} for what, path, origin in _places(place)],
        "values": {
            key: {"value": value, "origin": origin}
            | ({"effective": follows[key][0], "effective_origin": follows[key][1]} if key in follows else {})
            for key, value, origin in _values(loaded)
        },
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
