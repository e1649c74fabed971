"""How Qwen Code says which process serves a session: live registry, runtime sidecar, command line.

Decoding and judging only (contract 1.3, 1.4); `edge.liveness` reads the files and asks the system. The registry record
holds a secret, `ipcToken`: the types here have no field for it, so parsing skips it and it never becomes a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Final

import msgspec

from watcher.core.owner import HEADLESS, PRINT, SERVE, TUI, Alive, Owner, OwnerSource
from watcher.core.process import Host, ProcessState
from watcher.qwen.contract import parse_version, registry_pid_of

MAX_SCHEMA: Final = 1
REGISTRY_SINCE: Final = (0, 23, 0)
"""The first version whose terminals register (contract 8)."""
START_SLACK_SECONDS: Final = 2.0
"""A process that started later than its record says, by more than this, is another one that was given the pid."""
OTHER_KIND: Final = "other"
"""Our word for a `kind` that is spelt as none may be."""

_KIND: Final = re.compile(r"[a-z][a-z0-9-]{0,15}", re.ASCII)
_SESSION_ID: Final = re.compile(r"[0-9a-fA-F-]{32,36}", re.ASCII)
_INTERPRETERS: Final = frozenset({"node", "nodejs", "bun", "deno"})

_Pid = Annotated[int, msgspec.Meta(ge=1, le=4_194_304)]  # the largest pid that Linux gives


class _Registry(msgspec.Struct, rename="camel"):
    pid: _Pid
    session_id: str
    schema_version: int = 0
    proc_start: str | None = None
    pid_ns: int | None = None
    cwd: str = ""
    started_at: float = 0.0
    qwen_version: str = ""
    kind: str | None = None


class _Sidecar(msgspec.Struct):
    pid: _Pid
    session_id: str
    work_dir: str = ""
    hostname: str = ""
    started_at: float = 0.0
    qwen_version: str = ""


_decode_registry = msgspec.json.Decoder(_Registry).decode
_decode_sidecar = msgspec.json.Decoder(_Sidecar).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRecord:
    """A record of `<config dir>/sessions/`. `started_at` is seconds since the epoch; `start` is empty outside Linux."""

    pid: int
    session_id: str
    kind: str
    schema_version: int
    start: str
    pid_namespace: int | None
    cwd: str
    started_at: float
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarRecord:
    """A `<id>.runtime.json` beside a transcript. `started_at` is seconds since the epoch."""

    pid: int
    session_id: str
    cwd: str
    hostname: str
    started_at: float
    version: str


def decode_registry(file_name: str, data: bytes) -> RegistryRecord | None:
    """The record, or None where the bytes, the name or the two together are not as the contract says."""
    try:
        raw = _decode_registry(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if raw.pid != registry_pid_of(file_name) or not _SESSION_ID.fullmatch(raw.session_id):
        return None
    kind = TUI if raw.kind is None else raw.kind  # 0.23.0 wrote none
    return RegistryRecord(
        pid=raw.pid,
        session_id=raw.session_id,
        kind=kind if _KIND.fullmatch(kind) else OTHER_KIND,
        schema_version=raw.schema_version,
        start=raw.proc_start or "",
        pid_namespace=raw.pid_ns,
        cwd=raw.cwd,
        started_at=raw.started_at / 1000.0,
        version=raw.qwen_version,
    )


def decode_sidecar(data: bytes) -> SidecarRecord | None:
    """The record, or None where the bytes are not as the contract says."""
    try:
        raw = _decode_sidecar(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not _SESSION_ID.fullmatch(raw.session_id):
        return None
    return SidecarRecord(
        pid=raw.pid,
        session_id=raw.session_id,
        cwd=raw.work_dir,
        hostname=raw.hostname,
        started_at=raw.started_at,
        version=raw.qwen_version,
    )


def registered_owner(record: RegistryRecord, alive: Alive) -> Owner:
    """What a registry record says of the owner."""
    return Owner(
        pid=record.pid,
        kind=record.kind,
        session_id=record.session_id.lower(),
        alive=alive,
        source=OwnerSource.REGISTRY,
        cwd=record.cwd,
        version=record.version,
        started_at=record.started_at,
        start=record.start,
    )


def sidecar_owner(record: SidecarRecord, alive: Alive) -> Owner:
    """What a sidecar says of the owner: only terminals write one (contract 1.3)."""
    return Owner(
        pid=record.pid,
        kind=TUI,
        session_id=record.session_id.lower(),
        alive=alive,
        source=OwnerSource.SIDECAR,
        cwd=record.cwd,
        version=record.version,
        started_at=record.started_at,
    )


def judge_registry(
    record: RegistryRecord,
    host: Host,
    process: ProcessState,
    *,
    on_this_machine: bool,
    is_qwen: Callable[[], bool],
) -> Alive:
    """Whether the process of a registry record lives (contract 1.4, "Liveness test").

    The contract calls a record of another boot unknown, since it may be another machine's. Where the record is known to
    have been written `on_this_machine` and is older than this boot, the machine was restarted since: the process is
    gone. `is_qwen` tells whether the pid's present command line looks like Qwen Code; it is asked only in doubt.
    """
    if record.start and _boot_of(record) != host.boot_id:
        return Alive.GONE if on_this_machine and _before_boot(record.started_at, host) else Alive.UNKNOWN
    if record.pid_namespace is not None and record.pid_namespace != host.pid_namespace:
        return Alive.UNKNOWN
    if process.alive is not Alive.LIVE:
        return process.alive
    if record.schema_version > MAX_SCHEMA:
        return Alive.UNKNOWN
    if record.start and process.start:
        return Alive.LIVE if process.start == record.start else Alive.GONE
    return Alive.LIVE if record.start else _judge_start(record.started_at, process, is_qwen)


def judge_sidecar(record: SidecarRecord, host: Host, process: ProcessState, *, is_qwen: Callable[[], bool]) -> Alive:
    """Whether the process of a runtime sidecar still serves the session (contract 1.3: the file alone proves nothing).

    A sidecar stays behind after a quit. One with another host's name is taken for dead where a live Qwen Code would
    also stand in the registry (0.23 and later), or where it is older than this boot; else nobody can tell.
    `is_qwen` as in `judge_registry`.
    """
    if record.hostname and record.hostname != host.name:
        if registers(record.version) or _before_boot(record.started_at, host):
            return Alive.GONE
        return Alive.UNKNOWN
    if process.alive is not Alive.LIVE:
        return process.alive
    return _judge_start(record.started_at, process, is_qwen)


def is_local(record: RegistryRecord | SidecarRecord, host: Host) -> bool:
    """Whether the record's pid means the process that has this pid here."""
    if isinstance(record, SidecarRecord):
        return not record.hostname or record.hostname == host.name
    same_boot = not record.start or _boot_of(record) == host.boot_id
    return same_boot and record.pid_namespace in (None, host.pid_namespace)


