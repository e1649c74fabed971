"""Our side in a `World`: the real `Recorder` and `SessionWriter` over memory, and what they can be asked to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

from tests.safety import reader
from tests.safety.fake_store import FakeStore
from tests.safety.memory_files import MemoryFiles
from tests.safety.native import SESSION
from tests.safety.world import NOW_NS, OUR_PREFIX, SECOND, World
from watcher.core.events import TitleSource
from watcher.core.owner import Alive, Owner, Ownership, OwnerSource
from watcher.core.undo import title_before
from watcher.core.write_rules import RecapBasis
from watcher.core.writing import Failed, SessionFile, WriteOutcome, Written
from watcher.edge import writer as edge_writer
from watcher.edge.files import Files
from watcher.edge.writer import SessionWriter
from watcher.qwen.paths import SessionRef, session_ref
from watcher.qwen.reading import Reading, read_state
from watcher.recording import Recorder, StoreIntents

PATH = f"/home/user/.qwen/projects/-home-user-proj/chats/{SESSION}.jsonl"
REF = cast("SessionRef", session_ref(PATH))
GONE = Owner(pid=1, kind="tui", session_id=SESSION, alive=Alive.GONE, source=OwnerSource.REGISTRY)

MakeWriter = Callable[..., SessionWriter]
MakeRecorder = Callable[..., Recorder]


class Killed(BaseException):
    """Our process ends here, as by SIGKILL."""


def _nothing(name: str) -> None:
    """Nothing happens before a call."""


def _ignore(name: str, result: object) -> None:
    """Nobody cares for the result."""


@dataclass(frozen=True, slots=True)
class Build:
    """What our side is made of; mutants exchange a part of it. `window` is what the picker reads at each end."""

    writer: MakeWriter = SessionWriter
    recorder: MakeRecorder = Recorder
    lease_counts: bool = True


@dataclass(slots=True)
class Procedure:
    """One thing that watcher number `watcher` does in `world`, with hooks before and behind each call."""

    world: World
    watcher: int = 0
    build: Build = field(default_factory=Build)
    before: Callable[[str], None] = _nothing
    after: Callable[[str, object], None] = _ignore
    locked_by_other: bool = False
    make_store: Callable[[World, int, Callable[[str], None]], Any] = FakeStore
    files: MemoryFiles = field(init=False)
    store: Any = field(init=False)
    recorder: Recorder = field(init=False)
    outcomes: list[WriteOutcome] = field(init=False, default_factory=list)
    _prefix: str = field(init=False, default="")
    _used: int = field(init=False, default=0)
    _next: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.files = MemoryFiles(self.world, self.before, self.after)
        self.files.locked_by_other = self.locked_by_other
        self.store = self.make_store(self.world, self.watcher, self.before)
        self._prefix = f"{OUR_PREFIX}{self.watcher or ''}."
        self._used = _last_number(self.world.data, self._prefix)
        self._next = self._used
        build = self.build
        writer = build.writer(
            cast("Files", self.files),
            StoreIntents(self.store),
            clock=lambda: NOW_NS / SECOND,
            new_uuid=self._new_uuid,
            pause=lambda _: None,
        )
        self.recorder = build.recorder(
            self.store,
            writer,
            ownership=self._ownership,
            refused_mount=lambda _: "",
            clock=lambda: NOW_NS / SECOND,
            lease=self._lease,
        )

    def _new_uuid(self) -> str:
        self._next += 1
        return f"{self._prefix}{self._next}"

    def forget_uuid(self) -> None:
        """An id that was given out was not used: equal states shall have equal ids."""
        self._next = self._used

    def _ownership(self, ref: SessionRef) -> Ownership:
        self.before("owners")
        kinds = tuple("tui" if cli.kind == "tui" else "headless" for cli in self.world.clis if cli.live)
        self.after("owners", kinds)
        self.files.daemon_seen = any(kind != "tui" for kind in kinds)
        return _ownership(kinds)

    def _lease(self, base: Path, *ids: str) -> str | None:
        self.before("lease")
        self.after("lease", self.world.lease)
        self.files.lease_seen = self.files.lease_seen or self.world.lease
        return "a lease" if self.world.lease and self.build.lease_counts else None

    def reading(self) -> Reading:
        """The file as a look just before the procedure would have it."""
        replaced = self.world.place == "replaced"
        content = self.world.other if replaced else self.world.data
        return _read(content, 2 if replaced else 1, edge_writer.READ_WINDOW_BYTES)

    def release(self) -> None:
        """Nobody needs it any more: the circle of references is cut, or each one would wait for the collector."""
        del self.files, self.store, self.recorder

    def run(self, name: str) -> None:
        """Do it. Raises `Killed` when a hook says so."""
        act = _ACTS[name]
        outcome = act(self)
        if outcome is not None:
            self.outcomes.append(outcome)

    @property
    def can(self) -> set[str]:
        """What makes sense now; each of the user's wishes once a history."""
        if self.world.crashed[self.watcher]:
            return {"restart"}
        found = {"title", "deliver"}
        state = self.reading().state
        given = {(entry.kind.value, entry.source, entry.text[:1]) for entry in self.store.entries()}
        if state.turn and ("recap", "", "R") not in given:
            found.add("recap")
        if ("title", "manual", "N") not in given:
            found.add("name")
        if state.title is not None and ("title", "auto", "Q") not in given:
            found.add("auto")
        newest = self.recorder.titles.newest_title(SESSION)
        if newest is not None and state.title is not None and state.title.title == newest.title:
            found.add("undo")
        return found


