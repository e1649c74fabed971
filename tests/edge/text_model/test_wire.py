"""The four wire formats spell what the plan says, and the settings have the last word where they should."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.edge.text_model.harness import KEY, NOW, SPOKEN, make_endpoint, recap_prompt, title_prompt
from watcher.core.generation import Message, Prompt, Role
from watcher.core.secret import SecretText
from watcher.edge.text_model import Endpoint, Learned, WireApi, anthropic, gemini, openai_chat, openai_responses
from watcher.edge.text_model.endpoint import HttpRequest, setup_problem
from watcher.edge.text_model.ladder import make_plan
from watcher.edge.text_model.learned import Form
from watcher.edge.text_model.refusals import Trouble, judge
from watcher.edge.text_model.thinking import Switch, first_switch, must_think

BUILDERS = {
    WireApi.OPENAI: openai_chat.build_request,
    WireApi.OPENAI_RESPONSES: openai_responses.build_request,
    WireApi.ANTHROPIC: anthropic.build_request,
    WireApi.GEMINI: gemini.build_request,
}
DASHSCOPE = "https://dashscope.aliyuncs.com/compatible-mode/v1"


def build(endpoint: Endpoint, learned: Learned | None = None, prompt: Prompt | None = None) -> HttpRequest:
    """The request that would be sent."""
    prompt = prompt or title_prompt()
    return BUILDERS[endpoint.protocol](endpoint, make_plan(endpoint, learned or Learned(), prompt), prompt)


def body(endpoint: Endpoint, learned: Learned | None = None, prompt: Prompt | None = None) -> dict[str, Any]:
    """Its body."""
    parsed = json.loads(build(endpoint, learned, prompt).body)
    assert isinstance(parsed, dict)
    return parsed


# -- the request as a whole --------------------------------------------------------------------------------------------


def test_a_title_request_to_a_generic_endpoint_has_nothing_extra() -> None:
    """As contract 6.2 and 7.5 say: one forced function, 0.2, 100 tokens, not streamed, no thinking field."""
    sent = body(make_endpoint("https://api.example/v1"))
    assert set(sent) == {"model", "messages", "stream", "temperature", "max_tokens", "tools", "tool_choice"}
    assert (sent["stream"], sent["temperature"], sent["max_tokens"], sent["tool_choice"]) == (
        False,
        0.2,
        100,
        "required",
    )
    parameters = sent["tools"][0]["function"]["parameters"]
    assert parameters["required"] == ["title"]
    assert parameters["properties"] == {"title": {"type": "string"}}


def test_a_recap_request_is_the_conversation() -> None:
    """Real turns, no function, 0.3 and 300 tokens (contract 6.3)."""
    sent = body(make_endpoint("https://api.example/v1"), prompt=recap_prompt())
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert (sent["temperature"], sent["max_tokens"]) == (0.3, 300)
    assert "tools" not in sent
    assert "response_format" not in sent


@pytest.mark.parametrize(
    ("protocol", "base_url", "expected"),
    [
        (WireApi.OPENAI, "https://h.example/v1", "https://h.example/v1/chat/completions"),
        (WireApi.OPENAI, "https://h.example/v1/ ", "https://h.example/v1/chat/completions"),
        (WireApi.OPENAI, "https://h.example/d?api-version=1", "https://h.example/d/chat/completions?api-version=1"),
        (WireApi.OPENAI_RESPONSES, "https://h.example", "https://h.example/v1/responses"),
        (WireApi.OPENAI_RESPONSES, "https://h.example/v1/", "https://h.example/v1/responses"),
        (WireApi.ANTHROPIC, "https://h.example", "https://h.example/v1/messages"),
        (WireApi.ANTHROPIC, "https://h.example/anthropic/v1", "https://h.example/anthropic/v1/messages"),
        (WireApi.GEMINI, "https://h.example", "https://h.example/v1beta/models/small-model:generateContent"),
        (WireApi.GEMINI, "https://h.example/v1beta/", "https://h.example/v1beta/models/small-model:generateContent"),
        (
            WireApi.GEMINI,
            "https://h.example/v1beta1/publishers/google",
            "https://h.example/v1beta1/publishers/google/models/small-model:generateContent",
        ),
    ],
)
def test_the_address(protocol: WireApi, base_url: str, expected: str) -> None:
    """A base URL with or without a slash, a version or a query leads to the right address."""
    assert build(make_endpoint(base_url, protocol)).url == expected


@pytest.mark.parametrize(
    ("protocol", "name", "value"),
    [
        (WireApi.OPENAI, "authorization", f"Bearer {KEY}"),
        (WireApi.OPENAI_RESPONSES, "authorization", f"Bearer {KEY}"),
        (WireApi.ANTHROPIC, "x-api-key", KEY),
        (WireApi.GEMINI, "x-goog-api-key", KEY),
    ],
)
def test_the_key_is_sent_in_one_header_only(protocol: WireApi, name: str, value: str) -> None:
    """Where each API wants it, never in the address or the body; without a key there is no such header."""
    request = build(make_endpoint("https://h.example", protocol))
    assert dict(request.headers)[name] == value
    assert KEY not in request.url
    assert KEY.encode() not in request.body
    assert name not in dict(build(make_endpoint("https://h.example", protocol, api_key=None)).headers)


def test_an_anthropic_key_can_be_a_bearer_token() -> None:
    """For hosts that are not Anthropic's own, and then in no other header."""
    headers = dict(build(make_endpoint("https://gate.example", WireApi.ANTHROPIC, bearer=True)).headers)
    assert headers["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in headers
    bare = make_endpoint("https://gate.example", WireApi.ANTHROPIC, bearer=True, api_key=None)
    assert "authorization" not in dict(build(bare).headers)


def test_custom_headers_override_ours_but_not_the_connection() -> None:
    """Case does not matter; ours are told apart by our user agent."""
    custom = {"authorization": "Token other", "X-Team": "a", "Content-Length": "7", "Accept-Encoding": "br"}
    headers = dict(build(make_endpoint("https://h.example/v1", headers=custom)).headers)
    assert headers["authorization"] == "Token other"
    assert headers["x-team"] == "a"
    assert "content-length" not in headers
    assert headers["accept-encoding"] == "identity"
    assert headers["user-agent"].startswith("qwen-session-watcher/")
    assert dict(build(make_endpoint("https://h.example/v1", headers={"User-Agent": "x"})).headers)["user-agent"] == "x"


def test_nothing_secret_shows_in_a_repr() -> None:
    """Neither an endpoint nor a request shows key, headers, body or query."""
    endpoint = make_endpoint(
        f"https://u:{KEY}@h.example/v1", headers={"X-Secret": KEY}, extra_body={"k": KEY}, sampling={"k": KEY}
    )
    shown = (
        repr(endpoint)
        + repr(build(endpoint))
        + f"{endpoint.api_key}"
        + repr(make_plan(endpoint, Learned(), title_prompt()))
    )
    assert KEY not in shown
    assert SPOKEN not in shown


def test_a_lone_surrogate_is_not_sent() -> None:
    """Strict servers refuse the whole body for one; the rest of the text stays."""
    prompt = title_prompt(messages=(Message(Role.USER, "a\ud800b \U0001f600"),))
    assert body(make_endpoint("https://h.example/v1"), prompt=prompt)["messages"][1]["content"] == "ab \U0001f600"


@pytest.mark.parametrize("protocol", list(WireApi))
def test_turns_alternate_and_begin_with_the_user(protocol: WireApi) -> None:
    """APIs refuse anything else: roles in turn, no blank text, the user first."""
    said = [(Role.ASSISTANT, "Hi"), (Role.USER, "a"), (Role.USER, "b"), (Role.ASSISTANT, "  "), (Role.USER, "c")]
    prompt = title_prompt(messages=tuple(Message(role, text) for role, text in said))
    sent = json.dumps(body(make_endpoint("https://h.example", protocol), prompt=prompt))
    turns = body(make_endpoint("https://h.example", protocol), prompt=prompt)
    messages = turns.get("messages") or turns.get("input") or turns.get("contents")
    assert messages is not None
    roles = [message["role"] for message in messages if message["role"] != "system"]
    assert roles == ["user", "model" if protocol is WireApi.GEMINI else "assistant", "user"]
    assert "a\\n\\nb\\n\\nc" in sent


# -- the settings of the entry -----------------------------------------------------------------------------------------


def test_sampling_of_the_settings_replaces_ours_and_caps_the_tokens() -> None:
    """Contract 7.4: no temperature of ours beside them; the lower limit counts."""
    endpoint = make_endpoint(
        "https://h.example/v1", sampling={"top_p": 0.5, "max_tokens": 60, "tools": [], "model": "x"}
    )
    sent = body(endpoint)
    assert (sent["top_p"], sent["max_tokens"], sent["model"]) == (0.5, 60, "small-model")
    assert "temperature" not in sent
    assert sent["tools"]
    assert body(make_endpoint("https://h.example/v1", sampling={"max_tokens": 9000}))["max_tokens"] == 100
    assert (
        body(make_endpoint("https://h.example/v1", sampling={"max_tokens": 60}), Learned(min_tokens=1024))["max_tokens"]
        == 60
    )


def test_a_limit_under_its_new_name_stays_under_it() -> None:
    """`max_completion_tokens` in the settings shows which name the endpoint wants."""
    sent = body(make_endpoint("https://h.example/v1", sampling={"max_completion_tokens": 70}))
    assert sent["max_completion_tokens"] == 70
    assert "max_tokens" not in sent


@pytest.mark.parametrize("protocol", list(WireApi))
def test_extra_body_is_merged_last(protocol: WireApi) -> None:
    """It wins over our own fields and those of the sampling."""
    endpoint = make_endpoint(
        "https://h.example", protocol, sampling={"top_p": 0.5}, extra_body={"top_p": 0.9, "model": "other"}
    )
    sent = body(endpoint)
    assert (sent["top_p"], sent["model"]) == (0.9, "other")


@pytest.mark.parametrize("protocol", list(WireApi))
def test_extra_body_asks_for_no_stream(protocol: WireApi) -> None:
    """A stream would not be read."""
    endpoint = make_endpoint("https://h.example", protocol, extra_body={"stream": True, "stream_options": {}})
    sent = body(endpoint)
    assert sent.get("stream") in (None, False)
    assert "stream_options" not in sent


def test_gemini_merges_settings_of_extra_body_into_its_own() -> None:
    """`generationConfig` is an object of many settings; those that are not named stay."""
    endpoint = make_endpoint("https://h.example", WireApi.GEMINI, extra_body={"generationConfig": {"seed": 7}})
    assert body(endpoint)["generationConfig"] == {"maxOutputTokens": 100, "temperature": 0.2, "seed": 7}


def test_a_wish_for_more_thinking_is_not_carried_over() -> None:
    """`reasoning` and `reasoning_effort` of the settings are meant for the conversation (contract 7.5)."""
    wish = {"reasoning": {"effort": "high"}, "reasoning_effort": "high"}
    sent = body(make_endpoint("https://h.example/v1", sampling=wish, extra_body=wish))
    assert not {"reasoning", "reasoning_effort"} & set(sent)
    assert (
        body(make_endpoint("https://h.example/v1", extra_body={"reasoning_effort": "none"}))["reasoning_effort"]
        == "none"
    )


def test_a_switch_joins_what_the_settings_say_beside_it() -> None:
    """Other template arguments stay, and thinking is off even where the settings switch it on for conversations."""
    endpoint = make_endpoint(
        "https://h.example/v1", model="qwen3", extra_body={"chat_template_kwargs": {"x": 1, "enable_thinking": True}}
    )
    assert body(endpoint)["chat_template_kwargs"] == {"x": 1, "enable_thinking": False}


# -- thinking off (contract 7.5) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "model", "field", "value"),
    [
        (DASHSCOPE, "qwen-plus", "enable_thinking", False),
        ("https://dashscope-intl.aliyuncs.com/v1", "coder-model", "enable_thinking", False),
        ("https://token-plan.cn.maas.aliyuncs.com/v1", "qwen3", "enable_thinking", False),
        ("https://x.alicloudapi.com/v1", "qwen3", "enable_thinking", False),
        (DASHSCOPE, "qwen3.8-max-preview", "reasoning_effort", "none"),
        ("http://localhost:8000/v1", "Qwen/Qwen3-8B", "chat_template_kwargs", {"enable_thinking": False}),
        ("https://dashscope.aliyuncs.com.evil.example/v1", "qwen3", "chat_template_kwargs", {"enable_thinking": False}),
        ("https://api.deepseek.com", "deepseek-chat", "thinking", {"type": "disabled"}),
        ("https://openrouter.ai/api/v1", "qwen/qwen3-8b", "reasoning", {"enabled": False}),
        ("https://openrouter.ai/api/v1", "openai/gpt-5.2", "reasoning", {"enabled": False}),
        ("https://api.openai.com/v1", "gpt-5.2-2026-01-01", "reasoning_effort", "none"),
    ],
)
def test_each_dialect_by_host_and_model(base_url: str, model: str, field: str, value: object) -> None:
    """The host's name alone decides, never a path or a longer name."""
    sent = body(make_endpoint(base_url, model=model))
    thinking = {"enable_thinking", "reasoning_effort", "chat_template_kwargs", "thinking", "reasoning"}
    assert thinking & set(sent) == {field}
    assert sent[field] == value


