"""What the service commands take and give back; printing is the caller's."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from watcher.errors import words_of

SERVICE_NAME = "qwen-watcher"
FOREGROUND_HINT = "start it in the foreground instead: qwen-watcher run"
COMMAND_TIMEOUT_SECONDS = 150.0
"""More than the unit's TimeoutStartSec plus TimeoutStopSec: systemd reports those itself."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a program ended. `returncode` is 127 when it does not exist, 124 when it took too long."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def message(self) -> str:
        """What it complained about, as one line."""
        return " ".join((self.stderr.strip() or self.stdout.strip()).split())


Runner = Callable[[Sequence[str]], CommandResult]
"""Runs a program and waits for its end; raises nothing."""


def command_runner(environ: Mapping[str, str], *, timeout_seconds: float = COMMAND_TIMEOUT_SECONDS) -> Runner:
    """A runner with that environment, no input, and texts in English, as far as the program can."""

    def run(argv: Sequence[str]) -> CommandResult:
        try:
            done = subprocess.run(
                list(argv),
                env={**environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return CommandResult(124, "", f"{argv[0]} did not answer within {timeout_seconds:g} s")
        except OSError as error:
            return CommandResult(127, "", f"{argv[0]}: {words_of(error)}")
        return CommandResult(done.returncode, done.stdout, done.stderr)

    return run


class ServiceState(StrEnum):
    """What the service manager says."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPED = "stopped"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The manager does not answer."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What is installed and what it does now."""

    manager: str
    """`systemd` or `launchd`."""
    unit_path: Path
    installed: bool
    """The unit or plist exists."""
    ours: bool
    """It was written by `service install`, not copied by hand."""
    enabled: bool
    """It starts at login."""
    state: ServiceState
    pid: int | None
    command: tuple[str, ...]
    """What the unit starts; empty when not installed."""
    detail: str
    """The manager's words: the service's own status line, or how it failed."""

    @property
    def interpreter_missing(self) -> bool:
        """The unit starts a program that is gone, as after a moved or rebuilt venv."""
        return bool(self.command) and not Path(self.command[0]).exists()


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """What to install; all of it is decided before anything is written."""

    command: tuple[str, ...]
    """What the service starts: the absolute interpreter and its arguments."""
    carried: Mapping[str, str]
    """Variables of this environment that the service would not see."""
    stored: Mapping[str, str]
    """The model's key, when the user agreed to store it."""


@dataclass(frozen=True, slots=True)
class InstallResult:
    """What an install did; it returns only once the service runs."""

    manager: str
    unit_path: Path
    environment_path: Path | None
    """None when no variable had to be carried over."""
    command: tuple[str, ...]
    changed: bool
    """Any file differs from before; a second install changes none."""
    restarted: bool
    """It ran before and was started anew."""
    variables: tuple[str, ...]
    """Names of the variables in the file; values are never shown."""
    notes: tuple[str, ...]
    """One line each, for the user."""


@dataclass(frozen=True, slots=True)
class UninstallResult:
    """What an uninstall removed; empty when there was nothing."""

    removed: tuple[Path, ...]
    was_running: bool
    notes: tuple[str, ...]


class ServiceManager(Protocol):
    """systemd or launchd. Every method raises ServiceError with one line when the manager refuses."""

    @property
    def name(self) -> str:
        """`systemd` or `launchd`."""

    def check_available(self) -> None:
        """Raises ServiceError, in one line with the remedy, when the manager does not answer."""

    def install(self, request: InstallRequest) -> InstallResult:
        """Write, enable, start and wait until it runs. On failure every file is as it was before."""

    def is_current(self, command: Sequence[str]) -> bool:
        """Whether the unit or plist is what `install` would write now; True as well where it is not ours."""

    def uninstall(self) -> UninstallResult:
        """Stop it and remove exactly what `install` made."""

    def status(self) -> ServiceStatus:
        """What is installed and what it does now."""

    def lingers(self) -> bool | None:
        """Whether it also runs without a login; None where that is not known, or not a thing of this manager."""

    def logs_command(self, *, lines: int, follow: bool) -> list[str]:
        """The program that shows the service's log."""
