"""What to send, given what was learned, and what to try next after a refusal or an answer without a text. Pure.

The forms of asking for a title stand in an order, from the most to the least demanding: a forced function call, JSON
that the server enforces, plain text with JSON in it. What an endpoint and model refuse is learned from its own answers.
Learning costs at most two extra requests an endpoint (design 11), so the last permitted request asks for nothing that
could be refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from watcher.core.generation import Prompt
from watcher.edge.text_model import thinking
from watcher.edge.text_model.endpoint import Endpoint, WireApi
from watcher.edge.text_model.error_words import Feature
from watcher.edge.text_model.learned import MAX_THINKING_TOKENS, Form, Learned, TokenField
from watcher.edge.text_model.refusals import Refusal
from watcher.edge.text_model.reply import Reply
from watcher.edge.text_model.thinking import THINKING_TOKENS, Switch

MAX_EXTRA_REQUESTS: Final = 2
"""For one endpoint and model, ever (design 11)."""

_LADDERS: Final[Mapping[WireApi, tuple[Form, ...]]] = {
    WireApi.OPENAI: (Form.FUNCTION, Form.FUNCTION_AUTO, Form.JSON_SCHEMA, Form.JSON_OBJECT, Form.PLAIN),
    WireApi.OPENAI_RESPONSES: (Form.FUNCTION, Form.FUNCTION_AUTO, Form.JSON_SCHEMA, Form.JSON_OBJECT, Form.PLAIN),
    WireApi.ANTHROPIC: (Form.FUNCTION, Form.FUNCTION_AUTO, Form.PLAIN),
    WireApi.GEMINI: (Form.FUNCTION, Form.FUNCTION_AUTO, Form.JSON_SCHEMA, Form.PLAIN),
}
_FUNCTION_FORMS: Final = (Form.FUNCTION, Form.FUNCTION_AUTO)
_OPTIONAL_FIELDS: Final = frozenset({"store"})
"""Fields of ours, beside those that have a name of their own here, that an endpoint may do without."""
_TOKEN_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "maxOutputTokens")


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, decided: what the wire formats spell. `token_field` is empty where no limit is sent."""

    form: Form
    max_tokens: int
    token_field: str
    temperature: float | None
    thinking: Switch
    sampling: Mapping[str, object] = field(repr=False)
    """The user's own sampling fields that are sent."""
    dropped: frozenset[str] = frozenset()
    merge_system: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next: `certain` is known now and kept at once, `trial` is sent, and kept when it brings an answer."""

    certain: Learned
    trial: Learned


def make_plan(endpoint: Endpoint, learned: Learned, prompt: Prompt) -> Plan:
    """The request that `learned` allows for `prompt`."""
    form = learned.form if prompt.answer_key is not None and learned.form in _LADDERS[endpoint.protocol] else Form.PLAIN
    switch = learned.thinking if learned.thinking is not None else thinking.first_switch(endpoint)
    tokens = max(prompt.max_tokens, learned.min_tokens, THINKING_TOKENS if thinking.must_think(endpoint) else 0)
    cap = token_cap(endpoint)
    sampling = {
        name: value
        for name, value in thinking.without_effort(endpoint.sampling or {}).items()
        if name not in _TOKEN_LIMITS and name not in learned.dropped
    }
    temperature: float | None = prompt.temperature
    if endpoint.sampling is not None or "temperature" in learned.dropped or thinking.is_gpt_reasoning(endpoint):
        temperature = None
    return Plan(
        form=form,
        max_tokens=min(tokens, cap) if cap is not None else tokens,
        token_field=_token_field(endpoint, learned),
        temperature=temperature,
        thinking=switch,
        sampling=sampling,
        dropped=learned.dropped,
        merge_system=learned.merge_system,
    )


def token_cap(endpoint: Endpoint) -> int | None:
    """The user's own limit on answer tokens (contract 7.4), None where there is none."""
    limits = [(endpoint.sampling or {}).get(name) for name in _TOKEN_LIMITS]
    return min((n for n in limits if isinstance(n, int) and not isinstance(n, bool) and n > 0), default=None)


def after_refusal(
    endpoint: Endpoint, learned: Learned, prompt: Prompt, refusal: Refusal, *, last: bool, first: Learned
) -> Step | None:
    """The next request after one was refused; None when nothing is left to leave out.

    `learned` is what the refused request was made of, `first` what is certain. `last`: only one more request is
    permitted, so it must not be refused for anything else.
    """
    plan = make_plan(endpoint, learned, prompt)
    trial = _without_refused(endpoint, learned, plan, refusal)
    certain = _without_refused(endpoint, first, plan, refusal)
    if make_plan(endpoint, trial, prompt) == plan:
        trial = _plainest(endpoint, trial, plan)
    elif last:
        trial = replace(trial, form=Form.PLAIN, dropped=trial.dropped | {"temperature"})
    if make_plan(endpoint, trial, prompt) == plan and plan.token_field:
        trial = replace(trial, token_field=_other_token_field(endpoint, learned, plan))
    if make_plan(endpoint, trial, prompt) == plan:
        return None
    return Step(certain, trial)


