"""`recap S [--write]`."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.cli.home import Home, answering, text_reply
from tests.support.model_server import ModelServer, Request, Response
from tests.support.transcripts import Transcript, chain_of
from watcher.edge.store import JournalKind, PendingKind, Store

RECAP = "You fix the login test. Next: run it."


def recaps(transcript: Transcript) -> list[str]:
    """The recaps in a file, in file order."""
    return [
        each["systemPayload"]["outputHistoryItems"][0]["text"]
        for each in transcript.records()
        if each.get("subtype") == "slash_command"
    ]


def test_a_recap_is_printed_and_nothing_is_written(home: Home) -> None:
    """No gate counts: one prompt, recaps off, a pause. stdout holds the recap alone."""
    with answering(recap=RECAP) as server:
        home.use_model(server.url)
        session = home.session()
        before = session.path.read_bytes()
        assert home.run("pause").code == 0
        ran = home.run("recap", session.session_id)
    assert (ran.code, ran.out, ran.err) == (0, RECAP + "\n", "")
    assert session.path.read_bytes() == before


def test_write_records_it_natively(home: Home) -> None:
    """`--write` appends one record on the active chain, keeps the mtime and notes it for `tail`."""
    with answering(recap=RECAP) as server:
        home.use_model(server.url)
        session = home.session()
        mtime = session.path.stat().st_mtime_ns
        ran = home.run("recap", session.session_id, "--write")
        assert (ran.code, ran.out, ran.err) == (0, RECAP + "\n", "")
        assert recaps(session) == [RECAP]
        assert chain_of(session.records())[-1] == session.records()[-1]["uuid"]
        assert session.path.stat().st_mtime_ns == mtime
        again = home.run("recap", session.session_id, "--write")
        assert (again.code, again.out) == (0, RECAP + "\n")
        assert recaps(session) == [RECAP]
        assert len(server.requests) == 1
    tail = home.run("tail", "--json", "--kind", "recap")
    assert json.loads(tail.out)["text"] == RECAP


def test_a_live_terminal_keeps_it_for_later(home: Home) -> None:
    """Written while its Qwen Code lives, a recap may be hidden by what that writes next: it is kept, and said so."""
    with answering(recap=RECAP) as server:
        home.use_model(server.url)
        session = home.session()
        with home.owner(session):
            ran = home.run("recap", session.session_id, "--write")
    assert (ran.code, ran.out) == (0, RECAP + "\n")
    assert "next resume" in ran.err
    store = Store.open(home.state)
    assert [each.kind for each in store.pending(session.session_id)] == [PendingKind.RECAP]
    assert store.count_entries(JournalKind.RECAP) == 1
    store.close()


def test_a_file_that_just_changed_is_waited_for(home: Home) -> None:
    """The two seconds of stillness are waited for, not refused."""
    home.use_extractive()
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    session.set_mtime(time.time() - 1.6)
    ran = home.run("recap", session.session_id, "--write")
    assert ran.code == 0, ran.err
    assert len(recaps(session)) == 1


def test_a_running_turn_forbids_writing_but_not_reading(home: Home) -> None:
    """While a live owner's turn runs, `--write` is `working`; without it the recap is printed."""
    with answering(recap=RECAP) as server:
        home.use_model(server.url)
        session = home.session()
        session.user("And the logout test?")
        home.rest(session)
        with home.owner(session):
            ran = home.run("recap", session.session_id, "--write")
            assert (ran.code, ran.err.startswith("reason: working (")) == (1, True), ran
            assert home.run("recap", session.session_id).out == RECAP + "\n"


def test_a_turn_that_starts_while_the_model_answers_drops_it(home: Home) -> None:
    """The recap is printed, since it was paid for, but not written over what the user said meanwhile."""
    session = home.session()

    def script(_: Request) -> Response:
        session.turn("Something else", "Done.")
        home.rest(session)
        return text_reply(f"<recap>{RECAP}</recap>")

    with ModelServer(script) as server:
        home.use_model(server.url)
        ran = home.run("recap", session.session_id, "--write")
    assert (ran.code, ran.out) == (1, RECAP + "\n")
    assert ran.err.startswith("reason: nothing_new (")
    assert recaps(session) == []


