"""The explicit commands beside the real Qwen Code in a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import qwen_code
from tests.support.chat_server import ChatServer
from tests.support.qwen_code import VERSIONS, Chat, Home, recap_texts, title_records, turns
from tests.support.terminal import wait_until
from tests.support.watching import Watching, command, watcher_env


@pytest.mark.e2e
def test_a_name_from_outside_outlives_the_title_that_a_live_cli_holds(tmp_path: Path) -> None:
    """The CLI writes the title that it holds again at its exit; the watcher puts the later one last. `undo` goes back,
    `--auto` and `recap --write` show natively, and the conversation is whole.
    """
    with ChatServer() as server:
        home = Home(tmp_path, qwen_code.install(VERSIONS[-1]))
        own = home.env(server)
        env = watcher_env(Path(own["HOME"]), tmp_path / "state", {"model.source": "extractive"})
        env |= {name: value for name, value in own.items() if name.startswith("QWEN_")}
        with Watching(env), Chat.start(home, server) as chat:
            chat.say("Fix the login bug in the shop")
            session, session_id = chat.session, chat.session_id
            chat.rename("Held by the CLI")
            ran = command(env, "title", session_id, "Given from outside")
            assert (ran.returncode, ran.stdout) == (0, "Given from outside\n")
            assert "put last when the session closes" in ran.stderr
            chat.say("And the logout page")
            chat.quit()
            wait_until(lambda: title_records(session)[-1] == ("Given from outside", "manual"), "our title last")
            assert ("Held by the CLI", "manual") in title_records(session)[2:], "the CLI wrote its own at its exit"
            assert command(env, "undo", session_id).stdout == "put back: Held by the CLI\n"
            ran = command(env, "title", session_id, "--auto")
            assert ran.returncode == 0
            title = ran.stdout.strip()
            recap = command(env, "recap", session_id, "--write").stdout.strip()
            assert recap_texts(session) == [recap]
        with Chat.resume(home, server, session_id) as chat:
            chat.wait_title(title)
            assert chat.terminal.shows(f"※ recap: {recap}")
            chat.say("Thank you")
            chat.quit()
        assert [text for speaker, text in turns(session) if speaker == "user"] == [
            "Fix the login bug in the shop",
            "And the logout page",
            "Thank you",
        ]
