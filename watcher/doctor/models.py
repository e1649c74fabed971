"""Checks of what writes the texts: Qwen Code's settings and ours, the model, its key, the way to it, and recaps."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from watcher.core.generation import Answer, Failure, Kind
from watcher.doctor.values import Check, DoctorContext, Status, edit, worst
from watcher.drafting import EXTRACTIVE, choose_model, endpoint_of
from watcher.edge.text_model import Endpoint, setup_problem
from watcher.edge.text_model.endpoint import is_loopback
from watcher.holds import refused_account
from watcher.qwen.model_choice import Choice, Missing, ModelChoice
from watcher.qwen.settings import QwenSettings
from watcher.qwen.settings_files import shown

CHOOSE_EXTRACTIVE = "qwen-watcher service install --model extractive"
ENABLE_RECAPS = "qwen-watcher service install --enable-recaps"
_DENIED = (401, 403)
_NOT_FOUND = 404


def check_settings(context: DoctorContext) -> Check:
    """Our configuration and Qwen Code's settings can be read and say nothing wrong."""
    findings = [_check_qwen_settings(context, path, settings) for path, settings in context.settings.items()]
    if context.config_problem:
        findings.append(Check("settings", Status.FAIL, context.config_problem, edit(context.config_file)))
    elif context.config_file is not None:
        file = context.config_file
        what = str(file) if os.path.lexists(file) else f"defaults, no {file}"
        findings.append(Check("settings", Status.OK, what))
    return worst("settings", findings, none="nothing to read")


def check_fast_model(context: DoctorContext) -> Check:
    """There is a model for titles; the precise missing piece when there is none."""
    if context.config.model.source == EXTRACTIVE:
        return Check("fast_model", Status.OK, "extractive: texts are cut from your own words, no model is asked")
    return worst("fast_model", (_describe(context, *pair) for pair in choices(context, Kind.TITLE)), none=_NO_HOME)


def check_api_key(context: DoctorContext) -> Check:
    """The model's key is there and can be sent. It is never shown."""
    if context.config.model.source == EXTRACTIVE:
        return Check("api_key", Status.OK, "not needed: no model is asked")
    return worst("api_key", (_check_key(context, *pair) for pair in choices(context, Kind.TITLE)), none=_NO_HOME)


def check_endpoint(context: DoctorContext) -> Check:
    """The model answers: with `--probe` it is asked once, else only its address is looked at."""
    if context.config.model.source == EXTRACTIVE:
        return Check("endpoint", Status.OK, "none: no model is asked")
    endpoint = _endpoint(context)
    if endpoint is None:
        return Check("endpoint", Status.WARN, "no model, so nobody to ask (see fast_model)")
    problem = setup_problem(endpoint)
    if problem:
        fix = "correct it where the model is configured (see settings)"
        return Check("endpoint", Status.FAIL, f"{endpoint.model}: {problem}", fix)
    if context.probe is None:
        return Check("endpoint", Status.OK, f"{endpoint.host}, not asked; `qwen-watcher doctor --probe` makes one call")
    return _judge_probe(context, endpoint)


def check_recaps(context: DoctorContext) -> Check:
    """Recaps are off on purpose, or on and have a model."""
    findings = (_check_recaps(context, settings) for settings in context.settings.values())
    return worst("recaps", findings, none=_NO_HOME)


def choices(context: DoctorContext, kind: Kind) -> Iterator[tuple[Path, QwenSettings, Choice]]:
    """The model for this kind of text in each home. An explicit one is the same everywhere, and comes once."""
    for path, settings in context.settings.items():
        yield path, settings, choose_model(kind, context.config, settings, context.environ)
        if context.config.model.source == "explicit":
            return


_NO_HOME = "no Qwen Code directory is known"


def _check_qwen_settings(context: DoctorContext, config_dir: Path, settings: QwenSettings) -> Check:
    broken = settings.fast_model.missing
    found = [shown(path, context.home) for path in settings.files if os.path.lexists(path)]
    if not settings.errors:
        return Check("settings", Status.OK, ", ".join(found) or f"no settings in {shown(config_dir, context.home)}")
    # Qwen Code does not start with such a file either.
    status = Status.FAIL if broken in settings.errors else Status.WARN
    return Check("settings", status, "; ".join(settings.errors), edit(config_dir / "settings.json"))


