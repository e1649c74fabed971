"""Real processes to be found, and the records that Qwen Code would have written about them (contract 1.3, 1.4)."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SESSION = "800ec011-bd66-45b3-b7e5-27e3387a2e2a"
OTHER_SESSION = "c8b29579-be58-47cb-ac78-178915bd4323"
NO_PID = 4_194_304  # the kernel gives smaller ones only
SECRET = "5ec2e7" * 10

_WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
_WAIT_AT_TERMINAL = """
import os, sys
for number in (0, 1, 2):
    os.close(number)
for number in (0, 1, 2):
    os.open(sys.argv[1], os.O_RDWR)
print('ready', flush=True)
while os.read(0, 1024):
    pass
"""


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Return as soon as the condition holds; fail when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)


@contextlib.contextmanager
def running(
    *args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, code: str = _WAIT
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is up and waits; ended when the block is left."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=cwd
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, wait for it and close its pipes; may be called twice."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@dataclass(frozen=True)
class AtTerminal:
    """A process with a controlling terminal of its own: the master's descriptor and the device's path."""

    process: subprocess.Popen[bytes]
    master: int
    path: Path


@contextlib.contextmanager
def running_at_terminal() -> Iterator[AtTerminal]:
    """A process that reads its own pseudo-terminal."""
    master, slave = pty.openpty()
    path = os.ttyname(slave)
    process = subprocess.Popen(
        [sys.executable, "-c", _WAIT_AT_TERMINAL, path], stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        assert b"ready" in os.read(master, 64)
        os.close(slave)  # not before: a master without any slave reads as an error
        yield AtTerminal(process, master, Path(path))
    finally:
        end(process)
        os.close(master)


def start_token(pid: int) -> str:
    """`procStart` as Qwen Code spells it."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}:{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"


def registry_record(pid: int, session_id: str = SESSION, **changes: Any) -> dict[str, Any]:
    """A record of the live registry for a process of this machine."""
    record: dict[str, Any] = {
        "schemaVersion": 1,
        "pid": pid,
        "procStart": start_token(pid) if Path(f"/proc/{pid}").exists() else None,
        "pidNs": Path("/proc/self/ns/pid").stat().st_ino,
        "sessionId": session_id,
        "cwd": "/home/user/proj",
        "name": "proj-80",
        "startedAt": int(time.time() * 1000),
        "qwenVersion": "0.24.4",
        "kind": "tui",
        "ipcPath": "/run/user/1000/qwen-socks/1.sock",
        "ipcToken": SECRET,
    }
    return record | changes


def write_record(config_dir: Path, record: Mapping[str, Any], name: str | None = None) -> Path:
    """Write a registry record as Qwen Code does: whole, by a rename."""
    path = config_dir / "sessions" / (name or f"{record['pid']}.json")
    return _write(path, record)


def sidecar_record(pid: int, session_id: str = SESSION, **changes: Any) -> dict[str, Any]:
    """A runtime sidecar for a process of this machine."""
    record: dict[str, Any] = {
        "schema_version": 1,
        "pid": pid,
        "session_id": session_id,
        "work_dir": "/home/user/proj",
        "hostname": socket.gethostname(),
        "started_at": time.time(),
        "qwen_version": "0.22.0",
    }
    return record | changes


def write_sidecar(chats: Path, record: Mapping[str, Any]) -> Path:
    """Write a runtime sidecar beside where the transcript is."""
    return _write(chats / f"{record['session_id']}.runtime.json", record)


def _write(path: Path, record: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".0123456789ab.tmp")
    temporary.write_text(json.dumps(record))
    temporary.replace(path)
    return path


@contextlib.contextmanager
def as_other_user(uid: int = 65_534) -> Iterator[None]:
    """Act as another user while the block runs; only root can."""
    before = os.geteuid()
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)
