"""A world of values for the pipeline: files are entries in a dict, the model answers when told, the clock is a
variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from watcher.core.decisions import Act, Decision, WaitUntil
from watcher.core.generation import Kind
from watcher.core.policy import TitleFacts, TitleRules, decide_title
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.writing import WriteOutcome, Written
from watcher.pipeline import Missing, Refusal, Seen, Text, Tracked, Unsafe


@dataclass(frozen=True, slots=True)
class FakeFile:
    """What stands at a path."""

    state: SessionState
    size: int
    changed_at: float


@dataclass
class FakeWorld:
    """Fits `pipeline.World`; titles only. `calls` are the begun model calls, `written` what was written."""

    clock: float = 1_800_000_000.0
    files: dict[str, FakeFile | Unsafe] = field(default_factory=dict)
    baselines: dict[str, int] = field(default_factory=dict)
    originals: dict[str, int] = field(default_factory=dict)
    facts: TitleFacts = field(default_factory=lambda: TitleFacts(SessionState(), 0.0, model="m", calls_left=9))
    owners: set[str] = field(default_factory=set)
    changed_owners: set[str] = field(default_factory=set)
    refusal: Refusal | None = None
    outcome: WriteOutcome = field(default_factory=lambda: Written("u", "p", 0, 1, ("u",)))
    due: WaitUntil | None = None
    attempted: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    written: list[Text] = field(default_factory=list)
    kept: list[Text] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    faults: list[tuple[str, type]] = field(default_factory=list)

    def now(self) -> float:
        return self.clock

    def settle_seconds(self) -> float:
        return self.facts.rules.settle_seconds

    def read(self, path: str, known: Seen | None) -> Seen | Missing | Unsafe:
        return self.files.get(path) or Missing()

    def baseline(self, path: str) -> int | None:
        return self.baselines.get(path)

    def original_size(self, path: str) -> int:
        return self.originals.get(path, 0)

    def decide(self, kind: Kind, session: Tracked, now: float) -> Decision:
        facts = replace(
            self.facts,
            state=session.state,
            still_since=session.still_since,
            moved=session.moved,
            owned=session.path in self.owners,
            owner_known=True,
            in_flight=kind in session.in_flight,
            attempted_turn=self.attempted.get(session.path, ""),
        )
        return decide_title(facts, now)

    def begin(self, kind: Kind, session: Tracked) -> Refusal | bool:
        self.attempted[session.path] = session.state.shown_turn
        if self.refusal is not None:
            return self.refusal
        self.calls.append((session.path, session.state.shown_turn))
        return True

    def write(self, session: Tracked, text: Text) -> WriteOutcome:
        self.written.append(text)
        return self.outcome

    def keep(self, session: Tracked, text: Text, why: str) -> None:
        self.kept.append(text)

    def deliver(self, session: Tracked, now: float) -> WaitUntil | None:
        return self.due

    def refused(self, session: Tracked, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def wrote(self, session: Tracked, text: Text, outcome: WriteOutcome) -> None:
        pass

    def decided(self, kind: Kind, session: Tracked, decision: Decision) -> None:
        self.decisions.append(decision)

    def skipped(self, path: str, why: str) -> None:
        self.told.append(path)

    def faulted(self, path: str, error: Exception) -> None:
        self.faults.append((path, type(error)))

    def owned(self, session: Tracked) -> bool:
        return session.path in self.owners

    def leave(self, session: Tracked) -> None:
        self.left.append(session.path)

    def forgot(self, path: str) -> None:
        self.forgotten.append(path)

    def with_new_owners(self, sessions: Sequence[Tracked]) -> list[Tracked]:
        return [session for session in sessions if session.path in self.changed_owners]


def text(turn: str = "t", moves: int = 1) -> Text:
    """A title that a model call brought."""
    return Text(Kind.TITLE, "Fix login test", "m", turn, moves)


def reason_of(decision: Decision) -> Reason | None:
    """The reason of a decision, None for one to act."""
    return None if isinstance(decision, Act) else decision.reason


__all__ = ["FakeFile", "FakeWorld", "TitleRules", "reason_of", "text"]
