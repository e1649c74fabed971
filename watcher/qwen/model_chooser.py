"""Which model, endpoint and key Qwen Code's settings name: a pure selection from merged settings and an environment.

Contract 7.3 (selectors) and 7.4 (provider entries, keys, base URLs). `qwen.settings` reads the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from watcher.core.secret import SecretText
from watcher.qwen.dotenv import Environment
from watcher.qwen.model_choice import PROTOCOLS, Choice, Missing, ModelChoice
from watcher.qwen.providers import (
    DEFAULT_BASE_URLS,
    KEY_VARIABLES,
    URL_VARIABLES,
    AuthType,
    ProviderEntry,
    number,
    section,
    string,
)

OAUTH_MODEL: Final = "coder-model"
"""The one model of qwen-oauth, which is part of Qwen Code (7.4)."""
TIMEOUT_VARIABLE: Final = "QWEN_CODE_API_TIMEOUT_MS"
_VERTEX_PATH: Final = "/v1beta1/publishers/google"
"""What the Google client puts between a Vertex AI address and `/models/…`."""

QWEN_OAUTH_REASON: Final = (
    "qwen-oauth models cannot be called from outside Qwen Code: their token belongs to Qwen Code alone; "
    "name a fastModel with an API key"
)


@dataclass(frozen=True, slots=True)
class Found:
    """A value and where it came from."""

    value: str = field(repr=False)
    origin: str


@dataclass(frozen=True, slots=True)
class Session:
    """What a session without command-line flags runs on: its auth type, its main model and that model's entry."""

    auth_type: AuthType | None
    model: str
    entry: ProviderEntry | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice and, for `origins`, where its key and its base URL came from."""

    choice: Choice
    key_origin: str = ""
    url_origin: str = ""


class ModelChooser:
    """Chooses among the configured models as a session with these settings would."""

    def __init__(
        self,
        merged: Mapping[str, object],
        entries: tuple[ProviderEntry, ...],
        environment: Environment,
        session: Session,
    ) -> None:
        self._merged = merged
        self._entries = entries
        self._environment = environment
        self._session = session

    def fast(self) -> Chosen:
        """The fast model (7.3). Never the main model in its place."""
        text = string(self._merged.get("fastModel")).strip()
        if not text:
            return Chosen(Missing("no fastModel is set in Qwen Code's settings"))
        if text in {"inherit", "fast"}:
            return Chosen(Missing(f'fastModel is "{text}", which names no model'))
        auth_type, model_id = split_selector(text)
        if not model_id:
            return Chosen(Missing(f'fastModel is "{text}", which names no model'))
        if auth_type is AuthType.QWEN_OAUTH or self._is_oauth_model(auth_type, model_id):
            return Chosen(Missing(QWEN_OAUTH_REASON))
        main = self._session.entry
        if main is not None and main.id == model_id and auth_type in {None, main.auth_type} and not main.special:
            return self._from_entry(main)
        known = self._with_id(model_id, auth_type)
        usable = [entry for entry in known if not entry.special]
        if usable:
            return self._from_entry(usable[0])
        if known:
            return Chosen(Missing(f"fastModel names {model_id}, which is for {known[0].special} only"))
        if model_id == self._session.model and auth_type in {None, self._session.auth_type}:
            return self._same_as_main(model_id)
        where = f" of {auth_type}" if auth_type else ""
        return Chosen(Missing(f"fastModel names {model_id} but no modelProviders entry{where} has that id"))

    def main(self) -> Chosen:
        """The session's main model, which stands in for a missing fast model where Qwen Code lets it (6.3)."""
        session = self._session
        if session.auth_type is AuthType.QWEN_OAUTH:
            return Chosen(Missing(QWEN_OAUTH_REASON))
        if session.auth_type is None:
            return Chosen(Missing("no auth type is selected in Qwen Code's settings (security.auth.selectedType)"))
        if not session.model:
            return Chosen(Missing("no main model is set in Qwen Code's settings (model.name)"))
        if session.entry is not None:
            if session.entry.special:
                return Chosen(Missing(f"model.name names {session.model}, which is for {session.entry.special} only"))
            return self._from_entry(session.entry)
        return self._from_session(session.auth_type, session.model)

    @property
    def has_native_fast_model(self) -> bool:
        """Whether Qwen Code itself finds the fast model among its configured ones (7.3), whatever its key."""
        auth_type, model_id = split_selector(string(self._merged.get("fastModel")).strip())
        if not model_id:
            return False
        if self._is_oauth_model(auth_type, model_id) or any(
            not entry.special for entry in self._with_id(model_id, auth_type)
        ):
            return True
        # a main model outside modelProviders counts as configured once it has a key and a base URL
        session = self._session
        return (
            session.entry is None
            and model_id == session.model
            and session.auth_type is not None
            and auth_type in {None, session.auth_type}
            and self._session_key() is not None
            and self._session_url() is not None
        )

    def _is_oauth_model(self, auth_type: AuthType | None, model_id: str) -> bool:
        """Whether the selector means a model of qwen-oauth, whose list is part of Qwen Code (7.4)."""
        if model_id != OAUTH_MODEL or auth_type not in {None, AuthType.QWEN_OAUTH}:
            return False
        own = self._session.auth_type
        return auth_type is not None or own is AuthType.QWEN_OAUTH or not self._with_id(model_id, own)

    def _with_id(self, model_id: str, auth_type: AuthType | None) -> list[ProviderEntry]:
        """Entries with that id: of `auth_type` only, or the session's first; entries without a base URL come first."""
        found = [entry for entry in self._entries if entry.id == model_id and auth_type in {None, entry.auth_type}]
        return sorted(found, key=lambda entry: (entry.auth_type is not self._session.auth_type, bool(entry.base_url)))

    def _same_as_main(self, model_id: str) -> Chosen:
        if self._session.auth_type is None:
            return self.main()
        if self._session_key() is None and self._session_url() is None:
            return Chosen(Missing(f"fastModel names {model_id}, for which neither a key nor a base URL is configured"))
        return self.main()

    def _from_entry(self, entry: ProviderEntry) -> Chosen:
        if entry.auth_type is AuthType.QWEN_OAUTH:
            return Chosen(Missing(QWEN_OAUTH_REASON))
        own = entry.auth_type is self._session.auth_type
        if entry.env_key:
            variable = self._environment.get(entry.env_key)
            if variable is None:
                reason = f"{entry.env_key} is not set, which modelProviders names as the key of {entry.id}"
                return Chosen(Missing(reason, entry.env_key))
            key: Found | None = Found(variable.value, f"{entry.env_key} from {variable.origin}")
            key_name = entry.env_key
        else:
            key_name, key = self._named_session_key() if own else self._standard_key(entry.auth_type)
        url = Found(entry.base_url, entry.origin) if entry.base_url else None
        if url is None:
            url = self._inherited_url(entry) if own else self._standard_url(entry.auth_type)
        return self._build(entry.auth_type, entry.id, key, key_name, url, entry.generation, entry.reasoning)

    def _from_session(self, auth_type: AuthType, model_id: str) -> Chosen:
        key_name, key = self._named_session_key()
        generation = section(self._merged, "model", "generationConfig")
        return self._build(auth_type, model_id, key, key_name, self._session_url(), generation, {})

    def _build(
        self,
        auth_type: AuthType,
        model_id: str,
        key: Found | None,
        key_name: str,
        url: Found | None,
        generation: Mapping[str, object],
        reasoning: Mapping[str, object],
    ) -> Chosen:
        if auth_type is AuthType.VERTEX_AI and key is None:
            return Chosen(Missing("vertex-ai needs GOOGLE_API_KEY; Google's own sign-in is not used", "GOOGLE_API_KEY"))
        sampling = generation.get("samplingParams")
        choice = ModelChoice(
            id=model_id,
            auth_type=auth_type.value,
            protocol=PROTOCOLS[auth_type],
            base_url=_address(auth_type, url.value if url else DEFAULT_BASE_URLS[auth_type]),
            api_key=SecretText(key.value) if key else None,
            key_name=key_name if key else "",
            headers=_texts(section(generation, "customHeaders")),
            sampling=dict(sampling) if isinstance(sampling, dict) else None,
            extra_body=section(generation, "extra_body"),
            timeout_seconds=self._timeout(generation),
            thinking_mandatory=generation.get("thinkingMandatory") is True,
            capabilities_reasoning=reasoning,
        )
        return Chosen(choice, key.origin if key else "", url.origin if url else "default")

    def _timeout(self, generation: Mapping[str, object]) -> float | None:
        """Seconds: the entry's own `timeout` in milliseconds, else the environment's; None where none is positive."""
        milliseconds = number(generation.get("timeout"))
        if milliseconds is None:
            text = self._environment.value(TIMEOUT_VARIABLE).strip()
            milliseconds = float(text) if text.isascii() and text.isdigit() else None
        return milliseconds / 1000 if milliseconds and milliseconds > 0 else None

    def _session_key(self) -> Found | None:
        return self._named_session_key()[1]

    def _named_session_key(self) -> tuple[str, Found | None]:
        """The session's key (7.4): its main model's `envKey`, the standard variable, `security.auth.apiKey`."""
        main = self._session.entry
        if main is not None and main.env_key and (variable := self._environment.get(main.env_key)) is not None:
            return main.env_key, Found(variable.value, f"{main.env_key} from {variable.origin}")
        if self._session.auth_type is not None:
            name, key = self._standard_key(self._session.auth_type)
            if key is not None:
                return name, key
        return "security.auth.apiKey", _setting(self._merged, "apiKey")

    def _session_url(self) -> Found | None:
        """The session's base URL (7.4): its main model's, the standard variable, `security.auth.baseUrl`."""
        main = self._session.entry
        if main is not None and main.base_url:
            return Found(main.base_url, main.origin)
        auth_type = self._session.auth_type
        found = self._standard_url(auth_type) if auth_type is not None else None
        return found or _setting(self._merged, "baseUrl")

    def _inherited_url(self, entry: ProviderEntry) -> Found | None:
        """The session's base URL, except that of a main model with another key: a key goes to its own service only."""
        main = self._session.entry
        if main is None or not entry.env_key or entry.env_key == main.env_key:
            return self._session_url()
        return self._standard_url(entry.auth_type) or _setting(self._merged, "baseUrl")

    def _standard_key(self, auth_type: AuthType) -> tuple[str, Found | None]:
        for name in KEY_VARIABLES[auth_type]:
            variable = self._environment.get(name)
            if variable is not None:
                return name, Found(variable.value, f"{name} from {variable.origin}")
        return "", None

    def _standard_url(self, auth_type: AuthType) -> Found | None:
        for name in URL_VARIABLES[auth_type]:
            variable = self._environment.get(name)
            if variable is not None:
                return Found(variable.value, f"{name} from {variable.origin}")
        return None


def split_selector(text: str) -> tuple[AuthType | None, str]:
    """Auth type and model id of a selector; without a known auth type before the first colon, all of it is the id."""
    before, colon, after = text.strip().partition(":")
    try:
        return (AuthType(before.strip()), after.strip()) if colon else (None, text.strip())
    except ValueError:
        return None, text.strip()


def _address(auth_type: AuthType, url: str) -> str:
    url = url.strip()
    if auth_type is AuthType.VERTEX_AI and not url.rstrip("/").endswith("/publishers/google"):
        return url.rstrip("/") + _VERTEX_PATH
    return url


def _setting(merged: Mapping[str, object], name: str) -> Found | None:
    text = string(section(merged, "security", "auth").get(name))
    return Found(text, f"security.auth.{name}") if text else None


def _texts(values: Mapping[str, object]) -> Mapping[str, str]:
    return {name: value for name, value in values.items() if isinstance(value, str)}
