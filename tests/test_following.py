"""One session file followed from look to look, and what the writer gets of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.transcripts import Transcript
from watcher.following import Look, NoLook, follow


@pytest.fixture
def session(tmp_path: Path) -> Transcript:
    made = Transcript(tmp_path / "chats")
    made.turn("fix the login test", "Done.")
    return made


def look(session: Transcript, before: Look | None = None) -> Look:
    """The file as it is now."""
    found = follow(str(session.path), before, 0.0)
    assert isinstance(found, Look)
    return found


def test_looks_add_up_and_a_new_file_begins_anew(session: Transcript) -> None:
    """Grown: both turns. Cut off, replaced: only what stands there now."""
    first = look(session)
    session.turn("and the logout", "Done too.")
    assert look(session, first).state.user_turns == 2
    first = look(session)
    kept = session.path.read_bytes()
    other = Transcript(session.path.parent / "other", session_id=session.session_id)
    other.title("My name", "manual")
    os.replace(other.path, session.path)
    found = look(session, first)
    assert (found.state.user_turns, found.state.records) == (0, 1)
    session.path.write_bytes(kept[: kept.index(b"\n") + 1])
    assert look(session, found).state.records == 1


def test_a_torn_line_is_no_part_of_the_state(session: Transcript) -> None:
    """The writer reads on from the last whole line, and knows how much stands behind it."""
    size = session.path.stat().st_size
    with session.path.open("ab") as file:
        file.write(b'{"uuid":"torn')
    found = look(session)
    reading = found.reading
    assert reading is not None
    assert (reading.end, reading.size, reading.torn_bytes) == (size, size + 13, 13)
    assert reading.base == reading.state == found.state


def test_what_comes_before_the_last_64_mib_is_unknown(session: Transcript) -> None:
    """So nobody takes its end for the whole conversation."""
    tail = session.path.read_bytes()
    with session.path.open("r+b") as file:
        file.truncate(65 * 1024 * 1024)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + tail)
    found = look(session)
    assert found.state.partial
    assert found.state.user_turns == 1


def test_a_file_that_is_gone_or_archived_is_not_followed(session: Transcript) -> None:
    """An archived one is gone (contract 1.2); a link is said to be one."""
    found = look(session)
    archive = session.path.parent / "archive"
    archive.mkdir()
    session.path.rename(archive / session.path.name)
    assert follow(str(session.path), found, 0.0) == NoLook(gone=True)
    session.path.symlink_to(archive / session.path.name)
    assert follow(str(session.path), None, 0.0) == NoLook(gone=False, why="a symbolic link")
