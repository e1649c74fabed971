"""`doctor`: every check with its result and its fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from watcher.cli.output import say, say_json
from watcher.core.controls import printable
from watcher.doctor import CHECKS, Check, Status, gather, run_checks

_WIDTH = 19
_COLOURS = {Status.OK: 32, Status.WARN: 33, Status.FAIL: 31}
"""SGR codes: green, yellow, red."""


def show_doctor(*, probe: bool, as_json: bool) -> int:
    """Run every check and print the results. Returns 1 when anything fails, else 0 (design 4).

    It also ends the brake (design promise 6), and says so.
    """
    with gather(dict(os.environ), with_probe=probe) as context:
        results = run_checks(context, CHECKS)
    if as_json:
        say_json([{"check": r.check, "status": r.status, "detail": r.detail, "fix": r.fix} for r in results])
    else:
        _print(results)
    return 1 if any(result.status is Status.FAIL for result in results) else 0


def _print(results: Sequence[Check]) -> None:
    for result in results:
        say(f"{_coloured(result.status)} {result.check:<{_WIDTH}} {printable(result.detail)}")
        if result.fix:
            say(f"     {'':<{_WIDTH}} fix: {printable(result.fix)}")
    counts = {status: sum(result.status is status for result in results) for status in Status}
    say(f"{counts[Status.OK]} ok, {counts[Status.WARN]} to look at, {counts[Status.FAIL]} failed")


def _coloured(status: Status) -> str:
    text = f"{status:<4}"
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[status]}m{text}\x1b[0m"
