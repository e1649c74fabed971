"""What a check is, what it looks at, and how checks are run. A check returns a value; printing is the caller's."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from watcher.config import Config
from watcher.core.generation import Outcome
from watcher.edge.mounts import Mount, read_mounts
from watcher.edge.store import Store
from watcher.edge.text_model import Endpoint
from watcher.edge.watch_limits import InotifyUse, read_inotify_use
from watcher.errors import WatcherError, words_of
from watcher.qwen.roots import Root
from watcher.qwen.settings import QwenSettings
from watcher.service import ServiceStatus


class Status(StrEnum):
    """How a check ended; the value is what `doctor --json` shows."""

    OK = "ok"
    WARN = "warn"
    """It works, but not as it could; or it is off on purpose."""
    FAIL = "fail"
    """It keeps the watcher from its work; `doctor` exits with 1."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, one object of `doctor --json`."""

    check: str
    """The documented name, one of `CHECK_NAMES`."""
    status: Status
    detail: str
    """One line: what was found, with its numbers."""
    fix: str = ""
    """A command that can be pasted, more words behind a ` # `; or a plain sentence. Empty: nothing to mend."""


CHECK_NAMES = (
    *("python", "packages", "homes", "filesystem", "sessions", "watch_limits", "events", "qwen_version", "settings"),
    *("fast_model", "api_key", "proxy", "endpoint", "budget", "disable_switch", "recaps", "leases", "state_dir"),
    *("instance", "brake", "service", "service_environment", "lingering"),
)
"""All checks by name, in the order in which they are shown (design 11)."""


Probe = Callable[[Endpoint], tuple[Outcome, float]]
"""Asks an endpoint once; gives what came of it and the seconds that it took."""


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """Everything the checks look at; what is a value here needs no second look at the world."""

    environ: Mapping[str, str] = field(repr=False)
    config: Config
    home: Path
    state_dir: Path
    roots: tuple[Root, ...]
    """Where sessions may be (`qwen.roots.session_roots`)."""
    settings: Mapping[Path, QwenSettings] = field(default_factory=dict)
    """Qwen Code's settings outside of any project, for each config directory."""
    config_file: Path | None = None
    """Our configuration file, which need not exist."""
    config_problem: str = ""
    """Why our configuration cannot be used; the checks then look at the defaults."""
    store: Store | None = field(default=None, repr=False)
    """The state database; None where there is none yet, or none that can be used (`store_problem`)."""
    store_problem: str = ""
    now: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    today: str = ""
    """The local date by which calls are counted."""
    probe: Probe | None = field(default=None, repr=False)
    """Makes one tiny model call; None: no model is asked."""
    model_address: str = ""
    """Base URL of the text model; empty when there is none."""
    key_variable: str = ""
    """Name of the environment variable that the model's key comes from; empty when it comes from a file or is none."""
    service: ServiceStatus | None = None
    """None: this machine has no service manager, see `service_problem`."""
    service_problem: str = ""
    service_file: Path | None = None
    """The service's file of variables."""
    service_command: tuple[str, ...] = ()
    """What `service install` would start."""
    unit_current: bool = True
    """Whether the unit is what `service install` of this version would write."""
    lingers: bool | None = None
    user: str = ""
    version: str = ""
    """Version of this command."""
    running_pid: int | None = None
    """The watcher that holds the state directory; None when none does."""
    running_version: str = ""
    """Version of the running watcher, as it noted itself; empty when none runs."""
    python_version: tuple[int, int, int] = sys.version_info[:3]
    search_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    mounts: tuple[Mount, ...] = field(default_factory=read_mounts)
    inotify: Callable[[], InotifyUse] = read_inotify_use


CheckFunction = Callable[[DoctorContext], Check]
"""A check; it may raise OSError or WatcherError, which then is its failure."""


def run_checks(context: DoctorContext, checks: Mapping[str, CheckFunction]) -> list[Check]:
    """Run the checks in the documented order. One that raises has failed; the others run all the same."""
    return [_run(name, checks[name], context) for name in CHECK_NAMES if name in checks]


def worst(name: str, findings: Iterable[Check], *, none: str) -> Check:
    """Several findings of one check as one: the worst status with its fix, all details that are not in order.

    `none` is the detail when there are no findings.
    """
    order = [Status.OK, Status.WARN, Status.FAIL]
    found = sorted(findings, key=lambda finding: order.index(finding.status), reverse=True)
    if not found:
        return Check(name, Status.OK, none)
    shown = [finding for finding in found if finding.status is not Status.OK] or found
    return Check(name, found[0].status, "; ".join(finding.detail for finding in shown), found[0].fix)


def can(path: Path, mode: int) -> bool:
    """Whether this process may, asked of the kernel: a read-only file system says no to root as well."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def edit(path: Path | None) -> str:
    """The command that opens a file in the user's editor; a fix."""
    return f"${{EDITOR:-vi}} {shlex.quote(str(path))}"


def _run(name: str, check: CheckFunction, context: DoctorContext) -> Check:
    try:
        return check(context)
    except WatcherError as error:
        return Check(name, Status.FAIL, str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return Check(name, Status.FAIL, f"the check could not be made: {words_of(error)}{where}")
