"""The embedded text model: titles and recaps cut from the user's own words."""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.entries import DialogEntry, Origin
from watcher.core.extractive import extract_recap_text, extract_title
from watcher.core.generation import Role
from watcher.core.sanitize import sanitize_recap, sanitize_title
from watcher.core.text import MaskedText

DATA = Path(__file__).parents[1] / "data"
CORPUS = json.loads((DATA / "extractive_corpus.json").read_text(encoding="utf-8"))
CORPUS_SHA256 = "c078bd3734ab776a61aca7c00473ad70c308ce11af5adef72d6e3b80189704d5"
"""The corpus was written before the extractor and is not changed to suit it."""

WORDS = re.findall(r"\w+", "fix the login button of a page in safari and on mobile please when we test")
CJK = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]")
NO_TITLE = re.compile(
    r"(?:hi|hello|hey|sorry|apologies|please|thanks?|help|can you|could you|hola|buenos|perdona|por favor|gracias)\b"
    r"|你好|您好|在吗|请|帮我|不好意思|谢谢|こんにちは|すみません|お疲れ",
    re.IGNORECASE,
)
LAST_WORDS = {
    "of",
    "the",
    "a",
    "an",
    "and",
    "or",
    "to",
    "with",
    "for",
    "by",
    "at",
    "de",
    "la",
    "el",
    "y",
    "en",
    "del",
    "que",
}


def user(text: str) -> DialogEntry:
    return DialogEntry("u", None, Role.USER, text, Origin.PROMPT)


def assistant(text: str) -> DialogEntry:
    return DialogEntry("a", None, Role.ASSISTANT, text, Origin.ASSISTANT)


def corpus_entries(dialog: dict[str, list[dict[str, str]]]) -> list[DialogEntry]:
    return [user(turn["text"]) if turn["role"] == "user" else assistant(turn["text"]) for turn in dialog["turns"]]


def real_dialogs() -> dict[str, list[DialogEntry]]:
    """The conversations of the real session files, read in the simplest way."""
    dialogs = {}
    for path in sorted((DATA / "real").glob("*.jsonl")):
        entries = []
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            parts = (record.get("message") or {}).get("parts", [])
            text = "".join(part["text"] for part in parts if part.get("text", "").strip() and not part.get("thought"))
            if text and record["type"] in {"user", "assistant"} and "subtype" not in record:
                entries.append(user(text) if record["type"] == "user" else assistant(text))
        dialogs[path.stem] = entries
    return dialogs


ALL_DIALOGS = {dialog["name"]: corpus_entries(dialog) for dialog in CORPUS} | real_dialogs()


def is_cjk(title: str) -> bool:
    return len(CJK.findall(title)) > 1


def test_corpus_is_the_one_written_first() -> None:
    """The forty dialogs are those of the first commit."""
    assert hashlib.sha256((DATA / "extractive_corpus.json").read_bytes()).hexdigest() == CORPUS_SHA256
    assert len(CORPUS) == 40


@pytest.mark.parametrize("name", ALL_DIALOGS)
def test_title_shape(name: str) -> None:
    """2 to 9 words or 4 to 24 characters, fit to be written, no courtesy, no loose end."""
    title = extract_title(ALL_DIALOGS[name])
    if title is None:
        return
    if is_cjk(title):
        assert 4 <= len(CJK.findall(title)) <= 24
    else:
        assert 2 <= len(title.split()) <= 9
        assert title.split()[-1].lower() not in LAST_WORDS
    assert sanitize_title(title, ()) == title
    assert not NO_TITLE.match(title)


