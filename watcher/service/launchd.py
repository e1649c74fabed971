"""The user service on launchd: a plist rendered with `plistlib`, and `launchctl`. Never run on a Mac so far."""

from __future__ import annotations

import plistlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from watcher.errors import ServiceError
from watcher.paths import home_dir, log_path
from watcher.service.environment import block_variables, dropped_notes, with_block, without_block
from watcher.service.files import FileChange, applied, read_text, remove_empty_directories
from watcher.service.templates import LAUNCHD_TEMPLATE, read_template
from watcher.service.values import (
    FOREGROUND_HINT,
    CommandResult,
    InstallRequest,
    InstallResult,
    Runner,
    ServiceState,
    ServiceStatus,
    UninstallResult,
)

LABEL = "qwen-session-watcher"
_MARK = "<!-- Written by `qwen-watcher service install`; the next one replaces it. -->"
_POLL_SECONDS = 0.25


def start_command(command: tuple[str, ...], environment_file: Path) -> tuple[str, ...]:
    """`command` started with the variables of the file in place: launchd has no `EnvironmentFile=`.

    `command` is an interpreter and its arguments (`interpreter.Interpreter.run_command`).
    """
    interpreter, *arguments = command
    return (interpreter, "-P", "-m", "watcher.service.start", str(environment_file), *arguments)


def render_plist(
    template: str, command: tuple[str, ...], *, environment_file: Path, log: Path, search_path: str
) -> str:
    """The property list: the template with this command, this log and this PATH, since launchd's own is very short.

    Raises ServiceError when the template is damaged.
    """
    try:
        values: dict[str, Any] = plistlib.loads(template.encode())
    except (ValueError, ExpatError) as error:
        raise ServiceError("the plist template is damaged; install qwen-session-watcher again") from error
    values["ProgramArguments"] = list(start_command(command, environment_file))
    values["StandardOutPath"] = values["StandardErrorPath"] = str(log)
    if search_path:
        values["EnvironmentVariables"] = {"PATH": search_path}
    head, plist, body = plistlib.dumps(values, sort_keys=False).decode().partition("<plist")
    return f"{head}{_MARK}\n{plist}{body}"


def is_ours(plist: str) -> bool:
    """Whether `service install` wrote this plist."""
    return _MARK in plist


