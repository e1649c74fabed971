"""Nobody is asked while it is known that nobody would answer."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.text_model.harness import NOW, make_endpoint
from watcher.core.secret import SecretText
from watcher.edge.text_model import Abort, Gate
from watcher.edge.text_model.gate import (
    BUSY_LONGEST_SECONDS,
    OUTAGE_FIRST_SECONDS,
    OUTAGE_LONGEST_SECONDS,
    PROBE_SECONDS,
    RECHECK_SECONDS,
    AddressState,
    Result,
    after_result,
    pause_left,
)

ENDPOINT = make_endpoint("https://h.example/v1")


def settle(gate: Gate, result: Result, now: float = NOW, retry_after: float | None = None) -> float | None:
    """A request that was admitted and ended."""
    assert gate.admit(ENDPOINT, now) is None
    return gate.settle(ENDPOINT, result, now, retry_after=retry_after, phrase="HTTP 000: words")


@given(st.lists(st.tuples(st.sampled_from(Result), st.none() | st.floats(1, 86_400), st.floats(0, 5000)), max_size=30))
def test_a_pause_is_bounded_and_an_answer_ends_it(steps: list[tuple[Result, float | None, float]]) -> None:
    """Whatever happens, the wait is at most what the server asked for or our longest; one answer clears all."""
    state, now = AddressState(), NOW
    for result, retry_after, passed in steps:
        now += passed
        state = after_result(state, result, now, retry_after=retry_after)
        assert 0 <= pause_left(state, now) <= 86_400
        if retry_after is not None and result is Result.BUSY:
            assert pause_left(state, now) >= retry_after - 0.01
    assert pause_left(after_result(state, Result.REACHED, now), now) == 0


def test_pauses_double_up_to_the_longest() -> None:
    """Failures one after the other, each at the end of the pause before."""
    state, now, pauses = AddressState(), NOW, []
    for _ in range(12):
        state = after_result(state, Result.OUTAGE, now)
        pauses.append(pause_left(state, now))
        now = state.until
    assert pauses[:3] == [OUTAGE_FIRST_SECONDS, 2 * OUTAGE_FIRST_SECONDS, 4 * OUTAGE_FIRST_SECONDS]
    assert pauses[-1] == OUTAGE_LONGEST_SECONDS
    assert BUSY_LONGEST_SECONDS >= OUTAGE_LONGEST_SECONDS


def test_requests_that_fail_together_count_as_one_failure() -> None:
    """Two under way when the network goes: the pause is the first one, not the second."""
    state = after_result(after_result(AddressState(), Result.OUTAGE, NOW), Result.OUTAGE, NOW + 0.1)
    assert state.failures == 1


def test_the_pause_is_shared_by_all_models_at_an_address() -> None:
    """Another model there waits as well; another address does not."""
    gate = Gate()
    assert settle(gate, Result.BUSY, retry_after=40.0) == NOW + 40.0
    held = gate.held(make_endpoint("https://h.example/v2", model="big-model"), NOW + 1)
    assert held is not None
    assert held.retry_at == pytest.approx(NOW + 40.0)
    assert "HTTP 000: words" in held.detail
    assert gate.held(make_endpoint("https://other.example/v1"), NOW + 1) is None
    assert gate.held(ENDPOINT, NOW + 40.0) is None


def test_after_an_outage_one_request_finds_out_for_all() -> None:
    """No storm: while one is under way, the others wait, also when it is broken off; its answer lets all through."""
    gate = Gate()
    settle(gate, Result.OUTAGE)
    later = NOW + OUTAGE_FIRST_SECONDS
    assert gate.admit(ENDPOINT, later) is None
    second = gate.admit(ENDPOINT, later)
    assert second is not None
    assert second.retry_at == later + PROBE_SECONDS
    gate.settle(ENDPOINT, Result.UNKNOWN, later)
    assert gate.admit(ENDPOINT, later) is None
    gate.settle(ENDPOINT, Result.REACHED, later)
    assert gate.admit(ENDPOINT, later) is None
    assert gate.admit(ENDPOINT, later) is None


def test_a_circuit_opens_for_these_settings_only() -> None:
    """Another key is another try; the pause of the address is not concerned."""
    gate = Gate()
    assert settle(gate, Result.DENIED) == NOW + RECHECK_SECONDS
    assert gate.held(ENDPOINT, NOW + 1) is not None
    assert gate.held(make_endpoint("https://h.example/v1", api_key=SecretText("sk-new")), NOW + 1) is None
    assert gate.held(make_endpoint("https://h.example/v1", model="big-model"), NOW + 1) is None


def test_an_open_circuit_lets_one_request_through_now_and_then() -> None:
    """A balance is topped up elsewhere; six hours later one request finds out."""
    gate = Gate()
    settle(gate, Result.DENIED)
    later = NOW + RECHECK_SECONDS
    assert gate.admit(ENDPOINT, later) is None
    assert gate.admit(ENDPOINT, later) is not None
    gate.settle(ENDPOINT, Result.REACHED, later)
    assert gate.admit(ENDPOINT, later) is None


def test_a_clock_that_was_set_back_does_not_prolong_anything() -> None:
    """A pause until next year would be for ever."""
    gate = Gate()
    settle(gate, Result.BUSY, NOW)
    assert gate.held(ENDPOINT, NOW - 3600) is None
    settle(gate, Result.DENIED, NOW - 3600)
    assert gate.held(ENDPOINT, NOW - 7200) is None


def test_extra_requests_are_counted_across_threads() -> None:
    """Sixteen threads at once get two, and what an earlier run spent counts."""
    gate, got = Gate(), []

    def take() -> None:
        got.append(gate.take_extra_request("key", 0, 2))

    threads = [threading.Thread(target=take) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(got) == 2
    assert not Gate().take_extra_request("key", 2, 2)


def test_waiting_for_a_first_call_ends_when_aborted_or_late() -> None:
    """Neither holds a thread for longer than it wants."""
    gate, abort = Gate(), Abort()
    with gate.first_call("key", Abort(), 10.0) as first, gate.first_call("key", Abort(), 0.05) as second:
        assert (first, second) == (True, False)
        abort.set()
        with gate.first_call("key", abort, 3600.0) as third:
            assert not third
    with gate.first_call("key", Abort(), 10.0) as again:
        assert again


def test_abort_calls_back_once_and_only_within() -> None:
    """Also when it was set before; never after the end."""
    abort, calls = Abort(), []
    with abort.calling(lambda: calls.append("early")):
        abort.set()
    with abort.calling(lambda: calls.append("late")):
        pass
    abort.set()
    assert calls == ["early", "late"]
    assert abort.wait(0)
