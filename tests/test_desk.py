"""Where the service's texts are handed over to be written, or kept: on real files, a real database and no model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.api.house import House, house
from tests.support.transcripts import Transcript
from watcher.calls import Calls
from watcher.core.decisions import Act, WaitUntil
from watcher.core.generation import Kind
from watcher.core.reasons import Reason
from watcher.core.writing import Declined, Failed, WriteOutcome, Written
from watcher.desk import Desk, Note
from watcher.edge.store import PendingKind
from watcher.pipeline import Missing, Text, Tracked, Unsafe
from watcher.saving import ref_of
from watcher.workplace import Workplace


@dataclass
class Office:
    """A desk in a home with one session, and what it told of."""

    home: House
    place: Workplace
    workers: ThreadPoolExecutor
    session: Transcript
    notes: list[Note] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def desk(self, *, dry_run: bool = False) -> Desk:
        """One run of the service."""
        place = self.place
        calls = Calls(place.drafter, place.store, workers=self.workers, post=self.answers.append, clock=place.clock)
        return Desk(
            place.surveyor,
            place.recorder,
            calls,
            place.store,
            clock=place.clock,
            on_written=self.notes.append,
            dry_run=dry_run,
        )

    def tracked(self, desk: Desk) -> Tracked:
        """The session as the pipeline has it."""
        seen = desk.read(str(self.session.path), None)
        assert not isinstance(seen, Missing | Unsafe)
        return Tracked(str(self.session.path), seen, seen.changed_at, moved=True)

    def text(self, kind: Kind, tracked: Tracked) -> Text:
        """A text made of the session as it is."""
        return Text(kind, "Where it stood.", "small", tracked.state.turn, tracked.state.moves)

    def compress(self) -> None:
        """The conversation moves on without a prompt."""
        self.session.system("chat_compression", {"info": {}, "compressedHistory": []})
        self.old()

    def old(self) -> None:
        """A while passes."""
        self.session.set_mtime(time.time() - 3600)

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.session.path.read_bytes()

    @property
    def waiting(self) -> set[PendingKind]:
        """What is kept."""
        return {each.kind for each in self.place.store.pending(self.session.session_id)}


@pytest.fixture
def office() -> Iterator[Office]:
    with house() as home, Workplace(home.environ) as place, ThreadPoolExecutor(1) as workers:
        made = Office(home, place, workers, home.session(age_seconds=3600))
        yield made


def test_what_is_stopped_is_kept_and_delivered_once(office: Office) -> None:
    """A pause stops the write; after `resume` the text is written, told of once, and never again."""
    desk = office.desk()
    tracked = office.tracked(desk)
    office.place.store.pause(None)
    before = office.data
    for kind in Kind:
        outcome = desk.write(tracked, office.text(kind, tracked))
        assert outcome == Declined(Reason.PAUSED, "paused until `resume`")
        desk.keep(tracked, office.text(kind, tracked), Reason.PAUSED)
    due = desk.deliver(tracked, time.time())
    assert due is not None
    assert due.at is None
    assert office.data == before
    office.place.store.pause(time.time() + 60)
    due = desk.deliver(tracked, time.time())
    assert due is not None
    assert due.at == pytest.approx(time.time() + 60, abs=30)
    office.place.store.resume()
    for _ in range(3):
        assert desk.deliver(office.tracked(desk), time.time()) is None
        office.old()
    assert sorted(note.kind for note in office.notes) == sorted(Kind)
    assert office.data.count(b"Where it stood.") == 2
    assert not office.waiting


def test_a_text_that_is_appended_again_is_told_once(office: Office) -> None:
    """A terminal wrote over the recap at its exit: the second record is no news (design 11)."""
    desk = office.desk()
    tracked = office.tracked(desk)
    assert isinstance(desk.write(tracked, office.text(Kind.RECAP, tracked)), Written)
    (entry,) = office.place.store.entries()
    ref = ref_of(tracked)
    office.place.recorder.keep_text(ref, Kind.RECAP, "Where it stood.", "small", tracked.state.turn, seq=entry.seq)
    office.session.title("Theirs", side=True)
    office.old()
    assert desk.deliver(office.tracked(desk), time.time()) is None
    assert office.data.count(b"Where it stood.") == 2
    assert office.notes == []
    assert office.place.store.intents() == []


@pytest.mark.parametrize("kept", [False, True])
def test_a_recap_of_a_session_that_moved_on_is_dropped(office: Office, kept: bool) -> None:
    """Also where no prompt was typed since, and whether it is written at once or later."""
    desk = office.desk()
    tracked = office.tracked(desk)
    text = office.text(Kind.RECAP, tracked)
    if kept:
        desk.keep(tracked, text, Reason.LOCKED)
    office.compress()
    before = office.data
    tracked = office.tracked(desk)
    if kept:
        assert desk.deliver(tracked, time.time()) is None
    else:
        outcome = desk.write(tracked, text)
        assert isinstance(outcome, Declined)
        assert outcome.reason is Reason.NOTHING_NEW
    assert office.data == before
    assert not office.waiting


def test_a_dry_run_writes_and_asks_nothing(office: Office) -> None:
    """Not even what waits; each decision is taken once."""
    office.desk().keep(office.tracked(office.desk()), office.text(Kind.TITLE, office.tracked(office.desk())), "")
    desk = office.desk(dry_run=True)
    tracked = office.tracked(desk)
    before = office.data
    assert desk.deliver(tracked, time.time()) is None
    assert isinstance(desk.decide(Kind.TITLE, tracked, time.time()), Act)
    assert desk.begin(Kind.TITLE, tracked) is False
    assert desk.decide(Kind.TITLE, tracked, time.time()) == WaitUntil(None, Reason.NOTHING_NEW, "dry run")
    assert office.data == before
    assert office.waiting == {PendingKind.TITLE}
    assert office.place.store.attempts(office.session.session_id, Kind.TITLE).count == 0
    assert office.answers == []


def test_what_is_no_plain_session_is_not_even_tracked(office: Office) -> None:
    """Archived, linked, given a second name, open to everybody: contract 1.2 and 4.3 i."""
    desk = office.desk()
    path = office.session.path
    archive = path.parent / "archive" / path.name
    archive.parent.mkdir()
    archive.write_bytes(office.data)
    assert isinstance(desk.read(str(archive), None), Missing)
    second = office.home.home / "second"
    os.link(path, second)
    assert desk.read(str(path), None) == Unsafe("it has 2 hard links")
    second.unlink()
    path.chmod(0o666)
    assert isinstance(desk.read(str(path), None), Unsafe)
    path.chmod(0o600)
    assert not isinstance(desk.read(str(path), None), Missing | Unsafe)
    path.rename(second)
    path.symlink_to(second)
    assert desk.read(str(path), None) == Unsafe("a symbolic link")
    assert isinstance(desk.read(str(Path(second)), None), Missing)


@pytest.mark.parametrize(
    ("outcome", "made"),
    [
        (Written("u", "p", 0, 1, ("u",)), True),
        (Declined(Reason.LOCKED, "a lease"), True),
        (Failed(Reason.UNSAFE_FILE, "no space left"), True),
        (Declined(Reason.NOTHING_NEW, "the session moved on"), False),
        (Failed(Reason.UNSAFE_FILE, "cut", "short write, closed"), False),
    ],
)
def test_a_recap_counts_only_where_it_stands_or_will(office: Office, outcome: WriteOutcome, made: bool) -> None:
    """The next one waits for two prompts after it; one that was lost is no reason to wait."""
    desk = office.desk()
    tracked = office.tracked(desk)
    office.place.store.note_attempt(office.session.session_id, tracked.state.turn, time.time(), Kind.RECAP)
    desk.wrote(tracked, office.text(Kind.RECAP, tracked), outcome)
    attempts = office.place.store.attempts(office.session.session_id, Kind.RECAP)
    assert (attempts.made_turn == tracked.state.turn) is made
    assert bool(office.notes) is isinstance(outcome, Written)


def test_an_anomaly_is_told(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning that names the brake, beside the one that says that no title was written."""
    told: list[str] = []

    class Log:
        def warning(self, event: str, **_: object) -> None:
            told.append(event)

        debug = info = warning

    monkeypatch.setattr("watcher.desk.get_logger", lambda _: Log())
    desk = office.desk()
    tracked = office.tracked(desk)
    desk.wrote(tracked, office.text(Kind.TITLE, tracked), Failed(Reason.UNSAFE_FILE, "cut", "short write, closed"))
    assert "brake" in told
    told.clear()
    desk.wrote(tracked, office.text(Kind.TITLE, tracked), Failed(Reason.UNSAFE_FILE, "no space left"))
    assert "brake" not in told
