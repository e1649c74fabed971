"""What the `[recap]` settings do, with a real watcher, real files and processes."""

from __future__ import annotations

import json
import os
import uuid

import pytest

from tests.scenarios.conftest import FakeHome
from tests.scenarios.test_recaps import RECAP, WAIT_ALONE, ended_session, owned_session, recap_env, wait_recap
from tests.support.chat_server import ChatServer
from tests.support.live import end, registry_record, running, running_at_terminal, write_record
from tests.support.qwen_code import recap_texts
from tests.support.terminal import wait_until
from tests.support.transcripts import Transcript
from tests.support.watching import Watching

pytestmark = pytest.mark.slow


@pytest.fixture(name="server")
def _server(server: ChatServer) -> ChatServer:
    """A model with a good recap."""
    server.recap = RECAP
    return server


# -- user_memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False], ids=["on", "off"])
def test_the_users_memory_goes_with_the_request_when_that_is_wanted(
    home: FakeHome, server: ChatServer, wanted: bool
) -> None:
    """QWEN.md and AGENTS.md of the config dir, wherever the sessions are; secrets in them are masked, too."""
    runtime = home.path / "runtime"
    home.config_dir.mkdir()
    (home.config_dir / "QWEN.md").write_text("I call the login form the gate. password = hunter2hunter2\n")
    (home.config_dir / "AGENTS.md").write_text("I like short sentences.\n")
    os.mkfifo(home.config_dir / "PIPE.md")
    names = ["QWEN.md", "PIPE.md", "MISSING.md", "AGENTS.md"]
    (home.config_dir / "settings.json").write_text(json.dumps({"context": {"fileName": names}}))
    env = recap_env(home, server, {"recap.user_memory": wanted}, {"QWEN_RUNTIME_DIR": str(runtime)})
    with Watching(env) as watching:
        session = Transcript(runtime / "projects/-home-user-proj/chats", cwd="/home/user/proj")
        session.at = os.stat(session.path.parent).st_mtime - 60.0
        for number in range(3):
            session.turn(f"Please fix login bug number {number}", "Done.")
        wait_recap(session, watching)
    [request] = server.requests()
    asked = json.dumps(request.body)
    assert ("I call the login form the gate." in asked, "I like short sentences." in asked) == (wanted, wanted)
    assert "hunter2hunter2" not in asked
    assert "gate" not in watching.dump()


# -- after_exit --------------------------------------------------------------------------------------------------------


def test_with_after_exit_never_only_a_living_session_gets_a_recap(home: FakeHome, server: ChatServer) -> None:
    """The ended one costs no call, however long it stands; one that ends while its user is here neither."""
    env = recap_env(home, server, {"recap.after_exit": "never"})
    with running(code=WAIT_ALONE) as owner, Watching(env) as watching:
        ended = ended_session(home)
        decision = watching.wait_event("decision", session=ended.session_id, reason="recaps_off", verdict="skip")
        assert "after_exit" in decision["detail"]
        living = owned_session(home, owner.pid)
        wait_recap(living, watching)
        assert recap_texts(ended.path) == []
    assert len(server.requests()) == 1


def test_with_after_exit_never_what_was_made_before_the_end_is_still_delivered(
    home: FakeHome, server: ChatServer
) -> None:
    """It is paid: an editor's session keeps it to its end, a terminal may hide it by its last words."""
    env = recap_env(home, server, {"recap.after_exit": "never"})
    with (
        running(code=WAIT_ALONE) as editor,
        running(code=WAIT_ALONE) as terminal,
        Watching(env) as watching,
    ):
        edited = owned_session(home, editor.pid, kind="headless")
        hidden = owned_session(home, terminal.pid)
        wait_recap(hidden, watching)
        watching.wait_event("not_written", session=edited.session_id, reason="locked")
        hidden.title("A name from its memory", "manual")
        end(editor)
        end(terminal)
        wait_recap(edited, watching)
        wait_recap(hidden, watching, 2)
    assert len(server.requests()) == 2


# -- trigger -----------------------------------------------------------------------------------------------------------


def test_with_trigger_return_a_key_at_the_terminal_brings_the_recap(home: FakeHome, server: ChatServer) -> None:
    """The absence alone brings nothing, and a session whose owner has gone gets it as with `away`."""
    env = recap_env(home, server, {"recap.trigger": "return"})
    with running_at_terminal() as owner, Watching(env) as watching:
        session = owned_session(home, owner.process.pid)
        wait_until(
            lambda: [line for line in watching.log("decision") if "waits for the return" in line["detail"]],
            "the absence",
            dump=watching.dump,
        )
        ended = ended_session(home)
        wait_recap(ended, watching)
        assert recap_texts(session.path) == []
        os.write(owner.master, b"\n")
        wait_recap(session, watching)
    waits = watching.log("decision", session=session.session_id, reason="away_not_yet")
    assert len({line["detail"] for line in waits}) == len(waits), "said again at each look"
    assert len(server.requests()) == 2


def test_with_trigger_return_an_editors_session_gets_it_at_its_end(home: FakeHome, server: ChatServer) -> None:
    """Nothing tells of a return there but the next prompt, which comes too late."""
    env = recap_env(home, server, {"recap.trigger": "return"})
    with running(code=WAIT_ALONE) as owner, Watching(env) as watching:
        session_id = str(uuid.uuid4())
        write_record(home.config_dir, registry_record(owner.pid, session_id, kind="headless"))
        session = Transcript(home.chats(), session_id=session_id, cwd="/home/user/proj")
        session.at = os.stat(session.path.parent).st_mtime - 60.0
        for step in ("Repair", "Test", "Deploy"):
            session.turn(f"{step} the login form.", "Done.")
        wait_until(
            lambda: [line for line in watching.log("decision") if "waits for the return" in line["detail"]],
            "the absence",
            dump=watching.dump,
        )
        assert server.requests() == []
        end(owner)
        wait_recap(session, watching)
    assert len(server.requests()) == 1
