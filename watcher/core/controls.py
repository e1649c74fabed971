"""Terminal control sequences and invisible characters, taken out of text that was written by others.

Sequences go as a whole, before single control bytes do: the other order leaves residue such as ``[31m`` behind. Residue
that arrives without its escape byte is taken out as well, where it cannot be mistaken for text (``array[0]`` stays).
Every pattern is linear in its input.
"""

from __future__ import annotations

import re

from watcher.core.text import without_surrogates

_STRING_BODY = r"[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
_STYLE = re.compile(r"(?:\x1b\[|\x9b)[\d;:]*m")
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI, also one that is cut off
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f]){_STRING_BODY}"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_BREAK = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2800]")  # the last is a blank that is no space

_CLOSED = r"(?![^\[\]]{0,40}\])"  # not "[5m]" or "[3D model]"
_RESIDUE = re.compile(
    r"(?:\\(?:x1[bB]|u001[bB]|0?33|e)|\^\[)(?=[\[\]])"  # a written-out escape byte
    rf"|\[(?:\d{{1,3}}(?:[;:]\d{{0,3}})*m|m(?!\w)){_CLOSED}"
    rf"|\[\d{{1,3}}(?:;\d{{1,3}})*[A-HJKSTf]{_CLOSED}"
    r"|\[\?\d{1,4}(?:;\d{1,4})*[hl]"
    r"|\][0-2];"  # a window title: what follows is text
    r"|\]8;[^;\s]*;\S*"
    r"|\]\d{1,4};\S*"
)
_RESIDUE_ROUNDS = 3

_MARKS = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_STACKED = re.compile(rf"({_MARKS}{{3}}){_MARKS}+")
"""More marks on one letter than any language puts there; a pile of them covers the lines above and below."""

_EMOJI = "\u00a9\u00ae\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffc\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    r"\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]"  # private use, and no characters at all
    rf"|(?<![{_EMOJI}0-9#*])[\ufe0e\ufe0f]"
    # A zero-width joiner stays only between two emoji.
    rf"|\u200d(?:(?<![{_EMOJI}]\u200d)(?<![{_EMOJI}]\ufe0f\u200d)|(?![{_EMOJI}]))"
)


def clean_lines(text: str) -> str:
    """`text` without escape sequences, their residue, controls, bidirectional and invisible characters.

    Line structure stays: every kind of line break becomes ``\\n``, other controls become a space.
    """
    text = _LINE_BREAK.sub("\n", without_surrogates(text))
    text = _STYLE.sub("", text)
    text = _SEQUENCE.sub(" ", text)
    text = _CONTROL.sub(" ", text)
    text = _STACKED.sub(r"\1", _INVISIBLE.sub("", text))
    return _without_residue(text)


def printable(text: str) -> str:
    """`text` as one line that is safe to print on a terminal, whitespace collapsed; may be empty.

    For everything shown that somebody else wrote: titles, prompts, paths, recaps.
    """
    return " ".join(clean_lines(text).split())


def _without_residue(text: str) -> str:
    if "[" not in text and "]" not in text:
        return text
    for _ in range(_RESIDUE_ROUNDS):
        cleaned = _RESIDUE.sub("", text)
        if cleaned == text:
            return text
        text = cleaned
    return re.sub(r"[\[\]]", " ", text)  # nested on purpose