@pytest.mark.parametrize(
    ("base_url", "model"),
    [
        ("https://h.example/v1", "llama-3"),
        (DASHSCOPE, "deepseek-v3"),
        ("https://h.example/dashscope.aliyuncs.com", "glm-5"),
        ("https://api.openai.com/v1", "gpt-5-mini"),
        ("https://api.openai.com/v1", "gpt-4.1"),
    ],
)
def test_others_get_no_switch(base_url: str, model: str) -> None:
    """A generic model, and one that cannot stop thinking."""
    assert first_switch(make_endpoint(base_url, model=model)) is Switch.NOTHING


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("qwen3", {"chat_template_kwargs": {"enable_thinking": False, "x": 1}}),
        ("gpt-5.2", {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True, "x": 1}}),
    ],
)
def test_a_wish_for_thinking_does_not_stand_beside_the_switch(model: str, sent: dict[str, object]) -> None:
    """It is meant for the conversation; other settings in the same object stay."""
    wish = {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": True, "x": 1}}
    found = body(make_endpoint("https://h.example/v1", model=model, extra_body=wish))
    fields = ("enable_thinking", "chat_template_kwargs", "reasoning_effort")
    assert {name: found[name] for name in fields if name in found} == sent


@pytest.mark.parametrize("protocol", [WireApi.OPENAI_RESPONSES, WireApi.ANTHROPIC])
def test_these_formats_think_only_when_asked_to(protocol: WireApi) -> None:
    """Qwen Code sends no switch there either, whatever the model."""
    assert first_switch(make_endpoint("https://h.example", protocol, "gpt-5.2")) is Switch.NOTHING


@pytest.mark.parametrize(
    "endpoint",
    [
        make_endpoint(DASHSCOPE, model="qwen3", thinking_mandatory=True),
        make_endpoint(DASHSCOPE, model="qwen3", reasoning={"thinking": True, "canDisable": False}),
        make_endpoint("https://api.openai.com/v1", model="gpt-5-nano"),
        make_endpoint("https://api.openai.com/v1", model="o4-mini"),
    ],
)
def test_a_model_that_must_think_gets_room_at_once(endpoint: Endpoint) -> None:
    """No switch, and at least 1024 tokens without learning it the hard way (report G3)."""
    assert must_think(endpoint)
    sent = body(endpoint)
    assert max(sent.get("max_tokens", 0), sent.get("max_completion_tokens", 0)) == 1024
    assert not {"enable_thinking", "reasoning_effort"} & set(sent)


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        ({"disableField": "thinking"}, "thinking"),
        ({"disableField": "enable_thinking"}, "enable_thinking"),
        ({"disableField": "reasoning_effort"}, "reasoning_effort"),
        ({"profile": "qwen-chat-template"}, "chat_template_kwargs"),
        ({"profile": "deepseek-openai"}, "thinking"),
        ({"profile": ["nonsense"], "disableField": {}}, None),
    ],
)
def test_the_entry_can_declare_its_switch(declared: dict[str, object], field: str | None) -> None:
    """`capabilities.reasoning` comes before any guess; nonsense in it is ignored."""
    sent = body(make_endpoint("https://h.example/v1", reasoning=declared))
    assert {"enable_thinking", "reasoning_effort", "chat_template_kwargs", "thinking"} & set(sent) == (
        {field} if field else set()
    )


