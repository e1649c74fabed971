"""What providers and servers are known to do, as data: a behaviour, its outcome, and what it may cost.

The error texts are those of issue threads and API references; names of models, paths and ids are made up. `first` and
`second` are the numbers of requests that the first and the second call make.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.edge.text_model.harness import SPOKEN
from tests.support.model_server import Request, Response, json_response
from watcher.core.generation import Kind
from watcher.core.reasons import Reason
from watcher.edge.text_model import WireApi

Body = dict[str, Any]
Rule = tuple[Callable[[Body], bool], Response]

TITLE = "Fix the login flow"
RECAP = "<recap>You fix the login. Next: run the tests.</recap>"
THOUGHT = "The user wants a title, perhaps"

OPENAI, RESPONSES, ANTHROPIC, GEMINI = WireApi.OPENAI, WireApi.OPENAI_RESPONSES, WireApi.ANTHROPIC, WireApi.GEMINI


@dataclass(frozen=True)
class Quirk:
    """One behaviour. `outcome` is the text, or the reason of the failure whose detail holds `detail`."""

    name: str
    script: Callable[[Request], Response]
    outcome: str | Reason = TITLE
    first: int = 1
    second: int = 1
    protocol: WireApi = OPENAI
    model: str = "small-model"
    kind: Kind = Kind.TITLE
    detail: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)


# -- good answers ------------------------------------------------------------------------------------------------------


def chat_reply(message: Mapping[str, object], finish: str = "stop", **usage: object) -> Response:
    """A chat completion with one choice."""
    counts = {"prompt_tokens": 50, "completion_tokens": 9, **usage}
    return json_response({"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": counts})


def chat_text(text: object, finish: str = "stop", **more: object) -> Response:
    """A chat completion that is a text."""
    return chat_reply({"role": "assistant", "content": text, **more}, finish)


def chat_call(arguments: object, finish: str = "tool_calls", **more: object) -> Response:
    """A chat completion that is a function call."""
    call = {"id": "c1", "type": "function", "function": {"name": "give_answer", "arguments": arguments}}
    return chat_reply({"role": "assistant", "content": None, "tool_calls": [call], **more}, finish)


def good_chat(body: Body) -> Response:
    """What a server that supports everything in `body` answers."""
    if body.get("tools"):
        return chat_call(json.dumps({"title": TITLE}))
    if "response_format" in body or "json" in json.dumps(body).lower():
        return chat_text(json.dumps({"title": TITLE}))
    return chat_text(RECAP)


def good_responses(body: Body) -> Response:
    """The same for the responses API."""
    output: list[object]
    if body.get("tools"):
        output = [{"type": "function_call", "name": "give_answer", "arguments": json.dumps({"title": TITLE})}]
    else:
        text = json.dumps({"title": TITLE}) if "json" in json.dumps(body).lower() else RECAP
        output = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
    return json_response(
        {"status": "completed", "error": None, "output": output, "usage": {"input_tokens": 50, "output_tokens": 9}}
    )


def anthropic_reply(content: Sequence[object], stop: str = "end_turn") -> Response:
    """An Anthropic message."""
    usage = {"input_tokens": 50, "output_tokens": 9}
    return json_response({"type": "message", "content": content, "stop_reason": stop, "usage": usage})


def good_anthropic(body: Body) -> Response:
    """The same for Anthropic messages."""
    if body.get("tools"):
        return anthropic_reply([{"type": "tool_use", "name": "give_answer", "input": {"title": TITLE}}], "tool_use")
    text = json.dumps({"title": TITLE}) if "json" in json.dumps(body).lower() else RECAP
    return anthropic_reply([{"type": "text", "text": text}])


def gemini_reply(parts: Sequence[object], finish: str = "STOP", **usage: object) -> Response:
    """A Gemini response."""
    counts = {"promptTokenCount": 50, "candidatesTokenCount": 9, **usage}
    return json_response(
        {"candidates": [{"content": {"parts": parts}, "finishReason": finish}], "usageMetadata": counts}
    )


def good_gemini(body: Body) -> Response:
    """The same for Gemini."""
    if body.get("tools"):
        return gemini_reply([{"functionCall": {"name": "give_answer", "args": {"title": TITLE}}}])
    text = json.dumps({"title": TITLE}) if "json" in json.dumps(body).lower() else RECAP
    return gemini_reply([{"text": text}])


_GOOD = {OPENAI: good_chat, RESPONSES: good_responses, ANTHROPIC: good_anthropic, GEMINI: good_gemini}


# -- bad answers -------------------------------------------------------------------------------------------------------


def error(message: str, status: int = 400, **fields: object) -> Response:
    """An error in OpenAI's form."""
    return json_response({"error": {"message": message, "type": "invalid_request_error", **fields}}, status)


