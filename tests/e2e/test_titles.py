"""The main job with the real Qwen Code: a title from outside, dim in the picker; the user's own name always wins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import qwen_code
from tests.support.acp import AcpClient
from tests.support.chat_server import ChatServer, Gate, Kind, Reply, ToolCall
from tests.support.qwen_code import VERSIONS, Chat, Home, QwenCode, broken_lines, records, title_records, turns
from tests.support.terminal import wait_until
from tests.support.transcripts import chain_of
from tests.support.watching import Watching, watcher_env

MODEL = "watcher-model"
TITLE = "Repair the login form"
TITLE_FIELDS = [
    "uuid", "parentUuid", "sessionId", "timestamp", "type", "provenance", "cwd", "version", "subtype", "systemPayload",
]  # fmt: skip


@pytest.fixture(name="server")
def _server() -> Iterator[ChatServer]:
    """Qwen Code's own model."""
    with ChatServer() as server:
        yield server


@pytest.fixture(name="titles")
def _titles() -> Iterator[ChatServer]:
    """The watcher's model."""
    with ChatServer(title=TITLE) as server:
        yield server


@pytest.fixture(name="qwen", params=VERSIONS)
def _qwen(request: pytest.FixtureRequest) -> QwenCode:
    return qwen_code.install(request.param)


@pytest.fixture(name="home")
def _home(tmp_path: Path, qwen: QwenCode) -> Home:
    return Home(tmp_path, qwen)


@pytest.fixture(name="env")
def _env(tmp_path: Path, home: Home, titles: ChatServer) -> dict[str, str]:
    """A watcher with an explicit model and a short settle time."""
    settings = {
        "model.source": "explicit",
        "model.name": MODEL,
        "model.base_url": titles.base_url,
        "title.settle_seconds": 1.0,
    }
    return watcher_env(home.path, tmp_path / "state", settings)


def assert_well_written(session: Path) -> None:
    """Every title of ours is compact, has the native fields and continues the leaf of its moment (contract 4.5)."""
    seen: list[dict[str, Any]] = []
    for line in session.read_bytes().splitlines(keepends=True):
        record = json.loads(line)
        payload = record.get("systemPayload", {})
        if (
            record.get("subtype") == "custom_title"
            and payload.get("customTitle") == TITLE
            and "gitBranch" not in record
        ):
            assert line == json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            assert payload == {"customTitle": TITLE, "titleSource": "auto"}
            assert record["parentUuid"] == seen[-1]["uuid"]
        seen.append(record)
    assert broken_lines(session) == []
    assert len({record["sessionId"] for record in seen}) == 1


def is_ours(record: dict[str, Any]) -> bool:
    """Whether a title record is ours: Qwen Code's own copies may hold more fields, never fewer."""
    return list(record) == TITLE_FIELDS


def said(session: Path) -> list[str]:
    """What user and assistant said on the active branch, oldest first."""
    active = set(chain_of(records(session)))
    spoken = [each for each in records(session) if each["uuid"] in active and each["type"] in ("user", "assistant")]
    return [qwen_code.record_text(each) for each in spoken]


@pytest.mark.e2e
def test_a_new_session_gets_its_title(home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]) -> None:
    """Chat, wait, quit, `--resume`: our title is in the picker, dim; all turns are there; it stands after more
    turns.
    """
    with Watching(env) as watching:
        with Chat.start(home, server) as chat:
            chat.say("Fix the login bug")
            watching.wait_event("title_written", session=chat.session_id)
            session = chat.session
            assert chat.quit() == 0
        assert title_records(session) == [(TITLE, "auto")]
        [request] = titles.requests_for(MODEL)
        assert request.kind is Kind.TITLE
        assert "Fix the login bug" in request.prompt

        titles.title = "Quite another thing"
        with Chat.start(home, server) as other:  # the selected entry hides whether it is dim
            other.say("Something else")
            other.quit()
        with Chat.resume_picker(home, server) as chat:
            shown = {entry.title: entry.dim for entry in chat.picker() if not entry.selected}
            assert shown.get(TITLE) is True
            chat.pick(TITLE)
            assert chat.terminal.shows("Fix the login bug")
            assert chat.terminal.shows("Answer 1.")
            chat.say("And the logout")
            assert chat.quit() == 0
        assert set(title_records(session)) == {(TITLE, "auto")}
        assert [text for text in said(session) if not text.startswith("Answer")] == [
            "Fix the login bug",
            "And the logout",
        ]
        assert len([each for each in titles.requests_for(MODEL) if "Fix the login bug" in each.prompt]) == 1
        assert_well_written(session)