def _boot_of(record: RegistryRecord) -> str:
    return record.start.partition(":")[0]


def _judge_start(recorded: float, process: ProcessState, is_qwen: Callable[[], bool]) -> Alive:
    """By start times alone. A wall clock that was set forward since makes a process look younger than it is."""
    if process.started_at is None:
        return Alive.UNKNOWN
    if process.started_at <= recorded + START_SLACK_SECONDS:
        return Alive.LIVE
    return Alive.UNKNOWN if is_qwen() else Alive.GONE


def _before_boot(at: float, host: Host) -> bool:
    return host.booted_at is not None and 0.0 < at < host.booted_at - START_SLACK_SECONDS


def registers(version: str) -> bool:
    """Whether terminals of this Qwen Code version write registry records; False for a version that cannot be read."""
    parsed = parse_version(version)
    return parsed is not None and parsed >= REGISTRY_SINCE


def looks_like_qwen(argv: Sequence[str]) -> bool:
    """Whether a command line may be that of Qwen Code: its program, or a JavaScript runtime with its script."""
    return _arguments(argv) is not None


def kind_of_command(argv: Sequence[str], *, has_terminal: bool) -> str:
    """The `kind` that a Qwen Code command line stands for, for processes that do not register."""
    arguments = _arguments(argv) or ()
    names = {argument.partition("=")[0] for argument in arguments}
    if names & {"--acp", "--experimental-acp"}:
        return HEADLESS
    if arguments and arguments[0] == "serve":
        return SERVE
    if names & {"-p", "--prompt"} or not has_terminal:
        return PRINT
    return TUI


def _arguments(argv: Sequence[str]) -> tuple[str, ...] | None:
    """What stands after Qwen Code's program or script, None when the command line holds neither."""
    if not argv:
        return None
    if _is_qwen(argv[0]):
        return tuple(argv[1:])
    if PurePath(argv[0]).name not in _INTERPRETERS:
        return None
    script = next((index for index, word in enumerate(argv) if index and not word.startswith("-")), None)
    return tuple(argv[script + 1 :]) if script is not None and _is_qwen(argv[script]) else None


def _is_qwen(program: str) -> bool:
    path = PurePath(program)
    return path.name == "qwen" or path.name.startswith(("qwen.", "qwen ")) or any("qwen-code" in p for p in path.parts)
