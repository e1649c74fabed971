"""The end-to-end harness itself: the pseudo-terminal, the model server, and the real Qwen Code between them.

What these tests say about Qwen Code is what the product's own end-to-end tests build on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support import qwen_code
from tests.support.acp import AcpClient, AcpError
from tests.support.chat_server import ChatServer, Gate, Kind, Reply, ToolCall
from tests.support.qwen_code import (
    VERSIONS,
    Chat,
    Home,
    QwenCode,
    append_title,
    recap_texts,
    records,
    title_records,
    turns,
)
from tests.support.terminal import Terminal, WaitTimeoutError, running, wait_until

AWAY_MINUTES = 0.005  # 0.3 s
_BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Every test ends all threads and processes that it started."""
    threads = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= threads
    assert not [child for child in psutil.Process().children(recursive=True) if running(child.pid)]


@pytest.fixture(name="server")
def _server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture(name="qwen", params=VERSIONS)
def _qwen(request: pytest.FixtureRequest) -> QwenCode:
    return qwen_code.install(request.param)


@pytest.fixture(name="home")
def _home(tmp_path: Path, qwen: QwenCode) -> Home:
    return Home(tmp_path, qwen)


def _tool_results(session: Path) -> list[dict[str, Any]]:
    """The records of both tools, once they are there."""
    results = [each for each in records(session) if each["type"] == "tool_result"]
    return results if len(results) == 2 else []


# -- Qwen Code in a terminal ---------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_chat_is_recorded_resumed_from_the_picker_and_renamed(home: Home, server: ChatServer) -> None:
    with Chat.start(home, server) as chat:
        assert chat.session_id in [each["sessionId"] for each in home.registry()]
        assert chat.say("Fix the login bug") == "Answer 1."
        session = chat.session
        assert turns(session) == [("user", "Fix the login bug"), ("assistant", "Answer 1.")]
        assert chat.shown_title() is None
        assert chat.quit() == 0
    assert home.sessions() == [session]
    assert home.registry() == []

    with Chat.resume_picker(home, server) as chat:
        assert [entry.title for entry in chat.picker()] == ["Fix the login bug"]
        chat.pick("Fix the login bug")
        assert chat.terminal.shows("Answer 1.")
        assert chat.session == session
        assert chat.say("And now test it") == "Answer 2."
        chat.rename("My name")
        assert chat.shown_title() == "My name"
        assert title_records(session) == [("My name", "manual")]
        assert chat.quit() == 0
    assert set(title_records(session)) == {("My name", "manual")}
    assert [who for who, _ in turns(session)] == ["user", "assistant"] * 2

    with Chat.resume_picker(home, server) as chat:
        assert [entry.title for entry in chat.picker()] == ["My name"]


@pytest.mark.e2e
def test_a_title_written_from_outside_is_in_the_picker_and_dim_when_automatic(home: Home, server: ChatServer) -> None:
    for prompt in ("first prompt", "second prompt", "third prompt"):
        with Chat.start(home, server) as chat:
            chat.say(prompt)
            chat.quit()
    newest, middle, _ = home.sessions()
    append_title(middle, "Written by hand", "manual")
    append_title(newest, "Written from outside", "auto")

    with Chat.resume_picker(home, server) as chat:
        chat.select("first prompt")
        shown = {entry.title: entry.dim for entry in chat.picker()}
        assert shown == {"Written from outside": True, "Written by hand": False, "first prompt": None}
        [manual] = {cell.foreground for cell in chat.terminal.cells("Written by hand")}
        [automatic] = {cell.foreground for cell in chat.terminal.cells("Written from outside")}
        assert manual == "default"
        assert automatic != "default"
        chat.pick("Written from outside")
        chat.wait_title("Written from outside")
        assert chat.terminal.shows("third prompt")


@pytest.mark.e2e
def test_qwen_code_titles_its_sessions_when_there_is_a_fast_model(home: Home, server: ChatServer) -> None:
    home.use_fast_model(server)
    server.title = "Repair mobile login"
    with Chat.start(home, server) as chat:
        chat.say("My login is broken on the phone")
        chat.wait_title("Repair mobile login")
        wait_until(lambda: title_records(chat.session) == [("Repair mobile login", "auto")], "the title record")
        server.title = "Another title"
        chat.command("/rename --auto")
        chat.wait_title("Another title")
        wait_until(lambda: title_records(chat.session)[-1] == ("Another title", "auto"), "the second title record")
    request, second = server.requests(Kind.TITLE)
    assert request.model == "fast-model"
    assert server.requests_for("fast-model") == [request, second]
    assert request.headers["authorization"] == "Bearer dummy"
    assert "My login is broken on the phone" in request.prompt


