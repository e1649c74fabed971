"""`make safety`: everything at full depth, in less than ten minutes on two cores; prints what was checked.

    python -m tests.safety [--natives K] [--ours M] [CONFIGURATION …]

Exit code 1 when anything was found, or a row of the contract's hazards was not reached.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.safety import faults
from tests.safety.explore import Explorer
from tests.safety.invariants import Violation
from tests.safety.mutants import MUTANTS
from tests.safety.plan import Summary
from tests.safety.scene import Tally
from tests.safety.setups import SETUPS, setup

ROWS = "abcdefghij"
"""The rows of contract 4.3; each must be reached."""

OTHERS = "faults and mutants"
FAULTS: dict[str, Callable[[], Tally]] = {
    **{f"killed: {kind}": (lambda kind=kind: faults.kills(kind)) for kind in faults.KINDS},  # type: ignore[misc]
    "killed while finishing": faults.kills_in_recovery,
    **{f"errors: {kind}": (lambda kind=kind: faults.errors(kind)) for kind in faults.KINDS},  # type: ignore[misc]
    "short writes": faults.short_writes,
    "size limits": faults.size_limits,
    "full disk": faults.full_disk,
    "moved, replaced, linked": faults.places,
    "truncated": faults.truncations,
    "leases": faults.leases,
}


@dataclass(slots=True)
class Done:
    """What one job has found."""

    name: str
    seconds: float = 0.0
    summary: Summary | None = None
    tally: Tally | None = None
    survived: list[str] = field(default_factory=list)
    violation: str = ""


def _explore(job: tuple[str, int | None, int | None]) -> Done:
    name, natives, ours = job
    begun = time.process_time()
    try:
        summary = Explorer(setup(name, natives, ours)).run()
    except Violation as violation:
        return Done(name, time.process_time() - begun, violation=str(violation))
    return Done(name, time.process_time() - begun, summary=summary)


def _work(job: tuple[str, int | None, int | None]) -> Done:
    sys.stdout.write(f"{job[0]}: begun\n")  # in one piece, beside another process
    sys.stdout.flush()
    return _others() if job[0] == OTHERS else _explore(job)


def _others() -> Done:
    begun = time.process_time()
    tally = Tally()
    for inject in FAULTS.values():
        tally.add(inject())
    survived = [mutant.name for mutant in MUTANTS if not mutant.hunt()]
    return Done(OTHERS, time.process_time() - begun, tally=tally, survived=survived)


def main() -> int:
    """Run all of it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make safety")
    parser.add_argument("--natives", type=int, help="native operations a history")
    parser.add_argument("--ours", type=int, help="operations of ours a history")
    parser.add_argument("names", nargs="*", metavar="CONFIGURATION", help=", ".join(SETUPS))
    given = parser.parse_args()
    names = given.names or list(SETUPS)
    begun = time.perf_counter()
    print(
        f"{len(names)} configurations, every history of all writers in each; less than ten minutes on two idle cores",
        flush=True,
    )
    done: list[Done] = []
    with multiprocessing.Pool(min(os.cpu_count() or 1, len(names)), maxtasksperchild=1) as pool:
        jobs = [(name, given.natives, given.ours) for name in names]
        if not given.names:
            jobs.insert(0, (OTHERS, None, None))
        for each in pool.imap_unordered(_work, jobs):
            done.append(each)
            _tell(each, given.natives, given.ours)
    return _conclude(done, time.perf_counter() - begun, every_row=not given.names)


def _tell(done: Done, natives: int | None, ours: int | None) -> None:
    if done.violation:
        print(f"{done.name}: VIOLATION: {done.violation}", flush=True)
    elif done.summary is not None:
        made = setup(done.name, natives, ours)
        print(
            f"{done.name}: k = {made.native_operations} native operations and {made.our_operations} of ours, "
            f"{done.summary.states} states, {done.summary.contents} file contents, "
            f"{done.summary.interleavings} interleavings, {done.seconds:.0f} s of one core",
            flush=True,
        )
    elif done.tally is not None:
        print(
            f"{done.name}: {done.tally.faults} faults, {len(MUTANTS)} mutants, {done.seconds:.0f} s of one core",
            flush=True,
        )


def _conclude(done: list[Done], seconds: float, *, every_row: bool) -> int:
    summary, tally = Summary(), Tally()
    survived = [name for each in done for name in each.survived]
    for each in done:
        if each.summary is not None:
            summary.add(each.summary)
        if each.tally is not None:
            tally.add(each.tally)
    violations = [each.violation for each in done if each.violation] + tally.violations
    reached = {row[0]: 0 for row in ROWS}
    for row, count in summary.rows.items():
        if row[1:2] == ":":
            reached[row[0]] += count
    print(f"\nrows of contract 4.3 reached: {', '.join(f'{row} {count}' for row, count in reached.items())}")
    for reason, count in summary.excluded.most_common():
        print(f"left, {count} times: {reason}")
    for skipped in tally.skipped:
        print(f"SKIPPED: {skipped}")
    for violation in tally.violations:
        print(f"VIOLATION: {violation}")
    for name in survived:
        print(f"MUTANT NOT FOUND: {name}")
    print(f"interleavings checked: {summary.interleavings}")
    print(f"distinct states: {summary.states} ({summary.contents} file contents)")
    print(f"faults injected: {tally.faults}")
    print(f"mutants found: {len(MUTANTS) - len(survived) if tally.faults else 0}")
    print(f"lines of ours verified: {summary.lines + tally.lines}")
    print(f"violations: {len(violations)}")
    print(f"{seconds:.0f} s")
    missing = every_row and not all(reached.values())
    if missing:
        print(f"NOT REACHED: {[row for row, count in reached.items() if not count]}")
    return 1 if violations or survived or missing else 0


if __name__ == "__main__":
    sys.exit(main())
