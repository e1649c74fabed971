"""From what a model said to the text that was asked for: thoughts removed, the one key taken out of JSON. Pure.

Every function is linear in its input, but for a bounded number of tries at JSON. What is left is raw: the sanitizer
(`core.sanitize`) judges it later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from watcher.core.text import without_surrogates

_MAX_JSON_TRIES: Final = 16
"""How many opening braces are tried: a text of nothing but braces must not cost quadratic time."""

_TAG: Final = re.compile(
    r"<\s{0,4}(/?)\s{0,4}(?:think|thinking|thought|thoughts|reasoning)\b[^<>]{0,64}>|\[(/?)THINK\]|◁(/?)think▷",
    re.IGNORECASE,
)
_HARMONY_MARK: Final = "<|channel|>"
_HARMONY_FINAL: Final = "<|channel|>final<|message|>"
_HARMONY_TOKEN: Final = re.compile(r"<\|[a-z_]{1,20}\|>")

_MACHINE_TEXT: Final = re.compile(r"(?:```\w{0,10}\s{0,8})?(?:\{|<tool_call>|<function\b)")

_WRAPPERS: Final = ("arguments", "parameters", "input")
"""Where a function call that came as text keeps what we asked for."""

_DECODER: Final = json.JSONDecoder(strict=False)
"""Small models put raw line breaks into strings."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text that was found. `closed` tells that its own end was seen, so that a cut answer is still a whole one."""

    text: str
    closed: bool = False
    thoughts: bool = False
    """Thoughts stood in the text and were removed."""


def extract(text: str, key: str | None) -> Extracted:
    """The answer in `text`: with a `key`, the value of that key in the JSON that the text holds, else the text itself.

    Thoughts are removed, also unclosed ones and those whose opening tag stands in the prompt template. JSON without the
    key is no answer.
    """
    text = without_surrogates(text)
    if key is not None:
        brace, tag = text.find("{"), _TAG.search(text)
        if brace >= 0 and (tag is None or brace < tag.start()):
            # A title may speak of thinking tags: inside of sound JSON they are text.
            value = _value_in(_parse_object(text, brace), key)
            if value is not None:
                return _clean_value(value, closed=True)
    said, thoughts = without_thoughts(text)
    if key is None:
        return Extracted(said, closed="</recap>" in said.lower(), thoughts=thoughts)
    found = _find_value(said, key)
    if found is not None:
        return Extracted(found[0].strip(), found[1], thoughts)
    return Extracted("" if _MACHINE_TEXT.match(said) else said, thoughts=thoughts)


def extract_argument(arguments: object, key: str) -> Extracted:
    """The answer in the arguments of a function call, which come as an object, as JSON text, or cut in its middle."""
    if isinstance(arguments, Mapping):
        value = _value_in(arguments, key)
        return Extracted("") if value is None else _clean_value(value, closed=True)
    if not isinstance(arguments, str):
        return Extracted("")
    found = _find_value(without_surrogates(arguments), key)
    if found is not None:
        return _clean_value(*found)
    return Extracted("") if "{" in arguments else _clean_value(arguments, closed=False)


def _clean_value(value: str, closed: bool) -> Extracted:
    """A value that was set apart by its format: only a thought at its very beginning is one."""
    value = without_surrogates(value).strip()
    if _TAG.match(value) is None:
        return Extracted(value, closed)
    said, _ = without_thoughts(value)
    return Extracted(said, closed, thoughts=True)


def without_thoughts(text: str) -> tuple[str, bool]:
    """`text` without thoughts, trimmed, and whether there were any."""
    if _HARMONY_MARK in text:
        _, final, said = text.rpartition(_HARMONY_FINAL)
        return (_HARMONY_TOKEN.sub("", said).strip() if final else ""), True
    kept: list[str] = []
    depth, start, seen = 0, 0, False
    for tag in _TAG.finditer(text):
        seen = True
        closes = any(tag.groups())
        if depth == 0:
            if closes:
                # The opening tag was part of the prompt: all before is thought.
                kept.clear()
            else:
                kept.append(text[start : tag.start()])
        depth = max(0, depth - 1) if closes else depth + 1
        if depth == 0:
            start = tag.end()
    if depth == 0:
        kept.append(text[start:])
    return "".join(kept).strip(), seen


def _find_value(text: str, key: str) -> tuple[str, bool] | None:
    """The value of `key` in the first JSON object of `text` that has it, in a broken one, or in a tag of that name."""
    position = -1
    for _ in range(_MAX_JSON_TRIES):
        position = text.find("{", position + 1)
        if position < 0:
            break
        value = _value_in(_parse_object(text, position), key)
        if value is not None:
            return value, True
    return _find_quoted(text, key) or _find_tagged(text, key)


def _parse_object(text: str, position: int = 0) -> object:
    try:
        parsed, _ = _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None
    return parsed


def _value_in(parsed: object, key: str) -> str | None:
    """The text under `key`, also inside of a function call that was written as JSON; None where there is none."""
    if not isinstance(parsed, Mapping):
        return None
    for name, value in parsed.items():
        if isinstance(name, str) and name.strip().lower() == key and isinstance(value, str):
            return value
    for wrapper in _WRAPPERS:
        inner = parsed.get(wrapper)
        value = _value_in(_parse_object(inner) if isinstance(inner, str) else inner, key)
        if value is not None:
            return value
    return None


def _find_quoted(text: str, key: str) -> tuple[str, bool] | None:
    """The value in JSON that is cut, or in an object written the way of Python or JavaScript."""
    start = re.search(
        rf"""(?:["']|[{{,]\s{{0,8}}){re.escape(key)}["']?\s{{0,8}}:\s{{0,8}}(["'])""", text, re.IGNORECASE
    )
    if start is None:
        return None
    quote = start[1]
    end = re.compile(rf"(?:[^{quote}\\]|\\.)*", re.DOTALL).match(text, start.end())
    raw = end[0] if end else ""
    closed = text.startswith(quote, start.end() + len(raw))
    if quote == "'":
        raw = raw.replace("\\'", "'").replace('"', '\\"')
    try:
        value = _DECODER.decode(f'"{raw}"')
    except ValueError:
        value = raw
    return str(value), closed


def _find_tagged(text: str, key: str) -> tuple[str, bool] | None:
    """The value in a function call written with tags: `<parameter=title>…</parameter>`, or in `<title>…</title>`."""
    for opening, closing in ((f"<parameter={key}>", "</parameter>"), (f"<{key}>", f"</{key}>")):
        _, found, rest = text.partition(opening)
        if found:
            value, closed, _ = rest.partition(closing)
            return value, bool(closed)
    return None
