"""The clauses of a message, plain and without courtesy, ranked by how well they name what the user is after."""

from __future__ import annotations

import re
from dataclasses import dataclass

from watcher.core import openers
from watcher.core.controls import printable
from watcher.core.prose import without_code

WORD_EDGE = "\"'“”‘’«»「」『』《》.,;:!?，。、；：！？~-–—·"
"""Punctuation around words."""
FEWEST_WORDS = 2
"""Fewer words, or Chinese or Japanese characters, make no clause."""
SHORT_CJK = 4
"""Fewer Chinese or Japanese characters say too little."""

_CLAUSE_CHARACTERS = 400
_MOST_CLAUSES = 100
_ROUNDS = 12
_CJK = re.compile(r"[\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile(r"[\u3041-\u30ff]")
_EMOJI = re.compile(r"[\u2190-\u2bff\u3030\u303d\ufe0f\u200d\U0001f000-\U0001faff]+")
_URL = re.compile(r"\b\w{2,12}://[!-~]+")
_PATH = re.compile(
    r"@(?:[\w.+-]{1,80}/)+[\w+-]{1,80}\.[A-Za-z]\w{0,5}|"
    r"(?<![\w/])@?(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@+-]+)+[/\\]?|(?:@|\b)(?:[\w.@+-]{1,80}/){2,}[\w.@+-]+",
    re.ASCII,
)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,2}[.)、]|#{1,6})\s+(?:\[[ xX]?\]\s+)?")
_MENTIONS = re.compile(r"^\s*(?:@[\w./+-]{1,200}[\s,:]+)+(?=\S+\s+\S+\s+\S)", re.ASCII)
"""Files that lead a request; they say less than what is asked about them."""
_RUN_ON = r"|\s(?:and|but|so)\s+(?=(?:when(?:ever)?|if|i|it|we|now)\s)"
_MARKS = re.compile(r"`+|\*{2,}")
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)|[。！？；\n]+|;(?=\s|$)|[!?](?=[^\x00-\x7f!?])")
_CLAUSE_END = re.compile(rf"[,:](?=\s|$|[^\x00-\x7f])|[，：]|\s[-–—]+\s|\.{{3,}}|…+|[()（）]{_RUN_ON}")
_JAPANESE_CLAUSE_END = re.compile(rf"{_CLAUSE_END.pattern}|、")  # in Chinese it joins the items of a list
_OBJECT_ELSEWHERE = re.compile(r"\w+ (?:it|this|that|them|these|those|one)\b", re.IGNORECASE)
_SQL = re.compile(r"(?:SELECT\b.*\bFROM|INSERT INTO|UPDATE\b.*\bSET|DELETE FROM|(?:CREATE|ALTER) TABLE)\b")
_TASK_CJK = 8


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of a sentence, and how well it names a task: higher is better, the scale is this module's own."""

    text: str
    score: float


def ranked_clauses(text: str) -> list[Clause]:
    """The clauses of a message that could name its task, best first; at most 100, each of at most 400 characters."""
    clauses: list[Clause] = []
    for number, sentence in enumerate(sentences(text)):
        asks = openers.REQUEST.search(sentence) is not None
        unwanted = openers.UNWANTED.search(sentence) is not None
        clause_end = _JAPANESE_CLAUSE_END if has_kana(sentence) else _CLAUSE_END
        for position, raw in enumerate(clause_end.split(sentence)):
            clause = _stripped(raw.strip()[:_CLAUSE_CHARACTERS]) if len(clauses) < _MOST_CLAUSES else ""
            if not clause or openers.GENERIC.fullmatch(clause) or openers.TRIVIAL.fullmatch(clause):
                continue
            score = 3.0 * asks - 5.0 * unwanted - 0.3 * position - 0.05 * min(number, 20)
            score -= 4.0 * (_SQL.match(clause) is not None)
            clauses.append(Clause(clause, score + _task_value(clause) + _substance(clause)))
    return sorted(clauses, key=lambda clause: -clause.score)


def sentences(text: str) -> list[str]:
    """The sentences and lines of a message, plain and non-blank: no pasted code or logs, list markers or end marks."""
    lines = (plain(_MENTIONS.sub("", _BULLET.sub("", line))) for line in without_code(text).split("\n"))
    return [sentence.strip() for sentence in _SENTENCE_END.split("\n".join(lines)) if sentence.strip()]


def is_cjk(text: str) -> bool:
    """Whether a text is Chinese or Japanese rather than words between spaces."""
    return cjk_length(text) >= FEWEST_WORDS


def cjk_length(text: str) -> int:
    """The number of Chinese and Japanese characters in `text`."""
    return len(_CJK.findall(text))


def has_kana(text: str) -> bool:
    """Whether a text is Japanese for sure."""
    return _KANA.search(text) is not None


def names_task(clause: str) -> bool:
    """Whether a clause begins with the verb of a task."""
    return openers.TASK.match(clause) is not None


def plain(line: str) -> str:
    """`line` as one line without emoji, addresses, markdown marks; paths shortened to their last part."""
    line = _PATH.sub(lambda path: re.split(r"[/\\]", path[0].rstrip("/\\"))[-1], _URL.sub(" ", line))
    return printable(_MARKS.sub("", _EMOJI.sub(" ", line)))


def _stripped(clause: str) -> str:
    """`clause` without greeting, politeness and the words that only introduce a request."""
    inner = openers.INNER_REQUEST.search(clause)
    if inner and len(clause) - inner.end() >= SHORT_CJK * 2:
        clause = clause[inner.end() :]
    for _ in range(_ROUNDS):
        before = clause
        opener = openers.OPENER.match(clause)
        clause = clause[opener.end() :] if opener else clause
        clause = openers.CLOSER.sub("", clause, count=1).strip().strip(WORD_EDGE if clause[:1] != "." else "").strip()
        if clause == before:
            break
    return clause


def _task_value(clause: str) -> float:
    """What it is worth that a clause names a task: less when its subject stands elsewhere ("make it fast")."""
    if not names_task(clause):
        return 0.0
    leans_elsewhere = _OBJECT_ELSEWHERE.match(clause) is not None or (is_cjk(clause) and len(clause) <= _TASK_CJK)
    return 0.5 if leans_elsewhere else 2.0


def _substance(clause: str) -> float:
    """How much a clause says: words that carry meaning, up to a point; talk about oneself says less."""
    if is_cjk(clause):
        length = cjk_length(clause)
        return min(length, 12) * 0.25 - (2.0 if length < SHORT_CJK else 0.0)
    words = [word.lower().strip(WORD_EDGE) for word in clause.split()]
    content = sum(word not in openers.FUNCTION_WORDS for word in words)
    narrates = bool(words) and words[0] in {"i", "i've", "i’ve", "it", "we", "this", "he", "she", "they", "there"}
    return min(content, 5) * 0.5 - narrates - (2.0 if content < FEWEST_WORDS else 0.0)
