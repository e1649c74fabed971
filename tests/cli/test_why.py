"""`why S`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cli.home import Home, answering
from watcher.core.reasons import Reason
from watcher.edge.store import Pending, PendingKind, Store
from watcher.explain import _CHANGE

TITLE_GUARDS = [
    "unsafe_file",
    "unsupported_version",
    "title_present",
    "in_flight",
    "attempts_exhausted",
    "not_interactive",
    "disabled",
    "paused",
    "no_fast_model",
    "budget_exhausted",
    "left_to_qwen",
    "empty_history",
    "nothing_new",
    "working",
    "locked",
]


def why(home: Home, session_id: str, kind: str = "title") -> dict[str, Any]:
    found: dict[str, Any] = home.run("why", session_id, "--json").json
    return dict(found[kind])


def test_every_guard_of_titling_is_shown_in_order(home: Home) -> None:
    """The guards stand in the order of design 6; all pass, so a title would be made."""
    home.use_model("http://127.0.0.1:9")
    session = home.session()
    found = home.run("why", session.session_id, "--json").json
    assert found["session_id"] == session.session_id
    assert [guard["name"] for guard in found["title"]["guards"]] == TITLE_GUARDS
    assert (found["title"]["verdict"], found["title"]["reason"]) == ("act", None)
    assert (found["recap"]["verdict"], found["recap"]["reason"]) == ("skip", "recaps_off")
    assert set(found["title"]["guards"][0]) == {"name", "ok", "detail"}
    assert not home.state.exists(), "a command that only looks leaves nothing behind"


def test_the_offline_model_needs_no_budget(home: Home) -> None:
    """No number of calls is told where none is made."""
    home.use_extractive()
    session = home.session()
    for kind in ("title", "recap"):
        details = {guard["name"]: guard["detail"] for guard in why(home, session.session_id, kind)["guards"]}
        assert details["budget_exhausted"] == "no call is needed"


def test_each_reason_is_the_one_that_decides(home: Home) -> None:
    """For one cause after the other, the verdict and its reason; each with a hint what would change it."""
    home.use_model("http://127.0.0.1:9")
    session = home.session()
    store = Store.open(home.state)
    for turn in "abc":
        store.note_attempt(session.session_id, turn, time.time())
        store.note_result(session.session_id, "model_error", "HTTP 500")
    verdict = why(home, session.session_id)
    assert (verdict["verdict"], verdict["reason"]) == ("skip", "attempts_exhausted")
    assert verdict["attempts"] | {"last_at": None} == {
        "count": 3,
        "last_at": None,
        "last_reason": "model_error",
        "last_detail": "HTTP 500",
    }
    store.reset_attempts(session.session_id)
    causes: dict[str, tuple[dict[str, str], str]] = {
        "disabled": ({"QWEN_DISABLE_AUTO_TITLE": "yes"}, "skip"),
        "no_fast_model": ({"FLASH_KEY": ""}, "skip"),
        "budget_exhausted": ({"QWEN_WATCHER_BUDGET__CALLS_PER_DAY": "0"}, "wait"),
    }
    plain = dict(home.env)
    for reason, (environment, word) in causes.items():
        home.env = plain | environment
        verdict = why(home, session.session_id)
        assert (verdict["verdict"], verdict["reason"]) == (word, reason)
        assert verdict["change"]
    home.env = plain
    store.pause(None)
    verdict = why(home, session.session_id)
    assert (verdict["verdict"], verdict["reason"]) == ("wait", "paused")
    store.resume()
    store.close()
    lease = home.lease(session)
    verdict = why(home, session.session_id)
    assert (verdict["verdict"], verdict["reason"]) == ("wait", "locked")
    assert str(lease) in verdict["detail"]


def test_what_the_file_says_decides_first(home: Home) -> None:
    """Titles, versions, links and one-shot runs, each by its own reason."""
    home.use_model("http://127.0.0.1:9")
    automatic, manual, linked = (home.session() for _ in range(3))
    old = home.session(version="0.15.10")
    automatic.title("Theirs")
    manual.title("Mine", "manual")
    (home.root / "second").hardlink_to(linked.path)
    for session, reason in (
        (automatic, "title_present"),
        (manual, "manual_title"),
        (old, "unsupported_version"),
        (linked, "unsafe_file"),
    ):
        home.rest(session)
        assert why(home, session.session_id)["reason"] == reason
    linked.path.unlink()
    linked.path.symlink_to(manual.path)
    assert why(home, linked.session_id)["reason"] == "unsafe_file"


def test_owners_evidence_and_pending_texts_are_told(home: Home) -> None:
    """Who has the session and how that is known, the signs of life, and what waits for what."""
    home.use_model("http://127.0.0.1:9", general={"showSessionRecap": True})
    session = home.session("one", "two", "three")
    store = Store.open(home.state)
    store.put_pending(
        Pending(
            session_id=session.session_id,
            kind=PendingKind.MANUAL_TITLE,
            path=str(session.path),
            created_at=time.time(),
            text="Mine",
            source="manual",
        )
    )
    store.close()
    with home.owner(session) as owner:
        found = home.run("why", session.session_id, "--json").json
        (told,) = found["owners"]
        assert (told["pid"], told["kind"], told["alive"], told["source"]) == (owner.pid, "tui", "live", "registry")
        assert found["presence"]["signs"][0]["source"] == "prompt"
        assert found["pending"][0]["waits_for"] == "the end of its Qwen Code"
        assert found["title"]["reason"] is None
        assert found["recap"]["reason"] == "left_to_qwen"
        shown = home.run("why", session.session_id).out
        assert f"pid {owner.pid}, tui, live, known from the registry" in shown
        assert "the user's title since" in shown
        assert "last prompt: 20" in shown


def test_the_text_marks_what_decides_and_says_what_to_do(home: Home) -> None:
    """One arrow a table, the advice with the session's own id, and a word that nothing runs."""
    session = home.session()
    shown = home.run("why", session.session_id).out
    assert shown.count("-> no") == 2
    assert "-> no  no_fast_model" in shown
    assert "to change this: set fastModel" in shown
    assert f"`qwen-watcher recap {session.session_id[:8]}` works all the same" in shown
    assert "no watcher is running" in shown
    assert not any(line != line.rstrip() for line in shown.splitlines())


