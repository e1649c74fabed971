"""Facts about real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.live import (
    NO_PID,
    as_other_user,
    end,
    eventually,
    running,
    running_at_terminal,
    start_token,
)
from watcher.core.owner import Alive
from watcher.core.process import EnvironmentValue, ProcessTable
from watcher.edge.processes import LinuxProcesses, PsutilProcesses, process_table

NAME = "QWEN_DISABLE_AUTO_TITLE"

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture(params=[pytest.param("linux", marks=linux_only), "psutil"])
def table(request: pytest.FixtureRequest) -> ProcessTable:
    """Both implementations: they must answer alike."""
    return LinuxProcesses() if request.param == "linux" else PsutilProcesses()


def test_each_platform_has_a_table() -> None:
    """Linux reads /proc, every other platform asks psutil."""
    assert isinstance(process_table("darwin"), PsutilProcesses)
    if sys.platform == "linux":
        assert isinstance(process_table(), LinuxProcesses)


def test_a_running_process_lives_and_its_start_is_known(table: ProcessTable) -> None:
    """A live process has a start token and started a moment ago by the wall clock."""
    with running() as process:
        state = table.state(process.pid)
    assert state.alive is Alive.LIVE
    assert state.start
    assert state.started_at is not None
    assert abs(state.started_at - time.time()) < 60.0


def test_an_ended_process_is_gone(table: ProcessTable) -> None:
    """After it was waited for, nothing lives under the pid; nor under numbers that are no pid."""
    with running() as process:
        pid = process.pid
    assert table.state(pid).alive is Alive.GONE
    assert table.state(NO_PID).alive is Alive.GONE
    assert table.state(2**40).alive is Alive.GONE


def test_a_zombie_is_gone(table: ProcessTable) -> None:
    """A process that has ended but was not waited for serves nobody."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    try:
        eventually(lambda: table.state(process.pid).alive is Alive.GONE)
    finally:
        process.wait()


def test_one_process_keeps_its_start_token_and_another_has_its_own(table: ProcessTable) -> None:
    """The token tells processes apart, also when a pid is given again."""
    with running() as one:
        assert table.state(one.pid).start == table.state(one.pid).start
        assert table.state(one.pid).start != table.state(1).start


@linux_only
def test_the_start_token_is_spelt_as_the_registry_spells_it() -> None:
    """Boot id, colon, start ticks (contract 1.4)."""
    with running() as process:
        assert LinuxProcesses().state(process.pid).start == start_token(process.pid)


@linux_only
def test_a_command_with_parentheses_and_spaces_does_not_confuse() -> None:
    """The fields of /proc/<pid>/stat are counted from behind the last parenthesis."""
    code = "import sys; open('/proc/self/comm', 'w').write('a) Z 1 (b'); print('ready', flush=True); sys.stdin.read()"
    with running(code=code) as process:
        state = LinuxProcesses().state(process.pid)
        assert state.alive is Alive.LIVE
        assert state.start == start_token(process.pid)


@root_only
def test_a_process_of_another_user_lives_and_keeps_its_environment_to_itself(table: ProcessTable) -> None:
    """A process that we may not signal or read is alive all the same."""
    with running() as process, as_other_user():
        assert table.state(process.pid).alive is Alive.LIVE
        assert table.environment_value(process.pid, "PATH") == EnvironmentValue(readable=False)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({NAME: "1"}, "1"),
        ({NAME: ""}, ""),
        ({"OTHER": "1"}, None),
        ({f"X{NAME}": "1"}, None),
        ({NAME: "  yes  "}, "yes"),
        ({NAME: "x" * 5000}, "x" * 64),
        ({"BIG": "y" * 100_000, NAME: "on"}, "on"),
        ({NAME: "a=b"}, "a=b"),
    ],
)
def test_one_variable_of_the_environment_is_read(
    table: ProcessTable, env: dict[str, str], expected: str | None
) -> None:
    """Set, set to nothing and not set are told apart; the value is cut to what a switch may be."""
    with running(env=env) as process:
        assert table.environment_value(process.pid, NAME) == EnvironmentValue(readable=True, value=expected)


def test_the_environment_of_a_process_that_is_gone_is_unreadable(table: ProcessTable) -> None:
    """Unreadable is not the same as not set."""
    assert table.environment_value(NO_PID, NAME) == EnvironmentValue(readable=False)


def test_the_controlling_terminal_is_found_and_its_input_time_read(table: ProcessTable) -> None:
    """The device's access time is the time of the last input."""
    with running_at_terminal() as at:
        assert table.terminal(at.process.pid) == str(at.path)
        os.utime(at.path, (1_700_000_000.0, 1_600_000_000.0))
        assert table.input_time(str(at.path)) == 1_700_000_000.0


