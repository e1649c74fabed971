"""Places where credentials stand: HTTP headers, URLs, and sentences that tell a password."""

from __future__ import annotations

import re
from collections.abc import Iterator

from watcher.core.redaction.names import is_mixed, is_reference

Span = tuple[int, int]

_AUTHORIZATION = re.compile(
    r"authorization\\{0,3}[\"'`]?\]?[ \t]{0,8}[:=,(]{1,2}[ \t]{0,8}(?:\\{0,3}[\"'`]|[fb]{1,2}[\"'])?"
    r"(?:(?P<scheme>[A-Za-z][\w-]{2,20})[ \t]{1,4})?(?P<value>[^\s\"'`,;\\]{3,}+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?<![A-Za-z0-9])bearer[ \t]{1,4}(?P<value>[\w.~+/=-]{12,}+)", re.IGNORECASE)
_COOKIE = re.compile(
    r"(?<![A-Za-z0-9])cookie\\{0,3}[\"'`]?[ \t]{0,4}[:,][ \t]{0,4}\\{0,3}[\"'`]?[\w.%$-]{1,80}="
    r"(?P<value>[^\r\n\"'`\\]{1,4096})",
    re.IGNORECASE,
)
_SCHEMES = frozenset(
    {
        "bearer",
        "basic",
        "token",
        "api-token",
        "apitoken",
        "apikey",
        "api-key",
        "key",
        "bot",
        "negotiate",
        "ntlm",
        "sso-key",
        "jwt",
    }
)
_WITH_PARAMETERS = frozenset({"digest", "oauth", "hawk", "signature", "mac", "aws4-hmac-sha256", "sharedkey"})
_REST_OF_LINE = re.compile(r"[^\r\n]{0,4096}")


def header_spans(text: str) -> Iterator[Span]:
    for match in _AUTHORIZATION.finditer(text):
        start, end = match.span("value")
        scheme = (match["scheme"] or "").lower()
        if scheme in _WITH_PARAMETERS:
            rest = _REST_OF_LINE.match(text, start)
            yield start, rest.end() if rest else end
        elif not _is_template(match["value"]) and (scheme in _SCHEMES or is_mixed(match["value"])):
            yield start, end
    for match in _BEARER.finditer(text):
        if is_mixed(match["value"]):
            yield match.span("value")
    for match in _COOKIE.finditer(text):
        yield match.span("value")


def _is_template(value: str) -> bool:
    """Whether a header's value is a variable or starts a placeholder of several words (`<your token>`)."""
    return value[0] in "<{[$" or is_reference(value)


_URL_PASSWORD = re.compile(r"://[^\s/:@?#\"'<>`]{0,128}+:(?P<value>[^\s/\"'<>`]{1,256})@")
_URL_TOKEN = re.compile(r"://(?P<value>[A-Za-z0-9_-]{20,256}+)@")
"""A token in place of the user, as `git+https://` and Sentry's addresses have it."""
_ORACLE = re.compile(r"oracle:thin:[^/\s@]{1,64}/(?P<value>[^\s/@]{3,256}+)@")


def url_spans(text: str) -> Iterator[Span]:
    for match in _URL_PASSWORD.finditer(text):
        if not is_reference(match["value"]):
            yield match.span("value")
    for match in _URL_TOKEN.finditer(text):
        if is_mixed(match["value"], digits=3):
            yield match.span("value")
    for match in _ORACLE.finditer(text):
        if not is_reference(match["value"]):
            yield match.span("value")


_SAID = re.compile(
    r"(?:(?P<password>password|passwd|passphrase|passcode|密码|口令|パスワード|비밀번호|пароль|passwort|kennwort|contraseña|"
    r"mot de passe|senha)|(?:api|access|secret|private|auth)[ -](?:key|token)|token|secret|密钥|令牌|トークン|токен)"
    r"(?P<link>[ \t]{0,4}(?:is|was|to|of|[:=：]|是|为|為|は|는|은|가|이|ist|lautet|est|es|é)?[ \t:：]{0,4})"
    # looked at, not consumed: in "the secret access key is …" the first word after `secret` is the next keyword
    r"(?=[\"'“「`]?(?P<value>[^\s\"'“”「」`，。、；()<>]{6,256}))",
    re.IGNORECASE,
)
_LOGIN = re.compile(
    r"(?:log(?:ged)?[ -]?in|sign(?:ed)?[ -]?in|credentials?|creds|账号|帐号|登录|用户名?密码)[^\n/]{0,24}?"
    r"(?:with|as|are|is|using|是|为|[:：=])[ \t]{0,2}[\w.@+-]{2,60}[ \t]?/[ \t]?"
    r"(?P<value>[^\s/\"'，。、)]{6,64}+)(?!/)",
    re.IGNORECASE,
)
_USER_THEN = re.compile(
    r"(?:user(?:name)?|login|e-?mail|account|账号|帐号|用户名?)[\"']?[ \t]{0,3}[:=：]?[ \t]{0,3}"
    r"[^\s,，:=：]{1,60}[\s,，;/]{1,6}"
    r"(?:pass(?:word)?|pw|pwd|密码|口令)[ \t]{0,3}[:=：]?[ \t]{0,3}(?P<value>[^\s\"'，。、)]{4,64}+)",
    re.IGNORECASE,
)
_FILE_ENDING = re.compile(r".*\.[A-Za-z]{1,5}")
_MIN_UNLINKED_CHARS = 8
_PLAIN_VALUE = re.compile(r"[\w.+/=~-]+", re.ASCII)


def prose_spans(text: str) -> Iterator[Span]:
    for match in _SAID.finditer(text):
        if not match["link"]:
            continue
        value = match["value"].rstrip(".,:;!?")
        start, end = match.span("value")
        keyword = text[match.start() : match.start("link")]
        if text[end : end + 1] in {"(", "["} or ("=" in match["link"] and keyword.isascii() and keyword.isalpha()):
            continue  # code, or an assignment, which has rules of its own
        if is_reference(value) or not is_mixed(value):
            continue
        if match["link"].strip(" \t"):
            if match["password"] or is_mixed(value, digits=3) or not _PLAIN_VALUE.fullmatch(value):
                yield start, start + len(value)
        elif len(value) >= _MIN_UNLINKED_CHARS and is_mixed(value, digits=3) and _PLAIN_VALUE.fullmatch(value):
            yield start, start + len(value)
    for pattern in (_LOGIN, _USER_THEN):
        for match in pattern.finditer(text):
            value = match["value"].rstrip(".,:;!?")
            if is_mixed(value) and not is_reference(value) and not _FILE_ENDING.fullmatch(value):
                yield match.start("value"), match.start("value") + len(value)