def gemini_error(message: str, status: int = 400, **fields: object) -> Response:
    """An error in Google's form."""
    return json_response(
        {"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT", **fields}}, status
    )


def anthropic_error(message: str, status: int = 400, kind: str = "invalid_request_error") -> Response:
    """An error in Anthropic's form."""
    return json_response({"type": "error", "error": {"type": kind, "message": message}}, status)


def always(response: Response) -> Callable[[Request], Response]:
    """The same answer to everything."""
    return lambda _: response


def unless(*rules: Rule, protocol: WireApi = OPENAI) -> Callable[[Request], Response]:
    """The answer of the first rule that applies to the request's body, else a good one."""

    def script(request: Request) -> Response:
        body = request.json
        return next((answer for applies, answer in rules if applies(body)), _GOOD[protocol](body))

    return script


def sends(*path: str) -> Callable[[Body], bool]:
    """Whether the body has the field at `path`."""

    def applies(body: Body) -> bool:
        value: object = body
        for name in path:
            if not isinstance(value, dict) or name not in value:
                return False
            value = value[name]
        return True

    return applies


def has_system(body: Body) -> bool:
    return any(message["role"] == "system" for message in body["messages"])


def few_tokens(limit: int) -> Callable[[Body], bool]:
    """Whether the answer may take fewer than `limit` tokens."""
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return lambda body: (
        max(*(body.get(name, 0) for name in names), body.get("generationConfig", {}).get("maxOutputTokens", 0)) < limit
    )


def _thinks_unless(switch: Callable[[Body], bool], reply: Response) -> Callable[[Request], Response]:
    return unless((lambda body: not switch(body), reply))


_MAX = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
_TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported."
)
_NO_TOOLS = "registry.example/library/tiny:latest does not support tools"
_NON_STREAMING = "parameter.enable_thinking must be set to false for non-streaming calls"
_MANDATORY = "Reasoning is mandatory for this endpoint and cannot be disabled."
_EFFORT = (
    "Unsupported value: 'reasoning_effort' does not support 'none' with this model. "
    "Supported values are: 'minimal', 'low', 'medium', and 'high'."
)


def _effort(value: str) -> Callable[[Body], bool]:
    return lambda body: body.get("reasoning_effort") == value


def _top_level_off(body: Body) -> bool:
    return body.get("enable_thinking") is False


