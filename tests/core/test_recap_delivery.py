"""When a kept recap is written, and when it is delivered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.conversation import Conversation
from watcher.core.decisions import Act, Decision, Skip, WaitUntil
from watcher.core.generation import Kind
from watcher.core.owner import HEADLESS, NOBODY, TUI, Alive, Owner, Ownership, OwnerSource
from watcher.core.reasons import Reason
from watcher.core.recap_delivery import (
    LEASE_LOOK_SECONDS,
    UNTOLD_END_LOOK_SECONDS,
    DeliveryFacts,
    KeptRecap,
    decide_delivery,
)

NOW = 1_800_000_000.0
ACT = Act(Kind.RECAP)
TERMINAL = Ownership(
    (Owner(pid=10, kind=TUI, session_id="s", alive=Alive.LIVE, source=OwnerSource.REGISTRY, tty="/dev/pts/3"),)
)
EDITOR = Ownership((replace(TERMINAL.owners[0], kind=HEADLESS, tty=None),))
ENDED = Ownership((replace(TERMINAL.owners[0], alive=Alive.GONE),), sidecar_seen=True)


def talk() -> Conversation:
    """Three turns, a while ago."""
    conversation = Conversation()
    for _ in range(3):
        conversation.turn(NOW - 400.0)
    return conversation


def delivery(
    conversation: Conversation, *records: str, ownership: Ownership = NOBODY, turn: str = "", **changes: Any
) -> Decision:
    """The decision on a text that was made after the third turn, and is carried by these records."""
    return decide_delivery(facts(conversation, *records, ownership=ownership, turn=turn, **changes), NOW)


def facts(
    conversation: Conversation, *records: str, ownership: Ownership = NOBODY, turn: str = "", **changes: Any
) -> DeliveryFacts:
    """All that the delivery looks at."""
    kept = KeptRecap(turn or conversation.turns[2], records)
    values: dict[str, Any] = {"still_since": NOW - 400.0, "ownership": ownership} | changes
    return DeliveryFacts(conversation.state, kept=kept, **values)


def test_a_text_is_written_once_while_a_terminal_lives() -> None:
    """Then it waits for the end, for an event and not for a time."""
    conversation = talk()
    assert delivery(conversation, ownership=TERMINAL) == ACT
    record = conversation.our_recap(NOW - 100.0)
    decision = delivery(conversation, record, ownership=TERMINAL)
    assert isinstance(decision, WaitUntil)
    assert decision.at is None


def test_a_text_on_the_active_chain_of_a_session_that_nobody_owns_is_delivered() -> None:
    """Without a live Qwen Code behind it nothing can hide it."""
    conversation = talk()
    record = conversation.our_recap(NOW - 100.0)
    assert delivery(conversation, record, ownership=ENDED) == Skip(Reason.NOTHING_NEW, "delivered")


def test_a_text_that_the_exit_of_a_terminal_hid_is_written_again() -> None:
    """The title copy chains past our record (rule 9); the second record stands."""
    conversation = talk()
    first = conversation.our_recap(NOW - 100.0)
    conversation.title_copy(NOW - 50.0)
    assert conversation.state.turns_since_recap == 3
    assert delivery(conversation, first, ownership=ENDED) == ACT
    second = conversation.our_recap(NOW - 10.0)
    assert delivery(conversation, first, second, ownership=ENDED) == Skip(Reason.NOTHING_NEW, "delivered")


def test_a_delivered_text_stays_delivered_when_the_session_is_resumed_and_left() -> None:
    """A resumed Qwen Code chains on from it."""
    conversation = talk()
    record = conversation.our_recap(NOW - 100.0)
    conversation.resumed()
    conversation.title_copy(NOW - 50.0)
    assert delivery(conversation, record, ownership=ENDED) == Skip(Reason.NOTHING_NEW, "delivered")


def test_a_newer_prompt_makes_the_text_stale() -> None:
    """Dropped, also while the owner lives, and without any record."""
    conversation = talk()
    record = conversation.our_recap(NOW - 100.0)
    conversation.turn(NOW - 50.0)
    for ownership in (TERMINAL, EDITOR, ENDED):
        for records in ((), (record,)):
            decision = delivery(conversation, *records, ownership=ownership, turn=conversation.turns[2])
            assert decision == Skip(Reason.NOTHING_NEW, "the conversation has moved on")


def test_a_rewind_makes_the_text_stale() -> None:
    """The turn it tells of is abandoned (contract 4.3 d)."""
    conversation = talk()
    conversation.rewind(NOW - 50.0, conversation.turns[2])
    assert isinstance(delivery(conversation, ownership=ENDED), Skip)


def test_a_recap_by_qwen_code_in_the_same_place_is_enough() -> None:
    """Two would be shown."""
    conversation = talk()
    conversation.native_recap(NOW - 50.0)
    assert isinstance(delivery(conversation, ownership=ENDED), Skip)


def test_nothing_is_written_into_a_live_acp_or_daemon_session() -> None:
    """Kept until it ends, also beside a terminal (design 7)."""
    conversation = talk()
    both = Ownership(TERMINAL.owners + EDITOR.owners)
    for ownership in (EDITOR, both):
        decision = delivery(conversation, ownership=ownership)
        assert isinstance(decision, WaitUntil)
        assert (decision.reason, decision.at) == (Reason.LOCKED, None)
    gone = Ownership(tuple(replace(owner, alive=Alive.GONE) for owner in EDITOR.owners))
    assert delivery(conversation, ownership=gone) == ACT


def test_an_owner_that_stands_in_no_record_is_looked_for_again() -> None:
    """Nothing tells of its end, and the text is due 15 s after it (design 11)."""
    found = Ownership((replace(EDITOR.owners[0], source=OwnerSource.PROCESS, alive=Alive.UNKNOWN),))
    decision = delivery(talk(), ownership=found)
    assert isinstance(decision, WaitUntil)
    assert (decision.reason, decision.at) == (Reason.LOCKED, NOW + UNTOLD_END_LOOK_SECONDS)
    assert UNTOLD_END_LOOK_SECONDS < 15.0


def test_an_owner_that_cannot_be_judged_counts_as_live() -> None:
    """In doubt nothing is written a second time."""
    conversation = talk()
    unknown = Ownership((replace(TERMINAL.owners[0], alive=Alive.UNKNOWN),))
    record = conversation.our_recap(NOW - 100.0)
    assert isinstance(delivery(conversation, record, ownership=unknown), WaitUntil)


def test_a_lease_is_looked_at_again_in_time() -> None:
    """At most 15 s after it is gone (design 11)."""
    decision = delivery(talk(), leased="a writer lease stands there")
    assert decision == WaitUntil(NOW + LEASE_LOOK_SECONDS, Reason.LOCKED, "a writer lease stands there")
    assert LEASE_LOOK_SECONDS < 15.0


def test_pause_unsafe_files_and_old_versions_stop_a_delivery() -> None:
    """Even one that costs nothing."""
    assert delivery(talk(), unsafe="a link") == Skip(Reason.UNSAFE_FILE, "a link")
    assert delivery(talk(), unsupported="0.15.10") == Skip(Reason.UNSUPPORTED_VERSION, "0.15.10")
    assert delivery(talk(), paused="paused") == WaitUntil(None, Reason.PAUSED, "paused")


def test_a_running_turn_and_a_file_that_is_not_still_are_waited_for() -> None:
    """Two seconds after the last change (design 11)."""
    conversation = talk()
    conversation.turn(NOW - 1.0, answered=False)
    last = conversation.turns[-1]
    decision = delivery(conversation, ownership=TERMINAL, turn=last)
    assert decision == WaitUntil(None, Reason.WORKING, "a turn is running")
    assert delivery(conversation, ownership=ENDED, turn=last) == ACT
    decision = delivery(talk(), still_since=NOW - 1.0)
    assert isinstance(decision, WaitUntil)
    assert decision.at == NOW + 1.0
