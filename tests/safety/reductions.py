"""What the exploration may leave out without missing anything, and the little that nobody can keep apart.

A native operation is tried before each call of ours that it can influence, or that can influence it (`NOTICED`); before
any other call it makes no difference, since the two commute, so that place is the same as before the next such call.
Our death is tried before each call that changes something (`CHANGING`): between two of them nothing of us is left
behind that differs. Exploring without any of this reaches the same states (`test_reductions`). All else is told in
docs/safety.md, "What is left".
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
"""Calls that only these operations can influence."""
_LOOKS_ON = frozenset({"kill", "start", "serve"})
ENDING_WITHOUT = {
    "write": frozenset({"kill"}),
    **dict.fromkeys(("fstat", "read_to_end", "set_times", "touch_now"), _LOOKS_ON | DISK),
}
"""Calls that these operations can neither influence nor be influenced by: a process that ends without a word, or reads
the file (where our line is, not which time it has), or a disk that has no room for what is not written yet. Not a
lease: it is not taken directly before our write (`LEASED_LATE`), so its place matters.
"""
CHANGING = frozenset({"write", "set_times", "touch_now", "store"})
"""Calls that change anything: between two of them it makes no difference where we are killed."""
OTHERS_TURN = frozenset({"try_lock", "write", "set_times"})
"""Calls of ours before which the other watcher does something, whole, with native operations before each of its calls.

Two of us share the file and nothing else, and each changes it only under the lock. So one has the lock first: up to
there the other one has read the file once, when it began, which may have been before (it is then inside the other's
procedure, or around it: its own lock comes next) or after. While one of us holds the lock, the other finds it taken,
and what it does then depends on the file alone: without our line before our write, with it before `set_times`.
"""

LEASED_LATE = "a writer lease is taken, and the file read by its holder, between our last look for one and our write"
LOADED_EARLY = "a session is loaded while a line of ours that raced another waits for its repair"
DIED_BESIDE = "a name is not shown whose writer died inside another write in the very moment of ours"


class Reductions:
    """What is left out in a configuration with these operations and so many watchers."""

    merges = True
    """Equal states are explored once, also those in the middle of a procedure of ours."""

    def __init__(self, names: frozenset[str], watchers: int, kills: int) -> None:
        self._noticed = NOTICED | ({"lease"} if "acp" in names else set())
        if names & (PLACES | DISK):
            self._noticed |= NOTICED_PLACE
        if watchers > 1:
            self._noticed |= {"try_lock"}
        if kills:
            self._noticed |= {"store"}

    def stops_at(self, call: str, *, locked_out: bool) -> bool:
        """Whether anything is tried before this call, which a procedure makes that may find the lock taken: then it
        reads when it begins and changes nothing, so what happens meanwhile may as well come after it.
        """
        return call in self._noticed and not locked_out

    def kills_at(self, call: str) -> bool:
        """Whether we are killed before this call."""
        return call in CHANGING

    def turns_at(self, call: str) -> bool:
        """Whether the other watcher does something before this call."""
        return call in OTHERS_TURN

    def meets(self, call: str, operation: str) -> bool:
        """Whether one makes a difference to the other: what comes last before a call does, and anything else may as
        well happen later.
        """
        name = operation.partition(".")[0]
        if call == "store":
            return False  # our own database
        return name in ENDING_WITH[call] if call in ENDING_WITH else name not in ENDING_WITHOUT.get(call, ())


class Unreduced(Reductions):
    """Everything before every call, each history by itself."""

    merges = False

    def stops_at(self, call: str, *, locked_out: bool) -> bool:
        return True

    def kills_at(self, call: str) -> bool:
        return True

    def turns_at(self, call: str) -> bool:
        return True

    def meets(self, call: str, operation: str) -> bool:
        return True


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
