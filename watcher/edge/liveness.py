"""Which Qwen Code processes serve which session: the live registry and the runtime sidecars, read and judged.

Contract 1.3 and 1.4; the judging itself is pure and stands in `qwen.owners`. Records are read again whenever they may
have changed, since Qwen Code patches them in place when a terminal moves to another session, and never removed: that is
Qwen Code's to do. One thread owns an object of this class.
"""

from __future__ import annotations

import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from watcher.core.owner import Alive, Owner, Ownership, OwnerSource
from watcher.core.process import Host, ProcessState, ProcessTable
from watcher.edge.record_files import RecordFile, look
from watcher.edge.unregistered import SearchHint, find_owners
from watcher.qwen.contract import DISABLE_TITLE_VARIABLE, REGISTRY_DIR, registry_pid_of
from watcher.qwen.owners import (
    RegistryRecord,
    SidecarRecord,
    decode_registry,
    decode_sidecar,
    is_local,
    judge_registry,
    judge_sidecar,
    looks_like_qwen,
    registered_owner,
    sidecar_owner,
)

MAX_RECORDS: Final = 4096
"""So many registry records are looked at in one config dir."""
MAX_REMEMBERED: Final = 512
"""Sessions whose owners have gone and are still remembered; the oldest are forgotten first."""
REMEMBER_SECONDS: Final = 24 * 3600.0
"""How long an owner that has gone is remembered: as long as its session may still get a title (design 6)."""

_Identity = tuple[int, str, float]
_Owners = dict[_Identity, Owner]