@pytest.mark.e2e
def test_a_rename_before_our_call_costs_no_call(
    home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]
) -> None:
    """The user's name stands there already: nothing is asked."""
    with Watching(env) as watching, Chat.start(home, server) as chat:
        gate = Gate()
        server.script(Reply("Done.", gate=gate))
        chat.say_nowait("Fix the login bug")
        gate.wait_arrived()
        gate.release()
        wait_until(lambda: chat.session.exists() and len(turns(chat.session)) == 2, "the turn")
        chat.rename("My name")
        watching.wait_event("decision", reason="manual_title", session=chat.session_id)
        session = chat.session
        chat.quit()
    assert set(title_records(session)) == {("My name", "manual")}
    assert titles.requests_for(MODEL) == []


@pytest.mark.e2e
def test_a_rename_during_our_call_wins(home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]) -> None:
    """The model answers after the rename: the file is read again and ours is dropped."""
    gate = Gate()
    titles.script(Reply(tool_calls=[ToolCall("name", {"title": TITLE})], gate=gate), kind=Kind.TITLE)
    with Watching(env) as watching:
        with Chat.start(home, server) as chat:
            chat.say("Fix the login bug")
            gate.wait_arrived()
            chat.rename("My name")
            gate.release()
            watching.wait_event("not_written", reason="manual_title", session=chat.session_id)
            session = chat.session
            chat.quit()
        with Chat.resume_picker(home, server) as chat:
            assert [entry.title for entry in chat.picker()] == ["My name"]
    assert set(title_records(session)) == {("My name", "manual")}


@pytest.mark.e2e
def test_a_rename_after_our_title_wins(home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]) -> None:
    """The user does not like it: the new name stands, after a restart of everything as well."""
    with Watching(env) as watching, Chat.start(home, server) as chat:
        chat.say("Fix the login bug")
        watching.wait_event("title_written", session=chat.session_id)
        chat.rename("My name")
        chat.say("And the logout")
        session = chat.session
        chat.quit()
    with Watching(env), Chat.resume_picker(home, server) as chat:
        assert [entry.title for entry in chat.picker()] == ["My name"]
        chat.pick("My name")
        chat.say("One more")
        chat.quit()
    assert title_records(session)[-1] == ("My name", "manual")
    assert len(titles.requests_for(MODEL)) == 1


@pytest.mark.e2e
def test_two_terminals_on_one_session_cannot_bring_our_title_back_over_the_users(
    home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]
) -> None:
    """The first has adopted our title and quits last, after the second renamed: the user's name is put last again."""
    with Watching(env) as watching:
        with Chat.start(home, server) as chat:
            chat.say("Fix the login bug")
            watching.wait_event("title_written", session=chat.session_id)
            session, session_id = chat.session, chat.session_id
            chat.quit()
        with Chat.resume(home, server, session_id) as first:
            first.wait_title(TITLE)
            with Chat.resume(home, server, session_id) as second:
                second.say("And the logout")
                second.rename("My name")
                second.quit()
            first.say("And the signup")
            first.quit()
        wait_until(lambda: title_records(session)[-1] == ("My name", "manual"), "the healing", dump=watching.dump)
        with Chat.resume_picker(home, server) as chat:
            assert [entry.title for entry in chat.picker()] == ["My name"]
    assert_well_written(session)


@pytest.mark.e2e
def test_a_session_that_qwen_code_titles_costs_us_nothing(
    home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]
) -> None:
    """Qwen Code has a fast model of its own: it comes first, and our model is never asked."""
    home.use_fast_model(server)
    with Watching(env) as watching, Chat.start(home, server) as chat:
        chat.say("Fix the login bug")
        wait_until(lambda: title_records(chat.session), "Qwen Code's own title")
        watching.wait_event("decision", reason="title_present", session=chat.session_id)
        session = chat.session
        chat.quit()
    assert {source for _, source in title_records(session)} == {"auto"}
    assert titles.requests() == []


