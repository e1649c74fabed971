"""From a model's raw answer to a title or a recap, or to nothing.

An answer is repaired when what is wrong is its wrapping, and refused when it is something else than asked for. The
cleaning is repeated until nothing changes, so the result is a fixed point: sanitizing it again returns it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from watcher.core import answers, phrases
from watcher.core.controls import clean_lines, printable
from watcher.core.quotes import without_outer_quotes, without_wrapping_quotes
from watcher.core.text import utf16_cut_at_word, utf16_len

__all__ = ["MAX_TITLE_UNITS", "NATIVE_EXAMPLES", "extract_recap", "printable", "sanitize_recap", "sanitize_title"]

MAX_TITLE_UNITS = 200
"""Longest title, in UTF-16 units (contract 6.2)."""
NATIVE_EXAMPLES = (
    "Fix login button on mobile",
    "Add OAuth authentication flow",
    "Debug failing CI pipeline tests",
    "重构用户鉴权中间件",
)
"""The examples of Qwen Code's own prompt (contract 6.2), which weak models have learned to echo."""

MAX_TITLE_WORDS = 12
MAX_TITLE_CJK = 40
MAX_RECAP_WORDS = 60
MAX_RECAP_CJK = 200
MAX_RECAP_UNITS = 800
MAX_RECAP_SENTENCES = 2
_FEWEST_RECAP_LETTERS = 5

