"""What all wire formats read out of a reply, and how the pieces become one `Reply`. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from watcher.edge.text_model.extract import extract, extract_argument

Json = Mapping[str, object]

_MAX_TOKENS_REPORTED: Final = 100_000_000
_STATUS: Final = re.compile(r"[45]\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of status 200, read.

    `text` is the answer, empty when there is none. `called`: it came as a function call. `cut`: the token limit ended
    it before it was whole, so it is not used. `thoughts`: the model thought. `blocked`: a content filter or the
    model itself refused. `problem` says in our words what makes the reply no reply at all. `error` is the body of an
    error that came with status 200, `error_status` the status that it names.
    """

    text: str = field(default="", repr=False)
    called: bool = False
    cut: bool = False
    thoughts: bool = False
    blocked: bool = False
    problem: str = ""
    error: Json | None = field(default=None, repr=False)
    error_status: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(slots=True)
class Pieces:
    """What one wire format found in a reply: the texts that are not thoughts, the arguments of a call, the rest."""

    texts: list[str] = field(default_factory=list)
    arguments: object = None
    called: bool = False
    at_limit: bool = False
    thoughts: bool = False
    blocked: bool = False
    tokens_in: int | None = None
    tokens_out: int | None = None


def assemble(pieces: Pieces, key: str | None) -> Reply:
    """The reply that `pieces` make. A function call's arguments count before any text: that is a preamble."""
    found, called = extract("\n".join(pieces.texts), key), False
    if pieces.called and key is not None:
        argument = extract_argument(pieces.arguments, key)
        # Some servers lose the arguments of a call and leave its JSON in the text; any other text is a preamble.
        if argument.text or argument.closed or not found.closed:
            found, called = argument, bool(argument.text or argument.closed)
    cut = pieces.at_limit and not (found.closed and found.text)
    return Reply(
        text="" if cut else found.text,
        called=called,
        cut=cut,
        thoughts=pieces.thoughts or found.thoughts,
        blocked=pieces.blocked and not found.text,
        tokens_in=pieces.tokens_in,
        tokens_out=pieces.tokens_out,
    )


def decode(body: bytes) -> Json | str:
    """The JSON object in `body`, or in our words what stands there instead."""
    try:
        parsed = json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        start = body.lstrip()[:64].lower()
        if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<")):
            return "a web page came instead of an answer; the base URL may be wrong"
        if start.startswith((b"data:", b"event:", b":")):
            return "an event stream came although none was asked for"
        return "the answer is empty" if not start else "the answer is not JSON, or broken off"
    if isinstance(parsed, list) and parsed and isinstance(parsed[0], dict):
        parsed = parsed[0]
    return parsed if isinstance(parsed, dict) else "the answer is not a JSON object"


def embedded_error(payload: Json) -> Reply | None:
    """The reply that an error object with status 200 stands for, as gateways send it; None when there is none."""
    error = payload.get("error")
    if not error or (isinstance(error, str) and not error.strip()):
        return None
    code = as_object(error).get("code")
    number = int(code) if isinstance(code, int) or (isinstance(code, str) and _STATUS.fullmatch(code)) else 0
    return Reply(error=payload, error_status=number if _STATUS.fullmatch(str(number)) else None)


def as_object(value: object) -> Json:
    """`value` where it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[object]:
    """`value` where it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else ()


def as_text(value: object) -> str:
    """`value` where it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def count(*values: object) -> int | None:
    """The sum of token counts, None where no value is a believable count."""
    counts = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= _MAX_TOKENS_REPORTED]
    return sum(counts) if counts else None
