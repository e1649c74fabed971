"""What a status line needs to know, found in a few milliseconds: the newest session of a directory, whether somebody
has it, and what the state database says about it.

Read only, with the standard library and nothing that takes long to load. `edge.liveness` and `edge.store` know more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from watcher.qwen.contract import (
    CHATS_DIR,
    PROJECTS_DIR,
    REGISTRY_DIR,
    REGISTRY_MAX_BYTES,
    WINDOW_BYTES,
    runtime_sidecar_name,
    sanitize_cwd,
    session_id_of,
)
from watcher.qwen.glance import Claim, Glance, glance, owner_of

LOOKED_AT: Final = 8
"""So many of the newest files are looked at for one that is a terminal session of this very directory."""
MAX_REGISTERED: Final = 64
_START_SLACK_SECONDS: Final = 10.0
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_DATABASE_SECONDS: Final = 0.03
_TERMINAL_MAJORS: Final = range(136, 144)  # proc_pid_stat(5), devices.txt: Unix98 terminals
_BEAT_DATA: Final = 4  # see `edge.store.Store.put_heartbeat`


def newest_session(bases: Sequence[str], cwds: Sequence[str]) -> tuple[str, Glance] | None:
    """The newest terminal session of this directory, and how it looks."""
    found: list[tuple[float, str]] = []
    for base in dict.fromkeys(bases):
        for folder in dict.fromkeys(sanitize_cwd(cwd) for cwd in cwds):
            found += _transcripts(f"{base}/{PROJECTS_DIR}/{folder}/{CHATS_DIR}")
    found.sort(reverse=True)
    for _, path in found[:LOOKED_AT]:
        seen = _look(path)
        # The name of the folder stands for more than one directory.
        if seen is None or seen.cwd not in cwds:
            continue
        if seen.interactive or os.path.lexists(_sidecar(path)):
            return path, seen
    return None


def _transcripts(folder: str) -> Iterator[tuple[float, str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if session_id_of(entry.name) and entry.is_file(follow_symlinks=False):
                    yield entry.stat().st_mtime, entry.path
    except OSError:
        return


def _look(path: str) -> Glance | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(fd).st_size
        head = os.pread(fd, WINDOW_BYTES, 0)
        tail = os.pread(fd, WINDOW_BYTES, size - WINDOW_BYTES) if size > WINDOW_BYTES else head
        return glance(head, tail, size)
    except OSError:
        return None
    finally:
        os.close(fd)


def _sidecar(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/{runtime_sidecar_name(session_id_of(name) or '')}"


# -- who has the session -----------------------------------------------------------------------------------------------


def owner_pid(session_id: str, path: str, config_dirs: Sequence[str]) -> int | None:
    """The process that serves the session, None when none seems to. `edge.liveness` judges with more care."""
    candidates = [_sidecar(path)]
    for folder in dict.fromkeys(config_dirs):
        try:
            names = sorted(os.listdir(f"{folder}/{REGISTRY_DIR}"))[:MAX_REGISTERED]  # noqa: PTH208
        except OSError:
            continue
        candidates += [f"{folder}/{REGISTRY_DIR}/{name}" for name in names if name.endswith(".json")]
    for candidate in candidates:
        owner = owner_of(_bytes_of(candidate))
        if owner is not None and owner.session_id == session_id and _is_alive(owner):
            return owner.pid
    return None


def _bytes_of(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, REGISTRY_MAX_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _is_alive(owner: Claim) -> bool:
    """Whether the process exists and is not a younger one that was given its number."""
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's, and there
    fields = _stat_fields(owner.pid)
    if not fields:
        return not sys.platform.startswith("linux")
    if fields[0] in (b"Z", b"X"):
        return False
    boot_id, _, ticks = owner.start.partition(":")
    if boot_id and boot_id.encode() == _bytes_of(_BOOT_ID).strip():
        return ticks.encode() == fields[19]
    # The wall clock may have been set since.
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    began = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return not owner.started_at or began <= owner.started_at + _START_SLACK_SECONDS


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat behind the command: state first, `tty_nr` fifth, `starttime` twentieth."""
    return _bytes_of(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def input_time(pid: int) -> float | None:
    """The last input at the process's terminal."""
    fields = _stat_fields(pid)
    number = int(fields[4]) if fields else 0
    major, minor = (number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    if major not in _TERMINAL_MAJORS:
        return None
    try:
        return os.stat(f"/dev/pts/{minor + 256 * (major - 136)}").st_atime  # noqa: PTH116
    except OSError:
        return None


# -- what the watcher knows --------------------------------------------------------------------------------------------


class QuickState:
    """The state database, only read; empty when there is none or it cannot be read at once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: Any = None

    def __enter__(self) -> QuickState:
        if os.path.exists(self._path):  # noqa: PTH110
            import sqlite3  # noqa: PLC0415
            from urllib.parse import quote  # noqa: PLC0415

            try:
                uri = f"file:{quote(self._path)}?mode=ro"
                self._connection = sqlite3.connect(uri, uri=True, timeout=_DATABASE_SECONDS)
            except sqlite3.Error:
                self._connection = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def heartbeat(self) -> Mapping[str, Any]:
        """What the watcher left about itself when it last ran."""
        for (text,) in self._rows("SELECT value FROM flags WHERE name = 'heartbeat'", ()):
            import json  # noqa: PLC0415

            beat = json.loads(text)
            data = beat[_BEAT_DATA] if isinstance(beat, list) and len(beat) > _BEAT_DATA else {}
            return data if isinstance(data, dict) else {}
        return {}

    def recap(self, session_id: str, seen: Glance) -> str:
        """A recap that the file does not show: kept for a live editor session, or hidden by a live terminal's chain."""
        waiting = "SELECT text, created_at FROM pending WHERE session_id = ? AND kind = 'recap'"
        written = "SELECT text, at FROM journal WHERE session_id = ? AND kind = 'recap' ORDER BY seq DESC LIMIT 1"
        for query in (waiting, written):
            for text, at in self._rows(query, (session_id,)):
                if seen.last_activity_at is not None and at >= seen.last_activity_at:
                    return str(text)
        return ""

    def _rows(self, query: str, parameters: tuple[str, ...]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            return []
        import sqlite3  # noqa: PLC0415

        try:
            rows: list[tuple[Any, ...]] = self._connection.execute(query, parameters).fetchall()
        except sqlite3.Error:
            return []
        return rows
