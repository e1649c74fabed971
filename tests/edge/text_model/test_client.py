"""What a call costs, what is shared between calls, and what is told to whom."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from tests.edge.text_model.harness import KEY, CountingBudget, Desk, make_endpoint, recap_prompt, title_prompt
from tests.edge.text_model.quirks import (
    RECAP,
    TITLE,
    always,
    chat_call,
    chat_reply,
    chat_text,
    error,
    few_tokens,
    good_chat,
    sends,
    unless,
)
from tests.support.model_server import DEADLINE_SECONDS, ModelServer, Request, Response
from watcher.core.generation import Answer, Failure, Kind, Outcome
from watcher.core.reasons import Reason
from watcher.core.secret import SecretText
from watcher.edge.text_model import Abort, Endpoint, NotAsked, WireApi, probe

NO_TOOLS = error("this model does not support tools")


def in_turn(*responses: Response) -> Callable[[Request], Response]:
    """Each request gets the next answer, the last one for good."""
    left = list(responses)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def failed(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Failure), outcome
    return outcome


# -- money -------------------------------------------------------------------------------------------------------------


def test_tokens_are_reported() -> None:
    """As the reply counts them; also those of replies that brought no text."""
    empty = chat_reply({"content": ""}, "length", completion_tokens=100)
    with ModelServer(in_turn(chat_call('{"title": "a b c"}'), empty, chat_call('{"title": "a b c"}'))) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        assert desk.ask(endpoint) == Answer("a b c", "small-model", 50, 9)
        assert desk.ask(endpoint) == Answer("a b c", "small-model", 100, 109)


def test_tokens_of_failures_are_reported_as_well() -> None:
    """An answer without a usable text has been paid for; where nothing was asked, nothing is told."""
    with ModelServer(always(chat_reply({"content": ""}, "content_filter"))) as server:
        outcome = failed(Desk().ask(make_endpoint(f"{server.url}/v1")))
    assert (outcome.reason, outcome.tokens_in, outcome.tokens_out) == (Reason.EMPTY_RESULT, 50, 9)
    nothing = failed(Desk(budget=CountingBudget(0)).ask(make_endpoint("http://127.0.0.1:1/v1")))
    assert (nothing.reason, nothing.tokens_in, nothing.tokens_out) == (Reason.BUDGET_EXHAUSTED, None, None)


@pytest.mark.parametrize(
    "usage", [None, {}, [], {"prompt_tokens": "12", "completion_tokens": -1}, {"prompt_tokens": True}]
)
def test_tokens_that_are_not_reported_are_not_invented(usage: object) -> None:
    """None, for whatever is no count."""
    body = json.dumps({"choices": [{"message": {"content": TITLE}}], "usage": usage}).encode()
    with ModelServer(always(Response(body=body))) as server:
        assert Desk().ask(make_endpoint(f"{server.url}/v1")) == Answer(TITLE, "small-model", None, None)


def test_every_request_is_counted_before_it_is_sent() -> None:
    """Also the extra ones: a budget of one ends an attempt that would need two."""
    with ModelServer(unless((sends("tools"), NO_TOOLS))) as server:
        desk, endpoint = Desk(budget=CountingBudget(1)), make_endpoint(f"{server.url}/v1")
        assert failed(desk.ask(endpoint)).reason is Reason.BUDGET_EXHAUSTED
        assert failed(desk.ask(endpoint)).reason is Reason.BUDGET_EXHAUSTED
        assert len(server.requests) == 1
        desk.budget.limit = 2
        # What the first request taught was kept: the second attempt needs one request only.
        assert isinstance(desk.ask(endpoint), Answer)
        assert len(server.requests) == 2


def test_what_was_learned_survives_a_restart() -> None:
    """A new process with the same store makes one request."""
    with ModelServer(unless((sends("tools"), NO_TOOLS))) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        desk.ask(endpoint)
        assert isinstance(Desk(store=desk.store).ask(endpoint), Answer)
        assert len(server.requests) == 3


def test_nothing_new_is_not_stored_again() -> None:
    """One write for a first answer, none for later ones."""
    with ModelServer(unless()) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        for _ in range(3):
            desk.ask(endpoint)
    assert desk.store.puts == 1


def test_extra_requests_are_spent_once_an_endpoint() -> None:
    """Not once a process, nor once for titles and once for recaps: later refusals are learned at one request each."""
    with ModelServer(
        unless((sends("tools"), NO_TOOLS), (sends("response_format"), error("json mode is not supported")))
    ) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        assert isinstance(desk.ask(endpoint), Answer)
        assert len(server.requests) == 3
        server.script = unless((sends("max_tokens"), error("use max_completion_tokens in place of max_tokens")))
        restarted = Desk(store=desk.store)
        assert failed(restarted.ask(endpoint, recap_prompt())).status == 400
        assert len(server.requests) == 4
        assert isinstance(restarted.ask(endpoint, recap_prompt()), Answer)
        assert len(server.requests) == 5


def test_one_endpoint_teaches_nothing_about_another() -> None:
    """A fallback model's request holds nothing that the first model taught (report G12)."""
    refuses = unless(
        (sends("tools"), NO_TOOLS),
        (
            lambda body: body.get("reasoning_effort") != "low",
            error("reasoning is mandatory; supported values are: 'low'"),
        ),
    )
    with ModelServer(refuses) as server:
        desk = Desk()
        first = make_endpoint(f"{server.url}/v1", model="gpt-5.5")
        desk.ask(first)
        server.script = unless()
        assert isinstance(desk.ask(make_endpoint(f"{server.url}/v1", model="main-model")), Answer)
        assert isinstance(desk.ask(make_endpoint(f"{server.url}/v2", model="gpt-5.5")), Answer)
    main, other_path = server.requests[-2].json, server.requests[-1].json
    assert "reasoning_effort" not in main
    assert main["tools"]
    assert other_path["reasoning_effort"] == "none"
    assert other_path["tools"]