@lru_cache(maxsize=20_000)
def _last_number(content: bytes, prefix: str) -> int:
    """The number in the newest id of ours that begins so."""
    mine = (str(record["uuid"]) for record in reader.records(content) if str(record["uuid"]).startswith(prefix))
    return max((int(uuid.partition(".")[2]) for uuid in mine), default=0)


@lru_cache(maxsize=20_000)
def _read(content: bytes, inode: int, window: int) -> Reading:
    return read_state(
        lambda length, offset: content[offset : offset + length],
        dev=9,
        ino=inode,
        size=len(content),
        window=window,
    )


@cache
def _ownership(kinds: tuple[str, ...]) -> Ownership:
    live = (
        Owner(pid=10 + number, kind=kind, session_id=SESSION, alive=Alive.LIVE, source=OwnerSource.REGISTRY)
        for number, kind in enumerate(kinds)
    )
    return Ownership((*live, GONE))


def _title(procedure: Procedure) -> WriteOutcome | None:
    if procedure.recorder.stopped(SESSION):
        return None
    return procedure.recorder.automatic_title(REF, f"T{procedure.watcher}", "m", procedure.reading())


def _recap(procedure: Procedure) -> WriteOutcome | None:
    reading = procedure.reading()
    if procedure.recorder.stopped(SESSION):
        return None
    basis = RecapBasis(reading.state.turn, reading.state.moves)
    return procedure.recorder.recap(REF, f"R{procedure.watcher}", "m", basis, reading)


def _deliver(procedure: Procedure) -> None:
    reading = procedure.reading()
    world = procedure.world
    procedure.recorder.deliver(REF, reading.state, reading.size, world.mtime / SECOND, reading)


def _wished(procedure: Procedure, title: str, source: str, *, yields: bool) -> None:
    """From the moment of our line, this is what the user asked for last; unless a name given since wins."""
    before = procedure.world.wish

    def on_write() -> None:
        world = procedure.world
        if not yields or world.wish == before:
            world.wish = ((title, source), True)
            world.blurred = False
            world.ghost_title = (title, source)
        procedure.files.on_write = lambda: None

    procedure.files.on_write = on_write


def _name(procedure: Procedure) -> WriteOutcome:
    name = f"N{procedure.watcher}.{procedure.world.serial}.{len(procedure.store.entries())}"
    _wished(procedure, name, "manual", yields=False)
    return procedure.recorder.manual_title(REF, name, procedure.reading())[0]


def _auto(procedure: Procedure) -> WriteOutcome:
    name = f"Q{procedure.watcher}.{procedure.world.serial}.{len(procedure.store.entries())}"
    reading = procedure.reading()
    basis = SessionFile(reading.state, reading.size, procedure.world.mtime / SECOND, reading.torn_bytes)
    _wished(procedure, name, "auto", yields=True)
    return procedure.recorder.requested_title(REF, name, "m", basis, reading)[0]


def _undo(procedure: Procedure) -> WriteOutcome | None:
    reading = procedure.reading()
    newest = procedure.recorder.titles.newest_title(SESSION)
    if newest is None:
        return None
    title, source = title_before(reading.state.titles, newest.offset)
    _wished(procedure, title, source.value, yields=False)
    return procedure.recorder.undo_title(REF, title, TitleSource(source), reading)[0]


def _restart(procedure: Procedure) -> None:
    procedure.recorder.recover(session_ref)
    crashed = procedure.world.crashed
    procedure.world.crashed = (*crashed[: procedure.watcher], False, *crashed[procedure.watcher + 1 :])


_ACTS: dict[str, Callable[[Procedure], WriteOutcome | None]] = {
    "title": _title,
    "recap": _recap,
    "deliver": _deliver,
    "name": _name,
    "auto": _auto,
    "undo": _undo,
    "restart": _restart,
}

__all__ = ["Build", "Failed", "Killed", "Procedure", "Written"]
