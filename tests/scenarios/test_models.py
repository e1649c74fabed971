"""Money and language with the running watcher: refused keys, rate limits, outages, the day's budget, wrong answers."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import MODEL, TITLE, FakeHome
from tests.support.chat_server import ChatRequest, ChatServer, Reply, ToolCall
from tests.support.qwen_code import title_records
from tests.support.terminal import wait_until
from tests.support.transcripts import Transcript
from tests.support.watching import Watching, command, watcher_env
from watcher.edge.store import Store
from watcher.workplace import local_day

FAILED = "title_failed"
REFUSAL = Reply(tool_calls=[ToolCall("give_answer", {"title": "I'm sorry, I cannot help with that."})])
"""An answer in the right form that is no title."""
JUNK = Reply("")
"""An answer without a usable text; its tokens cost all the same."""


def titled(session: Transcript) -> bool:
    return bool(title_records(session.path))


def wait_titled(watching: Watching, *sessions: Transcript) -> None:
    wait_until(lambda: all(map(titled, sessions)), "the titles", dump=watching.dump)


def decided(watching: Watching, session: Transcript, reason: str) -> None:
    """Wait until that is what was last decided for the title of a session."""

    def last() -> bool:
        decisions = watching.log("decision", session=session.session_id, logger="SESSION_TITLE")
        return bool(decisions) and decisions[-1]["reason"] == reason

    wait_until(last, f"the decision {reason}", dump=watching.dump)


def warnings(watching: Watching) -> list[str]:
    return [line["event"] for line in watching.log(level="warning")]


def status(env: dict[str, str]) -> dict[str, Any]:
    done = command(env, "status", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def doctor(env: dict[str, str], check: str) -> dict[str, str]:
    checks: list[dict[str, str]] = json.loads(command(env, "doctor", "--json").stdout)
    return next(each for each in checks if each["check"] == check)


class OwnModel:
    """The user's own fast model in Qwen Code's settings, with its key in Qwen Code's `.env`."""

    def __init__(self, home: FakeHome, server: ChatServer) -> None:
        self._home = home
        entry = {"id": "fast-model", "baseUrl": server.base_url, "envKey": "THE_KEY"}
        home.config_dir.mkdir(parents=True)
        (home.config_dir / "settings.json").write_text(
            json.dumps({"fastModel": "fast-model", "modelProviders": {"openai": [entry]}})
        )
        self.env = watcher_env(home.path, home.state, {"title.settle_seconds": 0.3})

    def set_key(self, key: str) -> None:
        """What a user does who corrects a key."""
        (self._home.config_dir / ".env").write_text(f"THE_KEY={key}\n")


def wants_key(key: str, status_code: int = 401) -> Callable[[ChatRequest], Reply | None]:
    """A service that takes this key only."""

    def respond(request: ChatRequest) -> Reply | None:
        good = request.headers.get("authorization") == f"Bearer {key}"
        return None if good else Reply("Incorrect API key provided", status=status_code)

    return respond


@pytest.mark.slow
@pytest.mark.parametrize("status_code", [401, 402, 403])
def test_a_refused_key_is_used_once_and_said_once(home: FakeHome, server: ChatServer, status_code: int) -> None:
    """One request, one warning, `status` and `doctor` tell; a corrected key is used without a restart, also for the
    sessions that waited.
    """
    own = OwnModel(home, server)
    own.set_key("wrong")
    server.respond = wants_key("right", status_code)
    with Watching(own.env) as watching:
        home.session("first")
        line = watching.wait_event(FAILED)
        assert (line["status"], line["host"], line["reason"]) == (status_code, "127.0.0.1", "model_error")
        waiting = [home.session(f"waiting{number}") for number in range(3)]
        for session in waiting:
            wait_considered(watching, session)
        assert len(server.requests()) == 1
        assert warnings(watching) == [FAILED]
        error = status(own.env)["last_error"]
        assert f"HTTP {status_code}" in error["detail"]
        check = doctor(own.env, "api_key")
        assert (check["status"], f"HTTP {status_code}" in check["detail"]) == ("fail", True)

        own.set_key("right")
        fresh = home.session("fresh")
        wait_titled(watching, fresh)
        watching.send_signal(signal.SIGHUP)
        wait_titled(watching, *waiting)
        assert len(server.requests()) == 1 + 1 + len(waiting)
        assert doctor(own.env, "api_key")["status"] == "ok"
        assert warnings(watching) == [FAILED]