class LaunchdService:
    """The watcher as a launchd agent of this user."""

    name = "launchd"

    def __init__(
        self,
        environ: Mapping[str, str],
        run: Runner,
        *,
        uid: int,
        environment_path: Path,
        wait_seconds: float = 30.0,
    ) -> None:
        self._environ = environ
        self._run = run
        self._uid = uid
        self._environment_path = environment_path
        self._wait_seconds = wait_seconds
        self._plist_path = home_dir(environ) / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._log_path = log_path(environ)

    def check_available(self) -> None:
        """Raises ServiceError, in one line, when launchd does not answer."""
        self._domain()

    def install(self, request: InstallRequest) -> InstallResult:
        """Write, enable, start and wait until it runs. On failure files and service are as they were before."""
        domain = self._domain()
        template = read_template(LAUNCHD_TEMPLATE)
        old_plist = read_text(self._plist_path)
        if old_plist is not None and not is_ours(old_plist) and old_plist != template:
            raise ServiceError(f"{self._plist_path} was not written by `service install`; move it away first")
        old_environment = read_text(self._environment_path)
        environment = with_block(old_environment, request.carried, request.stored)
        plist = render_plist(
            template,
            request.command,
            environment_file=self._environment_path,
            log=self._log_path,
            search_path=self._environ.get("PATH", ""),
        )
        changes = [
            FileChange(self._environment_path, environment, 0o600),
            FileChange(self._plist_path, plist, 0o644),
        ]
        changed = any(change.differs for change in changes)
        before = self._print(domain)
        try:
            with applied(changes):
                self._stop(domain)
                self._must("enable", f"{domain}/{LABEL}")
                self._must("bootstrap", domain, str(self._plist_path))
                self._wait_until(lambda: self._print(domain).get("state") == "running", "run")
        except ServiceError:
            self._run(["launchctl", "bootout", f"{domain}/{LABEL}"])
            if before:
                self._run(["launchctl", "bootstrap", domain, str(self._plist_path)])
            remove_empty_directories(self._environment_path.parent, up_to=home_dir(self._environ))
            raise
        variables = tuple(block_variables(environment))
        return InstallResult(
            manager=self.name,
            unit_path=self._plist_path,
            environment_path=self._environment_path if variables else None,
            command=request.command,
            changed=changed,
            restarted=bool(before),
            variables=variables,
            notes=(*dropped_notes(old_environment, environment), f"its log is {self._log_path}"),
        )

    def uninstall(self) -> UninstallResult:
        """Stop it and remove exactly what `install` made; the log stays."""
        plist, environment = read_text(self._plist_path), read_text(self._environment_path)
        if plist is not None and not is_ours(plist):
            raise ServiceError(f"{self._plist_path} was not written by `service install`; remove it by hand")
        was_running = False
        if plist is not None:
            domain = self._domain()
            was_running = self._print(domain).get("state") == "running"
            self._stop(domain)
        changes = []
        if plist is not None:
            changes.append(FileChange(self._plist_path, None, 0o644))
        if block_variables(environment):
            changes.append(FileChange(self._environment_path, without_block(environment), 0o600))
        with applied(changes):
            pass
        remove_empty_directories(self._environment_path.parent, up_to=home_dir(self._environ))
        notes = (f"the log was left in place: {self._log_path}",) if self._log_path.exists() else ()
        return UninstallResult(tuple(change.path for change in changes), was_running, notes)

    def status(self) -> ServiceStatus:
        """What is installed and what it does now."""
        try:
            plist = read_text(self._plist_path)
        except ServiceError:
            plist = ""
        try:
            domain = self._domain()
        except ServiceError:
            domain = ""
        shown = self._print(domain) if domain else {}
        exit_code = shown.get("last exit code", "")
        if not domain:
            state = ServiceState.UNKNOWN
        elif shown.get("state") == "running":
            state = ServiceState.RUNNING
        elif shown and exit_code.isdigit() and int(exit_code):
            state = ServiceState.FAILED
        else:
            state = ServiceState.STARTING if "spawn" in shown.get("state", "") else ServiceState.STOPPED
        pid = shown.get("pid", "")
        return ServiceStatus(
            manager=self.name,
            unit_path=self._plist_path,
            installed=plist is not None,
            ours=plist is not None and is_ours(plist),
            enabled=plist is not None and bool(domain) and not self._is_disabled(domain),
            state=state,
            pid=int(pid) if pid.isdigit() else None,
            command=_program_arguments(plist or ""),
            detail=f"exit status {exit_code}" if state is ServiceState.FAILED else "",
        )

    def is_current(self, command: Sequence[str]) -> bool:
        """Whether the plist is what `install` would write now, its PATH aside; True as well where it is not ours."""
        plist = read_text(self._plist_path)
        if plist is None or not is_ours(plist):
            return True
        rendered = render_plist(
            read_template(LAUNCHD_TEMPLATE),
            tuple(command),
            environment_file=self._environment_path,
            log=self._log_path,
            search_path=_search_path(plist),
        )
        return plist == rendered

    def lingers(self) -> bool | None:
        """Always None: an agent of launchd runs while its user is logged in."""
        return None

    def logs_command(self, *, lines: int, follow: bool) -> list[str]:
        """The program that shows the service's log."""
        return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(self._log_path)]

    def _domain(self) -> str:
        """`gui/UID` where the user is logged in at the screen, else `user/UID`. Raises ServiceError without launchd."""
        for domain in (f"gui/{self._uid}", f"user/{self._uid}"):
            done = self._run(["launchctl", "print", domain])
            if done.returncode == 0:
                return domain
        raise ServiceError(f"launchd does not answer here: {done.message}; {FOREGROUND_HINT}")

    def _print(self, domain: str) -> dict[str, str]:
        """What launchd says of the service, `name = value` lines; empty when it is not loaded."""
        done = self._run(["launchctl", "print", f"{domain}/{LABEL}"])
        if done.returncode != 0:
            return {}
        # Only the service's own lines: those of its endpoints and the like are indented further.
        return dict(re.findall(r"^\t([a-z][a-z ]*) = (.*)$", done.stdout, re.MULTILINE))

    def _is_disabled(self, domain: str) -> bool:
        done = self._run(["launchctl", "print-disabled", domain])
        return re.search(rf'"{LABEL}" => (?:true|disabled)', done.stdout) is not None

    def _stop(self, domain: str) -> None:
        """Unload it and wait for its end: `bootout` returns before, and a `bootstrap` in between would fail."""
        if not self._print(domain):
            return
        self._run(["launchctl", "bootout", f"{domain}/{LABEL}"])
        self._wait_until(lambda: not self._print(domain), "stop")

    def _must(self, *args: str) -> None:
        done: CommandResult = self._run(["launchctl", *args])
        if done.returncode != 0:
            raise ServiceError(f"launchctl {' '.join(args)} failed: {done.message or done.returncode}")

    def _wait_until(self, condition: Callable[[], bool], verb: str) -> None:
        deadline = time.monotonic() + self._wait_seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"the service did not {verb} within {self._wait_seconds:g} s; its log is {self._log_path}, "
                    "and `qwen-watcher run` in this shell shows why. Nothing was left installed"
                )
            time.sleep(_POLL_SECONDS)


def _program_arguments(plist: str) -> tuple[str, ...]:
    return tuple(str(word) for word in _values(plist).get("ProgramArguments", ()))


def _search_path(plist: str) -> str:
    variables = _values(plist).get("EnvironmentVariables")
    return str(variables.get("PATH", "")) if isinstance(variables, dict) else ""


def _values(plist: str) -> dict[str, Any]:
    """What a property list holds; empty when it cannot be read."""
    try:
        values = plistlib.loads(plist.encode())
    except (ValueError, ExpatError):
        return {}
    return values if isinstance(values, dict) else {}
