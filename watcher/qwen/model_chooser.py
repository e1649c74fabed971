"""Which model, endpoint and key Qwen Code's settings name: a pure selection from merged settings and an environment.

Contract 7.3 (selectors) and 7.4 (provider entries, keys, base URLs). `qwen.settings` reads the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from watcher.core.secret import SecretText
from watcher.qwen.credentials import Credentials, Found, Session
from watcher.qwen.dotenv import Environment
from watcher.qwen.model_choice import PROTOCOLS, Choice, Missing, ModelChoice
from watcher.qwen.providers import (
    DEFAULT_BASE_URLS,
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

_NO_MODELS: Final = frozenset({"inherit", "fast"})
"""Selectors that are no model (7.3)."""
_INHERITED: Final = ("samplingParams", "extra_body", "timeout", "customHeaders")
"""What of `generationConfig` an entry without it takes from the main model, as far as one request has a use for it."""

QWEN_OAUTH_REASON: Final = (
    "qwen-oauth models cannot be called from outside Qwen Code: their token belongs to Qwen Code alone; "
    "name a fastModel with an API key"
)
VERTEX_REASON: Final = (
    "vertex-ai needs a Google sign-in, which Qwen Code alone has; with an API key in GOOGLE_API_KEY it goes without one"
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice and, for `origins`, where its key, its base URL and its `modelProviders` entry came from."""

    choice: Choice
    key_origin: str = ""
    url_origin: str = ""
    entry: str = ""


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
        self._credentials = Credentials(merged, environment, session)

    def fast(self) -> Chosen:
        """The fast model (7.3). Never the main model in its place."""
        written = self._merged.get("fastModel")
        if written is not None and not isinstance(written, str):
            return Chosen(Missing("fastModel in Qwen Code's settings is not a text"))
        text = string(written).strip()
        if not text:
            return Chosen(Missing("no fastModel is set in Qwen Code's settings"))
        if text in _NO_MODELS:
            return Chosen(Missing(f'fastModel is "{text}", which names no model'))
        named, model_id = split_selector(text)
        if not model_id:
            return Chosen(Missing(f'fastModel is "{text}", which names no model'))
        auth_type = named or self._session.auth_type
        if named is AuthType.QWEN_OAUTH or self._is_oauth_model(auth_type, model_id):
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
        elsewhere = [] if named else [entry for entry in self._with_id(model_id, None) if not entry.special]
        if elsewhere:
            written = f"{elsewhere[0].auth_type}:{model_id}"
            reason = f'looks for a bare name among its {auth_type} models only; write "{written}"'
            return Chosen(Missing(f"fastModel names {model_id}, and Qwen Code {reason}"))
        where = f" of {named}" if named else ""
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
        text = string(self._merged.get("fastModel")).strip()
        named, model_id = split_selector(text)
        if not model_id or text in _NO_MODELS:
            return False
        auth_type = named or self._session.auth_type
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
            and self._credentials.session_key()[1] is not None
            and self._credentials.session_url() is not None
        )

    def _is_oauth_model(self, auth_type: AuthType | None, model_id: str) -> bool:
        """Whether that is a model of qwen-oauth, whose list is part of Qwen Code (7.4)."""
        if model_id != OAUTH_MODEL or auth_type not in {None, AuthType.QWEN_OAUTH}:
            return False
        return auth_type is not None or not self._with_id(model_id, None)

    def _with_id(self, model_id: str, auth_type: AuthType | None) -> list[ProviderEntry]:
        """Entries with that id, those without a base URL first: of `auth_type`, or of any where that is None.

        Qwen Code 0.23.0 and 0.24.4 look for a bare name among the models of the session's auth type alone, although
        7.3 says "then any" (seen in `tests/e2e/test_same_request.py`). Where that type cannot be seen from here, any
        may be it.
        """
        found = [entry for entry in self._entries if entry.id == model_id and auth_type in {None, entry.auth_type}]
        return sorted(found, key=lambda entry: bool(entry.base_url))

    def _same_as_main(self, model_id: str) -> Chosen:
        if self._session.auth_type is None:
            return self.main()
        if self._credentials.session_key()[1] is None and self._credentials.session_url() is None:
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
            key_name, key = self._credentials.session_key() if own else self._credentials.standard_key(entry.auth_type)
        url = Found(entry.base_url, entry.origin) if entry.base_url else self._credentials.unwritten_url(entry)
        generation = self._completed(entry, url) if own else entry.generation
        chosen = self._build(entry.auth_type, entry.id, key, key_name, url, generation, entry.reasoning)
        return replace(chosen, entry=entry.origin)

    def _completed(self, entry: ProviderEntry, url: Found | None) -> Mapping[str, object]:
        """The entry's `generationConfig`, with the main model's where it says nothing, as Qwen Code does within one
        auth type (`buildInheritedAgentContentGeneratorConfig` in 0.23.0 and 0.24.4).

        Headers go to another service than the main model's only where the entry itself has them: they may hold keys.
        """
        main = self._session.entry
        if entry == main:
            return entry.generation
        base = main.generation if main is not None else section(self._merged, "model", "generationConfig")
        service = self._credentials.session_url()
        same = _service(url.value if url else "") == _service(service.value if service else "")
        names = [name for name in _INHERITED if name in base and (same or name != "customHeaders")]
        return {**{name: base[name] for name in names}, **entry.generation}

    def _from_session(self, auth_type: AuthType, model_id: str) -> Chosen:
        key_name, key = self._credentials.session_key()
        generation = section(self._merged, "model", "generationConfig")
        return self._build(auth_type, model_id, key, key_name, self._credentials.session_url(), generation, {})

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
            return Chosen(Missing(VERTEX_REASON, "GOOGLE_API_KEY"))
        sampling = generation.get("samplingParams")
        base_url = _address(auth_type, url.value if url else DEFAULT_BASE_URLS[auth_type])
        choice = ModelChoice(
            id=model_id,
            auth_type=auth_type.value,
            protocol=PROTOCOLS[auth_type],
            base_url=base_url,
            api_key=SecretText(key.value) if key else None,
            key_name=key_name if key else "",
            headers=_texts(section(generation, "customHeaders")),
            sampling=dict(sampling) if isinstance(sampling, dict) else None,
            extra_body=section(generation, "extra_body"),
            timeout_seconds=self._timeout(generation),
            thinking_mandatory=generation.get("thinkingMandatory") is True,
            capabilities_reasoning=reasoning,
            bearer=auth_type is AuthType.ANTHROPIC and not _is_anthropics_own(base_url),
        )
        return Chosen(choice, key.origin if key else "", url.origin if url else "default")

    def _timeout(self, generation: Mapping[str, object]) -> float | None:
        """Seconds: the entry's own `timeout` in milliseconds, else the environment's; None where none is positive."""
        milliseconds = number(generation.get("timeout"))
        if milliseconds is None:
            text = self._environment.value(TIMEOUT_VARIABLE).strip()
            milliseconds = float(text) if text.isascii() and text.isdigit() else None
        return milliseconds / 1000 if milliseconds and milliseconds > 0 else None


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


def _is_anthropics_own(url: str) -> bool:
    """Whether Anthropic itself answers there. Every other host gets the key as a bearer token, as gateways want it and
    Qwen Code sends it (`isAnthropicNativeBaseUrl` in 0.23.0 and 0.24.4).
    """
    return _service(url).rpartition("://")[2].partition(":")[0].endswith(".anthropic.com")


def _service(url: str) -> str:
    """Scheme, host and port of a base URL: who gets what is sent there. Of what is no address, all."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return url.strip()
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def _texts(values: Mapping[str, object]) -> Mapping[str, str]:
    return {name: value for name, value in values.items() if isinstance(value, str)}
