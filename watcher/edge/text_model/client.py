"""One text from one endpoint: asks, learns what is refused, and reports what it cost.

gate ─► budget ─► request ─► reply ─► text
  ▲                             │
  └── ladder (what else to try) ┘    at most two extra requests an endpoint, ever
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final, Protocol

from watcher.core.generation import Answer, Failure, Kind, Message, Outcome, Prompt, Role
from watcher.core.reasons import Reason
from watcher.edge.text_model import anthropic, gemini, ladder, openai_chat, openai_responses
from watcher.edge.text_model.abort import Abort
from watcher.edge.text_model.endpoint import Endpoint, HttpRequest, WireApi, setup_problem
from watcher.edge.text_model.exchange import Connect, Exchange, Fault, NoReply, in_this_process
from watcher.edge.text_model.gate import Gate, NotAsked, Result
from watcher.edge.text_model.ladder import MAX_EXTRA_REQUESTS, Plan
from watcher.edge.text_model.learned import Learned
from watcher.edge.text_model.network import find_route
from watcher.edge.text_model.refusals import Trouble, Verdict, judge
from watcher.edge.text_model.reply import Json, Reply, decode
from watcher.errors import ModelSetupError

ATTEMPT_TIMEOUTS: Final = 2.0
"""An attempt with its extra requests takes at most this many times the time of one request."""
LEAST_TIMEOUTS: Final = 0.25
"""An extra request is not begun with less than this part of the time of one request left."""


@dataclass(frozen=True, slots=True)
class _Wire:
    """One wire format as its pair of pure functions."""

    build_request: Callable[[Endpoint, Plan, Prompt], HttpRequest]
    parse_reply: Callable[[Json, str | None], Reply]


_WIRES: Final[Mapping[WireApi, _Wire]] = {
    WireApi.OPENAI: _Wire(openai_chat.build_request, openai_chat.parse_reply),
    WireApi.OPENAI_RESPONSES: _Wire(openai_responses.build_request, openai_responses.parse_reply),
    WireApi.ANTHROPIC: _Wire(anthropic.build_request, anthropic.parse_reply),
    WireApi.GEMINI: _Wire(gemini.build_request, gemini.parse_reply),
}
_GATE_RESULTS: Final[Mapping[Trouble, Result]] = {
    Trouble.REFUSED: Result.REACHED,
    Trouble.CONTENT: Result.REACHED,
    Trouble.WRONG_ADDRESS: Result.REACHED,
    Trouble.DENIED: Result.DENIED,
    Trouble.BUSY: Result.BUSY,
    Trouble.UNAVAILABLE: Result.OUTAGE,
}


class LearnedStore(Protocol):
    """Keeps what endpoints have taught, across restarts. Called from worker threads."""

    def get(self, endpoint_key: str) -> Learned | None:
        """What was put under `endpoint_key`, None when nothing was."""

    def put(self, endpoint_key: str, learned: Learned) -> None:
        """Keep `learned` in place of what was there."""


class Budget(Protocol):
    """Counts HTTP requests. Called from worker threads."""

    def take(self) -> bool:
        """Count one request, before it is sent; False when today's are used up."""


@dataclass(slots=True)
class _Attempt:
    """The bookkeeping of one call of `generate`."""

    prompt: Prompt
    abort: Abort
    exchange: Exchange
    deadline: float
    """By the monotonic clock."""
    tokens_in: int | None = None
    tokens_out: int | None = None

    def add_tokens(self, reply: Reply) -> None:
        """Count what a reply cost, also one that brought no text."""
        if reply.tokens_in is not None:
            self.tokens_in = (self.tokens_in or 0) + reply.tokens_in
        if reply.tokens_out is not None:
            self.tokens_out = (self.tokens_out or 0) + reply.tokens_out


@dataclass(frozen=True, slots=True)
class _Judged:
    """How one request ended: what it means for this attempt, and for all requests to the address."""

    value: Reply | Verdict | Failure
    result: Result
    retry_after: float | None = None
    phrase: str = ""