def wait_considered(watching: Watching, *sessions: Transcript) -> None:
    wait_until(lambda: all(considered(watching, each) for each in sessions), "a decision", dump=watching.dump)


def considered(watching: Watching, session: Transcript) -> bool:
    """Whether the session was still and then looked at: its title was decided on."""
    return any(line["verdict"] == "act" for line in watching.log("decision", session=session.session_id))


@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
@pytest.mark.slow
def test_nobody_asks_before_the_time_that_a_busy_server_names(
    home: FakeHome, server: ChatServer, env: dict[str, str], as_date: bool
) -> None:
    """Retry-After, as seconds or as a date, is one pause for all sessions; then each is titled with one request."""
    pause = 4
    server.respond = busy_once(pause, as_date=as_date)
    with Watching(env) as watching:
        home.session("first")
        watching.wait_event(FAILED, status=429)
        waiting = [home.session(f"waiting{number}") for number in range(5)]
        wait_titled(watching, *waiting)
        assert warnings(watching) == [FAILED]
    first, *later = [request.at for request in server.requests()]
    assert min(later) >= first + pause - (1.0 if as_date else 0.0)
    assert len(later) == len(waiting)


def busy_once(pause: int, *, as_date: bool) -> Callable[[ChatRequest], Reply | None]:
    """A server that asks for a pause at the first request. A date has no parts of a second."""
    asked: list[float] = []

    def respond(request: ChatRequest) -> Reply | None:
        asked.append(request.at)
        if len(asked) > 1:
            return None
        named = formatdate(request.at + pause, usegmt=True) if as_date else str(pause)
        return Reply("slow down", status=429, headers={"Retry-After": named})

    return respond


