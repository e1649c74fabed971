"""Registry records, sidecars and command lines: decoded and judged as the contract says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.owner import HEADLESS, PRINT, SERVE, TUI, Alive
from watcher.core.process import Host, ProcessState
from watcher.qwen.owners import (
    RegistryRecord,
    SidecarRecord,
    decode_registry,
    decode_sidecar,
    is_local,
    judge_registry,
    judge_sidecar,
    kind_of_command,
    looks_like_qwen,
    registers,
)

ID = "800ec011-bd66-45b3-b7e5-27e3387a2e2a"
HOST = Host("host", "boot", 4026531836, booted_at=1000.0)
LIVE = ProcessState(Alive.LIVE, "boot:5", started_at=1500.0)
GONE = ProcessState(Alive.GONE)
WIRE: dict[str, Any] = {
    "schemaVersion": 1,
    "pid": 86,
    "procStart": "boot:5",
    "pidNs": 4026531836,
    "sessionId": ID,
    "cwd": "/home/user/proj",
    "startedAt": 1_500_500,
    "qwenVersion": "0.24.4",
    "kind": "tui",
    "ipcToken": "5ecret",
}
SIDECAR: dict[str, Any] = {
    "schema_version": 1,
    "pid": 86,
    "session_id": ID,
    "work_dir": "/home/user/proj",
    "hostname": "host",
    "started_at": 1500.5,
    "qwen_version": "0.22.0",
}


def registry(**changes: Any) -> RegistryRecord:
    """The decoded record, changed on the wire."""
    record = decode_registry("86.json", json.dumps(WIRE | changes).encode())
    assert record is not None
    return record


def sidecar(**changes: Any) -> SidecarRecord:
    """The decoded sidecar, changed on the wire."""
    record = decode_sidecar(json.dumps(SIDECAR | changes).encode())
    assert record is not None
    return record


def judged(
    record: RegistryRecord,
    process: ProcessState = LIVE,
    host: Host = HOST,
    *,
    on_this_machine: bool = False,
    is_qwen: Callable[[], bool] = lambda: False,
) -> Alive:
    """The verdict on a record; by default nobody knows which machine wrote it, and the process is not Qwen Code."""
    return judge_registry(record, host, process, on_this_machine=on_this_machine, is_qwen=is_qwen)


def test_the_wire_forms_are_read() -> None:
    """Milliseconds become seconds; a missing kind is a terminal; unknown fields and the secret are skipped."""
    record = registry(shiny=[1, {"a": 2}])
    assert (record.pid, record.session_id, record.kind, record.started_at) == (86, ID, TUI, 1500.5)
    assert (record.cwd, record.version, record.start) == ("/home/user/proj", "0.24.4", "boot:5")
    assert "5ecret" not in repr(record)
    assert registry(kind=None).kind == TUI
    assert registry(procStart=None, pidNs=None).start == ""
    assert decode_registry("86-0123abcd.json", json.dumps(WIRE | {"kind": SERVE}).encode()) is not None
    assert sidecar().started_at == 1500.5


@pytest.mark.parametrize("kind", ["Tui", "", "x" * 17, "a b", "-a", "tui\n"])
def test_a_kind_spelt_as_none_may_be_is_another_kind(kind: str) -> None:
    """Never a terminal, so never written to."""
    assert registry(kind=kind).kind == "other"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        json.dumps(WIRE)[:-20].encode(),
        json.dumps(WIRE | {"pid": 87}).encode(),
        json.dumps(WIRE | {"pid": "86"}).encode(),
        json.dumps(WIRE | {"pid": -1}).encode(),
        json.dumps(WIRE | {"sessionId": "../x"}).encode(),
        json.dumps({"pid": 86}).encode(),
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_record_are_none(data: bytes) -> None:
    """Torn, of another pid than the name, or of a shape that nothing can be made of."""
    assert decode_registry("86.json", data) is None
    assert decode_sidecar(data) is None


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
@settings(max_examples=150)
def test_no_bytes_raise(data: bytes) -> None:
    """Whatever stands in the file."""
    assert decode_registry("86.json", data) is None
    assert decode_sidecar(data) is None


REAL = Path(__file__).parents[1] / "data" / "real"


def test_files_of_the_real_cli_are_read() -> None:
    """Byte fixtures of 0.24.4."""
    record = decode_registry("10086.json", (REAL / "sidecar-sessions-registry-10086.json").read_bytes())
    assert record is not None
    assert (record.pid, record.kind, record.version) == (10086, TUI, "0.24.4")
    beside = decode_sidecar((REAL / "sidecar-chats-runtime.json").read_bytes())
    assert beside is not None
    assert (beside.pid, beside.version) == (16534, "0.24.4")


@pytest.mark.parametrize(
    ("record", "process", "verdict"),
    [
        (registry(), LIVE, Alive.LIVE),
        (registry(), GONE, Alive.GONE),
        (registry(), ProcessState(Alive.LIVE, "boot:6"), Alive.GONE),
        (registry(), ProcessState(Alive.LIVE, ""), Alive.LIVE),
        (registry(), ProcessState(Alive.UNKNOWN), Alive.UNKNOWN),
        (registry(procStart="other:5"), LIVE, Alive.UNKNOWN),
        (registry(procStart="other:5"), GONE, Alive.UNKNOWN),
        (registry(pidNs=7), LIVE, Alive.UNKNOWN),
        (registry(pidNs=7), GONE, Alive.UNKNOWN),
        (registry(schemaVersion=2), LIVE, Alive.UNKNOWN),
        (registry(schemaVersion=2), GONE, Alive.GONE),
        (registry(schemaVersion=0), LIVE, Alive.LIVE),
        (registry(procStart=None), LIVE, Alive.LIVE),
        (registry(procStart=None), ProcessState(Alive.LIVE, "boot:9", 1502.4), Alive.LIVE),
        (registry(procStart=None), ProcessState(Alive.LIVE, "boot:9", 1502.6), Alive.GONE),
        (registry(procStart=None), ProcessState(Alive.LIVE), Alive.UNKNOWN),
    ],
)
def test_the_liveness_test_of_the_registry(record: RegistryRecord, process: ProcessState, verdict: Alive) -> None:
    """Contract 1.4: namespace and boot, then the pid, then the start token; what cannot be compared is unknown."""
    assert judged(record, process) is verdict


def test_nothing_can_be_compared_where_the_system_says_nothing() -> None:
    """Without a boot id or namespace of ours, a record that names them is unknown."""
    assert judged(registry(), host=Host("host")) is Alive.UNKNOWN
    assert judged(registry(procStart=None), host=Host("host")) is Alive.UNKNOWN
    assert judged(registry(procStart=None, pidNs=None), host=Host("host")) is Alive.LIVE


def test_a_record_from_before_a_restart_of_this_machine_is_gone() -> None:
    """Known to be written here, older than this boot, of another boot; anything less stays unknown."""
    old = registry(procStart="earlier:5", startedAt=900_000)
    assert judged(old, on_this_machine=True) is Alive.GONE
    assert judged(old, on_this_machine=False) is Alive.UNKNOWN
    assert judged(registry(procStart="earlier:5"), on_this_machine=True) is Alive.UNKNOWN
    assert judged(registry(procStart="earlier:5", startedAt=0), on_this_machine=True) is Alive.UNKNOWN
    assert judged(old, host=Host("host", "boot", 4026531836), on_this_machine=True) is Alive.UNKNOWN


@pytest.mark.parametrize(
    ("record", "process", "verdict"),
    [
        (sidecar(), LIVE, Alive.LIVE),
        (sidecar(), GONE, Alive.GONE),
        (sidecar(), ProcessState(Alive.LIVE, "boot:9", 1502.4), Alive.LIVE),
        (sidecar(), ProcessState(Alive.LIVE, "boot:9", 1502.6), Alive.GONE),
        (sidecar(), ProcessState(Alive.LIVE), Alive.UNKNOWN),
        (sidecar(hostname="elsewhere"), LIVE, Alive.UNKNOWN),
        (sidecar(hostname="elsewhere"), GONE, Alive.UNKNOWN),
        (sidecar(hostname="elsewhere", started_at=900.0), LIVE, Alive.GONE),
        (sidecar(hostname="elsewhere", qwen_version="0.23.0"), LIVE, Alive.GONE),
        (sidecar(hostname=""), LIVE, Alive.LIVE),
    ],
)
def test_a_sidecar_is_checked_against_the_process(record: SidecarRecord, process: ProcessState, verdict: Alive) -> None:
    """Contract 1.3: same host, alive, started not later than the record says, plus slack."""
    assert judge_sidecar(record, HOST, process, is_qwen=lambda: False) is verdict


def test_a_younger_process_that_is_qwen_code_leaves_a_doubt() -> None:
    """A wall clock set forward makes the right process look too young; in doubt the session is owned."""
    younger = ProcessState(Alive.LIVE, "boot:9", 5000.0)
    assert judge_sidecar(sidecar(), HOST, younger, is_qwen=lambda: True) is Alive.UNKNOWN
    assert judged(registry(procStart=None), younger, is_qwen=lambda: True) is Alive.UNKNOWN


def test_a_pid_means_our_process_only_on_this_host_boot_and_namespace() -> None:
    """Else terminal and environment of a stranger would be read."""
    assert is_local(registry(), HOST)
    assert is_local(registry(procStart=None, pidNs=None), HOST)
    assert not is_local(registry(pidNs=7), HOST)
    assert not is_local(registry(procStart="other:5"), HOST)
    assert is_local(sidecar(), HOST)
    assert not is_local(sidecar(hostname="elsewhere"), HOST)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.24.4", True), ("0.23.0", True), ("1.0.0", True), ("0.22.9", False), ("", False), ("nightly", False)],
)
def test_terminals_register_since_0_23(version: str, expected: bool) -> None:
    """Contract 8; a version that cannot be read proves nothing."""
    assert registers(version) is expected


@pytest.mark.parametrize(
    "argv",
    [
        ("qwen",),
        ("/usr/local/bin/qwen", "--resume"),
        ("qwen - proj",),
        ("node", "/usr/local/bin/qwen"),
        ("/opt/node", "--max-old-space-size=4096", "/lib/node_modules/@qwen-code/qwen-code/cli.js", "--acp"),
        ("bun", "qwen.js"),
    ],
)
def test_command_lines_of_qwen_code(argv: tuple[str, ...]) -> None:
    """The program itself, or a runtime with its script."""
    assert looks_like_qwen(argv)


@pytest.mark.parametrize(
    "argv",
    [(), ("node",), ("node", "server.js", "qwen"), ("vim", "/src/qwen-code/README.md"), ("qwen-watcher", "run"), ("",)],
)
def test_other_command_lines(argv: tuple[str, ...]) -> None:
    """A name among the arguments of another program is nothing."""
    assert not looks_like_qwen(argv)


@pytest.mark.parametrize(
    ("arguments", "has_terminal", "kind"),
    [
        ((), True, TUI),
        (("--resume", ID), True, TUI),
        ((), False, PRINT),
        (("-p", "do it"), True, PRINT),
        (("--prompt=do it",), True, PRINT),
        (("--acp",), False, HEADLESS),
        (("--experimental-acp",), True, HEADLESS),
        (("serve", "--port", "1"), True, SERVE),
    ],
)
def test_the_kind_of_a_command_line(arguments: tuple[str, ...], has_terminal: bool, kind: str) -> None:
    """Only a plain start at a terminal is one."""
    assert kind_of_command(("node", "/bin/qwen", *arguments), has_terminal=has_terminal) == kind