class TextModelClient:
    """Asks one endpoint. Stateless but for what it is given; any number of threads may call it."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        learned: LearnedStore,
        budget: Budget,
        gate: Gate,
        clock: Callable[[], float],
        environ: Mapping[str, str],
        connect: Connect = in_this_process,
    ) -> None:
        """`clock` gives seconds since the epoch. `environ` names proxies and certificates; each call reads it anew.
        `connect` says where requests are made (`exchange`, `apart`).
        """
        self.endpoint = endpoint
        self._wire = _WIRES[endpoint.protocol]
        self._learned = learned
        self._budget = budget
        self._gate = gate
        self._clock = clock
        self._environ = environ
        self._connect = connect

    def held(self) -> NotAsked | None:
        """Why a call now would send no request (a pause, an open circuit), with `retry_at`; None when it would."""
        return self._gate.held(self.endpoint, self._clock())

    def first_request(self, prompt: Prompt) -> HttpRequest:
        """What `generate` would send first, with the key in it; sends nothing. For an endpoint without a
        `setup_problem`.
        """
        plan = ladder.make_plan(self.endpoint, self._learned.get(self.endpoint.key) or Learned(), prompt)
        return self._wire.build_request(self.endpoint, plan, prompt)

    def generate(self, prompt: Prompt, abort: Abort) -> Outcome:
        """The model's text for `prompt`, or why there is none. Blocks; made for a worker thread.

        One request, or up to three while this endpoint is learned; each takes at most `endpoint.timeout_seconds`, all
        together at most twice that, in which it first waits, for at most half of it, while another call learns the
        same endpoint. Setting `abort` ends it within a fraction of a second. A `NotAsked` outcome cost nothing. Nothing
        that a server, a network or a setting can do makes it raise.
        """
        problem = setup_problem(self.endpoint)
        if problem:
            return self._failure(problem)
        held = self.held()
        if held is not None:
            return held
        try:
            route = find_route(self.endpoint.base_url, self._environ)
            exchange = self._connect(route, self._environ)
        except ModelSetupError as error:
            return self._failure(str(error))
        deadline = time.monotonic() + ATTEMPT_TIMEOUTS * self.endpoint.timeout_seconds
        key, patience = self.endpoint.key, self.endpoint.timeout_seconds
        met = prompt.kind in (self._learned.get(key) or Learned()).answered
        # Who has waited for long enough goes on with what is known, and with time for one request.
        with nullcontext() if met else self._gate.first_call(key, abort, patience):
            attempt = _Attempt(prompt, abort, exchange, deadline)
            outcome = self._climb(attempt)
        if isinstance(outcome, Failure):
            return replace(outcome, tokens_in=attempt.tokens_in, tokens_out=attempt.tokens_out)
        return outcome

    def _climb(self, attempt: _Attempt) -> Outcome:
        """Ask, and ask differently while the ladder knows how and learning may cost more."""
        key, prompt = self.endpoint.key, attempt.prompt
        certain = self._learned.get(key) or Learned()
        trial = certain
        while True:
            plan = ladder.make_plan(self.endpoint, trial, prompt)
            answer = self._send(attempt, self._wire.build_request(self.endpoint, plan, prompt))
            if isinstance(answer, Failure):
                return answer
            spent = max(certain.extra_requests, self._gate.extra_requests(key))
            last = spent >= MAX_EXTRA_REQUESTS - 1
            if isinstance(answer, Reply):
                attempt.add_tokens(answer)
                if answer.text:
                    self._keep(certain, ladder.after_answer(trial, prompt, answer))
                    return Answer(answer.text, self.endpoint.model, attempt.tokens_in, attempt.tokens_out)
                failure = self._explain_no_text(answer, plan)
                step = ladder.after_reply(self.endpoint, trial, prompt, answer, last=last, first=certain)
            else:
                failure = self._failure(answer.phrase, status=answer.status)
                step = ladder.after_refusal(self.endpoint, trial, prompt, answer.refusal, last=last, first=certain)
            if step is None:
                return failure
            in_time = attempt.deadline - time.monotonic() >= LEAST_TIMEOUTS * self.endpoint.timeout_seconds
            if not in_time or not self._gate.take_extra_request(key, certain.extra_requests, MAX_EXTRA_REQUESTS):
                # The next attempt begins where this one would have gone on; but an endpoint that has answered so far
                # loses no more than what it named.
                unproven = prompt.kind not in certain.answered
                self._keep(certain, replace(step.trial if unproven else step.certain, extra_requests=spent))
                return failure
            spent = self._gate.extra_requests(key)
            certain = self._keep(certain, replace(step.certain, extra_requests=spent))
            trial = replace(step.trial, extra_requests=spent)

    def _send(self, attempt: _Attempt, request: HttpRequest) -> Reply | Verdict | Failure:
        """One request through gate and budget: a reply, a refusal that may be learned from, or the end."""
        if attempt.abort.is_set():
            return self._failure("", Reason.ABORTED)
        refusal = self._gate.admit(self.endpoint, self._clock())
        if refusal is not None:
            return refusal
        judged = _Judged(self._failure(""), Result.UNKNOWN)
        try:
            judged = self._exchange(attempt, request)
        finally:
            retry_at = self._gate.settle(
                self.endpoint, judged.result, self._clock(), retry_after=judged.retry_after, phrase=judged.phrase
            )
        if isinstance(judged.value, Failure) and judged.result is not Result.UNKNOWN:
            return replace(judged.value, retry_at=retry_at, denied=judged.result is Result.DENIED)
        return judged.value

    def _exchange(self, attempt: _Attempt, request: HttpRequest) -> _Judged:
        if not self._budget.take():
            return _Judged(self._failure("the calls of today are used up", Reason.BUDGET_EXHAUSTED), Result.UNKNOWN)
        left = min(self.endpoint.timeout_seconds, attempt.deadline - time.monotonic())
        answer = attempt.exchange(request, timeout_seconds=max(left, 0.1), abort=attempt.abort)
        if isinstance(answer, NoReply):
            match answer.fault:
                case Fault.ABORTED:
                    return _Judged(self._failure("", Reason.ABORTED), Result.UNKNOWN)
                case Fault.SETUP:
                    return _Judged(self._failure(answer.phrase), Result.UNKNOWN)
                case Fault.UNREACHABLE:
                    return _Judged(self._failure(answer.phrase), Result.OUTAGE, phrase=answer.phrase)
                case _:
                    return _Judged(self._failure(answer.phrase), Result.REACHED)
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return self._judge_error(answer.status, answer.headers, answer.body, request)
        payload = decode(answer.body)
        if isinstance(payload, str):
            return _Judged(self._failure(payload, status=answer.status), Result.REACHED)
        reply = self._wire.parse_reply(payload, attempt.prompt.answer_key)
        if reply.error is not None:
            status = reply.error_status or HTTPStatus.INTERNAL_SERVER_ERROR
            return self._judge_error(status, answer.headers, answer.body, request)
        return _Judged(reply, Result.REACHED)

    def _judge_error(self, status: int, headers: Mapping[str, str], body: bytes, request: HttpRequest) -> _Judged:
        verdict = judge(status, headers, body, request.body, self._clock())
        value = verdict if verdict.trouble is Trouble.REFUSED else self._failure(verdict.phrase, status=status)
        return _Judged(value, _GATE_RESULTS[verdict.trouble], verdict.retry_after, verdict.phrase)

    def _explain_no_text(self, reply: Reply, plan: Plan) -> Failure:
        if reply.problem:
            return self._failure(reply.problem, status=HTTPStatus.OK)
        if reply.blocked:
            words = "the model or a content filter refused to answer"
        elif reply.cut:
            words = f"the {plan.max_tokens} answer tokens were used up" + (" by reasoning" if reply.thoughts else "")
            if plan.max_tokens == ladder.token_cap(self.endpoint):
                words += "; samplingParams permits no more"
        else:
            words = "thoughts came, but no answer" if reply.thoughts else "the answer was empty"
        return self._failure(words, Reason.EMPTY_RESULT, status=HTTPStatus.OK)

    def _keep(self, before: Learned, now: Learned) -> Learned:
        if now != before:
            self._learned.put(self.endpoint.key, now)
        return now

    def _failure(self, detail: str, reason: Reason = Reason.MODEL_ERROR, *, status: int | None = None) -> Failure:
        return Failure(reason, detail, self.endpoint.host, status=None if status is None else int(status))


def probe(
    endpoint: Endpoint,
    *,
    learned: LearnedStore,
    budget: Budget,
    clock: Callable[[], float],
    environ: Mapping[str, str],
    abort: Abort | None = None,
) -> Outcome:
    """Whether `endpoint` answers: one tiny call, for `doctor --probe`. It neither sees nor changes pauses and circuits.

    Like any first call it may take up to three requests, and what they teach is kept.
    """
    client = TextModelClient(endpoint, learned=learned, budget=budget, gate=Gate(), clock=clock, environ=environ)
    prompt = Prompt(
        kind=Kind.RECAP,
        system="You are a service that is being tested.",
        messages=(Message(Role.USER, "Answer with the one word: ready"),),
        temperature=0.3,
        max_tokens=64,
    )
    return client.generate(prompt, abort if abort is not None else Abort())
