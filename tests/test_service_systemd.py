"""systemd: install, supervise, reload, stop and remove, on a real `systemd --user`, as root and without privileges.

A small stand-in takes the place of the watcher; the unit, the notifications and the library functions are the real.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dotenv
import pytest

import watcher
from tests.support.systemd_user import UNPRIVILEGED_USER, UserManager, python_for, user_manager, wait_for, why_not
from watcher.errors import ServiceError
from watcher.service import CommandResult, InstallRequest, ServiceState, SystemdService, command_runner
from watcher.service.environment import environment_path
from watcher.service.templates import SYSTEMD_TEMPLATE, read_template
from watcher.service.unit import render_unit

UNIT = "qwen-watcher.service"
SUPPORT = Path(__file__).parent / "support"
FAST = "[Service]\nWatchdogSec=3\nTimeoutStopSec=2\nRestartSec=0.1\n"
"""What the tests shorten; everything else is the unit's."""


class Machine:
    """A user with a manager, the stand-in service, and the library as that user calls it."""

    def __init__(self, manager: UserManager, python: str) -> None:
        self.manager = manager
        self.python = python
        self.base = manager.home / "stand in"
        self.control = self.base / "control"
        self.control.mkdir(parents=True)
        for package in (watcher, dotenv):
            assert package.__file__
            source = Path(package.__file__).parent
            target = self.base / "lib" / source.name
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(Path(__file__).parent.parent / "systemd", self.base / "lib" / "systemd")
        for name in ("notify_service.py", "service_driver.py"):
            shutil.copy(SUPPORT / name, self.base)
        self.command = [python, str(self.base / "notify_service.py"), str(self.control)]
        drop_in = manager.unit_dir / f"{UNIT}.d" / "fast.conf"
        drop_in.parent.mkdir()
        drop_in.write_text(FAST)
        manager.own(manager.home)

    def call(self, action: str, environ: dict[str, str] | None = None, **request: object) -> dict[str, Any]:
        """A library function, in a process of the user."""
        done = subprocess.run(
            self.manager.as_user([self.python, str(self.base / "service_driver.py")]),
            input=json.dumps({"action": action, **request}),
            env={**self.manager.environ, **(environ or {})},
            cwd=self.manager.home,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def install(self, environ: dict[str, str] | None = None, **request: object) -> dict[str, Any]:
        return self.call("install", environ, **{"command": self.command, **request})

    def steer(self, name: str, text: str = "") -> None:
        (self.control / name).write_text(text)
        self.manager.own(self.control)

    def starts(self) -> list[int]:
        file = self.control / "starts"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def seen(self) -> dict[str, Any]:
        seen: dict[str, Any] = json.loads((self.control / "seen.json").read_text())
        return seen

    def state(self) -> str:
        return self.manager.show(UNIT, "ActiveState")

    def pid(self) -> int:
        return int(self.manager.show(UNIT, "MainPID"))

    def wait_for_another(self, pid: int) -> int:
        """Wait until another process than `pid` is active; returns its id."""
        wait_for(
            lambda: self.state() == "active" and self.pid() not in (0, pid), seconds=30, what="a new process is active"
        )
        return self.pid()

    def files(self) -> list[str]:
        """Every file and directory of the user outside the stand-in."""
        home = self.manager.home
        return sorted(str(path.relative_to(home)) for path in home.rglob("*") if self.base not in (path, *path.parents))

    def unit_text(self) -> str:
        return (self.manager.unit_dir / UNIT).read_text()


def _machine(user: str) -> Iterator[Machine]:
    reason = why_not()
    if reason:
        pytest.skip(f"no systemd user manager can be started here: {reason}")
    with user_manager(user) as manager:
        python = python_for(manager)
        if python is None:
            pytest.skip(f"no Python that user {user} can read")
        yield Machine(manager, python)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A user manager of root."""
    yield from _machine("root")


@pytest.fixture(params=["root", UNPRIVILEGED_USER])
def each_machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Both of them, one after the other."""
    yield from _machine(request.param)


@pytest.fixture
def unprivileged() -> Iterator[Machine]:
    """A user manager of a user without any privilege, as everybody has one."""
    yield from _machine(UNPRIVILEGED_USER)


@pytest.mark.systemd
def test_a_service_lives_as_it_should(each_machine: Machine) -> None:
    """Active after READY, replaced when killed or hung, reloaded, stopped at once, removed without a trace."""
    machine = each_machine
    before = machine.files()
    result = machine.install({"QWEN_HOME": str(machine.base)})
    assert "error" not in result, result
    assert (result["changed"], result["restarted"], result["variables"]) == (True, False, ["QWEN_HOME"])
    assert machine.state() == "active"
    seen = machine.seen()
    assert seen["QWEN_HOME"] == str(machine.base)
    assert (seen["NoNewPrivs"], seen["Seccomp"], seen["Umask"]) == ("1", "2", "0077")
    assert (int(seen["CapEff"], 16) == 0) == (machine.manager.uid != 0)
    assert machine.manager.systemctl("is-enabled", UNIT) == "enabled"
    status = machine.call("status")
    assert (status["state"], status["enabled"], status["ours"], status["pid"], status["detail"]) == (
        *("running", True, True, machine.pid(), "ready"),
    )

    # READY decides
    machine.steer("hold")
    pid = machine.pid()
    machine.manager.systemctl("restart", "--no-block", UNIT)
    wait_for(lambda: len(machine.starts()) == 2, seconds=20, what="the second process has begun")
    assert machine.state() == "activating"
    assert machine.call("status")["state"] == "starting"
    (machine.control / "hold").unlink()
    pid = machine.wait_for_another(pid)

    # a crash, a hang
    os.kill(pid, signal.SIGKILL)
    pid = machine.wait_for_another(pid)
    os.kill(pid, signal.SIGSTOP)
    pid = machine.wait_for_another(pid)
    assert machine.manager.show(UNIT, "NRestarts") == "2"

    machine.manager.systemctl("reload", UNIT)
    wait_for(lambda: machine.manager.show(UNIT, "StatusText") == "reloaded 1", seconds=20, what="it has reloaded")
    assert machine.pid() == pid

    began = time.monotonic()
    machine.manager.systemctl("stop", UNIT)
    assert time.monotonic() - began < 2
    assert machine.manager.show(UNIT, "Result") == "success"

    machine.manager.systemctl("start", UNIT)
    result = machine.call("uninstall")
    assert result["was_running"] is True
    assert result["removed"] == [
        str(machine.manager.unit_dir / UNIT),
        str(environment_path(machine.manager.environ)),
    ]
    assert machine.files() == before
    assert machine.manager.show(UNIT, "LoadState") in ("not-found", "masked")
    assert machine.manager.systemctl("list-units", "--all", "--no-legend", UNIT) == ""
    assert machine.call("uninstall")["removed"] == []


@pytest.mark.systemd
def test_from_inside_the_unit_the_owner_can_be_seen(unprivileged: Machine) -> None:
    """A user without privileges: the service reads environment, directory and terminal of the user's own process.

    This is what every namespacing option would take away, see the comment in the unit.
    """
    machine = unprivileged
    leader, follower = pty.openpty()
    owner = subprocess.Popen(
        machine.manager.as_user(["sleep", "100"]),
        stdin=follower,
        cwd=machine.base,
        env={**machine.manager.environ, "QWEN_DISABLE_AUTO_TITLE": "1"},
    )
    try:
        wait_for(
            lambda: Path(f"/proc/{owner.pid}/comm").read_text() == "sleep\n", seconds=20, what="the owner has started"
        )
        machine.steer("owner", str(owner.pid))
        assert "error" not in machine.install()
        seen = machine.seen()
        assert seen.get("error") is None
        assert seen["uid"] == machine.manager.uid != 0
        assert "QWEN_DISABLE_AUTO_TITLE=1" in seen["environ"]
        assert seen["cwd"] == str(machine.base)
        assert seen["terminal"] == os.ttyname(follower)
        assert seen["input_at"] == os.stat(seen["terminal"]).st_atime
    finally:
        owner.kill()
        owner.wait()
        os.close(leader)
        os.close(follower)


@pytest.mark.systemd
def test_a_wrong_configuration_is_not_tried_again_and_leaves_nothing(machine: Machine) -> None:
    """Exit status 2 at start: one attempt, one line that says so, and every file as before."""
    before = machine.files()
    machine.steer("exit", "2")
    error = machine.install()["error"]
    assert "the configuration is wrong" in error
    assert "\n" not in error
    assert len(machine.starts()) == 1
    assert machine.files() == before


@pytest.mark.systemd
def test_a_crash_loop_ends(machine: Machine) -> None:
    """A service that always fails is started five times and then stays down."""
    assert "error" not in machine.install()
    machine.steer("exit", "1")
    (machine.control / "starts").unlink()
    machine.manager.systemctl("reset-failed", UNIT, check=False)
    machine.manager.systemctl("restart", UNIT, check=False)
    wait_for(lambda: machine.state() == "failed", seconds=30, what="it stays down")
    assert len(machine.starts()) == 5
    status = machine.call("status")
    assert (status["state"], status["pid"]) == ("failed", None)
    # and an install mends it, although the limit was hit
    (machine.control / "exit").unlink()
    assert "error" not in machine.install()
    assert machine.state() == "active"


@pytest.mark.parametrize(
    ("shown", "detail"),
    [
        ("Result=signal\nExecMainStatus=9\nSubState=auto-restart", "signal, signal 9, systemd starts it again"),
        ("Result=exit-code\nExecMainStatus=2\nSubState=failed", "exit-code, exit status 2"),
        ("Result=start-limit-hit\nExecMainStatus=0\nSubState=failed", "start-limit-hit"),
    ],
)
def test_how_it_failed(tmp_path: Path, shown: str, detail: str) -> None:
    """A signal is not called an exit status, and a service that comes back by itself is said to."""
    answer = CommandResult(0, f"ActiveState=failed\n{shown}\n", "")
    service = SystemdService({"HOME": str(tmp_path)}, lambda _: answer, user="me", environment_path=tmp_path / "env")
    status = service.status()
    assert (status.state, status.detail) == (ServiceState.FAILED, detail)


@pytest.mark.systemd
def test_installing_again_repairs_a_moved_interpreter(machine: Machine) -> None:
    """A second install changes nothing; status shows a dead interpreter, and an install from a new one mends it."""
    link = machine.base / "old venv" / "python"
    link.parent.mkdir()
    link.symlink_to(machine.python)
    command = [str(link), *machine.command[1:]]
    assert machine.install(command=command)["changed"] is True
    again = machine.install(command=command)
    assert (again["changed"], again["restarted"]) == (False, True)
    link.unlink()
    status = machine.call("status")
    assert status["command"] == command
    assert not Path(status["command"][0]).exists()
    repaired = machine.install()
    assert (repaired["changed"], repaired["restarted"]) == (True, True)
    assert machine.call("status")["command"] == machine.command
    assert machine.state() == "active"


@pytest.mark.systemd
def test_a_failed_repair_leaves_the_running_service(machine: Machine) -> None:
    """When a second install cannot start, the first one's unit is back and runs."""
    assert "error" not in machine.install()
    unit = machine.unit_text()
    assert "error" in machine.install(command=["/nonexistent/python", "run"])
    assert machine.unit_text() == unit
    assert machine.state() == "active"
    assert machine.manager.systemctl("is-enabled", UNIT) == "enabled"


@pytest.mark.systemd
def test_a_key_is_in_the_private_file_only(machine: Machine) -> None:
    """A stored key comes from a file of mode 0600, is in no unit, stays on repair, goes on uninstall."""
    file = environment_path(machine.manager.environ)
    file.parent.mkdir(parents=True)
    file.write_text("MINE=1\n")
    assert "error" not in machine.install(stored={"MY_KEY": "sesame"})
    assert "sesame" not in machine.unit_text()
    assert "sesame" not in machine.manager.systemctl("show", UNIT)
    assert "sesame" in Path(f"/proc/{machine.pid()}/environ").read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert machine.install()["variables"] == ["MY_KEY"]
    machine.call("uninstall")
    assert file.read_text() == "MINE=1\n"


@pytest.mark.systemd
def test_the_unit_copied_by_hand_works(machine: Machine) -> None:
    """The template itself, copied, starts; `service install` may replace it, an edited one it leaves alone."""
    program = machine.manager.home / ".local" / "bin" / "qwen-watcher"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$*" = run ] && exec {machine.python} "{machine.command[1]}" "{machine.control}"\n'
    )
    program.chmod(0o755)
    unit = machine.manager.unit_dir / UNIT
    unit.write_text(read_template(SYSTEMD_TEMPLATE))
    machine.manager.systemctl("daemon-reload")
    machine.manager.systemctl("enable", "--now", UNIT)
    assert machine.state() == "active"
    status = machine.call("status")
    assert (status["installed"], status["ours"], status["state"]) == (True, False, "running")
    assert status["command"] == [str(program), "run"]
    assert "was not written by" in machine.call("uninstall")["error"]
    unit.write_text(unit.read_text() + "# edited\n")
    assert "move it away" in machine.install()["error"]
    unit.write_text(read_template(SYSTEMD_TEMPLATE))
    assert machine.install()["changed"] is True


