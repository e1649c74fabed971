"""Sessions that grow: new files in a tree, lines appended at a set pace, the time of each append kept."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.tree import Tree, make_uuid, record_line

_KINDS = ("user", "snapshot", "assistant", "tool_result", "assistant", "telemetry")


class Session:
    """One session file that this program appends to, as Qwen Code would: one whole line in one write."""

    def __init__(self, rng: random.Random, path: Path, session_id: str, cwd: str) -> None:
        self.path = path
        self.session_id = session_id
        self.size = 0
        self.records = 0
        self._rng = rng
        self._cwd = cwd
        self._parent: str | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def line(self, text: str, kind: str | None = None) -> bytes:
        """The next record as a line; not written yet."""
        uuid = make_uuid(self._rng)
        kind = kind or _KINDS[self.records % len(_KINDS)]
        made = record_line(kind, uuid, self._parent, self.session_id, self._cwd, time.time(), text)
        self._parent = uuid
        self.records += 1
        return made

    def append(self, line: bytes) -> None:
        """Write one line."""
        self.size += os.write(self._fd, line)

    def turn(self, text: str) -> None:
        """One whole turn."""
        for kind in ("user", "snapshot", "assistant"):
            self.append(self.line(text, kind))

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@contextmanager
def new_sessions(tree: Tree, count: int, *, seed: int) -> Iterator[list[Session]]:
    """Sessions without a line in a tree, spread over its projects; deleted at the end."""
    rng = random.Random(seed)
    made: list[Session] = []
    try:
        for number in range(count):
            session_id = make_uuid(rng)
            project = number % tree.projects
            path = tree.chats(project) / f"{session_id}.jsonl"
            made.append(Session(rng, path, session_id, f"/home/user/proj{project:03d}"))
        yield made
    finally:
        for session in made:
            session.close()
            session.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Appended:
    """One append: when it was begun (CLOCK_MONOTONIC, nanoseconds), where, and the file's size afterwards."""

    at: int
    path: str
    size: int


def append_paced(
    sessions: list[Session], *, per_second: float, count: int, text: str, watched: int
) -> tuple[list[Appended], float]:
    """Append `count` lines, session by session, at this pace, as far as this machine keeps it.

    Returns the appends to the first `watched` sessions and the pace that was kept. The lines are made beforehand.
    """
    lines = [(session, session.line(text)) for _, session in zip(range(count), _round(sessions), strict=False)]
    observed = {session.session_id for session in sessions[:watched]}
    found: list[Appended] = []
    begun = time.monotonic()
    for number, (session, line) in enumerate(lines):
        wait = begun + number / per_second - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        at = time.monotonic_ns()
        session.append(line)
        if session.session_id in observed:
            found.append(Appended(at, str(session.path), session.size))
    return found, count / (time.monotonic() - begun)


def _round(sessions: list[Session]) -> Iterator[Session]:
    while True:
        yield from sessions


def delays(appended: list[Appended], stamps: list[tuple[int, str, int]]) -> list[float]:
    """For each append the seconds until a reading that reached it. Raises `AssertionError` when one was never read."""
    by_path: dict[str, list[tuple[int, int]]] = {}
    for at, path, size in stamps:
        by_path.setdefault(path, []).append((at, size))
    found: list[float] = []
    places = dict.fromkeys(by_path, 0)
    for each in appended:
        readings = by_path.get(each.path, [])
        place = places.get(each.path, 0)
        while place < len(readings) and (readings[place][1] < each.size or readings[place][0] < each.at):
            place += 1
        assert place < len(readings), f"{each.path} was never read up to {each.size}"
        places[each.path] = place
        found.append((readings[place][0] - each.at) / 1e9)
    return found


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
