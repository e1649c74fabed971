"""The embedded text model: a title and a recap cut from the user's own words; offline, free, the same every time.

It picks the clause that names the task, takes off how people ask for things, and cuts where a phrase ends. It adds no
word of its own to a title.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from watcher.core import openers
from watcher.core.clauses import (
    FEWEST_WORDS,
    SHORT_CJK,
    WORD_EDGE,
    cjk_length,
    has_kana,
    is_cjk,
    names_task,
    plain,
    ranked_clauses,
    sentences,
)
from watcher.core.dialog import spoken
from watcher.core.entries import DialogEntry
from watcher.core.generation import Message, Role
from watcher.core.language import Language, dominant_language
from watcher.core.prose import ERROR_LINE, FAILURE_LINE
from watcher.core.sanitize import sanitize_recap, sanitize_title
from watcher.core.text import Mask, unmasked

MAX_WORDS = 7
MIN_WORDS = 3
MAX_CJK = 24
MAX_MIXED_WORDS = 9
MAX_WORD_CHARACTERS = 60
"""A longer word is no word: a key, a hash, something encoded."""
CJK_PER_WORD = 2
"""What a Latin word among Chinese or Japanese characters counts."""
MAX_NEXT_WORDS = 20
MAX_NEXT_CJK = 50

_MESSAGE_CHARACTERS = 20_000
_MASK_MARGIN = 8192
"""Characters beyond the bound that are masked as well, so that a secret on the edge is seen whole."""

_LATIN_WORD = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_WEAK = frozenset({"the", "a", "an", "all", "some"})
_OWNERS = frozenset({"my", "our", "your"})
"""Words that a title can do without where it is too long."""
_KOREAN_OBJECT = re.compile(r"(?<=[가-힣]{2})[을를]$")
"""Marks an object whose verb was cut off."""
_COMMANDS = frozenset({"npm", "npx", "pnpm", "pip", "kubectl", "tsc", "ffmpeg", "nginx", "jq", "grep", "sed", "awk"})
"""Names that nobody writes with a capital."""
_NEXT = re.compile(
    r"(?:next(?: steps?| up| action)?(?:\s*(?:is|:|：|,|-|–))|remaining:|todo:|(?:下一步|接下来)(?:是|：|:|，)?"
    r"|次(?:の(?:ステップ|作業))?(?:は|：|:|、)|siguiente(?: paso)?\s*:|próximos? pasos?\s*:|prochaine étape\s*:"
    r"|nächster schritt\s*:|prossimo passo\s*:|следующий шаг\s*[:—-]|다음 단계\s*[:：는])\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Wording:
    """How a recap is put together in one language."""

    goal: str
    step: str


_WORDINGS = {
    "en": _Wording("Working on: {}.", "Next: {}."),
    "zh": _Wording("正在处理：{}。", "下一步：{}。"),
    "zh-Hant": _Wording("正在處理：{}。", "下一步：{}。"),
    "ja": _Wording("作業中：{}。", "次：{}。"),
    "ko": _Wording("작업 중: {}.", "다음: {}."),
    "es": _Wording("En curso: {}.", "Siguiente: {}."),
    "pt": _Wording("Em andamento: {}.", "Próximo passo: {}."),
    "fr": _Wording("En cours : {}.", "Ensuite : {}."),
    "de": _Wording("In Arbeit: {}.", "Als Nächstes: {}."),
    "it": _Wording("In corso: {}.", "Poi: {}."),
    "ru": _Wording("В работе: {}.", "Дальше: {}."),
}


def extract_title(entries: Iterable[DialogEntry], mask: Mask = unmasked) -> str | None:
    """A title of mostly 3 to 7 words, 2 to 9 at the outside (4 to 24 characters in Chinese and Japanese).

    None when the user named nothing: greetings, "help me", "continue". `mask` takes out secrets, which a title would
    show in the picker; it is called with texts of less than 30 000 characters.
    """
    title, _ = _title(_texts(_masked(entries, mask), Role.USER))
    return title


def extract_recap_text(entries: Iterable[DialogEntry], mask: Mask = unmasked) -> str | None:
    """One or two sentences: what the user works on, and the next step where one is known; None as for a title.

    The next step is what the last answer announces ("Next: …"), else the user's last request when that is another one.
    """
    messages = _masked(entries, mask)
    user_texts = _texts(messages, Role.USER)
    goal, source = _title(user_texts)
    if goal is None:
        return None
    step = _announced_step(messages)
    if step is None and source < len(user_texts) - 1:
        step, _ = _title(user_texts[-1:])
    wording = _wording(dominant_language("\n".join(user_texts)), goal)
    recap = wording.goal.format(goal)
    if step is not None and step.casefold() != goal.casefold():
        recap = f"{recap} {wording.step.format(step)}"
    return sanitize_recap(recap)


def _masked(entries: Iterable[DialogEntry], mask: Mask) -> tuple[Message, ...]:
    """What was said, masked and bounded: of a long prompt the head, of a long answer the tail, where it looks ahead."""
    messages = []
    for message in spoken(entries):
        if message.role is Role.USER:
            text = mask(message.text[: _MESSAGE_CHARACTERS + _MASK_MARGIN]).text[:_MESSAGE_CHARACTERS]
        else:
            text = mask(message.text[-_MESSAGE_CHARACTERS - _MASK_MARGIN :]).text[-_MESSAGE_CHARACTERS:]
        messages.append(Message(message.role, text))
    return tuple(messages)


def _texts(messages: Iterable[Message], role: Role) -> list[str]:
    return [message.text for message in messages if message.role is role]


def _title(texts: list[str]) -> tuple[str | None, int]:
    """The first title that names a task, from the oldest text on, else the best of what is too short; and its text."""
    verb = ""
    short: tuple[str, int] | None = None
    for number, text in enumerate(texts):
        for clause in ranked_clauses(text):
            title = _accepted(_cut(f"{verb} {clause.text}" if verb and not names_task(clause.text) else clause.text))
            if title is None:
                continue
            if _is_long_enough(title):
                return title, number
            short = short or (title, number)
        verb = verb or _lone_verb(text)
    if short is not None:
        return short
    failures = ((_failure(text), number) for number, text in enumerate(texts))
    return next((found for found in failures if found[0] is not None), (None, 0))


def _accepted(title: str) -> str | None:
    """`title` in its final form when it is fit to be one."""
    title = sanitize_title(title, ()) or ""
    cjk = cjk_length(title)
    if any(len(word) > MAX_WORD_CHARACTERS for word in title.split()):
        return None
    if is_cjk(title):
        return title if cjk <= MAX_CJK and _cjk_units(title) >= SHORT_CJK else None
    return title if len(title.split()) >= FEWEST_WORDS and not openers.TRIVIAL.fullmatch(title) else None


def _is_long_enough(title: str) -> bool:
    return cjk_length(title) >= SHORT_CJK if is_cjk(title) else len(title.split()) >= MIN_WORDS


def _lone_verb(text: str) -> str:
    """The one word of a text that is nothing but a task's verb, such as "refactor"."""
    word = text.strip(WORD_EDGE + " \n")
    return word.lower() if len(word.split()) == 1 and word.isascii() and names_task(word) else ""