_ROUNDS = 6
_MOST_LINES = 40
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_MARKER = re.compile(
    r"(?:#{1,6}\s+|#+(?=[^\W\d])|>+\s*|(?:[*+•·‣◦▪●○–—]|-{1,3})\s+|(?:=>|->|→|⇒|▶|※)\s*|\(?\d{1,2}[.)]\s+|\d{1,2}、|[①-⑳]\s*"
    r"|\[[ xX]\]\s+|\*+(?=[^\W\d_]))+"
)
_TRAILING = " \t→.!?。！？,，;；:：、…‥·•*|-–—"
_LEADING = re.compile(r"(?:[\s,，;；:：。、!！?？…‥·•|–—¿¡]|\.{2,}|\.(?!\w))+")
_URL = re.compile(
    r"<?\b[a-z][a-z0-9+.-]{1,20}://\S*|<?\b(?:javascript|vbscript|mailto):\S+|\bdata:[a-z]+/\S*", re.IGNORECASE
)
_WRAPPED = re.compile(r"[\[{【]([^\[\]{}【】]*)[\]}】]")
_WORD_COUNT = re.compile(
    r"\s*[-–—(（]\s*\d{1,2}[ -]?(?:words?|char(?:acter)?s?|个?字|個?字|文字)\s*[)）]?$", re.IGNORECASE
)
_REPLACEMENT = "\ufffd"
"""Stands where a byte was no text: a word with a hole in it."""
_SECOND_SENTENCE = re.compile(r"[.!?][\"'”’)\]]{0,2}\s+\S|[。！？]")
_SECOND_EXCLAMATION = re.compile(r"[!?]\s+\S+\s+\S+\s+\S|[。！？](?=[^。！？」』”’\s])")
_SOFT_WRAP = re.compile(r"(?<=\w)\n[ \t]+(?=[a-zà-ÿ])")
_CLOSERS = "\"'”’*_` "
_SPEAKING = re.compile(r"\b(?:i|you|we|my|your|our|me|us)\b|[我你您，]", re.IGNORECASE)
_SENTENCE_END = re.compile(
    r"(?<=[.!?])[\"'”’)\]]{0,2}\s+(?=[\"'“‘(\[¿¡]{0,2}[^\Wa-z_])|(?<=[。！？])(?![」』”’）。！？])"
)
# Not behind a number, where "s." and "ms." are units at the end of a sentence.
_ABBREVIATED = re.compile(
    r"(?<!\w)(?<!\d )"
    r"(?:(?-i:[a-z]|Ms)|dr|mrs?|prof|st|vs|e\. ?g|i\. ?e|cf|incl|approx|bzw|ca|z\. ?b|d\. ?h|p\. ?ex|sra?)\.$",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(?<!\w)(?:no|nr|fig)\.$", re.IGNORECASE)
_RECAP_FIELDS = ("recap", "summary")
_TITLE_FIELDS = ("title", "session_?title")
_OPEN_RECAP = re.compile(r"<recap>", re.IGNORECASE)
_CLOSE_RECAP = re.compile(r"</recap>", re.IGNORECASE)


def sanitize_title(raw: str, examples: Sequence[str], masked: Sequence[str] = ()) -> str | None:
    """The title in a model's raw answer, or None when there is none fit to be shown.

    Follows the order of contract 6.2 (wrapping, punctuation, length, examples) with its quirks mended: no quote or
    bracket is left without its partner, and quoted content is kept rather than dropped.

    Cut or refused: an answer of more than 200 UTF-16 units that reads as a label is cut after a whole word. One that
    reads as prose is refused whatever its length: more than 12 words or 40 CJK characters together with a second
    sentence, a closing full stop, or a word by which somebody speaks ("I", "your", 我). A piece of a sentence is no
    title. Neither is one that says the same over and over, one of which the cut leaves less than half of those units,
    or one with a replacement character in it.

    `examples` are those of the prompt that was sent; those of Qwen Code's own are refused as well. `masked` are the
    secrets that masking took out of the prompt.
    """
    said = answers.without_thinking(clean_lines(raw))
    if _is_unfit(said, masked):
        return None
    refused = {_bare(example) for example in (*examples, *NATIVE_EXAMPLES)}
    title = _fixed_point(_title_once, said)
    if title is None or _bare(title) in refused or _is_unfit(title, masked):
        return None
    return title


def extract_recap(raw: str) -> str | None:
    """The text between the first `<recap>` and its end tag, or all after it when the answer was cut off (contract 6.3).

    None without the tag or with nothing in it.
    """
    text = answers.without_thinking(raw)
    start = _OPEN_RECAP.search(text)
    if start is None:
        return None
    end = _CLOSE_RECAP.search(text, start.end())
    inside = text[start.end() : end.start() if end else len(text)].strip()
    return inside or None


def sanitize_recap(text: str, masked: Sequence[str] = ()) -> str | None:
    """`text` as one plain line of one or two sentences, or None when it is not a recap.

    Of a longer text the first two sentences stay. Refused: more than about 60 words or 200 CJK characters even so,
    refusals, greetings, questions to the user, tool calls and talk of them, and what repeats one of the `masked`
    secrets.
    """
    said = answers.without_thinking(clean_lines(text))
    if _is_unfit(said, masked):
        return None
    recap = _fixed_point(_recap_once, said)
    return None if recap is None or _is_unfit(recap, masked) else recap


def _is_unfit(text: str, masked: Sequence[str]) -> bool:
    """Whether all of an answer is refused for something in it. Asked of the cleaned text too: cleaning can join what
    was apart (`<scr"ipt>`).
    """
    return answers.has_active_markup(text) or answers.leaks(text, masked) or phrases.TOOL_CALL.search(text) is not None


def _fixed_point(clean: Callable[[str], str | None], text: str) -> str | None:
    """What `clean` leaves unchanged, or None when it refuses, or will not settle (nested on purpose)."""
    for _ in range(_ROUNDS):
        cleaned = clean(text)
        if cleaned is None or cleaned == text:
            return cleaned
        text = cleaned
    return None


# ---------------------------------------------------------------------------------------------------------------- title


def _title_once(raw: str) -> str | None:
    text = answers.without_thinking(clean_lines(raw))
    text = answers.json_field(text, _TITLE_FIELDS)
    line = _first_label(answers.content_lines(_SOFT_WRAP.sub(" ", clean_lines(text)))[:_MOST_LINES])
    title = utf16_cut_at_word(line, MAX_TITLE_UNITS) if line else ""
    if title != line and utf16_len(title) < MAX_TITLE_UNITS // 2:
        return None
    return title if _is_label(title) and not _repeats_itself(title) else None


def _first_label(lines: list[str]) -> str | None:
    """The first line, unwrapped, that is more than an introduction; None when that is an answer and no label."""
    for index, line in enumerate(lines):
        bare = _unwrapped(line)
        unquoted = line.rstrip(_CLOSERS)
        if _answers_back(line) or _answers_back(bare) or _reads_as_prose(bare, closed=unquoted.endswith(".")):
            return None
        introduces = unquoted.endswith((":", "：")) or phrases.NO_TITLE.fullmatch(bare) is not None
        if not bare or (introduces and index < len(lines) - 1) or phrases.ANNOUNCEMENT.match(bare):
            continue
        return bare
    return None


def _unwrapped(line: str) -> str:
    """`line` without everything that wraps a title: markers, labels, emphasis, quotes, outer punctuation."""
    for _ in range(_ROUNDS):
        before = line
        line = _URL.sub(" ", answers.without_markup(line))
        line = " ".join(line.split())
        for prefix in (_MARKER, phrases.BRACKETED_LABEL, phrases.LABEL, phrases.INTERJECTION, phrases.INTRODUCTION):
            found = prefix.match(line)
            line = line[found.end() :] if found else line
        line = without_outer_quotes(answers.without_lone_brackets(line))
        wrapped = _WRAPPED.fullmatch(line)
        line = wrapped[1] if wrapped else line
        leading = _LEADING.match(line)
        line = (line[leading.end() :] if leading else line).removesuffix("->").removesuffix("=>").rstrip(_TRAILING)
        line = _WORD_COUNT.sub("", line)
        if line == before:
            break
    return line


def _answers_back(line: str) -> bool:
    return any(
        pattern.match(line) for pattern in (phrases.REFUSAL, phrases.ANSWER, phrases.GREETING, phrases.QUESTION_BACK)
    )


def _reads_as_prose(text: str, *, closed: bool) -> bool:
    """Whether a text is sentences rather than a label; `closed`: it ended in a full stop."""
    if len(text.split()) > MAX_TITLE_WORDS or len(_CJK.findall(text)) > MAX_TITLE_CJK:
        return closed or _SECOND_SENTENCE.search(text) is not None or _SPEAKING.search(text) is not None
    return _SECOND_EXCLAMATION.search(text) is not None


def _is_label(title: str) -> bool:
    words = sum(character.isalnum() for character in title)
    return (
        words > 1
        and any(character.isalpha() for character in title)
        and _REPLACEMENT not in title
        and not phrases.NO_TITLE.fullmatch(title)
        and not _answers_back(title)
        and not phrases.ANNOUNCEMENT.match(title)
    )


def _repeats_itself(title: str) -> bool:
    """Whether a long title is a loop, as small models fall into one."""
    words = title.casefold().split()
    characters = _CJK.findall(title)
    return (len(words) > MAX_TITLE_WORDS and len(set(words)) * 2 < len(words)) or (
        len(characters) > MAX_TITLE_CJK and len(set(characters)) * 4 < len(characters)
    )


def _bare(text: str) -> str:
    """`text` for the comparison with examples: only letters and digits count, in either width and case."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


# ---------------------------------------------------------------------------------------------------------------- recap


def _recap_once(text: str) -> str | None:
    text = answers.without_thinking(clean_lines(text))
    text = answers.json_field(text, _RECAP_FIELDS)
    lines = answers.content_lines(clean_lines(text))[:_MOST_LINES]
    recap = without_wrapping_quotes(_joined([_recap_line(line) for line in lines if not line.startswith("#")]))
    recap = _joined(_sentences(recap)[:MAX_RECAP_SENTENCES])
    refused = (phrases.REFUSAL, phrases.GREETING, phrases.QUESTION_BACK, phrases.ANNOUNCEMENT, phrases.NARRATION)
    if any(pattern.match(recap) for pattern in refused):
        return None
    if len(recap.split()) > MAX_RECAP_WORDS or len(_CJK.findall(recap)) > MAX_RECAP_CJK:
        return None
    is_text = sum(character.isalpha() for character in recap) > _FEWEST_RECAP_LETTERS
    return recap if is_text and utf16_len(recap) <= MAX_RECAP_UNITS else None


def _sentences(text: str) -> list[str]:
    """The sentences of one line; the full stop of an abbreviation ("Dr. Smith", "No. 5") ends none."""
    sentences: list[str] = []
    for piece in filter(None, (piece.strip() for piece in _SENTENCE_END.split(text))):
        before = sentences[-1] if sentences else ""
        if _ABBREVIATED.search(before) or (piece[0].isdigit() and _NUMBERED.search(before)):
            sentences[-1] = f"{before} {piece}"
        else:
            sentences.append(piece)
    return sentences


def _recap_line(line: str) -> str:
    """`line` without list marker, label and emphasis; the words "Next:" stay, they belong to a recap."""
    line = " ".join(answers.without_markup(line).split())
    for prefix in (_MARKER, phrases.BRACKETED_LABEL, phrases.LABEL, phrases.INTERJECTION, phrases.INTRODUCTION):
        found = prefix.match(line)
        line = line[found.end() :] if found else line
    return line.strip()


def _joined(pieces: list[str]) -> str:
    """The pieces as one line, each closed as a sentence where the next one follows."""
    line = ""
    for piece in filter(None, pieces):
        if not line:
            line = piece
        elif line[-1] in ".!?:,;":
            line = f"{line} {piece}"
        elif line[-1] in "。！？：，；、":
            line = f"{line}{piece}"
        else:
            line = f"{line}。{piece}" if _CJK.match(line[-1]) else f"{line}. {piece}"
    return line
