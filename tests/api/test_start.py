"""What a start of the service does first: it finishes what the last run was writing, and writes what waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.api.house import DEADLINE_SECONDS, House, house
from tests.support.live import eventually
from watcher.core.generation import Kind
from watcher.edge.verifier import Verifier
from watcher.qwen.paths import SessionRef, session_ref
from watcher.workplace import Workplace


@pytest.fixture
def home() -> Iterator[House]:
    """A home with the offline model."""
    with house() as made:
        yield made


def ref_of(path: Path) -> SessionRef:
    """The session as the rest of the program names it."""
    ref = session_ref(str(path))
    assert ref is not None
    return ref


def test_a_start_finishes_what_was_begun_and_writes_what_waits(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two quiet sessions, of which no event tells: one with a line of ours that was never read back, one with a kept
    text.
    """
    begun, waits = home.session(age_seconds=3600), home.session(age_seconds=3600)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with Workplace(home.environ) as place:
        place.recorder.keep_text(ref_of(waits.path), Kind.TITLE, "Kept words", "small", "")
        with monkeypatch.context() as patch:
            patch.setattr(Verifier, "verify", killed)
            with pytest.raises(KeyboardInterrupt):
                place.recorder.automatic_title(ref_of(begun.path), "Begun words", "small")
        assert len(place.store.intents()) == 1
    with home.watching(), closing(home.store()) as store:
        eventually(lambda: not store.intents() and not store.all_pending(), DEADLINE_SECONDS)
        found = {entry.text for entry in store.entries()}
    assert found == {"Begun words", "Kept words"}
    assert begun.path.read_bytes().count(b"Begun words") == 1
    assert waits.path.read_bytes().count(b"Kept words") == 1
    assert begun.path.stat().st_mtime == begun.at