@pytest.mark.parametrize("name", ALL_DIALOGS)
def test_title_cuts_no_word(name: str) -> None:
    """Every word of a title is a whole word of the user's; Chinese and Japanese are one piece of the user's text."""
    title = extract_title(ALL_DIALOGS[name])
    if title is None:
        return
    said = "\n".join(entry.text for entry in ALL_DIALOGS[name] if entry.role is Role.USER)
    if is_cjk(title):
        assert title in said
    else:
        words = {word.strip("`\"'.,:;!?()¿¡").casefold() for word in re.split(r"[\s/]+", said)}
        words |= {word.rpartition(".")[2] for word in words}
        assert {word.strip(":").casefold() for word in title.split()} <= words


CJK_ENDINGS = {
    "zh-polite": "修复登录页面的按钮",
    "zh-greeting-then-task": "给商品列表接口加一层 Redis 缓存",
    "zh-long": "把订单导出改成流式写入",
    "zh-question": "为什么单元测试在 CI 上总是超时",
    "zh-mixed-code": "数据库连接池为什么会耗尽",
    "zh-short": "把 README 文档翻译成英文",
    "zh-apology": "支付回调偶尔会重复入账",
    "zh-no-punct": "写一个用户权限管理的模块要支持角色和资源两个维度",
    "zh-traditional": "圖片上傳失敗的時候要怎麼自動重試",
    "mixed-zh-en": "OAuth 的 refresh token 过期之后为什么不会自动续期",
    "ja-polite": "ログイン画面のテストがたまに失敗する",
    "ja-greeting-then-task": "検索APIのレスポンスをJSONからprotobufに変更",
    "ja-long": "集計バッチを並列化",
    "ja-question": "メモリ使用量が増え続ける",
    "ja-katakana-run": "ダッシュボードコンポーネントのリファクタリング",
}


@pytest.mark.parametrize("name", CJK_ENDINGS)
def test_chinese_and_japanese_titles(name: str) -> None:
    """Where words have no spaces only the eye can tell that none is cut: these titles were read."""
    assert extract_title(ALL_DIALOGS[name]) == CJK_ENDINGS[name]


def test_nine_titles_in_ten_have_three_to_seven_words() -> None:
    """Over corpus and real dialogs together; Chinese and Japanese titles count by their own measure."""
    titles = [title for title in map(extract_title, ALL_DIALOGS.values()) if title is not None]
    good = [title for title in titles if is_cjk(title) or 3 <= len(title.split()) <= 7]
    assert len(good) >= 0.9 * len(titles)


def test_titles_name_the_subject() -> None:
    """Nine dialogs in ten get a title with a word that was chosen beforehand; none where there is nothing to name."""
    misses = []
    for dialog in CORPUS:
        title = extract_title(corpus_entries(dialog))
        named = title is not None and any(word in title.lower() for word in dialog["about"])
        if not (named if dialog["about"] else title is None):
            misses.append((dialog["name"], title))
    assert len(misses) <= 4, misses


def test_every_real_dialog_gets_a_title() -> None:
    """The session files of a real Qwen Code all have something to be named by."""
    assert all(extract_title(entries) for entries in real_dialogs().values())


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("please fix the flaky login test", "Fix the flaky login test"),
        ("Can you help me to add a --json flag?", "Add a --json flag"),
        ("how do I center a div", "Center a div"),
        ("I'd like you to rename foo to bar in src/lib/utils/helpers.py", "Rename foo to bar in helpers.py"),
        ("why is the cookie not set in `session.ts`", "Why is cookie not set in session.ts"),
        ("UPGRADE DJANGO TO 5.1 NOW", "Upgrade django to 5.1"),
        ("camelCase names break the linter", "camelCase names break the linter"),
        ("hello world in rust", "Hello world in rust"),
        ("This is slow. Please make the search index smaller.", "Make the search index smaller"),
        ("Please don't touch the API. Rewrite the parser in Rust.", "Rewrite the parser in Rust"),
        ("sorry, one more thing: the footer overlaps the form", "Footer overlaps the form"),
        ("make it faster", None),
        ("fix this", None),
        ("help me please", None),
        ("Hi there!", None),
        ("ok", None),
        ("🚀🚀", None),
        ("```\nx = 1\n```", None),
        ("/clear", None),
        ("https://example.com/a/b", None),
        ("项目启动不了，报端口被占用", "项目启动不了"),
        ("帮我看一下这个报错怎么解决", None),
        ("继续", None),
        ("このエラーを直して", None),
        ("¿Cómo puedo desplegar la aplicación en Kubernetes?", "Desplegar la aplicación en Kubernetes"),
        ("Исправь, пожалуйста, ошибку входа на сайт", "Ошибку входа на сайт"),
        ("로그인 오류를 고쳐 주세요", "로그인 오류를 고쳐"),
    ],
)
def test_title_of_one_text(text: str, title: str | None) -> None:
    """Courtesy, code and addresses go; the clause that names the task stays, in sentence case."""
    assert extract_title([user(text)]) == title


