"""Away and back with the real Qwen Code: what stands on the screen when its user returns, however it ended.

Nearly all that these stories do is wait: a terminal's input time moves in steps of 8 s, so each absence takes that much
longer than `away_minutes`. Therefore they are played side by side, each in a home of its own.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support import qwen_code
from tests.support.acp import AcpClient
from tests.support.chat_server import ChatServer, Gate, Kind, Reply
from tests.support.multiplexer import Multiplexer, Pane, in_screen, in_tmux
from tests.support.qwen_code import LATEST, VERSIONS, Chat, Home, broken_lines, recap_texts, record_text, records, turns
from tests.support.ssh import SERVER, over_ssh
from tests.support.stories import MODEL, Stage, Story, Told, told
from tests.support.terminal import Terminal, running, squeeze, wait_until
from tests.support.transcripts import chain_of
from tests.support.vscode_terminal import PROMPT, VsCodeTerminal, node_pty
from tests.support.watching import REPOSITORY, Watching, command
from watcher.api.client import ask
from watcher.core.presence import TERMINAL_STEP_SECONDS
from watcher.paths import socket_path

RECAP = "Repairing the login form. Next: run its tests."
AWAY_SECONDS = 1.2
NATIVE_AWAY_MINUTES = 0.005
DELIVERY_SECONDS = 20.0
"""A kept text stands in the file 15 s after the owner's end at most (design 11); the rest is for a busy machine."""
PROMPTS = ("Repair the login form", "Now the logout", "And the signup")
AT_ONCE = 6
"""So many stories are played at a time."""

# A watcher with less patience for Qwen Code's own recaps, so that a test need not wait for a minute.
IMPATIENT = """
import watcher.core.native_recaps as native
native.PATIENCE_SECONDS = 5.0
native.LOOK_EVERY_SECONDS = 1.0
"""

_FULL_RULE = re.compile(r"─+(?: .+ ─+)?")


STORIES: dict[str, Story] = {}
LATEST_ONLY: set[str] = set()


def story(play: Story) -> Story:
    """Puts a story on the programme."""
    STORIES[play.__name__] = play
    return play


def story_of_latest(play: Story) -> Story:
    """One that has nothing to do with the version, played with the newest only."""
    LATEST_ONLY.add(play.__name__)
    return story(play)


def stage(home: Home, server: ChatServer, model: ChatServer, root: Path) -> Stage:
    """An empty home; its watchers make recaps only."""
    model.recap = RECAP
    settings: dict[str, object] = {
        "title.enabled": False,
        "title.settle_seconds": 1.0,
        "recap.enabled": True,
        "recap.away_minutes": AWAY_SECONDS / 60.0,
    }
    return Stage(home, server, model, root, settings)


@pytest.fixture(name="told", scope="module")
def _told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """The outcome of every chosen story, by name and version."""
    with told(request, tmp_path_factory, STORIES, stage, at_once=AT_ONCE) as outcomes:
        yield outcomes


# -- what is seen ------------------------------------------------------------------------------------------------------


def above_the_prompt(chat: Chat) -> str:
    """The last block of text above the input box, from its mark on, without white space."""
    lines = chat.terminal.screen()
    rules = [row for row, line in enumerate(lines) if _FULL_RULE.fullmatch(line) and len(line) > 40]
    shown = [line for line in lines[: rules[-2]] if line.strip()]
    last = max(row for row, line in enumerate(shown) if re.match(r"\s*[※◆●>✦]", line))
    # A long conversation has a scroll bar at the right edge.
    return squeeze("".join(line.rstrip(" │█▄▀▌▐") for line in shown[last:]))


def assert_resumes_with_recap(stage: Stage, session_id: str, *prompts: str) -> None:
    """`qwen --resume` shows every turn and, as the last thing above the prompt, the recap."""
    with Chat.resume(stage.home, stage.server, session_id) as chat:
        for text in (*prompts, "※ recap:"):
            chat.terminal.wait_for(text)
        assert above_the_prompt(chat) == squeeze(f"※ recap: {RECAP}")


