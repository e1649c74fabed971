"""Recaps on files that the test writes itself: bad models, which model, who has the session, restarts, switched off."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import MODEL, FakeHome
from tests.support.chat_server import ChatRequest, ChatServer, Kind, Reply
from tests.support.live import end, registry_record, running, running_at_terminal, write_record
from tests.support.qwen_code import recap_texts
from tests.support.terminal import wait_until
from tests.support.transcripts import Transcript, chain_of
from tests.support.watching import Watching, command, watcher_env
from watcher.api.client import ask
from watcher.paths import socket_path

RECAP = "Repairing the login form. Next: run its tests."
AWAY_SECONDS = 1.2
DELIVERY_SECONDS = 20.0
"""15 s by design 11; the rest is for a busy machine."""


@pytest.fixture(name="env")
def _env(home: FakeHome, server: ChatServer) -> dict[str, str]:
    """A watcher that makes recaps only, with an explicit model."""
    server.recap = RECAP
    return recap_env(home, server)


def recap_env(
    home: FakeHome,
    server: ChatServer,
    settings: Mapping[str, object] | None = None,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of such a watcher, with other settings on top."""
    base: dict[str, object] = {
        "model.source": "explicit",
        "model.name": MODEL,
        "model.base_url": server.base_url,
        "title.enabled": False,
        "title.settle_seconds": 0.3,
        "recap.enabled": True,
        "recap.away_minutes": AWAY_SECONDS / 60.0,
    }
    return watcher_env(home.path, home.state, base | dict(settings or {}), extra)


def ended_session(home: FakeHome, turns: int = 3) -> Transcript:
    """A session of a minute ago whose Qwen Code has ended."""
    return home.session(turns=turns, ago=60.0)


def wait_recap(session: Transcript, watching: Watching, count: int = 1, timeout: float = 60.0) -> None:
    """Waits until the session holds so many recaps."""
    wait_until(lambda: len(recap_texts(session.path)) >= count, f"recap {count}", timeout, watching.dump)


