"""A recap on request: the last one as long as nothing happened, wherever it is kept; else a new one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.api.house import House, house
from tests.support.transcripts import Transcript
from watcher.catalog import read_session
from watcher.core.generation import Kind
from watcher.core.reasons import Reason
from watcher.drafting import NoText
from watcher.edge.store import JournalEntry, JournalKind, Pending, PendingKind
from watcher.edge.text_model import Abort
from watcher.qwen.paths import SessionRef, session_ref
from watcher.requested import RequestedRecap, StoredRecap, begin_recap, recap_on_request, stored_recap
from watcher.workplace import Workplace


@pytest.fixture
def home() -> Iterator[House]:
    """A home with the offline model."""
    with house() as made:
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


def stored(place: Workplace, session: Transcript) -> StoredRecap | None:
    """The recap that is kept for the session as it is now."""
    ref = ref_of(session)
    return stored_recap(place.store, ref, read_session(ref).state)


def journal(place: Workplace, session: Transcript, text: str, at: float, uuid: str = "") -> None:
    """Note a recap as written."""
    place.store.record(
        JournalEntry(
            kind=JournalKind.RECAP,
            session_id=session.session_id,
            path=str(session.path),
            at=at,
            text=text,
            model="small",
            record_uuid=uuid,
        )
    )


def test_a_recap_in_the_file_is_the_stored_one(home: House, place: Workplace) -> None:
    """Ours, with its model, or Qwen Code's own, until a prompt, or a rewind, comes after it."""
    session = home.session()
    assert stored(place, session) is None
    uuid = session.recap("Where you were.")
    assert stored(place, session) == StoredRecap("Where you were.", "", recorded=True)
    journal(place, session, "Where you were.", time.time(), uuid)
    assert stored(place, session) == StoredRecap("Where you were.", "small", recorded=True)
    session.title("Bookkeeping does not matter")
    assert stored(place, session) is not None
    session.at = time.time() + 5
    session.turn("Go on", "Done.")
    assert stored(place, session) is None


def test_what_the_file_does_not_show_is_known_all_the_same(home: House, place: Workplace) -> None:
    """Kept for an editor session, or written and chained past by a live terminal."""
    session = home.session()
    journal(place, session, "An old one.", session.at - 100)
    assert stored(place, session) is None
    journal(place, session, "Written.", session.at + 1)
    assert stored(place, session) == StoredRecap("Written.", "small", recorded=False)
    kept = Pending(
        session_id=session.session_id,
        kind=PendingKind.RECAP,
        path=str(session.path),
        created_at=session.at + 2,
        text="Kept.",
        model="small",
    )
    place.store.put_pending(kept)
    assert stored(place, session) == StoredRecap("Kept.", "small", recorded=False)


def test_a_rewound_conversation_has_no_stored_recap(home: House, place: Workplace) -> None:
    """It told of turns that are gone."""
    session = home.session(turns=2)
    first = session.records()[2]["uuid"]
    session.turn("A wrong turn", "Done.")
    session.recap("You took a wrong turn.")
    session.tail = first
    session.append(session.record("system", provenance="system", subtype="rewind", systemPayload={"truncatedCount": 3}))
    journal(place, session, "You took a wrong turn.", time.time())
    assert stored(place, session) is None


def test_a_stored_recap_needs_no_model_and_no_switch(home: House, place: Workplace) -> None:
    """Recaps are off and nothing could be asked; to be recorded again it need not be, since it stands there."""
    session = home.session()
    session.recap("Where you were.")
    home.environ["QWEN_WATCHER_MODEL__SOURCE"] = "qwen"
    with Workplace(home.environ) as bare:
        for write in (False, True):
            made = recap_on_request(bare, ref_of(session), Abort(), write=write)
            assert isinstance(made, RequestedRecap)
            assert (made.text, made.recorded) == ("Where you were.", True)
        session.turn("Go on", "Done.")
        refused = recap_on_request(bare, ref_of(session), Abort())
        assert isinstance(refused, NoText)
        assert refused.reason is Reason.NO_FAST_MODEL


def test_a_running_turn_forbids_to_record_only(home: House, place: Workplace) -> None:
    """Printing is always possible."""
    session = home.session()
    session.user("Go on")
    ref = ref_of(session)
    made = recap_on_request(place, ref, Abort())
    assert isinstance(made, RequestedRecap)
    assert made.basis.turn == session.tail
    refused = begin_recap(place, ref, read_session(ref), write=True)
    assert refused == NoText(Kind.RECAP, Reason.WORKING, "a turn seems to run and its owner is unknown")


def test_an_unsafe_file_has_none(home: House, place: Workplace) -> None:
    """Its records are not trusted, so not repeated."""
    session = home.session()
    session.recap("Where you were.")
    (session.path.parent / "link").hardlink_to(session.path)
    ref = ref_of(session)
    refused = begin_recap(place, ref, read_session(ref))
    assert isinstance(refused, NoText)
    assert refused.reason is Reason.UNSAFE_FILE
