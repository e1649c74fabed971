"""`status`: what the watcher does, as it says itself, or else as its state directory tells."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from watcher.api.client import ask
from watcher.cli.output import ago, clock_time_of, say, say_filled, say_json, styled
from watcher.core.controls import printable
from watcher.overview import status_of
from watcher.paths import socket_path
from watcher.plan import plan_lines
from watcher.workplace import Workplace

_REST: Final = "          "
_MIB: Final = 1024 * 1024


def show_status(*, as_json: bool) -> int:
    """Print the status; exit code 0 also when nothing runs (design 11)."""
    with Workplace(os.environ) as place:
        found = ask(socket_path(place.environ), "/status") or status_of(place)
        if as_json:
            say_json(found)
        else:
            _print(found, place)
    return 0


def _print(found: Mapping[str, Any], place: Workplace) -> None:
    if found["running"]:
        _line("watcher", styled(f"running, pid {found['pid']}", "green") + _since(found, place))
    else:
        say_filled(
            "not running; start it with `qwen-watcher run`, or install it with `qwen-watcher service install`",
            first="watcher   ",
            rest=_REST,
            style="yellow",
        )
    say_filled(", ".join(found["homes"]), first="homes     ", rest=_REST)
    for line in plan_lines(place.loaded, place.general_settings, place.environ):
        name, _, text = line.partition(": ")
        say_filled(printable(text), first=f"{name:<10}", rest=_REST)
    if found.get("paused"):
        say_filled(printable(str(found["paused"])), first="paused    ", rest=_REST, style="yellow")
    _line("sessions", f"{found['sessions_watched']} watched")
    _line("written", f"{found['titles_written']} titles, {found['recaps_written']} recaps")
    if found["attempts_failed"]:
        _line("failed", f"{found['attempts_failed']} sessions' last attempt; `qwen-watcher why S` tells more")
    tokens = found.get("tokens_today") or {"in": 0, "out": 0}
    spent = f"; {tokens['in']} tokens in, {tokens['out']} out" if tokens["in"] or tokens["out"] else ""
    _line("today", f"{found['calls_today']} of {found['calls_per_day']} model calls{spent}")
    error = found["last_error"]
    if error:
        say_filled(_error(error, place), first="error     ", rest=_REST)


def _line(name: str, text: str) -> None:
    say(f"{name:<10}{text}")


def _since(found: Mapping[str, Any], place: Workplace) -> str:
    words = []
    if found.get("started_at"):
        started = datetime.fromisoformat(found["started_at"]).timestamp()
        words.append(f" since {clock_time_of(found['started_at'])} ({ago(started, place.clock())})")
    words.append(f"version {found['version']}")
    if found.get("rss_bytes"):
        words.append(f"{found['rss_bytes'] / _MIB:.0f} MiB")
    return ", ".join(words)


def _error(error: Mapping[str, Any], place: Workplace) -> str:
    at = datetime.fromisoformat(error["timestamp"]).timestamp()
    detail = f" ({error['detail']})" if error["detail"] else ""
    when = ago(at, place.clock())
    return printable(f"{when} ago, {error['kind']} of {error['session_id'][:8]}: {error['reason']}{detail}")
