"""What models wrap around an answer, whatever it was for: thinking, JSON, code fences, markup, emphasis, brackets.

Every function is pure, never raises, and takes time linear in its input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from watcher.core.phrases import PLACEHOLDER

_THINKING_TAG = re.compile(
    r"[<◁](/?)(?:think|thinking|thought|thoughts|reasoning)\b[^<>▷\n]{0,80}(?:[>▷]|$)", re.IGNORECASE
)
_CHANNEL = "<|message|>"
_BARE_ANALYSIS = re.compile(r"\s*analysis(?=[A-Z\"'])")
_BARE_FINAL = "assistantfinal"
"""What is left of the channels of gpt-oss where a server drops its special tokens."""
_TEMPLATE_TOKEN = re.compile(r"<\|[^<>|\n]{1,40}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>")
_HTML_TAG = re.compile(
    r"</?(?:a|answer|b|big|blockquote|body|br|center|code|conversation(?:-data)*|dd|div|dl|dt|em|font|h[1-6]|head|hr|html|i|kbd|li|mark|ol|output"
    r"|p|pre|recap|response|result|s|small|span|strong|sub|summary|sup|table|tbody|td|th|title|tr|tt|u|ul)"
    r"(?:\s[^<>]{0,300})?/?>",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<!--(?:[^-]|-(?!->)){0,300}+(?:-->)?")
_ACTIVE_TAG = re.compile(
    # a component such as <Link> is none
    r"<\s*/?\s*(?-i:(?!(?:Link|Form|Input|Video|Audio|Style|Object)\s?/?>))(?:script|style|iframe|object|embed|img|svg|link|meta|form|input|video|audio)\b"
    r"|<!doctype\b|<[a-z][\w-]{0,30}\s[^<>]{0,300}\bon[a-z]{3,20}\s?=",
    re.IGNORECASE,
)
_MARKDOWN_LINK = re.compile(
    r"!?\[([^\[\]\n]{0,200})\]\((?:[^()\s]|\([^()\s]{0,100}\)){0,500}(?:\s{1,4}[\"'][^\"'\n]{0,100}[\"'])?\)"
)
_INLINE_FENCE = re.compile(r"`{2,}")
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})\s*([\w+-]*)\s*")
_TEXT_FENCES = frozenset(("", "text", "txt", "plaintext", "plain", "markdown", "md", "json", "title"))
_RULE = re.compile(r"\s*[-=_*#]{3,}\s*")
_EMPHASIS = (
    re.compile(r"(?<![0-9A-Za-z])\*\*(?=\S)([^*\n]{1,300})(?<=\S)\*\*"),
    re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]{1,300})(?<=[^\s*])\*(?![\w*])"),
    re.compile(r"~~(?=\S)([^~\n]{1,300})(?<=\S)~~"),
    re.compile(r"(?<!\w)_{1,3}(?=[^\s_][^_\n]{0,300}\s)([^_\n]{1,300})(?<=[^\s_])_{1,3}(?!\w)"),  # not __init__
)
_ESCAPED_MARK = re.compile(r"\\([_*`#\[\]~\"'])")
_ESCAPED_END = re.compile(r"(?<!\\[nrt])(?:\\[nrt])++$")
_STRING_VALUE = r"""\s*["']?\s*:\s*(?:"([^"\\]*(?:\\.[^"\\]*)*)|'([^'\\]*(?:\\.[^'\\]*)*))"""
_LOOKS_LIKE_JSON = re.compile(r"\s*(?:\{\s*[\"'}]|\[\s*[{\"'])")
_BRACKETS = {"(": ")", "[": "]", "{": "}", "（": ")", "［": "]", "｛": "}", "【": "】", "〔": "〕", "〖": "〗"}
_CLOSING = {"）": ")", "］": "]", "｝": "}"} | {closing: closing for closing in ")]}】〕〗"}
_SHORTEST_ECHO = 12


def without_thinking(text: str) -> str:
    """`text` without thinking blocks; an unclosed one cuts to the end, a lone closing tag cuts all before it."""
    if _BARE_ANALYSIS.match(text):
        _, final, said = text.rpartition(_BARE_FINAL)
        text = said if final else ""
    if _CHANNEL in text:
        text = text[text.rindex(_CHANNEL) + len(_CHANNEL) :]
    kept: list[str] = []
    depth = 0
    position = 0
    for tag in _THINKING_TAG.finditer(text):
        if depth == 0:
            kept.append(text[position : tag.start()])
        if not tag[1]:
            depth += 1
        elif depth:
            depth -= 1
        else:
            kept.clear()
        position = tag.end()
    if depth == 0:
        kept.append(text[position:])
    return "".join(kept)


def json_field(text: str, names: Iterable[str]) -> str:
    """The string value of the first of the fields `names` in JSON text, wherever it stands and however it is cut off.

    Text that is no JSON comes back as it is; JSON without such a string gives ``""``.
    """
    field = re.search(rf"""[{{,(]\s*["']?(?:{"|".join(names)}){_STRING_VALUE}""", text, re.IGNORECASE | re.DOTALL)
    if field is None:
        return "" if _LOOKS_LIKE_JSON.match(text) else text
    if field[1] is None:
        return field[2].replace("\\'", "'")
    try:
        value = json.loads(f'"{field[1]}"', strict=False)
    except ValueError:  # cut off inside an escape, or not quite JSON
        value = field[1].rstrip("\\").replace('\\"', '"').replace("\\n", "\n")
    return value if isinstance(value, str) else ""


def content_lines(text: str) -> list[str]:
    """The non-blank lines of `text`, stripped, without code fences, fenced code and rules."""
    lines: list[str] = []
    in_code = False
    fenced = False
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if fence:
            in_code = not fenced and fence[1].lower() not in _TEXT_FENCES
            fenced = not fenced
        elif not in_code and line.strip() and not _RULE.fullmatch(line):
            lines.append(line.strip())
    return lines


def has_active_markup(text: str) -> bool:
    """Whether `text` holds a tag that does or loads something; such an answer is not used at all."""
    return _ACTIVE_TAG.search(text) is not None


def without_markup(text: str) -> str:
    """`text` without HTML and template tags, markdown links and emphasis; their text stays, inline code as well.

    Escapes of one JSON too many go as well: before quotes and at the end.
    """
    text = _HTML_TAG.sub(" ", _COMMENT.sub(" ", _TEMPLATE_TOKEN.sub(" ", text)))
    text = _MARKDOWN_LINK.sub(r"\1", text)
    text = _INLINE_FENCE.sub("`", text)
    for emphasis in _EMPHASIS:
        text = emphasis.sub(r"\1", text)
    return _ESCAPED_MARK.sub(r"\1", _ESCAPED_END.sub("", text))


def without_lone_brackets(text: str) -> str:
    """`text` without brackets that have no partner."""
    lone: set[int] = set()
    open_brackets: list[tuple[int, str]] = []
    for index, character in enumerate(text):
        if character in _BRACKETS:
            open_brackets.append((index, _BRACKETS[character]))
        elif character in _CLOSING:
            if open_brackets and open_brackets[-1][1] == _CLOSING[character]:
                open_brackets.pop()
            else:
                lone.add(index)
    lone.update(index for index, _ in open_brackets)
    return "".join(character for index, character in enumerate(text) if index not in lone) if lone else text


def leaks(text: str, masked: Iterable[str]) -> bool:
    """Whether `text` repeats a masked secret, also respaced or in part, or the placeholder of one."""
    if PLACEHOLDER.search(text):
        return True
    squeezed = _squeezed(text)
    return any(_repeats(text, squeezed, secret) for secret in masked if secret.strip())


def _repeats(text: str, squeezed: str, secret: str) -> bool:
    if secret.strip() in text:
        return True
    needle = _squeezed(secret)
    if not needle or len(needle) < len(secret.strip()) / 2:
        return False
    if len(needle) <= _SHORTEST_ECHO:
        return len(needle) > _SHORTEST_ECHO // 2 and needle in squeezed
    grams = {needle[start : start + _SHORTEST_ECHO] for start in range(len(needle) - _SHORTEST_ECHO + 1)}
    return any(squeezed[start : start + _SHORTEST_ECHO] in grams for start in range(len(squeezed)))


def _squeezed(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()
