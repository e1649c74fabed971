"""Measures and cuts of text in UTF-16 units, the unit in which Qwen Code counts (contract 6.2), and masked text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

_FIRST_ASTRAL = 0x10000
_JOINER = "\u200d"
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))


@dataclass(frozen=True, slots=True)
class MaskedText:
    """A text that may leave the machine, and the secrets that were taken out of it (never logged, never stored)."""

    text: str
    secrets: tuple[str, ...] = ()


Mask = Callable[[str], MaskedText]
"""Takes the secrets out of a text of bounded length."""


def unmasked(text: str) -> MaskedText:
    """The mask of a user who switched masking off: the text as it is."""
    return MaskedText(text)


def without_surrogates(text: str) -> str:
    """`text` without lone surrogates; two halves that stand side by side become the character that they spell."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


def utf16_len(text: str) -> int:
    """The length of `text` in UTF-16 units, as JavaScript counts it."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_head(text: str, units: int) -> str:
    """The longest prefix of at most `units` UTF-16 units that splits no character."""
    head = text[: max(units, 0)]
    excess = utf16_len(head) - units
    end = len(head)
    while excess > 0:
        end -= 1
        excess -= 2 if ord(head[end]) >= _FIRST_ASTRAL else 1
    return head[:end]


def utf16_tail(text: str, units: int) -> str:
    """The longest suffix of at most `units` UTF-16 units that splits no character."""
    tail = text[-units:] if units > 0 else ""
    excess = utf16_len(tail) - units
    start = 0
    while excess > 0:
        excess -= 2 if ord(tail[start]) >= _FIRST_ASTRAL else 1
        start += 1
    return tail[start:]


def utf16_cut_at_word(text: str, units: int) -> str:
    """`text`, or when longer than `units` UTF-16 units its head, cut after a whole word and stripped.

    A head that is one single word is cut where the limit falls, but not inside of what is seen as one character.
    """
    if utf16_len(text) <= units:
        return text
    head = utf16_head(text, units)
    if not text[len(head)].isspace():
        words = head.rsplit(maxsplit=1)
        head = words[0] if len(words) > 1 else _whole_characters(head, text[len(head)])
    return head.strip()


def _whole_characters(head: str, after: str) -> str:
    """`head` without a last character of which `after`, the next code point, is still a part."""
    while head and (_extends(after) or head[-1] == _JOINER or _splits_flag(head, after)):
        head, after = head[:-1], head[-1]
    return head


def _extends(character: str) -> bool:
    """Whether it changes the character before it: a combining mark, a joiner, a variation, a skin colour."""
    return unicodedata.category(character).startswith("M") or character == _JOINER or "🏻" <= character <= "🏿"


def _splits_flag(head: str, after: str) -> bool:
    """Whether the cut falls between the two letters of a flag."""
    letters = len(head) - len(head.rstrip(_FLAG_LETTERS))
    return after in _FLAG_LETTERS and letters % 2 == 1
