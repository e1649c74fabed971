"""What we know of the titles that we wrote: read from the journal, and kept for later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watcher.core.events import TitleSource
from watcher.core.policy import OurTitle
from watcher.core.undo import TitleWrite, newest_not_undone
from watcher.edge.store import JournalEntry, JournalKind, Pending, PendingKind, Store
from watcher.qwen.paths import SessionRef


@dataclass(frozen=True, slots=True)
class Given:
    """A title that was given through this program: where its record begins, and all records that we wrote by then."""

    offset: int
    ours: frozenset[str]


class TitleJournal:
    """The journal's view of our titles. `clock` gives seconds since the epoch."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def our_titles(self, session_id: str) -> tuple[OurTitle, ...]:
        """The titles that we wrote to this session, oldest first, each with where it was last given: one that was only
        brought back into sight counts as given before.
        """
        found: dict[tuple[str, TitleSource], OurTitle] = {}
        for entry in self._store.our_titles(session_id):
            key = (entry.text, TitleSource(entry.source))
            before = found.pop(key, OurTitle(*key, frozenset(), entry.offset))
            again = entry.kind is JournalKind.REANCHOR
            found[key] = OurTitle(*key, before.uuids | set(entry.uuids), before.offset if again else entry.offset)
        return tuple(found.values())

    def newest_title(self, session_id: str) -> TitleWrite | None:
        """The newest title that we wrote to this session and that no `undo` has taken back."""
        return newest_not_undone(
            TitleWrite(entry.text, entry.offset, undoes=entry.kind is JournalKind.UNDO)
            for entry in self._store.our_titles(session_id)
            if entry.kind in (JournalKind.TITLE, JournalKind.UNDO)
        )

    def entry_of(self, ref: SessionRef, record_uuid: str) -> JournalEntry | None:
        """The journal entry that this record of ours belongs to."""
        entries = self._store.entries(session_id=ref.session_id)
        return next((entry for entry in reversed(entries) if record_uuid in entry.uuids), None)

    def given(self, ref: SessionRef, each: Pending) -> Given:
        """Where the title that waits was given."""
        entry = self._store.entry(each.journal_seq)
        entries = self._store.our_titles(ref.session_id)
        return Given(
            entry.offset if entry else 0,
            frozenset(uuid for one in entries for uuid in one.uuids),
        )

    def keep(self, ref: SessionRef, kind: PendingKind, entry: JournalEntry) -> None:
        """Keep a title that the user gave, to be put last when its session closes."""
        self._store.put_pending(
            Pending(
                session_id=ref.session_id,
                kind=kind,
                path=ref.path,
                created_at=self._clock(),
                text=entry.text,
                source=entry.source,
                journal_seq=entry.seq,
            )
        )
