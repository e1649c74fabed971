"""launchd: the `launchctl` calls, against a stand-in program that records them and keeps a state. No Mac was used."""

from __future__ import annotations

import json
import os
import plistlib
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from watcher.errors import ServiceError
from watcher.service import InstallRequest, LaunchdService, ServiceState, command_runner, find_manager, log_path
from watcher.service.environment import environment_path

LAUNCHCTL = '''#!{python}
"""A launchctl with one service: records each call, and does what launchctl(1) says of it."""
import json, os, sys
base = {base!r}
state_file = os.path.join(base, "state.json")
state = json.load(open(state_file)) if os.path.exists(state_file) else {{}}
words = sys.argv[1:]
with open(os.path.join(base, "calls"), "a") as calls:
    calls.write(json.dumps(words) + "\\n")
def save():
    json.dump(state, open(state_file, "w"))
domains = state.get("domains", ["gui/501", "user/501"])
label = "qwen-session-watcher"
match words:
    case ["print", target] if target in domains:
        print(target + " = {{")
    case ["print", target] if state.get("loaded") and target == state["loaded"] + "/" + label:
        if state.get("ending"):
            state["ending"] -= 1
            state["loaded"] = state["loaded"] if state["ending"] else None
            save()
        running = not state.get("broken")
        print(target + " = {{\\n\\tactive count = 1\\n\\tstate = " + ("running" if running else "spawn scheduled"))
        print("\\tpid = 4711" if running else "\\tlast exit code = 2")
        print("\\tendpoints = {{\\n\\t\\tstate = other\\n\\t}}\\n}}")
    case ["print-disabled", target]:
        print('disabled services = {{\\n\\t"' + label + '" => ' + ("disabled" if state.get("off") else "enabled"))
    case ["enable", _]:
        state["off"] = False; save()
    case ["bootstrap", domain, path] if domain in domains and not state.get("loaded") and os.path.exists(path):
        state["loaded"] = domain; save()
    case ["bootout", target] if state.get("loaded"):
        state["ending"] = 2; save()
        sys.exit(36)
    case _:
        sys.exit("Could not find service")
'''


class Mac:
    """A home, a stand-in launchctl, and the service on them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "Üser name"
        self.home.mkdir()
        program = base / "bin" / "launchctl"
        program.parent.mkdir()
        program.write_text(LAUNCHCTL.format(python=sys.executable, base=str(base)))
        program.chmod(0o755)
        self.environ = {"HOME": str(self.home), "PATH": f"{program.parent}:/usr/bin:/bin"}
        self.environment_file = environment_path(self.environ)
        self.plist = self.home / "Library" / "LaunchAgents" / "qwen-session-watcher.plist"

    def service(self) -> LaunchdService:
        run = command_runner(self.environ, timeout_seconds=60)
        return LaunchdService(self.environ, run, uid=501, environment_path=self.environment_file, wait_seconds=1.5)

    def set(self, **state: object) -> None:
        file = self.base / "state.json"
        now = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**now, **state}))

    def calls(self) -> list[str]:
        """The calls that change something, since the last question."""
        file = self.base / "calls"
        calls = [" ".join(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        return [call for call in calls if not call.startswith("print")]

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file())


@pytest.fixture
def mac(tmp_path: Path) -> Mac:
    """A home with a space and a letter beyond ASCII in its path."""
    return Mac(tmp_path)


REQUEST = InstallRequest(
    command=("/opt/py thon/bin/python", "-P", "-m", "watcher", "run"),
    carried={"HTTPS_PROXY": "http://p"},
    stored={"MY_KEY": "sesame"},
)


def test_install_writes_enables_starts_and_waits(mac: Mac) -> None:
    """Install loads the agent into the user's graphical domain and returns once it runs; the key is in no plist."""
    result = mac.service().install(REQUEST)
    assert mac.calls() == [
        "enable gui/501/qwen-session-watcher",
        f"bootstrap gui/501 {mac.plist}",
    ]
    assert (result.changed, result.restarted, result.variables) == (True, False, ("HTTPS_PROXY", "MY_KEY"))
    plist = plistlib.loads(mac.plist.read_bytes())
    assert plist["ProgramArguments"] == [
        *("/opt/py thon/bin/python", "-P", "-m", "watcher.service.start", str(mac.environment_file)),
        *("-P", "-m", "watcher", "run"),
    ]
    assert plist["StandardErrorPath"] == str(log_path(mac.environ))
    assert b"sesame" not in mac.plist.read_bytes()
    assert stat.S_IMODE(mac.environment_file.stat().st_mode) == 0o600
    status = mac.service().status()
    assert (status.installed, status.ours, status.enabled, status.pid) == (True, True, True, 4711)
    assert status.state is ServiceState.RUNNING
    assert status.interpreter_missing


