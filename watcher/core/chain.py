"""The conversation chain of one session: which records are on the active branch, and how many turns it has.

An immutable view on shared, append-only storage: adding to the newest view is O(1), adding to an older one copies.
Views are values, but the storage is not locked: one thread owns a session's chain.

The rules are those of Qwen Code's reader (contract 4.1): the leaf is the last conversation record in file order, the
active branch is what its parents lead to, and of records with the same uuid the first one's parent counts.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

MAX_NODES: Final = 16_384
"""Records that a chain remembers at most; when it is full, the older half is forgotten."""

_WHOLE: Final = 0
"""The way up from a node ends at the start of the conversation."""
_BROKEN: Final = 1
"""The way up ends early: earlier history is hidden."""
_UNKNOWN: Final = 2
"""The way up ends at a record that is forgotten, or that was never read."""

_Node = tuple[int, str | None, bool, bool, int, int, int]
"""Position in file order, parent, is it a turn, is it a recap; turns, turns since a recap and the kind of way up as far
as they were known when the record came."""


class _Totals(NamedTuple):
    turns: int
    since_recap: int
    link: int


class _Store:
    """The storage that consecutive views share. Only the view whose size it has may add to it."""

    __slots__ = ("amended", "awaited", "forgotten", "irregular", "limit", "nodes", "size", "unsure_from")

    def __init__(self, limit: int, *, forgotten: bool) -> None:
        self.limit = limit
        self.forgotten = forgotten
        self.size = 0
        self.nodes: dict[str, _Node] = {}
        self.awaited: set[str] = set()
        """Parents that are named, but were not there when their child came."""
        self.amended: dict[str, list[tuple[int, bool, bool]]] = {}
        """What later fragments of a record added to it: position, turn, recap."""
        self.irregular = False
        """A parent came after its child, or a fragment changed what its record counts: totals must be walked."""
        self.unsure_from: int | None = None
        """Where a parent came whose child may be forgotten: from here on, nothing is certain."""

    def until(self, size: int) -> _Store:
        """A copy that holds what a view of `size` records sees."""
        store = _Store(self.limit, forgotten=self.forgotten)
        store.size = size
        store.irregular = self.irregular
        if self.unsure_from is not None and self.unsure_from < size:
            store.unsure_from = self.unsure_from
        store.nodes = {uuid: node for uuid, node in self.nodes.items() if node[0] < size}
        store.awaited = {parent for _, parent, *_ in store.nodes.values() if parent and parent not in store.nodes}
        store.awaited.update(parent for parent in self.awaited if parent not in store.nodes)
        store.amended = {
            uuid: kept for uuid, all_ in self.amended.items() if (kept := [one for one in all_ if one[0] < size])
        }
        return store

    def newest_half(self, leaf: str, leaf_node: _Node) -> _Store:
        """A copy without the older half of the nodes; the leaf stays, however old it is."""
        store = _Store(self.limit, forgotten=True)
        store.size = self.size
        store.irregular = self.irregular
        # What the kept nodes carry for forgotten ancestors dates from their arrival; in an irregular store it may have
        # changed since.
        store.unsure_from = self.size if self.irregular and self.unsure_from is None else self.unsure_from
        store.nodes = dict(islice(self.nodes.items(), len(self.nodes) // 2, None))
        if leaf not in store.nodes:
            store.nodes = {leaf: leaf_node} | store.nodes
        store.awaited = set(self.awaited)
        store.amended = {uuid: all_ for uuid, all_ in self.amended.items() if uuid in store.nodes}
        return store

    def wait_for(self, parent: str, position: int) -> None:
        """Note a parent that is not there, so that its coming is noticed."""
        if len(self.awaited) < self.limit:
            self.awaited.add(parent)
        elif self.unsure_from is None:
            self.unsure_from = position

    def has_come(self, uuid: str, position: int) -> None:
        """A parent came after its child: what was counted on the way up to the child no longer holds."""
        self.awaited.discard(uuid)
        self.irregular = True
        if self.forgotten and self.unsure_from is None:
            self.unsure_from = position

    def amend(self, uuid: str, node: _Node, position: int, *, is_turn: bool, is_recap: bool) -> None:
        """Note what a fragment makes of a record beyond what is known of it, if anything."""
        earlier = self.amended.get(uuid, [])
        new_turn = is_turn and not node[2] and not any(turn for _, turn, _ in earlier)
        new_recap = is_recap and not node[3] and not any(recap for _, _, recap in earlier)
        if new_turn or new_recap:
            self.amended[uuid] = [*earlier, (position, new_turn, new_recap)]
            self.irregular = True


class Chain:
    """One view. `limit` bounds the records remembered; `whole` is False when records before the first were not read.

    Counters stay right when old records are forgotten, since each record carries them for the way up to it.
    """

    __slots__ = ("_leaf", "_node", "_size", "_store", "_totals")

    _store: _Store
    _size: int
    _leaf: str | None
    _node: _Node
    _totals: _Totals | None

    def __init__(self, limit: int = MAX_NODES, *, whole: bool = True) -> None:
        self._store = _Store(max(limit, 2), forgotten=not whole)
        self._size = 0
        self._leaf = None
        self._node = (-1, None, False, False, 0, 0, _WHOLE)
        self._totals = None

    def add(
        self, uuid: str, parent: str | None, *, is_turn: bool = False, is_recap: bool = False, is_root: bool = False
    ) -> Chain:
        """The view after one more conversation record, which becomes the leaf.

        A `parent` of None after the first record hides everything before it; `is_root` says that this is meant (a
        rewind to the first turn), so that the chain does not count as broken. A repeated `uuid` is a fragment: the
        first record's parent stays, a turn or recap in any fragment counts.
        """
        if parent == self._leaf:
            parent = self._leaf  # the usual case: one text in memory instead of two equal ones
        store = self._store
        if store.size != self._size:
            store = store.until(self._size)
        position = store.size
        node = store.nodes.get(uuid)
        if node is None:
            if len(store.nodes) >= store.limit:
                store = store.newest_half(self._leaf or uuid, self._node)
            nodes = store.nodes
            if parent is None:
                turns, since, link = 0, 0, _WHOLE if is_root or (position == 0 and not store.forgotten) else _BROKEN
            elif above := nodes.get(parent):
                turns, since, link = above[4:]
            else:
                turns, since, link = 0, 0, _UNKNOWN if store.forgotten else _BROKEN
                store.wait_for(parent, position)
            if is_turn:
                turns += 1
                since += 1
            node = (position, parent, is_turn, is_recap, turns, 0 if is_recap else since, link)
            nodes[uuid] = node
            if uuid in store.awaited:
                store.has_come(uuid, position)
        elif is_turn or is_recap:
            store.amend(uuid, node, position, is_turn=is_turn, is_recap=is_recap)
        store.size = position + 1
        view = object.__new__(Chain)
        view._store = store
        view._size = store.size
        view._leaf = uuid
        view._node = node
        view._totals = None
        return view

    @property
    def leaf(self) -> str | None:
        """uuid of the last conversation record in file order, None when there is none (contract rule 1)."""
        return self._leaf

    @property
    def user_turns(self) -> int:
        """Real user turns on the active branch; at least so many when not `exact`."""
        return self._counted().turns

    @property
    def turns_since_recap(self) -> int:
        """Real user turns on the active branch after its last recap, all of them when it has none."""
        return self._counted().since_recap

    @property
    def broken(self) -> bool:
        """Whether the active branch hides earlier history: a parent that is nowhere, a null parent, a loop.

        When not `exact` this is what can be seen: a parent that may only be forgotten does not count.
        """
        return self._counted().link == _BROKEN

    @property
    def exact(self) -> bool:
        """Whether the active branch is known up to its start, directly or through the counters of forgotten records."""
        return self._counted().link != _UNKNOWN and not self._is_unsure()

    def contains_on_active(self, uuid: str) -> bool | None:
        """Whether the record is on the active branch; None where that is forgotten. Walks the branch."""
        steps = self._walk()
        if uuid in steps:
            return True
        if self._is_unsure():
            return None
        if not steps or not self._store.forgotten or self._known(uuid) is not None:
            return False
        last = self._store.nodes[steps[-1]]
        return False if last[1] is None or self._known(last[1]) else None

    def _known(self, uuid: str) -> _Node | None:
        node = self._store.nodes.get(uuid)
        return node if node is not None and node[0] < self._size else None

    def _walk(self) -> list[str]:
        """The uuids from the leaf upwards, as far as they are known; a loop ends the way."""
        steps: dict[str, None] = {}
        uuid = self._leaf
        while uuid is not None and uuid not in steps and (node := self._known(uuid)) is not None:
            steps[uuid] = None
            uuid = node[1]
        return list(steps)

    def _counted(self) -> _Totals:
        if self._totals is None:
            self._totals = self._walk_totals() if self._store.irregular else _Totals(*self._node[4:])
        return self._totals

    def _is_unsure(self) -> bool:
        return self._store.unsure_from is not None and self._store.unsure_from < self._size

    def _walk_totals(self) -> _Totals:
        steps = self._walk()
        turns = since = 0
        recap_seen = False
        for uuid in steps:
            node = self._store.nodes[uuid]
            added = [one for one in self._store.amended.get(uuid, ()) if one[0] < self._size]
            recap_seen = recap_seen or node[3] or any(recap for _, _, recap in added)
            if node[2] or any(turn for _, turn, _ in added):
                turns += 1
                since += not recap_seen
        if not steps:
            return _Totals(0, 0, _WHOLE)
        _, parent, is_turn, _, known_turns, known_since, link = self._store.nodes[steps[-1]]
        if parent is not None and self._known(parent) is not None:
            return _Totals(turns, since, _BROKEN)  # a loop
        # The end is the start of the conversation, a gap, or a record that carries the totals of forgotten ancestors.
        turns += known_turns - is_turn
        if not recap_seen:
            since += known_since - is_turn
        return _Totals(turns, since, link)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chain):
            return NotImplemented
        return (self._leaf, self._size, self._counted()) == (other._leaf, other._size, other._counted())

    def __hash__(self) -> int:
        return hash((self._leaf, self._size))

    def __repr__(self) -> str:
        return f"Chain(leaf={self._leaf!r}, user_turns={self.user_turns}, records={self._size})"
