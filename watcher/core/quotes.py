"""Quotation marks of all kinds: taken off where they wrap a text, never left without their partner."""

from __future__ import annotations

import re

_PAIRS = {
    '"': '"',
    "'": "'",
    "`": "`",
    "“": "”",
    "”": "”",
    "„": "“",
    "‟": "”",
    "‘": "’",
    "‚": "‘",
    "«": "»",
    "»": "«",
    "‹": "›",
    "「": "」",
    "『": "』",
    "《": "》",
    "〈": "〉",
    "〝": "〞",
    "＂": "＂",
    "＇": "＇",
    "´": "´",
}
_FAMILIES = ('"＂', "“”„‟", "«»", "‹›", "「」", "『』", "《》", "〈〉", "〝〞", "`´", "'‘’‚‛＇")
_FAMILY = {mark: family for family in _FAMILIES for mark in family}
_APOSTROPHES = _FAMILIES[-1]
_LONE_APOSTROPHE = re.compile(rf"(?<!\w)[{_APOSTROPHES}]|[{_APOSTROPHES}](?!\w)")
_CLOSING_SINGLE = re.compile(r"’(?!\w)")
_LAYERS = 4


def without_wrapping_quotes(text: str) -> str:
    """`text` without the pairs of quotes, at most four deep, that hold all of it."""
    for _ in range(_LAYERS):
        text = text.strip()
        if not text[1:] or _PAIRS.get(text[0]) != text[-1]:
            break
        inside = text[1:-1]
        if any(mark in inside for mark in _FAMILY[text[0]]):
            break
        text = inside
    return text


def without_outer_quotes(text: str) -> str:
    """`text` without wrapping quotes and without any mark of a kind that stands at either end or lacks its partner.

    Apostrophes inside words stay.
    """
    text = without_wrapping_quotes(text)
    outer = {_FAMILY.get(text[0]), _FAMILY.get(text[-1])} if text else set()
    for family in _FAMILIES:
        if family in outer or (family != _APOSTROPHES and not _is_balanced(text, family)):
            text = _without(text, family)
    if text.count("‘") > len(_CLOSING_SINGLE.findall(text)):
        text = text.replace("‘", "")
    return text.strip()


def _is_balanced(text: str, family: str) -> bool:
    return sum(text.count(mark) for mark in family) % 2 == 0


def _without(text: str, family: str) -> str:
    if family == _APOSTROPHES:
        return _LONE_APOSTROPHE.sub("", text)
    return text.translate(dict.fromkeys(map(ord, family)))
