"""`title S NAME…` and `title S --auto`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.home import KEY, Home, answering, text_reply, title_reply
from tests.support.model_server import ModelServer, Request, Response, json_response
from tests.support.transcripts import Transcript, chain_of
from watcher.edge.store import JournalKind, Store


def last_title(transcript: Transcript) -> tuple[str, str | None]:
    """The newest title record of a file."""
    payload = [each["systemPayload"] for each in transcript.records() if each.get("subtype") == "custom_title"][-1]
    return payload["customTitle"], payload.get("titleSource")


def titles(transcript: Transcript) -> list[str]:
    return [
        each["systemPayload"]["customTitle"] for each in transcript.records() if each.get("subtype") == "custom_title"
    ]


# -- a name of the user's own ------------------------------------------------------------------------------------------


def test_words_become_one_manual_title(home: Home) -> None:
    """The words are joined with a space and stand last in the file as a manual title; the mtime stays."""
    session = home.session()
    before = session.path.read_bytes()
    mtime = session.path.stat().st_mtime_ns
    ran = home.run("title", session.session_id, "Fix", "the login", "test")
    assert (ran.code, ran.out, ran.err) == (0, "Fix the login test\n", "")
    assert last_title(session) == ("Fix the login test", "manual")
    assert session.path.read_bytes().startswith(before)
    assert session.path.stat().st_mtime_ns == mtime
    assert len(chain_of(session.records())) == len(session.records())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["two\nlines\r\nhere"], "two lines here"),
        (["--", "--literal"], "--literal"),
        (["--", "Add", "--auto", "flag"], "Add --auto flag"),
        (["Fix - or not"], "Fix - or not"),
        (["x" * 200], "x" * 200),
        (["🚀" * 100], "🚀" * 100),
        (["重构用户鉴权中间件"], "重构用户鉴权中间件"),
        (["caf\udcc3\udca9", "\udcff"], "café \ufffd"),
        (["bell\x07 and \x1b[31mred"], "bell  and  [31mred"),
    ],
)
def test_a_name_is_one_line_of_at_most_200_units(home: Home, words: list[str], name: str) -> None:
    """Newlines and controls become spaces; `--` ends the flags; 200 UTF-16 units are enough for nobody's novel."""
    session = home.session()
    ran = home.run("title", session.session_id, *words)
    assert (ran.code, last_title(session)) == (0, (name, "manual")), ran.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], "--auto"),
        (["--"], "--auto"),
        ([""], "empty"),
        (["  \n "], "empty"),
        (["x" * 201], "201"),
        (["🚀" * 101], "202"),
        (["--bogus"], "--bogus"),
        (["Fix", "it", "--force"], "--force"),
        (["-n"], "-n"),
        (["--auto", "Fix"], "not both"),
        (["Fix", "--auto"], "not both"),
        (["--show-request"], "--auto"),
        (["Fix", "--show-request"], "--auto"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(home: Home, words: list[str], hint: str) -> None:
    """Whatever cannot be meant is refused with its remedy, and nothing is written."""
    session = home.session()
    before = session.path.read_bytes()
    ran = home.run("title", session.session_id, *words)
    assert (ran.code, ran.out) == (2, "")
    assert hint in ran.err
    assert ran.err.count("\n") == 1
    assert session.path.read_bytes() == before


def test_flags_may_stand_before_the_session(home: Home) -> None:
    """`title --auto S` means what `title S --auto` means, and an unknown flag is refused there too."""
    session = home.session()
    home.use_extractive()
    assert home.run("title", "--auto", session.session_id).code == 0
    assert home.run("title", "--bogus", session.session_id).code == 2
    assert home.run("title", session.session_id, "--help").code == 0


def test_a_session_is_found_by_prefix_path_and_latest(home: Home) -> None:
    """S is an id in any case, a unique prefix, a path or `latest`; several matches are named."""
    old = home.session(age=7200, session_id="abcd1111-0000-4000-8000-000000000001")
    new = home.session(age=60, session_id="abcd2222-0000-4000-8000-000000000002")
    for name, session in (
        ("abcd1", old),
        (old.session_id.upper(), old),
        (str(old.path), old),
        ("latest", new),
    ):
        assert home.run("title", name, name[:20]).code == 0
        assert last_title(session)[0] == name[:20]
    ran = home.run("title", "abcd", "x")
    assert ran.code == 1
    assert ran.err.startswith("reason: not_found (")
    assert old.session_id in ran.err
    assert new.session_id in ran.err


def test_what_is_not_there_is_not_found(home: Home) -> None:
    """No such id, no such path, a path that can be no session: `not_found`; too short an id is wrong usage."""
    home.session()
    for name in ("ffffffff", str(home.root / "nothing.jsonl"), "/etc/passwd"):
        ran = home.run("title", name, "x")
        assert (ran.code, ran.err.startswith("reason: not_found (")) == (1, True), ran
    assert home.run("title", "abc", "x").code == 2


# -- files that are left alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["A name"], ["--auto"]])
def test_unsafe_files_are_refused(home: Home, tmp_path: Path, words: list[str]) -> None:
    """A link, a second hard link, a file that everybody may write to: `unsafe_file`, and not a byte is written."""
    home.use_extractive()
    linked = home.session()
    os.link(linked.path, tmp_path / "second")
    open_to_all = home.session()
    open_to_all.path.chmod(0o666)
    target = home.session(session_id="1234abcd-0000-4000-8000-000000000001")
    moved = target.path.rename(tmp_path / "elsewhere.jsonl")
    target.path.symlink_to(moved)
    mixed = home.session()
    mixed.append(mixed.record("user") | {"sessionId": "11111111-0000-4000-8000-000000000000"})
    home.rest(mixed)
    for session in (linked, open_to_all, target, mixed):
        before = session.path.read_bytes()
        ran = home.run("title", session.session_id, *words)
        assert (ran.code, ran.out) == (1, ""), session.path
        assert ran.err.startswith("reason: unsafe_file ("), ran.err
        assert session.path.read_bytes() == before


@pytest.mark.parametrize("words", [["A name"], ["--auto"]])
def test_old_versions_are_refused(home: Home, words: list[str]) -> None:
    """A session of Qwen Code below 0.21 is read, never written."""
    home.use_extractive()
    session = home.session(version="0.15.10")
    ran = home.run("title", session.session_id, *words)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("reason: unsupported_version (")


@pytest.mark.parametrize("words", [["A name"], ["--auto"]])
def test_a_lease_and_a_daemon_lock(home: Home, words: list[str]) -> None:
    """Any lease file, or a live ACP process, means `locked`, and costs no model call."""
    with answering() as server:
        home.use_model(server.url)
        session = home.session()
        lease = home.lease(session)
        ran = home.run("title", session.session_id, *words)
        assert (ran.code, ran.err.startswith("reason: locked (")) == (1, True), ran
        lease.unlink()
        with home.owner(session, kind="headless"):
            ran = home.run("title", session.session_id, *words)
        assert (ran.code, ran.err.startswith("reason: locked (")) == (1, True), ran
        assert server.requests == []


@pytest.mark.parametrize("words", [["A name"], ["--auto"]])
def test_a_turn_of_a_live_owner_is_not_disturbed(home: Home, words: list[str]) -> None:
    """While a live owner's turn runs the answer is `working`; once the owner is gone the turn is over."""
    home.use_extractive()
    session = home.session()
    session.user("And the logout test?")
    home.rest(session)
    with home.owner(session):
        ran = home.run("title", session.session_id, *words)
        assert (ran.code, ran.err.startswith("reason: working (")) == (1, True), ran


def test_the_brake_holds_for_explicit_commands(home: Home) -> None:
    """After an anomaly in a session nobody writes to it any more, and the message says what to do."""
    session = home.session()
    store = Store.open(home.state)
    store.note_anomaly(session.session_id, "a second session id appeared", 1.0)
    store.close()
    ran = home.run("title", session.session_id, "A name")
    assert ran.code == 1
    assert ran.err.startswith("reason: paused (")
    assert "doctor" in ran.err


# -- --auto ------------------------------------------------------------------------------------------------------------


def test_auto_replaces_any_title_and_ignores_every_switch(home: Home) -> None:
    """`--auto` writes over a manual title, although titling is off, paused and out of attempts."""
    with answering("Fix flaky login test") as server:
        home.use_model(server.url)
        home.env |= {"QWEN_DISABLE_AUTO_TITLE": "1", "QWEN_WATCHER_TITLE__ENABLED": "false"}
        session = home.session()
        session.title("My own name", "manual")
        home.rest(session)
        assert home.run("pause").code == 0
        store = Store.open(home.state)
        for turn in "abc":
            store.note_attempt(session.session_id, turn, 1.0)
        store.close()
        ran = home.run("title", session.session_id, "--auto")
        assert (ran.code, ran.out, ran.err) == (0, "Fix flaky login test\n", "")
        assert last_title(session) == ("Fix flaky login test", "auto")
        assert len(server.requests) == 1


def test_a_name_given_while_the_model_answers_wins(home: Home) -> None:
    """The user's rename lands during the call: it stays the last title, and the command says so."""
    session = home.session()

    def script(_: Request) -> Response:
        session.title("Named meanwhile", "manual")
        home.rest(session)
        return title_reply("Fix flaky login test")

    with ModelServer(script) as server:
        home.use_model(server.url)
        ran = home.run("title", session.session_id, "--auto")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("reason: manual_title (")
    assert titles(session) == ["Named meanwhile"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (json_response({"error": {"message": "boom"}}, 500), "model_error"),
        (text_reply(""), "empty_result"),
        (text_reply("I'm sorry, I cannot help with that."), "empty_result"),
    ],
)
def test_a_useless_answer_has_its_reason(home: Home, answer: Response, reason: str) -> None:
    """An error names host and status; nothing usable is `empty_result`; the file is untouched."""
    with ModelServer(lambda _: answer) as server:
        home.use_model(server.url)
        session = home.session()
        before = session.path.read_bytes()
        ran = home.run("title", session.session_id, "--auto")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"reason: {reason} (127.0.0.1")
    if reason == "model_error":
        assert "HTTP 500" in ran.err
    assert KEY not in ran.err
    assert session.path.read_bytes() == before


