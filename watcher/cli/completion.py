"""What a shell offers for S when the user presses Tab. Quick and silent, whatever is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from watcher.catalog import LATEST, Catalog
from watcher.core.controls import printable
from watcher.edge.files import RealFiles
from watcher.edge.scan import Found
from watcher.errors import WatcherError
from watcher.qwen.contract import WINDOW_BYTES, session_id_of
from watcher.qwen.titles import first_prompt, read_title
from watcher.workplace import Workplace

OFFERED: Final = 50
HELP_CHARS: Final = 50
_UNQUOTED = re.compile(r"[^\w\s.,/-]+")
"""zsh evaluates what it is given: nothing of a title that a shell could take for more than text may reach it."""


def complete_session(incomplete: str) -> list[tuple[str, str]]:
    """Ids that begin so, newest first, each with its title or first prompt."""
    try:
        with Workplace(os.environ) as place:
            files = Catalog(place.roots, place.liveness, None).files()
            return list(_offers(files, incomplete.lower()))
    except (WatcherError, OSError):
        return []


def _offers(files: list[Found], incomplete: str) -> Iterator[tuple[str, str]]:
    if LATEST.startswith(incomplete):
        yield LATEST, "the newest session"
    count = 0
    for file in files:
        session_id = session_id_of(file.path)
        if session_id is None or not session_id.lower().startswith(incomplete):
            continue
        yield session_id, _UNQUOTED.sub(" ", _label(file)).strip()[:HELP_CHARS]
        count += 1
        if count == OFFERED:
            return


def _label(file: Found) -> str:
    files = RealFiles()
    try:
        fd = files.open_read(file.path)
    except OSError:
        return ""
    try:
        head = files.read_at(fd, WINDOW_BYTES, 0)
        tail = files.read_at(fd, WINDOW_BYTES, file.size - WINDOW_BYTES) if file.size > WINDOW_BYTES else head
    except OSError:
        return ""
    finally:
        files.close(fd)
    title = read_title(head, tail, file.size)
    return printable(title.title if title is not None else first_prompt(head))
