"""Which names announce a secret, and which values are one rather than a reference, a type or a placeholder."""

from __future__ import annotations

import re
from enum import Enum

_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_SECRET_TAIL = re.compile(
    r"(?:password|passwd|passphrase|passcode|pwd|secret|token|apikey|clientkeydata|"
    r"(?:api|access|secret|private|encryption|encrypt|signing|master|account|shared|storage|service|auth|session|"
    r"deploy|license|hmac|aes|crypto|admin|root)key)"
    # what people put after it: PASSWORD_PROD, TOKEN2, secretValue
    r"(?:value|base|raw|plain|text|base64|b64|old|new|current|prod|production|dev|stage|staging|test|live|[0-9]{1,3}){0,2}$"
)
_SECRET_ANYWHERE = re.compile(r"passw|passphrase|secret|token|apikey|accesskey|privatekey|credential|authkey")
_DESCRIBES = frozenset(
    {
        "id",
        "ids",
        "type",
        "name",
        "names",
        "path",
        "file",
        "url",
        "uri",
        "host",
        "hash",
        "digest",
        "sha",
        "length",
        "len",
        "size",
        "count",
        "counts",
        "limit",
        "max",
        "min",
        "header",
        "headers",
        "field",
        "fields",
        "version",
        "expires",
        "expiry",
        "expiration",
        "ttl",
        "policy",
        "prefix",
        "suffix",
        "label",
        "hint",
        "error",
        "errors",
    }
)
"""A last word that turns a secret's name into the name of something about it: `token_type`, `PASSWORD_MIN_LENGTH`."""

_NOT_VALUES = frozenset(
    {
        "none",
        "null",
        "nil",
        "true",
        "false",
        "undefined",
        "nan",
        "void",
        "string",
        "str",
        "bool",
        "boolean",
        "int",
        "integer",
        "number",
        "float",
        "any",
        "bytes",
        "object",
        "unknown",
        "never",
        "required",
        "optional",
        "missing",
        "empty",
        "unset",
        "self",
        "this",
        "await",
        "new",
        "not",
        "async",
        "function",
        "lambda",
        "return",
        "varchar",
        "text",
        "char",
        "secret",
        "secretstr",
        "token",
        "tokens",
        "header",
        "auth",
        "bearer",
        "basic",
        "yes",
        "no",
        "on",
        "off",
        "default",
        "prompt",
        "hidden",
        "redacted",
        "masked",
        "removed",
    }
)

_REFERENCE = re.compile(
    r"\$.*|%[A-Za-z_]\w*%|\$?\{\{[^{}]*\}\}|\{[\w.$()\[\]'\"-]{0,80}\}|<[^<>]*>|\[[^\[\]]*\]|[*•xX.…?_-]{3,}|\.\.\.|…"
    r"|(?i:your[-_ ]?[\w -]{0,60}|change[-_]?(?:me|it)|place-?holder|enter[-_ ][\w -]{0,60}|todo|fixme)"
    r"|[A-Za-z0-9_-]{0,16}(?:\.{3}|…|[xX*]{4,})|\$?\{\{|https?://.*",
    re.DOTALL,
)
_ALGORITHM = re.compile(
    r"(?:base|sha|md|utf|oauth|argon|ed|es|rs|hs|aes|rsa|http|ipv|pbkdf)-?[0-9]{1,5}\w{0,4}", re.IGNORECASE
)
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\](?:[\w .~-]+[/\\])*[\w .~-]*")
_AWS_SECRET_CHARS = 40
_DOTTED = re.compile(r"[A-Za-z_$]\w*(?:\??\.[A-Za-z_]\w*)+")
_LETTER = re.compile(r"[A-Za-z]")
_DIGIT = re.compile(r"[0-9]")
_MEASURE = re.compile(r"[0-9.]+-?(?:bits?|bytes?|px|em|ms|s|m|h|d|[kmgt]i?b|x|th|st|nd|rd|%)", re.IGNORECASE)


class Announces(Enum):
    """What a name says of its value."""

    SECRET = 2
    """The value is a secret unless it is a reference or a type."""
    MAYBE = 1
    """Some secret word is in it; the value decides."""
    NOTHING = 0


def announces(name: str) -> Announces:
    """What an identifier of any spelling (`DB_PASSWORD`, `apiKey`, `spring.datasource.password`) says of its value."""
    words = [word.lower() for word in _CAMEL.findall(name)]
    if not words:
        return Announces.NOTHING
    compact = "".join(words)
    if _SECRET_TAIL.search(compact):
        return Announces.SECRET
    if words[-1] in {"pass", "pat", "pw"} and (len(words) > 1 or name.isupper()):
        return Announces.SECRET
    if _SECRET_ANYWHERE.search(compact) and words[-1] not in _DESCRIBES:
        return Announces.MAYBE
    return Announces.NOTHING


def is_reference(value: str) -> bool:
    """Whether `value` is no secret itself: a variable, template, placeholder, type, path, URL or algorithm."""
    if not value or value.lower() in _NOT_VALUES or _REFERENCE.fullmatch(value) or _ALGORITHM.fullmatch(value):
        return True
    return _PATH.fullmatch(value) is not None and not (len(value) == _AWS_SECRET_CHARS and value.count("/") < 4)  # noqa: PLR2004


def is_dotted_name(value: str) -> bool:
    """Whether `value` reads as a member access such as `process.env.TOKEN`."""
    return _DOTTED.fullmatch(value) is not None


def is_mixed(value: str, *, digits: int = 1) -> bool:
    """Whether `value` holds a letter and at least `digits` digits and is no measure such as `2048-bit`."""
    return (
        _LETTER.search(value) is not None and len(_DIGIT.findall(value)) >= digits and _MEASURE.fullmatch(value) is None
    )


def is_random(value: str) -> bool:
    """Whether `value` looks drawn at random: at least 20 characters, both cases and three digits, no path."""
    return (
        len(value) >= 20  # noqa: PLR2004
        and is_mixed(value, digits=3)
        and value.lower() != value
        and value.upper() != value
        and "." not in value
        and not _PATH.fullmatch(value)
    )
