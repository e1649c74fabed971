"""Checks of the files: Qwen Code's homes, their file system, our state directory, and events on it."""

from __future__ import annotations

import os
import secrets
import shlex
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileCreatedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from watcher.doctor.values import Check, DoctorContext, Status, can, worst
from watcher.edge.mounts import FileSystemKind, classify
from watcher.edge.scan import Unreadable, chats_dirs
from watcher.edge.watch_limits import explain_limit, is_limit
from watcher.errors import words_of
from watcher.qwen.roots import Root

PROJECTS = "projects"
EVENT_SECONDS = 5.0
"""How long an event may take to arrive; it takes some milliseconds."""
_LITTLE_SPACE_BYTES = 50 * 2**20
_NO_SPACE_BYTES = 2**20
_SUGGESTED_WATCHES = 524_288


def check_homes(context: DoctorContext) -> Check:
    """Qwen Code's directories are there and can be read and written."""
    roots = [root for root in context.roots if _is_there(root.runtime_base)]
    if not roots:
        looked = ", ".join(str(root.runtime_base) for root in context.roots)
        fix = "start `qwen` once, or name its directory in [watch] homes"
        return Check("homes", Status.WARN, f"no Qwen Code directory yet: {looked}", fix)
    return worst("homes", (_check_home(root) for root in roots), none="")


def check_filesystem(context: DoctorContext) -> Check:
    """Sessions are on a file system where events arrive and appends of two processes do not mix."""
    return worst("filesystem", (_check_mount(context, root) for root in context.roots), none="nothing is watched")


def check_state_dir(context: DoctorContext) -> Check:
    """The state directory can be used, is private, is local and has room."""
    directory = context.state_dir
    mount = classify(os.path.realpath(directory), context.mounts)
    elsewhere = "export QWEN_WATCHER_STATE_DIR=/another/directory  # then: qwen-watcher service install"
    if mount.is_network:
        return Check(
            "state_dir", Status.FAIL, f"{directory}: {mount.reason}; its database needs a local disk", elsewhere
        )
    existing = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
    if not existing.is_dir() or not can(existing, os.R_OK | os.W_OK | os.X_OK):
        why = "cannot be written" if existing.is_dir() else "is not a directory"
        return Check("state_dir", Status.FAIL, f"{existing} {why}", elsewhere)
    space = os.statvfs(existing)
    free_bytes = space.f_bavail * space.f_frsize
    if free_bytes < _LITTLE_SPACE_BYTES:
        status = Status.FAIL if free_bytes < _NO_SPACE_BYTES else Status.WARN
        return Check(
            "state_dir",
            status,
            f"{directory}: {free_bytes // 2**20} MiB free",
            shlex.join(["df", "-h", str(existing)]) + "  # free some space on that disk",
        )
    if existing != directory:
        return Check("state_dir", Status.OK, f"{directory} will be made")
    found = directory.stat()
    if found.st_uid != os.geteuid():
        detail = f"{directory} belongs to another user (uid {found.st_uid})"
        return Check("state_dir", Status.FAIL, detail, elsewhere)
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        fix = shlex.join(["chmod", "700", str(directory)])
        return Check("state_dir", Status.WARN, f"{directory} is open to other users ({found.st_mode & 0o777:o})", fix)
    if context.store_problem:
        return Check("state_dir", Status.FAIL, context.store_problem, elsewhere)
    return Check("state_dir", Status.OK, f"{directory}, {free_bytes // 2**20} MiB free")


def check_watch_limits(context: DoctorContext) -> Check:
    """The kernel lets one more program watch every project directory."""
    use = context.inotify()
    if use.max_watches is None or use.max_instances is None:
        return Check("watch_limits", Status.OK, "this system has no limits on watching")
    needed = sum(_count_directories(root) for root in context.roots)
    detail = (
        f"{needed} directories to watch; fs.inotify.max_user_watches {use.max_watches}, {use.watches} used; "
        f"fs.inotify.max_user_instances {use.max_instances}, {use.instances} used"
    )
    if use.max_watches - use.watches < needed:
        more = max(_SUGGESTED_WATCHES, 2 * use.max_watches)
        return Check("watch_limits", Status.FAIL, detail, _sysctl("max_user_watches", more))
    if use.max_instances - use.instances < 1:
        more = max(1024, 2 * use.max_instances)
        return Check("watch_limits", Status.FAIL, detail, _sysctl("max_user_instances", more))
    return Check("watch_limits", Status.OK, detail)


