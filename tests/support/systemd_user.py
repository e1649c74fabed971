"""A real `systemd --user` of a test's own, as root or as a user without privileges, with everything removed afterwards.

What it takes: an (empty) /run/systemd/system, by which systemctl knows that systemd runs here; a private
XDG_RUNTIME_DIR with a bus in it; and a control group of its own. Without the last one a manager of root that finds
itself in the root group moves *every process of the machine* into a group that it makes (seen), so that comes first.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

UNPRIVILEGED_USER = "nobody"
_BOOTED = Path("/run/systemd/system")
_MANAGERS = (Path("/usr/lib/systemd/systemd"), Path("/lib/systemd/systemd"))
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_not() -> str | None:
    """Why no user manager can be started here, or None."""
    if sys.platform != "linux":
        return "systemd is Linux's"
    missing = [tool for tool in ("systemctl", "dbus-daemon", "setpriv") if not shutil.which(tool)]
    if missing or _manager_binary() is None:
        return f"not installed: {', '.join(missing) or 'systemd'}"
    if os.geteuid() != 0:
        return "needs root, to give the manager a control group of its own"
    try:
        groups = [_make_group(group) for group in _group_paths(f"qwen-watcher-probe-{os.getpid()}")]
    except OSError as error:
        return f"no control group can be made: {error}"
    for group in groups:
        group.rmdir()
    return None if groups else "no control group file system is mounted"


def wait_for(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Return once `condition` holds; fail with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


@dataclass(frozen=True)
class UserManager:
    """A running manager: how to call it, and where its user's files are."""

    user: str
    uid: int
    gid: int
    home: Path
    environ: Mapping[str, str]
    log: Path
    """What the manager itself printed."""

    @property
    def unit_dir(self) -> Path:
        """Where a user puts units."""
        return self.home / ".config" / "systemd" / "user"

    def as_user(self, argv: Sequence[str]) -> list[str]:
        """`argv` started as the manager's user."""
        if self.uid == os.geteuid():
            return list(argv)
        ids = [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        return ["setpriv", *ids, "--", *argv]

    def run(
        self, *argv: str, check: bool = True, timeout: float = 60, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the user, in the user's environment."""
        done = subprocess.run(
            self.as_user(argv),
            env={**self.environ, **(environ or {})},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{shlex.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def systemctl(self, *args: str, check: bool = True, timeout: float = 60) -> str:
        """`systemctl --user …`; its standard output, stripped."""
        return self.run("systemctl", "--user", *args, check=check, timeout=timeout).stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.systemctl("show", unit, f"--property={name}", "--value")

    def own(self, path: Path) -> Path:
        """Give a path and all below it to the user; returns it."""
        for entry in (path, *path.rglob("*")):
            os.chown(entry, self.uid, self.gid, follow_symlinks=False)
        return path


@contextmanager
def user_manager(user: str = "root") -> Iterator[UserManager]:
    """A running `systemd --user` of that user, with an empty home; ended and removed on leaving.

    Raises AssertionError, with what the manager printed, when it does not come up.
    """
    account = pwd.getpwnam(user)
    # A socket's path is short, and pytest's own directory is closed to other users.
    root = Path(tempfile.mkdtemp(prefix="qw-", dir="/tmp"))
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, root, ignore_errors=True)
        home, runtime = root / "home", root / "run"
        (home / ".config" / "systemd" / "user").mkdir(parents=True)
        runtime.mkdir(mode=0o700)
        environ = {
            "HOME": str(home),
            "USER": user,
            "LOGNAME": user,
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(runtime),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus",
        }
        manager = UserManager(user, account.pw_uid, account.pw_gid, home, environ, root / "systemd.log")
        manager.own(root)
        cleanup.enter_context(_booted_marker())
        groups = cleanup.enter_context(_own_groups(root.name, account.pw_uid))
        bus_address = environ["DBUS_SESSION_BUS_ADDRESS"]
        bus = ["dbus-daemon", "--session", f"--address={bus_address}", "--nofork", "--nopidfile"]
        cleanup.enter_context(_process(manager, bus, groups))
        wait_for(lambda: (runtime / "bus").exists(), seconds=20, what="the session bus listens")
        cleanup.enter_context(_process(manager, [str(_manager_binary()), "--user"], groups))
        cleanup.callback(manager.systemctl, "exit", check=False)
        try:
            wait_for(lambda: _is_up(manager), seconds=30, what="the user manager is up")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{manager.log.read_text(errors='replace')}") from error
        yield manager


def python_for(manager: UserManager) -> str | None:
    """A Python 3.11 or later that a *service* of this manager can start, or None.

    The interpreter of this run may stand where other users cannot read it.
    """
    script = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3"):
        command = ["systemd-run", "--user", "--wait", "--quiet", "--collect", python, "-c", script]
        if manager.run(*command, check=False).returncode == 0:
            return python
    return None


def _is_up(manager: UserManager) -> bool:
    return manager.systemctl("is-system-running", check=False) in ("running", "degraded")


def _manager_binary() -> Path | None:
    return next((path for path in _MANAGERS if path.exists()), None)


def _group_paths(name: str) -> list[Path]:
    """A child of this process's own group, in each hierarchy in which systemd keeps its units: v1, v2 or both."""
    mounts: dict[str, Path] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split(" ")
        if kind == "cgroup2":
            mounts[""] = Path(where)
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            mounts["name=systemd"] = Path(where)
    paths = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers in mounts:
            paths.append(mounts[controllers] / group.lstrip("/") / name)
    return paths


def _make_group(group: Path) -> Path:
    group.mkdir()
    return group


@contextmanager
def _own_groups(name: str, uid: int) -> Iterator[list[Path]]:
    groups = [_make_group(group) for group in _group_paths(name)]
    try:
        for group in groups:
            for path in (group, *group.iterdir()):
                os.chown(path, uid, -1)
        yield groups
    finally:
        # A manager of root makes groups of the same name in the hierarchies of single controllers (cgroup v1), too.
        everywhere = {*groups, *Path("/sys/fs/cgroup").glob(f"*/**/{name}")}
        for group in everywhere:
            wait_for(lambda group=group: _remove_group(group), seconds=20, what=f"{group} is empty")  # type: ignore[misc]


def _remove_group(group: Path) -> bool:
    """Kill what is left in a group and remove it with its children; False while something is still ending."""
    for path in sorted((p for p in (group, *group.rglob("*")) if p.is_dir()), reverse=True):
        try:
            for pid in (path / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


@contextmanager
def _booted_marker() -> Iterator[None]:
    if _BOOTED.exists():
        yield
        return
    made_parent = not _BOOTED.parent.exists()
    _BOOTED.mkdir(parents=True)
    try:
        yield
    finally:
        with suppress(OSError):
            _BOOTED.rmdir()
            if made_parent:
                _BOOTED.parent.rmdir()


@contextmanager
def _process(manager: UserManager, argv: Sequence[str], groups: Sequence[Path]) -> Iterator[None]:
    """A process of the manager's user that is in the given groups before it becomes `argv`."""
    enter = " && ".join(f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))}" for group in groups)
    with manager.log.open("ab") as log:
        process = subprocess.Popen(
            ["sh", "-c", f'{enter} && exec "$@"', "sh", *manager.as_user(argv)],
            env=dict(manager.environ),
            cwd=manager.home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5 if "--user" in argv else 0.1)
        process.kill()
        process.wait()
