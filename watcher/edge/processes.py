"""Facts about processes of this machine, with one signature on every platform.

On Linux all answers come from `/proc` directly (7 µs a process); elsewhere psutil answers, which takes 0.8 MiB and, for
a search, twice as long. It is imported when it is first needed: a watcher on Linux never needs it. Nothing here raises
for a process that is not there, is somebody else's, or ends meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from watcher.core.owner import Alive
from watcher.core.process import EnvironmentValue, FoundProcess, ProcessState, ProcessTable

MAX_ENVIRONMENT_BYTES: Final = 8 * 1024 * 1024
"""More than any system gives a process; what lies beyond is not looked at."""
MAX_VALUE_CHARS: Final = 64
"""An environment value is cut to this; the one that is asked for is a switch."""
MAX_COMMAND_BYTES: Final = 256 * 1024

_STATE, _PARENT, _TTY, _START = 0, 1, 4, 19  # fields of /proc/<pid>/stat, counted from behind the command's last ")"
_DEAD: Final = (b"Z", b"X", b"x")
_UNIX98_PTY_MAJORS: Final = range(136, 144)


def process_table(platform: str = sys.platform) -> ProcessTable:
    """The table of this platform."""
    return LinuxProcesses() if platform == "linux" else PsutilProcesses()


class _Terminals:
    """What is the same everywhere: the terminal's device is asked by its path."""

    def input_time(self, terminal: str) -> float | None:
        try:
            found = Path(terminal).stat()
        except (OSError, ValueError):
            return None
        return found.st_atime if stat.S_ISCHR(found.st_mode) else None


