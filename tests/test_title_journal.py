"""What we know of the titles that we wrote: read from the journal of a real state database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from watcher.core.events import TitleSource
from watcher.core.policy import OurTitle
from watcher.core.undo import TitleWrite
from watcher.edge.store import JournalEntry, JournalKind, PendingKind, Store
from watcher.qwen.paths import SessionRef
from watcher.title_journal import Given, TitleJournal

ID = "800ec011-bd66-45b3-b7e5-27e3387a2e2a"
REF = SessionRef(f"/h/projects/p/chats/{ID}.jsonl", ID, Path("/h"))
AUTO, MANUAL = TitleSource.AUTO, TitleSource.MANUAL


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[TitleJournal]:
    with closing(Store.open(tmp_path)) as store:
        yield TitleJournal(store, lambda: 1.0)


def write(
    journal: TitleJournal, kind: JournalKind, text: str, offset: int, source: TitleSource = AUTO, more: str = ""
) -> JournalEntry:
    """One thing that we wrote; its record is named by its place."""
    uuids = (f"u{offset}", *filter(None, [more]))
    entry = JournalEntry(
        kind=kind, session_id=ID, path=REF.path, at=1.0, text=text, source=source.value,
        record_uuid=uuids[-1], uuids=uuids, offset=offset,
    )  # fmt: skip
    return replace(entry, seq=journal._store.record(entry))


def test_a_title_is_known_by_all_its_records_and_where_it_was_last_given(journal: TitleJournal) -> None:
    """One that was only brought back into sight counts as given before; the same words of the user's are another."""
    write(journal, JournalKind.TITLE, "Ours", 100)
    write(journal, JournalKind.REANCHOR, "Ours", 900)
    assert journal.our_titles(ID) == (OurTitle("Ours", AUTO, frozenset({"u100", "u900"}), 100),)
    write(journal, JournalKind.TITLE, "Ours", 2000, MANUAL)
    write(journal, JournalKind.TITLE, "Ours", 3000, more="u3001")
    assert journal.our_titles(ID) == (
        OurTitle("Ours", MANUAL, frozenset({"u2000"}), 2000),
        OurTitle("Ours", AUTO, frozenset({"u100", "u900", "u3000", "u3001"}), 3000),
    )


def test_undo_takes_back_what_was_given_and_nothing_that_was_put_again(journal: TitleJournal) -> None:
    """Healing and bringing back into sight give nothing; each undo takes back one title."""
    assert journal.newest_title(ID) is None
    write(journal, JournalKind.TITLE, "First", 100)
    write(journal, JournalKind.TITLE, "Second", 200)
    write(journal, JournalKind.REANCHOR, "Second", 300)
    write(journal, JournalKind.HEAL, "Theirs", 400, MANUAL)
    assert journal.newest_title(ID) == TitleWrite("Second", 200)
    write(journal, JournalKind.UNDO, "First", 500)
    assert journal.newest_title(ID) == TitleWrite("First", 100)
    write(journal, JournalKind.UNDO, "", 600, MANUAL)
    assert journal.newest_title(ID) is None


@pytest.mark.parametrize("source", [AUTO, MANUAL])
def test_a_kept_title_knows_where_it_was_given_and_what_is_ours(journal: TitleJournal, source: TitleSource) -> None:
    """By that it is told whether what stands last came from a memory."""
    write(journal, JournalKind.TITLE, "Before", 100)
    entry = write(journal, JournalKind.TITLE, "Wish", 200, source, more="u201")
    journal.keep(REF, PendingKind.MANUAL_TITLE, entry)
    (pending,) = journal._store.pending(ID)
    assert (pending.text, pending.source) == ("Wish", source.value)
    assert journal.given(REF, pending) == Given(200, frozenset({"u100", "u200", "u201"}))


def test_a_record_belongs_to_the_entry_that_wrote_it(journal: TitleJournal) -> None:
    """Also a correction of it, and not to another session."""
    write(journal, JournalKind.TITLE, "First", 100)
    second = write(journal, JournalKind.TITLE, "Second", 200, more="u201")
    assert journal.entry_of(REF, "u201") == second
    assert journal.entry_of(REF, "nowhere") is None
    assert journal.entry_of(replace(REF, session_id="another"), "u201") is None
