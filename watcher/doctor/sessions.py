"""Checks of the session files: that there are any, who wrote them, and what keeps them from being written to."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psutil

from watcher.doctor.values import Check, DoctorContext, Status, can, edit, worst
from watcher.edge.files import RealFiles
from watcher.edge.scan import Found, Unsafe, scan
from watcher.errors import words_of
from watcher.qwen.contract import LEASE_DIR, MIN_WRITABLE_VERSION, PROJECTS_DIR, parse_version
from watcher.qwen.reading import read_state
from watcher.qwen.versions import is_tested

_LOOKED_AT = 30
"""The newest sessions whose version is looked at."""
_WINDOW_BYTES = 256 * 1024
_FUTURE_SECONDS = 300.0
_NAMED = 3
_LEASE_ENDS = (".lock", ".lock.claim")
_MAX_LEASE_BYTES = 64 * 1024
_UPDATE_QWEN = "npm install -g @qwen-code/qwen-code@latest"


def check_sessions(context: DoctorContext) -> Check:
    """There are sessions, they can be read and written safely, and none is from the future."""
    unsafe: dict[str, str] = {}
    found: dict[str, Found] = {}
    for item in _files(context):
        if isinstance(item, Unsafe):
            unsafe[item.path] = item.why
        else:
            found[item.path] = item
    return worst("sessions", _judge_sessions(context, list(found.values()), unsafe), none="")


def check_qwen_version(context: DoctorContext) -> Check:
    """The Qwen Code that wrote the newest sessions is one whose files are understood."""
    files = sorted((item for item in _files(context) if isinstance(item, Found)), key=lambda file: -file.mtime_ns)
    seen = [version for file in files[:_LOOKED_AT] if (version := _version_of(file))]
    if not seen:
        return Check("qwen_version", Status.OK, "no session yet, so no version seen")
    counts = ", ".join(f"{version} ({count} sessions)" for version, count in Counter(seen).most_common())
    newest = parse_version(seen[0])
    if newest is None or newest < MIN_WRITABLE_VERSION:
        oldest = ".".join(map(str, MIN_WRITABLE_VERSION[:2]))
        detail = f"Qwen Code {seen[0][:40]} wrote the newest session; below {oldest} sessions are read, never written"
        return Check("qwen_version", Status.FAIL, detail, _UPDATE_QWEN)
    if not is_tested(seen[0]):
        detail = f"{counts}; {seen[0][:40]} is untested here: written to as long as its files look as known"
        return Check("qwen_version", Status.WARN, detail, "pipx upgrade qwen-session-watcher")
    return Check("qwen_version", Status.OK, counts)


def check_leases(context: DoctorContext) -> Check:
    """No session is held by a writer lease (contract 5): to such a session nothing is written."""
    bases = dict.fromkeys(root.runtime_base for root in context.roots)
    return worst("leases", (check for base in bases if (check := _check_leases(base))), none="none is held")


def _files(context: DoctorContext) -> Iterator[Found | Unsafe]:
    for base in dict.fromkeys(root.runtime_base for root in context.roots):
        for item in scan(str(base / PROJECTS_DIR)):
            if isinstance(item, Found | Unsafe):
                yield item


def _judge_sessions(context: DoctorContext, files: list[Found], unsafe: dict[str, str]) -> Iterator[Check]:
    recording_off = [path for path, settings in context.settings.items() if not settings.chat_recording]
    if recording_off:
        detail = "general.chatRecording is off, so Qwen Code keeps no sessions"
        yield Check("sessions", Status.FAIL, detail, edit(recording_off[0] / "settings.json"))
    closed = [file.path for file in files if not can(Path(file.path), os.R_OK | os.W_OK)]
    if closed:
        fix = shlex.join(["chmod", "u+rw", *closed[:_NAMED]])
        yield Check("sessions", Status.FAIL, f"{len(closed)} cannot be read and written: {closed[0]}", fix)
    if unsafe:
        path, why = next(iter(unsafe.items()))
        more = f" and {len(unsafe) - 1} more" if len(unsafe) > 1 else ""
        yield Check("sessions", Status.WARN, f"left alone: {path} ({why}){more}", _mend(path, why))
    ahead = [file.path for file in files if file.mtime_ns / 1e9 > context.now + _FUTURE_SECONDS]
    if ahead:
        detail = f"{len(ahead)} are dated in the future, so the clock may be wrong: {ahead[0]}"
        yield Check("sessions", Status.WARN, detail, "timedatectl status")
    if not files and not recording_off:
        yield Check("sessions", Status.WARN, "none yet", "start `qwen` in a project and say something")
    if files:
        yield Check(
            "sessions", Status.OK, f"{len(files)} in {len({file.path.rpartition('/')[0] for file in files})} projects"
        )


def _mend(path: str, why: str) -> str:
    return shlex.join(["chmod", "o-w", path]) if "everybody" in why else shlex.join(["ls", "-l", path])


def _version_of(file: Found) -> str:
    """The version in the newest record of a file, "" when it cannot be read or has none."""
    files = RealFiles()
    try:
        fd = files.open_read(file.path)
    except OSError:
        return ""
    try:
        reading = read_state(
            lambda length, offset: files.read_at(fd, length, offset),
            dev=file.dev,
            ino=file.ino,
            size=file.size,
            window=_WINDOW_BYTES,
        )
    except OSError:
        return ""
    finally:
        files.close(fd)
    return reading.state.version


def _check_leases(base: Path) -> Check | None:
    directory = base / LEASE_DIR
    try:
        names = sorted(path.name for path in directory.iterdir() if path.name.endswith(_LEASE_ENDS))
    except FileNotFoundError:
        return None
    except OSError as error:
        detail = f"{directory} cannot be read ({words_of(error)}), so every session counts as held"
        return Check("leases", Status.FAIL, detail, shlex.join(["chmod", "u+rwx", str(directory)]))
    leases = {session: _read_lease(directory / name) for name in names for session in (_session_of(name),)}
    if not leases:
        return None
    shown = ", ".join(f"{session} ({holder})" for session, holder in list(leases.items())[:_NAMED])
    more = f" and {len(leases) - _NAMED} more" if len(leases) > _NAMED else ""
    detail = f"nothing is written while they stand: {shown}{more}"
    # Never a command that removes one: a sealed lease certifies the bytes of its session (contract 5).
    return Check(
        "leases",
        Status.WARN,
        detail,
        "end the Qwen Code process that is named; if it is gone, open the session in it once",
    )


def _session_of(name: str) -> str:
    return unquote(name.removesuffix(".claim").removesuffix(".lock"))


def _read_lease(path: Path) -> str:
    """Who holds it, in words."""
    try:
        with path.open("rb") as file:
            value: Any = json.loads(file.read(_MAX_LEASE_BYTES))
    except (OSError, ValueError):
        return "unreadable"
    if not isinstance(value, dict):
        return "unreadable"
    pid = value.get("pid")
    state = "sealed" if value.get("state") == "sealed" else "held"
    if not isinstance(pid, int) or isinstance(pid, bool):
        return state
    return f"{state} by pid {pid}" + ("" if psutil.pid_exists(pid) else ", which is gone")