def after_reply(
    endpoint: Endpoint, learned: Learned, prompt: Prompt, reply: Reply, *, last: bool, first: Learned
) -> Step | None:
    """The next request after a reply without a text; None when asking again would bring nothing else."""
    if reply.blocked or reply.problem or (reply.called and not reply.cut):
        return None
    plan = make_plan(endpoint, learned, prompt)
    trial, certain = learned, first
    if reply.cut:
        more = THINKING_TOKENS if plan.max_tokens < THINKING_TOKENS else MAX_THINKING_TOKENS
        trial, certain = replace(trial, min_tokens=more), replace(certain, min_tokens=more)
    if reply.thoughts:
        switch = thinking.switch_when_thoughts_came(endpoint, plan.thinking)
        trial = replace(trial, thinking=switch, min_tokens=max(trial.min_tokens, THINKING_TOKENS))
    if (not reply.cut and not reply.thoughts) or (last and not reply.cut):
        trial = replace(trial, form=Form.PLAIN)
    if make_plan(endpoint, trial, prompt) == plan:
        return None
    return Step(certain, trial)


def after_answer(learned: Learned, prompt: Prompt, reply: Reply) -> Learned:
    """What an answer proves. A text in place of a function call shows that the server has no use for functions."""
    form = learned.form
    if prompt.answer_key is not None and form in _FUNCTION_FORMS and not reply.called:
        form = Form.PLAIN
    return replace(learned, form=form, answered=learned.answered | {prompt.kind})


def _without_refused(endpoint: Endpoint, learned: Learned, plan: Plan, refusal: Refusal) -> Learned:
    """`learned` without what the error named; unchanged where it named nothing that was sent."""
    new, named = learned, refusal.features
    if Feature.TEMPERATURE in named:
        new = replace(new, dropped=new.dropped | {"temperature"})
    new = replace(new, dropped=new.dropped | (refusal.fields & (_OPTIONAL_FIELDS | set(plan.sampling))))
    if Feature.SYSTEM_ROLE in named:
        new = replace(new, merge_system=True)
    if Feature.MORE_TOKENS in named:
        new = replace(new, min_tokens=THINKING_TOKENS if plan.max_tokens < THINKING_TOKENS else MAX_THINKING_TOKENS)
    elif Feature.ANSWER_LIMIT in named:
        new = replace(new, token_field=_other_token_field(endpoint, learned, plan))
    if Feature.TOOL_CHOICE in named and plan.form is Form.FUNCTION:
        new = replace(new, form=Form.FUNCTION_AUTO)
    elif named & {Feature.TOOLS, Feature.TOOL_CHOICE} and plan.form in _FUNCTION_FORMS:
        new = replace(new, form=next(form for form in _LADDERS[endpoint.protocol] if form not in _FUNCTION_FORMS))
    elif Feature.RESPONSE_FORMAT in named and plan.form not in (*_FUNCTION_FORMS, Form.PLAIN):
        ladder = _LADDERS[endpoint.protocol]
        new = replace(new, form=ladder[ladder.index(plan.form) + 1])
    if Feature.THINKING in named:
        new = _after_thinking_refusal(endpoint, new, plan, refusal)
    return new


def _after_thinking_refusal(endpoint: Endpoint, learned: Learned, plan: Plan, refusal: Refusal) -> Learned:
    switch = thinking.switch_after_refusal(endpoint, plan.thinking, refusal.text)
    new = replace(learned, thinking=switch)
    if switch is Switch.ENABLE_THINKING or switch is plan.thinking:
        return new
    # From here on the model may think: it needs room, and DashScope takes no forced call then (contract 7.5).
    new = replace(new, min_tokens=max(new.min_tokens, THINKING_TOKENS))
    if new.form is Form.FUNCTION and thinking.is_dashscope(endpoint):
        new = replace(new, form=Form.FUNCTION_AUTO)
    return new


def _plainest(endpoint: Endpoint, learned: Learned, plan: Plan) -> Learned:
    """The request that asks for nothing special, for an endpoint that does not say what it refuses."""
    switch = plan.thinking if thinking.is_certain(endpoint, plan.thinking) else Switch.NOTHING
    tokens = learned.min_tokens if switch is plan.thinking else max(learned.min_tokens, THINKING_TOKENS)
    return replace(
        learned,
        form=Form.PLAIN,
        dropped=learned.dropped | {"temperature"} | _OPTIONAL_FIELDS | set(plan.sampling),
        thinking=switch,
        min_tokens=tokens,
    )


def _token_field(endpoint: Endpoint, learned: Learned) -> str:
    match endpoint.protocol:
        case WireApi.OPENAI:
            chosen = learned.token_field
            if chosen is TokenField.BY_MODEL:
                modern = thinking.is_gpt_reasoning(endpoint) or "max_completion_tokens" in (endpoint.sampling or {})
                chosen = TokenField.MAX_COMPLETION_TOKENS if modern else TokenField.MAX_TOKENS
            return "" if chosen is TokenField.NONE else chosen.value
        case WireApi.OPENAI_RESPONSES:
            return "" if learned.token_field is TokenField.NONE else "max_output_tokens"
        case WireApi.ANTHROPIC:
            return "max_tokens"
        case WireApi.GEMINI:
            return "maxOutputTokens"


def _other_token_field(endpoint: Endpoint, learned: Learned, plan: Plan) -> TokenField:
    """The name to try after the one in `plan` was refused. Anthropic and Gemini know one name only."""
    match endpoint.protocol:
        case WireApi.OPENAI:
            if learned.token_field is not TokenField.BY_MODEL:
                return TokenField.NONE
            modern = plan.token_field == TokenField.MAX_COMPLETION_TOKENS
            return TokenField.MAX_TOKENS if modern else TokenField.MAX_COMPLETION_TOKENS
        case WireApi.OPENAI_RESPONSES:
            return TokenField.NONE
        case _:
            return TokenField.BY_MODEL
