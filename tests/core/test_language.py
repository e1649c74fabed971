"""Which language a conversation is in, and whether an answer can be in it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.language import Language, dominant_language, matches

CORPUS = json.loads((Path(__file__).parents[1] / "data" / "extractive_corpus.json").read_text(encoding="utf-8"))
MAY_BE_UNCLEAR = {"help-me-only", "trace-only"}


def code_of(text: str) -> str | None:
    language = dominant_language(text)
    return language.code if language else None


@pytest.mark.parametrize("dialog", CORPUS, ids=lambda dialog: dialog["name"])
def test_corpus(dialog: dict[str, object]) -> None:
    """The user's language is told for every dialog of the corpus, or left open where there is nothing to tell."""
    turns = dialog["turns"]
    assert isinstance(turns, list)
    found = code_of("\n".join(turn["text"] for turn in turns if turn["role"] == "user"))
    expected = {dialog["language"]} | ({None} if dialog["name"] in MAY_BE_UNCLEAR else set())
    assert (found.partition("-")[0] if found else None) in expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Please fix the flaky login test", "en"),
        ("Arregla el botón de pago en la página", "es"),
        ("Répare le bouton de connexion sur la page", "fr"),
        ("Bitte behebe den Fehler auf der Seite", "de"),
        ("Preciso que você corrija o erro no pagamento", "pt"),
        ("Vorrei che il sito sia più veloce con una cache", "it"),
        ("De knop werkt niet op het scherm van de app", "nl"),
        ("Исправь ошибку входа, пожалуйста", "ru"),
        ("Почему тесты падают при сборке", "ru"),
        ("Виправ помилку під час входу", "uk"),
        ("로그인 오류를 고쳐 주세요", "ko"),
        ("检查 config.yaml 的超时设置", "zh"),
        ("請幫我檢查這個錯誤", "zh-Hant"),
        ("検索 API を修正してください", "ja"),
        ("أصلح صفحة الدخول", "ar"),
        ("צריך לתקן את דף הכניסה", "he"),
        ("Διόρθωσε τη σελίδα σύνδεσης", "el"),
        ("लॉगिन पेज ठीक करो", "hi"),
        ("แก้หน้าเข้าสู่ระบบ", "th"),
        ("refactor", None),
        ("Ship it", None),
        ("", None),
        ("👍", None),
        ("12345", None),
    ],
)
def test_language(text: str, code: str | None) -> None:
    """Scripts tell most languages, common words the rest; one unclear word tells nothing."""
    assert code_of(text) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\ndef the_a_is(): return 'and to of the'\n```\n修复这个函数", "zh"),
        ("修复 `AuthenticationMiddlewareFactory` 在 src/app/auth/middleware.py 里的问题", "zh"),
        ("please 帮忙看一下 OAuth 的 refresh token 为什么不会自动续期", "zh"),
        ("исправь handleLoginButtonClick в LoginButton.test.tsx и useAuthProvider", "ru"),
        ("```\n修复登录按钮的问题\n```\nfix the page and the form", "en"),
        ("the button 登录 does not work on the settings page of the app", "en"),
        ("https://example.com/the/and/of/to ist nicht mit dem Server verbunden", "de"),
    ],
)
def test_code_does_not_count(text: str, code: str) -> None:
    """Code, paths, identifiers and addresses say nothing about the language; the prose around them does."""
    assert code_of(text) == code


@pytest.mark.parametrize(
    ("conversation", "answer", "fits"),
    [
        ("Исправь ошибку входа, пожалуйста", "Fix login error", False),
        ("Исправь ошибку входа, пожалуйста", "Ошибка входа в OAuth", True),
        ("修复登录按钮", "Fix login button", False),
        ("修复登录按钮", "修复 login", True),
        ("ログインを修正してください", "認証修正", True),
        ("ログインを修正してください", "Login fix", False),
        ("로그인 오류를 고쳐 주세요", "修复登录", False),
        ("Please fix the login of the app", "修复登录", False),
        ("Please fix the login of the app", "Corriger la page", True),
        ("refactor", "修复登录", True),
    ],
)
def test_matches(conversation: str, answer: str, fits: bool) -> None:
    """An answer without one letter of the conversation's script is in another language; the rest is not judged."""
    assert matches(answer, dominant_language(conversation)) is fits


def test_unknown_code_counts_as_latin() -> None:
    """A language that was configured by name alone is judged as one in Latin script."""
    assert matches("Naprawa logowania", Language("xx", "Anything"))


def test_only_chinese_and_japanese_are_unspaced() -> None:
    """`cjk` says that a title is measured in characters rather than words."""
    flags = {
        code_of(text): dominant_language(text)
        for text in ("修复登录", "ログインの修正", "로그인 수정", "fix the app to")
    }
    assert {code: language.cjk for code, language in flags.items() if language} == {
        "zh": True,
        "ja": True,
        "ko": False,
        "en": False,
    }


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_never_raises(text: str) -> None:
    """Any text has a language or none, and a text without letters matches no language."""
    language = dominant_language(text)
    assert not matches("123", language) or language is None


@pytest.mark.parametrize(
    "piece", ["a_", "a", "a.", "/a", "_", "aB", "a@", "{", " ", "`", "```", "import ", "thread '", "diff --git \n", "="]
)
def test_hostile_text_takes_bounded_time(piece: str) -> None:
    """Text of any shape and length is judged in bounded time."""
    started = time.process_time()
    dominant_language(piece * 300_000)
    assert time.process_time() - started < 3
