"""Base64 text that holds a secret: a `.env` file, a key block or credentials, encoded once."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator

Span = tuple[int, int]

_RUN = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/]{4}){4,}+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?(?![\w+/=-])", re.ASCII
)
_AUTH = re.compile(r"[\"']auth\\{0,3}[\"'][ \t]{0,4}:[ \t]{0,4}\\{0,3}[\"']")
"""Docker's `config.json` keeps `user:password` like this."""
_AUTH_REACH_CHARS = 24
_TEXT = re.compile(r"[\t\r\n -~\x80-\U0010ffff]*")


def encoded_spans(text: str, holds_secret: Callable[[str], bool]) -> Iterator[Span]:
    """Runs of base64 whose text holds a secret, as `holds_secret` judges it; images and hashes are no text."""
    for run in _RUN.finditer(text):
        decoded = _decoded(run[0])
        if decoded is None:
            continue
        before = text[max(0, run.start() - _AUTH_REACH_CHARS) : run.start()]
        is_login = ":" in decoded and any(match.end() == len(before) for match in _AUTH.finditer(before))
        if is_login or holds_secret(decoded):
            yield run.span()


def _decoded(run: str) -> str | None:
    try:
        decoded = base64.b64decode(run, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return decoded if _TEXT.fullmatch(decoded) else None
