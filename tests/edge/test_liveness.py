"""Who owns a session, judged on real processes and the records about them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.live import (
    NO_PID,
    OTHER_SESSION,
    SECRET,
    SESSION,
    end,
    eventually,
    registry_record,
    running,
    running_at_terminal,
    sidecar_record,
    start_token,
    write_record,
    write_sidecar,
)
from tests.support.terminal import wait_until
from watcher.core.owner import HEADLESS, SERVE, TUI, Alive, OwnerSource
from watcher.edge.liveness import MAX_REMEMBERED, Liveness
from watcher.edge.processes import process_table
from watcher.edge.unregistered import SearchHint

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the records tell start ticks and namespaces of Linux")

SWITCH = "QWEN_DISABLE_AUTO_TITLE"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A config dir with an empty registry."""
    (tmp_path / "home" / "sessions").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Where the transcripts and sidecars of one project stand."""
    path = tmp_path / "home" / "projects" / "-home-user-proj" / "chats"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives during the test, unless the test ends it."""
    with running() as process:
        yield process


def liveness(home: Path, **changes: Any) -> Liveness:
    """Liveness of this machine for one config dir."""
    return Liveness([home], process_table(), **changes)


def sidecar_path(chats: Path, session_id: str = SESSION) -> Path:
    """Where the sidecar would stand."""
    return chats / f"{session_id}.runtime.json"


def test_a_registered_terminal_owns_its_session(home: Path, process: subprocess.Popen[bytes]) -> None:
    """All that the record says is in the owner, but not the secret."""
    write_record(home, registry_record(process.pid))
    ownership = liveness(home).owners_of(SESSION, None)
    (owner,) = ownership.owners
    assert (owner.pid, owner.kind, owner.alive, owner.source) == (process.pid, TUI, Alive.LIVE, OwnerSource.REGISTRY)
    assert (owner.cwd, owner.version, owner.start) == ("/home/user/proj", "0.24.4", start_token(process.pid))
    assert owner.environment_read
    assert ownership.is_tui
    assert not ownership.is_daemon
    assert not ownership.sidecar_seen


def test_ids_are_compared_without_case(home: Path, process: subprocess.Popen[bytes]) -> None:
    """Files in upper case exist (contract 1.2)."""
    write_record(home, registry_record(process.pid, SESSION.upper()))
    assert liveness(home).owners_of(SESSION, None).owned
    assert liveness(home).owners_of(SESSION.upper(), None).owned


def test_hosted_sessions_of_one_process_each_have_an_owner(home: Path, process: subprocess.Popen[bytes]) -> None:
    """ACP and daemon write one record a session (contract 1.4); nothing may be written into theirs."""
    write_record(home, registry_record(process.pid, SESSION, kind=SERVE), f"{process.pid}-0123abcd.json")
    write_record(home, registry_record(process.pid, OTHER_SESSION, kind=HEADLESS), f"{process.pid}-0123abce.json")
    live = liveness(home)
    assert live.all_live().keys() == {SESSION, OTHER_SESSION}
    assert all(ownership.is_daemon and not ownership.is_tui for ownership in live.all_live().values())
    assert live.sessions_of(process.pid) == {SESSION, OTHER_SESSION}


def test_two_terminals_on_one_session_both_own_it(home: Path, process: subprocess.Popen[bytes]) -> None:
    """Qwen Code does not prevent it (contract 4.3 h)."""
    with running() as other:
        write_record(home, registry_record(process.pid, startedAt=1000))
        write_record(home, registry_record(other.pid, startedAt=2000))
        live = liveness(home)
        assert [owner.pid for owner in live.owners_of(SESSION, None).live] == [other.pid, process.pid]
    assert [owner.pid for owner in live.owners_of(SESSION, None).live] == [process.pid]


def test_a_record_left_behind_by_a_killed_terminal_owns_nothing(home: Path, process: subprocess.Popen[bytes]) -> None:
    """It stays until some Qwen Code sweeps it; we never do."""
    path = write_record(home, registry_record(process.pid))
    end(process)
    ownership = liveness(home).owners_of(SESSION, None)
    assert [owner.alive for owner in ownership.owners] == [Alive.GONE]
    assert not ownership.owned
    assert ownership.interactive
    assert path.exists()