def _failure(text: str) -> str | None:
    """A title from an error message, where nothing but a trace or a log was pasted."""
    short = None
    for line in reversed(text.split("\n")):
        error = ERROR_LINE.fullmatch(line.rstrip())
        failure = None if error else FAILURE_LINE.fullmatch(line.rstrip())
        found = f"{error[1]}: {error[2]}" if error else failure[1] if failure else ""
        title = _accepted(_cut(re.split(r"[.!?](?:\s|$)", plain(found))[0])) if found else None
        if title is not None and _is_long_enough(title):
            return title
        short = short or title
    return short


# -------------------------------------------------------------------------------------------------------------- cutting


def _cut(clause: str) -> str:
    """`clause` at title length, cut where a phrase ends; empty when it cannot be cut without cutting a word."""
    clause = " ".join(clause.split())
    if is_cjk(clause):
        clause = _cut_cjk(clause)
        if not clause or is_cjk(clause):
            return clause
    return _sentence_case(_cut_words(clause.split()))


def _cut_words(words: list[str]) -> list[str]:
    if len(words) > MAX_WORDS:
        words = [word for word in words if word.lower() not in _WEAK]
        without_owners = [word for word in words if word.lower() not in _OWNERS]
        if len(words) > MAX_WORDS and (len(without_owners) <= MAX_WORDS or not _last_border(words)):
            words = without_owners
    if len(words) > MAX_WORDS:
        words = words[: _last_border(words) or MAX_WORDS]
        words[-1] = _KOREAN_OBJECT.sub("", words[-1])
        return _without_last(words, openers.NEVER_LAST_CUT)
    return _without_last(words, openers.NEVER_LAST)