def test_every_reason_of_a_guard_has_its_advice() -> None:
    """Whatever can decide says how to change it."""
    exempt = {Reason.EMPTY_RESULT, Reason.ABORTED, Reason.MODEL_ERROR, Reason.NOT_FOUND}
    assert set(_CHANGE) == set(Reason) - exempt


def test_not_found(home: Home) -> None:
    """No such session: exit 1 with the reason, nothing on stdout."""
    ran = home.run("why", "ffffffff", "--json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("reason: not_found (")


@pytest.mark.parametrize("source", ["interactive", "all"])
def test_one_shot_runs(home: Home, source: str) -> None:
    """A `-p` run is not interactive; `title.sessions = "all"` includes it."""
    home.use_model("http://127.0.0.1:9")
    home.env["QWEN_WATCHER_TITLE__SESSIONS"] = source
    session = home.session()
    lines = [line for line in session.path.read_bytes().splitlines(keepends=True) if b"snapshot" not in line]
    session.path.write_bytes(b"".join(lines).replace(b"\n", b"\n"))
    home.rest(session)
    verdict = why(home, session.session_id)
    assert verdict["reason"] == ("not_interactive" if source == "interactive" else None)


def test_the_same_reason_as_an_explicit_command_gives(home: Home) -> None:
    """`why` and the refusal of `title --auto` use the same words for the same cause."""
    with answering() as server:
        home.use_model(server.url)
        home.env["QWEN_WATCHER_BUDGET__CALLS_PER_DAY"] = "0"
        session = home.session()
        refused = home.run("title", session.session_id, "--auto").err
        assert refused.startswith(f"reason: {why(home, session.session_id)['reason']} (")
