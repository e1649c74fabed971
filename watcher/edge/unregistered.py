"""Owners that stand in no record, found among the running processes.

Qwen Code's ACP processes need not register, and `-p` runs never do (contract 1.4), so for them the absence of a record
proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from watcher.core.owner import Alive, Owner, OwnerSource
from watcher.core.process import FoundProcess, ProcessTable
from watcher.edge.record_files import look
from watcher.qwen.contract import DISABLE_TITLE_VARIABLE, SIDECAR_SUFFIX
from watcher.qwen.owners import START_SLACK_SECONDS, decode_sidecar, kind_of_command, looks_like_qwen


@dataclass(frozen=True, slots=True)
class SearchHint:
    """What the process that serves a session would be found by: its open transcript or its working directory."""

    transcript: Path
    cwd: str


def find_owners(
    processes: ProcessTable, session_id: str, hint: SearchHint, taken: Container[int], host_name: str
) -> Iterator[Owner]:
    """Our user's Qwen Code processes that may serve the session, those with a pid in `taken` left out.

    One that names the session on its command line or holds its transcript open is live; one that only works in the same
    directory is `UNKNOWN`, unless a sidecar beside the transcript says that it serves another session: a terminal has
    one at a time. Costs 5-8 ms: for single sessions on demand.
    """
    found = {process.pid: process for process in processes.search(looks_like_qwen)}
    # Qwen Code's program starts itself again, twice, and only the last one works.
    starters = {process.parent for process in found.values()}
    for process in found.values():
        if process.pid in taken or process.pid in starters:
            continue
        named = any(session_id in word.lower() for word in process.argv)
        certain = named or process.opened(str(hint.transcript))
        if certain or (
            process.cwd == hint.cwd and not _serves_another(processes, session_id, process.pid, hint, host_name)
        ):
            alive = Alive.LIVE if certain else Alive.UNKNOWN
            yield _owner(processes, session_id, process, alive)


def _serves_another(processes: ProcessTable, session_id: str, pid: int, hint: SearchHint, host_name: str) -> bool:
    """Whether the process has written a sidecar for another session of this project, and was not just given the pid of
    one that had (contract 1.3).
    """
    started_at = processes.state(pid).started_at
    if started_at is None:
        return False
    with suppress(OSError), os.scandir(hint.transcript.parent) as entries:
        for entry in entries:
            if not entry.name.endswith(SIDECAR_SUFFIX) or entry.stat().st_mtime < started_at - START_SLACK_SECONDS:
                continue
            file = look(entry.path, None, decode_sidecar)
            record = file.record if file is not None else None
            if record is None or record.pid != pid or record.session_id.lower() == session_id:
                continue
            if record.hostname in ("", host_name) and started_at <= record.started_at + START_SLACK_SECONDS:
                return True
    return False


def _owner(processes: ProcessTable, session_id: str, found: FoundProcess, alive: Alive) -> Owner:
    tty = processes.terminal(found.pid)
    switch = processes.environment_value(found.pid, DISABLE_TITLE_VARIABLE)
    state = processes.state(found.pid)
    return Owner(
        pid=found.pid,
        kind=kind_of_command(found.argv, has_terminal=tty is not None),
        session_id=session_id,
        alive=alive,
        source=OwnerSource.PROCESS,
        cwd=found.cwd,
        started_at=state.started_at or 0.0,
        start=state.start,
        tty=tty,
        input_at=processes.input_time(tty) if tty is not None else None,
        disable_switch=switch.value,
        environment_read=switch.readable,
    )