def recap_records(session: Path) -> list[dict[str, Any]]:
    """The records that hold an away recap, in file order."""
    found = [each for each in records(session) if each.get("subtype") == "slash_command"]
    return [
        each
        for each in found
        if any(item.get("type") == "away_recap" for item in each["systemPayload"].get("outputHistoryItems", ()))
    ]


def tail(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """What `tail --json` tells."""
    done = command(env, "tail", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def why(env: Mapping[str, str], session_id: str) -> dict[str, Any]:
    """The recap's part of `why`, with the guards by name."""
    found = ask(socket_path(env), f"/session/{session_id}/why", timeout_seconds=10.0)
    if found is None:
        return {"guards": {}, "verdict": "", "reason": ""}
    recap: dict[str, Any] = found["recap"]
    return recap | {"guards": {each["name"]: each for each in recap["guards"]}}


def is_away(env: Mapping[str, str], session_id: str) -> bool:
    """Whether the running watcher holds the session's user for away."""
    guard = why(env, session_id)["guards"].get("away_not_yet")
    return guard is not None and bool(guard["ok"])


def presence(env: Mapping[str, str], session_id: str) -> dict[str, Any]:
    """What the running watcher knows of the session's user."""
    found = ask(socket_path(env), f"/session/{session_id}/why", timeout_seconds=10.0)
    assert found is not None
    known: dict[str, Any] = found["presence"]
    return known


def left_at(env: Mapping[str, str], session_id: str) -> float:
    """When the absence of the session's user began, in seconds since the epoch; 0 while the user is here."""
    known = presence(env, session_id)
    return datetime.fromisoformat(known["since"]).timestamp() if known["status"] == "away" else 0.0


def chat_away(chat: Chat) -> None:
    """Three turns, after which nobody touches a key."""
    for prompt in PROMPTS:
        chat.say(prompt)


def type_prompts(terminal: Terminal | Pane) -> None:
    """The same in a Qwen Code that was not started for a `Chat`, once it can be typed to."""
    terminal.wait_for("Type your message")
    for number, prompt in enumerate(PROMPTS, 1):
        terminal.send(prompt)
        terminal.wait_for(prompt)
        terminal.send("\r")
        terminal.wait_for(f"Answer {number}.")


def wait_recaps(session: Path, count: int, watching: Watching, timeout: float = 60.0) -> None:
    """Waits until the session holds so many recap records."""
    wait_until(
        lambda: len(recap_records(session)) >= count,
        f"recap record {count} of {session.stem[:8]}",
        timeout,
        watching.dump,
    )


def assert_delivered(stage: Stage, env: Mapping[str, str], session: Path, records_written: int) -> None:
    """Our text stands in so many records, the newest on the active branch; it was paid and is told once."""
    written = recap_records(session)
    assert [text for text in recap_texts(session) if text == RECAP] == [RECAP] * records_written
    assert written[-1]["uuid"] in chain_of(records(session))
    assert broken_lines(session) == []
    [told] = [each for each in tail(env) if each["session_id"] == session.stem]
    assert (told["kind"], told["text"], told["model"]) == ("recap", RECAP, MODEL)
    assert told["record_uuid"] == written[-1]["uuid"]
    assert len([each for each in stage.model.requests() if PROMPTS[0] in json.dumps(each.body)]) == 1


def seconds_past(moment: float) -> Callable[[], bool]:
    """Whether the wall clock has passed the moment."""
    return lambda: time.time() > moment


def input_time(tty: Path) -> float:
    """When the terminal last saw input, as its device tells."""
    return tty.stat().st_atime


def come_and_go(env: Mapping[str, str], session: Path, tty: Path, come: Callable[[], object]) -> float:
    """A return of which only the terminal tells, until the next absence; returns the terminal's input time of then.

    That the user was here is told by when the next absence began: it is not a state that could be over by the look.
    """
    wait_until(lambda: is_away(env, session.stem), "the absence")
    before = input_time(tty)
    come()
    wait_until(lambda: input_time(tty) > before, "the input at the terminal")
    came_at = input_time(tty)
    sign = presence(env, session.stem)["signs"][0]
    assert (sign["source"], sign["name"]) == ("terminal", str(tty))
    wait_until(lambda: left_at(env, session.stem) > came_at - 0.5, "the next absence")
    return came_at


def close(home: Home, hang_up: Callable[[], object]) -> None:
    """Closes the terminal; waits for the end of its Qwen Code, which was seen to leave its record behind."""
    [owner] = home.registry()
    hang_up()
    wait_until(lambda: not running(owner["pid"]), "the end of Qwen Code")


# -- the recap, and how a terminal can end -----------------------------------------------------------------------------


@story
def typing_after_the_recap_goes_on_undisturbed(stage: Stage) -> None:
    """The recap record stands in the file; the next turn knows nothing of it, and a resume shows all four turns."""
    env = stage.env()
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        chat_away(chat)
        session, before = chat.session, records(chat.session)
        mtime = session.stat().st_mtime_ns
        wait_recaps(session, 1, watching)
        [record] = recap_records(session)
        assert record["parentUuid"] == before[-1]["uuid"]
        assert record["systemPayload"] == {
            "phase": "result",
            "rawCommand": "/recap",
            "outputHistoryItems": [{"type": "away_recap", "text": RECAP}],
        }
        wait_until(lambda: session.stat().st_mtime_ns == mtime, "the file's old time", dump=watching.dump)
        assert [each.kind for each in stage.model.requests()] == [Kind.RECAP]

        assert chat.say("What about the tests") == "Answer 4."
        asked = json.dumps(stage.server.requests(Kind.TURN)[-1].body)
        assert all(prompt in asked for prompt in PROMPTS)
        assert RECAP not in asked
        session_id = chat.session_id
        watching.stop()
        [told] = tail(env)
        assert (told["kind"], told["text"], told["session_id"]) == ("recap", RECAP, session_id)
        assert told["record_uuid"] == record["uuid"]
        chat.quit()
    with Chat.resume(stage.home, stage.server, session_id) as chat:
        for text in (*PROMPTS, "What about the tests", "Answer 4."):
            chat.terminal.wait_for(text)
        assert not chat.terminal.shows("※ recap:")
    assert recap_texts(session) == [RECAP]


@story
def a_closed_terminal_shows_the_recap_on_resume(stage: Stage) -> None:
    """SIGHUP: the record that was written while the terminal was open already is the end of the conversation."""
    env = stage.env()
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        chat_away(chat)
        session = chat.session
        wait_recaps(session, 1, watching)
        chat.hangup()
        assert_resumes_with_recap(stage, session.stem, *PROMPTS)
    assert_delivered(stage, env, session, 1)


@story
def quit_shows_the_recap_on_resume(stage: Stage) -> None:
    """`/quit`: whatever it writes at its end, the recap stands behind it."""
    env = stage.env()
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        chat_away(chat)
        session = chat.session
        wait_recaps(session, 1, watching)
        chat.quit()
        wait_until(
            lambda: recap_records(session)[-1]["uuid"] in chain_of(records(session)),
            "the recap on the active branch",
            DELIVERY_SECONDS,
            watching.dump,
        )
        assert_resumes_with_recap(stage, session.stem, *PROMPTS)
    assert_delivered(stage, env, session, len(recap_records(session)))


def _titled(stage: Stage, end: Callable[[Chat], object]) -> None:
    env = stage.env()
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        chat_away(chat)
        session = chat.session
        wait_recaps(session, 1, watching)
        chat.rename("My name")
        end(chat)
        wait_recaps(session, 2, watching, DELIVERY_SECONDS)
        assert_resumes_with_recap(stage, session.stem, *PROMPTS)
    assert_delivered(stage, env, session, 2)


@story
def a_renamed_session_shows_the_recap_after_the_terminal_was_closed(stage: Stage) -> None:
    """A name given while the recap stood there, and its copy at the exit, hide it: it is appended again."""
    _titled(stage, Chat.hangup)


@story
def a_killed_session_shows_the_recap_on_resume(stage: Stage) -> None:
    """`kill -9` behind a hidden recap: only the end of the process tells, and within 15 s it stands last again."""
    _titled(stage, Chat.kill9)


@story
def a_session_that_is_cleared_away_shows_the_recap_on_resume(stage: Stage) -> None:
    """`/clear`: the process lives on with another session, so nobody owns this one any more."""
    _titled(stage, lambda chat: chat.command("/clear"))


@story
def a_session_that_was_quit_at_once_gets_its_recap_after_its_end(stage: Stage) -> None:
    """Nobody is there any more when the absence begins; the keys of `/quit` were the last sign of life."""
    env = stage.env({"recap.away_minutes": 5.0 / 60.0})
    with Watching(env) as watching:
        with Chat.start(stage.home, stage.server) as chat:
            chat_away(chat)
            session = chat.session
            chat.quit()
            ended_at = time.time()
        assert stage.calls() == 0
        wait_recaps(session, 1, watching)
        [request] = stage.model.requests()
        assert request.at > ended_at
        assert_resumes_with_recap(stage, session.stem, *PROMPTS)
    assert_delivered(stage, env, session, 1)


@story
def an_adopted_title_does_not_hide_the_recap(stage: Stage) -> None:
    """`title S NAME` on a closed session, which the next Qwen Code adopts and copies behind the recap at `/quit`."""
    env = stage.env()
    with Watching(env) as watching:
        with Chat.start(stage.home, stage.server) as chat:
            chat.say(PROMPTS[0])
            session = chat.session
            chat.quit()
        assert command(env, "title", session.stem, "My", "name").returncode == 0
        with Chat.resume(stage.home, stage.server, session.stem) as chat:
            chat.wait_title("My name")
            chat.say(PROMPTS[1])
            chat.say(PROMPTS[2])
            wait_recaps(session, 1, watching)
            copies = len(qwen_code.title_records(session))
            chat.quit()
        wait_recaps(session, 2, watching, DELIVERY_SECONDS)
        assert len(qwen_code.title_records(session)) > copies
        assert_resumes_with_recap(stage, session.stem, *PROMPTS)
    written = recap_records(session)
    [told] = [each for each in tail(env) if each["kind"] == "recap"]
    assert told["record_uuid"] == written[-1]["uuid"]
    assert stage.calls() == 1


# -- while the watcher is not there ------------------------------------------------------------------------------------


@story
def a_session_that_ended_while_the_watcher_was_down_gets_its_recap_at_the_start(stage: Stage) -> None:
    """One was quit, the other lost with the whole machine: both are delivered right after the start, unpaid."""
    env = stage.env()
    sessions: list[Path] = []
    with (
        Chat.start(stage.home, stage.server) as quitter,
        Chat.start(stage.home, stage.server) as victim,
    ):
        with Watching(env) as watching:
            for chat in (quitter, victim):
                chat_away(chat)
                sessions.append(chat.session)
            for session in sessions:
                wait_recaps(session, 1, watching)
        pid = victim.pid
        for chat, name in ((quitter, "First name"), (victim, "Second name")):
            chat.rename(name)
        quitter.quit()
        victim.kill9()
    [registered] = list(stage.home.config_dir.glob("sessions/*.json"))
    record = json.loads(registered.read_text())
    assert record["pid"] == pid
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    other_boot = {"procStart": f"{uuid.uuid4()}:4711", "startedAt": int((booted_at - 3600.0) * 1000)}
    registered.write_text(json.dumps(record | other_boot))
    with Watching(env) as watching:
        for session in sessions:
            wait_recaps(session, 2, watching, DELIVERY_SECONDS)
        assert_resumes_with_recap(stage, sessions[1].stem, *PROMPTS)
    told = {each["session_id"]: each["record_uuid"] for each in tail(env)}
    assert told == {session.stem: recap_records(session)[-1]["uuid"] for session in sessions}
    assert stage.calls() == 2


@story
def a_restart_while_the_terminal_lives_does_not_miss_its_end(stage: Stage) -> None:
    """The new watcher hears of the end of a process that it never saw begin."""
    env = stage.env()
    with Chat.start(stage.home, stage.server) as chat:
        with Watching(env) as watching:
            chat_away(chat)
            session = chat.session
            wait_recaps(session, 1, watching)
            chat.rename("My name")
        with Watching(env) as watching:
            chat.kill9()
            wait_recaps(session, 2, watching, DELIVERY_SECONDS)
    assert_delivered(stage, env, session, 2)


# -- signs of life -----------------------------------------------------------------------------------------------------


@story
def a_glance_at_the_window_starts_the_clock_of_the_absence_again(stage: Stage) -> None:
    """Focus out and in again, no key: the terminal's input time moves, and the recap waits from there."""
    away = 8.0
    env = stage.env({"recap.away_minutes": away / 60.0})
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        chat_away(chat)
        typed_at = input_time(chat.terminal.tty)
        next_step = (int(typed_at / TERMINAL_STEP_SECONDS) + 1) * TERMINAL_STEP_SECONDS
        wait_until(seconds_past(max(next_step + 0.1, typed_at + 3.0)), "the next step of the terminal's time")
        chat.terminal.focus_out()
        chat.terminal.focus_in()
        glanced_at = wait_until(
            lambda: input_time(chat.terminal.tty) > typed_at and input_time(chat.terminal.tty),
            "the terminal's new time",
        )
        wait_recaps(chat.session, 1, watching)
        [request] = stage.model.requests()
        assert request.at > glanced_at + TERMINAL_STEP_SECONDS + away - 0.1


@story
def with_trigger_return_the_recap_is_made_when_the_user_comes_back(stage: Stage) -> None:
    """An absence alone brings nothing; the first key after it does."""
    env = stage.env({"recap.trigger": "return"})
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        chat_away(chat)
        session = chat.session
        wait_until(
            lambda: [each for each in watching.log("decision") if "waits for the return" in each["detail"]],
            "the absence, seen by the service",
            dump=watching.dump,
        )
        assert stage.calls() == 0
        returned_at = time.time()
        chat.terminal.press("left")
        wait_recaps(session, 1, watching)
        [request] = stage.model.requests()
        assert request.at > returned_at


@story
def a_long_turn_has_its_recap_at_its_end_and_typing_during_the_call_drops_it(stage: Stage) -> None:
    """Away while a turn runs: nothing before its end, one after. Back while the model answers: no record."""
    env = stage.env()
    turn, call = Gate(), Gate()
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        chat.say(PROMPTS[0])
        chat.say(PROMPTS[1])
        stage.server.script(Reply("Done at last.", gate=turn))
        chat.say_nowait(PROMPTS[2])
        turn.wait_arrived()
        session = chat.session
        wait_until(
            seconds_past(input_time(chat.terminal.tty) + TERMINAL_STEP_SECONDS + AWAY_SECONDS + 2.0),
            "the user's absence",
        )
        assert why(env, session.stem)["reason"] == "working"
        assert stage.calls() == 0
        turn.release()
        chat.wait_turn(0)
        wait_recaps(session, 1, watching)
        assert stage.calls() == 1

        stage.model.script(Reply(f"<recap>{RECAP}</recap>", gate=call), kind=Kind.RECAP)
        chat.say("And the mails")
        chat.say("And the errors")
        call.wait_arrived()
        chat.say("I am back")
        call.release()
        watching.wait_event("not_written", session=session.stem, reason="nothing_new")
        assert recap_texts(session) == [RECAP]
        assert [each["kind"] for each in tail(env)] == ["recap"]
        chat.quit()
    said = [record_text(each) for each in records(session) if each["uuid"] in chain_of(records(session))]
    assert [text for text in said if text in (*PROMPTS, "I am back")] == [*PROMPTS, "I am back"]


def _in_multiplexer(stage: Stage, program: str, multiplexer: Multiplexer) -> None:
    """Detached, away, back at an attached client, away again, closed, resumed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: recaps inside it are untested here")
    env, qwen = stage.env(), stage.home
    with (
        Watching(env) as watching,
        multiplexer(qwen.qwen.argv(), qwen.env(stage.server), qwen.project, stage.root) as pane,
    ):
        type_prompts(pane)
        [session] = qwen.sessions()
        wait_recaps(session, 1, watching)
        with Terminal(pane.attach, qwen.env(stage.server), qwen.project) as client:  # of another tty
            client.wait_for("Answer 3.")
            come_and_go(env, session, pane.tty, lambda: client.press("left"))
        close(qwen, pane.kill)
        assert_resumes_with_recap(stage, session.stem, *PROMPTS)
    assert_delivered(stage, env, session, 1)


@story_of_latest
def in_tmux_the_recap_comes_as_anywhere_else(stage: Stage) -> None:
    """A detached session is an absence; keys that an attached client sends are its user's return."""
    _in_multiplexer(stage, "tmux", in_tmux)


@story_of_latest
def in_screen_the_recap_comes_as_anywhere_else(stage: Stage) -> None:
    """As in tmux."""
    _in_multiplexer(stage, "screen", in_screen)


@story_of_latest
def over_ssh_the_recap_comes_as_anywhere_else(stage: Stage) -> None:
    """The terminal is the server's; keys from afar are its user's, and a lost connection closes it."""
    if SERVER is None or shutil.which("ssh") is None:
        pytest.skip("ssh with its server is not installed: recaps over ssh are untested here")
    env, qwen, device = stage.env(), stage.home, stage.root / "tty"
    tell = "import os, sys; open(sys.argv[1], 'w').write(os.ttyname(0)); os.execvp(sys.argv[2], sys.argv[2:])"
    told_first = [sys.executable, "-I", "-c", tell, str(device), *qwen.qwen.argv()]
    client = over_ssh(told_first, qwen.env(stage.server), qwen.project, stage.root / "ssh")
    with Watching(env) as watching, Terminal(client, qwen.env(stage.server), qwen.project) as terminal:
        type_prompts(terminal)
        [session] = qwen.sessions()
        wait_recaps(session, 1, watching)
        come_and_go(env, session, Path(device.read_text()), lambda: terminal.press("left"))
        close(qwen, terminal.hangup)
        assert_resumes_with_recap(stage, session.stem, *PROMPTS)
    assert_delivered(stage, env, session, 1)


@story_of_latest
def in_vs_codes_terminal_the_recap_comes_as_anywhere_else(stage: Stage) -> None:
    """Focus and keys are its user's return, a reload of the window is nothing, and the end of VS Code closes it."""
    env, qwen = stage.env(), stage.home
    library = node_pty(qwen.qwen)
    if library is None or shutil.which("bash") is None:
        pytest.skip("there is no bash, or no node-pty for this machine: recaps in VS Code's terminal are untested here")
    its_env = qwen.env(stage.server)
    with (
        Watching(env) as watching,
        VsCodeTerminal(qwen.qwen.node, library, its_env, qwen.project, stage.root / "vscode") as vscode,
    ):
        with Terminal(vscode.window, its_env, qwen.project) as window:
            window.wait_for(PROMPT)
            window.send(shlex.join(qwen.qwen.argv()) + "\r")
            type_prompts(window)
            [session] = qwen.sessions()
            wait_recaps(session, 1, watching)
            glanced_at = come_and_go(env, session, vscode.tty, window.focus_in)
        with Terminal(vscode.window, its_env, qwen.project, columns=90) as window:  # a resize has it drawn again
            window.wait_for("Answer 3.")
            assert input_time(vscode.tty) == glanced_at
            assert is_away(env, session.stem)
            come_and_go(env, session, vscode.tty, lambda: window.press("left"))
        vscode.quit()
        assert_resumes_with_recap(stage, session.stem, *PROMPTS)
    assert_delivered(stage, env, session, 1)


# -- beside Qwen Code's own recaps -------------------------------------------------------------------------------------


@story
def qwen_codes_own_recaps_come_first_where_the_terminal_reports_focus(stage: Stage) -> None:
    """Three absences, three native recaps, no call of ours; closed during the fourth, ours is there on resume."""
    stage.home.show_recaps(NATIVE_AWAY_MINUTES)
    stage.server.recap = "Qwen Code says where you were."
    env = stage.env({"recap.enabled": "auto"})
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        numbers = itertools.count(1)
        chat_away(chat)
        session = chat.session
        for count in (1, 2, 3):
            chat.terminal.focus_out()
            wait_until(lambda: is_away(env, session.stem), f"absence {count}", dump=watching.dump)
            assert why(env, session.stem)["reason"] == "left_to_qwen"
            chat.terminal.focus_in()
            wait_recaps(session, count, watching)
            chat.terminal.wait_for(stage.server.recap)
            for _ in range(2):
                chat.say(f"Another prompt, number {next(numbers)}")
        assert stage.calls() == 0
        chat.terminal.focus_out()
        wait_until(lambda: is_away(env, session.stem), "the last absence", dump=watching.dump)
        chat.hangup()
        wait_recaps(session, 4, watching)
        assert recap_texts(session) == [stage.server.recap] * 3 + [RECAP]
        assert_resumes_with_recap(stage, session.stem, "Another prompt, number 6")
    assert_delivered(stage, env, session, 1)


@story
def a_terminal_without_focus_reports_is_found_out_by_the_first_return(stage: Stage) -> None:
    """The user comes back and no native recap follows: the next absence is ours."""
    stage.home.show_recaps(NATIVE_AWAY_MINUTES)
    folder = stage.root / "impatient"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(IMPATIENT)
    env = stage.env({"recap.enabled": "auto"}, {"PYTHONPATH": f"{folder}:{REPOSITORY}"})
    with Watching(env) as watching, Chat.start(stage.home, stage.server) as chat:
        chat_away(chat)
        session = chat.session
        wait_until(lambda: is_away(env, session.stem), "the first absence", dump=watching.dump)
        assert why(env, session.stem)["reason"] == "left_to_qwen"
        chat.terminal.press("left")
        wait_until(
            lambda: "sends no focus reports" in why(env, session.stem)["guards"]["left_to_qwen"]["detail"],
            "what the return has shown",
            dump=watching.dump,
        )
        chat.say("One more thing")
        assert stage.calls() == 0
        assert stage.server.requests(Kind.RECAP) == []
        wait_recaps(session, 1, watching)
        assert recap_texts(session) == [RECAP]
        assert stage.calls() == 1
        assert stage.server.requests(Kind.RECAP) == []


# -- in an editor ------------------------------------------------------------------------------------------------------


def _editor(stage: Stage, settings: Mapping[str, Any]) -> None:
    stage.home.configure(settings)
    env = stage.env()
    with AcpClient(stage.home, stage.server) as editor:
        session_id = editor.new_session()
        with Watching(env) as watching:
            for prompt in PROMPTS:
                editor.prompt(session_id, prompt)
            session = editor.session(session_id)
            before = session.read_bytes()
            watching.wait_event("not_written", session=session_id, reason="locked")
        with Watching(env) as watching:
            assert session.read_bytes() == before
            editor.close()
            wait_recaps(session, 1, watching, DELIVERY_SECONDS)
        assert session.read_bytes().startswith(before)
    assert [text for who, text in turns(session) if who == "user"] == list(PROMPTS)
    assert_delivered(stage, env, session, 1)


@story
def an_editor_session_gets_its_recap_when_it_ends(stage: Stage) -> None:
    """Nothing is written while the agent lives; one call, kept over a restart, written at its end."""
    _editor(stage, {"experimental": {"sessionWriterLease": True}})


@story
def an_editor_session_that_does_not_register_gets_its_recap_when_it_ends(stage: Stage) -> None:
    """Without cross-session messaging the agent stands in no registry; its end is noticed all the same."""
    _editor(stage, {"agents": {"crossSessionMessaging": False}})


# -- the programme -----------------------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for name in STORIES for version in VERSIONS if version == LATEST or name not in LATEST_ONLY],
)
def test_story(told: Told, name: str, version: str) -> None:
    """Every story above."""
    told[name, version].result()
