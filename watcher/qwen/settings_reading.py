"""One resolution of Qwen Code's settings for a session: which files count, and what follows from them.

Contract 7.1 (scopes), 7.2 (environment), 6.1-6.3 (switches).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from watcher.core.digest import digest_of
from watcher.qwen.contract import DISABLE_TITLE_VARIABLE, is_truthy_switch
from watcher.qwen.credentials import Session
from watcher.qwen.dotenv import (
    DEFAULT_EXCLUDED,
    MAX_ENV_CHARS,
    QWEN_DIR,
    EnvCandidate,
    Environment,
    Variable,
    home_candidates,
    may_set,
    parse_env,
    project_candidates,
    settings_may_set,
)
from watcher.qwen.model_choice import Choice, Missing, ModelChoice
from watcher.qwen.model_chooser import Chosen, ModelChooser
from watcher.qwen.providers import (
    ProviderEntry,
    find_main_entry,
    main_model_id,
    number,
    read_entries,
    section,
    session_auth_type,
    string,
)
from watcher.qwen.settings_files import (
    ABSENT,
    FileText,
    Scope,
    Stamp,
    SystemPaths,
    expand_variables,
    merge_scopes,
    parse_settings,
    shown,
)

SETTINGS_NAME: Final = "settings.json"
LANGUAGE_NAME: Final = "output-language.md"
MEMORY_NAMES: Final = ("QWEN.md", "AGENTS.md")
"""The user's memory files in the config dir, unless `context.fileName` names others: seen in 0.24.4."""
DEFAULT_AWAY_MINUTES: Final = 5.0
"""Of `general.sessionRecapAwayThresholdMinutes`, also when it is zero, negative or no number (contract 6.3)."""
MAX_LANGUAGE_CHARS: Final = 8192
"""How much of the output-language file is taken; what Qwen Code writes there is a fifth of that."""