@pytest.mark.e2e
def test_with_the_users_own_fast_model_the_title_comes_from_it(home: Home, server: ChatServer, tmp_path: Path) -> None:
    """Nothing configured: a session that Qwen Code left untitled (titles switched off there) is ours, same model and
    key.
    """
    home.use_fast_model(server)
    env = watcher_env(home.path, tmp_path / "state", {"title.settle_seconds": 1.0}, {"OPENAI_API_KEY": "dummy"})
    with Watching(env) as watching:
        with Chat.start(home, server) as chat:
            server.script(Reply(status=500, text="busy"), kind=Kind.TITLE)
            chat.say("Fix the login bug")
            session, session_id = chat.session, chat.session_id
            wait_until(lambda: server.requests(Kind.TITLE), "Qwen Code's own try")
            chat.quit()
        watching.wait_event("title_written", session=session_id)
    assert title_records(session) == [("Title from the model", "auto")]
    ours = [each for each in server.requests_for("fast-model") if "qwen-session-watcher" in each.headers["user-agent"]]
    assert [each.headers["authorization"] for each in ours] == ["Bearer dummy"] * len(ours)
    assert ours


@pytest.mark.e2e
def test_tool_calls_first_and_the_title_only_at_the_end_of_the_turn(
    home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]
) -> None:
    """A first turn that opens with seven bare tool calls: no call and no attempt before it has ended, one title
    after.
    """
    gate = Gate()
    notes = [home.project / f"notes-{number}.txt" for number in range(7)]  # the same call again is stopped as a loop
    for note in notes:
        note.write_text("hello")
    calls = [ToolCall("read_file", {"file_path": str(note)}) for note in notes]
    server.script(*(Reply(tool_calls=[call]) for call in calls), Reply("All read.", gate=gate))
    with Watching(env) as watching, Chat.start(home, server, "--approval-mode", "yolo") as chat:
        chat.say_nowait("Read the notes seven times")
        gate.wait_arrived()
        watching.wait_event("decision", reason="empty_history", session=chat.session_id)
        assert titles.requests() == []
        gate.release()
        watching.wait_event("title_written", session=chat.session_id)
        session = chat.session
        chat.quit()
    assert len(titles.requests_for(MODEL)) == 1
    assert title_records(session) == [(TITLE, "auto")]


@pytest.mark.e2e
@pytest.mark.parametrize("where", ["watcher", "owner", "dotenv", "settings"])
def test_the_disable_switch_works_wherever_a_user_sets_it(
    home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str], where: str
) -> None:
    """QWEN_DISABLE_AUTO_TITLE in our environment, Qwen Code's, its .env or its settings: no call, the reason is
    named.
    """
    owner_env: dict[str, str] = {}
    name = "QWEN_DISABLE_AUTO_TITLE"
    if where == "watcher":
        env = env | {name: "1"}
    elif where == "owner":
        owner_env[name] = "true"
    elif where == "dotenv":
        (home.config_dir / ".env").write_text(f"{name}=1\n")
    else:
        home.configure({"env": {name: "1"}})
    with Watching(env) as watching, Chat.start(home, server, env=owner_env) as chat:
        chat.say("Fix the login bug")
        said_why = watching.wait_event("decision", reason="disabled", session=chat.session_id)
        assert name in said_why["detail"]
        chat.quit()
    assert titles.requests() == []


@pytest.mark.e2e
def test_headless_runs_get_no_title(home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]) -> None:
    """`qwen -p` is for scripts; it is left alone by default."""
    with Watching(env) as watching:
        assert home.run(server, "-p", "Fix the login bug").returncode == 0
        [session] = home.sessions()
        watching.wait_event("decision", reason="not_interactive", session=session.stem)
    assert titles.requests() == []
    assert title_records(session) == []


@pytest.mark.e2e
def test_an_editor_session_with_the_lease_on_is_never_broken(
    home: Home, server: ChatServer, titles: ChatServer, env: dict[str, str]
) -> None:
    """ACP with the writer lease: ten prompts, none refused; the title arrives after it has ended."""
    home.configure({"experimental": {"sessionWriterLease": True}})
    with Watching(env) as watching:
        with AcpClient(home, server) as editor:
            session_id = editor.new_session()
            for number in range(10):
                editor.prompt(session_id, f"Fix login bug number {number}")
            session = editor.session(session_id)
            assert title_records(session) == []
            editor.close()
        watching.wait_event("title_written", session=session_id)
    assert title_records(session) == [(TITLE, "auto")]
    assert len([each for each in turns(session) if each[0] == "user"]) == 10
    assert len(titles.requests_for(MODEL)) == 1
