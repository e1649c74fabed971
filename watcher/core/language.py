"""The language of a conversation, told by its script and, for Latin and Cyrillic, by very common words.

Modest on purpose: a wrong language is worse than none, so what is not clear is None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from watcher.core.prose import without_code


class Script(StrEnum):
    """The writing systems that are told apart; the value is the ISO 15924 code."""

    LATIN = "Latn"
    CYRILLIC = "Cyrl"
    GREEK = "Grek"
    ARABIC = "Arab"
    HEBREW = "Hebr"
    DEVANAGARI = "Deva"
    THAI = "Thai"
    HANGUL = "Hang"
    HAN = "Hani"
    KANA = "Hrkt"


@dataclass(frozen=True, slots=True)
class Language:
    """A language: BCP 47 code, English name, and whether it is Chinese or Japanese, written without spaces."""

    code: str
    name: str
    cjk: bool = False


_LETTERS = {
    Script.LATIN: "A-Za-zªº\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff",
    Script.CYRILLIC: "\u0400-\u052f",
    Script.GREEK: "\u0370-\u03ff\u1f00-\u1fff",
    Script.ARABIC: "\u0620-\u064a\u066e-\u06d3\u06fa-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc",
    Script.HEBREW: "\u05d0-\u05ea",
    Script.DEVANAGARI: "\u0900-\u097f",
    Script.THAI: "\u0e00-\u0e7f",
    Script.HANGUL: "\uac00-\ud7a3\u1100-\u11ff",
    Script.HAN: "\u3005\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    Script.KANA: "\u3041-\u309f\u30a1-\u30ff",
}
_WORD = {script: re.compile(f"[{letters}]+") for script, letters in _LETTERS.items()}
_UNSPACED = {Script.HAN, Script.KANA, Script.THAI}
_CHARACTERS_A_WORD = 2


def _known_by(code: str, name: str, *words: str) -> tuple[Language, frozenset[str]]:
    return Language(code, name), frozenset(word for line in words for word in line.split())


_LATIN_WORDS = (
    _known_by(
        "en",
        "English",
        "the a an is are be and or of to in into on at by as for from with it this that my i we you not when what how",
        "why please fix add want need make use should does",
    ),
    _known_by(
        "es",
        "Spanish",
        "el la los las una es y de que por con para del al no se me cuando cómo qué por favor en mi lo necesito",
    ),
    _known_by(
        "fr",
        "French",
        "le la les de des une est et que pour avec dans du au ne pas je vous sur cette ce quand comment il",
    ),
    _known_by(
        "de",
        "German",
        "der die das ein eine ist und nicht mit für auf den dem zu ich wir bitte wenn wie warum im von",
    ),
    _known_by(
        "pt",
        "Portuguese",
        "o os as uma é e de que com para por se me do da não em no na quando como por um você preciso ao isso",
    ),
    _known_by(
        "it",
        "Italian",
        "il gli una è e che per con non di della nel del quando come perché mi si sono questo alla i",
    ),
    _known_by(
        "nl", "Dutch", "de het een is en van niet met voor op ik je wij als hoe waarom naar dit dat zijn te maar"
    ),
    _known_by("pl", "Polish", "nie się jest na do że w z i jak dlaczego gdy to dla proszę po od czy przy mam tego"),
    _known_by("sv", "Swedish", "det och att är en ett som inte för med på av jag vi när hur varför den till om kan"),
    _known_by("tr", "Turkish", "bir ve bu için ile değil mi ne nasıl neden lütfen var yok da de gibi çok olarak ama"),
    _known_by("vi", "Vietnamese", "và là của không có cho được trong với này khi một các tôi bị như để lỗi từ ra"),
)
_RUSSIAN = _known_by(
    "ru",
    "Russian",
    "и в не на что как это с по для при если нужно почему пожалуйста из но у когда после исправь добавь сделай",
)
_UKRAINIAN = _known_by("uk", "Ukrainian", "і в не на що як це з та для при якщо потрібно чому ласка але у коли після")
_BULGARIAN = _known_by("bg", "Bulgarian", "и в не на че как това с за да се от когато трябва защо моля след съм е при")
_BY_SCRIPT = {
    Script.GREEK: Language("el", "Greek"),
    Script.ARABIC: Language("ar", "Arabic"),
    Script.HEBREW: Language("he", "Hebrew"),
    Script.DEVANAGARI: Language("hi", "Hindi"),
    Script.THAI: Language("th", "Thai"),
    Script.HANGUL: Language("ko", "Korean"),
}
_JAPANESE = Language("ja", "Japanese", cjk=True)
_CHINESE = Language("zh", "Chinese", cjk=True)
_TRADITIONAL_CHINESE = Language("zh-Hant", "Traditional Chinese", cjk=True)
_PERSIAN = Language("fa", "Persian")

_TRADITIONAL_ONLY = frozenset(
    "們個這來時為說對會還沒無開關學體點頁麼請幫題錯誤檔資訊網圖傳動發現後實測試號進過單數據應該將"
)
_SIMPLIFIED_ONLY = frozenset(
    "们个这来时为说对会还没无开关学体点页么请帮题错误档资讯网图传动发现后实测试号进过单数据应该将"
)
_SCRIPTS = {
    "ru": {Script.CYRILLIC},
    "uk": {Script.CYRILLIC},
    "bg": {Script.CYRILLIC},
    "ja": {Script.KANA, Script.HAN},
    "zh": {Script.HAN},
    "zh-Hant": {Script.HAN},
    "fa": {Script.ARABIC},
} | {language.code: {script} for script, language in _BY_SCRIPT.items()}

_NOT_LANGUAGE = re.compile(
    r"`[^`\n]*`|\b\w+://[!-~]+|[\w.+-]{1,64}@[\w-]{1,64}\.\w+"
    r"|[~.]{0,2}(?:/[\w.@+-]+)+/?|\b[A-Za-z]:\\[!-~]+"  # paths
    r"|\b\w+(?:[./\\:-]+\w+)+(?:\(\))?|\b\w*_\w*|\b\w+\(\)"  # dotted, kebab, snake, calls
    r"|\b[A-Za-z]?[a-z0-9]+[A-Z]\w*|\b[A-Z0-9]{2,}\b|\b\w*\d\w*",  # camelCase, CONSTANTS, with digits
    re.ASCII,
)
_SAMPLE_CHARACTERS = 20_000


def dominant_language(text: str) -> Language | None:
    """The language in which most of `text` is written, or None when that is not clear.

    Code blocks, pasted logs, paths and identifiers do not count. Only the first 20 000 characters are looked at.
    """
    text = _NOT_LANGUAGE.sub(" ", without_code(text[:_SAMPLE_CHARACTERS]))
    weights = {script: _weight(script, text) for script in Script}
    cjk = weights[Script.HAN] + weights[Script.KANA]
    others = {script: weight for script, weight in weights.items() if script not in {Script.HAN, Script.KANA}}
    script = max(others, key=lambda candidate: others[candidate])
    if cjk and cjk >= others[script]:
        return _chinese_or_japanese(text, weights)
    if not others[script]:
        return None
    if script is Script.LATIN:
        return _by_common_words(text, _LATIN_WORDS, fewest=2)
    if script is Script.CYRILLIC:
        return _cyrillic(text)
    if script is Script.ARABIC and re.search("[پچژگ]", text):
        return _PERSIAN
    return _BY_SCRIPT[script]


def matches(text: str, language: Language | None) -> bool:
    """Whether `text` can be in `language`, judged by script alone: it has at least one letter of the language's script.

    Always true for None. Two languages of one script are not told apart.
    """
    if language is None:
        return True
    return any(_WORD[script].search(text) for script in _SCRIPTS.get(language.code, {Script.LATIN}))


def _weight(script: Script, text: str) -> float:
    """How many words of the script `text` has; scripts without spaces count two characters as a word."""
    words = _WORD[script].findall(text)
    return sum(map(len, words)) / _CHARACTERS_A_WORD if script in _UNSPACED else len(words)


def _chinese_or_japanese(text: str, weights: dict[Script, float]) -> Language:
    kana, han = weights[Script.KANA], weights[Script.HAN]
    if kana * 8 >= han:
        return _JAPANESE
    traditional = sum(character in _TRADITIONAL_ONLY for character in text)
    simplified = sum(character in _SIMPLIFIED_ONLY for character in text)
    return _TRADITIONAL_CHINESE if traditional > simplified else _CHINESE


def _cyrillic(text: str) -> Language | None:
    if re.search("[іїєґІЇЄҐ]", text):
        return _UKRAINIAN[0]
    if re.search("[ыэёЫЭЁ]", text):
        return _RUSSIAN[0]
    return _by_common_words(text, (_RUSSIAN, _UKRAINIAN, _BULGARIAN), fewest=1)


def _by_common_words(text: str, known: Sequence[tuple[Language, frozenset[str]]], fewest: int) -> Language | None:
    """The language with the most common words in `text`: at least `fewest`, and more than any other."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    counts = [(sum(word in common for word in words), language) for language, common in known]
    (first, best), (second, _) = sorted(counts, key=lambda count: count[0], reverse=True)[:2]
    return best if first >= fewest and first > second else None