@pytest.mark.parametrize(
    ("protocol", "switch", "path", "value"),
    [
        (WireApi.GEMINI, Switch.BUDGET_ZERO, ("generationConfig", "thinkingConfig"), {"thinkingBudget": 0}),
        (WireApi.GEMINI, Switch.EFFORT_LOW, ("generationConfig", "thinkingConfig"), {"thinkingLevel": "low"}),
        (WireApi.OPENAI_RESPONSES, Switch.EFFORT_NONE, ("reasoning",), {"effort": "none"}),
        (WireApi.ANTHROPIC, Switch.TYPE_DISABLED, ("thinking",), {"type": "disabled"}),
    ],
)
def test_a_switch_in_each_format(protocol: WireApi, switch: Switch, path: tuple[str, ...], value: object) -> None:
    """A learned switch is spelled as the format wants it."""
    found: Any = body(make_endpoint("https://h.example", protocol), Learned(thinking=switch))
    for name in path:
        found = found[name]
    assert found == value


@pytest.mark.parametrize("protocol", list(WireApi))
@pytest.mark.parametrize("form", list(Form))
def test_every_form_asks_for_the_answer_somehow(protocol: WireApi, form: Form) -> None:
    """By a schema, or in words where nothing else enforces it."""
    prompt = title_prompt(system="Name this session.")
    sent = body(make_endpoint("https://h.example", protocol), Learned(form=form), prompt)
    text = json.dumps(sent, ensure_ascii=False)
    assert '"title"' in text or '\\"title\\"' in text


