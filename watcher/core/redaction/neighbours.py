"""Secrets with no shape of their own that something nearby gives away: a key's id, a manifest, a name in a pair."""

from __future__ import annotations

import re
from collections.abc import Iterator

from watcher.core.redaction.names import Announces, announces, is_mixed, is_random, is_reference

Span = tuple[int, int]

_KEY_ID = re.compile(
    r"(?<![A-Za-z0-9])(?:(?P<aws>(?:AKIA|ASIA)[A-Z0-9]{16})|(?P<aliyun>LTAI[A-Za-z0-9]{12,24})"
    r"|(?P<tencent>AKID[A-Za-z0-9]{32})|(?P<twilio>AC[0-9a-f]{32}))(?![A-Za-z0-9])"
)
_COMPANIONS = {
    "aws": re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])"),
    "aliyun": re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9]{30}(?![A-Za-z0-9+/=])"),
    "tencent": re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9]{32}(?![A-Za-z0-9+/=])"),
    "twilio": re.compile(r"(?<![A-Za-z0-9])[0-9a-f]{32}(?![A-Za-z0-9])"),
}
_COMPANION_REACH_CHARS = 200
"""The id of a key and its secret stand together: in a file of credentials, in a CSV export, in a call."""


def companion_spans(text: str) -> Iterator[Span]:
    """The secret of a key whose public id stands right before it."""
    for key_id in _KEY_ID.finditer(text):
        issuer = key_id.lastgroup or ""
        for match in _COMPANIONS[issuer].finditer(text, key_id.end(), key_id.end() + _COMPANION_REACH_CHARS):
            if issuer == "twilio" or is_random(match[0]):
                yield match.span()
                break


_SECRET_KIND = re.compile(r"^[ \t]{0,8}kind:[ \t]{0,4}[\"']?Secret\b", re.MULTILINE)
_DATA = re.compile(r"([ \t]{0,40})(?:data|stringData):[ \t]{0,8}")
_ENTRY = re.compile(r"([ \t]{0,80})[\"']?[\w.-]{1,200}[\"']?:[ \t]{1,8}[\"']?(?P<value>[^\s\"'#|>{\[][^\s\"']{0,8192})")


def manifest_spans(text: str) -> Iterator[Span]:
    """Every value under `data:` and `stringData:` of a Kubernetes `Secret`, whatever its key is."""
    at = 0
    for document in re.split(r"(?m)(?=^---)", text) if "Secret" in text else ():
        if _SECRET_KIND.search(document):
            yield from ((at + start, at + end) for start, end in _data_values(document))
        at += len(document)


def _data_values(document: str) -> Iterator[Span]:
    at = 0
    indent = -1
    for line in document.splitlines(keepends=True):
        opened = _DATA.fullmatch(line.rstrip("\r\n"))
        entry = _ENTRY.match(line)
        if opened:
            indent = len(opened[1])
        elif indent >= 0 and entry and len(entry[1]) > indent:
            if not is_reference(entry["value"]):
                yield at + entry.start("value"), at + entry.end("value")
        elif line.strip() and len(line) - len(line.lstrip()) <= indent:
            indent = -1
        at += len(line)


_VALUE = r"(?P<value>[^\s\"'<>,]{3,4096}+)"
_NAME = r"(?P<name>[A-Za-z_][\w.-]{2,100}+)"
_IS = r"\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,3}[\"']?"
_THEN = r"\\{0,3}[\"']?[\s,;]{1,60}\\{0,3}[\"']?"
_PAIRS = (
    re.compile(rf"(?<![A-Za-z0-9_])(?:name|key|id){_IS}{_NAME}{_THEN}value{_IS}{_VALUE}", re.IGNORECASE),
    re.compile(rf"(?<![A-Za-z0-9_])value{_IS}{_VALUE}{_THEN}(?:name|key){_IS}{_NAME}", re.IGNORECASE),
    re.compile(rf"<key>{_NAME}</key>\s{{0,60}}<string>{_VALUE}<"),
)
_TWO_TEXTS = re.compile(rf"\([\"']{_NAME}[\"'],[ \t]{{0,4}}[\"'](?P<value>[^\s\"']{{3,256}}+)[\"']")
"""`define('DB_PASSWORD', '…')`, `setProperty("db.password", "…")`."""


def pair_spans(text: str) -> Iterator[Span]:
    """Values whose name stands beside them: `- name: DB_PASSWORD` / `value: …`, XML settings, property lists."""
    for pair in _PAIRS:
        for match in pair.finditer(text):
            value = match["value"].rstrip("}])")
            if announces(match["name"]) is Announces.SECRET and not is_reference(value):
                yield match.start("value"), match.start("value") + len(value)
    for match in _TWO_TEXTS.finditer(text):
        if (
            announces(match["name"]) is Announces.SECRET
            and is_mixed(match["value"])
            and not is_reference(match["value"])
        ):
            yield match.span("value")


_CALL = re.compile(
    r"(?:client|login|connect|auth|authenticate|authorize|api_?key|token|configure|secret)\([ \t]{0,4}[\"']"
    r"(?P<value>[\w-]{20,256}+)[\"'][ \t]{0,4}[,)]",
    re.IGNORECASE | re.ASCII,
)
_PGPASS = re.compile(
    r"^[\w.*-]{1,200}:(?:54[0-9]{2}|6432|\*):[^:\s]{1,100}:[^:\s]{1,100}:(?P<value>[^\s:]{3,256})$", re.MULTILINE
)
_SEED = re.compile(
    r"(?:(?:seed|recovery|backup|wallet)[ _-]?(?:phrase|words)|mnemonic|助记词)(?P<link>[^\n]{0,24}?)"
    r"(?<![a-z])(?P<value>[a-z]{3,8}(?:[ ,]{1,3}[a-z]{3,8}){11,23}+)(?![a-z])",
    re.IGNORECASE,
)
_NO_SEED = re.compile(r"\b(?:the|and|are|for|was|with|from|not|has|but|its|their|you|they)\b", re.IGNORECASE)
"""Words of a sentence that stand in no list of wallet words."""


def lone_spans(text: str) -> Iterator[Span]:
    """Random arguments of calls that log in, lines of `.pgpass`, the twelve to twenty-four words of a wallet."""
    for match in _CALL.finditer(text):
        if is_random(match["value"]):
            yield match.span("value")
    for match in _PGPASS.finditer(text):
        yield match.span("value")
    for match in _SEED.finditer(text):
        if _NO_SEED.search(match["value"]) is None:
            yield match.span("value")
