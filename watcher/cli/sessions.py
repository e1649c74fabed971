"""`sessions`: the list of sessions as a table or JSON, once or again and again."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from watcher.catalog import LISTED, Catalog, Listed
from watcher.cli.output import Cell, Column, ago, print_table, say, say_json, takes_screen, wait_while_read, write
from watcher.core.controls import printable
from watcher.core.presence import Away, Presence, Sample, TerminalInput, Working, observe
from watcher.core.presence import status as presence_status
from watcher.edge.clock import read_clocks
from watcher.edge.store import Store
from watcher.shapes import iso
from watcher.workplace import Workplace

REFRESH_SECONDS: Final = 2.0
ID_CHARS: Final = 8
_ALTERNATE_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
_NORMAL_SCREEN: Final = "\x1b[?25h\x1b[?1049l"
_FRAME: Final = "\x1b[H\x1b[J"
_COLUMNS: Final = (
    Column("SESSION", "id"),
    Column("TITLE", "title", flexible=True, min_width=20, enough=60),
    Column("PROJECT", "project", flexible=True, min_width=8, enough=16, optional=1),
    Column("STATE", "state"),
    Column("LAST", "last", optional=2),
    Column("TURNS", "turns", optional=4),
    Column("RECAP", "recap", flexible=True, style="dim", min_width=12, enough=40, optional=3),
)


def show_sessions(*, as_json: bool, limit: int | None, project: Path | None, every: bool, watch: bool) -> int:
    """Print the sessions, newest first; with `watch` every two seconds, until Ctrl-C."""
    cwd = os.path.abspath(project.expanduser()) if project is not None else None  # noqa: PTH100 - it folds `..`
    if limit is None and not every:
        limit = LISTED
    with Workplace(os.environ) as place:
        store = Store.open_existing(place.state_directory)
        try:
            catalog = Catalog(place.roots, place.liveness, store)
            nothing = functools.partial(_nothing, place, catalog, cwd, every=every)
            if not watch:
                _show(catalog.newest(limit, cwd=cwd, every=every), place, as_json=as_json, nothing=nothing)
                return 0
            on_screen = takes_screen() and not as_json
            with _own_screen() if on_screen else contextlib.nullcontext():
                while True:
                    most = _rows_that_fit(limit) if on_screen else limit
                    listed = list(catalog.newest(most, cwd=cwd, every=every))
                    if on_screen:
                        write(_FRAME, sys.stdout)
                    _show(listed, place, as_json=as_json, nothing=nothing)
                    wait_while_read(REFRESH_SECONDS)
        finally:
            if store is not None:
                store.close()


@contextlib.contextmanager
def _own_screen() -> Iterator[None]:
    """A screen of our own: what stood on the terminal before stands there afterwards."""
    write(_ALTERNATE_SCREEN, sys.stdout)
    try:
        yield
    finally:
        write(_NORMAL_SCREEN, sys.stdout)


def _rows_that_fit(limit: int | None) -> int:
    rows = max(1, shutil.get_terminal_size().lines - 2)
    return rows if limit is None else min(limit, rows)


def _nothing(place: Workplace, catalog: Catalog, cwd: str | None, *, every: bool) -> str:
    """What to say in place of an empty table."""
    bases = dict.fromkeys(str(root.runtime_base) for root in place.roots)
    closed = catalog.closed()
    if closed is not None:
        return f"{printable(closed)} cannot be read; `qwen-watcher doctor` tells more"
    where = f"of {cwd}" if cwd is not None else f"yet below {', '.join(bases)}"
    more = "" if every or not catalog.files() else "; `--all` also lists `qwen -p` runs"
    return f"no sessions {printable(where)}{more}"


def _show(listed: Iterable[Listed], place: Workplace, *, as_json: bool, nothing: Callable[[], str]) -> None:
    away = _away_seconds(place)
    if as_json:
        say_json([as_dict(each, away) for each in listed])
        return
    rows = list(_rows(listed, away, place.clock()))
    if rows:
        print_table(_COLUMNS, rows)
    else:
        say(nothing())


def _rows(listed: Iterable[Listed], away: float, now: float) -> Iterator[dict[str, str | Cell]]:
    for each in listed:
        title = Cell(each.title, "dim" if each.title_source == "auto" else "") if each.title else None
        yield {
            "id": each.ref.session_id[:ID_CHARS],
            "title": title or Cell(each.first_prompt, "dim italic"),
            "project": Path(each.cwd).name,
            "state": state_of(each, away),
            "turns": str(each.user_turns),
            "last": ago(each.last_activity, now),
            "recap": each.recap or "",
        }


def as_dict(listed: Listed, away_seconds: float) -> dict[str, Any]:
    """One element of `sessions --json` (design 4)."""
    return {
        "session_id": listed.ref.session_id,
        "path": listed.ref.path,
        "cwd": listed.cwd,
        "title": listed.title,
        "title_source": listed.title_source,
        "first_prompt": listed.first_prompt,
        "user_turns": listed.user_turns,
        "last_activity": iso(listed.last_activity),
        "state": state_of(listed, away_seconds),
        "pid": listed.pid,
        "recap": listed.recap,
    }


def state_of(listed: Listed, away_seconds: float) -> str:
    """`working`, `idle`, `away` or `ended` (design 4)."""
    if not listed.ownership.owned:
        return "ended"
    moment = read_clocks()
    inputs = tuple(
        TerminalInput(owner.tty, owner.input_at)
        for owner in listed.ownership.live
        if owner.tty is not None and owner.input_at is not None
    )
    sample = Sample(now=moment, user_record_at=listed.last_user, inputs=inputs, turn_running=listed.running)
    found = presence_status(observe(Presence(), sample, away_seconds), moment, away_seconds)
    if isinstance(found, Working):
        return "working"
    return "away" if isinstance(found, Away) else "idle"


def _away_seconds(place: Workplace) -> float:
    minutes = place.config.recap.away_minutes
    return 60.0 * (minutes if minutes is not None else place.general_settings.away_threshold_minutes)
