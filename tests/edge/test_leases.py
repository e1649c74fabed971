"""Whether a writer lease stands on a session, with real files in every form."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.live import SESSION, as_other_user
from watcher.edge.leases import lease_state
from watcher.qwen.contract import lease_paths


def _plain(path: Path) -> None:
    path.write_text('{"state":"active"}')


def _empty(path: Path) -> None:
    path.touch()


def _folder(path: Path) -> None:
    path.mkdir()


def _old(path: Path) -> None:
    path.write_text('{"state":"active"}')
    os.utime(path, (1.0, 1.0))


def _dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def lock_and_claim(base: Path) -> tuple[Path, Path]:
    """The two paths, their folder made."""
    lock, claim = (Path(path) for path in lease_paths(str(base), SESSION))
    lock.parent.mkdir(parents=True, exist_ok=True)
    return lock, claim


def test_no_lease_is_no_obstacle(tmp_path: Path) -> None:
    """Neither the folder nor a file in it exists."""
    assert lease_state(tmp_path, SESSION) is None
    lock_and_claim(tmp_path)
    assert lease_state(tmp_path, SESSION) is None


@pytest.mark.parametrize("make", [_plain, _empty, _old, _folder, _dangling, _fifo])
@pytest.mark.parametrize("which", [0, 1])
def test_a_lease_in_any_form_is_held(tmp_path: Path, make: Callable[[Path], None], which: int) -> None:
    """Live, torn, sealed, no file at all: it is never judged."""
    path = lock_and_claim(tmp_path)[which]
    make(path)
    assert str(path) in (lease_state(tmp_path, SESSION) or "")


def test_a_lease_of_another_session_is_no_obstacle(tmp_path: Path) -> None:
    """Nor are the temporary and released names of this one."""
    lock, _ = lock_and_claim(tmp_path)
    _plain(lock.with_name("other.lock"))
    _plain(lock.with_name(lock.name + ".released.x"))
    assert lease_state(tmp_path, SESSION) is None


def test_every_spelling_of_the_id_is_asked_for(tmp_path: Path) -> None:
    """A file name in upper case may be leased under the id of its records."""
    _plain(lock_and_claim(tmp_path)[0])
    assert lease_state(tmp_path, SESSION.upper()) is None
    assert lease_state(tmp_path, SESSION.upper(), SESSION) is not None


def test_a_path_that_cannot_be_looked_at_counts_as_held(tmp_path: Path) -> None:
    """Only "no such file" lets a write through (contract 5)."""
    lock_and_claim(tmp_path)
    assert "cannot be looked at" in (lease_state(tmp_path, "x" * 300) or "")
    assert lease_state(Path("nul\0inside"), SESSION) is not None
    other = tmp_path / "other"
    other.mkdir()
    (other / "tmp").write_text("a file where the folder should be")
    assert "cannot be looked at" in (lease_state(other, SESSION) or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_folder_that_may_not_be_entered_counts_as_held(tmp_path: Path) -> None:
    """Permission denied is not absence."""
    lock, _ = lock_and_claim(tmp_path)
    lock.parent.chmod(0o700)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    with as_other_user():
        assert lease_state(tmp_path, SESSION) is not None


def test_the_lease_of_the_real_cli_is_held(tmp_path: Path) -> None:
    """The bytes that Qwen Code 0.24.4 wrote, at the path of the session that they name."""
    real = (Path(__file__).parents[1] / "data" / "real" / "sidecar-session-writer-lock.lock").read_bytes()
    session_id = json.loads(real)["session_id"]
    lock = Path(lease_paths(str(tmp_path), session_id)[0])
    lock.parent.mkdir(parents=True)
    lock.write_bytes(real)
    assert lease_state(tmp_path, session_id) == f"a writer lease stands at {lock}"