def test_a_zombie_owns_nothing(home: Path) -> None:
    """It has ended; its parent has not noticed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        write_record(home, registry_record(process.pid))
        live = liveness(home)
        assert live.owners_of(SESSION, None).owned
        process.kill()
        eventually(lambda: not live.owners_of(SESSION, None).owned)
    finally:
        end(process)


def test_a_pid_that_was_given_again_owns_nothing(home: Path, process: subprocess.Popen[bytes]) -> None:
    """The start token differs."""
    boot, _, ticks = start_token(process.pid).partition(":")
    write_record(home, registry_record(process.pid, procStart=f"{boot}:{int(ticks) - 1}"))
    assert not liveness(home).owners_of(SESSION, None).owned


@pytest.mark.parametrize("changes", [{"pidNs": 7}, {"procStart": "another-boot:5"}, {"schemaVersion": 2}])
def test_a_record_that_cannot_be_judged_from_here_owns_and_its_pid_is_not_asked(
    home: Path, changes: dict[str, Any], process: subprocess.Popen[bytes]
) -> None:
    """Another namespace or boot: our process of that number is a stranger."""
    write_record(home, registry_record(process.pid, **changes))
    watched: list[int] = []
    (owner,) = liveness(home, watch_exit=lambda pid, _: watched.append(pid)).owners_of(SESSION, None).owners
    assert owner.alive is Alive.UNKNOWN
    local = "schemaVersion" in changes
    assert owner.environment_read is local
    assert bool(watched) is local


def test_a_record_from_before_a_restart_is_gone_where_this_machine_wrote_it(home: Path, chats: Path) -> None:
    """A local disk shows that, or the sidecar that names this host; else the session stays owned."""
    before = registry_record(NO_PID, procStart="earlier-boot:5", startedAt=1_000_000_000_000)
    write_record(home, before)
    assert liveness(home).owners_of(SESSION, None).owned
    assert not liveness(home, on_local_disk=lambda _: True).owners_of(SESSION, None).owned
    write_sidecar(chats, sidecar_record(NO_PID, started_at=1_000_000_000.0, qwen_version="0.24.4"))
    live = liveness(home)
    assert live.all_live().keys() == {SESSION}
    assert not live.owners_of(SESSION, sidecar_path(chats)).owned
    assert live.refresh() == {SESSION}
    assert live.all_live() == {}


def test_a_terminal_that_moves_to_another_session_takes_its_ownership_along(
    home: Path, process: subprocess.Popen[bytes]
) -> None:
    """`/clear` and `/resume` patch the record in place; what was there before is remembered as gone."""
    live = liveness(home)
    write_record(home, registry_record(process.pid, SESSION))
    assert live.refresh() == {SESSION}
    assert live.refresh() == frozenset()
    write_record(home, registry_record(process.pid, OTHER_SESSION))
    assert live.refresh() == {SESSION, OTHER_SESSION}
    assert not live.owners_of(SESSION, None).owned
    assert live.owners_of(SESSION, None).interactive
    assert live.owners_of(OTHER_SESSION, None).owned
    write_record(home, registry_record(process.pid, SESSION))
    assert [owner.alive for owner in live.owners_of(SESSION, None).owners] == [Alive.LIVE]


def test_a_clean_exit_is_noticed(home: Path, process: subprocess.Popen[bytes]) -> None:
    """The record is removed."""
    live = liveness(home)
    path = write_record(home, registry_record(process.pid))
    live.refresh()
    path.unlink()
    assert live.refresh() == {SESSION}
    assert live.all_live() == {}
    assert live.sessions_of(process.pid) == {SESSION}


def test_a_change_seen_by_a_question_is_still_told(home: Path, process: subprocess.Popen[bytes]) -> None:
    """`refresh` reports what came or went since the last `refresh`, whoever looked first."""
    live = liveness(home)
    write_record(home, registry_record(process.pid))
    assert live.owners_of(SESSION, None).owned
    assert live.refresh() == {SESSION}


@pytest.mark.parametrize("value", ["1", "", None])
def test_the_switch_of_an_owner_is_kept_after_its_end(home: Path, value: str | None) -> None:
    """It is read when the owner is first seen (design 5)."""
    env = {"PATH": "/bin", "SECRET_KEY": SECRET} | ({} if value is None else {SWITCH: value})
    live = liveness(home)
    with running(env=env) as process:
        path = write_record(home, registry_record(process.pid))
        assert live.owners_of(SESSION, None).disable_switch == value
    path.unlink()
    ownership = live.owners_of(SESSION, None)
    assert ownership.disable_switch == value
    assert [owner.alive for owner in ownership.owners] == [Alive.GONE]


def test_owners_that_have_gone_are_forgotten_after_a_day(home: Path, process: subprocess.Popen[bytes]) -> None:
    """Memory is bounded by time …"""
    now = [1000.0]
    live = liveness(home, clock=lambda: now[0])
    path = write_record(home, registry_record(process.pid))
    live.refresh()
    path.unlink()
    live.refresh()
    now[0] += 24 * 3600.0 - 1
    assert live.owners_of(SESSION, None).ever_known
    now[0] += 2
    assert not live.owners_of(SESSION, None).ever_known


def test_owners_that_have_gone_are_bounded_in_number(home: Path, process: subprocess.Popen[bytes]) -> None:
    """… and by number: the oldest are forgotten."""
    live = liveness(home)
    for number in range(MAX_REMEMBERED + 3):
        write_record(home, registry_record(process.pid, f"{number:032d}"))
        live.refresh()
    assert not live.owners_of(f"{0:032d}", None).ever_known
    assert live.owners_of(f"{MAX_REMEMBERED:032d}", None).ever_known


def test_the_terminal_and_its_input_are_those_of_now(home: Path) -> None:
    """The input time is read at each question; a terminal that is gone has none."""
    live = liveness(home)
    with running_at_terminal() as at:
        write_record(home, registry_record(at.process.pid))
        for moment in (1_700_000_000.0, 1_700_000_008.0):
            os.utime(at.path, (moment, moment))
            (owner,) = live.owners_of(SESSION, None).owners
            assert (owner.tty, owner.input_at) == (str(at.path), moment)
    (owner,) = live.owners_of(SESSION, None).owners
    assert (owner.alive, owner.input_at) == (Alive.GONE, None)


@pytest.mark.parametrize("clean", [True, False])
def test_the_keys_that_ended_an_owner_are_seen_where_its_terminal_stays_open(home: Path, clean: bool) -> None:
    """The shell has the terminal again; what is typed there later says nothing about the session."""
    live = liveness(home)
    with running_at_terminal() as at, at.path.open("rb", buffering=0):
        path = write_record(home, registry_record(at.process.pid))
        live.refresh()
        os.utime(at.path, (1_700_000_000.0, 1_700_000_000.0))
        if clean:
            path.unlink()
        else:
            end(at.process)
        live.refresh()
        os.utime(at.path, (1_700_000_900.0, 1_700_000_900.0))
        (owner,) = live.owners_of(SESSION, None).owners
        assert (owner.alive, owner.tty, owner.input_at) == (Alive.GONE, str(at.path), 1_700_000_000.0)


def test_every_local_owner_is_watched_and_the_check_tells_it_from_its_successor(
    home: Path, process: subprocess.Popen[bytes]
) -> None:
    """The callback gets a test that holds for this very process only."""
    watched: dict[int, Callable[[], bool]] = {}
    write_record(home, registry_record(process.pid))
    liveness(home, watch_exit=watched.__setitem__).refresh()
    assert list(watched) == [process.pid]
    assert watched[process.pid]()
    end(process)
    assert not watched[process.pid]()


# ---- sidecars


def test_a_sidecar_alone_shows_the_owner_of_an_older_qwen_code(
    home: Path, chats: Path, process: subprocess.Popen[bytes]
) -> None:
    """Before 0.23 there is no registry (contract 8)."""
    write_sidecar(chats, sidecar_record(process.pid))
    live = liveness(home)
    ownership = live.owners_of(SESSION, sidecar_path(chats))
    (owner,) = ownership.owners
    assert (owner.pid, owner.kind, owner.alive, owner.source) == (process.pid, TUI, Alive.LIVE, OwnerSource.SIDECAR)
    assert ownership.sidecar_seen
    assert live.all_live().keys() == {SESSION}
    live.refresh()
    end(process)
    assert live.refresh() == {SESSION}
    assert not live.owners_of(SESSION, sidecar_path(chats)).owned
    assert live.owners_of(SESSION, sidecar_path(chats)).interactive


def test_a_sidecar_that_a_quit_left_behind_owns_nothing(
    home: Path, chats: Path, process: subprocess.Popen[bytes]
) -> None:
    """Its pid was given to a process that started later."""
    write_sidecar(chats, sidecar_record(process.pid, started_at=time.time() - 3600.0))
    ownership = liveness(home).owners_of(SESSION, sidecar_path(chats))
    assert not ownership.owned
    assert ownership.sidecar_seen


def test_only_sidecars_with_a_live_owner_are_looked_at_again(
    home: Path, chats: Path, process: subprocess.Popen[bytes]
) -> None:
    """Thousands have one that a quit left behind; a session that is resumed is written to, and so asked for."""
    write_sidecar(chats, sidecar_record(NO_PID))
    live = liveness(home)
    assert not live.owners_of(SESSION, sidecar_path(chats)).owned
    write_sidecar(chats, sidecar_record(process.pid))
    assert live.refresh() == frozenset()
    assert live.owners_of(SESSION, sidecar_path(chats)).owned
    assert live.refresh() == {SESSION}


def test_registry_and_sidecar_of_one_process_are_one_owner(
    home: Path, chats: Path, process: subprocess.Popen[bytes]
) -> None:
    """The registry says more."""
    write_record(home, registry_record(process.pid))
    write_sidecar(chats, sidecar_record(process.pid, qwen_version="0.24.4"))
    ownership = liveness(home).owners_of(SESSION, sidecar_path(chats))
    assert [owner.source for owner in ownership.owners] == [OwnerSource.REGISTRY]
    assert ownership.sidecar_seen


def test_the_sidecar_that_a_quit_leaves_behind_is_not_another_owner(
    home: Path, chats: Path, process: subprocess.Popen[bytes]
) -> None:
    """The record of the same process was removed, and is remembered."""
    record = write_record(home, registry_record(process.pid))
    write_sidecar(chats, sidecar_record(process.pid, qwen_version="0.24.4"))
    live = liveness(home)
    live.owners_of(SESSION, sidecar_path(chats))
    record.unlink()
    end(process)
    owners = live.owners_of(SESSION, sidecar_path(chats)).owners
    assert [(owner.alive, owner.source) for owner in owners] == [(Alive.GONE, OwnerSource.REGISTRY)]


def test_a_sidecar_of_a_terminal_that_is_registered_for_another_session_owns_nothing(
    home: Path, chats: Path, process: subprocess.Popen[bytes]
) -> None:
    """It moved on; a terminal has one session at a time."""
    write_record(home, registry_record(process.pid, OTHER_SESSION))
    write_sidecar(chats, sidecar_record(process.pid))
    assert not liveness(home).owners_of(SESSION, sidecar_path(chats)).owned


def test_a_sidecar_for_another_session_than_its_name_is_not_believed(
    home: Path, chats: Path, process: subprocess.Popen[bytes]
) -> None:
    """Copied by hand, perhaps; it still shows that the session was interactive."""
    path = write_sidecar(chats, sidecar_record(process.pid, OTHER_SESSION))
    shutil.copy(path, sidecar_path(chats))
    ownership = liveness(home).owners_of(SESSION, sidecar_path(chats))
    assert ownership.owners == ()
    assert ownership.sidecar_seen


# ---- bad input


def test_without_a_registry_nobody_is_known(tmp_path: Path) -> None:
    """The folder appears with the first Qwen Code that registers."""
    live = liveness(tmp_path / "missing")
    assert live.all_live() == {}
    assert not live.owners_of(SESSION, tmp_path / "none.runtime.json").ever_known


@pytest.mark.parametrize("junk", [b"", b"{", b'{"pid": "x"}', b"\x00" * 100])
def test_a_record_that_became_unreadable_leaves_its_session_owned(
    home: Path, junk: bytes, process: subprocess.Popen[bytes]
) -> None:
    """Unknown, not gone, for as long as its process lives."""
    live = liveness(home)
    path = write_record(home, registry_record(process.pid))
    assert live.refresh() == {SESSION}
    path.write_bytes(junk)
    assert [owner.alive for owner in live.owners_of(SESSION, None).owners] == [Alive.UNKNOWN]
    assert live.refresh() == frozenset()
    write_record(home, registry_record(process.pid))
    assert [owner.alive for owner in live.owners_of(SESSION, None).owners] == [Alive.LIVE]
    path.write_bytes(junk)
    end(process)
    assert not live.owners_of(SESSION, None).owned


def test_things_that_are_no_records_neither_block_nor_count(home: Path, process: subprocess.Popen[bytes]) -> None:
    """FIFO, link, folder, too large, temporary, wrong name: skipped."""
    registry = home / "sessions"
    good = write_record(home, registry_record(process.pid))
    body = good.read_bytes()
    good.unlink()
    os.mkfifo(registry / f"{process.pid}.json")
    (registry / f"{process.pid}-0123abcd.json.0123456789ab.tmp").write_bytes(body)
    (registry / f"{process.pid}-0123ABCD.json").write_bytes(body)
    (registry / "1.json").write_bytes(body)
    (registry / "2.json").mkdir()
    (home / "elsewhere.json").write_bytes(body)
    (registry / f"{process.pid}-00000000.json").symlink_to(home / "elsewhere.json")
    (registry / f"{process.pid}-11111111.json").write_bytes(body + b" " * 65_536)
    assert liveness(home).all_live() == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_record_of_another_user_is_not_believed(home: Path, process: subprocess.Popen[bytes]) -> None:
    """Only we, the folder's owner and root may say who owns a session."""
    path = write_record(home, registry_record(process.pid))
    os.chown(path, 65_534, 65_534)
    assert liveness(home).all_live() == {}