_FORMS = (
    Quirk("supports everything", unless()),
    Quirk("max_tokens refused (G11)", unless((sends("max_tokens"), error(_MAX, param="max_tokens"))), first=2),
    Quirk("temperature refused (G10)", unless((sends("temperature"), error(_TEMPERATURE))), first=2),
    Quirk(
        "refuses one thing after the other",
        unless((sends("max_tokens"), error(_MAX)), (sends("temperature"), error(_TEMPERATURE))),
        first=3,
    ),
    Quirk(
        "refuses three things, one after the other",
        unless(
            (sends("max_tokens"), error(_MAX)),
            (sends("tools"), error(_NO_TOOLS)),
            (sends("temperature"), error(_TEMPERATURE)),
        ),
        first=3,
    ),
    Quirk(
        "a known reasoning model costs no learning",
        unless((sends("max_tokens"), error(_MAX)), (sends("temperature"), error(_TEMPERATURE))),
        model="openai/gpt-5.2",
    ),
    Quirk(
        "tool_choice refused (deepseek-reasoner)",
        unless((sends("tool_choice"), error("tiny-reasoner does not support this tool_choice"))),
        first=2,
    ),
    Quirk(
        "tool_choice refused because it thinks (DashScope)",
        unless(
            (
                sends("tool_choice"),
                error(
                    "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being "
                    "set to required or object in thinking mode",
                    code="invalid_parameter_error",
                ),
            )
        ),
        first=2,
    ),
    Quirk("tools refused (Ollama)", unless((sends("tools"), error(_NO_TOOLS))), first=2),
    Quirk(
        "no endpoint has tools (OpenRouter says 404)",
        unless((sends("tools"), error("No endpoints found that support tool use. To learn more, visit the docs", 404))),
        first=2,
    ),
    Quirk(
        "tools need a start option (llama.cpp says 500)",
        unless(
            (
                sends("tools"),
                json_response({"error": {"code": 500, "message": "tools param requires --jinja flag"}}, 500),
            )
        ),
        first=2,
    ),
    Quirk(
        "tools unknown (old llama.cpp says 500)",
        unless((sends("tools"), json_response({"code": 500, "message": "Unsupported param: tools"}, 500))),
        first=2,
    ),
    Quirk(
        "tools need a start option (vLLM)",
        unless(
            (
                sends("tools"),
                json_response(
                    {
                        "object": "error",
                        "message": '"auto" tool choice requires --enable-auto-tool-choice and '
                        "--tool-call-parser to be set",
                    },
                    400,
                ),
            )
        ),
        first=2,
    ),
    Quirk(
        "tools and response_format refused (DeepSeek)",
        unless(
            (sends("tools"), error(_NO_TOOLS)),
            (sends("response_format"), error("This response_format type is unavailable now")),
        ),
        first=3,
    ),
    Quirk(
        "JSON mode refused while thinking (G8)",
        unless(
            (sends("tools"), error(_NO_TOOLS)),
            (sends("response_format"), error("Json mode response is not supported when enable_thinking is true")),
        ),
        first=3,
    ),
    Quirk(
        "only json_schema (LM Studio)",
        unless(
            (sends("tools"), error(_NO_TOOLS)),
            (
                lambda body: body.get("response_format", {}).get("type") == "json_object",
                json_response({"error": "'response_format.type' must be 'json_schema' or 'text'"}, 400),
            ),
        ),
        first=2,
    ),
    Quirk(
        "no system role (Gemma)",
        unless((has_system, error("Unsupported value: 'messages[0].role' does not support 'system' with this model."))),
        first=2,
    ),
    Quirk(
        "a sampling parameter of the settings is refused",
        unless((sends("presence_penalty"), error("Unknown parameter: 'presence_penalty'."))),
        first=2,
        settings={"sampling": {"presence_penalty": 1.5, "top_p": 0.8}},
    ),
    Quirk(
        "refuses without saying what",
        unless((lambda body: "tools" in body or "temperature" in body, error("Bad Request"))),
        first=2,
    ),
    Quirk(
        "refuses everything without saying why",
        always(error("Bad Request")),
        Reason.MODEL_ERROR,
        first=3,
        detail="HTTP 400: the request was refused",
    ),
    Quirk(
        "refuses everything, a web page for a reason",
        always(Response(400, b"<html>no</html>")),
        Reason.MODEL_ERROR,
        first=3,
    ),
    Quirk(
        "an error with status 200 (gateways)",
        unless((sends("tools"), json_response({"error": {"message": _NO_TOOLS, "type": "api_error"}}))),
        first=2,
    ),
    Quirk(
        "a validator that repeats the input",
        unless(
            (
                sends("tools"),
                json_response(
                    {
                        "detail": [
                            {
                                "loc": ["body", "tools"],
                                "msg": "Extra inputs are not permitted",
                                "type": "extra_forbidden",
                                "input": f"{SPOKEN}: insufficient_quota, invalid api key, context length, flagged",
                            }
                        ]
                    },
                    422,
                ),
            )
        ),
        first=2,
    ),
)

