"""`history S` and `undo S`."""

from __future__ import annotations

import pytest

from tests.cli.home import Home
from tests.cli.test_title import deliver, last_title, titles
from tests.support.transcripts import Transcript
from watcher.edge.store import Store


def automatic(home: Home, transcript: Transcript) -> str:
    """An automatic title of ours."""
    home.use_extractive()
    ran = home.run("title", transcript.session_id, "--auto")
    assert ran.code == 0, ran.err
    return ran.out.strip()


def test_history_tells_everything_we_wrote(home: Home) -> None:
    """Titles, recaps and undos, oldest first, each with its time, text, source and record."""
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    title = automatic(home, session)
    assert home.run("recap", session.session_id, "--write").code == 0
    assert home.run("undo", session.session_id).code == 0
    entries = home.run("history", session.session_id, "--json").json
    assert [(each["kind"], each["source"]) for each in entries] == [
        ("title", "auto"),
        ("recap", None),
        ("undo", "manual"),
    ]
    assert entries[0]["text"] == title
    uuids = {each["uuid"] for each in session.records()}
    assert all(each["record_uuid"] in uuids for each in entries)
    shown = home.run("history", session.session_id)
    assert title in shown.out
    assert "undo, back to: no title" in shown.out
    assert all(each["record_uuid"] in shown.out for each in entries)


def test_history_of_nothing_and_of_a_deleted_session(home: Home) -> None:
    """An untouched session has an empty history; a deleted one still has its own, by its whole id."""
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    assert home.run("history", session.session_id, "--json").json == []
    assert "nothing was written" in home.run("history", session.session_id).out
    assert not home.state.exists()
    automatic(home, session)
    session.path.unlink()
    assert len(home.run("history", session.session_id, "--json").json) == 1
    assert home.run("history", session.session_id[:12]).code == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ("", "manual")),
        (("Theirs", "auto"), ("Theirs", "auto")),
        (("Mine", "manual"), ("Mine", "manual")),
        (("Unsourced", None), ("Unsourced", "manual")),
        (("", "manual"), ("", "manual")),
    ],
)
def test_undo_puts_back_what_stood_there(
    home: Home, before: tuple[str, str | None] | None, after: tuple[str, str]
) -> None:
    """The title before ours stands again with its source; where there was none, an empty manual one."""
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    if before is not None:
        session.title(*before)
        home.rest(session)
    automatic(home, session)
    mtime = session.path.stat().st_mtime_ns
    ran = home.run("undo", session.session_id)
    assert ran.code == 0
    assert ran.out == (f"put back: {after[0]}\n" if after[0] else "title taken away: there was none before it\n")
    assert "not titled automatically" in ran.err
    assert last_title(session) == after
    assert session.path.stat().st_mtime_ns == mtime
    verdict = home.run("why", session.session_id, "--json").json["title"]
    assert (verdict["verdict"], verdict["reason"]) in (("skip", "manual_title"), ("skip", "title_present"))
    store = Store.open(home.state)
    assert store.is_dismissed(session.session_id)
    store.close()


def test_undo_goes_back_step_by_step(home: Home) -> None:
    """Each undo takes back one title of ours, the user's own given through the tool included; then nothing is left."""
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    first = automatic(home, session)
    assert home.run("title", session.session_id, "My own").code == 0
    assert home.run("undo", session.session_id).out == f"put back: {first}\n"
    assert last_title(session) == (first, "auto")
    assert home.run("undo", session.session_id).code == 0
    assert last_title(session) == ("", "manual")
    ran = home.run("undo", session.session_id)
    assert (ran.code, ran.err) == (1, "reason: not_found (nothing to undo: what we wrote was taken back already)\n")


def test_a_name_of_the_user_survives_an_undo_of_the_model_s(home: Home) -> None:
    """`title S NAME`, `title S --auto`, `undo S`: the name is back."""
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    assert home.run("title", session.session_id, "My own").code == 0
    automatic(home, session)
    assert home.run("undo", session.session_id).code == 0
    assert last_title(session) == ("My own", "manual")


def test_undo_never_takes_away_another_writer_s_title(home: Home) -> None:
    """Renamed since, or titled by Qwen Code, or never titled by us: refused with its reason, nothing written."""
    untouched = home.session()
    ran = home.run("undo", untouched.session_id)
    assert (ran.code, ran.err) == (1, "reason: not_found (nothing to undo: we gave this session no title)\n")
    for source, reason in (("manual", "manual_title"), ("auto", "title_present"), (None, "manual_title")):
        session = home.session("Fix the flaky login test in tests/auth_test.py")
        automatic(home, session)
        session.tail = session.records()[-1]["uuid"]
        session.title("Another", source)
        home.rest(session)
        before = session.path.read_bytes()
        ran = home.run("undo", session.session_id)
        assert (ran.code, ran.err.startswith(f"reason: {reason} (")) == (1, True), ran
        assert session.path.read_bytes() == before


def test_undo_of_a_title_that_qwen_code_repeats(home: Home) -> None:
    """A resumed CLI holds our title and writes it again at its exit: the undo is put last when it has gone."""
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    ours = automatic(home, session)
    session.tail = session.records()[-1]["uuid"]
    with home.owner(session):
        session.title(ours, side=True)
        home.rest(session)
        ran = home.run("undo", session.session_id)
        assert ran.code == 0
        assert "put last when the session closes" in ran.err
        session.title(ours, side=True)
        home.rest(session)
        deliver(home, session)
        assert last_title(session) == (ours, "auto")
    deliver(home, session)
    assert last_title(session) == ("", "manual")
    assert titles(session) == [ours, ours, "", ours, ""]


def test_undo_respects_lease_and_turn(home: Home) -> None:
    """As every write: never under a lease, never in the middle of a turn."""
    session = home.session("Fix the flaky login test in tests/auth_test.py")
    automatic(home, session)
    lease = home.lease(session)
    assert home.run("undo", session.session_id).err.startswith("reason: locked (")
    lease.unlink()
    session.tail = session.records()[-1]["uuid"]
    session.user("And the logout test?")
    home.rest(session)
    with home.owner(session):
        assert home.run("undo", session.session_id).err.startswith("reason: working (")
