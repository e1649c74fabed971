"""`backfill`: says what it would cost, asks, and titles old sessions with a progress bar; can be stopped any time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watcher.backfilling import Backfill, Candidate, Step, Survey, Tally, survey, tokens_per_call
from watcher.cli.guarded import ending_well, refuse
from watcher.cli.output import Column, ago, at_terminal, print_table, progress, say, say_filled
from watcher.cli.places import reading_place
from watcher.cli.tail import span_seconds
from watcher.core.controls import printable
from watcher.core.guard_rows import UNLIMITED_CALLS
from watcher.core.reasons import Reason
from watcher.edge.text_model import Abort
from watcher.errors import RefusedError, UsageError
from watcher.workplace import Workplace

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_COLUMNS: Final = (
    Column("SESSION", "id"),
    Column("PROJECT", "project"),
    Column("LAST", "last"),
)
_FOR_ALL: Final = (Reason.PAUSED, Reason.NO_FAST_MODEL, Reason.BUDGET_EXHAUSTED, Reason.DISABLED)
"""Where nothing can be titled, the first of these that stood in the way is the reason."""
_HINTS: Final = {Reason.ATTEMPTS_EXHAUSTED: " (--retry tries them again)"}


def backfill_titles(
    *, since: str, limit: int | None, project: Path | None, dry_run: bool, yes: bool, retry: bool
) -> int:
    """Title old untitled sessions, newest first. Returns 0 when all that could be titled are."""
    span = span_seconds(since)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError("nobody can be asked here: add --yes to go on without, or --dry-run to see what would be done")
    cwd = str(project.expanduser().absolute()) if project is not None else None
    with reading_place(os.environ) if dry_run else Workplace(os.environ) as place:
        with ending_well(), progress("Looking at the sessions …"):
            found = survey(place, since=place.clock() - span, cwd=cwd, retry=retry)
        chosen = found.candidates[:limit]
        if not chosen:
            return _nothing(place, found, since)
        _tell(place, chosen, found, since)
        if dry_run:
            _show(chosen, place.clock())
            return 0
        if not yes:
            with ending_well():
                _ask()
        return _end(_run(place, chosen, retry=retry))


# -- before ------------------------------------------------------------------------------------------------------------


def _nothing(place: Workplace, found: Survey, since: str) -> int:
    """Nothing is to be done: done, unless something stands in the way of all that could be."""
    for reason in _FOR_ALL:
        if found.skipped[reason] and reason is Reason.PAUSED:
            raise RefusedError(reason.value, found.details[reason])
        if found.skipped[reason]:
            refuse(place, reason, found.details[reason])
    say(f"nothing to title in the last {since}")
    _tell_skipped(found.skipped)
    return 0


def _tell(place: Workplace, chosen: list[Candidate], found: Survey, since: str) -> None:
    """What would be done, what it costs, and what is left alone."""
    count, total = len(chosen), len(found.candidates)
    of = f" (of {total})" if total > count else ""
    say_filled(f"{_sessions(count)}{of} without a title in the last {since}, newest first")
    left = place.surveyor.calls_left()
    if left == UNLIMITED_CALLS:
        say_filled("no model calls: the titles are cut from your own words, offline")
    else:
        models = ", ".join(sorted({printable(each.model) for each in chosen}))
        cost = tokens_per_call(place.store, place.clock())
        tokens = f", roughly {round(cost * count, -2):,.0f} tokens" if cost is not None and cost * count >= 50 else ""  # noqa: PLR2004
        say_filled(f"{count} model call{'s' * (count != 1)} with {models}{tokens}")
        if left < count:
            say_filled(f"only {max(left, 0)} calls are left today, so the rest has to wait for another run")
    _tell_skipped(found.skipped)


def _tell_skipped(skipped: Mapping[Reason, int]) -> None:
    quiet = (Reason.TITLE_PRESENT, Reason.MANUAL_TITLE, Reason.NOT_INTERACTIVE)
    words = [f"{count} {reason}{_HINTS.get(reason, '')}" for reason, count in skipped.items() if reason not in quiet]
    if words:
        say_filled(f"left alone: {', '.join(words)}")


def _show(chosen: list[Candidate], now: float) -> None:
    rows = [
        {"id": each.ref.session_id[:8], "project": Path(each.cwd).name, "last": ago(each.last_activity, now)}
        for each in chosen
    ]
    print_table(_COLUMNS, rows)


def _ask() -> None:
    try:
        answer = input("Go on? [y/N] ")
    except EOFError:
        say("")  # the line of the question has not ended
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise RefusedError(Reason.ABORTED.value, "nothing was done")


# -- meanwhile ---------------------------------------------------------------------------------------------------------


def _run(place: Workplace, chosen: list[Candidate], *, retry: bool) -> Tally:
    abort = Abort()
    with _stopped_by_ctrl_c(abort), _shown(len(chosen)) as (began, ended):
        return Backfill(place, chosen, abort, retry=retry, began=began, ended=ended).run()


@contextlib.contextmanager
def _stopped_by_ctrl_c(abort: Abort) -> Iterator[None]:
    """Ctrl-C ends model calls and begins no more; a write that has begun goes to its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda _number, _frame: abort.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