@pytest.mark.e2e
def test_qwen_code_shows_its_recap_when_the_focus_comes_back(home: Home, server: ChatServer) -> None:
    home.show_recaps(AWAY_MINUTES)
    server.recap = "Fixing the login. Next: run the tests."
    with Chat.start(home, server) as chat:
        for prompt in ("one", "two", "three"):
            chat.say(prompt)
        assert server.requests(Kind.RECAP) == []
        chat.away(seconds=2.0)
        chat.terminal.wait_for("※ recap: Fixing the login. Next: run the tests.")
        wait_until(lambda: recap_texts(chat.session), "the recap record")
        assert recap_texts(chat.session) == [server.recap]
        assert len(server.requests(Kind.RECAP)) == 1


@pytest.mark.e2e
def test_a_killed_session_can_be_resumed(home: Home, server: ChatServer) -> None:
    with Chat.start(home, server) as chat:
        chat.say("before the crash")
        pid, session_id = chat.pid, chat.session_id
        chat.kill9()
        assert not running(pid)
    assert [each["pid"] for each in home.registry()] == [pid]  # nobody was left to remove it
    with Chat.resume(home, server, session_id) as chat:
        assert chat.terminal.shows("before the crash")
        chat.say("after the crash")
        assert [text for who, text in turns(chat.session) if who == "user"] == ["before the crash", "after the crash"]


@pytest.mark.e2e
def test_a_session_whose_window_was_closed_can_be_continued(home: Home, server: ChatServer) -> None:
    with Chat.start(home, server) as chat:
        chat.say("hello")
        pid, session = chat.pid, chat.session
        assert chat.hangup() != 0
        assert not running(pid)
    with Chat.start(home, server, "--continue") as chat:
        assert chat.terminal.shows("Answer 1.")
        chat.say("hello again")
        assert chat.session == session
    assert turns(session)[1::2] == [("assistant", "Answer 1."), ("assistant", "Answer 2.")]


@pytest.mark.e2e
def test_a_held_answer_keeps_the_turn_open_until_it_is_released(home: Home, server: ChatServer) -> None:
    (home.project / "notes.txt").write_text("remember the milk")
    gate = Gate()
    read = ToolCall("read_file", {"file_path": str(home.project / "notes.txt")})
    shell = ToolCall("run_shell_command", {"command": "echo from-the-shell", "is_background": False})
    server.script(Reply("Let me look.", tool_calls=[read, shell]), Reply("**Milk** it is.", gate=gate, thought="Hm."))
    with Chat.start(home, server) as chat:
        chat.say_nowait("What do I need?")
        gate.wait_arrived()
        chat.terminal.wait_for("esc to cancel")
        # The model is asked before the records that led to the request are in the file.
        results = wait_until(lambda: _tool_results(chat.session), "two tool results")
        assert "remember the milk" in json.dumps(results)
        assert "from-the-shell" in json.dumps(results)
        assert turns(chat.session)[-1] == ("assistant", "Let me look.")
        gate.release()
        assert chat.wait_turn(after_record=0) == "**Milk** it is."


@pytest.mark.e2e
def test_a_cancelled_turn_ends_the_request_of_the_model(home: Home, server: ChatServer) -> None:
    server.script(Reply("Never heard.", gate=Gate()))
    with Chat.start(home, server) as chat:
        chat.say_nowait("Take your time")
        chat.terminal.wait_for("esc to cancel")
        [request] = server.wait_requests(1, Kind.TURN)
        chat.terminal.press("escape")
        chat.wait_idle()
        assert request.aborted.wait(10)


@pytest.mark.e2e
def test_a_command_can_be_given_as_soon_as_qwen_code_is_up(home: Home, server: ChatServer) -> None:
    with Chat.start(home, server) as chat:
        assert chat.quit() == 0
    assert home.sessions() == []


@pytest.mark.e2e
def test_any_text_can_be_typed_also_twice_in_a_row(home: Home, server: ChatServer) -> None:
    prompts = [
        "修复登录按钮在手机上的问题 🙂 " * 8,
        "line one\nline two\n\nline four",
        "many words " * 250,
        "same words",
    ]
    with Chat.start(home, server) as chat:
        for prompt in prompts:
            chat.say(prompt)
            chat.say(prompt)
        said = [text for who, text in turns(chat.session) if who == "user"]
        assert said == [prompt.strip() for prompt in prompts for _ in range(2)]


# -- Qwen Code without a terminal ----------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_headless_run_makes_a_session_without_a_trace_of_a_live_process(home: Home, server: ChatServer) -> None:
    result = home.run(server, "-p", "List the files")
    assert (result.returncode, result.stdout.strip()) == (0, "Answer 1.")
    [session] = home.sessions()
    assert turns(session) == [("user", "List the files"), ("assistant", "Answer 1.")]
    assert home.registry() == home.sidecars() == []
    assert "file_history_snapshot" not in [each.get("subtype") for each in records(session)]