_THINKING = (
    Quirk(
        "thinking must be off, at the top level (G6, G7)",
        _thinks_unless(_top_level_off, error(_NON_STREAMING, code="InvalidParameter")),
        first=2,
        model="Qwen/Qwen3-Large",
    ),
    Quirk(
        "thinking must be off (ModelScope's words)",
        _thinks_unless(_top_level_off, error("enable thinking can not be support when `stream=False`.")),
        first=2,
    ),
    Quirk(
        "thinking must be on (DashScope, G4)",
        unless(
            (
                sends("chat_template_kwargs"),
                error(
                    "<400> InternalError.Algo.InvalidParameter: The value of the enable_thinking parameter is "
                    "restricted to True."
                ),
            ),
            (few_tokens(1024), chat_text("", "length", reasoning_content=THOUGHT)),
        ),
        first=2,
        model="qwen3-thinker",
    ),
    Quirk(
        "reasoning is mandatory (OpenRouter, G4)",
        unless((lambda body: body.get("reasoning") != {"effort": "low"}, error(_MANDATORY, code=400))),
        first=2,
        settings={"reasoning": {"thinking": True, "profile": "openai-reasoning"}},
    ),
    Quirk(
        "reasoning is mandatory (effort)",
        _thinks_unless(_effort("low"), error(_MANDATORY)),
        first=2,
        settings={"reasoning": {"thinking": True, "disableField": "reasoning_effort", "efforts": ["low", "high"]}},
    ),
    Quirk(
        "effort none is not offered", _thinks_unless(_effort("minimal"), error(_EFFORT)), first=2, model="gpt-5.4-mini"
    ),
    Quirk(
        "effort none is not offered (other words)",
        _thinks_unless(
            _effort("low"),
            error('Invalid option: expected one of "low"|"medium"|"high"|"xhigh"|"max" at reasoning_effort'),
        ),
        first=2,
        model="gpt-5.5",
    ),
    Quirk(
        "chat_template_kwargs unknown (strict gateway)",
        unless((sends("chat_template_kwargs"), error("Unrecognized request argument supplied: chat_template_kwargs"))),
        first=2,
        model="qwen3-coder",
    ),
    Quirk(
        "all text in reasoning (G1)",
        _thinks_unless(_effort("none"), chat_text("", reasoning=THOUGHT)),
        first=2,
    ),
    Quirk(
        "thinks, whatever it is told (G1)",
        always(chat_text("", reasoning_content=THOUGHT)),
        Reason.EMPTY_RESULT,
        first=3,
        detail="thoughts came, but no answer",
    ),
    Quirk(
        "thinking used up the tokens (G3)",
        unless((few_tokens(1024), chat_text("", "length", reasoning_content=THOUGHT))),
        first=2,
    ),
    Quirk("hidden thinking used up the tokens (G3)", unless((few_tokens(1024), chat_text(None, "length"))), first=2),
    Quirk("thinks for 2000 tokens (G3)", unless((few_tokens(2048), chat_text("", "length"))), first=3),
    Quirk(
        "thinks for ever (G3)",
        always(chat_text("", "length", reasoning_content=THOUGHT)),
        Reason.EMPTY_RESULT,
        first=3,
        detail="answer tokens were used up by reasoning",
    ),
    Quirk(
        "the settings permit too few tokens (G3)",
        always(chat_text("", "length")),
        Reason.EMPTY_RESULT,
        detail="samplingParams permits no more",
        settings={"sampling": {"max_tokens": 80}},
    ),
    Quirk(
        "too few tokens, said as a 400 (OpenAI)",
        unless(
            (
                few_tokens(1024),
                error(
                    "Could not finish the message because max_tokens or model output limit was reached. "
                    "Please try again with higher max_tokens."
                ),
            )
        ),
        first=2,
    ),
    Quirk(
        "think block before the answer",
        always(chat_text(f'<think>{THOUGHT} {{"title": "Draft"}}</think>\n{{"title": "{TITLE}"}}')),
    ),
    Quirk("think block opened by the template", always(chat_text(f"{THOUGHT}\n</think>\n\n{TITLE}"))),
    Quirk("think block that never ends", always(chat_text(f"<think>{THOUGHT}")), Reason.EMPTY_RESULT, first=3),
    Quirk(
        "think block cut by the limit",
        unless((few_tokens(1024), chat_text(f"<think>{THOUGHT}", "length"))),
        first=2,
    ),
    Quirk("reasoning beside the answer", always(chat_text(f'{{"title": "{TITLE}"}}', reasoning_content=THOUGHT))),
    Quirk(
        "thought parts (Mistral)",
        always(
            chat_text(
                [
                    {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
                    {"type": "text", "text": f'{{"title": "{TITLE}"}}'},
                ]
            )
        ),
    ),
    Quirk(
        "channels in the text (gpt-oss)",
        always(
            chat_text(
                f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{TITLE}<|return|>"
            )
        ),
    ),
    Quirk("kimi's marks", always(chat_text(f"◁think▷{THOUGHT}◁/think▷{TITLE}"))),
)

_ANSWERS = (
    Quirk("arguments as an object", always(chat_call({"title": TITLE}))),
    Quirk("arguments without the last brace", always(chat_call(f'{{"title": "{TITLE}"'))),
    Quirk("arguments in a fence", always(chat_call(f'```json\n{{"title": "{TITLE}"}}\n```'))),
    Quirk(
        "arguments cut by the limit", unless((few_tokens(1024), chat_call('{"title": "Fix the lo', "length"))), first=2
    ),
    Quirk("a whole answer although the limit is named", always(chat_call(json.dumps({"title": TITLE}), "length"))),
    Quirk("arguments empty", unless((sends("tools"), chat_call("{}"))), first=2),
    Quirk("an empty title", always(chat_call('{"title": ""}')), Reason.EMPTY_RESULT, detail="the answer was empty"),
    Quirk(
        "function_call of old",
        always(
            chat_reply(
                {"content": None, "function_call": {"name": "give_answer", "arguments": f'{{"title": "{TITLE}"}}'}}
            )
        ),
    ),
    Quirk(
        "a preamble beside the call",
        always(chat_call(f'{{"title": "{TITLE}"}}', content="Sure, I will name this session.")),
    ),
    Quirk("no call, plain text", always(chat_text(TITLE))),
    Quirk(
        "no call, JSON in a fence after a preamble",
        always(chat_text(f'Here you are:\n```json\n{{"title": "{TITLE}"}}\n```')),
    ),
    Quirk(
        "a call as text (no parser)",
        always(chat_text(f'<tool_call>\n{{"name": "give_answer", "arguments": {{"title": "{TITLE}"}}}}\n</tool_call>')),
    ),
    Quirk(
        "a call as tags (Qwen3-Coder without its parser)",
        always(
            chat_text(
                f"<tool_call><function=give_answer><parameter=title>\n{TITLE}\n</parameter></function></tool_call>"
            )
        ),
    ),
    Quirk("an object in Python's form", always(chat_text(f"{{'title': '{TITLE}'}}"))),
    Quirk(
        "a title that speaks of thinking", always(chat_call('{"title": "Hide <think> blocks"}')), "Hide <think> blocks"
    ),
    Quirk(
        "lone surrogates", always(Response(body=b'{"choices":[{"message":{"content":"Fix \\ud800 it"}}]}')), "Fix  it"
    ),
    Quirk(
        "a packing that was not asked for",
        always(Response(200, b"\x1b\x00", {"content-encoding": "br"})),
        Reason.MODEL_ERROR,
        detail="packed",
    ),
    Quirk("a byte order mark", always(Response(body=b"\xef\xbb\xbf" + chat_text(TITLE).body))),
    Quirk(
        "packed although not asked for",
        always(Response(200, gzip.compress(chat_text(TITLE).body), {"content-encoding": "gzip"})),
    ),
    Quirk(
        "the model declines",
        always(chat_text(None, refusal="I cannot")),
        Reason.EMPTY_RESULT,
        detail="refused to answer",
    ),
    Quirk("recap", unless(), RECAP, kind=Kind.RECAP),
    Quirk("recap after thoughts", always(chat_text(f"<think>{THOUGHT}</think>{RECAP}")), RECAP, kind=Kind.RECAP),
    Quirk(
        "recap cut",
        unless((few_tokens(1024), chat_text("<recap>You fix the", "length"))),
        RECAP,
        first=2,
        kind=Kind.RECAP,
    ),
    Quirk("recap whole at the limit", always(chat_text(RECAP, "length")), RECAP, kind=Kind.RECAP),
    Quirk(
        "recap in reasoning only",
        _thinks_unless(_effort("none"), chat_text("", reasoning=RECAP)),
        RECAP,
        first=2,
        kind=Kind.RECAP,
    ),
)

_BROKEN = (
    Quirk("no choices", always(json_response({"choices": []})), Reason.MODEL_ERROR, detail="no choices"),
    Quirk("null", always(Response(body=b"null")), Reason.MODEL_ERROR, detail="not a JSON object"),
    Quirk("nothing", always(Response()), Reason.MODEL_ERROR, detail="the answer is empty"),
    Quirk(
        "a web page", always(Response(body=b"<!DOCTYPE html><html>login</html>")), Reason.MODEL_ERROR, detail="web page"
    ),
    Quirk(
        "an event stream",
        always(Response(body=b"data: {}\n\ndata: [DONE]\n\n")),
        Reason.MODEL_ERROR,
        detail="event stream",
    ),
    Quirk("broken JSON", always(Response(body=b'{"choices": [')), Reason.MODEL_ERROR, detail="not JSON"),
    Quirk("nested without end", always(Response(body=b"[" * 60_000)), Reason.MODEL_ERROR, detail="not JSON"),
    Quirk("over 64 KiB", always(chat_text("x" * 70_000)), Reason.MODEL_ERROR, detail="longer than 64 KiB"),
    Quirk(
        "over 64 KiB when unpacked",
        always(Response(200, gzip.compress(b" " * 9_000_000), {"content-encoding": "gzip"})),
        Reason.MODEL_ERROR,
        detail="longer than 64 KiB",
    ),
    Quirk(
        "half a body",
        always(Response(body=b'{"choices":', length=500)),
        Reason.MODEL_ERROR,
        second=0,
        detail="before the answer was whole",
    ),
    Quirk("hangs up", always(Response(raw=b"")), Reason.MODEL_ERROR, second=0),
    Quirk(
        "no HTTP", always(Response(raw=b"220 smtp.example ESMTP\r\n")), Reason.MODEL_ERROR, second=0, detail="not HTTP"
    ),
    Quirk(
        "half an error",
        always(Response(401, b'{"error": {"message": "no', {}, length=900)),
        Reason.MODEL_ERROR,
        second=0,
        detail="HTTP 401",
    ),
)

_ACCESS = (
    Quirk(
        "401",
        always(error("Incorrect API key provided", 401)),
        Reason.MODEL_ERROR,
        second=0,
        detail="HTTP 401: the API key",
    ),
    Quirk(
        "402", always(error("Insufficient Balance", 402)), Reason.MODEL_ERROR, second=0, detail="HTTP 402: the account"
    ),
    Quirk("403", always(error("Model access denied.", 403)), Reason.MODEL_ERROR, second=0, detail="HTTP 403: access"),
    Quirk(
        "403 for one conversation (moderation)",
        always(error("Input was flagged by moderation", 403, metadata={"reasons": ["x"], "flagged_input": SPOKEN})),
        Reason.MODEL_ERROR,
        detail="content filter",
    ),
    Quirk(
        "400 for the account (Arrearage)",
        always(error("Access denied.", code="Arrearage")),
        Reason.MODEL_ERROR,
        second=0,
        detail="no credit",
    ),
    Quirk(
        "429 for the account",
        always(error("You exceeded your current quota", 429, code="insufficient_quota")),
        Reason.MODEL_ERROR,
        second=0,
        detail="no credit",
    ),
    Quirk(
        "429",
        always(Response(429, b"", {"retry-after": "30"})),
        Reason.MODEL_ERROR,
        second=0,
        detail="HTTP 429: the rate limit",
    ),
    Quirk(
        "429 inside of 200",
        always(json_response({"error": {"code": 429, "message": "slow"}})),
        Reason.MODEL_ERROR,
        second=0,
        detail="HTTP 429",
    ),
    Quirk(
        "503", always(Response(503, b"<html>busy</html>")), Reason.MODEL_ERROR, second=0, detail="HTTP 503: the service"
    ),
    Quirk(
        "an error in a packing that was not asked for",
        always(Response(401, b"\x1b\x00", {"content-encoding": "br"})),
        Reason.MODEL_ERROR,
        second=0,
        detail="HTTP 401",
    ),
    Quirk(
        "502",
        always(Response(502, b"<html>bad gateway</html>")),
        Reason.MODEL_ERROR,
        second=0,
        detail="HTTP 502: the server",
    ),
    Quirk(
        "500",
        always(error("The server had an error", 500)),
        Reason.MODEL_ERROR,
        second=0,
        detail="HTTP 500: the server",
    ),
    Quirk("404", always(error("Not found", 404)), Reason.MODEL_ERROR, detail="HTTP 404: no such address"),
    Quirk("405", always(Response(405)), Reason.MODEL_ERROR, detail="HTTP 405: this address"),
    Quirk(
        "no such model",
        always(error("The model `x` does not exist", code="model_not_found")),
        Reason.MODEL_ERROR,
        detail="this model",
    ),
    Quirk(
        "a redirect",
        always(Response(307, b"", {"location": "http://127.0.0.1:9/elsewhere"})),
        Reason.MODEL_ERROR,
        detail="redirect",
    ),
    Quirk(
        "content filter (DashScope)",
        always(error("Input data may contain inappropriate content.", code="data_inspection_failed")),
        Reason.MODEL_ERROR,
        detail="content filter",
    ),
    Quirk(
        "too long",
        always(error("This model's maximum context length is 4096 tokens; max_tokens ...")),
        Reason.MODEL_ERROR,
        detail="too long",
    ),
    Quirk("413", always(Response(413)), Reason.MODEL_ERROR, detail="too long"),
)

_OTHER_FORMATS = (
    Quirk("responses", unless(protocol=RESPONSES), protocol=RESPONSES),
    Quirk(
        "responses: reasoning and commentary first",
        always(
            json_response(
                {
                    "output": [
                        {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]},
                        {
                            "type": "message",
                            "phase": "commentary",
                            "content": [{"type": "output_text", "text": THOUGHT}],
                        },
                        {
                            "type": "message",
                            "phase": "final_answer",
                            "content": [{"type": "output_text", "text": TITLE}],
                        },
                    ]
                }
            )
        ),
        protocol=RESPONSES,
    ),
    Quirk(
        "responses: incomplete",
        unless(
            (
                few_tokens(1024),
                json_response(
                    {
                        "status": "incomplete",
                        "incomplete_details": {"reason": "max_output_tokens"},
                        "output": [{"type": "reasoning", "summary": []}],
                    }
                ),
            ),
            protocol=RESPONSES,
        ),
        first=2,
        protocol=RESPONSES,
    ),
    Quirk(
        "responses: temperature and store refused",
        unless(
            (sends("temperature"), error("Unsupported parameter: 'temperature' is not supported with this model.")),
            (sends("store"), error("Unknown parameter: 'store'.")),
            protocol=RESPONSES,
        ),
        first=3,
        protocol=RESPONSES,
    ),
    Quirk(
        "responses: failed",
        always(json_response({"status": "failed", "error": {"code": "server_error", "message": "The model failed"}})),
        Reason.MODEL_ERROR,
        second=0,
        protocol=RESPONSES,
        detail="HTTP 500",
    ),
    Quirk("anthropic", unless(protocol=ANTHROPIC), protocol=ANTHROPIC),
    Quirk("anthropic: recap", unless(protocol=ANTHROPIC), RECAP, protocol=ANTHROPIC, kind=Kind.RECAP),
    Quirk(
        "anthropic: thinking blocks and a preamble",
        always(
            anthropic_reply(
                [
                    {"type": "thinking", "thinking": THOUGHT, "signature": "x"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "I will name it."},
                    {"type": "tool_use", "name": "give_answer", "input": {"title": TITLE}},
                ],
                "tool_use",
            )
        ),
        protocol=ANTHROPIC,
    ),
    Quirk(
        "anthropic: no forced tool while thinking",
        unless(
            (sends("tool_choice"), anthropic_error("Thinking may not be enabled when tool_choice forces tool use.")),
            protocol=ANTHROPIC,
        ),
        first=2,
        protocol=ANTHROPIC,
    ),
    Quirk(
        "anthropic: temperature refused",
        unless(
            (sends("temperature"), anthropic_error("`temperature` is deprecated for this model.")), protocol=ANTHROPIC
        ),
        first=2,
        protocol=ANTHROPIC,
    ),
    Quirk(
        "anthropic: a gateway without tools",
        unless((sends("tools"), anthropic_error("tools: Extra inputs are not permitted")), protocol=ANTHROPIC),
        first=2,
        protocol=ANTHROPIC,
    ),
    Quirk(
        "anthropic: thinking used up the tokens",
        unless(
            (few_tokens(1024), anthropic_reply([{"type": "thinking", "thinking": THOUGHT}], "max_tokens")),
            protocol=ANTHROPIC,
        ),
        first=2,
        protocol=ANTHROPIC,
    ),
    Quirk(
        "anthropic: thinks, and says nothing",
        unless(
            (lambda body: not sends("thinking")(body), anthropic_reply([{"type": "thinking", "thinking": THOUGHT}])),
            protocol=ANTHROPIC,
        ),
        first=2,
        protocol=ANTHROPIC,
    ),
    Quirk(
        "anthropic: declines",
        always(anthropic_reply([], "refusal")),
        Reason.EMPTY_RESULT,
        protocol=ANTHROPIC,
        detail="refused to answer",
    ),
    Quirk(
        "anthropic: no credit",
        always(anthropic_error("Your credit balance is too low to access the Anthropic API.")),
        Reason.MODEL_ERROR,
        second=0,
        protocol=ANTHROPIC,
        detail="no credit",
    ),
    Quirk(
        "anthropic: overloaded",
        always(anthropic_error("Overloaded", 529, "overloaded_error")),
        Reason.MODEL_ERROR,
        second=0,
        protocol=ANTHROPIC,
        detail="HTTP 529: the service is overloaded",
    ),
    Quirk("gemini", unless(protocol=GEMINI), protocol=GEMINI),
    Quirk(
        "gemini: thought parts",
        always(gemini_reply([{"text": THOUGHT, "thought": True}, {"text": "Fix the "}, {"text": "login flow"}])),
        protocol=GEMINI,
    ),
    Quirk(
        "gemini: malformed call",
        unless((sends("tools"), gemini_reply([], "MALFORMED_FUNCTION_CALL")), protocol=GEMINI),
        first=2,
        protocol=GEMINI,
    ),
    Quirk(
        "gemini: thinking used up the tokens",
        unless((few_tokens(1024), gemini_reply([], "MAX_TOKENS", thoughtsTokenCount=96)), protocol=GEMINI),
        first=2,
        protocol=GEMINI,
    ),
    Quirk(
        "gemini: cannot stop thinking",
        unless(
            (
                sends("generationConfig", "thinkingConfig"),
                gemini_error("Budget 0 is invalid. This model only works in thinking mode."),
            ),
            protocol=GEMINI,
        ),
        first=2,
        protocol=GEMINI,
        model="gemini-2.5-flash-odd",
    ),
    Quirk(
        "gemini: no system instruction (Gemma)",
        unless(
            (sends("systemInstruction"), gemini_error("Developer instruction is not enabled for models/gemma-x")),
            protocol=GEMINI,
        ),
        first=2,
        protocol=GEMINI,
    ),
    Quirk(
        "gemini: no functions (Gemma)",
        unless((sends("tools"), gemini_error("Function calling is not enabled for models/gemma-x")), protocol=GEMINI),
        first=2,
        protocol=GEMINI,
    ),
    Quirk(
        "gemini: functions and JSON refused",
        unless(
            (sends("tools"), gemini_error("Function calling is not enabled for models/gemma-x")),
            (
                sends("generationConfig", "responseMimeType"),
                gemini_error("JSON mode is not enabled for models/gemma-x"),
            ),
            protocol=GEMINI,
        ),
        first=3,
        protocol=GEMINI,
    ),
    Quirk(
        "gemini: prompt blocked",
        always(json_response({"promptFeedback": {"blockReason": "SAFETY"}})),
        Reason.EMPTY_RESULT,
        protocol=GEMINI,
        detail="refused to answer",
    ),
    Quirk(
        "gemini: key refused with 400",
        always(
            gemini_error("API key not valid. Please pass a valid API key.", details=[{"reason": "API_KEY_INVALID"}])
        ),
        Reason.MODEL_ERROR,
        second=0,
        protocol=GEMINI,
        detail="the API key",
    ),
    Quirk(
        "gemini: rate limit",
        always(
            gemini_error(
                "You exceeded your current quota, please check your plan and billing details.",
                429,
                details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37s"}],
            )
        ),
        Reason.MODEL_ERROR,
        second=0,
        protocol=GEMINI,
        detail="HTTP 429: the rate limit",
    ),
)

QUIRKS: tuple[Quirk, ...] = (*_FORMS, *_THINKING, *_ANSWERS, *_BROKEN, *_ACCESS, *_OTHER_FORMATS)
