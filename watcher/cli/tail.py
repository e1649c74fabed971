"""`tail`: what was written, from the journal; `-f` follows it across restarts of the watcher and a new database."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watcher.cli.output import clock_time, say, say_filled, say_json, wait_while_read
from watcher.cli.places import session_id_for
from watcher.core.controls import printable
from watcher.core.generation import Kind
from watcher.edge.store import FILE_NAME, JournalEntry, JournalKind, Store
from watcher.errors import StateError, UsageError
from watcher.shapes import entry_as_dict
from watcher.workplace import Workplace

SHOWN: Final = 20
"""Entries shown without `--since`."""
FOLLOW_SECONDS: Final = 0.5
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")
_UNITS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LISTED: Final = (JournalKind.TITLE, JournalKind.RECAP)


@dataclass(frozen=True, slots=True)
class _Wanted:
    kinds: tuple[JournalKind, ...]
    session_id: str | None


def show_tail(*, follow: bool, as_json: bool, kind: str | None, session: str | None, since: str | None) -> int:
    """Print journal entries, newest last; with `follow` go on until Ctrl-C."""
    kinds = _kinds(kind)
    seconds = span_seconds(since) if since is not None else None
    with Workplace(os.environ) as place:
        directory = place.state_directory
        begun = place.clock()
        store = Store.open_existing(directory)
        try:
            session_id = session_id_for(place, store, session) if session is not None else None
            wanted = _Wanted(kinds, session_id)
            seen = 0
            if store is not None:
                seen = _newest(store)
                started = begun - seconds if seconds is not None else None
                limit = SHOWN if started is None else None
                for entry in store.entries(kinds=kinds, session_id=session_id, since=started, limit=limit):
                    seen = max(seen, entry.seq)
                    show_entry(entry, as_json=as_json)
        finally:
            if store is not None:
                store.close()
        if follow:
            for entry in _follow(directory, wanted, seen, begun):
                show_entry(entry, as_json=as_json)
        elif store is None and not as_json:
            say("nothing was written yet")
    return 0


def _newest(store: Store) -> int:
    newest = store.entries(limit=1)
    return newest[-1].seq if newest else 0


def _follow(directory: Path, wanted: _Wanted, seen: int, since: float) -> Iterator[JournalEntry]:
    """What is written from now on, for ever. A database that was removed or replaced numbers its entries anew: of that
    one, what is younger than `since`.
    """
    store: Store | None = None
    identity = _identity(directory)
    version: int | None = None
    floor = 0.0
    try:
        while True:
            present = _identity(directory)
            if present != identity or present is None:
                if store is not None:
                    store.close()
                store, version = None, None
                if present != identity:
                    identity, seen, floor = present, 0, since
            try:
                if store is None and present is not None:
                    store = Store.open_existing(directory)
                now = store.data_version() if store is not None else None
                if store is not None and now != version:
                    version = now
                    for entry in store.entries(after_seq=seen, since=floor, session_id=wanted.session_id):
                        seen = entry.seq
                        if entry.kind in wanted.kinds:
                            yield entry
            except StateError:
                version = None  # being replaced or repaired: look again
            wait_while_read(FOLLOW_SECONDS)
    finally:
        if store is not None:
            store.close()


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        found = (directory / FILE_NAME).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def show_entry(entry: JournalEntry, *, as_json: bool) -> None:
    """Print one entry."""
    if as_json:
        say_json(entry_as_dict(entry))
        return
    mark = "※ recap:" if entry.kind is JournalKind.RECAP else "title:"
    place = printable(Path(entry.cwd).name)
    first = f"{clock_time(entry.at)}  {entry.session_id[:8]}  {place}  {mark} "
    say_filled(printable(entry.text) or "(none)", first=first, rest="    ")


def span_seconds(text: str) -> float:
    """Seconds of `30m`, `2h`, `7d`. Raises `UsageError` for anything else."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no span of time; write it like 30m, 2h or 7d")
    return float(match[1]) * _UNITS[match[2]]


def _kinds(kind: str | None) -> tuple[JournalKind, ...]:
    if kind is None:
        return _LISTED
    if kind not in (Kind.TITLE.value, Kind.RECAP.value):
        raise UsageError(f"--kind {kind}: it is title or recap")
    return (JournalKind(kind),)