@dataclass(frozen=True, slots=True)
class QwenSettings:
    """What a session in one directory runs with.

    `title_disabled_by` says which `.env` file or settings scope switches titling off, None where none does (6.1).
    `away_threshold_minutes` may be a fraction. `output_language_text` is the output-language file's text, bounded,
    empty without one. `has_native_fast_model`: Qwen Code itself finds a fast model. `runtime_output_dir` is as it was
    written. `user_memory` are the user's memory files, existing or not, in the order in which Qwen Code reads them.
    `origins` tells for each dotted key in force which file or variable set it; it holds no values. Beside the
    settings' own keys there are `apiKey`, `baseUrl` and `entry` below `fastModel` and `mainModel`, where such a model
    was found; without an entry it stands outside of `modelProviders`. `errors` are for people. `files` are all paths
    that were looked at, existing or not; `fingerprint` changes when one of them does.
    """

    fast_model: Choice
    main_model: Choice
    title_disabled_by: str | None = None
    show_session_recap: bool = False
    away_threshold_minutes: float = DEFAULT_AWAY_MINUTES
    output_language: str = ""
    output_language_text: str = ""
    chat_recording: bool = True
    runtime_output_dir: str = ""
    has_native_fast_model: bool = False
    user_memory: tuple[Path, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    fingerprint: str = ""


class Reading:
    """One resolution: notes every file that it looks at."""

    def __init__(
        self,
        read: Callable[[Path], FileText],
        home: Path | None,
        environ: Mapping[str, str],
        system_paths: SystemPaths,
        cwd: Path,
        trusted: bool,
        config_dir: Path,
    ) -> None:
        """`read` gives the present text of a file; the rest as for `SettingsReader.resolve`."""
        self._read = read
        self._home = home
        self._environ = environ
        self._system_paths = system_paths
        self._cwd = cwd
        self._trusted = trusted
        self._config_dir = config_dir
        self.stamps: dict[Path, Stamp] = {}
        self._errors: list[str] = []

    def result(self) -> QwenSettings:
        """Everything, from the files as they are now; `stamps` then holds what was looked at."""
        scopes = [self._expanded(scope) for scope in self._scopes()]
        workspace = scopes.pop(2)
        in_force = [*scopes[:2], workspace, scopes[2]] if self._trusted else scopes
        merged, origins = merge_scopes(in_force)
        broken = next((f"{scope.label} {scope.problem}" for scope in in_force if scope.problem), "")
        self._errors += [f"{scope.label} {scope.problem}" for scope in in_force if scope.problem]
        excluded = _excluded(merged)
        files = self._env_files(excluded, trusted=self._trusted)
        environment = Environment(self._environ, _with_settings(files, merged, origins))
        entries, problems = read_entries(merged)
        self._errors += problems
        fast, main, native = self._models(merged, entries, environment, broken)
        general = section(merged, "general")
        away = number(general.get("sessionRecapAwayThresholdMinutes"))
        return QwenSettings(
            fast_model=fast.choice,
            main_model=main.choice,
            title_disabled_by=self._disabled_by(files, in_force, workspace, excluded),
            show_session_recap=general.get("showSessionRecap") is True,
            away_threshold_minutes=away if away is not None and away > 0 else DEFAULT_AWAY_MINUTES,
            output_language=string(general.get("outputLanguage")),
            output_language_text=self._language_text(),
            chat_recording=general.get("chatRecording") is not False,
            runtime_output_dir=string(section(merged, "advanced").get("runtimeOutputDir")),
            has_native_fast_model=native,
            user_memory=tuple(self._config_dir / name for name in _memory_names(merged)),
            origins={**origins, **_origins_of("fastModel", fast, origins), **_origins_of("mainModel", main, origins)},
            errors=tuple(dict.fromkeys(self._errors)),
            files=tuple(self.stamps),
            fingerprint=self._fingerprint(),
        )

    def _text(self, path: Path) -> FileText:
        found = self._read(path)
        self.stamps[path] = found.stamp
        return found

    # --- settings files

    def _scopes(self) -> Iterator[Scope]:
        """System defaults, user, workspace, system: weakest first (7.1)."""
        system = self._system_paths
        yield self._scope("system defaults", system.defaults)
        user = self._config_dir / SETTINGS_NAME
        yield self._scope("user", user)
        workspace = self._cwd / QWEN_DIR / SETTINGS_NAME
        if not self._cwd.is_absolute() or self._is_home(_real(self._cwd)) or workspace == user:
            yield Scope("workspace", "workspace settings", {})
        else:
            yield self._scope("workspace", workspace)
        yield self._scope("system", system.settings)

    def _scope(self, name: str, path: Path) -> Scope:
        found = self._text(path)
        label = f"{name} settings {shown(path, self._home)}"
        if found.text is None:
            folder = "" if found.stamp == ABSENT else "is a folder"
            return Scope(name, label, {}, found.problem or folder)
        values, problem = parse_settings(found.text)
        return Scope(name, label, values, problem)

    def _expanded(self, scope: Scope) -> Scope:
        values = expand_variables(scope.values, self._variable)
        return Scope(scope.name, scope.label, values if isinstance(values, dict) else {}, scope.problem)

    def _variable(self, name: str) -> str | None:
        """What `$NAME` in settings stands for: the environment, else the home `.env` files (7.1). None leaves it."""
        own = self._environ.get(name)
        if own:
            return own
        paths = [self._config_dir / ".env"]
        if not self._environ.get("QWEN_HOME"):
            paths.append(self._config_dir.parent / ".env")
        for path in paths:
            value = parse_env(self._text(path).text or "").get(name)
            if value:
                return value
        return own

    def _is_home(self, path: Path) -> bool:
        home = self._home
        return home is not None and path in {home, _real(home)}

    # --- .env files

    def _env_files(self, excluded: tuple[str, ...], *, trusted: bool) -> dict[str, Variable]:
        """What `.env` files set for this directory; the first to set a key to something wins (7.2)."""
        variables: dict[str, Variable] = {}
        for candidate in self._chosen_files(trusted=trusted):
            found = self._text(candidate.path)
            label = shown(candidate.path, self._home)
            too_large = f"is larger than {MAX_ENV_CHARS // 1024} KiB" if len(found.text or "") > MAX_ENV_CHARS else ""
            if found.problem or too_large:
                self._errors.append(f"{label} {found.problem or too_large}")
            for name, value in parse_env(found.text or "").items():
                if value and name not in variables and may_set(candidate, name, excluded):
                    variables[name] = Variable(value, label)
        return variables

    def _chosen_files(self, *, trusted: bool) -> Iterator[EnvCandidate]:
        home = self._home
        cwd = _real(self._cwd)
        own = home_candidates(home, self._config_dir)
        first = None
        if self._cwd.is_absolute() and not self._is_home(cwd):
            for candidate in project_candidates(cwd, _real(home) if home else None, self._config_dir):
                usable = candidate.home or trusted
                if not usable:
                    continue
                found = self._text(candidate.path)
                if found.text is not None or found.problem:
                    first = candidate
                    break
        if first is not None:
            yield first
        yield from (candidate for candidate in own if candidate != first)

    def _disabled_by(
        self, files: Mapping[str, Variable], in_force: list[Scope], workspace: Scope, excluded: tuple[str, ...]
    ) -> str | None:
        """Where titling is switched off (6.1), None where it is not.

        A project that nobody trusts can switch it off for itself, never on: that costs nothing and harms nobody.
        """
        where = _switched_off(files, in_force)
        if where is None and not self._trusted:
            where = _switched_off(self._env_files(excluded, trusted=True), [workspace])
        return where

    # --- models and the rest

    def _models(
        self, merged: Mapping[str, object], entries: tuple[ProviderEntry, ...], environment: Environment, broken: str
    ) -> tuple[Chosen, Chosen, bool]:
        if broken:
            # Qwen Code does not start with such a file, and half of the settings may name the wrong model.
            missing = Chosen(Missing(broken))
            return missing, missing, False
        auth_type = session_auth_type(merged, environment)
        model = main_model_id(merged, auth_type, environment)
        entry = find_main_entry(entries, auth_type, model, string(section(merged, "model").get("baseUrl")).strip())
        session = Session(entry.auth_type if entry else auth_type, model, entry)
        chooser = ModelChooser(merged, entries, environment, session)
        return chooser.fast(), chooser.main(), chooser.has_native_fast_model

    def _language_text(self) -> str:
        """The project's output-language file where the folder is trusted, else the user's (6.2)."""
        paths = [self._config_dir / LANGUAGE_NAME]
        if self._trusted and self._cwd.is_absolute():
            paths.insert(0, self._cwd / QWEN_DIR / LANGUAGE_NAME)
        for path in paths:
            found = self._text(path)
            if found.text is not None:
                return found.text.strip()[:MAX_LANGUAGE_CHARS]
        return ""

    def _fingerprint(self) -> str:
        state = repr([(str(path), stamp) for path, stamp in self.stamps.items()])
        return digest_of(state.encode(errors="surrogateescape")).hex()


def _memory_names(merged: Mapping[str, object]) -> tuple[str, ...]:
    """The names of memory files: a text or a list of texts. One that leads out of its folder is no name."""
    named = section(merged, "context").get("fileName")
    names = [string(each).strip() for each in (named if isinstance(named, list) else [named])]
    plain = (name for name in names if name not in ("", "..") and Path(name).name == name and "\0" not in name)
    return tuple(dict.fromkeys(plain)) or MEMORY_NAMES


def _switched_off(files: Mapping[str, Variable], scopes: list[Scope]) -> str | None:
    """Where `QWEN_DISABLE_AUTO_TITLE` is set to something true: the first `.env` file, else the strongest scope."""
    found = files.get(DISABLE_TITLE_VARIABLE)
    if found is not None:
        return found.origin if is_truthy_switch(found.value) else None
    for scope in reversed(scopes):
        value = section(scope.values, "env").get(DISABLE_TITLE_VARIABLE)
        if isinstance(value, str) and value:
            return f"`env` of {scope.label}" if is_truthy_switch(value) else None
    return None


def _with_settings(
    files: Mapping[str, Variable], merged: Mapping[str, object], origins: Mapping[str, str]
) -> dict[str, Variable]:
    """What files set, `settings.env` last (7.2)."""
    from_settings = {
        name: Variable(value, origins.get(f"env.{name}", "settings"))
        for name, value in section(merged, "env").items()
        if isinstance(value, str) and value and settings_may_set(name)
    }
    return {**from_settings, **files}


def _excluded(merged: Mapping[str, object]) -> tuple[str, ...]:
    names = section(merged, "advanced").get("excludedEnvVars")
    return tuple(filter(None, map(string, names))) if isinstance(names, list) else DEFAULT_EXCLUDED


def _origins_of(name: str, chosen: Chosen, origins: Mapping[str, str]) -> dict[str, str]:
    """Where key, base URL and entry of a chosen model came from."""
    if not isinstance(chosen.choice, ModelChoice):
        return {}
    entry = ", ".join(filter(None, (chosen.entry, origins.get(chosen.entry, ""))))
    found = {f"{name}.apiKey": chosen.key_origin, f"{name}.baseUrl": chosen.url_origin, f"{name}.entry": entry}
    return {key: origin for key, origin in found.items() if origin}


def _real(path: Path) -> Path:
    """`path` without symbolic links, as far as it exists."""
    return Path(os.path.realpath(path))
