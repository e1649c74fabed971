"""Private key blocks (PEM, OpenSSH, PGP): whole, unfinished, and cut at the front."""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

_KEY_EDGE = re.compile(r"-----(?P<side>BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_MAX_KEY_BLOCK_CHARS = 32 * 1024
_NEWLINE = r"(?:\r?\n|\\r\\n|\\n)"
_KEY_LINE = (
    r"[ \t>|#*]{0,8}(?:[A-Za-z0-9+/=]{8,}+|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset):[^\r\n\\]{0,200}+|)"
)
_KEY_LINES = re.compile(rf"(?:{_NEWLINE}{_KEY_LINE})*+")
_LAST_LINES = re.compile(r"[ \t>|#*]{0,8}[A-Za-z0-9+/=]*")
"""The last line of a key may be short; PGP puts a checksum after it."""
_FULL_LINE = re.compile(r"[ \t>|#*]{0,8}(?:[A-Za-z0-9+/=]{16,}|)")
_SHORT_LINES = 2


def private_key_spans(text: str) -> Iterator[Span]:
    """Key blocks with both edges; those whose end is missing; and what stands before a lone end (a cut text)."""
    begin = -1
    last = 0
    for edge in _KEY_EDGE.finditer(text):
        if edge["side"] == "BEGIN":
            if begin >= 0:
                yield _unfinished(text, begin)
            begin = edge.start()
            continue
        if begin >= 0 and edge.start() - begin <= _MAX_KEY_BLOCK_CHARS:
            yield begin, edge.end()
        else:
            if begin >= 0:
                yield _unfinished(text, begin)
            yield _key_lines_before(text, edge.start(), last), edge.end()
        begin = -1
        last = edge.end()
    if begin >= 0:
        yield _unfinished(text, begin)


def _unfinished(text: str, begin: int) -> Span:
    head_end = text.index("-----", begin + 5) + 5
    lines = _KEY_LINES.match(text, head_end)
    end = lines.end() if lines else head_end
    return begin, begin + len(text[begin:end].rstrip())


def _key_lines_before(text: str, end: int, floor: int) -> int:
    """Where the run of base64 lines that ends at `end` starts, not before `floor`."""
    start = end
    lines = 0
    while start > floor:
        escaped = text.startswith("\\n", start - 2)
        line_end = start - (2 if escaped else 1)
        if not escaped and text[line_end] != "\n":
            return start
        newline = text.rfind("\n", floor, line_end)
        escaped_newline = text.rfind("\\n", floor, line_end)
        line_start = max(newline + 1, escaped_newline + 2 if escaped_newline >= 0 else 0, floor)
        lines += 1
        if not (_LAST_LINES if lines <= _SHORT_LINES else _FULL_LINE).fullmatch(text, line_start, line_end):
            return start
        start = line_start
    return start
