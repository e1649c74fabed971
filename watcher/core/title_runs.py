"""The titles of a session in file order, equal neighbours taken together.

A running CLI writes its title again and again (contract 3.3), so a file holds many equal records in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from watcher.core.events import TitleSet, TitleSource

MAX_RUNS: Final = 64
MAX_RUN_UUIDS: Final = 16


@dataclass(frozen=True, slots=True)
class TitleRun:
    """The same title, written `count` times in a row: first and last occurrence by uuid and byte offset."""

    title: str
    source: TitleSource | None
    first_offset: int
    first_end: int
    last_offset: int
    last_end: int
    last_uuid: str
    uuids: tuple[str, ...]
    """The uuids of the run's records, newest last, at most `MAX_RUN_UUIDS`."""
    count: int = 1

    @property
    def is_manual(self) -> bool:
        """Whether the title counts as the user's: every source but `auto` does (contract 3.1)."""
        return self.source is not TitleSource.AUTO


def with_title(runs: tuple[TitleRun, ...], event: TitleSet) -> tuple[TitleRun, ...]:
    """The runs after one more title record, at most `MAX_RUNS` of the newest.

    The newest manual run is never lost: when it is older than all these, it takes the place of the oldest.
    """
    last = runs[-1] if runs else None
    if last is not None and (last.title, last.source) == (event.title, event.source):
        longer = replace(
            last,
            last_offset=event.offset,
            last_end=event.end,
            last_uuid=event.uuid,
            uuids=(*last.uuids, event.uuid)[-MAX_RUN_UUIDS:],
            count=last.count + 1,
        )
        return (*runs[:-1], longer)
    added = TitleRun(
        title=event.title,
        source=event.source,
        first_offset=event.offset,
        first_end=event.end,
        last_offset=event.offset,
        last_end=event.end,
        last_uuid=event.uuid,
        uuids=(event.uuid,),
    )
    return _without_surplus((*runs, added))


def _without_surplus(runs: tuple[TitleRun, ...]) -> tuple[TitleRun, ...]:
    if len(runs) <= MAX_RUNS:
        return runs
    surplus, kept = runs[:-MAX_RUNS], runs[-MAX_RUNS:]
    if any(run.is_manual for run in kept):
        return kept
    manual = [run for run in surplus if run.is_manual]
    return (manual[-1], *kept[1:]) if manual else kept