def test_what_is_missing_for_a_call_is_named(home: Home) -> None:
    """No fast model, no calls left, nothing said yet: each has its reason and its remedy."""
    session = home.session()
    ran = home.run("title", session.session_id, "--auto")
    assert (ran.code, ran.err.startswith("reason: no_fast_model (")) == (1, True)
    assert "fastModel" in ran.err
    with answering() as server:
        home.use_model(server.url)
        empty = Transcript(session.path.parent, cwd=session.cwd)
        empty.snapshot()
        empty.set_mtime(1.0)
        ran = home.run("title", empty.session_id, "--auto")
        assert (ran.code, ran.err.startswith("reason: empty_history (")) == (1, True), ran
        home.env["QWEN_WATCHER_BUDGET__CALLS_PER_DAY"] = "0"
        ran = home.run("title", session.session_id, "--auto")
        assert (ran.code, ran.err.startswith("reason: budget_exhausted (")) == (1, True), ran
        assert server.requests == []


def test_ctrl_c_ends_the_call_cleanly(home: Home) -> None:
    """While the model is silent, Ctrl-C ends the command at once: `aborted`, exit 1, nothing written."""
    with ModelServer(lambda _: Response(hold=True)) as server:
        home.use_model(server.url)
        session = home.session()
        before = session.path.read_bytes()
        with home.process("title", session.session_id, "--auto") as process:
            server.wait_requests(1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    assert err == "reason: aborted (stopped by the user)\n"
    assert session.path.read_bytes() == before


def test_the_request_can_be_looked_at(home: Home) -> None:
    """`--show-request` prints exactly what would be sent, with the key hidden, and sends nothing."""
    with answering() as server:
        home.use_model(server.url)
        session = home.session("My password is hunter2-Xq81zz, fix the login", "\x9b31m\u202e重构")
        ran = home.run("title", session.session_id, "--auto", "--show-request")
        assert (ran.code, ran.err) == (0, "")
        assert server.requests == []
        head, _, body = ran.out.partition("\n\n")
        assert head.startswith(f"POST {server.url}/v1/chat/completions\n")
        assert "authorization: Bearer ********" in head
        assert KEY not in ran.out
        assert "hunter2-Xq81zz" not in ran.out
        assert not {"\x9b", "\u202e"} & set(ran.out)
        assert "重构" in body
        assert home.run("title", session.session_id, "--auto").code == 0
        assert json.loads(body) == server.requests[0].json


def test_credentials_anywhere_in_a_request_are_hidden(home: Home) -> None:
    """Custom headers, the address and the extra body may hold secrets as well."""
    entry = {
        "id": "flash",
        "baseUrl": "http://user:pa55word@127.0.0.1:9/v1?api-key=qwerty99&api-version=2024",
        "envKey": "FLASH_KEY",
        "generationConfig": {
            "customHeaders": {"X-Api-Key": "header-secret", "X-Team": "blue", "X-Copy": KEY},
            "extra_body": {"access_token": "body-secret", "plan": "a"},
        },
    }
    home.settings(fastModel="flash", modelProviders={"openai": [entry]}, security={"auth": {"selectedType": "openai"}})
    home.env["FLASH_KEY"] = KEY
    session = home.session()
    ran = home.run("title", session.session_id, "--auto", "--show-request")
    assert ran.code == 0
    for secret in (KEY, "pa55word", "qwerty99", "header-secret", "body-secret"):
        assert secret not in ran.out
    for kept in ("x-team: blue", "api-version=2024", '"plan": "a"', "127.0.0.1:9/v1/chat/completions"):
        assert kept in ran.out


def test_the_offline_model_sends_nothing(home: Home) -> None:
    """With the extractive model there is no request to show; the title costs no call."""
    home.use_extractive()
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    ran = home.run("title", session.session_id, "--auto", "--show-request")
    assert (ran.code, ran.out) == (0, "")
    assert "extractive" in ran.err
    assert home.run("title", session.session_id, "--auto").code == 0
    assert last_title(session)[1] == "auto"


# -- a live Qwen Code that holds a title -------------------------------------------------------------------------------


def deliver(home: Home, transcript: Transcript) -> None:
    """What the watcher does when it looks at a session, without running one."""
    from watcher.catalog import read_session  # noqa: PLC0415
    from watcher.qwen.paths import session_ref  # noqa: PLC0415
    from watcher.workplace import Workplace  # noqa: PLC0415

    ref = session_ref(str(transcript.path))
    assert ref is not None
    with Workplace(home.env) as place:
        reading = read_session(ref)
        place.recorder.deliver(ref, reading.state, reading.size, transcript.path.stat().st_mtime, reading)


@pytest.mark.parametrize("source", ["auto", "manual"])
@pytest.mark.parametrize("words", [["Mine"], ["--auto"]])
def test_a_title_for_a_live_session_is_put_last_when_it_closes(home: Home, words: list[str], source: str) -> None:
    """A running CLI writes the title that it holds again at its exit; ours was asked for later, and ends up last."""
    home.use_extractive()
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    session.title("Held by Qwen Code", source)
    home.rest(session)
    with home.owner(session) as owner:
        ran = home.run("title", session.session_id, *words)
        assert ran.code == 0
        assert f"pid {owner.pid}" in ran.err
        assert "put last when the session closes" in ran.err
        assert "qwen-watcher run" in ran.err
        deliver(home, session)
        asked = last_title(session)
        assert asked != ("Held by Qwen Code", source)
        session.title("Held by Qwen Code", source, side=True)
        home.rest(session)
    deliver(home, session)
    assert last_title(session) == asked
    deliver(home, session)
    assert titles(session).count(asked[0]) == 2
    store = Store.open(home.state)
    assert store.pending(session.session_id) == []
    assert [entry.kind for entry in store.entries()] == [JournalKind.TITLE, JournalKind.HEAL]
    store.close()


@pytest.mark.parametrize("source", ["auto", "manual"])
def test_a_later_rename_in_qwen_code_wins(home: Home, source: str) -> None:
    """A title that was not there before, of either source, is the user's later word."""
    session = home.session()
    session.title("Held by Qwen Code")
    home.rest(session)
    with home.owner(session):
        assert home.run("title", session.session_id, "Mine").code == 0
        session.title("Renamed there", source, side=True)
        home.rest(session)
    deliver(home, session)
    assert last_title(session) == ("Renamed there", source)


def test_only_the_last_wish_is_kept(home: Home) -> None:
    """Two names for one live session: the second is put last, and a name is no prey of an undo before it."""
    session = home.session()
    session.title("Held by Qwen Code")
    home.rest(session)
    with home.owner(session):
        for name in ("First", "Second"):
            assert home.run("title", session.session_id, name).code == 0
        assert home.run("undo", session.session_id).code == 0
        assert home.run("title", session.session_id, "Third").code == 0
        session.title("Held by Qwen Code", side=True)
        home.rest(session)
    deliver(home, session)
    assert last_title(session) == ("Third", "manual")


def test_the_same_automatic_title_over_a_manual_one_is_not_healed_away(home: Home) -> None:
    """Asked for again, an old title of ours replaces the name in between; the healing of promise 2 respects that."""
    home.use_extractive()
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    assert home.run("title", session.session_id, "--auto").code == 0
    automatic = last_title(session)
    session.tail = session.records()[-1]["uuid"]
    session.title("My own name", "manual")
    home.rest(session)
    assert home.run("title", session.session_id, "--auto").code == 0
    deliver(home, session)
    assert last_title(session) == automatic