# -- what cannot be sent at all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        (make_endpoint("api.example/v1"), "base URL"),
        (make_endpoint("ftp://api.example"), "base URL"),
        (make_endpoint("https:///v1"), "base URL"),
        (make_endpoint("https://h.example:99999/"), "base URL"),
        (make_endpoint("https://[::1/"), "base URL"),
        (make_endpoint(""), "base URL"),
        (make_endpoint("https://h.example", model=" "), "model"),
        (make_endpoint("https://h.example", api_key=SecretText(f"{KEY}\nexport X=1")), "API key"),
        (make_endpoint("https://h.example", api_key=SecretText(f"“{KEY}”")), "API key"),
        (make_endpoint("https://h.example", headers={"X-A": "b\r\nX-C: d"}), "customHeaders.X-A"),
        (make_endpoint("https://h.example", headers={"X A": "b"}), "customHeaders"),
    ],
)
def test_what_cannot_be_sent_is_named(endpoint: Endpoint, words: str) -> None:
    """In one line without the value."""
    problem = setup_problem(endpoint)
    assert words in problem
    assert KEY not in problem


def test_a_key_with_a_line_end_is_trimmed() -> None:
    """The most common slip of all."""
    endpoint = make_endpoint("https://h.example/v1", api_key=SecretText(f"{KEY}\n"))
    assert setup_problem(endpoint) == ""
    assert dict(build(endpoint).headers)["authorization"] == f"Bearer {KEY}"


