"""When not to ask: one pause for all that share an address, and a circuit that stays open while an account is refused.

`AddressState` and its functions are pure; `Gate` holds one state for each address, for all clients and threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from watcher.core.generation import Failure
from watcher.core.reasons import Reason
from watcher.edge.text_model.abort import Abort
from watcher.edge.text_model.endpoint import Endpoint

OUTAGE_FIRST_SECONDS: Final = 15.0
OUTAGE_LONGEST_SECONDS: Final = 15 * 60.0
BUSY_FIRST_SECONDS: Final = 30.0
BUSY_LONGEST_SECONDS: Final = 3600.0
"""Pauses where the server names none: doubled with each failure in a row, up to the longest."""
RECHECK_SECONDS: Final = 6 * 3600.0
"""An open circuit lets one request through this often: a balance is topped up without any change of settings here."""
PROBE_SECONDS: Final = 10.0
"""While one request finds out whether the address is back, the others are told to come again after this."""

_LOCK_STEP_SECONDS: Final = 0.05


class Result(Enum):
    """How a request ended, as far as other requests are concerned."""

    REACHED = "reached"
    """The server answered, be it with an error of this request."""
    BUSY = "busy"
    """429, 503: slow down."""
    OUTAGE = "outage"
    """No connection, no answer in time, or a broken server."""
    DENIED = "denied"
    """401, 402, 403: key, account or balance."""
    UNKNOWN = "unknown"
    """Aborted, or never sent."""


@dataclass(frozen=True, slots=True)
class NotAsked(Failure):
    """No request was made, because an earlier one showed that none would be answered; that one was told already.

    `cause` is what was told then.
    """

    cause: str = ""


@dataclass(frozen=True, slots=True)
class AddressState:
    """What is known of one address. Times are seconds since the epoch; `failures` counts those in a row."""

    failures: int = 0
    since: float = 0.0
    until: float = 0.0
    phrase: str = ""
    probing: bool = False
    """A single request is under way to find out whether the address is back."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """An account that was refused. It concerns these very settings; others are tried."""

    endpoint: Endpoint = field(repr=False)
    phrase: str
    since: float
    until: float


def pause_left(state: AddressState, now: float) -> float:
    """Seconds until the pause ends, 0 when there is none. A clock that was set back ends it."""
    if not state.failures or now < state.since - 1.0:
        return 0.0
    return max(0.0, state.until - now)


def after_result(
    state: AddressState, result: Result, now: float, *, retry_after: float | None = None, phrase: str = ""
) -> AddressState:
    """The state after a request; `retry_after` (seconds) is what the server asked for, which counts more than ours."""
    match result:
        case Result.UNKNOWN:
            return replace(state, probing=False)
        case Result.REACHED | Result.DENIED:
            return AddressState()
        case Result.BUSY:
            first, longest = BUSY_FIRST_SECONDS, BUSY_LONGEST_SECONDS
        case Result.OUTAGE:
            first, longest = OUTAGE_FIRST_SECONDS, OUTAGE_LONGEST_SECONDS
    failures = min(state.failures + 1, 32)
    if pause_left(state, now) > 0:
        # Requests that were under way together: one failure, not many.
        failures = max(state.failures, 1)
    own = min(first * 2.0 ** (failures - 1), longest)
    until = now + (own if retry_after is None else retry_after)
    return AddressState(failures, now, max(until, state.until if pause_left(state, now) else 0.0), phrase)


class Gate:
    """Shared by all clients of a process. Every method is short and may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, AddressState] = {}
        self._circuits: dict[str, Circuit] = {}
        self._first_calls: dict[str, threading.Lock] = {}
        self._extra_requests: dict[str, int] = {}

    def held(self, endpoint: Endpoint, now: float) -> NotAsked | None:
        """Why a request to `endpoint` would not be sent now, with `retry_at`; None when it would."""
        with self._lock:
            return self._held(endpoint, now)

    def admit(self, endpoint: Endpoint, now: float) -> NotAsked | None:
        """As `held`; None permits one request, of which `settle` must tell the end."""
        with self._lock:
            refusal = self._held(endpoint, now)
            if refusal is not None:
                return refusal
            state = self._addresses.get(endpoint.origin)
            if state is not None and state.failures:
                self._addresses[endpoint.origin] = replace(state, probing=True)
            circuit = self._circuits.get(endpoint.key)
            if circuit is not None:
                self._circuits[endpoint.key] = replace(circuit, since=now, until=now + RECHECK_SECONDS)
            return None

    def settle(
        self, endpoint: Endpoint, result: Result, now: float, *, retry_after: float | None = None, phrase: str = ""
    ) -> float | None:
        """Tell how an admitted request ended. Returns when the next one is permitted, None where that is now."""
        with self._lock:
            before = self._addresses.get(endpoint.origin, AddressState())
            after = after_result(before, result, now, retry_after=retry_after, phrase=phrase)
            if after == AddressState():
                self._addresses.pop(endpoint.origin, None)
            else:
                self._addresses[endpoint.origin] = after
            if result is Result.DENIED:
                self._circuits[endpoint.key] = Circuit(endpoint, phrase, now, now + RECHECK_SECONDS)
                return now + RECHECK_SECONDS
            if result is Result.REACHED:
                self._circuits.pop(endpoint.key, None)
            return after.until if pause_left(after, now) else None

    def take_extra_request(self, key: str, spent: int, limit: int) -> bool:
        """Whether learning may cost one more request for the endpoint `key`, which has had `spent` in earlier runs."""
        with self._lock:
            used = max(spent, self._extra_requests.get(key, 0))
            if used >= limit:
                return False
            self._extra_requests[key] = used + 1
            return True

    def extra_requests(self, key: str) -> int:
        """How many extra requests learning has cost for `key` in this process."""
        with self._lock:
            return self._extra_requests.get(key, 0)

    @contextmanager
    def first_call(self, key: str, abort: Abort, timeout_seconds: float) -> Iterator[bool]:
        """Within, no other call to the endpoint `key` is a first one; so all learn from one. False: not in time."""
        with self._lock:
            lock = self._first_calls.setdefault(key, threading.Lock())
        steps = max(1, round(timeout_seconds / _LOCK_STEP_SECONDS))
        taken = any(lock.acquire(timeout=_LOCK_STEP_SECONDS) for _ in range(steps) if not abort.is_set())
        try:
            yield taken
        finally:
            if taken:
                lock.release()

    def _held(self, endpoint: Endpoint, now: float) -> NotAsked | None:
        circuit = self._circuits.get(endpoint.key)
        if circuit is not None and circuit.endpoint == endpoint and circuit.since <= now + 1.0 and now < circuit.until:
            return _not_asked(endpoint, circuit.phrase, circuit.until, denied=True)
        state = self._addresses.get(endpoint.origin)
        if state is None:
            return None
        left = pause_left(state, now)
        if left > 0:
            return _not_asked(endpoint, state.phrase, now + left)
        if state.probing:
            return _not_asked(endpoint, state.phrase, now + PROBE_SECONDS)
        return None


def _not_asked(endpoint: Endpoint, phrase: str, retry_at: float, *, denied: bool = False) -> NotAsked:
    detail = f"not asked again yet: {phrase}"
    return NotAsked(Reason.MODEL_ERROR, detail, endpoint.host, retry_at=retry_at, denied=denied, cause=phrase)
