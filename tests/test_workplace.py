"""What is built for a process: the parts that decide whether a session may be written are really in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.house import House, house
from tests.support.live import NO_PID, end, sidecar_record, write_sidecar
from watcher.core.reasons import Reason
from watcher.core.writing import Declined, Written
from watcher.edge.mounts import Mount
from watcher.qwen.paths import SessionRef, session_ref
from watcher.workplace import Workplace, refused_mount


@pytest.fixture
def home() -> Iterator[House]:
    """A home with the offline model."""
    with house() as made:
        yield made


def ref_of(home: House) -> SessionRef:
    """A session of a minute ago."""
    ref = session_ref(str(home.session().path))
    assert ref is not None
    return ref


def test_nothing_is_written_to_a_network_file_system(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 8: whoever asks, with the reason in words."""
    ref = ref_of(home)
    before = Path(ref.path).read_bytes()
    mounts = [Mount("/", "ext4"), Mount(os.path.realpath(home.home), "nfs4")]
    monkeypatch.setattr("watcher.edge.mounts.read_mounts", lambda: tuple(mounts))
    assert "NFS" in refused_mount(ref.path)
    with Workplace(home.environ) as place:
        outcome = place.recorder.automatic_title(ref, "Fix login test", "m")
        assert isinstance(outcome, Declined)
        assert outcome.reason is Reason.UNSAFE_FILE
        outcome, kept = place.recorder.manual_title(ref, "Mine")
        assert isinstance(outcome, Declined)
        assert not kept
        assert Path(ref.path).read_bytes() == before
        mounts.pop()
        assert refused_mount(ref.path) == ""
        assert isinstance(place.recorder.automatic_title(ref, "Fix login test", "m"), Written)


@pytest.mark.parametrize("sidecar", [False, True])
def test_an_editor_that_registers_nowhere_is_looked_for_before_a_write(home: House, sidecar: bool) -> None:
    """ACP need not register (contract 1.4): its process alone keeps us out, until it is gone. Where a terminal has left
    its sidecar the search is spared: an editor writes none.
    """
    cwd = home.home / "proj"
    cwd.mkdir()
    session = home.session(cwd=str(cwd))
    ref = session_ref(str(session.path))
    assert ref is not None
    program = home.home / "qwen"
    program.symlink_to(sys.executable)
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [program, "-c", code, "--acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if sidecar:
            write_sidecar(session.path.parent, sidecar_record(NO_PID, session.session_id))
        before = session.path.read_bytes()
        with Workplace(home.environ) as place:
            outcome = place.recorder.automatic_title(ref, "Fix login test", "m")
        if sidecar:
            assert isinstance(outcome, Written)
        else:
            assert outcome == Declined(Reason.LOCKED, "a live ACP or daemon process has the session")
            assert session.path.read_bytes() == before
    finally:
        end(process)
    with Workplace(home.environ) as place:
        assert not place.owners_before_a_write(ref).owned
