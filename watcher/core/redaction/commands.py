"""Passwords on command lines and in SQL: after the flags of known programs, after flags that name a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator

from watcher.core.redaction.names import Announces, announces, is_mixed, is_reference

Span = tuple[int, int]

_CURL_USER = re.compile(
    r"(?<![\w-])(?:-u|--user|--proxy-user)(?:=|[ \t]{0,4})\\{0,3}[\"']?[^\s:\"'$<{\\]{0,100}+:"
    r"[\"']?(?P<value>[^\s\"'\\]{3,256}+)"
)
_CURL_REACH_CHARS = 1000

_GAP = r"(?:[ \t]+|[ \t]{0,8}\\\r?\n[ \t]{0,40})"
"""Between two arguments, also where the line is continued."""
_WORDS = rf"(?:{_GAP}[^\s]{{1,80}}+){{0,8}}{_GAP}"
"""From a program to one of its arguments."""
_PASSWORD_FLAG = re.compile(
    r"(?<![\w-])(?:sshpass[ \t]{1,4}-p[ \t]{0,4}"
    rf"|mysql(?:dump|admin|import)?{_WORDS}-p"
    rf"|redis-cli{_WORDS}-a[ \t]{{1,4}}"
    r"|-pass(?:in|out)?[ \t]{1,4}pass:"
    r"|(?:(?:docker|podman|nerdctl|oras|az|helm[ \t]+registry)[ \t]+login|twine[ \t]+upload|mongo(?:sh|dump|restore)?)"
    rf"{_WORDS}-p[ \t]{{1,4}}"
    rf"|ldap(?:search|add|modify|delete|passwd|whoami|compare){_WORDS}-w[ \t]{{1,4}}"
    rf"|(?:(?:un)?zip|sqlcmd|osql|bcp){_WORDS}-P[ \t]{{0,4}}|7z[az]?{_WORDS}-p"
    rf"|openssl[ \t]+enc{_WORDS}-k[ \t]{{1,4}}"
    rf"|(?:https?|xh){_WORDS}(?:-a|--auth)[= \t]{{1,4}}[^\s:]{{1,80}}:"
    r"|htpasswd[ \t]+-[A-Za-z]{0,4}b[A-Za-z]{0,4}[ \t]+[^\s]{1,200}[ \t]+[^\s]{1,80}[ \t]+"
    rf"|net[ \t]+use{_WORDS}/user:[^\s]{{1,80}}[ \t]+"
    rf"|gh[ \t]+secret[ \t]+set{_WORDS}(?:-b|--body)[= \t]{{1,4}}|--secret-string[= \t]{{1,4}}"
    rf"|--type{_GAP}SecureString{_WORDS}--value[= \t]{{1,4}}"
    r"|ConvertTo-SecureString(?:[ \t]+-String)?[ \t]+"
    r"|--from-literal[= \t]{1,2}[\"']?[\w.-]{1,200}="
    r")[\"']?(?P<value>[^\s\"']{3,256}+)"
)
_PIPED = re.compile(
    r"(?<![\w-])echo[ \t]{1,4}(?:-n[ \t]{1,4})?[\"']?"
    r"(?:(?P<sudo>[^\s\"'|]{3,256}+)[\"']?[ \t]{0,4}\|[ \t]{0,4}sudo[ \t]{1,4}-S"
    r"|[\w.-]{1,64}:(?P<chpasswd>[^\s\"'|]{3,256}+)[\"']?[ \t]{0,4}\|[ \t]{0,4}(?:sudo[ \t]{1,4})?chpasswd)"
)
_SQLPLUS = re.compile(
    r"(?<![\w-])sqlplus(?:[ \t]+-\w{1,10})?[ \t]+[\"']?[\w.$#-]{1,64}/[\"']?(?P<value>[^\s\"'@]{3,256}+)"
)
_FLAG = re.compile(
    r"(?<![\w-])-{1,2}(?P<name>[A-Za-z][\w-]{1,60}+)[ \t]{1,4}(?P<quote>[\"']?)(?P<value>[^\s\"'`-][^\s\"'`]{3,}+)"
)
_PROSE = re.compile(
    r"(?:flags?|options?|arguments?|parameters?|settings?|values?|file|prompt|fields?|input|from|with|when|that|this"
    r"|should|does|doesn't|must|will|would|cannot|can't|isn't|instead|because|then|than|into|only|also|being|have|been"
    r"|which|where|what|there|here|they|after|before|without|works?|fails?|missing|empty)[.,:;!?)]*",
    re.IGNORECASE,
)
"""What follows a flag in a sentence about it."""
_SET = re.compile(
    r"(?<![\w-])(?:set(?:[ \t]-[A-Za-z]{1,4}){0,3}|setenv|setx|ENV|ARG|login[ \t]+[^\s]{1,80}+)[ \t]{1,4}"
    r"(?P<name>[A-Za-z_]\w{2,60}+)[ \t]{1,4}[\"']?(?!-)(?P<value>[^\s\"'`=]{3,}+)"
)
_MOUNT = re.compile(r"(?<![\w-])(?:user(?:name)?|uid)=[^\s,=]{1,80},(?:password|pass)=(?P<value>[^\s,]{3,256}+)")
_SQL = re.compile(
    r"(?<![A-Za-z])(?:identified(?:[ \t]+with[ \t]+[\w'\"]{1,40})?[ \t]+by|(?:with|encrypted)[ \t]+password)[ \t]{1,4}"
    r"(?P<quote>[\"'])(?P<value>[^\"'\n]{3,256})(?P=quote)",
    re.IGNORECASE,
)


def command_line_spans(text: str) -> Iterator[Span]:
    for match in _CURL_USER.finditer(text):
        in_curl = text.rfind("curl", max(0, match.start() - _CURL_REACH_CHARS), match.start()) >= 0
        if in_curl and not is_reference(match["value"]):
            yield match.span("value")
    for pattern in (_PASSWORD_FLAG, _SQLPLUS, _MOUNT, _SQL):
        for match in pattern.finditer(text):
            if not is_reference(match["value"]):
                yield match.span("value")
    for match in _PIPED.finditer(text):
        if not is_reference(match[match.lastgroup or 0]):
            yield match.span(match.lastgroup or 0)
    for match in _FLAG.finditer(text):
        if announces(match["name"]) is Announces.SECRET and _is_flag_value(match["name"], match["value"]):
            yield match.span("value")
    for match in _SET.finditer(text):
        if announces(match["name"]) is Announces.SECRET and not is_reference(match["value"]):
            yield match.span("value")


def _is_flag_value(name: str, value: str) -> bool:
    """A mixed word; after a flag for passwords, any word that does not go on with a sentence."""
    if is_reference(value):
        return False
    is_word = _PROSE.fullmatch(value) is not None or not value[-1].isalnum()
    return is_mixed(value) or ("passw" in name.lower() and not is_word)
