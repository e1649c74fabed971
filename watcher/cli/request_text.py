"""`--show-request`: a request to the text model as text, with everything in it but the secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from watcher.core.secret import MASK
from watcher.edge.text_model.endpoint import HttpRequest

_SECRET_NAME = re.compile(r"key|token|secret|password|auth|cookie|credential|session", re.IGNORECASE)
_SCHEME = re.compile(r"(?:Bearer|Basic|Token) ", re.IGNORECASE)
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_MIN_SECRET_CHARS: Final = 4


def request_lines(request: HttpRequest, key: str, *, as_ascii: bool = False) -> Iterator[str]:
    """Method and address, headers, an empty line, the body as indented JSON. `key` is the API key, "" without one."""
    yield f"POST {_address(request.url, key)}"
    for name, value in request.headers:
        yield f"{name}: {_header(name, value, key)}"
    yield ""
    body = json.dumps(_hidden(json.loads(request.body), key), indent=2, ensure_ascii=as_ascii)
    # In JSON these characters stand in strings alone, where an escape means the same and moves no cursor.
    yield from _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", body).split("\n")


def _header(name: str, value: str, key: str) -> str:
    if not _SECRET_NAME.search(name):
        return _without(value, key)
    scheme = _SCHEME.match(value)
    return (scheme[0] if scheme else "") + MASK


def _address(url: str, key: str) -> str:
    parts = urlsplit(url)
    pairs = [
        f"{quote(name)}={MASK if _SECRET_NAME.search(name) else quote(_without(value, key), safe='*')}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
    return _without(SplitResult(parts.scheme, netloc, parts.path, "&".join(pairs), "").geturl(), key)


def _hidden(value: object, key: str) -> object:
    """The body without the key, and without texts under a name that promises a secret (`extra_body` may hold some)."""
    if isinstance(value, str):
        return _without(value, key)
    if isinstance(value, list):
        return [_hidden(each, key) for each in value]
    if isinstance(value, dict):
        return {
            name: MASK if isinstance(each, str) and _SECRET_NAME.search(name) else _hidden(each, key)
            for name, each in value.items()
        }
    return value


def _without(text: str, key: str) -> str:
    return text.replace(key, MASK) if len(key) >= _MIN_SECRET_CHARS else text
