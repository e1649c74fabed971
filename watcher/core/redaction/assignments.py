"""Assignments to secret-looking names, in the notations of shells, `.env`, YAML, JSON, INI, XML and source code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from watcher.core.redaction.names import Announces, announces, is_dotted_name, is_mixed, is_random, is_reference

Span = tuple[int, int]

_MAX_VALUE_CHARS = 4096
_ASSIGNMENT = re.compile(
    r"(?<![A-Za-z0-9_.$])(?<!\$\{)(?P<name>[A-Za-z_][\w.-]{2,100}+)(?P<close>\\{0,3}[\"'`]?\]?(?:\[\])?)"
    r"(?P<gap>[ \t]{0,8})(?P<op>:=|=>|={1,3}|!==?|:|>|(?<=[ \t])(?=[\"']))"
    r"(?P<space>[ \t]{0,8})@?(?P<quote>\\{0,3}[\"'`])?"
)
_BARE = re.compile(r"[^\s\"'`,;&<\\]{1,4096}+")
_BARE_SHELL = re.compile(r"[^\s\"'`;&|<>\\]{1,4096}+")
_ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}")
_CALL = re.compile(r"[A-Za-z_$][\w.$]*[(\[].*", re.DOTALL)
"""A call or an index: `getToken(user)`, `tokens[2]`."""
_CLOSERS = {")": "(", "]": "[", "}": "{", ">": "<"}
_MIN_QUOTED_CHARS = 3
_MIN_BARE_CHARS = 4
_MIN_CODE_CHARS = 8
_ONLY_QUOTED = frozenset({"pass", "pw"})
"""Names of passwords in code, but ordinary words elsewhere."""


def assignment_spans(text: str) -> Iterator[Span]:
    match = _ASSIGNMENT.search(text)
    while match is not None:
        at = match.end()
        span = _value_span(text, match)
        if span is not None and _is_secret_value(text, match, text[span[0] : span[1]]):
            yield span
            at = span[1]
        match = _ASSIGNMENT.search(text, at)


def _value_span(text: str, match: re.Match[str]) -> Span | None:
    """Where the value of an assignment stands, None where there is no assignment after all."""
    quote = match["quote"]
    if match["op"] == ">" and text[match.start() - 1 : match.start()] != "<":
        return None
    if not quote:
        return match.end(), _bare_end(text, match)
    opened_before = text[max(0, match.start() - len(quote)) : match.start()] == quote
    if opened_before and not match["close"]:
        return None  # the quote ends a text such as 'Password: '
    return match.end(), _quoted_end(text, match.end(), quote)


def _is_secret_value(text: str, match: re.Match[str], value: str) -> bool:
    name = match["name"]
    kind = announces(name)
    if name == "_auth" and match["op"] == "=":  # npm's `//registry/:_auth=`
        kind = Announces.SECRET
    if name.lower() in _ONLY_QUOTED and match["quote"] and is_mixed(value) and len(value) >= _MIN_CODE_CHARS:
        kind = Announces.SECRET
    if kind is Announces.NOTHING or is_reference(value) or _is_same_word(name, value):
        return False
    if is_random(value):
        return True
    if kind is Announces.MAYBE:
        return False
    if not match["op"]:  # `apiKey "…"`
        return is_mixed(value) and len(value) >= _MIN_CODE_CHARS
    return _is_quoted_secret(name, value) if match["quote"] else _is_bare_secret(text, match, value)


def _quoted_end(text: str, start: int, quote: str) -> int:
    """Where the quoted text ends: before the same quote, or at the end of the line when there is none."""
    limit = min(len(text), start + _MAX_VALUE_CHARS)
    newline = text.find("\n", start, limit)
    limit = limit if newline < 0 else newline
    end = text.find(quote, start, limit)
    while len(quote) == 1 and end > start and text[end - 1] == "\\":
        end = text.find(quote, end + 1, limit)
    return limit if end < 0 else end


def _bare_end(text: str, match: re.Match[str]) -> int:
    """Where an unquoted value ends: at white space or a separator, without closing brackets that belong outside."""
    shell = _ENVIRONMENT_NAME.fullmatch(match["name"]) is not None and match["op"] == "="
    found = (_BARE_SHELL if shell else _BARE).match(text, match.end())
    if found is None:
        return match.end()
    value = found[0]
    while value and value[-1] in _CLOSERS and value.count(value[-1]) > value.count(_CLOSERS[value[-1]]):
        value = value[:-1]
    return match.end() + len(value)


def _is_same_word(name: str, value: str) -> bool:
    """`password=password`, `apiKey: this.apiKey`: the value is the name again."""
    return value.lower().rsplit(".", maxsplit=1)[-1] == name.lower().rsplit(".", maxsplit=1)[-1]


def _is_quoted_secret(name: str, value: str) -> bool:
    """A literal beside a secret name; a sentence (a label, an error text) is one only beside a constant's name."""
    if " " not in value.strip():
        return len(value) >= _MIN_QUOTED_CHARS
    return _ENVIRONMENT_NAME.fullmatch(name) is not None or (is_mixed(value) and value.count(" ") < 3)  # noqa: PLR2004


def _is_bare_secret(text: str, match: re.Match[str], value: str) -> bool:
    """Whether an unquoted value beside a secret name is a literal (shell, YAML, INI, query) and not code."""
    if match["op"] not in {"=", ":", ":=", ">", "=>"}:
        return False
    after = text[match.end() + len(value) : match.end() + len(value) + 1]
    tight = match["op"] == "=" and not match["gap"] and not match["space"]
    constant = _ENVIRONMENT_NAME.fullmatch(match["name"]) is not None
    if _CALL.fullmatch(value + after) and not (constant and tight and value[-1].isalnum()):
        return False
    if constant:
        return match["op"] == "=" or len(value) >= _MIN_BARE_CHARS
    if is_dotted_name(value) and not is_mixed(value, digits=3):
        return False
    if match["op"] == "=" and not tight:  # source code or INI
        return len(value) >= _MIN_CODE_CHARS and is_mixed(value)
    if len(value) < _MIN_BARE_CHARS:
        return False
    if re.search(r"[0-9!#%^~@$]", value):
        return True
    if match["op"] == "=":  # a query, a flag, a properties file; but not a keyword argument
        return after not in {")", ","} and text[match.start() - 1 : match.start()] not in {"(", ","}
    return match["op"] == ">" or _is_alone_on_line(text, match, value)


def _is_alone_on_line(text: str, match: re.Match[str], value: str) -> bool:
    """`password: hunter` as YAML has it: nothing else on its line."""
    before = text[max(0, match.start() - 80) : match.start()].rsplit("\n", maxsplit=1)[-1]
    after = text[match.end() + len(value) : match.end() + len(value) + 2]
    return not before.strip(" \t-\"'") and (not after or after[0] in "\r\n")