def test_unpunctuated_chinese_is_cut_before_a_connective() -> None:
    """A long run is cut where a new phrase begins, never inside a word."""
    text = "请将所有的日志输出统一改成结构化格式并且加上追踪编号方便后面在平台里面检索和排查线上问题"
    assert extract_title([user(text)]) == "将所有的日志输出统一改成结构化格式"
    text = "ユーザー管理画面のパスワード再設定機能で有効期限切れのリンクを開いたときの表示内容を改善してください"
    assert extract_title([user(text)]) == "ユーザー管理画面のパスワード再設定機能"


def test_only_an_error_was_pasted() -> None:
    """With nothing but a trace or a log, the error line names the session."""
    trace = "TypeError: Cannot read properties of undefined (reading 'map')\n    at List (List.tsx:12:20)"
    assert extract_title([user(trace)]) == "TypeError: Cannot read properties"
    assert extract_title([user("npm ERR! code ERESOLVE\nnpm ERR! ERESOLVE unable to resolve tree")]) is not None


def test_what_nobody_said_is_no_source() -> None:
    """Commands, notifications and continuation preambles never become a title (reports B6, B7)."""
    entries = [
        user("/init"),
        user("This session is being continued from a previous conversation about billing."),
        DialogEntry("n", None, Role.USER, "Build the nightly report", Origin.NOTIFICATION),
        user("split the GraphQL schema by domain"),
    ]
    assert extract_title(entries) == "Split the GraphQL schema by domain"


@pytest.mark.parametrize(
    ("entries", "recap"),
    [
        (
            [user("move sessions to Redis"), assistant("Token store is done.\n\nNext: write the migration.")],
            "Working on: Move sessions to Redis. Next: write the migration.",
        ),
        (
            [
                user("move sessions to Redis"),
                assistant("Done."),
                user("now add a test for expiry"),
                assistant("Added."),
            ],
            "Working on: Move sessions to Redis. Next: Add a test for expiry.",
        ),
        ([user("move sessions to Redis"), assistant("Done.")], "Working on: Move sessions to Redis."),
        (
            [user("move sessions to Redis"), assistant("Next: old step."), user("wait for the review of the schema")],
            "Working on: Move sessions to Redis. Next: Wait for the review of the schema.",
        ),
        (
            [user("修复登录页面的按钮"), assistant("完成。下一步：补充测试。")],
            "正在处理：修复登录页面的按钮。下一步：补充测试。",
        ),
        (
            [user("検索APIを高速化してください"), assistant("次のステップ: 計測。")],
            "作業中：検索APIを高速化。次：計測。",
        ),
        ([user("hello")], None),
        ([], None),
    ],
)
def test_recap(entries: list[DialogEntry], recap: str | None) -> None:
    """What the user works on, then what the last answer announces, else the last request when it is another one."""
    assert extract_recap_text(entries) == recap


