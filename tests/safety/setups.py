"""The configurations that are explored: which processes there are, what they and we can do, and where they begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.safety import native
from tests.safety.native import SESSION, Cli
from tests.safety.operations import Alphabet
from tests.safety.plan import Setup
from tests.safety.watching import Build, Procedure
from tests.safety.world import StoreState, World

__all__ = ["SESSION", "SETUPS", "setup"]

WINDOW = 700
"""A window of so many bytes holds two or three records."""

TERMINAL = frozenset({"start", "say", "anchor", "rename", "auto", "compress", "rewind", "leave", "kill"})
AUTOMATIC = frozenset({"title", "recap", "deliver"})
BY_USER = frozenset({"name", "auto", "undo", "deliver"})


def alive(stores: int = 1) -> World:
    """A terminal has finished its first turn; it holds no title."""
    world = World(stores=(StoreState(),) * stores, crashed=(False,) * stores)
    world.put(0, Cli(live=True))
    for _ in range(2):
        world.perform(native.say(world.clis[0], f"n{world.serial}"), 0)
    world.settle()
    return world


def ended(stores: int = 1) -> World:
    """The same, and the terminal is closed."""
    world = alive(stores)
    world.put(0, native.ENDED)
    return world


def after(world: World, alphabet: Alphabet, *happened: str) -> World:
    """The world after some operations and procedures of ours."""
    every = replace(alphabet, names=frozenset(TERMINAL))
    for each in happened:
        if each.partition(".")[0] in every.names:
            every.apply(world, each)
        else:
            Procedure(world).run(each)
        world.settle()
    return world


def _one_terminal() -> Setup:
    return Setup("one terminal", alive(), Alphabet(TERMINAL), AUTOMATIC, 4, 4)


def _users_wishes() -> Setup:
    """`title S NAME`, `title S --auto` and `undo` beside a terminal that holds a title of its own."""
    alphabet = Alphabet(frozenset({"start", "say", "anchor", "rename", "leave"}))
    begin = after(alive(), alphabet, "auto.0", "say.0", "say.0")
    return Setup("the user's wishes", begin, alphabet, BY_USER, 4, 4)


def _two_terminals() -> Setup:
    """Hazard h: two terminals hold our title, and one of them renames."""
    alphabet = Alphabet(frozenset({"say", "anchor", "rename", "leave"}), processes=2)
    begin = after(ended(), alphabet, "title", "start.0", "start.1", "say.0", "anchor.0", "say.0")
    return Setup("two terminals", begin, alphabet, frozenset({"name", "recap", "deliver"}), 4, 4)


def _killed() -> Setup:
    """We are killed before any call, and start again later."""
    alphabet = Alphabet(frozenset({"start", "say", "anchor", "rename", "rewind", "leave"}))
    return Setup("killed and started again", alive(), alphabet, AUTOMATIC, 4, 4, kills=1)


def _leased() -> Setup:
    """ACP processes with the writer lease on (contract 5)."""
    alphabet = Alphabet(frozenset({"start", "acp", "serve", "say", "rename", "leave", "kill"}))
    return Setup("writer lease", ended(), alphabet, AUTOMATIC | {"name"}, 4, 4)


def _hostile_records() -> Setup:
    """Artifact records, torn lines, and other tools that write what they like."""
    names = frozenset({"say", "half", "rest", "rename", "artifact", "leave", "torn", "torn_name", "unsourced", "alien"})
    return Setup("hostile records", alive(), Alphabet(names), AUTOMATIC, 4, 4)


def _hostile_places() -> Setup:
    """The file is archived, deleted, replaced, linked under our hands."""
    names = frozenset({"say", "rename", "leave", "archived", "deleted", "replaced", "symlink", "linked"})
    return Setup("hostile places", alive(), Alphabet(names), AUTOMATIC, 4, 4)


def _full_disk() -> Setup:
    """The disk fills up, or a write is cut short, at any moment; and we may be killed then."""
    names = frozenset({"start", "say", "rename", "leave", "full", "space", "short"})
    return Setup("full disk", ended(), Alphabet(names), AUTOMATIC, 4, 4, kills=1)


def _two_watchers() -> Setup:
    """Two of us with different state directories on one session."""
    names = frozenset({"start", "say", "rename", "leave"})
    return Setup("two watchers", alive(2), Alphabet(names), AUTOMATIC, 4, 4, watchers=2)


def _out_of_sight() -> Setup:
    """Windows so small that titles leave them: ours comes back into sight, and nobody else's."""
    alphabet = Alphabet(frozenset({"start", "say", "rename", "leave", "kill"}), window=WINDOW)
    begin = after(alive(), alphabet, "say.0", "say.0", "title")
    return Setup("out of sight", begin, alphabet, frozenset({"deliver", "recap"}), 5, 4)


def _name_out_of_sight() -> Setup:
    """A name has drifted out of both windows: it still wins (design 6)."""
    alphabet = Alphabet(frozenset({"start", "say", "rename", "leave", "kill"}), window=WINDOW)
    begin = after(alive(), alphabet, "say.0", "say.0", "rename.0", "say.0", "say.0", "say.0", "say.0")
    return Setup("a name out of sight", begin, alphabet, AUTOMATIC, 4, 4)


SETUPS: dict[str, Callable[[], Setup]] = {
    "one terminal": _one_terminal,
    "hostile records": _hostile_records,
    "two terminals": _two_terminals,
    "two watchers": _two_watchers,
    "the user's wishes": _users_wishes,
    "killed and started again": _killed,
    "writer lease": _leased,
    "full disk": _full_disk,
    "out of sight": _out_of_sight,
    "hostile places": _hostile_places,
    "a name out of sight": _name_out_of_sight,
}
"""The longest first, so that processes beside each other end together."""


def setup(name: str, natives: int | None = None, ours: int | None = None, build: Build | None = None) -> Setup:
    """One configuration, made smaller or with a mutant in it where wanted."""
    full = SETUPS[name]()
    return replace(
        full,
        native_operations=full.native_operations if natives is None else natives,
        our_operations=full.our_operations if ours is None else ours,
        build=build or full.build,
    )