class LinuxProcesses(_Terminals):
    """`ProcessTable` from `/proc`."""

    def __init__(self) -> None:
        self._boot_id = _read(b"/proc/sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._namespace = _inode("/proc/self/ns/pid")  # a process never changes its own

    def boot_id(self) -> str:
        return self._boot_id

    def pid_namespace(self) -> int | None:
        return self._namespace

    def booted_at(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def state(self, pid: int) -> ProcessState:
        fields = _stat_fields(pid)
        if fields is None:  # with `hidepid`, other users' processes have no entry but do exist
            return ProcessState(_signal_probe(pid))
        if fields[_STATE] in _DEAD:
            return ProcessState(Alive.GONE)
        ticks = int(fields[_START])
        start = f"{self._boot_id}:{ticks}" if self._boot_id else ""
        return ProcessState(Alive.LIVE, start, self.booted_at() + ticks / self._ticks)

    def environment_value(self, pid: int, name: str) -> EnvironmentValue:
        try:
            block = _read_or_raise(f"/proc/{pid}/environ".encode(), MAX_ENVIRONMENT_BYTES)
        except OSError:
            return EnvironmentValue(readable=False)
        mark = os.fsencode(name) + b"="
        found = next((entry for entry in block.split(b"\0") if entry.startswith(mark)), None)
        if found is None:
            return EnvironmentValue(readable=True)
        return EnvironmentValue(readable=True, value=_shortened(found[len(mark) :].decode("utf-8", "replace")))

    def terminal(self, pid: int) -> str | None:
        fields = _stat_fields(pid)
        number = int(fields[_TTY]) if fields is not None else 0
        if number == 0:
            return None
        # The kernel packs the device number as 12 bits of minor, 12 of major, 8 of minor (proc_pid_stat(5)).
        device = os.makedev((number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00))
        path, descriptor = _device_path(device), _descriptor_on(pid, device)
        # In another mount namespace /dev/pts may be another one: there only the descriptor leads to the right device.
        if descriptor is not None and (path is None or not _is_same_file(descriptor, path)):
            return descriptor
        return path

    def command_line(self, pid: int) -> tuple[str, ...]:
        data = _read(f"/proc/{pid}/cmdline".encode(), MAX_COMMAND_BYTES)
        return tuple(os.fsdecode(word) for word in data.removesuffix(b"\0").split(b"\0")) if data else ()

    def search(self, wanted: Callable[[Sequence[str]], bool]) -> Iterator[FoundProcess]:
        ours = os.getuid()
        for name in os.listdir("/proc"):  # noqa: PTH208 - names, not paths
            if not name.isdigit():
                continue
            pid = int(name)
            argv = self.command_line(pid)
            if not argv or not wanted(argv) or _user_of(pid) != ours:
                continue
            fields = _stat_fields(pid)
            if fields is not None and fields[_STATE] not in _DEAD:
                with contextlib.suppress(OSError):
                    cwd = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - a path may hold bytes that are no text
                    yield FoundProcess(pid, int(fields[_PARENT]), argv, cwd, partial(_has_open, pid))


class PsutilProcesses(_Terminals):
    """`ProcessTable` from psutil: macOS, and whatever else it runs on."""

    def __init__(self) -> None:
        import psutil  # noqa: PLC0415 (see the module's docstring)

        self._psutil = psutil

    def boot_id(self) -> str:
        return ""

    def pid_namespace(self) -> int | None:
        return None

    def booted_at(self) -> float | None:
        try:
            return float(self._psutil.boot_time())
        except (OSError, RuntimeError):
            return None

    def state(self, pid: int) -> ProcessState:
        try:
            process = self._psutil.Process(pid)
            if process.status() in (self._psutil.STATUS_ZOMBIE, self._psutil.STATUS_DEAD):
                return ProcessState(Alive.GONE)
            created = process.create_time()
        except (self._psutil.NoSuchProcess, ValueError, OverflowError):
            return ProcessState(Alive.GONE)
        except (self._psutil.Error, OSError):
            return ProcessState(_signal_probe(pid))
        return ProcessState(Alive.LIVE, f"created:{created:.2f}", created)

    def environment_value(self, pid: int, name: str) -> EnvironmentValue:
        try:
            value = self._psutil.Process(pid).environ().get(name)
        except (self._psutil.Error, OSError, ValueError):
            return EnvironmentValue(readable=False)
        return EnvironmentValue(readable=True, value=None if value is None else _shortened(value))

    def terminal(self, pid: int) -> str | None:
        try:
            path: str | None = self._psutil.Process(pid).terminal()
        except (self._psutil.Error, OSError, ValueError):
            return None
        return path

    def command_line(self, pid: int) -> tuple[str, ...]:
        try:
            return tuple(self._psutil.Process(pid).cmdline())
        except (self._psutil.Error, OSError, ValueError):
            return ()

    def search(self, wanted: Callable[[Sequence[str]], bool]) -> Iterator[FoundProcess]:
        psutil, ours = self._psutil, os.getuid()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.uids().real != ours:
                    continue
                argv = tuple(process.cmdline())
                if wanted(argv):
                    opened = self._opened(process.pid)
                    yield FoundProcess(process.pid, process.ppid(), argv, process.cwd(), opened)

    def _opened(self, pid: int) -> Callable[[str], bool]:
        def opened(path: str) -> bool:
            try:
                return any(file.path == path for file in self._psutil.Process(pid).open_files())
            except (self._psutil.Error, OSError):
                return False

        return opened


def _signal_probe(pid: int) -> Alive:
    """Whether a pid is taken, by the permission check of `kill` (contract 1.4: EPERM counts as alive)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return Alive.GONE
    except PermissionError:
        return Alive.LIVE
    return Alive.LIVE


def _stat_fields(pid: int) -> list[bytes] | None:
    """The fields of `/proc/<pid>/stat` behind the command, which may itself hold spaces and parentheses."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fields = os.read(fd, 4096).rpartition(b")")[2].split()  # one read gives the whole line
    except OSError:  # it ended in between
        return None
    finally:
        os.close(fd)
    return fields if len(fields) > _START else None


def _user_of(pid: int) -> int | None:
    """The real user id of a process, None when it is not there."""
    status = _read(f"/proc/{pid}/status".encode(), 8192)
    line = status.partition(b"\nUid:")[2]
    return int(line.split(None, 1)[0]) if line else None


def _has_open(pid: int, path: str) -> bool:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - as above
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{name}") == path:  # noqa: PTH115 - as above
                    return True
    return False


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116
    except OSError:
        return None


def _read(path: bytes, limit: int) -> bytes:
    try:
        return _read_or_raise(path, limit)
    except OSError:
        return b""


def _read_or_raise(path: bytes, limit: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        parts: list[bytes] = []
        while limit > 0 and (part := os.read(fd, min(limit, 65_536))):
            parts.append(part)
            limit -= len(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def _shortened(value: str) -> str:
    return value.strip()[:MAX_VALUE_CHARS]


def _device_path(device: int) -> str | None:
    """Where the terminal with this device number stands in our `/dev`, None when it is not there."""
    if os.major(device) in _UNIX98_PTY_MAJORS:
        path = f"/dev/pts/{os.minor(device) + ((os.major(device) - _UNIX98_PTY_MAJORS.start) << 20)}"
    else:
        lines = _read(f"/sys/dev/char/{os.major(device)}:{os.minor(device)}/uevent".encode(), 4096).splitlines()
        name = next((line.removeprefix(b"DEVNAME=") for line in lines if line.startswith(b"DEVNAME=")), b"")
        path = f"/dev/{os.fsdecode(name)}" if name else ""
    return path if path and _is_device(path, device) else None


def _is_device(path: str, device: int) -> bool:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == device


def _descriptor_on(pid: int, device: int) -> str | None:
    """A standard descriptor of the process that leads to the device, as a path."""
    paths = (f"/proc/{pid}/fd/{number}" for number in (0, 1, 2))
    return next((path for path in paths if _is_device(path, device)), None)


def _is_same_file(path: str, other: str) -> bool:
    try:
        return Path(path).samefile(other)
    except OSError:
        return False