def check_events(context: DoctorContext) -> Check:
    """A file that is made in the state directory is seen by a watch on it."""
    if context.config.watch.backend == "polling":
        return Check("events", Status.OK, "not used: watch.backend is polling")
    directory = context.state_dir
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return Check("events", Status.WARN, "no directory to try it in (see state_dir)")
    fix = 'set [watch] backend = "polling"; with auto the watcher does so by itself'
    try:
        seconds = measure_event(directory)
    except OSError as error:
        reason = explain_limit(error) if is_limit(error) else words_of(error)
        return Check("events", Status.FAIL, f"watching {directory} failed: {reason}", fix)
    if seconds is None:
        return Check("events", Status.FAIL, f"no event from {directory} within {EVENT_SECONDS:g} s", fix)
    return Check("events", Status.OK, f"an event arrived after {seconds * 1000:.0f} ms")


def measure_event(
    directory: Path,
    *,
    wait_seconds: float = EVENT_SECONDS,
    make_observer: Callable[[], BaseObserver] = Observer,
) -> float | None:
    """Make a file in `directory` and return the seconds until its event; None when none came. Raises OSError."""
    file = directory / f".doctor-{os.getpid()}-{secrets.token_hex(8)}"
    seen = threading.Event()

    class Handler(FileSystemEventHandler):
        def on_created(self, event: FileSystemEvent) -> None:
            if os.fsdecode(event.src_path).endswith(file.name):
                seen.set()

    observer = make_observer()
    observer.schedule(Handler(), str(directory), event_filter=[FileCreatedEvent])
    observer.start()
    try:
        began = time.monotonic()
        file.touch(mode=0o600)
        return time.monotonic() - began if seen.wait(wait_seconds) else None
    finally:
        file.unlink(missing_ok=True)
        observer.stop()
        observer.join()


def _check_home(root: Root) -> Check:
    base, projects = root.runtime_base, root.runtime_base / PROJECTS
    mend = shlex.join(["chmod", "u+rwx", str(base)])
    if can(base.parent, os.X_OK) and not base.is_dir():
        return Check("homes", Status.FAIL, f"{base} is not a directory", "name the right one in [watch] homes")
    if not can(base, os.R_OK | os.X_OK):
        return Check("homes", Status.FAIL, f"{base} cannot be read", mend)
    if not _is_there(projects):
        return Check("homes", Status.OK, f"{base} (no session yet)")
    found = list(chats_dirs(str(projects)))
    directories = [_closed_or_itself(Path(each)) for each in found if isinstance(each, str) and _is_there(Path(each))]
    for mode, verb, letters in ((os.R_OK | os.X_OK, "read", "u+rx"), (os.W_OK, "written", "u+w")):
        closed = [directory for directory in (projects, *directories) if not can(directory, mode)]
        if closed:
            fix = shlex.join(["chmod", letters, str(closed[0])])
            detail = f"{len(closed)} of its directories cannot be {verb}: {closed[0]}"
            return Check("homes", Status.FAIL, detail, fix)
    links = [each.directory for each in found if isinstance(each, Unreadable)]
    if links:
        return Check("homes", Status.WARN, f"{len(links)} projects are links and are not followed: {links[0]}")
    return Check("homes", Status.OK, f"{base} ({len(directories)} projects)")


def _is_there(path: Path) -> bool:
    """Also where a closed directory keeps us from seeing it: what cannot be read is told, not passed over."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _closed_or_itself(directory: Path) -> Path:
    """The directory, or the one above it where that lets nobody in."""
    return directory if can(directory.parent, os.X_OK) else directory.parent


def _check_mount(context: DoctorContext, root: Root) -> Check:
    mount = classify(os.path.realpath(root.runtime_base), context.mounts)
    if mount.is_network:
        detail = f"{mount.reason}: sessions there are read, never written"
        fix = "keep Qwen Code's directory on a local disk (QWEN_HOME, or QWEN_RUNTIME_DIR for the sessions alone)"
        return Check("filesystem", Status.FAIL, detail, fix)
    if mount.kind is FileSystemKind.UNKNOWN:
        return Check("filesystem", Status.WARN, f"{root.runtime_base}: {mount.reason}")
    return Check("filesystem", Status.OK, f"{root.runtime_base} is on {mount.type} ({mount.point})")


def _count_directories(root: Root) -> int:
    """The directories that are watched for one root: each project with its `chats`, and the root itself."""
    try:
        return (
            2 * sum(1 for entry in os.scandir(root.runtime_base / PROJECTS) if entry.is_dir(follow_symlinks=False)) + 1
        )
    except OSError:
        return 1


def _sysctl(name: str, value: int) -> str:
    return f"echo fs.inotify.{name}={value} | sudo tee /etc/sysctl.d/60-inotify.conf && sudo sysctl --system"