def test_the_name_of_learned_facts_holds_no_credentials() -> None:
    """Neither user, password nor query; another model or path is another name."""
    endpoint = make_endpoint("https://user:secret@h.example/v1/?key=secret")
    assert endpoint.key == "openai https://h.example:443/v1 small-model"
    assert endpoint.host == "h.example"
    assert endpoint.key != make_endpoint("https://h.example/v1", model="big-model").key


# -- how long to wait --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "30"}, b"", 30.0),
        ({"retry-after": " 1.5 "}, b"", 1.5),
        ({"retry-after": "0"}, b"", 1.0),
        ({"retry-after": "99999999999"}, b"", 86_400.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:02:00 GMT"}, b"", 120.0),
        ({"retry-after": "Fri, 15 Jan 2021 08:02:00 GMT"}, b"", 1.0),
        ({"retry-after": "soon"}, b"", None),
        ({"retry-after": "-5"}, b"", None),
        ({"retry-after": "٣"}, b"", None),
        ({"retry-after-ms": "2500", "retry-after": "9"}, b"", 2.5),
        ({}, b'{"error": {"details": [{"retryDelay": "17.5s"}]}}', 17.5),
        ({}, b"", None),
    ],
)
def test_retry_after(headers: dict[str, str], body: bytes, expected: float | None) -> None:
    """Seconds, dates, milliseconds and Gemini's field; what cannot be meant is bounded or ignored."""
    verdict = judge(429, headers, body, b"{}", NOW)
    assert verdict.trouble is Trouble.BUSY
    assert verdict.retry_after == expected
