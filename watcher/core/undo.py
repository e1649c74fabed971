"""What `undo` takes back, and what stood there before (design 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from watcher.core.events import TitleSource
from watcher.core.title_runs import TitleRun


@dataclass(frozen=True, slots=True)
class TitleWrite:
    """One thing that we did to a session's title, from the journal. `undoes`: it took an earlier one back."""

    title: str
    offset: int
    undoes: bool = False


def newest_not_undone(writes: Iterable[TitleWrite]) -> TitleWrite | None:
    """The newest title of ours that no `undo` has taken back, None when there is none; `writes` are oldest first."""
    standing: list[TitleWrite] = []
    for write in writes:
        if not write.undoes:
            standing.append(write)
        elif standing:
            standing.pop()
    return standing[-1] if standing else None


def titles_before(titles: tuple[TitleRun, ...], offset: int) -> tuple[TitleRun, ...]:
    """The titles that stood in the file before the record at `offset`, oldest first."""
    return tuple(run for run in titles if run.first_offset < offset)


def title_before(titles: tuple[TitleRun, ...], offset: int) -> tuple[str, TitleSource]:
    """The title that stood before the record at `offset`: an empty manual one when there was none.

    A title without a source is the user's (design promise 2).
    """
    before = titles_before(titles, offset)
    return (before[-1].title, before[-1].source or TitleSource.MANUAL) if before else ("", TitleSource.MANUAL)


def put_back_by_memory(
    titles: tuple[TitleRun, ...], ours: frozenset[str], title: str, source: TitleSource, offset: int
) -> bool:
    """Whether what stands last was in the file before our record of `title` at `offset`: a CLI wrote it from memory.

    False when our title stands, and when anything new was put there since, last or not: then that is the user's wish.
    """
    last = titles[-1] if titles else None
    if last is None or last.last_uuid in ours or (last.title, last.source) == (title, source):
        return False
    known = {(run.title, run.source) for run in titles_before(titles, offset)}
    known.add((title, source))
    since = (run for run in titles if run.last_offset > offset)
    return all((run.title, run.source) in known for run in since)