def test_an_agent_of_another_version_is_told(mac: Mac) -> None:
    """Current after an install, from any shell; not after the program moved or the template changed."""
    assert mac.service().is_current(REQUEST.command)
    mac.service().install(REQUEST)
    mac.environ["PATH"] += ":/another"
    assert mac.service().is_current(REQUEST.command)
    assert not mac.service().is_current(("/moved/python", *REQUEST.command[1:]))
    mac.plist.write_text(mac.plist.read_text().replace("Background", "Standard"))
    assert not mac.service().is_current(REQUEST.command)
    mac.plist.write_bytes(b"not ours")
    assert mac.service().is_current(REQUEST.command)


def test_without_launchd_it_says_so_at_once(mac: Mac) -> None:
    """Asked before anything is decided."""
    mac.service().check_available()
    mac.set(domains=[])
    with pytest.raises(ServiceError, match="launchd does not answer"):
        mac.service().check_available()


@pytest.mark.slow
def test_a_second_install_changes_no_file_and_restarts(mac: Mac) -> None:
    """Installing again leaves the files as they are and starts the service anew, after the old one has ended."""
    mac.service().install(REQUEST)
    before = mac.plist.read_bytes()
    mac.calls()
    result = mac.service().install(REQUEST)
    assert (result.changed, result.restarted) == (False, True)
    assert mac.plist.read_bytes() == before
    assert mac.calls() == [
        "bootout gui/501/qwen-session-watcher",
        "enable gui/501/qwen-session-watcher",
        f"bootstrap gui/501 {mac.plist}",
    ]
    assert not any("no longer has" in note for note in result.notes)
    result = mac.service().install(replace(REQUEST, carried={}))
    for name in REQUEST.carried:
        assert any("no longer has" in note and name in note for note in result.notes)


def test_uninstall_removes_exactly_what_install_made(mac: Mac) -> None:
    """After uninstall no file of the install is left, and a second one has nothing to do."""
    own = mac.home / "Library" / "LaunchAgents" / "other.plist"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    mac.service().install(REQUEST)
    mac.calls()
    result = mac.service().uninstall()
    assert result.removed == (mac.plist, mac.environment_file)
    assert result.was_running
    assert mac.calls() == ["bootout gui/501/qwen-session-watcher"]
    assert mac.files() == ["Library/LaunchAgents/other.plist"]
    assert mac.service().uninstall().removed == ()


def test_a_service_that_does_not_start_leaves_nothing(mac: Mac) -> None:
    """When it does not run in time, the plist and the variables are gone again and it is unloaded."""
    mac.set(broken=True)
    with pytest.raises(ServiceError, match="did not run within"):
        mac.service().install(REQUEST)
    assert mac.files() == []
    assert mac.calls()[-1] == "bootout gui/501/qwen-session-watcher"


@pytest.mark.slow
def test_a_failed_repair_puts_the_old_agent_back(mac: Mac) -> None:
    """When a second install fails, the plist of the first is back and loaded."""
    mac.service().install(REQUEST)
    before = mac.plist.read_bytes()
    mac.set(broken=True)
    with pytest.raises(ServiceError):
        mac.service().install(InstallRequest(command=("/other/python", "-m", "watcher"), carried={}, stored={}))
    assert mac.plist.read_bytes() == before


def test_without_a_graphical_login_the_user_domain_is_used(mac: Mac) -> None:
    """Over ssh there is no gui domain: the agent goes into the user's."""
    mac.set(domains=["user/501"])
    mac.service().install(REQUEST)
    assert mac.calls()[-1] == f"bootstrap user/501 {mac.plist}"


def test_without_launchd_one_line_says_what_to_do(mac: Mac) -> None:
    """Where launchd does not answer, nothing is written and the error names the `run` command."""
    mac.set(domains=[])
    with pytest.raises(ServiceError, match="qwen-watcher run") as caught:
        mac.service().install(REQUEST)
    assert "\n" not in str(caught.value)
    assert mac.files() == []
    assert mac.service().status().state is ServiceState.UNKNOWN


def test_status_of_a_failing_and_a_disabled_agent(mac: Mac) -> None:
    """A service that ended with an error is failed, with its exit status; a disabled one does not start at login."""
    mac.service().install(REQUEST)
    mac.set(broken=True, off=True)
    status = mac.service().status()
    assert (status.state, status.detail, status.enabled, status.pid) == (
        *(ServiceState.FAILED, "exit status 2", False, None),
    )


def test_a_foreign_plist_is_left_alone(mac: Mac) -> None:
    """A plist that install did not write is neither replaced nor removed."""
    mac.plist.parent.mkdir(parents=True)
    mac.plist.write_text("<plist/>")
    with pytest.raises(ServiceError, match="was not written by"):
        mac.service().install(REQUEST)
    with pytest.raises(ServiceError, match="by hand"):
        mac.service().uninstall()
    assert mac.plist.read_text() == "<plist/>"


def test_logs_and_manager(mac: Mac) -> None:
    """The log is a file that tail follows; macOS gets launchd, and other systems a clear refusal."""
    assert mac.service().logs_command(lines=5, follow=True) == ["tail", "-n", "5", "-F", str(log_path(mac.environ))]
    assert find_manager(dict(os.environ), platform="darwin").name == "launchd"
    with pytest.raises(ServiceError, match="qwen-watcher run"):
        find_manager(dict(os.environ), platform="freebsd14")