def test_without_a_user_bus_one_line_and_nothing_half_written(tmp_path: Path) -> None:
    """As over `su` or in a container: the error is one line with the `run` command, and no file was made."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    run = command_runner(environ, timeout_seconds=60)
    service = SystemdService(environ, run, user="nobody", environment_path=environment_path(environ))
    request = InstallRequest(command=("/usr/bin/python3",), carried={"QWEN_HOME": "/q"}, stored={})
    with pytest.raises(ServiceError, match="qwen-watcher run") as caught:
        service.install(request)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    status = service.status()
    assert (status.installed, status.enabled, status.state.value) == (False, False, "unknown")
    assert service.uninstall().removed == ()


def test_a_unit_of_another_version_is_told(tmp_path: Path) -> None:
    """Current as rendered now; not with another interpreter or after the template changed; a foreign one is left be."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    run = command_runner(environ, timeout_seconds=60)
    service = SystemdService(environ, run, user="nobody", environment_path=environment_path(environ))
    unit = tmp_path / ".config" / "systemd" / "user" / UNIT
    unit.parent.mkdir(parents=True)
    command = ("/x/python", "run")
    assert service.is_current(command)
    unit.write_text(render_unit(read_template(SYSTEMD_TEMPLATE), command, environment_path(environ)))
    assert service.is_current(command)
    assert not service.is_current(("/y/python", "run"))
    unit.write_text(unit.read_text().replace("Nice=10", "Nice=5"))
    assert not service.is_current(command)
    unit.write_text("[Service]\nExecStart=/z\n")
    assert service.is_current(command)