def _last_border(words: list[str]) -> int:
    """Where a long clause is best cut, 0 where no phrase ends at title length.

    A cut after three words mostly leaves out what it is about.
    """
    places = range(MIN_WORDS + 1, MAX_WORDS + 1)
    return max((at for at in places if words[at].lower() in openers.BORDERS), default=0)


def _without_last(words: list[str], unwanted: frozenset[str]) -> list[str]:
    end = len(words)
    while end and words[end - 1].lower().strip(WORD_EDGE) in unwanted:
        end -= 1
    return words[:end]


def _sentence_case(words: list[str]) -> str:
    """The words as a sentence: a capital first letter, except on names of code; shouting is lowered."""
    if sum(word.isupper() for word in words) >= MIN_WORDS and all(word.upper() == word for word in words):
        words = [word.lower() for word in words]
    if (
        words
        and words[0] not in _COMMANDS
        and words[0].replace("'", "").replace("’", "").isalpha()
        and words[0].islower()
    ):
        words = [words[0][0].upper() + words[0][1:], *words[1:]]
    return " ".join(words)


def _cut_cjk(clause: str) -> str:
    if _fits(clause):
        return clause
    border = openers.JAPANESE_BORDER if has_kana(clause) else openers.CHINESE_BORDER
    places = [place.start() for place in border.finditer(clause)]
    places += [place.start() for place in re.finditer(r"\s|(?<=[^\x00-\x7f])(?=[A-Za-z0-9])", clause)]
    fitting = [clause[:place] for place in places if _fits(clause[:place])]
    return openers.HANGING.sub("", max(fitting, key=len, default="").strip()).strip()


def _fits(text: str) -> bool:
    return _cjk_units(text) <= MAX_CJK and len(text.split()) <= MAX_MIXED_WORDS


def _cjk_units(text: str) -> int:
    return cjk_length(text) + CJK_PER_WORD * len(_LATIN_WORD.findall(text))


# ---------------------------------------------------------------------------------------------------------------- recap


def _announced_step(messages: tuple[Message, ...]) -> str | None:
    """What the last message, when it is the assistant's, says comes next."""
    if not messages or messages[-1].role is not Role.ASSISTANT:
        return None
    found = None
    for sentence in sentences(messages[-1].text):
        start = _NEXT.match(sentence)
        if start:
            found = sentence[start.end() :].strip(WORD_EDGE + " ")
    if not found:
        return None
    if is_cjk(found):
        return found if cjk_length(found) <= MAX_NEXT_CJK else None
    return found if len(found.split()) <= MAX_NEXT_WORDS else None


def _wording(language: Language | None, goal: str) -> _Wording:
    if language is None or language.code not in _WORDINGS:
        return _WORDINGS["zh" if is_cjk(goal) and not has_kana(goal) else "en"]
    return _WORDINGS[language.code]
