"""`history` and `undo`: what we wrote to a session, and how to take it back."""

from __future__ import annotations

import os
from typing import Any, Final

from watcher.catalog import Catalog
from watcher.cli.guarded import ending_well, kept_note, readable, refuse_stopped, refuse_unwritten, uninterrupted
from watcher.cli.output import clock_time, note, say, say_filled, say_json, styled
from watcher.cli.places import session_id_for
from watcher.core.controls import printable
from watcher.core.events import TitleSource
from watcher.core.reasons import Reason
from watcher.core.undo import title_before
from watcher.edge.store import JournalEntry, JournalKind, Store
from watcher.errors import RefusedError
from watcher.qwen.paths import SessionRef
from watcher.qwen.reading import Reading
from watcher.shapes import iso
from watcher.workplace import Workplace

_WORDS: Final = {
    JournalKind.TITLE: "title",
    JournalKind.RECAP: "recap",
    JournalKind.HEAL: "title put last again",
    JournalKind.REPAIR: "record repaired",
    JournalKind.REANCHOR: "title brought back into sight",
    JournalKind.UNDO: "undo, back to",
}
_INDENT: Final = "    "


def show_history(session: str, *, as_json: bool) -> int:
    """Print the journal of one session, oldest first."""
    with Workplace(os.environ) as place:
        store = Store.open_existing(place.state_directory)
        try:
            session_id = session_id_for(place, store, session)
            entries = store.entries(session_id=session_id) if store is not None else []
        finally:
            if store is not None:
                store.close()
    if as_json:
        say_json([_as_dict(entry) for entry in entries])
    elif not entries:
        say(f"nothing was written to {session_id}")
    else:
        for entry in entries:
            _print(entry)
    return 0


def _as_dict(entry: JournalEntry) -> dict[str, Any]:
    return {
        "kind": entry.kind.value,
        "session_id": entry.session_id,
        "text": entry.text,
        "source": entry.source or None,
        "timestamp": iso(entry.at),
        "path": entry.path,
        "cwd": entry.cwd,
        "model": entry.model,
        "record_uuid": entry.record_uuid,
        "record_uuids": list(entry.uuids),
        "parent_uuid": entry.parent_uuid,
        "note": entry.note,
    }


def _print(entry: JournalEntry) -> None:
    source = f" ({entry.source})" if entry.source and entry.text else ""
    text = printable(entry.text) or "no title"
    first = f"{clock_time(entry.at)}  {_WORDS[entry.kind]}: "
    say_filled(f"{text}{source}", first=first, rest=_INDENT)
    details = [f"record {entry.record_uuid}"]
    if entry.model:
        details.append(f"by {entry.model}")
    if entry.note:
        details.append(entry.note)
    say(styled(f"{_INDENT}{printable(', '.join(details))}", "dim"))


# -- undo --------------------------------------------------------------------------------------------------------------


def undo_session(session: str) -> int:
    """Put back the title that stood before ours; the session is never titled automatically again."""
    with ending_well(), Workplace(os.environ) as place:
        ref = Catalog(place.roots, place.liveness, None).find(session)
        reading = readable(ref)
        refuse_stopped(place, ref)
        title, source = _title_to_put_back(place, ref, reading)
        with uninterrupted():
            outcome, kept = place.recorder.undo_title(ref, title, source, reading)
        refuse_unwritten(place, outcome)
        say(f"put back: {printable(title)}" if title else "title taken away: there was none before it")
        note("this session is not titled automatically any more")
        if kept:
            note(kept_note(place, ref))
        return 0


def _title_to_put_back(place: Workplace, ref: SessionRef, reading: Reading) -> tuple[str, TitleSource]:
    ours = place.recorder.titles.newest_title(ref.session_id)
    if ours is None:
        entries = place.store.our_titles(ref.session_id)
        detail = "what we wrote was taken back already" if entries else "we gave this session no title"
        raise RefusedError(Reason.NOT_FOUND.value, f"nothing to undo: {detail}")
    standing = reading.state.title
    written = {uuid for entry in place.store.our_titles(ref.session_id) for uuid in entry.uuids}
    if standing is None or (standing.title != ours.title and standing.last_uuid not in written):
        reason = Reason.TITLE_PRESENT if standing is not None and not standing.is_manual else Reason.MANUAL_TITLE
        raise RefusedError(reason.value, "nothing to undo: another title has replaced ours already")
    return title_before(reading.state.titles, ours.offset)
