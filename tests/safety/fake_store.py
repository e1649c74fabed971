"""The state database of one watcher as part of a `World`: the methods of `watcher.edge.store.Store` that writing uses.

`test_fake_store` runs the same writes on this one and on the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tests.safety.world import StoreState, World, frozen, thawed
from watcher.edge.store import JournalEntry, JournalKind, Paused, Pending, PendingKind


class FakeStore:
    """The store of watcher number `watcher` in this world. `before` is called before each change."""

    def __init__(self, world: World, watcher: int, before: Callable[[str], None]) -> None:
        self._world = world
        self._watcher = watcher
        self._before = before
        self.on_drop: Callable[[], None] = lambda: None

    @property
    def _state(self) -> StoreState:
        return self._world.stores[self._watcher]

    def _put(self, state: StoreState) -> None:
        if state == self._state:
            return
        self._before("store")
        stores = self._world.stores
        self._world.stores = (*stores[: self._watcher], state, *stores[self._watcher + 1 :])

    # -- journal ------------------------------------------------------------------------------------------------------

    def record(self, entry: JournalEntry, intent: str = "") -> int:
        state = self._state
        if intent and intent not in dict(state.intents):
            return 0
        seq = len(state.journal) + 1
        kept = replace(entry, seq=seq, uuids=entry.uuids or (entry.record_uuid,))
        intents = tuple(each for each in state.intents if each[0] != intent)
        self._put(replace(state, journal=(*state.journal, kept), intents=intents))
        return seq

    def redelivered(self, seq: int, record_uuid: str, at: float, offset: int | None = None) -> None:
        journal = tuple(
            replace(
                each,
                record_uuid=record_uuid,
                uuids=(*each.uuids, record_uuid),
                offset=each.offset if offset is None else offset,
                note="redelivered",
            )
            if each.seq == seq
            else each
            for each in self._state.journal
        )
        self._put(replace(self._state, journal=journal))

    def entries(
        self,
        after_seq: int = 0,
        kinds: Iterable[JournalKind] | None = None,
        session_id: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> list[JournalEntry]:
        wanted = set(kinds) if kinds is not None else set(JournalKind)
        found = [each for each in self._state.journal if each.seq > after_seq and each.kind in wanted]
        return found if limit is None else found[-limit:]

    def entry(self, seq: int) -> JournalEntry | None:
        return next((each for each in self._state.journal if each.seq == seq), None)

    def our_titles(self, session_id: str) -> list[JournalEntry]:
        return [each for each in self._state.journal if each.source]

    # -- what waits ---------------------------------------------------------------------------------------------------

    def put_pending(self, pending: Pending) -> None:
        others = tuple(each for each in self._state.pending if each.kind is not pending.kind)
        self._put(replace(self._state, pending=tuple(sorted((*others, pending), key=lambda each: each.kind.value))))

    def pending(self, session_id: str) -> list[Pending]:
        return list(self._state.pending)

    def drop_pending(self, session_id: str, kind: PendingKind | None = None) -> None:
        kept = tuple(each for each in self._state.pending if kind is not None and each.kind is not kind)
        self._put(replace(self._state, pending=kept))

    # -- writes under way ---------------------------------------------------------------------------------------------

    def put_intent(self, uuid: str, data: Mapping[str, Any]) -> None:
        others = (each for each in self._state.intents if each[0] != uuid)
        self._put(replace(self._state, intents=tuple(sorted((*others, (uuid, frozen(data)))))))

    def drop_intent(self, uuid: str) -> None:
        self._put(replace(self._state, intents=tuple(each for each in self._state.intents if each[0] != uuid)))
        self.on_drop()

    def intents(self) -> list[dict[str, Any]]:
        return [thawed(data) for _, data in self._state.intents]

    # -- brake and switches -------------------------------------------------------------------------------------------

    def note_anomaly(self, session_id: str, what: str, at: float) -> None:
        self._put(replace(self._state, anomalies=(*self._state.anomalies, what)))

    def stopped_all(self) -> str | None:
        return None

    def session_stopped(self, session_id: str) -> str | None:
        return self._state.anomalies[-1] if self._state.anomalies else None

    def paused(self, now: float) -> Paused | None:
        return None

    def dismiss(self, session_id: str, at: float) -> None:
        self._put(replace(self._state, dismissed=True))

    def is_dismissed(self, session_id: str) -> bool:
        return self._state.dismissed
