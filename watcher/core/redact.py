"""Takes secrets out of text before it leaves the machine, and recognises them in what comes back.

The kinds of evidence: a token's own shape (`redaction.tokens`), a private key block, a place that holds credentials
(`Authorization` and cookie headers, URLs, command lines), an assignment to a secret-looking name (`redaction.names`),
a password said in prose, a neighbour that gives it away, and base64 of any of them. In doubt a value is masked: a mask
costs a word of context, a leak cannot be taken back.

Every pattern is anchored, bounded or possessive, so that the work grows linearly with the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from watcher.core.redaction.assignments import assignment_spans
from watcher.core.redaction.commands import command_line_spans
from watcher.core.redaction.encoded import encoded_spans
from watcher.core.redaction.keys import private_key_spans
from watcher.core.redaction.names import is_random
from watcher.core.redaction.neighbours import companion_spans, lone_spans, manifest_spans, pair_spans
from watcher.core.redaction.places import header_spans, prose_spans, url_spans
from watcher.core.redaction.tokens import IN_CONTEXT, TOKEN
from watcher.core.text import MaskedText

PLACEHOLDER = "[secret]"
"""What stands in the masked text where a secret was."""

MIN_REPORTED_CHARS = 4
"""Shorter secrets are masked, but an answer is not refused for holding them: they are parts of ordinary words."""

_ORDINARY = frozenset(
    {
        "password",
        "passwd",
        "secret",
        "token",
        "test",
        "example",
        "admin",
        "root",
        "user",
        "guest",
        "pass",
        "changeme",
        "postgres",
    }
)
"""Masked like any other value, but an answer may use these words."""

Span = tuple[int, int]


def mask(text: str) -> MaskedText:
    """`text` with `PLACEHOLDER` in place of each secret, and the distinct secrets in order of appearance.

    The work is linear in the length of `text`. A private key block is reported line by line.
    """
    spans = [span for span in _merged(_spans(text)) if text[slice(*span)] != PLACEHOLDER]
    if not spans:
        return MaskedText(text)
    pieces: list[str] = []
    secrets: dict[str, None] = {}
    at = 0
    for start, end in spans:
        pieces += (text[at:start], PLACEHOLDER)
        secrets.update(dict.fromkeys(_reported(text[start:end])))
        at = end
    pieces.append(text[at:])
    return MaskedText("".join(pieces), tuple(secrets))


def looks_secret(text: str) -> bool:
    """Whether a title or recap holds what must not be kept: a placeholder, a secret, or a random-looking word.

    Stricter than `mask`, since a short text about work has no use for random strings; hashes and UUIDs pass.
    """
    if PLACEHOLDER in text:
        return True
    return next(_spans(text), None) is not None or any(is_random(word) for word in _WORD.findall(text))


_NEUTRAL = "[" + "." * (len(PLACEHOLDER) - 2) + "]"
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,40}[A-Za-z]")
"""Terminal colours: read as spaces, since their last letter would else be part of the word that follows."""
_WORD = re.compile(r"[A-Za-z0-9+/=_~-]{20,}+")


def _reported(secret: str) -> Iterator[str]:
    for line in re.split(r"\s*(?:\n|\\n)\s*", secret):
        if len(line) >= MIN_REPORTED_CHARS and line.lower() not in _ORDINARY and not line.startswith("-----"):
            yield line


def _merged(spans: Iterator[Span]) -> list[Span]:
    """Sorted, non-empty, disjoint spans that cover the same characters."""
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _spans(text: str) -> Iterator[Span]:
    """Where secrets stand, in no order and possibly overlapping."""
    # of the same length, so that places stay: a placeholder must not be read as a name that announces a secret
    text = _COLOUR.sub(lambda escape: " " * len(escape[0]), text).replace(PLACEHOLDER, _NEUTRAL)
    yield from _plain_spans(text)
    yield from encoded_spans(text, lambda decoded: next(_plain_spans(decoded), None) is not None)


def _plain_spans(text: str) -> Iterator[Span]:
    """Those that are not encoded."""
    for match in TOKEN.finditer(text):
        yield match.span()
    for match in IN_CONTEXT.finditer(text):
        yield match.span(match.lastgroup or 0)
    yield from private_key_spans(text)
    yield from header_spans(text)
    yield from url_spans(text)
    yield from command_line_spans(text)
    yield from assignment_spans(text)
    yield from prose_spans(text)
    yield from companion_spans(text)
    yield from manifest_spans(text)
    yield from pair_spans(text)
    yield from lone_spans(text)