@pytest.mark.e2e
@pytest.mark.parametrize("lease", [False, True], ids=["no-lease", "lease"])
def test_an_editor_session_bears_a_foreign_record_only_without_a_lease(
    home: Home, server: ChatServer, lease: bool
) -> None:
    home.configure({"experimental": {"sessionWriterLease": lease}})
    with AcpClient(home, server) as editor:
        session_id = editor.new_session()
        assert editor.prompt(session_id, "hello") == "end_turn"
        assert editor.said(session_id) == "Answer 1."
        session = editor.session(session_id)
        assert turns(session) == [("user", "hello"), ("assistant", "Answer 1.")]
        assert records(session)[-1]["subtype"] == "branch_checkpoint"
        assert [path.name for path in home.locks()] == ([f"{session_id}.lock"] if lease else [])

        append_title(session, "Written from outside")
        if lease:
            with pytest.raises(AcpError) as refused:
                editor.prompt(session_id, "again")
            assert refused.value.code == -32022
            assert refused.value.data["errorKind"] == "session_transcript_changed"
        else:
            assert editor.prompt(session_id, "again") == "end_turn"
        assert editor.close() == 0
    assert home.locks() == []
    assert home.registry() == []

    with AcpClient(home, server) as editor:
        editor.load_session(session_id)
        assert editor.prompt(session_id, "once more") == "end_turn"
    assert bool(home.locks()) is lease  # the agent was killed
    assert turns(session)[-2][1] == "once more"


# -- the terminal --------------------------------------------------------------------------------------------


def _python(script: str, tmp_path: Path, columns: int = 40, rows: int = 6) -> Terminal:
    """A Python program in a terminal of its own."""
    argv = [sys.executable, "-I", "-u", "-c", script]
    return Terminal(argv, {"LANG": "C.UTF-8", "TERM": "xterm-256color"}, tmp_path, columns, rows)


def test_the_program_leads_a_session_on_a_terminal_of_the_given_size(tmp_path: Path) -> None:
    script = (
        "import os; open('/dev/tty').close(); print(os.getsid(0) == os.getpid(), os.get_terminal_size());"
        "print(sorted(os.environ), os.ttyname(0))"
    )
    with _python(script, tmp_path, columns=60, rows=7) as terminal:
        terminal.wait_for("True os.terminal_size(columns=60, lines=7)")
        terminal.wait_for(f"['LANG', 'TERM'] {terminal.tty}")
        assert terminal.wait_exit() == 0


def test_looks_and_odd_sequences_do_not_disturb_the_text(tmp_path: Path) -> None:
    script = (
        "print('\\x1b[?1049h\\x1b[>1u\\x1b[>4;2m\\x1b[?2026hplain ', end='');"
        "print('\\x1b[2mdim\\x1b[22m \\x1b[38;5;2;1mgreen\\x1b[0m\\x1b[?2026l');"
        "print('\\x1bP+q544e\\x1b\\\\\\x1b]8;;x\\x07link\\x1b]8;;\\x07 ●\\ufe0e dot 中文 end')"
    )
    with _python(script, tmp_path) as terminal:
        terminal.wait_exit()
        assert terminal.screen()[:2] == ["plain dim green", "link ● dot 中文 end"]
        plain, dim, green = (terminal.cells(word)[0] for word in ("plain", "dim", "green"))
        assert (plain.dim, dim.dim, green.dim) == (False, True, False)
        assert not plain.underline
        assert green.bold
        assert green.foreground != plain.foreground == dim.foreground == "default"
        assert [cell.text for cell in terminal.cells("文 end")] == list("文 end")


def test_questions_to_the_terminal_are_answered(tmp_path: Path) -> None:
    script = (
        "import sys, tty; tty.setraw(0)\n"
        "for question in ('\\x1b[?u\\x1b[c', '\\x1b[6n', '\\x1b]11;?\\x07'):\n"
        "    sys.stdout.write(question)\n"
        "    answer = ''\n"
        "    while not answer.endswith(('c', 'R', '\\x1b\\\\')):\n"
        "        answer += sys.stdin.read(1)\n"
        "    sys.stdout.write(repr(answer) + '\\r\\n')\n"
    )
    with _python(script, tmp_path) as terminal:
        terminal.wait_exit()
        assert terminal.screen()[:3] == [r"'\x1b[?62;22c'", r"'\x1b[2;1R'", r"'\x1b]11;rgb:0000/0000/0000\x1b\\'"]


def test_a_wait_fails_at_once_with_the_screen_when_the_program_ends(tmp_path: Path) -> None:
    with _python("print('last words')", tmp_path) as terminal, pytest.raises(WaitTimeoutError, match="last words"):
        terminal.wait_for("something else")


