"""The conversation chain: leaf, active branch and counters, against a reader that keeps everything."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.chain import MAX_NODES, Chain


@dataclass(frozen=True)
class Step:
    """One record: what is given to `Chain.add`."""

    uuid: str
    parent: str | None
    turn: bool = False
    recap: bool = False
    root: bool = False


@dataclass
class Naive:
    """The rules of contract 4.1 in their plainest form: a map of all records and a walk from the last one."""

    steps: list[Step] = field(default_factory=list)

    def active(self) -> list[str]:
        """The uuids on the active branch, leaf first."""
        parents: dict[str, str | None] = {}
        for step in self.steps:
            parents.setdefault(step.uuid, step.parent)
        way: list[str] = []
        uuid = self.steps[-1].uuid if self.steps else None
        while uuid is not None and uuid in parents and uuid not in way:
            way.append(uuid)
            uuid = parents[uuid]
        return way

    def turns(self) -> int:
        """Records on the active branch that are turns in any fragment."""
        turns = {step.uuid for step in self.steps if step.turn}
        return sum(uuid in turns for uuid in self.active())

    def since_recap(self) -> int:
        """The turns above the newest recap on the active branch."""
        recaps = {step.uuid for step in self.steps if step.recap}
        turns = {step.uuid for step in self.steps if step.turn}
        count = 0
        for uuid in self.active():
            if uuid in recaps:
                break
            count += uuid in turns
        return count

    def broken(self) -> bool:
        """Whether the active branch ends in a missing parent, a loop, or a later null parent that is no rewind."""
        way = self.active()
        if not way:
            return False
        position, first = next((at, step) for at, step in enumerate(self.steps) if step.uuid == way[-1])
        return first.parent is not None or (position > 0 and not first.root)


def build(steps: list[Step], chain: Chain | None = None) -> Chain:
    """The chain after these records."""
    chain = chain or Chain()
    for step in steps:
        chain = chain.add(step.uuid, step.parent, is_turn=step.turn, is_recap=step.recap, is_root=step.root)
    return chain


def linear(count: int, every: int = 2) -> list[Step]:
    """A straight conversation: every so many records a turn begins."""
    return [Step(f"u{at}", f"u{at - 1}" if at else None, turn=at % every == 0) for at in range(count)]


uuids = st.integers(0, 12).map(lambda number: f"u{number}")
steps = st.builds(Step, uuids, uuids | st.none(), st.booleans(), st.booleans(), st.booleans())


@st.composite
def conversations(draw: st.DrawFn) -> list[Step]:
    """Mostly straight, with rewinds, side records, fragments, unknown and null parents."""
    known: list[str] = []
    tail: str | None = None
    result: list[Step] = []
    for number in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from(["next"] * 5 + ["side", "rewind", "fragment", "odd", "root", "recap"]))
        uuid = f"u{number}"
        turn = draw(st.booleans())
        if kind == "fragment" and known:
            result.append(Step(draw(st.sampled_from(known)), tail, turn))
            continue
        parent = tail
        if kind == "rewind" and known:
            parent = draw(st.sampled_from(known))
        if kind == "odd":
            parent = f"u{draw(st.integers(0, 60))}"
        step = Step(uuid, None if kind == "root" else parent, turn, kind == "recap", kind == "root" and turn)
        result.append(step)
        known.append(uuid)
        if kind != "side":
            tail = uuid
    return result


def agrees(chain: Chain, naive: Naive) -> None:
    """The chain says what the plain reader says."""
    assert chain.leaf == (naive.steps[-1].uuid if naive.steps else None)
    assert chain.user_turns == naive.turns()
    assert chain.turns_since_recap == naive.since_recap()
    assert chain.broken is naive.broken()
    assert chain.exact
    way = set(naive.active())
    for uuid in {step.uuid for step in naive.steps} | {"nowhere"}:
        assert chain.contains_on_active(uuid) is (uuid in way)


@settings(max_examples=150, deadline=None)
@given(conversations() | st.lists(steps, max_size=25))
def test_every_view_agrees_with_the_plain_reader(records: list[Step]) -> None:
    """After each record: leaf, branch, turns, recap and breaks, in any file however odd."""
    chain, naive = Chain(), Naive()
    agrees(chain, naive)
    for record in records:
        chain = build([record], chain)
        naive.steps.append(record)
        agrees(chain, naive)


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=20), st.lists(steps, max_size=10), st.lists(steps, max_size=10))
def test_older_views_stay_as_they_were(first: list[Step], one: list[Step], other: list[Step]) -> None:
    """Two futures of the same past do not see each other, and the past sees neither."""
    past = build(first)
    left = build(one, past)
    right = build(other, past)
    agrees(left, Naive(first + one))
    agrees(right, Naive(first + other))
    agrees(past, Naive(first))


@settings(max_examples=100, deadline=None)
@given(conversations(), st.integers(2, 12))
def test_what_is_forgotten_is_said_and_never_wrong(records: list[Step], limit: int) -> None:
    """With a small memory, exact counters are right, others at most too small, and doubts are None."""
    chain, naive = Chain(limit), Naive()
    for record in records:
        chain = build([record], chain)
        naive.steps.append(record)
        if len({step.uuid for step in naive.steps}) < len(naive.steps):
            continue  # a fragment of a forgotten record cannot be told from a new one
        if chain.exact:
            assert (chain.user_turns, chain.turns_since_recap) == (naive.turns(), naive.since_recap())
            assert chain.broken is naive.broken()
        else:
            assert chain.user_turns <= naive.turns()
        way = set(naive.active())
        for uuid in {step.uuid for step in naive.steps} | {"nowhere"}:
            assert chain.contains_on_active(uuid) in (None, uuid in way)


def test_counters_outlive_what_is_forgotten() -> None:
    """A conversation longer than the memory keeps its count of turns, and knows that it is whole."""
    chain = build(linear(1_000), Chain(64))
    assert (chain.user_turns, chain.turns_since_recap, chain.exact, chain.broken) == (500, 500, True, False)
    assert chain.contains_on_active("u999") is True
    assert chain.contains_on_active("u990") is True
    assert chain.contains_on_active("u0") is None
    assert chain.contains_on_active("nowhere") is None


def test_memory_is_bounded() -> None:
    """However long the conversation, at most the limit of records is held, and at least half of it."""
    chain = Chain()
    sizes = []
    for record in linear(3 * MAX_NODES):
        chain = build([record], chain)
        sizes.append(len(chain._store.nodes))
    assert max(sizes) <= MAX_NODES
    assert min(sizes[MAX_NODES:]) >= MAX_NODES // 2


def test_repeated_fragments_do_not_grow_the_memory() -> None:
    """A record repeated without end adds what it changes, once."""
    chain = build([Step("a", None), *[Step("a", None, turn=True, recap=True)] * 500])
    assert len(chain._store.amended["a"]) == 1
    assert (chain.user_turns, chain.turns_since_recap) == (1, 0)


def test_a_rewind_to_a_forgotten_turn_is_not_taken_for_a_break() -> None:
    """Its parent may be anything; the counters then say that they are not exact."""
    chain = build([*linear(100), Step("r", "u2"), Step("t", "r", turn=True)], Chain(16))
    assert (chain.exact, chain.broken, chain.user_turns) == (False, False, 1)


def test_a_tail_of_a_file_starts_in_the_unknown() -> None:
    """What the first record is chained to was not read, which is no gap."""
    chain = build([Step("b", "a", turn=True), Step("c", "b")], Chain(whole=False))
    assert (chain.leaf, chain.user_turns, chain.exact, chain.broken) == ("c", 1, False, False)
    assert chain.contains_on_active("a") is None


@pytest.mark.parametrize(
    ("records", "broken"),
    [
        ([Step("a", None), Step("b", "a")], False),
        ([Step("a", None), Step("b", "nowhere")], True),
        ([Step("a", None), Step("b", None)], True),
        ([Step("a", None), Step("r", None, root=True), Step("b", "r")], False),
        ([Step("a", None), Step("b", "nowhere"), Step("c", "a")], False),
        ([Step("a", "b"), Step("b", "a")], True),
        ([Step("a", "a")], True),
        ([Step("b", "a"), Step("a", None), Step("c", "b")], True),
        ([Step("a", None, turn=True), Step("b", "c"), Step("c", "a"), Step("d", "b")], False),
    ],
)
def test_hidden_history_is_told(records: list[Step], broken: bool) -> None:
    """A parent that is nowhere, a null parent and a loop hide; a rewind to the start and another branch do not."""
    assert build(records).broken is broken


def test_a_recap_on_another_branch_does_not_count() -> None:
    """Turns are counted since the last recap of the active branch."""
    records = [Step("a", None, turn=True), Step("r", "a", recap=True), Step("b", "a", turn=True)]
    assert build(records).turns_since_recap == 2
    assert build([*records, Step("c", "r", turn=True)]).turns_since_recap == 1


def test_equal_chains_are_equal() -> None:
    """Views compare by what they say, whatever way they were made."""
    whole = build(linear(10))
    parts = build(linear(10)[5:], build(linear(10)[:5]))
    branched = build(linear(6)[5:], build(linear(10)[:5]))
    assert whole == parts
    assert hash(whole) == hash(parts)
    assert whole != branched
    assert build([]) == Chain()
    assert whole != "chain"
    assert "u9" in repr(whole)
