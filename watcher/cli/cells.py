"""Text measured in terminal cells: CJK and emoji take two. For what people look at; pipes get text as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rich.cells import get_character_cell_size

from watcher.core.controls import printable

ELLIPSIS: Final = "…"
_JOINERS = re.compile("[\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")
_FLAGS = re.compile("[\U0001f1e6-\U0001f1ff]")
_FIRST_FLAG_LETTER: Final = 0x1F1E6
_WORD = re.compile(r"\s+|[^\s\u1100-\U0010ffff]+|\S")


def plain(text: str) -> str:
    """`text` as one safe line whose width every terminal agrees on.

    Joined emoji, skin tones and flags are one picture on some terminals and several on others; they are taken apart.
    """
    text = printable(text)
    if text.isascii():
        return text
    return _FLAGS.sub(lambda found: chr(ord(found[0]) - _FIRST_FLAG_LETTER + ord("A")), _JOINERS.sub("", text))


def width(text: str) -> int:
    """The cells that `text`, as `plain` gives it, takes."""
    return len(text) if text.isascii() else sum(map(get_character_cell_size, text))


def cut(text: str, cells: int) -> str:
    """`text` in at most `cells` cells, with an ellipsis where something is missing."""
    if width(text) <= cells:
        return text
    kept, used = "", 0
    for character in text:
        used += get_character_cell_size(character)
        if used > cells - 1:
            break
        kept += character
    return kept.rstrip() + ELLIPSIS if cells > 0 else ""


def wrap(text: str, cells: int) -> list[str]:
    """`text` in lines of at most `cells` cells, broken between words, or CJK characters; a longer word is split."""
    lines: list[str] = []
    line, used = "", 0
    for piece in _pieces(text, cells):
        size = width(piece)
        if used + size > cells and not piece.isspace():
            lines.append(line.rstrip())
            line, used = "", 0
        if line or not piece.isspace():
            line, used = line + piece, used + size
    return [*lines, line.rstrip()]


def _pieces(text: str, cells: int) -> Iterator[str]:
    for found in _WORD.finditer(text):
        word = found[0]
        if word.isspace():
            yield " "
            continue
        while width(word) > cells:
            yield word[:cells]
            word = word[cells:]
        yield word
