"""The user service on systemd: what is done with the unit, all of it by `systemctl --user`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from watcher.errors import ServiceError
from watcher.paths import home_dir
from watcher.service.environment import block_variables, dropped_notes, with_block, without_block
from watcher.service.files import FileChange, applied, read_text, remove_empty_directories
from watcher.service.templates import SYSTEMD_TEMPLATE, read_template
from watcher.service.unit import is_ours, parse_command, render_unit
from watcher.service.values import (
    FOREGROUND_HINT,
    SERVICE_NAME,
    CommandResult,
    InstallRequest,
    InstallResult,
    Runner,
    ServiceState,
    ServiceStatus,
    UninstallResult,
)

UNIT_NAME = f"{SERVICE_NAME}.service"
LINGER_DIRECTORY = Path("/var/lib/systemd/linger")

_PROPERTIES = (
    "UnitFileState",
    "ActiveState",
    "SubState",
    "MainPID",
    "Result",
    "ExecMainStatus",
    "StatusText",
)
_STATES = {
    "active": ServiceState.RUNNING,
    "reloading": ServiceState.RUNNING,
    "activating": ServiceState.STARTING,
    "deactivating": ServiceState.RUNNING,
    "inactive": ServiceState.STOPPED,
    "failed": ServiceState.FAILED,
}
_CONFIG_EXIT_STATUS = "2"


class SystemdService:
    """The watcher as a unit of this user's `systemd --user`."""

    name = "systemd"

    def __init__(self, environ: Mapping[str, str], run: Runner, *, user: str, environment_path: Path) -> None:
        self._environ = environ
        self._run = run
        self._user = user
        self._environment_path = environment_path

    def check_available(self) -> None:
        """Raises ServiceError, in one line, when no user manager answers."""
        done = self._systemctl("show", "--property=Version", "--value")
        if done.returncode == 0 and done.stdout.strip():
            return
        hint = ""
        if not self._environ.get("XDG_RUNTIME_DIR"):
            hint = " (XDG_RUNTIME_DIR is not set, as after `su` or `sudo`; log in as this user instead)"
        raise ServiceError(f"no systemd user manager answers here{hint}: {done.message}; {FOREGROUND_HINT}")

    def lingers(self) -> bool | None:
        """Whether this user's services run without a login; None when systemd-logind does not say."""
        done = self._run(["loginctl", "show-user", self._user, "--property=Linger", "--value"])
        if done.returncode == 0 and done.stdout.strip() in ("yes", "no"):
            return done.stdout.strip() == "yes"
        return (LINGER_DIRECTORY / self._user).exists() if LINGER_DIRECTORY.is_dir() else None

    def install(self, request: InstallRequest) -> InstallResult:
        """Write, enable, start and wait for READY. On failure files and service are as they were before."""
        self.check_available()
        unit_path = self._unit_path()
        template = read_template(SYSTEMD_TEMPLATE)
        old_unit = read_text(unit_path)
        if old_unit is not None and not is_ours(old_unit) and old_unit != template:
            aside = shlex.join(["mv", str(unit_path), f"{unit_path}.old"])
            raise ServiceError(f"{unit_path} was not written by `service install`; move it away first: {aside}")
        old_environment = read_text(self._environment_path)
        environment = with_block(old_environment, request.carried, request.stored)
        changes = [
            FileChange(self._environment_path, environment, 0o600),
            FileChange(unit_path, render_unit(template, request.command, self._environment_path), 0o644),
        ]
        changed = any(change.differs for change in changes)
        before = self.status()
        was_running = before.state in (ServiceState.RUNNING, ServiceState.STARTING)
        try:
            with applied(changes):
                self._must("daemon-reload")
                self._must("enable", UNIT_NAME)
                self._start()
        except ServiceError:
            self._put_back(before, was_running=was_running)
            raise
        variables = tuple(block_variables(environment))
        return InstallResult(
            manager=self.name,
            unit_path=unit_path,
            environment_path=self._environment_path if variables else None,
            command=request.command,
            changed=changed,
            restarted=was_running,
            variables=variables,
            notes=(*dropped_notes(old_environment, environment), *self._linger_notes()),
        )

    def uninstall(self) -> UninstallResult:
        """Stop it and remove exactly what `install` made. Without a manager the files are removed all the same."""
        before = self.status()
        unit_path, environment = before.unit_path, read_text(self._environment_path)
        unit = read_text(unit_path)
        if unit is not None and not is_ours(unit):
            disable, remove = f"systemctl --user disable --now {UNIT_NAME}", shlex.join(["rm", str(unit_path)])
            raise ServiceError(f"{unit_path} was not written by `service install`; by hand: {disable} && {remove}")
        removed: list[Path] = []
        if unit is not None:
            self._systemctl("disable", "--now", UNIT_NAME)
            link = unit_path.parent / "default.target.wants" / UNIT_NAME
            link.unlink(missing_ok=True)  # `disable` has done it, where a manager answers
            removed.append(unit_path)
        changes = [FileChange(unit_path, None, 0o644)]
        if block_variables(environment):
            changes.append(FileChange(self._environment_path, without_block(environment), 0o600))
            removed.append(self._environment_path)
        with applied(changes):
            if before.state is not ServiceState.UNKNOWN:
                self._systemctl("daemon-reload")
                self._systemctl("reset-failed", UNIT_NAME)
        home = home_dir(self._environ)
        if removed:
            remove_empty_directories(unit_path.parent / "default.target.wants", up_to=home)
            remove_empty_directories(self._environment_path.parent, up_to=home)
        drop_ins = unit_path.with_name(f"{UNIT_NAME}.d")
        notes = (f"{drop_ins} is yours and was left in place",) if drop_ins.is_dir() else ()
        was_running = before.state in (ServiceState.RUNNING, ServiceState.STARTING)
        return UninstallResult(tuple(removed), was_running, notes)

    def status(self) -> ServiceStatus:
        """What is installed and what it does now."""
        shown = self._show()
        unit_path = self._unit_path()
        try:
            unit = read_text(unit_path)
        except ServiceError:
            unit = ""
        link = unit_path.parent / "default.target.wants" / UNIT_NAME
        state = _STATES.get(shown.get("ActiveState", ""), ServiceState.UNKNOWN)
        if shown.get("SubState") == "auto-restart":
            state = ServiceState.FAILED
        pid = int(shown.get("MainPID") or 0)
        return ServiceStatus(
            manager=self.name,
            unit_path=unit_path,
            installed=unit is not None,
            ours=unit is not None and is_ours(unit),
            enabled=shown["UnitFileState"] == "enabled" if shown.get("UnitFileState") else link.is_symlink(),
            state=state,
            pid=pid or None,
            command=parse_command(unit or "", str(home_dir(self._environ))),
            detail=_detail(shown, state),
        )

    def is_current(self, command: Sequence[str]) -> bool:
        """Whether the unit is what `install` would write now; True as well where it is not ours."""
        unit = read_text(self._unit_path())
        if unit is None or not is_ours(unit):
            return True
        return unit == render_unit(read_template(SYSTEMD_TEMPLATE), command, self._environment_path)

    def logs_command(self, *, lines: int, follow: bool) -> list[str]:
        """The program that shows the service's log."""
        command = ["journalctl", f"--user-unit={UNIT_NAME}", f"--lines={lines}"]
        return [*command, "--follow"] if follow else [*command, "--no-pager"]

    def _systemctl(self, *args: str) -> CommandResult:
        return self._run(["systemctl", "--user", "--no-ask-password", *args])

    def _must(self, *args: str) -> None:
        done = self._systemctl(*args)
        if done.returncode != 0:
            raise ServiceError(f"systemctl --user {shlex.join(args)} failed: {done.message or done.returncode}")

    def _start(self) -> None:
        """Start anew and wait for READY, which `systemctl` does for `Type=notify`."""
        self._systemctl("reset-failed", UNIT_NAME)
        if self._systemctl("restart", UNIT_NAME).returncode == 0:
            return
        shown = self._show()
        reason = _detail(shown, ServiceState.FAILED) or "it did not report that it is ready"
        log = self._run(["journalctl", f"--user-unit={UNIT_NAME}", "--lines=1", "--output=cat", "--no-pager"])
        last = f": {log.stdout.strip()}" if log.returncode == 0 and log.stdout.strip() else ""
        remedy = "`qwen-watcher run` in this shell shows why"
        if shown.get("ExecMainStatus") == _CONFIG_EXIT_STATUS:
            remedy = "the configuration is wrong; `qwen-watcher config show` says where"
        raise ServiceError(f"the service did not start ({reason}){last}; {remedy}. Nothing was left installed")

    def _put_back(self, before: ServiceStatus, *, was_running: bool) -> None:
        """After the files are as before: the manager as well, as far as it lets us."""
        if not was_running:
            self._systemctl("stop", UNIT_NAME)
        if not before.enabled:
            self._systemctl("disable", UNIT_NAME)
            (before.unit_path.parent / "default.target.wants" / UNIT_NAME).unlink(missing_ok=True)
        self._systemctl("daemon-reload")
        if was_running:
            self._systemctl("restart", UNIT_NAME)
        else:
            self._systemctl("reset-failed", UNIT_NAME)
        if not before.installed:
            home = home_dir(self._environ)
            remove_empty_directories(before.unit_path.parent / "default.target.wants", up_to=home)
            remove_empty_directories(self._environment_path.parent, up_to=home)

    def _show(self) -> dict[str, str]:
        """The properties of the unit and, by another question, of the manager; empty when it does not answer."""
        done = self._systemctl("show", UNIT_NAME, f"--property={','.join(_PROPERTIES)}")
        if done.returncode != 0:
            return {}
        pairs = (line.partition("=") for line in done.stdout.splitlines())
        return {name: value for name, separator, value in pairs if separator}

    def _unit_path(self) -> Path:
        """Where the *manager* looks for this user's units: it may not have this shell's XDG_CONFIG_HOME."""
        home = home_dir(self._environ)
        bases = [home / ".config"]
        if self._environ.get("XDG_CONFIG_HOME", "").startswith("/"):
            bases.insert(0, Path(self._environ["XDG_CONFIG_HOME"]))
        done = self._systemctl("show", "--property=UnitPath", "--value")
        searched = f" {done.stdout.strip()} " if done.returncode == 0 else ""
        directories = [base / "systemd" / "user" for base in bases]
        chosen = next((path for path in directories if f" {path} " in searched), directories[0])
        return chosen / UNIT_NAME

    def _linger_notes(self) -> tuple[str, ...]:
        if self.lingers() is not False:
            return ()
        command = shlex.join(["loginctl", "enable-linger", self._user])
        return (f"it runs while you are logged in; to keep it running after a logout or reboot: {command}",)


def _detail(shown: Mapping[str, str], state: ServiceState) -> str:
    if state is ServiceState.FAILED:
        status, result = shown.get("ExecMainStatus", "0"), shown.get("Result", "")
        kind = "signal" if result in ("signal", "core-dump") else "exit status"
        again = ", systemd starts it again" if shown.get("SubState") == "auto-restart" else ""
        return (f"{result}, {kind} {status}" if status != "0" else result) + again
    return shown.get("StatusText", "")
