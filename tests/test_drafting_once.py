"""A request that was answered is not paid for again: the text is kept, and calls for one text wait for each other."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.api.house import House, house
from tests.support.chat_server import ChatServer, Gate, Reply
from tests.support.chat_server import Kind as Asked
from tests.support.live import eventually
from tests.support.transcripts import Transcript
from watcher.catalog import read_session
from watcher.core.generation import Kind
from watcher.core.reasons import Reason
from watcher.drafting import Draft, NoText, Ready
from watcher.edge.call_locks import CallLocks
from watcher.edge.text_model import Abort
from watcher.qwen.paths import SessionRef, session_ref
from watcher.workplace import Workplace

RECAP = "You fix the flaky login test. Next: run the whole suite."


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A model that answers."""
    with ChatServer(recap=RECAP) as made:
        yield made


@pytest.fixture
def home(server: ChatServer) -> Iterator[House]:
    """A home whose configuration names that model."""
    with house(server.base_url) as made:
        yield made


@pytest.fixture
def place(home: House) -> Iterator[Workplace]:
    """What a command works with."""
    with Workplace(home.environ) as made:
        yield made


def ref_of(session: Transcript) -> SessionRef:
    """The session as the rest of the program names it."""
    ref = session_ref(str(session.path))
    assert ref is not None
    return ref


def draft_of(place: Workplace, session: Transcript, kind: Kind) -> Draft:
    """A request that is ready to be sent."""
    ref = ref_of(session)
    draft = place.drafter.prepare(kind, ref, place.surveyor.settings(ref, read_session(ref).state))
    assert isinstance(draft, Draft)
    return draft


def test_the_same_request_is_sent_once(home: House, server: ChatServer, place: Workplace) -> None:
    """Also by another process, after a restart; another turn makes it another request."""
    session = home.session()
    first = place.drafter.ask(draft_of(place, session, Kind.RECAP), Abort())
    assert first == Ready(Kind.RECAP, RECAP, "small")
    with Workplace(home.environ) as other:
        assert other.drafter.ask(draft_of(other, session, Kind.RECAP), Abort()) == first
    session.recap(RECAP)
    assert place.drafter.ask(draft_of(place, session, Kind.RECAP), Abort()) == first
    assert len(server.requests()) == 1
    session.turn("And the logout test", "Done.")
    place.drafter.ask(draft_of(place, session, Kind.RECAP), Abort())
    assert len(server.requests()) == 2


def test_a_user_who_asks_again_gets_another_title(home: House, server: ChatServer, place: Workplace) -> None:
    """`title --auto` is meant; an automatic title is not asked for twice."""
    session = home.session()
    for again, calls in ((False, 1), (False, 1), (True, 2), (True, 3)):
        made = place.drafter.ask(draft_of(place, session, Kind.TITLE), Abort(), again=again)
        assert isinstance(made, Ready)
        assert len(server.requests()) == calls


def test_a_failure_is_no_answer(home: House, server: ChatServer, place: Workplace) -> None:
    """Nothing is kept of it."""
    session = home.session()
    server.script(Reply("<recap></recap>"), kind=Asked.RECAP)
    assert isinstance(place.drafter.ask(draft_of(place, session, Kind.RECAP), Abort()), NoText)
    assert place.store.made(session.session_id, Kind.RECAP) is None
    made = place.drafter.ask(draft_of(place, session, Kind.RECAP), Abort())
    assert isinstance(made, Ready)


def test_an_answer_outlives_a_state_that_breaks_during_the_call(
    home: House, server: ChatServer, place: Workplace
) -> None:
    """It is paid, and neither its tokens, nor what it taught, nor the text itself can be noted any more."""
    session = home.session()

    def answer(_: object) -> Reply:
        with closing(sqlite3.connect(place.store.path)) as other:
            for table in ("days", "learned", "made"):
                other.execute(f"DROP TABLE IF EXISTS {table}")
        return Reply(f"<recap>{RECAP}</recap>")

    server.respond = answer
    assert place.drafter.ask(draft_of(place, session, Kind.RECAP), Abort()) == Ready(Kind.RECAP, RECAP, "small")
    assert len(server.requests()) == 1


def test_who_comes_while_a_call_runs_gets_its_answer(home: House, server: ChatServer, place: Workplace) -> None:
    """Also a user who asks again: that answer is as new as can be."""
    session = home.session()
    draft = draft_of(place, session, Kind.TITLE)
    place.drafter.ask(draft, Abort())  # the endpoint is known from now on
    gate = Gate()
    server.respond = lambda _: gate_then_title(gate)
    locks = SeenLocks(home.state)
    place.drafter._calls = locks
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(place.drafter.ask, draft, Abort(), again=True)
        gate.wait_arrived()
        others = [pool.submit(place.drafter.ask, draft, Abort(), again=True) for _ in range(2)]
        eventually(lambda: len(locks.refused) == 2)
        gate.release()
        answers = {repr(each.result(30)) for each in (first, *others)}
    assert len(answers) == 1
    assert len(server.requests()) == 2


class SeenLocks(CallLocks):
    """Locks that tell which threads had to wait."""

    def __init__(self, state_directory: Path) -> None:
        super().__init__(state_directory)
        self.refused: set[int] = set()

    def _take(self, path: Path) -> int | None:
        fd = super()._take(path)
        if fd is None:
            self.refused.add(threading.get_ident())
        return fd


def gate_then_title(gate: Gate) -> Reply:
    """A title, once the gate is open."""
    return Reply('{"title": "Repair flaky login test"}', gate=gate)


def test_waiting_ends_with_an_abort(home: House, server: ChatServer, place: Workplace) -> None:
    """A second caller that loses interest does not hold up the first."""
    session = home.session()
    gate = Gate()
    server.script(Reply(f"<recap>{RECAP}</recap>", gate=gate), kind=Asked.RECAP)
    draft = draft_of(place, session, Kind.RECAP)
    abort = Abort()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(place.drafter.ask, draft, Abort())
        gate.wait_arrived()
        second = pool.submit(place.drafter.ask, draft, abort)
        abort.set()
        assert second.result(10) == NoText(Kind.RECAP, Reason.ABORTED)
        gate.release()
        assert isinstance(first.result(30), Ready)
    assert len(server.requests()) == 1


def test_nothing_of_the_conversation_is_kept(home: House, server: ChatServer, place: Workplace) -> None:
    """The state database holds the answer and a digest of the request."""
    session = home.session()
    place.drafter.ask(draft_of(place, session, Kind.RECAP), Abort())
    made = place.store.made(session.session_id, Kind.RECAP)
    assert made is not None
    assert (made.text, made.model, len(made.request)) == (RECAP, "small", 16)
    place.close()
    data = b"".join(path.read_bytes() for path in home.state.glob("state.db*"))
    assert b"part 2" not in data


def test_a_state_directory_that_cannot_be_written_is_told(home: House, server: ChatServer, place: Workplace) -> None:
    """The call is not made without its lock."""
    session = home.session()
    draft = draft_of(place, session, Kind.RECAP)
    (home.state / "calls").write_text("in the way")
    made = place.drafter.ask(draft, Abort())
    assert isinstance(made, NoText)
    assert made.reason is Reason.MODEL_ERROR
    assert "lock" in made.detail
    assert server.requests() == []
