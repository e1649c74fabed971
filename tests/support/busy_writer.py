"""The product's own guarded writer as a process that writes at every chance a session gives, for tests.

    python -m tests.support.busy_writer SESSION_ID SEED

What `title S --auto` writes, without a model and again and again until SIGTERM: a new title whenever no turn runs. Now
and then the process stands still right before or behind its write, as on a busy machine, so that another program's
records come in between. What it wrote stands in the journal of its state directory.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

from watcher.catalog import Catalog
from watcher.core.writing import SessionFile
from watcher.edge.files import RealFiles
from watcher.errors import NotFoundError
from watcher.following import Look, follow
from watcher.qwen.paths import SessionRef
from watcher.workplace import Workplace

MODEL: Final = "busy writer"
TITLE: Final = "Busy title"
PAUSE_SECONDS: Final = 0.03
STALL_SECONDS: Final = 0.06


def main(session_id: str, seed: str) -> int:
    """Write to this session until SIGTERM, or until nobody is left who could send it; always 0."""
    stopped: list[int] = []
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    stall_at_times(random.Random(seed))
    numbers = itertools.count(1)
    look: Look | None = None
    with Workplace(os.environ) as place:
        while not stopped and (ref := find(place, session_id)) is None:
            time.sleep(PAUSE_SECONDS)
        while not stopped and os.getppid() == parent:
            assert ref is not None
            look = write(place, ref, look, next(numbers))
            time.sleep(PAUSE_SECONDS)
    return 0


def stall_at_times(chance: random.Random) -> None:
    """From now on a write to a session file may stand still right before it, behind it, or neither."""
    write = RealFiles.write

    def stalling(files: RealFiles, fd: int, data: bytes) -> int:
        before, after = chance.choice(((0.0, 0.0), (chance.random(), 0.0), (0.0, chance.random())))
        time.sleep(before * STALL_SECONDS)
        taken = write(files, fd, data)
        time.sleep(after * STALL_SECONDS)
        return taken

    RealFiles.write = stalling  # type: ignore[method-assign]


def find(place: Workplace, session_id: str) -> SessionRef | None:
    """The session, None before its first prompt, which makes its file."""
    try:
        return Catalog(place.roots, place.liveness, None).find(session_id)
    except NotFoundError:
        return None


def write(place: Workplace, ref: SessionRef, known: Look | None, number: int) -> Look | None:
    """Write a title unless a turn runs; returns what was read of the session."""
    status = Path(ref.path).lstat()
    look = follow(ref.path, known, place.clock(), status)
    if not isinstance(look, Look):
        return None
    reading = look.reading
    if reading is not None and not reading.state.running:
        basis = SessionFile(reading.state, reading.size, status.st_mtime, reading.torn_bytes)
        place.recorder.requested_title(ref, f"{TITLE} {number}", MODEL, basis, reading)
    return look


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