def test_first_calls_learn_together() -> None:
    """Four sessions at once meet an endpoint: two extra requests in all, and every one gets its title."""
    with ModelServer(
        unless((sends("tools"), NO_TOOLS), (sends("response_format"), error("json_schema unsupported")))
    ) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        outcomes: list[Outcome] = []
        threads = [threading.Thread(target=lambda: outcomes.append(desk.ask(endpoint))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        assert [outcome.text for outcome in outcomes if isinstance(outcome, Answer)] == [TITLE] * 4
        assert len(server.requests) == 4 + 2


def test_who_waits_for_a_first_call_does_not_wait_for_ever() -> None:
    """After the time of one request it goes on by itself."""
    with ModelServer(unless()) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1", timeout_seconds=1.0)
        with desk.gate.first_call(endpoint.key, Abort(), 1.0):
            assert isinstance(desk.ask(endpoint), Answer)


def test_abort_ends_the_waiting_for_a_first_call() -> None:
    """Without a request."""
    with ModelServer(unless()) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1", timeout_seconds=60.0)
        abort, outcomes = Abort(), []
        with desk.gate.first_call(endpoint.key, Abort(), 1.0):
            call = threading.Thread(
                target=lambda: outcomes.append(desk.client(endpoint).generate(title_prompt(), abort))
            )
            call.start()
            abort.set()
            call.join(DEADLINE_SECONDS)
        assert [failed(outcome).reason for outcome in outcomes] == [Reason.ABORTED]
        assert server.requests == []


def test_a_weird_conversation_does_not_spoil_a_good_endpoint() -> None:
    """An unexplained error after many answers is kept as a lesson only if leaving things out helped."""
    with ModelServer(unless()) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        desk.ask(endpoint)
        server.script = always(error("Bad Request"))
        failed(desk.ask(endpoint))
        server.script = unless()
        assert isinstance(desk.ask(endpoint), Answer)
        assert server.requests[-1].json["tools"]


def test_an_endpoint_that_explains_nothing_is_learned_at_last() -> None:
    """Also when the extra requests are spent: the next attempt goes on where this one would have."""
    refuses = unless((sends("tools"), NO_TOOLS), (sends("response_format"), error("json mode is not supported")))
    with ModelServer(refuses) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1", sampling={"top_p": 0.5})
        assert isinstance(desk.ask(endpoint), Answer)
        server.script = unless((sends("top_p"), error("Bad Request")))
        assert failed(desk.ask(endpoint, recap_prompt())).status == 400
        assert isinstance(desk.ask(endpoint, recap_prompt()), Answer)
        assert len(server.requests) == 3 + 2


# -- pauses and circuits -----------------------------------------------------------------------------------------------


def test_a_rate_limit_is_waited_out_by_all() -> None:
    """Both models at the address, without a request and without a new word; afterwards everything goes on."""
    with ModelServer(in_turn(Response(429, b"", {"retry-after": "40"}), good_chat({"tools": 1}))) as server:
        desk = Desk()
        endpoint, other = make_endpoint(f"{server.url}/v1"), make_endpoint(f"{server.url}/v1", model="big-model")
        first = failed(desk.ask(endpoint))
        assert (first.status, first.retry_at) == (429, desk.now + 40)
        desk.now += 39
        for waiting in (desk.ask(endpoint), desk.ask(other), desk.client(other).held()):
            assert isinstance(waiting, NotAsked)
            assert waiting.status is None
            assert waiting.retry_at == pytest.approx(desk.now + 1)
        desk.now += 1
        assert isinstance(desk.ask(other), Answer)
        assert isinstance(desk.ask(endpoint), Answer)
        assert len(server.requests) == 3


def test_an_outage_ends_without_a_storm() -> None:
    """Fifty sessions that wait for the network make one request in each pause."""
    desk = Desk()
    with ModelServer(always(Response(raw=b""))) as server:
        endpoint = make_endpoint(f"{server.url}/v1")
        for _ in range(50):
            assert failed(desk.ask(endpoint)).retry_at is not None
        assert len(server.requests) == 1
        desk.now += 3600
        for _ in range(50):
            desk.ask(endpoint)
        assert len(server.requests) == 2
    assert desk.budget.taken == 2


def test_a_refused_key_is_told_once_and_tried_again_when_it_changes() -> None:
    """No request and no new word meanwhile, for days; the new key is tried at once and closes the circuit."""
    refused = lambda request: error("no", 401) if KEY in request.headers["authorization"] else good_chat(request.json)  # noqa: E731
    with ModelServer(refused) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        told = failed(desk.ask(endpoint))
        assert (told.status, told.denied) == (401, True)
        for _ in range(20):
            held = desk.ask(endpoint)
            assert isinstance(held, NotAsked)
            assert (held.cause, held.denied) == (told.detail, True)
        assert len(server.requests) == 1
        assert isinstance(desk.ask(make_endpoint(f"{server.url}/v1", api_key=SecretText("sk-new"))), Answer)


def test_an_open_circuit_is_told_at_once() -> None:
    """Even while another first call is under way; nobody waits for what would not be sent."""
    with ModelServer(always(error("no", 401))) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1", timeout_seconds=60.0)
        desk.ask(endpoint)
        with desk.gate.first_call(endpoint.key, Abort(), 1.0):
            assert isinstance(desk.ask(endpoint), NotAsked)


def test_the_pause_begins_between_the_requests_of_an_attempt_too() -> None:
    """A rate limit on an extra request ends the attempt; what was learned is kept."""
    with ModelServer(
        in_turn(NO_TOOLS, Response(429, b"", {"retry-after": "40"}), chat_text(f'{{"title": "{TITLE}"}}'))
    ) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        assert failed(desk.ask(endpoint)).status == 429
        desk.now += 41
        assert isinstance(desk.ask(endpoint), Answer)
        assert "tools" not in server.requests[-1].json


def test_an_aborted_call_leaves_the_learned_facts() -> None:
    """Stopped before it began: no request, no count."""
    abort = Abort()
    abort.set()
    with ModelServer(unless()) as server:
        desk = Desk()
        outcome = desk.client(make_endpoint(f"{server.url}/v1")).generate(title_prompt(), abort)
        assert failed(outcome).reason is Reason.ABORTED
        assert (server.requests, desk.budget.taken) == ([], 0)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_more_room_is_kept_for_a_model_that_thinks() -> None:
    """The next session asks with 1024 tokens at once (report G3)."""
    with ModelServer(unless((few_tokens(1024), chat_text("", "length")))) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        desk.ask(endpoint)
        desk.ask(endpoint)
        assert [request.json["max_tokens"] for request in server.requests] == [100, 1024, 1024]


def test_a_recap_and_a_title_of_one_endpoint() -> None:
    """Each in its own form."""
    with ModelServer(unless()) as server:
        desk, endpoint = Desk(), make_endpoint(f"{server.url}/v1")
        recap, title = desk.ask(endpoint, recap_prompt()), desk.ask(endpoint)
    assert isinstance(recap, Answer)
    assert recap.text == RECAP
    assert isinstance(title, Answer)
    assert title.text == TITLE


@pytest.mark.parametrize("protocol", list(WireApi))
def test_a_probe_is_one_tiny_call(protocol: WireApi) -> None:
    """It is counted, needs no title, and knows nothing of pauses."""
    with ModelServer(unless(protocol=protocol)) as server:
        desk = Desk()
        endpoint: Endpoint = make_endpoint(server.url, protocol)
        outcome = probe(endpoint, learned=desk.store, budget=desk.budget, clock=lambda: desk.now, environ={})
        assert isinstance(outcome, Answer)
        assert (len(server.requests), desk.budget.taken) == (1, 1)
        assert len(server.requests[0].body) < 600
    learned = desk.store.get(endpoint.key)
    assert learned is not None
    assert learned.answered == {Kind.RECAP}


def test_a_probe_tells_what_is_wrong() -> None:
    """As a call would."""
    desk = Desk()
    endpoint = make_endpoint("not an address")
    outcome = probe(endpoint, learned=desk.store, budget=desk.budget, clock=lambda: desk.now, environ={})
    assert "base URL" in failed(outcome).detail
