"""What the exploration may leave out without missing anything, and the little that nobody can keep apart.

A native operation is tried before each call of ours that it can influence, or that can influence it (`NOTICED`); before
any other call it makes no difference, since the two commute, so that place is the same as before the next such call.
Our death is tried before each call that changes something (`CHANGING`): between two of them nothing of us is left
behind that differs. All else is told in docs/safety.md, "What is left".
"""

from __future__ import annotations

from tests.safety.memory_files import MemoryFiles

NOTICED = frozenset({"owners", "fstat", "read_to_end", "write", "set_times", "touch_now"})
"""Calls that a process's append, start or end can influence, or be influenced by."""
NOTICED_PLACE = frozenset({"open_append", "open_read", "lstat", "fstat_reader", "room"})
"""Further ones, where the file can be moved, linked or the disk fill up."""
PLACES = frozenset({"archived", "deleted", "replaced", "symlink", "linked"})
DISK = frozenset({"full", "space", "short"})
ENDING_WITH = {
    "owners": frozenset({"start", "acp", "serve", "leave", "kill", "torn", "torn_name"}),
    "lease": frozenset({"acp", "leave"}),
    "open_append": PLACES,
    "open_read": PLACES,
    "lstat": PLACES,
    "fstat_reader": PLACES,
    "room": frozenset({"full", "space"}),
}
"""Calls that only these operations can influence: what comes last before one of them is of this kind, and anything else
may as well happen later.
"""
CHANGING = frozenset({"write", "set_times", "touch_now", "store"})
"""Calls that change anything: between two of them it makes no difference where we are killed."""

LEASED_LATE = "a writer lease is taken, and the file read by its holder, between our last look for one and our write"
LOADED_EARLY = "a session is loaded while a line of ours that raced another waits for its repair"
DIED_BESIDE = "a name is not shown whose writer died inside another write in the very moment of ours"


def noticed(names: frozenset[str], watchers: int) -> frozenset[str]:
    """The calls before which something may happen, where this is what others can do."""
    found = NOTICED | ({"lease"} if "acp" in names else set())
    if names & (PLACES | DISK):
        found |= NOTICED_PLACE
    return found | ({"try_lock"} if watchers > 1 else set())


def impossible(call: str, operation: str) -> bool:
    """The file system lets no change of ours in between the bytes of one `write` of somebody else, although we may see
    a part of them. (One that begins before ours then comes to its end first: `MemoryFiles.in_flight`.)
    """
    return operation.startswith("half") and call in ("write", "set_times", "touch_now")


def left_out(call: str, operation: str) -> str:
    """Why this is not tried, "" when it is."""
    return LEASED_LATE if call == "write" and operation.startswith("acp") else ""


def blurs(files: MemoryFiles, call: str, operation: str) -> bool:
    """Whether a process dies inside its own `write` of a name, and our line will be glued to it. Nothing is written to
    that session from then on (design promise 6), so no title is demanded until somebody gives the next one; the
    conversation and all else are judged as ever.
    """
    return call == "write" and not files.appended and operation.startswith("torn_name")
