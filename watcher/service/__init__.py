"""The user service: systemd or launchd, from the templates at the top of the repository.

The caller decides what to install (`plan_install`), has it done by `find_manager`, and prints what comes back. Nothing
here prints.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from watcher.errors import ServiceError
from watcher.paths import log_path
from watcher.service.environment import (
    carried_variables,
    environment_path,
    is_carried,
    key_variable,
    parse_variables,
)
from watcher.service.interpreter import Interpreter, check_interpreter, find_interpreter
from watcher.service.launchd import LaunchdService
from watcher.service.systemd import SystemdService
from watcher.service.values import (
    FOREGROUND_HINT,
    SERVICE_NAME,
    CommandResult,
    InstallRequest,
    InstallResult,
    Runner,
    ServiceManager,
    ServiceState,
    ServiceStatus,
    UninstallResult,
    command_runner,
)

__all__ = [
    "FOREGROUND_HINT",
    "SERVICE_NAME",
    "CommandResult",
    "InstallRequest",
    "InstallResult",
    "Interpreter",
    "LaunchdService",
    "Runner",
    "ServiceManager",
    "ServiceState",
    "ServiceStatus",
    "SystemdService",
    "UninstallResult",
    "carried_variables",
    "check_interpreter",
    "command_runner",
    "environment_path",
    "find_interpreter",
    "find_manager",
    "is_carried",
    "key_variable",
    "log_path",
    "parse_variables",
    "plan_install",
]


def plan_install(
    environ: Mapping[str, str], interpreter: Interpreter, *, store_keys: Iterable[str] = ()
) -> InstallRequest:
    """What `service install` would install from this environment; nothing is written.

    `store_keys` names the variables whose values the user agreed to store.

    Raises ServiceError, with the remedy, when a service could not start this interpreter, when a key is not set, and
    for a value that cannot be carried over.
    """
    bare = {name: environ[name] for name in ("HOME", "PATH") if name in environ}
    check_interpreter(interpreter, command_runner(bare, timeout_seconds=60))
    stored = {name: value for key in store_keys for name, value in key_variable(environ, key).items()}
    return InstallRequest(command=interpreter.run_command, carried=carried_variables(environ), stored=stored)


def find_manager(environ: Mapping[str, str], *, platform: str = sys.platform) -> SystemdService | LaunchdService:
    """The service manager of this platform. It may not answer: `install` says so before anything is written.

    Raises ServiceError on a platform that has neither.
    """
    file = environment_path(environ)
    if platform == "darwin":
        return LaunchdService(environ, command_runner(environ), uid=os.getuid(), environment_path=file)
    if platform.startswith("linux"):
        run = command_runner(with_runtime_dir(environ, Path(f"/run/user/{os.getuid()}")))
        return SystemdService(environ, run, user=pwd.getpwuid(os.getuid()).pw_name, environment_path=file)
    raise ServiceError(f"neither systemd nor launchd exists on {platform}; {FOREGROUND_HINT}")


def with_runtime_dir(environ: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The environment with XDG_RUNTIME_DIR, where a login would have set it: after `su` it is missing, yet exists."""
    if environ.get("XDG_RUNTIME_DIR") or not (directory / "systemd").is_dir():
        return dict(environ)
    return {**environ, "XDG_RUNTIME_DIR": str(directory)}