class Liveness:
    """Answers who owns a session. Session ids are compared and given back in lower case."""

    def __init__(
        self,
        config_dirs: Iterable[Path],
        processes: ProcessTable,
        *,
        on_local_disk: Callable[[Path], bool] = lambda _: False,
        watch_exit: Callable[[int, Callable[[], bool]], None] = lambda _pid, _is_same: None,
        host_name: Callable[[], str] = socket.gethostname,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`on_local_disk(path)`: whether no other machine can reach the directory. Then a record of another boot was
        written by this machine, before it was restarted. `watch_exit(pid, is_same)` is called at each look for every
        owner that lives here, and `is_same` may be called on any thread (`edge.exits.ExitWatch.watch`).
        """
        self._on_local_disk = on_local_disk
        self.follow(config_dirs)
        self._processes = processes
        self._watch_exit = watch_exit
        self._host_name = host_name
        self._clock = clock
        self._records: dict[str, RecordFile[RegistryRecord]] = {}
        self._sidecars: dict[str, str] = {}
        self._sidecar_files: dict[str, RecordFile[SidecarRecord]] = {}
        self._ours: set[RegistryRecord] = set()
        self._known: dict[str, _Owners] = {}
        self._gone: OrderedDict[str, tuple[float, _Owners]] = OrderedDict()
        self._changed: set[str] = set()

    def follow(self, config_dirs: Iterable[Path]) -> None:
        """Look into the registries of these config directories from now on."""
        self._registries = tuple((str(path / REGISTRY_DIR), self._on_local_disk(path)) for path in config_dirs)

    def owners_of(self, session_id: str, sidecar: Path | None, *, search: SearchHint | None = None) -> Ownership:
        """Everybody who serves the session, or did, judged now.

        `sidecar` is where the session's runtime sidecar would stand. With `search`, a session without a live owner or
        sidecar is also looked for among the running processes: ACP need not register (contract 1.4).
        """
        [ownership] = self.owners_of_all([(session_id, sidecar)])
        session = session_id.lower()
        if search is not None and not ownership.owned and not ownership.sidecar_seen:
            taken = {identity[0] for owners in self._known.values() for identity in owners}
            found = tuple(find_owners(self._processes, session, search, taken, self._host_name()))
            return Ownership(found + ownership.owners, sidecar_seen=False)
        return ownership

    def owners_of_all(self, asked: Iterable[tuple[str, Path | None]]) -> list[Ownership]:
        """The same for many sessions, each with its sidecar, at one look; in their order."""
        sessions: list[str] = []
        for session_id, sidecar in asked:
            sessions.append(session_id.lower())
            if sidecar is not None:
                self._sidecars[sessions[-1]] = str(sidecar)
        self._scan()
        found = [self._ownership(session) for session in sessions]
        for session, ownership in zip(sessions, found, strict=True):
            if not any(owner.source is OwnerSource.SIDECAR for owner in ownership.live):
                self._forget_sidecar(session)  # only one with a live owner is worth another look at each scan
        return found

    def all_live(self) -> Mapping[str, Ownership]:
        """Every session with an owner, by id: those in the registry, and those whose sidecar was asked for before."""
        self._scan()
        return {session: self._ownership(session) for session, _ in _live_pairs(self._known)}

    def refresh(self) -> frozenset[str]:
        """The sessions whose owners came or went since this was last called. Costs about 15 µs a record."""
        self._scan()
        changed, self._changed = self._changed, set()
        return frozenset(changed)

    def sessions_of(self, pid: int) -> frozenset[str]:
        """The sessions that the process had when last looked at, also those of one that has gone."""
        everyone = [*self._known.items(), *((session, owners) for session, (_, owners) in self._gone.items())]
        return frozenset(session for session, owners in everyone if any(identity[0] == pid for identity in owners))

    def _ownership(self, session: str) -> Ownership:
        _, gone = self._gone.get(session, (0.0, {}))
        known = self._known.get(session, {})
        owners = (
            known | {each: gone[each] for each in gone if each not in known or not known[each].counts_as_live}
        ).values()
        registered = {owner.pid for owner in owners if owner.source is OwnerSource.REGISTRY}
        # A sidecar stays behind when the record of the same process has been removed; it says nothing more.
        current = [self._with_input(each) for each in owners if each.counts_as_live or _says_more(each, registered)]
        current.sort(key=lambda owner: owner.started_at, reverse=True)
        sidecar = self._sidecars.get(session)
        return Ownership(tuple(current), sidecar is not None and os.path.lexists(sidecar))

    def _with_input(self, owner: Owner) -> Owner:
        if owner.tty is None or not owner.counts_as_live:
            return owner
        return replace(owner, input_at=self._processes.input_time(owner.tty))

    def _forget_sidecar(self, session: str) -> None:
        path = self._sidecars.pop(session, None)
        if path is not None:
            self._sidecar_files.pop(path, None)

    def _scan(self) -> None:
        """Read and judge everything again; note who came, who went and what their environment said."""
        table = self._processes
        host = Host(self._host_name(), table.boot_id(), table.pid_namespace(), table.booted_at())
        states: dict[int, ProcessState] = {}
        known: dict[str, _Owners] = {}
        registered: dict[int, set[str]] = {}
        self._read_sidecars()
        for owner, local in self._judge_registry(host, states):
            self._note(known, owner, states, local=local)
            if owner.counts_as_live and local:
                registered.setdefault(owner.pid, set()).add(owner.session_id)
        for owner, local in self._judge_sidecars(host, states, registered):
            self._note(known, owner, states, local=local)
        before, now = _live_pairs(self._known), _live_pairs(known)
        self._changed |= {session for session, _ in before ^ now}
        self._remember(before - now)
        self._known = known

    def _note(
        self, known: dict[str, _Owners], owner: Owner, states: Mapping[int, ProcessState], *, local: bool
    ) -> None:
        owners = known.setdefault(owner.session_id, {})
        before = self._known.get(owner.session_id, {}).get(owner.identity)
        if before is not None:
            owner = before if _same_but_for_facts(before, owner) else _with_facts(owner, before)
        if owner.counts_as_live and local:
            if not owner.environment_read:
                switch = self._processes.environment_value(owner.pid, DISABLE_TITLE_VARIABLE)
                owner = replace(owner, disable_switch=switch.value, environment_read=switch.readable)
            if before is None:
                owner = replace(owner, tty=self._processes.terminal(owner.pid))
            self._watch_exit(owner.pid, self._is_same(owner.pid, states[owner.pid].start))
        owners[owner.identity] = owner

    def _is_same(self, pid: int, start: str) -> Callable[[], bool]:
        def is_same() -> bool:
            state = self._processes.state(pid)
            return state.alive is not Alive.GONE and state.start == start

        return is_same

    def _remember(self, ended: set[tuple[str, _Identity]]) -> None:
        now = self._clock()
        for session, identity in ended:
            owner = self._known[session][identity]
            # The shell that it was started from may still have the terminal, which so tells of the keys that ended it.
            input_at = self._processes.input_time(owner.tty) if owner.tty is not None else None
            owner = replace(owner, alive=Alive.GONE, input_at=input_at)
            _, owners = self._gone.pop(session, (0.0, {}))
            self._gone[session] = (now, owners | {identity: owner})
        while self._gone:
            session, (at, _) = next(iter(self._gone.items()))
            if len(self._gone) <= MAX_REMEMBERED and at <= now < at + REMEMBER_SECONDS:
                return
            del self._gone[session]

    def _judge_registry(self, host: Host, states: dict[int, ProcessState]) -> Iterator[tuple[Owner, bool]]:
        records: dict[str, RecordFile[RegistryRecord]] = {}
        for folder, on_local_disk in self._registries:
            for path in self._record_paths(folder):
                file = look(path, self._records.get(path), partial(decode_registry, path.rpartition("/")[2]))
                if file is None:
                    continue
                records[path] = file
                record = file.record
                if record is None:
                    continue
                alive = judge_registry(
                    record,
                    host,
                    self._state(record.pid, states),
                    on_this_machine=on_local_disk or self._written_here(record, host),
                    is_qwen=partial(self._is_qwen, record.pid),
                )
                yield registered_owner(record, _weakened(alive, file.readable)), is_local(record, host)
        self._records = records
        self._ours &= {file.record for file in records.values() if file.record is not None}

    def _record_paths(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if registry_pid_of(entry.name) is not None]
        except FileNotFoundError:
            return []
        except OSError:  # a folder that cannot be read has not lost its records
            return [path for path in self._records if path.rpartition("/")[0] == folder]
        return [f"{folder}/{name}" for name in sorted(names)[:MAX_RECORDS]]

    def _written_here(self, record: RegistryRecord, host: Host) -> bool:
        """Whether the session's sidecar says that this machine wrote the record; once said, it stays said."""
        path = self._sidecars.get(record.session_id.lower())
        file = self._sidecar_files.get(path) if path is not None else None
        sidecar = file.record if file is not None else None
        if sidecar is not None and sidecar.pid == record.pid and is_local(sidecar, host):
            self._ours.add(record)
        return record in self._ours

    def _read_sidecars(self) -> None:
        files = {path: look(path, self._sidecar_files.get(path), decode_sidecar) for path in self._sidecars.values()}
        self._sidecar_files = {path: file for path, file in files.items() if file is not None}

    def _judge_sidecars(
        self, host: Host, states: dict[int, ProcessState], registered: Mapping[int, set[str]]
    ) -> Iterator[tuple[Owner, bool]]:
        for session, path in self._sidecars.items():
            file = self._sidecar_files.get(path)
            record = file.record if file is not None else None
            if file is None or record is None or record.session_id.lower() != session:
                continue
            local = is_local(record, host)
            sessions = registered.get(record.pid, set()) if local else set()
            if session in sessions:
                continue  # the registry says the same, and more
            alive = judge_sidecar(
                record,
                host,
                self._state(record.pid, states),
                is_qwen=partial(self._is_qwen, record.pid),
            )
            # A terminal has one session at a time: one that is registered for another has left this one.
            yield sidecar_owner(record, Alive.GONE if sessions else _weakened(alive, file.readable)), local

    def _state(self, pid: int, states: dict[int, ProcessState]) -> ProcessState:
        if pid not in states:
            states[pid] = self._processes.state(pid)
        return states[pid]

    def _is_qwen(self, pid: int) -> bool:
        return looks_like_qwen(self._processes.command_line(pid))


def _with_facts(owner: Owner, known: Owner) -> Owner:
    """The owner with what was found out about its process before."""
    return replace(owner, tty=known.tty, disable_switch=known.disable_switch, environment_read=known.environment_read)


def _same_but_for_facts(known: Owner, owner: Owner) -> bool:
    return (known.alive, known.kind, known.cwd) == (owner.alive, owner.kind, owner.cwd)


def _says_more(owner: Owner, registered: set[int]) -> bool:
    return owner.source is not OwnerSource.SIDECAR or owner.pid not in registered


def _weakened(alive: Alive, readable: bool) -> Alive:
    """What a verdict on the last good content is worth: a file that cannot be read now may say something else."""
    return alive if readable or alive is Alive.GONE else Alive.UNKNOWN


def _live_pairs(known: Mapping[str, _Owners]) -> set[tuple[str, _Identity]]:
    return {
        (session, identity)
        for session, owners in known.items()
        for identity, owner in owners.items()
        if owner.counts_as_live
    }