@pytest.mark.slow
def test_an_outage_brings_no_storm(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Twenty sessions wait while nobody answers: hardly a request, and afterwards one for each that was not asked."""
    server.respond = lambda _: Reply(drop=True)
    with Watching(env) as watching:
        sessions = [home.session(f"p{number}") for number in range(20)]
        wait_considered(watching, *sessions)
        lost = len(server.requests())
        assert lost <= 2, "no more than were under way together"
        server.respond = None
        wait_until(lambda: sum(map(titled, sessions)) >= len(sessions) - lost, "the titles", dump=watching.dump)
        for session in sessions:  # the next turn of those whose attempt was lost
            if not titled(session):
                session.turn("And the logout", "Yes.")
        wait_titled(watching, *sessions)
    assert len(server.requests()) == lost + len(sessions)
    assert all(title_records(session.path) == [(TITLE, "auto")] for session in sessions)


@pytest.mark.slow
def test_the_budget_of_the_day(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Two calls a day: the third session is told so, waits for midnight, across a restart, and then gets its title."""
    env = env | {"QWEN_WATCHER_BUDGET__CALLS_PER_DAY": "2"}
    with Watching(env) as watching:
        sessions = [home.session(f"p{number}") for number in range(2)]
        wait_titled(watching, *sessions)
        third = home.session("third")
        decided(watching, third, "budget_exhausted")
        assert status(env)["calls_today"] == 2
    with Watching(env) as watching:
        decided(watching, third, "budget_exhausted")
    assert len(server.requests()) == 2
    let_a_day_pass(home)
    with Watching(env) as watching:
        wait_titled(watching, third)
    assert len(server.requests()) == 3


def let_a_day_pass(home: FakeHome) -> None:
    """What was counted today was counted yesterday."""
    store = Store.open(home.state)
    today, yesterday = local_day(time.time()), local_day(time.time() - 86_400)
    changed = store._db.run("UPDATE days SET day = ? WHERE day = ?", (yesterday, today))
    store.close()
    assert changed == 1


@pytest.mark.slow
def test_sessions_that_meet_at_the_last_call_lose_nothing(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """Ten at once and three calls left: three titles, no failed attempt; the others wait for tomorrow."""
    env = env | {"QWEN_WATCHER_BUDGET__CALLS_PER_DAY": "3"}
    with Watching(env) as watching:
        sessions = [home.session(f"p{number}") for number in range(10)]
        wait_until(lambda: sum(map(titled, sessions)) == 3, "three titles", dump=watching.dump)
        left = [session for session in sessions if not titled(session)]
        for session in left:
            decided(watching, session, "budget_exhausted")
        assert warnings(watching) == []
    assert len(server.requests()) == 3
    let_a_day_pass(home)
    with Watching(env) as watching:
        wait_until(lambda: sum(map(titled, sessions)) == 6, "three more", dump=watching.dump)


def test_what_failed_answers_cost_is_counted(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """The tokens of an answer that was no title stand in `status` like any others."""
    server.respond = lambda _: JUNK
    with Watching(env) as watching:
        home.session()
        watching.wait_event(FAILED, reason="empty_result")
        tokens = status(env)["tokens_today"]
    assert tokens["in"] > 0
    assert tokens["out"] > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_restarts_cost_nothing(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """200 sessions, half of them with answers that are no titles; killed in the midst, then ended and killed ten times
    more: one request a session, no more, and the day's count stands.
    """
    sessions = 200
    server.respond = lambda request: None if re.search(r"number \d*[02468]\b", request.prompt) else REFUSAL
    with Watching(env) as watching:
        made = [home.session(f"p{number % 20}", turns=0) for number in range(sessions)]
        for number, session in enumerate(made):
            session.turn(f"Please fix login bug number {number}", "Done.")
        server.wait_requests(sessions // 10)
        watching.kill9()
    with Watching(env) as watching:
        wait_until(lambda: tried(home, made), "an attempt for every session", 240, lambda: str(len(server.requests())))
    calls = len(server.requests())
    # The two that were under way at the kill may have been counted and not asked, or asked and not titled.
    assert sessions - 2 <= calls <= sessions
    assert sessions // 2 - 2 <= sum(map(titled, made)) <= sessions // 2
    counted = status(env)["calls_today"]
    assert calls <= counted <= sessions
    before = {session.path: session.path.read_bytes() for session in made}
    for number in range(10):
        with Watching(env) as watching:
            if number % 2:
                watching.kill9()
    assert len(server.requests()) == calls
    assert {path: path.read_bytes() for path in before} == before
    assert status(env)["calls_today"] == counted


def tried(home: FakeHome, sessions: list[Transcript]) -> bool:
    """Whether each session has had its attempt, and none is under way."""
    store = Store.open(home.state)
    try:
        attempts = [store.attempts(session.session_id) for session in sessions]
    finally:
        store.close()
    open_ends = [
        session
        for session, each in zip(sessions, attempts, strict=True)
        if not each.last_reason and not titled(session)
    ]
    return all(each.count == 1 for each in attempts) and len(open_ends) <= 2


@pytest.mark.parametrize(
    "setting",
    [
        {"ALL_PROXY": "socks://127.0.0.1:1"},
        {"HTTP_PROXY": "socks5h://127.0.0.1:1", "HTTPS_PROXY": "127.0.0.1:1"},
        {"SSL_CERT_FILE": "/nowhere/ca.pem", "SSL_CERT_DIR": "/nowhere"},
    ],
    ids=["socks", "socks5h", "authorities"],
)
def test_a_broken_network_setting_does_not_stop_a_local_model(
    home: FakeHome, server: ChatServer, env: dict[str, str], setting: dict[str, str]
) -> None:
    """Reports H1 and H3: the watcher starts, and a model on this machine needs neither a proxy nor a certificate."""
    with Watching(env | setting) as watching:
        wait_titled(watching, home.session())
        assert warnings(watching) == []
    assert len(server.requests()) == 1


# -- language ----------------------------------------------------------------------------------------------------------

DIALOGS = {
    "Russian": (
        "Пожалуйста, исправь ошибку входа: после обновления страницы меня выбрасывает",
        "Готово.",
        "Починить вход после обновления",
    ),
    "Chinese": ("请帮我修复登录页面的错误，刷新之后会退出登录", "好的，已经修复。", "修复刷新后退出登录的问题"),
    "Japanese": (
        "ログインページのエラーを直してください。更新するとログアウトします",
        "直しました。",
        "更新時のログアウトを直す",
    ),
}


@pytest.mark.parametrize("language", DIALOGS)
def test_a_title_in_another_language_is_no_title(
    home: FakeHome, server: ChatServer, env: dict[str, str], language: str
) -> None:
    """The model is told the language of the conversation. An English answer is rejected and counted; the next turn gets
    another attempt, and an answer in the language stands.
    """
    prompt, answer, title = DIALOGS[language]
    server.title = "Fix the login after a refresh"
    session = home.session(turns=0)
    session.turn(prompt, answer)
    with Watching(env) as watching:
        session.turn(prompt, answer)
        watching.wait_event(FAILED, reason="empty_result", session=session.session_id)
        assert not titled(session)
        server.title = title
        session.turn(prompt, answer)
        wait_titled(watching, session)
    assert title_records(session.path) == [(title, "auto")]
    assert len(server.requests()) == 2
    assert all(language in str(request.messages[0]["content"]) for request in server.requests())


def test_the_users_output_language_counts_more(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """Whoever told Qwen Code to answer in French gets French titles for English conversations too."""
    home.config_dir.mkdir(parents=True)
    (home.config_dir / "output-language.md").write_text("Always answer in French, please.\n")
    server.title = "Réparer la page de connexion"
    with Watching(env) as watching:
        session = home.session()
        wait_titled(watching, session)
    assert title_records(session.path) == [("Réparer la page de connexion", "auto")]
    [request] = server.requests()
    assert "Always answer in French, please." in request.system


def test_a_recap_in_another_language_is_no_recap(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """`recap S` rejects it with its reason; in the language of the conversation it is given."""
    session = home.session(turns=0)
    for _ in range(3):
        session.turn(DIALOGS["Russian"][0], DIALOGS["Russian"][1])
    refused = command(env, "recap", session.session_id)
    assert (refused.returncode, "empty_result" in refused.stderr) == (1, True), refused.stderr
    server.recap = "Вы чините вход. Дальше: запустить тесты."
    given = command(env, "recap", session.session_id)
    assert (given.returncode, given.stdout) == (0, "Вы чините вход. Дальше: запустить тесты.\n"), given.stderr
    assert [request.model for request in server.requests()] == [MODEL, MODEL]
    assert status(env)["calls_today"] == 2


def test_no_title_without_a_fast_model(home: FakeHome, server: ChatServer) -> None:
    """Only a main model: no call, and the reason is named (promise 3)."""
    home.config_dir.mkdir(parents=True)
    settings = {"security": {"auth": {"selectedType": "openai", "apiKey": "k", "baseUrl": server.base_url}}}
    (home.config_dir / "settings.json").write_text(json.dumps({**settings, "model": {"name": "main-model"}}))
    env = watcher_env(home.path, home.state, {"title.settle_seconds": 0.3})
    with Watching(env) as watching:
        session = home.session()
        decided(watching, session, "no_fast_model")
    assert server.requests() == []
    assert Path(session.path).read_bytes().count(b"custom_title") == 0
