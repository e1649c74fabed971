"""Checks of the user service: installed, running, of this version, in the right environment, without a login."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from watcher.doctor.values import Check, DoctorContext, Status
from watcher.service import ServiceState, ServiceStatus, carried_variables, parse_variables
from watcher.service.environment import decides_places
from watcher.service.files import read_text

INSTALL = "qwen-watcher service install"


def check_service(context: DoctorContext) -> Check:
    """The service is installed, starts at login, runs, and is this program in this version."""
    service = context.service
    if service is None:
        return Check("service", Status.WARN, context.service_problem or "no service manager", "qwen-watcher run")
    if not service.installed:
        detail = "not installed; the watcher works only while `qwen-watcher run` does"
        return Check("service", Status.WARN, detail, INSTALL)
    if service.interpreter_missing:
        detail = f"{service.unit_path} starts {service.command[0]}, which is gone"
        return Check("service", Status.FAIL, detail, INSTALL)
    if service.state is ServiceState.FAILED:
        logs = "qwen-watcher service logs"
        return Check("service", Status.FAIL, f"it failed: {service.detail}", f"{logs}  # says why; then {INSTALL}")
    if service.state is ServiceState.UNKNOWN:
        return Check("service", Status.WARN, "installed, but its manager does not answer here", "qwen-watcher run")
    if service.state is ServiceState.STOPPED:
        return Check("service", Status.WARN, "installed, but stopped", INSTALL)
    if not service.enabled:
        return Check("service", Status.WARN, "it runs, but will not start at login", INSTALL)
    if context.running_version and context.running_version != context.version:
        detail = f"it runs version {context.running_version}, this command is {context.version}"
        return Check("service", Status.WARN, detail, INSTALL)
    if service.ours and context.service_command and service.command[:1] != context.service_command[:1]:
        detail = f"it runs {service.command[0]}, this command {context.service_command[0]}"
        return Check("service", Status.WARN, detail, f"{INSTALL}  # lets it run this one")
    if not context.unit_current:
        detail = f"{service.unit_path} was written by another version of this program"
        return Check("service", Status.WARN, detail, INSTALL)
    running = f", pid {service.pid}" if service.pid else ""
    return Check("service", Status.OK, f"{service.manager}, {service.state}{running}: {service.unit_path}")


def check_service_environment(context: DoctorContext) -> Check:
    """The service sees the variables that this shell has and the watcher needs. Names only, never values."""
    name = "service_environment"
    if context.service is None or not context.service.installed:
        return Check(name, Status.OK, "no service is installed")
    theirs = service_environment(context.service, context.service_file)
    ours = carried_variables(context.environ)
    differing = sorted(each for each, value in ours.items() if theirs.get(each) != value)
    key = context.key_variable
    if key and context.environ.get(key) and not theirs.get(key):
        detail = f"{key}, the key of your model, is set in this shell only"
        config_dir = context.roots[0].config_dir if context.roots else Path("~/.qwen")
        return Check(name, Status.FAIL, detail, f"{INSTALL} --store-key  # or put {key} into {config_dir / '.env'}")
    if differing:
        detail = f"the service does not see what this shell has: {', '.join(differing)}"
        return Check(name, Status.WARN, detail, f"{INSTALL}  # in the shell that has them")
    places = sorted(each for each in theirs if decides_places(each) and each not in ours)
    if places:
        detail = f"the service has what this shell has not, so commands here may look elsewhere: {', '.join(places)}"
        return Check(name, Status.WARN, detail, f"{INSTALL}  # lets it go without, as this shell")
    return Check(name, Status.OK, f"as in this shell: {', '.join(ours)}" if ours else "nothing to carry over")


def check_lingering(context: DoctorContext) -> Check:
    """The service also runs while the user is logged out."""
    if context.service is None or not context.service.installed or context.lingers is None:
        return Check("lingering", Status.OK, "does not apply")
    if context.lingers:
        return Check("lingering", Status.OK, "the service runs without a login")
    detail = "the service stops at logout and starts at the next login"
    return Check("lingering", Status.WARN, detail, shlex.join(["loginctl", "enable-linger", context.user]))


def service_environment(service: ServiceStatus, file: Path | None) -> Mapping[str, str]:
    """The variables of the service: those of its running process, else those that its file holds.

    Raises ServiceError when the file cannot be read.
    """
    if service.pid is not None:
        try:
            content = Path(f"/proc/{service.pid}/environ").read_bytes()
        except OSError:
            content = b""
        if content:
            pairs = (entry.partition("=") for entry in content.decode("utf-8", "surrogateescape").split("\0"))
            return {name: value for name, separator, value in pairs if separator}
    return parse_variables((read_text(file) if file else None) or "")
