"""Every known behaviour of a provider leads to its outcome, at its price, and gives nothing away."""

from __future__ import annotations

import logging

import pytest

from tests.edge.text_model.harness import KEY, SPOKEN, Desk, make_endpoint, recap_prompt, title_prompt
from tests.edge.text_model.quirks import QUIRKS, Quirk
from tests.support.model_server import ModelServer
from watcher.core.generation import Answer, Failure, Kind, Outcome
from watcher.core.reasons import Reason
from watcher.edge.text_model import NotAsked, WireApi


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.name)
def test_a_behaviour_has_its_outcome_and_its_price(quirk: Quirk, caplog: pytest.LogCaptureFixture) -> None:
    """The first call costs at most three requests, the second one or none, and no text or key leaks."""
    caplog.set_level(logging.DEBUG)
    prompt = title_prompt() if quirk.kind is Kind.TITLE else recap_prompt()
    desk = Desk()
    with ModelServer(quirk.script) as server:
        base = f"{server.url}/v1" if quirk.protocol is WireApi.OPENAI else server.url
        endpoint = make_endpoint(base, quirk.protocol, quirk.model, **quirk.settings)
        first = desk.ask(endpoint, prompt)
        first_requests = len(server.requests)
        second = desk.ask(endpoint, prompt)
        second_requests = len(server.requests) - first_requests

    check_outcome(first, quirk)
    assert (first_requests, second_requests) == (quirk.first, quirk.second)
    assert desk.budget.taken == first_requests + second_requests
    if quirk.second:
        check_outcome(second, quirk)
    else:
        assert isinstance(second, NotAsked)
        assert second.retry_at is not None
        assert second.retry_at > desk.now
    given_away = [first, second, desk.store.texts, caplog.text, endpoint]
    assert not [what for what in given_away if SPOKEN in repr(what) or KEY in repr(what)]


def check_outcome(outcome: Outcome, quirk: Quirk) -> None:
    """The outcome that the table names."""
    if isinstance(quirk.outcome, Reason):
        assert isinstance(outcome, Failure), outcome
        assert outcome.reason is quirk.outcome
        assert quirk.detail in outcome.detail
        assert outcome.host == "127.0.0.1"
    else:
        assert isinstance(outcome, Answer), outcome
        assert outcome.text == quirk.outcome
        assert outcome.model == quirk.model


def test_the_table_is_large_and_its_names_are_unique() -> None:
    """At least sixty behaviours, each told apart by its name."""
    print(f"{len(QUIRKS)} behaviours of model servers")
    assert len(QUIRKS) >= 60
    assert len({quirk.name for quirk in QUIRKS}) == len(QUIRKS)