Shown = tuple[Callable[[Candidate], None], Callable[[Step], None]]


@contextlib.contextmanager
def _shown(count: int) -> Iterator[Shown]:
    """What is told of each session: a bar at a terminal, else a line."""
    if not at_terminal():
        yield (lambda _: None), _tell_step
        return
    with _bar() as bar:
        task = bar.add_task("", total=count, current="")
        yield (lambda candidate: _begin_step(bar, task, candidate)), lambda step: _end_step(bar, task, step)


def _bar() -> Progress:
    from rich.console import Console  # noqa: PLC0415 - only people at a terminal pay for it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.table import Column as RichColumn  # noqa: PLC0415

    current = TextColumn("{task.fields[current]}", markup=False, table_column=RichColumn(no_wrap=True, ratio=1))
    return Progress(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        current,
        console=Console(highlight=False),
        transient=True,
        expand=True,
    )


def _begin_step(bar: Progress, task: TaskID, candidate: Candidate) -> None:
    bar.update(task, current=f"{candidate.ref.session_id[:8]} {printable(Path(candidate.cwd).name)}")


def _end_step(bar: Progress, task: TaskID, step: Step) -> None:
    if step.reason is Reason.ABORTED:
        return
    bar.print(_line(step), markup=False, no_wrap=True, overflow="ellipsis", crop=True)
    if step.reason not in (Reason.BUDGET_EXHAUSTED, Reason.PAUSED):
        bar.advance(task)


def _tell_step(step: Step) -> None:
    if step.reason is not Reason.ABORTED:
        say(_line(step))


def _line(step: Step) -> str:
    session = step.candidate.ref.session_id[:8]
    if step.reason is None:
        return f"{session}  {printable(step.title)}"
    return f"{session}  {step.reason}" + (f" ({printable(step.detail)})" if step.detail else "")


# -- afterwards --------------------------------------------------------------------------------------------------------


def _end(tally: Tally) -> int:
    summary = _summary(tally)
    if tally.stopped is not None:
        reason, detail = tally.stopped
        told = f"{detail}; {summary}" if detail else summary
        raise RefusedError(reason.value, f"{told}; run it again to go on")
    if tally.failed and not tally.titled:
        (reason, _), *_ = tally.failed.most_common(1)
        raise RefusedError(reason.value, summary)
    say(summary)
    return 0


def _summary(tally: Tally) -> str:
    parts = [f"{_sessions(tally.titled)} titled"]
    for word, counts in (("failed", tally.failed), ("skipped", tally.skipped)):
        total = counts.total()
        if total:
            parts.append(f"{total} {word} ({_reasons(counts)})")
    if tally.left:
        parts.append(f"{tally.left} left")
    return ", ".join(parts)


def _reasons(counts: Counter[Reason]) -> str:
    return ", ".join(f"{reason}" if len(counts) == 1 else f"{count} {reason}" for reason, count in counts.most_common())


def _sessions(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'}"
