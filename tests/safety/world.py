"""The whole world of one session as one value that can be copied and compared: disk, processes, our stores.

`World` is mutable while it runs, but every field holds an immutable value, so a copy is shallow and a key is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, cast

from tests.safety import native, reader
from tests.safety.native import ENDED, Append, Cli, Node, Title
from watcher.edge.store import JournalEntry, Pending

SECOND = 1_000_000_000
BASE_NS = 1_796_000_000 * SECOND
"""The modification time of a file at rest."""
NOW_NS = BASE_NS + 10_000 * SECOND
"""When our procedures run: everything at rest has been still for long."""

OUR_PREFIX = "o"


@dataclass(frozen=True, slots=True)
class StoreState:
    """What one of our state databases holds of this session."""

    journal: tuple[JournalEntry, ...] = ()
    pending: tuple[Pending, ...] = ()
    intents: tuple[tuple[str, Any], ...] = ()
    anomalies: tuple[str, ...] = ()
    dismissed: bool = False
    hashed: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "hashed", hash((self.journal, self.pending, self.intents, self.anomalies, self.dismissed))
        )

    def __hash__(self) -> int:
        return self.hashed


@dataclass(slots=True)
class World:
    """One state of everything. Times are nanoseconds since the epoch.

    `place`: where the session file is ("chats", or what became of it); `other` is the content of the second file that
    stands at its path when it was replaced. `torn` tells that the file ends in a line that a native writer left
    unfinished. `mirror`, `ghost_title`: see `native`. `wish` is the last title that a user asked for, and whether
    through this program. `blurred`: a process died inside its own write in the very moment of ours, and no title was
    given since (see `reductions.blurs`). `early`: the session was loaded behind a line of ours whose repair was still
    due. `kills` counts how often we were killed. `broken` says what a native process
    found wrong.
    """

    data: bytes = b""
    place: str = "chats"
    other: bytes = b""
    torn: bool = False
    mtime: int = BASE_NS
    touched: int = BASE_NS
    tick: int = 0
    room: int | None = None
    short: int = 0
    lease: bool = False
    clis: tuple[Cli, ...] = (ENDED, ENDED)
    mirror: tuple[Node, ...] = ()
    ghost_title: Title | None = None
    wish: tuple[Title, bool] | None = None
    blurred: bool = False
    early: bool = False
    serial: int = 0
    stores: tuple[StoreState, ...] = (StoreState(),)
    crashed: tuple[bool, ...] = (False,)
    kills: int = 0
    broken: str = ""

    def copy(self) -> World:
        """The same, to be changed."""
        return World(*cast("tuple[Any, ...]", self.key()))

    def key(self) -> tuple[object, ...]:
        """All of it as one hashable value."""
        return _values_of(self)

    # -- the disk -----------------------------------------------------------------------------------------------------

    def stamp(self) -> int:
        """The time of a write that happens now."""
        self.tick += 1
        return NOW_NS + self.tick

    def append_native(self, line: bytes) -> None:
        """One append by somebody else."""
        self.data += line
        self.mtime = self.touched = self.stamp()

    def settle(self) -> None:
        """Time passes: what happened lately becomes long ago."""
        self.mtime = BASE_NS + (self.mtime != self.touched and self.mtime < self.touched)
        self.touched = BASE_NS
        self.tick = 0

    @property
    def unfinished(self) -> bool:
        """We were killed, or a write of ours is still to be verified."""
        return any(self.crashed) or any(store.intents for store in self.stores)

    # -- native processes ---------------------------------------------------------------------------------------------

    def perform(self, done: Append, process: int) -> None:
        """What an operation of a process does to the world."""
        cli = done.cli
        if done.line is not None:
            if cli.holds is not None and cli.holds != self.data:
                self.broken = "the holder of a writer lease finds its session changed"
            swallowed = self.torn and not self.data.endswith(b"\n")
            self.append_native(done.line)
            if cli.holds is not None:
                cli = replace(cli, holds=self.data)
            if done.node is not None and not swallowed:
                self.mirror += (done.node,)
            self.torn = False
        if done.ghost_title is not None:
            self.ghost_title = done.ghost_title
        self.serial += 1
        self.put(process, cli)

    def put(self, process: int, cli: Cli) -> None:
        """Exchange one process."""
        self.clis = (*self.clis[:process], cli, *self.clis[process + 1 :])

    # -- what a resumed conversation would hold -----------------------------------------------------------------------

    def turns(self) -> list[str] | None:
        """The native records that say something on the active chain, None when the file cannot be loaded."""
        try:
            chain = reader.active_chain(self.data)
        except reader.MixedIds:
            return None
        return [record["uuid"] for record in chain if record["uuid"] in _content_of(self.mirror)]

    def turns_without_us(self) -> list[str]:
        """The same, had we never written."""
        return [node.uuid for node in native.mirror_chain(self.mirror) if node.kind != "t"]

    def turns_brought_back(self) -> list[str]:
        """Where the session was loaded too early and got no more than a title since: what that hid has come back."""
        said = [node.uuid for node in self.mirror if node.kind != "t"]
        return [node.uuid for node in native.mirror_chain(self.mirror, said[-1]) if node.kind != "t"]

    @property
    def is_stale(self) -> bool:
        """Our record is the leaf, and does not know the last record of somebody else: a repair is due."""
        try:
            records = reader.conversation(self.data)
        except reader.MixedIds:
            return False
        if not records or not str(records[-1]["uuid"]).startswith(OUR_PREFIX):
            return False
        others = [record for record in records if not str(record["uuid"]).startswith(OUR_PREFIX)]
        return others[-1] not in reader.active_chain(self.data)

    def ours(self) -> Iterator[dict[str, object]]:
        """Our records in file order."""
        for record in reader.records(self.data):
            if str(record["uuid"]).startswith(OUR_PREFIX):
                yield record


_values_of = cast("Callable[[World], tuple[Any, ...]]", attrgetter(*(each.name for each in fields(World))))


def _content_of(mirror: tuple[Node, ...]) -> set[str]:
    return {node.uuid for node in mirror if node.kind != "t"}


_PLAIN = frozenset({str, int, float, bool, type(None)})


def frozen(value: object) -> Any:
    """A JSON value as a hashable one."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return ("object", *[(name, each if type(each) in _PLAIN else frozen(each)) for name, each in value.items()])
    if isinstance(value, list):
        return ("array", *[frozen(each) for each in value])
    return value


def thawed(value: Any) -> Any:
    """The reverse of `frozen`."""
    if not isinstance(value, tuple):
        return value
    if value[0] == "object":
        return {name: thawed(each) for name, each in value[1:]}
    return [thawed(each) for each in value[1:]]