def test_the_secret_is_nowhere_in_memory_that_we_keep(home: Path, process: subprocess.Popen[bytes]) -> None:
    """No value that liveness holds or gives contains it."""
    write_record(home, registry_record(process.pid))
    live = liveness(home)
    ownership = live.owners_of(SESSION, None)
    assert SECRET not in repr(ownership)
    assert SECRET not in repr(vars(live))


# ---- owners without a record


def _as_qwen(folder: Path) -> Path:
    """A program by the name of `qwen` that waits."""
    program = folder / "qwen"
    program.symlink_to(sys.executable)
    return program


@pytest.fixture
def unregistered(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Qwen Code look-alikes that stand in no record."""
    program = _as_qwen(tmp_path)
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str, cwd: Path, opened: str = "", first: str = "") -> subprocess.Popen[bytes]:
        code = f"import sys; f = {opened!r} and open({opened!r}); print('ready', flush=True)\n{first}\n"
        code += "sys.stdout.flush(); sys.stdin.read()"
        process = subprocess.Popen(
            [program, "-c", code, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, start_new_session=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        end(process)


def test_an_acp_process_that_does_not_register_is_found_by_its_directory(
    home: Path, chats: Path, tmp_path: Path, unregistered: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Only when asked to search; that it works in the directory is no proof, so unknown."""
    process = unregistered("--acp", cwd=tmp_path)
    live, hint = liveness(home), SearchHint(chats / f"{SESSION}.jsonl", str(tmp_path.resolve()))
    assert not live.owners_of(SESSION, None).owned
    (owner,) = live.owners_of(SESSION, None, search=hint).owners
    assert (owner.pid, owner.kind, owner.alive) == (process.pid, HEADLESS, Alive.UNKNOWN)
    assert owner.source is OwnerSource.PROCESS
    elsewhere = SearchHint(hint.transcript, str(chats))
    assert not live.owners_of(SESSION, None, search=elsewhere).owned


@pytest.mark.parametrize(
    ("changes", "owned"),
    [
        ({}, False),
        ({"session_id": SESSION}, True),
        ({"hostname": "another"}, True),
        ({"started_at": time.time() - 90_000}, True),
        ({"pid": NO_PID}, True),
    ],
    ids=["another session", "this session", "another host", "an earlier process", "another process"],
)
def test_a_process_that_went_on_to_another_session_is_not_taken_for_an_owner(  # as `/clear` does below 0.23
    home: Path,
    chats: Path,
    tmp_path: Path,
    unregistered: Callable[..., subprocess.Popen[bytes]],
    changes: dict[str, object],
    owned: bool,
) -> None:
    """Its sidecar names the other session; it works in this one's directory all the same."""
    process = unregistered(cwd=tmp_path)
    record = sidecar_record(process.pid, OTHER_SESSION) | changes
    write_sidecar(chats, record).rename(chats / f"{OTHER_SESSION}.runtime.json")
    hint = SearchHint(chats / f"{SESSION}.jsonl", str(tmp_path.resolve()))
    assert liveness(home).owners_of(SESSION, None, search=hint).owned == owned


def test_a_process_that_names_the_session_or_holds_its_file_open_is_live(
    home: Path, chats: Path, tmp_path: Path, unregistered: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Wherever it works."""
    transcript = chats / f"{SESSION}.jsonl"
    transcript.touch()
    hint = SearchHint(transcript.resolve(), "/nowhere")
    live = liveness(home)
    process = unregistered("--resume", SESSION.upper(), cwd=tmp_path)
    assert [(o.pid, o.alive) for o in live.owners_of(SESSION, None, search=hint).owners] == [(process.pid, Alive.LIVE)]
    end(process)
    process = unregistered(cwd=tmp_path, opened=str(transcript))
    assert [(o.pid, o.alive) for o in live.owners_of(SESSION, None, search=hint).owners] == [(process.pid, Alive.LIVE)]


def test_the_processes_that_only_started_the_working_one_are_no_owners(
    home: Path, chats: Path, tmp_path: Path, unregistered: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Qwen Code starts itself again; what counts is the last one, and that is registered for another session here."""
    code = "import subprocess, sys; p = subprocess.Popen([sys.orig_argv[0], '-c', 'input()'], stdin=0); print(p.pid)"
    hint = SearchHint(chats / f"{SESSION}.jsonl", str(tmp_path.resolve()))
    parent = unregistered("--acp", cwd=tmp_path, first=code)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    # A parent goes on a moment before the kernel shows its child's new command line.
    wait_until(lambda: psutil.Process(child).cmdline(), "the command line")
    live = liveness(home)
    assert [owner.pid for owner in live.owners_of(SESSION, None, search=hint).owners] == [child]
    write_record(home, registry_record(child, OTHER_SESSION))
    assert not live.owners_of(SESSION, None, search=hint).owned


def test_no_search_where_a_record_says_enough(
    home: Path, chats: Path, tmp_path: Path, unregistered: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """A process registered for another session is not this one's; a sidecar means a terminal, and those register."""
    process = unregistered("--acp", cwd=tmp_path)
    hint = SearchHint(chats / f"{SESSION}.jsonl", str(tmp_path.resolve()))
    write_sidecar(chats, sidecar_record(NO_PID))
    assert not liveness(home).owners_of(SESSION, sidecar_path(chats), search=hint).owned
    write_record(home, registry_record(process.pid, OTHER_SESSION, kind=SERVE), f"{process.pid}-0123abcd.json")
    assert not liveness(home).owners_of(SESSION, None, search=hint).owned