def test_a_hangup_is_seen_by_the_program_and_a_kill_reaches_its_children(tmp_path: Path) -> None:
    with _python("import time; print('up'); time.sleep(600)", tmp_path) as terminal:
        terminal.wait_for("up")
        terminal.hangup()
        assert terminal.wait_exit() == -1
    script = "import subprocess; child = subprocess.Popen(['sleep', '600']); print('up'); child.wait()"
    with _python(script, tmp_path) as terminal:
        terminal.wait_for("up")
        pids = terminal.pids()
        terminal.kill()
        assert terminal.wait_exit() == -9
    assert len(pids) == 2
    assert not any(map(running, pids))


def test_keys_reach_the_program_and_what_scrolled_away_is_kept(tmp_path: Path) -> None:
    script = (
        "import tty, sys; tty.setcbreak(0); print('\\x1b[?1004hgo');"
        "print(repr(sys.stdin.read(9))); [print('line', i) for i in range(20)]"
    )
    with _python(script, tmp_path) as terminal:
        terminal.wait_for("go")
        terminal.press("up", "escape")
        terminal.focus_in()
        terminal.send("é.")
        assert terminal.wait_exit() == 0
        assert terminal.history()[1] == repr("\x1b[A\x1b\x1b[Ié.")
        assert terminal.screen()[:2] == ["line 15", "line 16"]


# -- the model server ----------------------------------------------------------------------------------------


def _ask(server: ChatServer, **more: object) -> httpx.Response:
    """The answer to a chat completion request."""
    url = f"{server.base_url}/chat/completions"
    return httpx.post(url, json=_BODY | more, headers={"X-Test": "yes"}, timeout=30, trust_env=False)


def test_the_server_answers_plainly_and_in_a_stream_and_remembers(server: ChatServer) -> None:
    call = ToolCall("look", {"where": "here"}, id="call_1")
    server.script(*[Reply("Hello there.", tool_calls=[call])] * 2, kind=Kind.OTHER)
    wanted = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"where": "here"}'}}
    message = {"role": "assistant", "content": "Hello there.", "tool_calls": [wanted]}
    assert _ask(server).json()["choices"] == [{"index": 0, "message": message, "finish_reason": "tool_calls"}]

    answer = _ask(server, stream=True)
    assert answer.headers["Content-Type"] == "text/event-stream"
    *events, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "Hello there."
    assert [delta["tool_calls"] for delta in deltas if "tool_calls" in delta] == [[{"index": 0, **wanted}]]
    assert chunks[-1]["usage"]["completion_tokens"] > 0

    first, second = server.requests_for("m")
    assert (first.stream, second.stream) == (False, True)
    assert first.headers["x-test"] == "yes"
    assert (first.prompt, first.kind, first.path) == ("hi", Kind.OTHER, "/v1/chat/completions")


def test_the_server_fails_as_told(server: ChatServer) -> None:
    server.respond = lambda request: Reply("slow down", status=429, headers={"Retry-After": "7"})
    answer = _ask(server)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert answer.json()["error"]["message"] == "slow down"
    server.respond = lambda request: Reply(raw=b"<html>")
    assert _ask(server).content == b"<html>"
    server.respond = lambda request: Reply(drop=True)
    with pytest.raises(httpx.RemoteProtocolError):
        _ask(server)


def test_the_server_sees_a_client_leave_in_the_middle_of_an_answer(server: ChatServer) -> None:
    server.script(Reply("half and half", gate=Gate(), gate_midway=True), kind=Kind.OTHER)
    url = f"{server.base_url}/chat/completions"
    with httpx.Client(trust_env=False) as client, client.stream("POST", url, json=_BODY | {"stream": True}) as answer:
        assert any("half a" in line for line in answer.iter_lines())
    assert server.requests()[0].aborted.wait(10)


def test_the_server_closes_with_an_answer_still_held() -> None:
    failures: list[BaseException] = []

    def ask(server: ChatServer) -> None:
        try:
            _ask(server)
        except httpx.HTTPError as error:
            failures.append(error)

    with ChatServer() as server:
        server.script(Reply("never", gate=Gate()), kind=Kind.OTHER)
        client = threading.Thread(target=ask, args=[server])
        client.start()
        server.wait_requests(1)
    client.join(10)
    assert len(failures) == 1


def test_the_server_lists_its_models(server: ChatServer) -> None:
    models = httpx.get(f"{server.base_url}/models", trust_env=False).json()
    assert [each["id"] for each in models["data"]] == ["main-model", "fast-model"]


# -- the installation ----------------------------------------------------------------------------------------


def test_a_failed_install_says_what_npm_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho out of cheese >&2\nexit 3\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(qwen_code, "CACHE", tmp_path / "cache")
    with pytest.raises(qwen_code.InstallError, match=r"exit status 3.*\nout of cheese"):
        qwen_code.install("0.0.1")