@pytest.mark.parametrize("name", ALL_DIALOGS)
def test_recap_shape(name: str) -> None:
    """A recap exists where a title does, in one or two sentences of under 40 words, fit to be written."""
    recap = extract_recap_text(ALL_DIALOGS[name])
    title = extract_title(ALL_DIALOGS[name])
    assert (recap is None) == (title is None)
    if recap is not None:
        assert title is not None
        assert title in recap
        assert len(recap.split()) < 40
        assert sanitize_recap(recap) == recap


def test_masked_words_are_no_title() -> None:
    """A clause with a secret is passed over, in a title and in a recap, also where a bound cuts the secret."""

    def mask(text: str) -> MaskedText:
        return MaskedText(text.replace("hunter22hunter22", "[secret]"), ("hunter22hunter22",))

    entries = [
        user("use hunter22hunter22 as the key, then rotate the tokens weekly"),
        assistant("Next: store hunter22hunter22."),
    ]
    for text in (extract_title(entries, mask), extract_recap_text(entries, mask)):
        assert text is None or "hunter22" not in text
    assert extract_title(entries, mask) == "Rotate the tokens weekly"
    edge = [user("x" * 19_980 + "\nfix the key hunter22hunter22")]
    assert "hunter" not in str(extract_title(edge, mask))


@pytest.mark.parametrize("length", [10, 30_000])
def test_next_step_at_the_end_of_a_long_answer(length: int) -> None:
    """What comes next stands at the end of an answer, however long it is."""
    recap = extract_recap_text(
        [user("move sessions to Redis"), assistant("Done so far. " * length + "\n\nNext: deploy it.")]
    )
    assert recap == "Working on: Move sessions to Redis. Next: deploy it."


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(WORDS),
        max_size=40,
    )
)
def test_words_stay_whole_and_in_order(words: list[str]) -> None:
    """A title is a run of the user's words; only articles may be missing from it."""
    title = extract_title([user(" ".join(words))])
    if title is None:
        return
    assert 2 <= len(title.split()) <= 7
    assert title.split()[-1].lower() not in LAST_WORDS
    said = iter(words)
    assert all(word in said for word in title.lower().split())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=80),
            st.lists(
                st.sampled_from(
                    [
                        "fix",
                        "the",
                        "login",
                        "please",
                        "修复",
                        "登录",
                        "的",
                        "，",
                        ". ",
                        " ",
                        "\n",
                        "```",
                        "して",
                        "🚀",
                        "`",
                    ]
                ),
                max_size=40,
            ).map("".join),
        ),
        max_size=4,
    )
)
def test_extractive_properties(texts: list[str]) -> None:
    """Any text gives a title that can be written or none, the same each time, and never an error."""
    entries = [user(text) for text in texts]
    title = extract_title(entries)
    assert title == extract_title(entries)
    assert title is None or sanitize_title(title, ()) == title
    recap = extract_recap_text(entries)
    assert recap is None or sanitize_recap(recap) == recap


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a ",
        "a,",
        "a.a",
        "/a",
        "_",
        ".",
        "! ",
        "`",
        "- ",
        "修",
        "修，",
        "\n",
        "x = 1\n",
        "please ",
        "(",
        "at x(\n",
        "a/",
        "你好",
    ],
)
def test_hostile_text_takes_bounded_time(piece: str) -> None:
    """Text of any shape and length is read in bounded time."""
    started = time.process_time()
    extract_title([user(piece * 200_000)] * 3)
    extract_recap_text([user("fix the login of the app"), assistant(piece * 200_000)])
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("生成一份周报 whats the difference between a mutex and a semaphore in this code base of ours", 9),
        ("so the save button nothing happens in safari but chrome works fine 修好", 9),
        ("fix the login " + "a" * 300 + " of the settings page", 9),
    ],
)
def test_mixed_and_endless_words_keep_the_bounds(text: str, words: int) -> None:
    """Two languages in one clause, and a word that is none."""
    title = extract_title([user(text)])
    assert title is None or (len(title.split()) <= words and len(title) <= 120)