def test_without_a_user_bus_uninstall_still_removes_the_files(tmp_path: Path) -> None:
    """Where the manager is gone, its files can be removed all the same."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    unit = tmp_path / ".config" / "systemd" / "user" / UNIT
    link = unit.parent / "default.target.wants" / UNIT
    link.parent.mkdir(parents=True)
    unit.write_text(render_unit(read_template(SYSTEMD_TEMPLATE), ("/x", "run"), environment_path(environ)))
    link.symlink_to(unit)
    run = command_runner(environ, timeout_seconds=60)
    service = SystemdService(environ, run, user="nobody", environment_path=environment_path(environ))
    assert service.status().enabled
    assert service.uninstall().removed == (unit,)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.systemd
def test_what_the_unit_leaves_out_would_break_it(unprivileged: Machine) -> None:
    """Each row of the security score that could be closed, under the manager of an ordinary user: it does not start, or
    it can no longer see the owner's process. This is why the score is what it is (docs/install.md).
    """
    manager = unprivileged.manager
    owner = subprocess.Popen(manager.as_user(["sleep", "100"]), env={**manager.environ, "LOOK": "here"})
    try:
        wait_for(
            lambda: Path(f"/proc/{owner.pid}/comm").read_text() == "sleep\n", seconds=20, what="the owner has started"
        )
        look = ["grep", "-q", "LOOK=here", f"/proc/{owner.pid}/environ"]

        def works(*options: str) -> bool:
            words = [word for option in options for word in ("--property", option)]
            run = ["systemd-run", "--user", "--wait", "--quiet", "--collect", *words, *look]
            return manager.run(*run, check=False).returncode == 0

        assert works()
        assert works(*(f"{name}={value}" for name, value in hardening()))
        for option in (
            *("CapabilityBoundingSet=", "CapabilityBoundingSet=~CAP_SYS_TIME", "ProtectClock=yes"),
            *("ProtectKernelLogs=yes", "ProtectKernelModules=yes", "PrivateDevices=yes", "PrivateUsers=yes"),
            *(f"User={manager.user}", "RootDirectory=/"),
        ):
            assert not works(option), option
    finally:
        owner.kill()
        owner.wait()


def hardening() -> list[tuple[str, str]]:
    """The hardening options of the unit, in their order."""
    lines = read_template(SYSTEMD_TEMPLATE).partition("# Hardening.")[2].partition("[Install]")[0].splitlines()
    return [(name, value) for name, found, value in (line.partition("=") for line in lines) if found and name[0] != "#"]


def _analyze(tmp_path: Path, rendered: bool, *words: str) -> subprocess.CompletedProcess[str]:
    """`systemd-analyze --user` on the unit, in a home where the program of the by-hand version exists."""
    program = tmp_path / "home" / ".local" / "bin" / "qwen-watcher"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "run" / "systemd").mkdir(parents=True, exist_ok=True)
    unit = tmp_path / UNIT
    text = read_template(SYSTEMD_TEMPLATE)
    if rendered:
        text = render_unit(text, (sys.executable, "-P", "-m", "watcher", "run"), tmp_path / "a b" / "service.env")
    unit.write_text(text)
    return subprocess.run(
        ["systemd-analyze", "--user", *words, str(unit)],
        env={"HOME": str(tmp_path / "home"), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.systemd
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("rendered", [False, True])
def test_systemd_finds_nothing_to_say_about_the_unit(tmp_path: Path, rendered: bool) -> None:
    """`systemd-analyze --user verify` is silent, for the unit as copied by hand and as installed."""
    done = _analyze(tmp_path, rendered, "verify")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.systemd
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("rendered", [False, True])
def test_the_exposure_of_the_unit(tmp_path: Path, rendered: bool) -> None:
    """Among the rows of `systemd-analyze security` that stay open are only those that would break the service.

    That is: namespaces, which hide the owner's processes; capabilities, which a manager without privileges cannot drop
    (218/CAPABILITIES) and whose user has none; the network, the hooks' programs, and unit types it is not.
    """
    done = _analyze(tmp_path, rendered, "security", "--offline=yes", "--json=short", "--no-pager")
    rows = {row["json_field"]: row for row in json.loads(done.stdout)}
    open_rows = {name for name, row in rows.items() if row["exposure"]}
    capabilities = {name for name in rows if name.startswith("CapabilityBoundingSet")}
    namespaces = {
        *("PrivateDevices", "PrivateMounts", "PrivateNetwork", "PrivateTmp", "PrivateUsers", "ProcSubset"),
        *("ProtectClock", "ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs"),
        *("ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "ProtectSystem", "RootDirectoryOrRootImage"),
        "DeviceAllow",
    }
    needed = {"RestrictAddressFamilies_AF_INET_INET6", "RestrictAddressFamilies_AF_UNIX", "IPAddressDeny"}
    hooks = {"MemoryDenyWriteExecute"}
    manager = {"UserOrDynamicUser"}  # a unit of a user manager runs as that user
    assert open_rows <= capabilities | namespaces | needed | hooks | manager
    text = _analyze(tmp_path, rendered, "security", "--offline=yes", "--no-pager").stdout
    overall = re.search(r"Overall exposure level for \S+: ([\d.]+)", text)
    assert overall
    assert float(overall[1]) <= 6.3
