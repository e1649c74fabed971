"""When to write a recap that was made and kept, and when it counts as delivered (design 7).

A live terminal chains past our record and may write a title over it at its end, so a text is written once while it
lives and once more when it is gone, if it is not on the active chain then. Nothing is written for a live ACP or daemon
process, nor under a lease: the text is kept until they are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from watcher.core.decisions import Decision
from watcher.core.generation import Kind
from watcher.core.guard_rows import Row, decided, skip_row, wait_row
from watcher.core.owner import NOBODY, Ownership, OwnerSource
from watcher.core.reasons import Reason
from watcher.core.recap_policy import running_row, still_row
from watcher.core.session import SessionState

LEASE_LOOK_SECONDS: Final = 10.0
"""How often a lease in the way is looked at again: a kept text is due 15 s after it is gone (design 11)."""
UNTOLD_END_LOOK_SECONDS: Final = 10.0
"""How often an owner that was found by a search is looked for again: its end is due to be noticed as soon."""


@dataclass(frozen=True, slots=True)
class KeptRecap:
    """A text that is to stand on the active chain: the newest prompt it knew, and our records that carry it."""

    turn: str
    record_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """All that the delivery of a kept text looks at. `leased` says which lease stands there."""

    state: SessionState
    still_since: float
    kept: KeptRecap
    ownership: Ownership = NOBODY
    unsafe: str = ""
    unsupported: str = ""
    paused: str = ""
    leased: str = ""


def decide_delivery(facts: DeliveryFacts, now: float) -> Decision:
    """Whether to write a kept recap now. `Skip` says that it is delivered, or that the conversation has moved on."""
    return decided(_delivery_rows(facts, now), Kind.RECAP)


def _delivery_rows(facts: DeliveryFacts, now: float) -> Iterator[Row]:
    state, kept, ownership = facts.state, facts.kept, facts.ownership
    yield skip_row(Reason.UNSAFE_FILE, facts.unsafe, ok=not facts.unsafe)
    yield skip_row(Reason.UNSUPPORTED_VERSION, facts.unsupported, ok=not facts.unsupported)
    stale = state.turn != kept.turn or state.chain.contains_on_active(kept.turn) is False
    yield skip_row(Reason.NOTHING_NEW, "the conversation has moved on" if stale else "", ok=not stale)
    stands = any(state.chain.contains_on_active(uuid) for uuid in kept.record_uuids)
    other = not stands and state.turns_since_recap == 0
    yield skip_row(Reason.NOTHING_NEW, "another recap stands behind the last turn" if other else "", ok=not other)
    if not ownership.owned:
        yield skip_row(Reason.NOTHING_NEW, "delivered" if stands else "", ok=not stands)
    yield wait_row(Reason.PAUSED, facts.paused, ok=not facts.paused)
    held = "a live ACP or daemon process has the session" if ownership.is_daemon else ""
    # Nothing tells of the end of a process that stands in no record.
    unregistered = any(owner.source is OwnerSource.PROCESS for owner in ownership.live)
    yield wait_row(Reason.LOCKED, held, ok=not held, at=now + UNTOLD_END_LOOK_SECONDS if unregistered else None)
    yield wait_row(Reason.LOCKED, facts.leased, ok=not facts.leased, at=now + LEASE_LOOK_SECONDS)
    if ownership.owned:
        written = bool(kept.record_uuids)
        detail = "written; looked at again when its Qwen Code has ended" if written else ""
        yield wait_row(Reason.NOTHING_NEW, detail, ok=not written)
    yield running_row(state, ownership, facts.still_since, now)
    yield still_row(facts.still_since, now)
