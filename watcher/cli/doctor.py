"""`doctor`: every check with its result and its fix."""

from __future__ import annotations

import os
from collections.abc import Sequence

from watcher.cli.output import at_terminal, columns, say, say_filled, say_json, styled
from watcher.core.controls import printable
from watcher.doctor import CHECK_NAMES, CHECKS, Check, Status, gather, run_checks

_WIDTH = max(map(len, CHECK_NAMES)) + 1
_INDENT = 4 + 1 + _WIDTH + 1
_FIX = "     fix: "
_COLOURS = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}


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
        head = f"{styled(f'{result.status:<4}', _COLOURS[result.status])} {result.check:<{_WIDTH}} "
        say_filled(printable(result.detail), first=head, rest=" " * _INDENT)
        if result.fix:
            _print_fix(result.fix)
    counts = {status: sum(result.status is status for result in results) for status in Status}
    say(f"{counts[Status.OK]} ok, {counts[Status.WARN]} to look at, {counts[Status.FAIL]} failed")


def _print_fix(fix: str) -> None:
    """It is there to be pasted: one line, never broken or cut. Words behind it that do not fit go before it."""
    command, comment, words = fix.partition("  # ")
    line = _FIX + printable(fix)
    if at_terminal() and comment and len(line) > columns():
        say_filled(printable(words), first=f"{' ' * len(_FIX)}# ", rest=f"{' ' * len(_FIX)}# ")
        line = _FIX + printable(command)
    say(line)
