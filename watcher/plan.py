"""What this configuration will do, in plain words: said by `run`, `service install` and `status` (design promise 3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from watcher.config import LoadedConfig
from watcher.qwen.contract import DISABLE_TITLE_VARIABLE, is_truthy_switch
from watcher.qwen.model_choice import explicit_choice
from watcher.qwen.settings import QwenSettings


def plan_lines(loaded: LoadedConfig, settings: QwenSettings, environ: Mapping[str, str]) -> tuple[str, str]:
    """One line about titles and one about recaps. Sessions may differ where their projects' settings do."""
    return f"titles: {_titles(loaded, settings, environ)}", f"recaps: {_recaps(loaded, settings, environ)}"


def _titles(loaded: LoadedConfig, settings: QwenSettings, environ: Mapping[str, str]) -> str:
    off = titles_off(loaded, settings, environ)
    if off:
        return f"off ({off})"
    model, missing = model_name(loaded, settings, environ)
    if not model:
        return f"none, {missing}; {how_to_choose(loaded.path, missing)}"
    if model == "extractive":
        return "cut from your own words, offline and free (extractive)" + _own_tries(settings)
    return f"with {model}" + _own_tries(settings)


def _own_tries(settings: QwenSettings) -> str:
    return ", after Qwen Code's own tries" if settings.has_native_fast_model and not settings.title_disabled_by else ""


def _recaps(loaded: LoadedConfig, settings: QwenSettings, environ: Mapping[str, str]) -> str:
    recap = loaded.config.recap
    enabled = settings.show_session_recap if recap.enabled == "auto" else bool(recap.enabled)
    if not enabled:
        reason = "general.showSessionRecap is off in Qwen Code" if recap.enabled == "auto" else "recap.enabled = false"
        return f"off ({reason})"
    model, missing = model_name(loaded, settings, environ, main=recap.fallback_to_main)
    if not model:
        return f"none, {missing}; {how_to_choose(loaded.path, missing)}"
    minutes = recap.away_minutes if recap.away_minutes is not None else settings.away_threshold_minutes
    when = f"after {minutes:g} min away" if recap.trigger == "away" else f"when you return after {minutes:g} min away"
    return f"with {model}, {when}"


def titles_off(loaded: LoadedConfig, settings: QwenSettings, environ: Mapping[str, str]) -> str:
    """Where titling is switched off for everything, "" where it is on."""
    if not loaded.config.title.enabled:
        return f"title.enabled = false, {loaded.origins.get('title.enabled', 'configuration')}"
    if is_truthy_switch(environ.get(DISABLE_TITLE_VARIABLE)):
        return f"{DISABLE_TITLE_VARIABLE} in the environment"
    return f"{DISABLE_TITLE_VARIABLE} in {settings.title_disabled_by}" if settings.title_disabled_by else ""


def model_name(
    loaded: LoadedConfig, settings: QwenSettings, environ: Mapping[str, str], *, main: bool = False
) -> tuple[str, str]:
    """The text model's name, or "" and the missing piece. `main`: the main model may stand in."""
    model = loaded.config.model
    if model.source == "extractive":
        return "extractive", ""
    if model.source == "explicit":
        explicit = explicit_choice(model.api, model.name or "", model.base_url, model.api_key_env, environ)
        return explicit.id, explicit.missing
    choice = settings.fast_model
    if choice.missing and main and not settings.main_model.missing:
        choice = settings.main_model
    return choice.id, choice.missing


def how_to_choose(path: Path, missing: str) -> str:
    """What a user without a fast model can do; `missing` says why there is none."""
    remedy = "set fastModel in Qwen Code's settings.json" if missing.startswith("no ") else "put that right"
    return f'{remedy}, or choose [model] source = "explicit" or "extractive" in {path}'
