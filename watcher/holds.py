"""Endpoints that are not asked for a while: told once each time that this begins, a refused account kept for others.

`doctor` and `status` are other processes than the service, which alone knows whom it does not ask.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from watcher.edge.store import Store

FLAG: Final = "refused_account"


@dataclass(frozen=True, slots=True)
class RefusedAccount:
    """The endpoint on `host` refused the key, the account or its balance. `at` counts seconds since the epoch."""

    host: str
    detail: str
    at: float


class Holds:
    """What the service knows of endpoints that it does not ask now."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._causes: dict[str, str] = {}

    def begin(self, host: str, cause: str, at: float, *, denied: bool) -> bool:
        """`host` is not asked now because of `cause`. True when that is news, to be told in one line."""
        if self._causes.get(host) == cause:
            return False
        self._causes[host] = cause
        if denied:
            self._store.set_flag(FLAG, json.dumps(asdict(RefusedAccount(host, cause, at))))
        return True

    def answered(self, host: str) -> None:
        """`host` has answered: its account is good, and what comes next is news. May be called from any thread."""
        self._causes.pop(host, None)
        account = refused_account(self._store)
        if account is not None and account.host == host:
            self._store.set_flag(FLAG, None)


def refused_account(store: Store) -> RefusedAccount | None:
    """The account that was refused and has not been accepted since, None when there is none. Raises `StateError`."""
    value = store.get_flag(FLAG)
    return None if value is None else RefusedAccount(**json.loads(value))