def tail(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """What `tail --json` tells."""
    return [json.loads(line) for line in command(env, "tail", "--json").stdout.splitlines()]


# -- a bad model -------------------------------------------------------------------------------------------------------

CLEANED = {
    "a list": "<recap>\n- Repairing the login form.\n- Next: run its tests.\n</recap>",
    "a numbered list": "<recap>1. Repairing the login form.\n2) Next: run its tests.</recap>",
    "markdown": "<recap>## Where you were\n**Recap:** Repairing the **login** form. *Next*: run its tests.</recap>",
    "five sentences": f"<recap>{RECAP} Then the mails. Then the logout. Then lunch.</recap>",
    "controls": "<recap>Repairing\x1b[31m the login form.\x07 Next: run its\u202e tests.</recap>",
    "thinking": f"<think>What did they do? <recap>no</recap></think><recap>{RECAP}</recap>",
    "cut off": f"<recap>{RECAP}",
}

TRIED = "this turn had its attempt; the next prompt allows another"

REFUSED = {
    "empty tags": "<recap></recap>",
    "blank tags": "<recap> \n </recap>",
    "no tags": RECAP,
    "nothing": "",
    "a tool call": '<recap><tool_call>{"name": "read_file"}</tool_call></recap>',
    "tool-call talk": "<recap>Let me call read_file on the login form first.</recap>",
    "a refusal": "<recap>I'm sorry, I cannot help with that.</recap>",
    "a question back": "<recap>What would you like me to do next?</recap>",
    "a report": "<recap>" + "many words " * 100 + "</recap>",
}


def sessions_answered_with(home: FakeHome, server: ChatServer, answers: Mapping[str, str]) -> dict[str, Transcript]:
    """One ended session for each answer, and a model that gives each its own: the first time, later a good one."""
    names = list(answers)
    left = dict(answers)

    def respond(request: ChatRequest) -> str | None:
        asked = json.dumps(request.body)
        name = next(name for number, name in enumerate(names) if f"ticket {number}." in asked)
        return left.pop(name, None)

    server.respond = respond
    made = {}
    for number, name in enumerate(names):
        made[name] = Transcript(home.chats(), cwd="/home/user/proj", at=time.time() - 60.0)
        for step in ("Repair", "Test", "Deploy"):
            made[name].turn(f"{step} ticket {number}.", "Done.")
    return made


@pytest.mark.slow
def test_a_badly_wrapped_answer_is_cleaned(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """What stands in the file is one plain line of two sentences."""
    with Watching(env) as watching:
        sessions = sessions_answered_with(home, server, CLEANED)
        for session in sessions.values():
            wait_recap(session, watching)
    found = {name: recap_texts(session.path) for name, session in sessions.items()}
    assert found == {name: [RECAP] for name in CLEANED}
    assert [line for line in watching.log() if line["level"] not in ("debug", "info")] == []


@pytest.mark.slow
def test_an_unusable_answer_is_one_warning_and_no_second_call_before_new_prompts(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """Nothing is written, nothing of the conversation logged; the next prompt allows another try."""
    with Watching(env) as watching:
        sessions = sessions_answered_with(home, server, REFUSED)
        for name, session in sessions.items():
            failed = watching.wait_event("recap_failed", session=session.session_id)
            told = (failed["logger"], failed["level"], failed["reason"])
            assert told == ("SESSION_RECAP", "warning", "empty_result"), name
        for session in sessions.values():
            session.title("A title by somebody else")  # the file moves, the conversation does not
        for session in sessions.values():
            watching.wait_event("decision", session=session.session_id, detail=TRIED)
            watching.wait_event("decision", session=session.session_id, reason="title_present")
        assert len(server.requests()) == len(REFUSED)
        assert [recap_texts(session.path) for session in sessions.values()] == [[]] * len(REFUSED)

        for session in sessions.values():
            session.turn("And the logout.", "Done as well.")
        for session in sessions.values():
            wait_recap(session, watching)
        assert len(server.requests()) == 2 * len(REFUSED)
        assert len(watching.log("recap_failed")) == len(REFUSED)
    assert "ticket" not in watching.dump()


@pytest.mark.slow
def test_a_failing_model_is_named_with_host_and_status(home: FakeHome, server: ChatServer, env: dict[str, str]) -> None:
    """HTTP 500: one warning, no record, no retry."""
    server.script(Reply(status=500, text="no"), kind=Kind.RECAP)
    with Watching(env) as watching:
        session = ended_session(home)
        failed = watching.wait_event("recap_failed", session=session.session_id)
        assert (failed["reason"], failed["host"], failed["status"]) == ("model_error", "127.0.0.1", 500)
        watching.wait_event("decision", session=session.session_id, detail=TRIED)
    assert len(server.requests()) == 1
    assert recap_texts(session.path) == []


# -- which model -------------------------------------------------------------------------------------------------------


def settings_with_main_model(home: FakeHome, server: ChatServer, **more: object) -> None:
    """Qwen Code's settings: a main model at the server, and what is given."""
    models = [{"id": each, "baseUrl": server.base_url, "envKey": "MY_KEY"} for each in ("main-model", "fast-model")]
    settings: dict[str, object] = {
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": "main-model"},
        "modelProviders": {"openai": models},
    }
    home.config_dir.mkdir()
    (home.config_dir / "settings.json").write_text(json.dumps(settings | more))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "model"), [({}, "main-model"), ({"fastModel": "fast-model"}, "fast-model")], ids=["main", "fast"]
)
def test_the_fast_model_makes_recaps_and_without_one_the_main_model(
    home: FakeHome, server: ChatServer, more: dict[str, object], model: str
) -> None:
    """One call, with the user's own key, to the model that Qwen Code's own recap would ask."""
    server.recap = RECAP
    settings_with_main_model(home, server, **more)
    env = recap_env(home, server, {"model.source": "qwen"}, {"MY_KEY": "sk-mine"})
    with Watching(env) as watching:
        session = ended_session(home)
        wait_recap(session, watching)
    [request] = server.requests()
    assert (request.model, request.headers["authorization"]) == (model, "Bearer sk-mine")
    assert [each["model"] for each in tail(env)] == [model]


def test_without_a_fast_model_and_without_fallback_there_is_no_call(home: FakeHome, server: ChatServer) -> None:
    """`fallback_to_main = false`: the main model is never asked."""
    settings_with_main_model(home, server)
    settings = {"model.source": "qwen", "recap.fallback_to_main": False}
    with Watching(recap_env(home, server, settings, {"MY_KEY": "sk-mine"})) as watching:
        session = ended_session(home)
        watching.wait_event("decision", session=session.session_id, verdict="skip", reason="no_fast_model")
    assert server.requests() == []


def test_the_extractive_model_needs_nobody(home: FakeHome, server: ChatServer) -> None:
    """A recap in the user's own words, without any request."""
    env = recap_env(home, server, {"model.source": "extractive"})
    with Watching(env) as watching:
        session = ended_session(home)
        wait_recap(session, watching)
    [text] = recap_texts(session.path)
    assert "login bug" in text
    assert [each["model"] for each in tail(env)] == ["extractive"]
    assert server.requests() == []


# -- when it is on, and what comes of it -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shown", [True, False])
def test_auto_follows_qwen_codes_own_setting_and_threshold(home: FakeHome, server: ChatServer, shown: bool) -> None:
    """Nothing is configured here: `general.showSessionRecap` turns recaps on, with its own idea of away."""
    server.recap = RECAP
    general = {"showSessionRecap": shown, "sessionRecapAwayThresholdMinutes": AWAY_SECONDS / 60.0}
    settings_with_main_model(home, server, general=general)
    env = watcher_env(home.path, home.state, {"title.enabled": False, "title.settle_seconds": 0.3}, {"MY_KEY": "k"})
    with Watching(env) as watching:
        session = ended_session(home)
        if shown:
            wait_recap(session, watching)
        else:
            decision = watching.wait_event("decision", logger="SESSION_RECAP", session=session.session_id)
            assert (decision["verdict"], decision["reason"]) == ("skip", "recaps_off")
            assert "general.showSessionRecap" in decision["detail"]
    assert len(server.requests(Kind.RECAP)) == shown


@pytest.mark.slow
def test_an_absence_that_the_watcher_missed_has_its_recap_after_the_start(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """The user was still here when the watcher stopped."""
    with Watching(recap_env(home, server, {"recap.away_minutes": 10.0})) as watching:
        session = ended_session(home)
        watching.wait_event("decision", session=session.session_id, reason="away_not_yet")
    assert server.requests() == []
    with Watching(env) as watching:
        wait_recap(session, watching)
    assert len(server.requests()) == 1


@pytest.mark.slow
def test_a_session_from_before_the_first_start_waits_until_it_moves(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """What ended before anybody installed this costs nothing; a new prompt counts with all before it."""
    session = ended_session(home, turns=2)
    with Watching(env) as watching:
        session.turn("And the signup", "Done.")
        wait_recap(session, watching)
        other = ended_session(home, turns=2)
        watching.wait_event("decision", session=other.session_id, reason="too_few_turns")
    assert len(server.requests()) == 1
    with Watching(env | {"QWEN_WATCHER_STATE_DIR": str(home.state / "other")}) as watching:
        wait_asleep(watching)
        assert watching.log("decision") == []
    assert len(server.requests()) == 1


@pytest.mark.slow
def test_the_hook_gets_the_recap_and_a_second_delivery_tells_nobody(
    home: FakeHome, server: ChatServer, tmp_path: Path
) -> None:
    """`on_recap` runs once for a text, however often it must be appended."""
    told = tmp_path / "told"
    env = recap_env(home, server, {"hooks.on_recap": ["/bin/sh", "-c", f"cat >> {told}"]})
    server.recap = RECAP
    with running(code=WAIT_ALONE) as owner, Watching(env) as watching:
        session = owned_session(home, owner.pid)
        wait_recap(session, watching)
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "the hook")
        session.title("A name from its memory", "manual")
        end(owner)
        wait_recap(session, watching, 2, DELIVERY_SECONDS)
    [line] = told.read_text().splitlines()
    first = next(each for each in session.records() if each.get("subtype") == "slash_command")
    assert json.loads(line) | {"timestamp": ""} == {
        "kind": "recap",
        "session_id": session.session_id,
        "text": RECAP,
        "timestamp": "",
        "path": str(session.path),
        "cwd": "/home/user/proj",
        "model": MODEL,
        "record_uuid": first["uuid"],
    }


# -- who has the session -----------------------------------------------------------------------------------------------

WAIT_ALONE = "import os, sys; os.setsid(); print('ready', flush=True); sys.stdin.read()"
"""A process without any terminal."""


def owned_session(home: FakeHome, pid: int, kind: str = "tui") -> Transcript:
    """A session of a minute ago that this process has."""
    session_id = str(uuid.uuid4())
    write_record(home.config_dir, registry_record(pid, session_id, kind=kind))
    session = Transcript(home.chats(), session_id=session_id, cwd="/home/user/proj", at=time.time() - 60.0)
    for step in ("Repair", "Test", "Deploy"):
        session.turn(f"{step} the login form.", "Done.")
    return session


@pytest.mark.slow
def test_the_end_of_an_owner_that_a_restarted_watcher_never_saw_come_is_noticed(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """Nothing happens between the start of the new watcher and the end of the process; the recap is put last then."""
    with running(code=WAIT_ALONE) as owner:
        with Watching(env) as watching:
            session = owned_session(home, owner.pid)
            wait_recap(session, watching)
        session.title("A name from its memory", "manual")  # as a Qwen Code writes at its exit: it hides the recap
        with Watching(env) as watching:
            watching.wait_event("decision", logger="SESSION_RECAP", session=session.session_id)
            wait_asleep(watching)
            end(owner)
            wait_recap(session, watching, 2, DELIVERY_SECONDS)
            told = watching.wait_event("written_again", session=session.session_id)
            assert (told["logger"], told["level"], told["purpose"]) == ("SESSION_RECAP", "debug", "recap")
            assert watching.log("recap_written") == []
    records = session.records()
    assert recap_texts(session.path) == [RECAP, RECAP]
    assert records[-1]["uuid"] in chain_of(records)
    assert [each["record_uuid"] for each in tail(env)] == [records[-1]["uuid"]]
    assert len(server.requests()) == 1


@pytest.mark.slow
def test_a_failed_call_does_not_forget_the_recap_before_it(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """The terminal chained past the recap of three turns; after a failure two turns later, the user rewinds to it."""
    with running(code=WAIT_ALONE) as owner, Watching(env) as watching:
        session = owned_session(home, owner.pid)
        third = session.tail
        wait_recap(session, watching)
        server.script(Reply(status=500, text="no"), kind=Kind.RECAP)
        session.turn("And the logout", "Done.")
        session.turn("And the signup", "Done.")
        watching.wait_event("recap_failed", session=session.session_id)
        session.tail = third
        session.system("rewind", {"truncatedCount": 4})
        watching.wait_event("decision", session=session.session_id, detail="0 of 2 prompts since the last recap")
        session.turn("Another way then", "Done.")
        watching.wait_event("decision", session=session.session_id, detail="1 of 2 prompts since the last recap")
        assert len(server.requests()) == 2
        session.turn("And the mails", "Done.")
        wait_recap(session, watching, 2)
    assert len(server.requests()) == 3


@pytest.mark.slow
def test_the_terminal_of_an_editors_agent_is_no_sign_of_life(
    home: FakeHome, server: ChatServer, env: dict[str, str]
) -> None:
    """Keys are pressed where the agent was started; only prompts tell of an editor's user."""
    with running_at_terminal() as agent, Watching(env) as watching:
        session = owned_session(home, agent.process.pid, kind="headless")
        os.write(agent.master, b"x")
        watching.wait_event("not_written", session=session.session_id, reason="locked")
        found = ask(socket_path(env), f"/session/{session.session_id}/why", timeout_seconds=10.0)
        assert found is not None
        assert [each["kind"] for each in found["owners"]] == ["headless"]
        assert [each["source"] for each in found["presence"]["signs"]] == ["prompt"]
        assert recap_texts(session.path) == []
        end(agent.process)
        wait_recap(session, watching, 1, DELIVERY_SECONDS)
    assert len(server.requests()) == 1


# -- switched off ------------------------------------------------------------------------------------------------------


def switches(pid: int) -> int:
    """How often the main thread of the process went to sleep by itself: it sleeps once for each time that it woke."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")))


def wait_asleep(watching: Watching, seconds: float = 1.5) -> None:
    """Waits until the watcher's loop has not woken for so long."""
    seen, since = switches(watching.pid), time.monotonic()

    def asleep() -> bool:
        nonlocal seen, since
        now = switches(watching.pid)
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > seconds

    wait_until(asleep, "the loop asleep", dump=watching.dump)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts wake-ups in /proc")
@pytest.mark.slow
def test_with_recaps_off_an_absence_costs_no_call_no_wakeup_and_no_write(home: FakeHome, server: ChatServer) -> None:
    """The session is titled, its user presses keys and goes away: from then on nothing happens at all."""
    env = recap_env(home, server, {"recap.enabled": False, "title.enabled": True})
    with running_at_terminal() as owner, Watching(env) as watching:
        session = owned_session(home, owner.process.pid)
        watching.wait_event("title_written", session=session.session_id)
        wait_asleep(watching)

        def footprint() -> list[object]:
            files = [session.path, *home.state.iterdir()]
            return [switches(watching.pid), *((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files)]

        before, begun = footprint(), time.time()
        os.write(owner.master, b"x")
        wait_until(lambda: time.time() > begun + AWAY_SECONDS + 3.0, "an absence")
        assert footprint() == before
        decisions = watching.log("decision", logger="SESSION_RECAP")
        assert [(each["verdict"], each["reason"]) for each in decisions] == [("skip", "recaps_off")]
    assert server.requests(Kind.RECAP) == []
    assert recap_texts(session.path) == []
