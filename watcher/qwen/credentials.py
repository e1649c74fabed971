"""Which key and which address a model gets: its entry's own, the session's, or those of the standard variables.

Contract 7.4. Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watcher.qwen.dotenv import Environment
from watcher.qwen.providers import KEY_VARIABLES, URL_VARIABLES, AuthType, ProviderEntry, section, string


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


class Credentials:
    """Finds keys and addresses as a session with these settings would."""

    def __init__(self, merged: Mapping[str, object], environment: Environment, session: Session) -> None:
        self._merged = merged
        self._environment = environment
        self._session = session

    def session_key(self) -> tuple[str, Found | None]:
        """Name and value of the session's key (7.4).

        Its main model's `envKey`, else the standard variable, else `security.auth.apiKey`.
        """
        main = self._session.entry
        if main is not None and main.env_key and (variable := self._environment.get(main.env_key)) is not None:
            return main.env_key, Found(variable.value, f"{main.env_key} from {variable.origin}")
        if self._session.auth_type is not None:
            name, key = self.standard_key(self._session.auth_type)
            if key is not None:
                return name, key
        return "security.auth.apiKey", _setting(self._merged, "apiKey")

    def session_url(self) -> Found | None:
        """The session's base URL (7.4): its main model's, the standard variable, `security.auth.baseUrl`."""
        main = self._session.entry
        if main is not None and main.base_url:
            return Found(main.base_url, main.origin)
        auth_type = self._session.auth_type
        found = self.standard_url(auth_type) if auth_type is not None else None
        return found or _setting(self._merged, "baseUrl")

    def unwritten_url(self, entry: ProviderEntry) -> Found | None:
        """The address of an entry that names none; None for the service's own one. A key goes to its own service only.

        Contract 7.4 says the session's, else the standard variable's. Qwen Code 0.23.0 and 0.24.4 send an OpenAI entry
        to OpenAI itself all the same, with whatever key the session has: we do so with the entry's own key where the
        configured address belongs to another one.
        """
        own = entry.auth_type is self._session.auth_type
        if own and (not entry.env_key or entry.env_key == self.session_key()[0] or entry == self._session.entry):
            return self.session_url()
        owner, _ = self.standard_key(entry.auth_type)
        url = self.standard_url(entry.auth_type)
        if own and url is None:
            url = _setting(self._merged, "baseUrl")
            owner = "security.auth.apiKey" if _setting(self._merged, "apiKey") else ""
        return url if entry.env_key in {"", owner} or not owner else None

    def standard_key(self, auth_type: AuthType) -> tuple[str, Found | None]:
        """The standard variable that holds a key of that type, and the key; "" and None where none does."""
        for name in KEY_VARIABLES[auth_type]:
            variable = self._environment.get(name)
            if variable is not None:
                return name, Found(variable.value, f"{name} from {variable.origin}")
        return "", None

    def standard_url(self, auth_type: AuthType) -> Found | None:
        """The base URL in the standard variable of that type, None without one."""
        for name in URL_VARIABLES[auth_type]:
            variable = self._environment.get(name)
            if variable is not None:
                return Found(variable.value, f"{name} from {variable.origin}")
        return None


def _setting(merged: Mapping[str, object], name: str) -> Found | None:
    text = string(section(merged, "security", "auth").get(name))
    return Found(text, f"security.auth.{name}") if text else None