@linux_only
def test_typing_moves_the_input_time() -> None:
    """Reading a key updates the device, output does not."""
    table = LinuxProcesses()
    with running_at_terminal() as at:
        os.utime(at.path, (1_700_000_000.0, 1_700_000_000.0))
        with at.path.open("wb", buffering=0) as device:
            device.write(b"output")
        assert table.input_time(str(at.path)) == 1_700_000_000.0
        os.write(at.master, b"x\n")
        eventually(lambda: (table.input_time(str(at.path)) or 0.0) > time.time() - 60.0)


@linux_only
def test_a_terminal_that_is_not_in_our_dev_is_reached_through_the_process(tmp_path: Path) -> None:
    """With another mount namespace, and so another /dev/pts, the descriptor leads to the right device."""
    script = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.unshare(0x00020000) or libc.mount(b'none', b'/', None, 0x44000, None)"
        " or libc.mount(b'devpts', b'/dev/pts', b'devpts', 0, b'newinstance,ptmxmode=0666'):\n"
        "    print('refused', flush=True); sys.exit()\n"
        "os.setsid()\n"
        "master = os.open('/dev/pts/ptmx', os.O_RDWR | os.O_NOCTTY)\n"
        "import fcntl, struct, termios\n"
        "fcntl.ioctl(master, 0x40045431, struct.pack('i', 0))\n"
        "number = struct.unpack('i', fcntl.ioctl(master, 0x80045430, struct.pack('i', 0)))[0]\n"
        "out = os.dup(1)\n"
        "slave = os.open(f'/dev/pts/{number}', os.O_RDWR)\n"
        "kept = os.dup(0)\n"
        "os.dup2(slave, 0)\n"
        "os.utime(f'/dev/pts/{number}', (1_700_000_000, 1_700_000_000))\n"
        "os.write(out, b'ready\\n')\n"
        "os.read(kept, 1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            pytest.skip("may not make a mount namespace here")
        table = LinuxProcesses()
        path = table.terminal(process.pid)
        assert path == f"/proc/{process.pid}/fd/0"
        assert table.input_time(path) == 1_700_000_000.0
    finally:
        end(process)


def test_a_process_without_terminal_has_none(table: ProcessTable) -> None:
    """A process in a session of its own, as a daemon is, has no controlling terminal."""
    code = "import os, sys; os.setsid(); print('ready', flush=True); sys.stdin.read()"
    with running(code=code) as process:
        assert table.terminal(process.pid) is None
    assert table.terminal(NO_PID) is None


def test_a_device_that_vanished_and_a_path_that_is_none_have_no_input_time(table: ProcessTable, tmp_path: Path) -> None:
    """A closed terminal gives None, and so does a plain file."""
    plain = tmp_path / "plain"
    plain.touch()
    assert table.input_time(str(tmp_path / "missing")) is None
    assert table.input_time(str(plain)) is None
    assert table.input_time("nul\0inside") is None


def test_a_command_line_is_read_word_by_word(table: ProcessTable) -> None:
    """Empty words and spaces inside words are kept."""
    with running("--resume", "", "two words") as process:
        assert table.command_line(process.pid)[-3:] == ("--resume", "", "two words")
    assert table.command_line(NO_PID) == ()


def test_a_search_finds_wanted_processes_only_with_directory_and_open_files(
    table: ProcessTable, tmp_path: Path
) -> None:
    """The predicate decides; the open files are asked for only when needed."""
    opened = tmp_path / "transcript.jsonl"
    opened.touch()
    code = f"import sys; f = open({str(opened)!r}); print('ready', flush=True); sys.stdin.read()"
    with running("needle-7391", cwd=tmp_path, code=code) as process, running():
        found = list(table.search(lambda argv: "needle-7391" in argv))
        assert [each.pid for each in found] == [process.pid]
        assert Path(found[0].cwd) == tmp_path.resolve()
        assert found[0].opened(str(opened.resolve()))
        assert not found[0].opened(str(tmp_path / "other.jsonl"))


@linux_only
def test_boot_and_namespace_are_those_of_this_system() -> None:
    """They are what the registry's `procStart` and `pidNs` are compared with."""
    table = LinuxProcesses()
    assert table.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert table.pid_namespace() == Path("/proc/self/ns/pid").stat().st_ino
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(table.booted_at() - (time.time() - uptime)) < 1.0


@linux_only
def test_psutil_is_not_imported_for_the_hot_questions() -> None:
    """An idle watcher on Linux does without it."""
    code = (
        "import os, sys\n"
        "from watcher.edge.processes import process_table\n"
        "table = process_table()\n"
        "table.state(os.getpid()); table.terminal(os.getpid()); table.environment_value(os.getpid(), 'X')\n"
        "assert 'psutil' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
