"""What is asked of a text model and what comes back; the words of the interface between policies and model clients."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from watcher.core.reasons import Reason


class Kind(StrEnum):
    """What a text is for; the value is the `kind` of `tail --json`."""

    TITLE = "title"
    RECAP = "recap"


class Role(StrEnum):
    """Who spoke."""

    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. Consecutive messages of one role are allowed here; clients merge them where an API refuses."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to a text model, already filtered, cut and masked.

    For a title the answer is wanted as the one-key object `{"title": …}` (`answer_key == "title"`); for a recap as free
    text in `<recap>` tags (`answer_key` is None). `max_tokens` counts answer tokens.
    """

    kind: Kind
    system: str
    messages: tuple[Message, ...]
    temperature: float
    max_tokens: int
    answer_key: str | None = None
    masked: tuple[str, ...] = ()
    """The secrets that masking took out, so that an answer that repeats one can be refused. Never logged or stored."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's raw text, before sanitizing. Token counts are None where the reply did not report them."""

    text: str
    model: str
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer. `retry_at` (seconds since the epoch) is set when the endpoint is known to refuse until then.

    `denied`: it is the key, the account or its balance that was refused, so nothing else is asked until the settings
    change. Token counts are those of replies without a usable text, None where nothing was reported.
    """

    reason: Reason
    detail: str = ""
    host: str = ""
    status: int | None = None
    retry_at: float | None = None
    denied: bool = False
    tokens_in: int | None = None
    tokens_out: int | None = None


Outcome = Answer | Failure
