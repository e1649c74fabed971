"""Whatever an endpoint refuses, it is learned within two extra requests, or without any more of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.edge.text_model.harness import make_endpoint, recap_prompt, title_prompt
from tests.edge.text_model.test_wire import BUILDERS
from watcher.core.generation import Kind, Prompt
from watcher.edge.text_model import Endpoint, Learned, WireApi
from watcher.edge.text_model.ladder import (
    MAX_EXTRA_REQUESTS,
    after_answer,
    after_refusal,
    after_reply,
    make_plan,
)
from watcher.edge.text_model.learned import Form, TokenField
from watcher.edge.text_model.refusals import Refusal, read_refusal
from watcher.edge.text_model.reply import Reply
from watcher.edge.text_model.thinking import Switch

NAMED = {
    "tools": "this model does not support tools",
    "tool_choice": "tool_choice is not supported",
    "response_format": "response_format is not supported",
    "temperature": "temperature is not supported",
    "max_tokens": "unsupported parameter: 'max_tokens'. use 'max_completion_tokens'",
    "max_completion_tokens": "unsupported parameter: 'max_completion_tokens'",
    "chat_template_kwargs": "unknown field chat_template_kwargs",
    "reasoning_effort": "unknown field reasoning_effort",
    "top_p": "unknown parameter: 'top_p'",
}

LEARNED = st.builds(
    Learned,
    form=st.sampled_from(Form),
    token_field=st.sampled_from(TokenField),
    thinking=st.none() | st.sampled_from(Switch),
    min_tokens=st.integers(0, 4096),
    dropped=st.frozensets(st.sampled_from(["temperature", "top_p", "store"])),
    merge_system=st.booleans(),
    extra_requests=st.integers(0, 2),
    answered=st.frozensets(st.sampled_from(Kind)),
)
ENDPOINTS = st.builds(
    make_endpoint,
    st.just("https://h.example/v1"),
    st.just(WireApi.OPENAI),
    st.sampled_from(["small-model", "qwen3", "gpt-5.2"]),
    sampling=st.sampled_from([None, {"top_p": 0.5}]),
)


def sent_body(endpoint: Endpoint, learned: Learned, prompt: Prompt) -> bytes:
    return BUILDERS[endpoint.protocol](endpoint, make_plan(endpoint, learned, prompt), prompt).body


def ask(
    endpoint: Endpoint, learned: Learned, prompt: Prompt, refuse: Callable[[bytes], str | None]
) -> tuple[bool, Learned, int]:
    """One attempt, as the client makes it: whether it succeeded, what is known now, and the number of requests."""
    certain = trial = learned
    requests = 0
    while True:
        sent = sent_body(endpoint, trial, prompt)
        requests += 1
        error = refuse(sent)
        if error is None:
            return True, after_answer(trial, prompt, Reply("x", called=True)), requests
        last = certain.extra_requests >= MAX_EXTRA_REQUESTS - 1
        step = after_refusal(endpoint, trial, prompt, read_refusal(error, sent), last=last, first=certain)
        if step is None:
            return False, certain, requests
        if certain.extra_requests >= MAX_EXTRA_REQUESTS:
            return False, step.trial, requests
        spent = certain.extra_requests + 1
        certain, trial = replace(step.certain, extra_requests=spent), replace(step.trial, extra_requests=spent)


@given(ENDPOINTS, st.frozensets(st.sampled_from(sorted(NAMED))), st.sampled_from([title_prompt(), recap_prompt()]))
@settings(max_examples=200)
def test_an_endpoint_that_names_what_it_refuses_is_learned(
    endpoint: Endpoint, refused: frozenset[str], prompt: Prompt
) -> None:
    """At most three requests for the first attempt, one for each later one, and an answer after a few attempts."""

    def refuse(sent: bytes) -> str | None:
        return next((NAMED[name] for name in json.loads(sent) if name in refused), None)

    learned = Learned()
    extra = 0
    for attempt in range(8):
        succeeded, learned, requests = ask(endpoint, learned, prompt, refuse)
        assert requests <= (3 if attempt == 0 else 1 + MAX_EXTRA_REQUESTS - extra)
        extra += requests - 1
        assert extra <= MAX_EXTRA_REQUESTS
        if succeeded:
            break
    assert succeeded
    assert ask(endpoint, learned, prompt, refuse) == (True, learned, 1)


@given(
    ENDPOINTS,
    st.frozensets(st.sampled_from(["tools", "response_format", "temperature", "top_p", "chat_template_kwargs"])),
)
def test_an_endpoint_that_says_nothing_is_learned_too(endpoint: Endpoint, refused: frozenset[str]) -> None:
    """One more request, without all that could be refused, finds out."""

    def refuse(sent: bytes) -> str | None:
        return "bad request" if refused & set(json.loads(sent)) else None

    succeeded, learned, requests = ask(endpoint, Learned(), title_prompt(), refuse)
    assert succeeded
    assert requests <= 2
    assert ask(endpoint, learned, title_prompt(), refuse) == (True, learned, 1)


def test_a_guess_is_not_kept_before_it_brings_an_answer() -> None:
    """An unexplained error teaches nothing for certain."""
    endpoint = make_endpoint("https://h.example/v1")
    step = after_refusal(endpoint, Learned(), title_prompt(), Refusal(), last=False, first=Learned())
    assert step is not None
    assert step.certain == Learned()
    assert step.trial.form is Form.PLAIN


def test_a_known_dialect_is_not_dropped_for_an_unexplained_error() -> None:
    """DashScope knows `enable_thinking`, so something else was wrong; without it thinking would cost."""
    endpoint = make_endpoint("https://dashscope.aliyuncs.com/v1", model="qwen3")
    step = after_refusal(endpoint, Learned(), title_prompt(), Refusal(), last=False, first=Learned())
    assert step is not None
    assert make_plan(endpoint, step.trial, title_prompt()).thinking is Switch.ENABLE_THINKING


def test_dashscope_takes_no_forced_call_from_a_model_that_thinks() -> None:
    """When thinking must be on, the choice of the tool is left to the model at once (contract 7.5)."""
    endpoint = make_endpoint("https://dashscope.aliyuncs.com/v1", model="qwen3-thinker")
    sent = sent_body(endpoint, Learned(), title_prompt())
    refusal = read_refusal("the value of the enable_thinking parameter is restricted to true.", sent)
    step = after_refusal(endpoint, Learned(), title_prompt(), refusal, last=False, first=Learned())
    assert step is not None
    plan = make_plan(endpoint, step.certain, title_prompt())
    assert (plan.thinking, plan.form, plan.max_tokens) == (Switch.NOTHING, Form.FUNCTION_AUTO, 1024)


def test_a_limit_refused_under_both_names_is_left_out() -> None:
    """There is no third name."""
    endpoint = make_endpoint("https://h.example/v1")
    learned = Learned()
    for expected in ("max_completion_tokens", ""):
        error = "max_tokens and max_completion_tokens are not supported"
        refusal = read_refusal(error, sent_body(endpoint, learned, title_prompt()))
        step = after_refusal(endpoint, learned, title_prompt(), refusal, last=False, first=learned)
        assert step is not None
        learned = step.certain
        assert make_plan(endpoint, learned, title_prompt()).token_field == expected


def test_a_text_in_place_of_a_call_ends_the_use_of_functions() -> None:
    """At no cost; a call keeps them, and a recap says nothing about them."""
    assert after_answer(Learned(), title_prompt(), Reply("x")).form is Form.PLAIN
    assert after_answer(Learned(), title_prompt(), Reply("x", called=True)).form is Form.FUNCTION
    assert after_answer(Learned(), recap_prompt(), Reply("x")).form is Form.FUNCTION


@pytest.mark.parametrize("reply", [Reply(blocked=True), Reply(problem="x"), Reply(called=True)])
def test_a_refusal_of_the_model_is_not_asked_again(reply: Reply) -> None:
    """A content filter, a broken answer and an empty title stay what they are."""
    endpoint = make_endpoint("https://h.example/v1")
    assert after_reply(endpoint, Learned(), title_prompt(), reply, last=False, first=Learned()) is None


@given(LEARNED)
def test_what_was_learned_survives_the_store(learned: Learned) -> None:
    """As one line of JSON, and back."""
    assert "\n" not in learned.to_json()
    assert Learned.from_json(learned.to_json()) == learned


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"v": 2}',
        "[" * 9000,
        Learned().to_json().replace('"function"', '"telepathy"'),
        '{"v": 1}',
    ],
)
def test_a_foreign_entry_is_learned_anew(text: str) -> None:
    """Of a later version, broken, or not ours."""
    assert Learned.from_json(text) is None


@given(LEARNED, st.sampled_from(WireApi), st.sampled_from([title_prompt(), recap_prompt()]))
def test_any_learned_facts_make_a_request(learned: Learned, protocol: WireApi, prompt: Prompt) -> None:
    """A stored fact can be odd, but never in the way."""
    endpoint = make_endpoint("https://h.example", protocol, "qwen3")
    assert json.loads(sent_body(endpoint, learned, prompt))