def _describe(context: DoctorContext, config_dir: Path, settings: QwenSettings, choice: Choice) -> Check:
    if isinstance(choice, Missing):
        fix = f"see {'settings' if choice.reason in settings.errors else 'api_key'}"
        if not choice.variable and choice.reason not in settings.errors:
            settings_file = shown(config_dir / "settings.json", context.home)
            fix = f"{CHOOSE_EXTRACTIVE}  # free and offline; or set fastModel in {settings_file}"
        status = Status.FAIL if context.config.title.enabled else Status.WARN
        return Check("fast_model", status, f"no titles: {choice.reason}", fix)
    where = settings.origins.get("fastModel", "")
    origin = f", from {where}" if where and context.config.model.source == "qwen" else ""
    return Check("fast_model", Status.OK, f"{choice.id} ({choice.protocol}){origin}")


def _check_key(context: DoctorContext, config_dir: Path, settings: QwenSettings, choice: Choice) -> Check:
    if isinstance(choice, Missing):
        if not choice.variable:
            return Check("api_key", Status.WARN, "no model, so no key (see fast_model)")
        file = config_dir / ".env"
        fix = f"echo '{choice.variable}=YOUR-KEY' >> {shlex.quote(str(file))} && chmod 600 {shlex.quote(str(file))}"
        return Check("api_key", Status.FAIL, choice.reason, fix)
    host = endpoint_of(choice, 1).host
    refused = refused_account(context.store) if context.store is not None else None
    if refused is not None and refused.host == host:
        detail = (
            f"{host} refused the watcher's last request, and is not asked until the settings change: {refused.detail}"
        )
        fix = "qwen-watcher doctor --probe  # once the key, or the account's balance, is put right"
        return Check("api_key", Status.FAIL, detail, fix)
    if choice.api_key is None:
        if is_loopback(host):
            return Check("api_key", Status.OK, f"none configured; {host} is this machine")
        fix = f'name its variable as "envKey" of {choice.id} in {shown(config_dir / "settings.json", context.home)}'
        return Check("api_key", Status.WARN, f"no key is configured for {host}; requests go without one", fix)
    return Check("api_key", Status.OK, f"set, from {settings.origins.get('fastModel.apiKey') or choice.key_name}")


def _endpoint(context: DoctorContext) -> Endpoint | None:
    """The endpoint of the first model there is, for titles else for recaps."""
    for kind in (Kind.TITLE, Kind.RECAP):
        for _, _, choice in choices(context, kind):
            if isinstance(choice, ModelChoice):
                return endpoint_of(choice, context.config.model.timeout_seconds)
    return None


def _judge_probe(context: DoctorContext, endpoint: Endpoint) -> Check:
    assert context.probe is not None
    outcome, seconds = context.probe(endpoint)
    if isinstance(outcome, Answer):
        tokens = (outcome.tokens_in or 0) + (outcome.tokens_out or 0)
        cost = f", {tokens} tokens" if tokens else ""
        return Check("endpoint", Status.OK, f"{endpoint.model} at {endpoint.host} answered in {seconds:.1f} s{cost}")
    assert isinstance(outcome, Failure)
    status = f" (HTTP {outcome.status})" if outcome.status is not None else ""
    detail = f"{endpoint.model} at {endpoint.host}{status}: {outcome.detail or outcome.reason}"
    return Check("endpoint", Status.FAIL, detail, _probe_fix(outcome, endpoint))


def _probe_fix(outcome: Failure, endpoint: Endpoint) -> str:
    if outcome.status in _DENIED:
        return "check the key (see api_key)"
    if outcome.status == _NOT_FOUND:
        return "check the model's name and base URL"
    if outcome.status is None and endpoint.origin:
        return shlex.join(["curl", "--head", "--max-time", "10", endpoint.origin])
    return "try again later: qwen-watcher doctor --probe"


def _check_recaps(context: DoctorContext, settings: QwenSettings) -> Check:
    recap = context.config.recap
    enabled = settings.show_session_recap if recap.enabled == "auto" else bool(recap.enabled)
    if not enabled:
        by = "general.showSessionRecap is off in Qwen Code" if recap.enabled == "auto" else "recap.enabled = false"
        return Check("recaps", Status.OK, f"off, {by}; to have them: {ENABLE_RECAPS}")
    minutes = recap.away_minutes if recap.away_minutes is not None else settings.away_threshold_minutes
    if context.config.model.source == EXTRACTIVE:
        return Check("recaps", Status.OK, f"on, extractive, {minutes:g} min after you went away")
    choice = choose_model(Kind.RECAP, context.config, settings, context.environ)
    if isinstance(choice, Missing):
        return Check("recaps", Status.FAIL, f"on, but there is no model: {choice.reason}", CHOOSE_EXTRACTIVE)
    return Check("recaps", Status.OK, f"on, with {choice.id}, {minutes:g} min after you went away")