def test_refusals_cost_no_call(home: Home, tmp_path: object) -> None:
    """A lease, an old version and a hard link are found out before the model is asked."""
    del tmp_path
    with answering() as server:
        home.use_model(server.url)
        leased = home.session()
        home.lease(leased)
        old = home.session(version="0.15.10")
        linked = home.session()
        (home.root / "second").hardlink_to(linked.path)
        for session, reason in ((leased, "locked"), (old, "unsupported_version"), (linked, "unsafe_file")):
            ran = home.run("recap", session.session_id, "--write")
            assert (ran.code, ran.out) == (1, "")
            assert ran.err.startswith(f"reason: {reason} ("), ran.err
        assert server.requests == []
        assert home.run("recap", old.session_id).code == 0


def test_missing_model_budget_and_history(home: Home) -> None:
    """Each missing thing has its reason."""
    session = home.session()
    assert home.run("recap", session.session_id).err.startswith("reason: no_fast_model (")
    with answering() as server:
        home.use_model(server.url)
        empty = Transcript(session.path.parent, cwd=session.cwd)
        empty.snapshot()
        empty.set_mtime(1.0)
        assert home.run("recap", empty.session_id).err.startswith("reason: empty_history (")
        home.env["QWEN_WATCHER_BUDGET__CALLS_PER_DAY"] = "0"
        assert home.run("recap", session.session_id).err.startswith("reason: budget_exhausted (")


def test_a_main_model_stands_in(home: Home) -> None:
    """Without a fast model a recap is made by the main model, as Qwen Code's own is."""
    with answering(recap=RECAP) as server:
        home.use_model(server.url)
        settings = json.loads((home.qwen / "settings.json").read_text())
        del settings["fastModel"]
        home.settings(**settings, model={"name": "flash"})
        session = home.session()
        assert home.run("recap", session.session_id).out == RECAP + "\n"
        assert home.run("title", session.session_id, "--auto").err.startswith("reason: no_fast_model (")


def test_show_request_sends_nothing(home: Home) -> None:
    """The request of a recap can be looked at; together with `--write` that is wrong usage."""
    with answering() as server:
        home.use_model(server.url)
        session = home.session("Fix the login")
        ran = home.run("recap", session.session_id, "--show-request")
        assert ran.code == 0
        assert ran.out.startswith("POST ")
        assert server.requests == []
        assert home.run("recap", session.session_id).code == 0
        assert json.loads(ran.out.partition("\n\n")[2]) == server.requests[0].json
    assert home.run("recap", session.session_id, "--write", "--show-request").code == 2


def test_progress_is_for_people_only(home: Home) -> None:
    """At a terminal the model's name shows while it is asked, and is gone when the recap is there."""
    with ModelServer(lambda _: Response(hold=True)) as server:
        home.use_model(server.url)
        session = home.session()
        with home.terminal("recap", session.session_id) as terminal:
            terminal.wait_for("asking flash …")
            server.wait_requests(1)
            terminal.send("\x03")
            assert terminal.wait_exit() == 1
            assert terminal.shows("reason: aborted (stopped by the user)")
            assert not terminal.shows("asking flash")
        with home.process("recap", session.session_id) as process:
            server.wait_requests(2)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=20)[1] == "reason: aborted (stopped by the user)\n"


@pytest.mark.parametrize("answer", ["", "no tags at all"])
def test_an_answer_without_a_recap_is_empty(home: Home, answer: str) -> None:
    """Nothing between the tags: `empty_result`."""
    with ModelServer(lambda _: text_reply(answer)) as server:
        home.use_model(server.url)
        ran = home.run("recap", home.session().session_id)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("reason: empty_result (127.0.0.1")
