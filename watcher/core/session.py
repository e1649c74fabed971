"""The state of one session, folded from its events.

`fold` is pure: the same events in the same order give the same state, in one go or in many. The state holds no
conversation text except titles and the last recap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, cast

from watcher.core.chain import Chain
from watcher.core.events import (
    AssistantSaid,
    Compressed,
    Event,
    InputArrived,
    InputKind,
    RecapShown,
    Rewound,
    SnapshotTaken,
    SourceNamed,
    TitleSet,
    ToolReturned,
    TurnEnded,
    Unknown,
    UserSaid,
)
from watcher.core.title_runs import TitleRun, with_title

__all__ = ["RecapMark", "SessionState", "TitleRun", "fold", "fold_all"]

MAX_OPEN_CALLS: Final = 512

_TYPED_INPUT = frozenset({InputKind.MID_TURN, InputKind.REALTIME, InputKind.BLANK})
"""Input that comes from the user's own hands or voice; a prompt of images alone is blank."""


@dataclass(frozen=True, slots=True)
class RecapMark:
    """The newest recap in file order."""

    uuid: str
    text: str
    at: float | None


@dataclass(frozen=True, slots=True)
class SessionState:
    """All that policies know of a session's file.

    Times are seconds since the epoch. `end` is the byte offset after the last folded line.
    """

    partial: bool = False
    """The beginning of the file was not read: what the first record read is chained to is unknown, not missing."""
    session_id: str = ""
    mixed_ids: bool = False
    """More than one distinct session id: Qwen Code refuses to load such a file (contract 4.1)."""
    first_cwd: str = ""
    first_at: float | None = None
    cwd: str = ""
    version: str = ""
    """`cwd` and `version` of the leaf, which our records copy (contract 4.5)."""
    chain: Chain = field(default_factory=Chain)
    end: int = 0
    records: int = 0
    assistant_records: int = 0
    unknown_types: int = 0
    turn: str = ""
    """uuid of the newest real prompt, on whatever branch."""
    running: bool = False
    """By the records alone, the turn is not over (contract 2.6); liveness may know better."""
    open_calls: frozenset[str] = frozenset()
    shown_turn: str = ""
    """uuid of the newest real prompt that was answered with visible text."""
    has_snapshot: bool = False
    has_source: bool = False
    has_turn_marks: bool = False
    titles: tuple[TitleRun, ...] = ()
    """Newest last, at most `MAX_RUNS`; a cut drops from the front but keeps the newest manual run."""
    recap: RecapMark | None = None
    last_user_at: float | None = None
    last_activity_at: float | None = None
    last_record_at: float | None = None
    last_title_end: int = 0
    moves: int = 0
    """Grows with each prompt, rewind or compression: a text prepared before is stale when it has grown since."""

    @property
    def leaf(self) -> str | None:
        """uuid of the last conversation record in file order (contract rule 1), None in an empty session."""
        return self.chain.leaf

    @property
    def title(self) -> TitleRun | None:
        """The title that stands last in the file, None when there never was one."""
        return self.titles[-1] if self.titles else None

    @property
    def user_turns(self) -> int:
        """Real user turns on the active chain."""
        return self.chain.user_turns

    @property
    def turns_since_recap(self) -> int:
        """Real user turns on the active chain since its last recap; all of them when it has none."""
        return self.chain.turns_since_recap

    @property
    def sound(self) -> bool:
        """One session id and an unbroken chain: the file looks as the contract says."""
        return bool(self.session_id) and not self.mixed_ids and not self.chain.broken


def fold(state: SessionState, event: Event) -> SessionState:
    """The state after `event`."""
    return fold_all(state, (event,))


def fold_all(state: SessionState, events: Iterable[Event]) -> SessionState:
    """The state after `events`: the same as folding them one by one, at a third of the cost."""
    draft = _Draft(*_values_of(state))
    for event in events:
        draft.take(event)
    return SessionState(*_values_of(draft))


_values_of = cast("Callable[[object], tuple[Any, ...]]", attrgetter(*(each.name for each in fields(SessionState))))


@dataclass(slots=True)
class _Draft:
    """A state under work: the fields of `SessionState`, in its order, and what each event does to them."""

    partial: bool
    session_id: str
    mixed_ids: bool
    first_cwd: str
    first_at: float | None
    cwd: str
    version: str
    chain: Chain
    end: int
    records: int
    assistant_records: int
    unknown_types: int
    turn: str
    running: bool
    open_calls: frozenset[str]
    shown_turn: str
    has_snapshot: bool
    has_source: bool
    has_turn_marks: bool
    titles: tuple[TitleRun, ...]
    recap: RecapMark | None
    last_user_at: float | None
    last_activity_at: float | None
    last_record_at: float | None
    last_title_end: int
    moves: int

    def take(self, event: Event) -> None:
        """Apply one event."""
        self.records += 1
        self.end = event.end
        if event.at is not None:
            self.last_record_at = event.at
            if self.first_at is None:
                self.first_at = event.at
        if not self.first_cwd:
            self.first_cwd = event.cwd
        kind = type(event)
        if event.session_id != self.session_id and kind is not Unknown:
            self._compare_id(event.session_id)
        if event.chained:
            apply = _CHAINED.get(kind)
            if apply is not None:
                apply(self, event)
            self._extend(event, kind)
        if kind is TitleSet:
            self.titles = with_title(self.titles, cast("TitleSet", event))
            self.last_title_end = event.end
        elif kind is Unknown and cast("Unknown", event).type:
            self.unknown_types += 1

    def _compare_id(self, session_id: str) -> None:
        if not self.session_id:
            self.session_id = session_id
        elif session_id:
            self.mixed_ids = True

    def _extend(self, event: Event, kind: type[Event]) -> None:
        if self.partial and self.chain.leaf is None:
            self.chain = Chain(whole=False)
        self.chain = self.chain.add(
            event.uuid,
            event.parent,
            is_turn=kind is UserSaid,
            is_recap=kind is RecapShown,
            # A rewind to the first turn has no parent, on purpose.
            is_root=kind is Rewound,
        )
        self.cwd = event.cwd or self.cwd
        self.version = event.version or self.version

    # What a conversation record does to turn and activity, before it joins the chain.

    def prompted(self, event: UserSaid) -> None:
        """A real prompt starts a turn; calls that an abandoned turn left open no longer count."""
        self.turn = event.uuid
        self.running = True
        self.open_calls = frozenset()
        self.moves += 1
        self._seen_user(event.at)

    def given_input(self, event: InputArrived) -> None:
        """Input that starts or continues model work without being a prompt."""
        self.running = True
        if event.kind is not InputKind.BLANK:
            self.moves += 1
        if event.kind in _TYPED_INPUT:
            self._seen_user(event.at)

    def answered(self, event: AssistantSaid) -> None:
        """An answer ends the turn unless it opens calls; a new one says that earlier calls are done with."""
        self.assistant_records += 1
        calls = frozenset(event.calls[-MAX_OPEN_CALLS:])
        if event.uuid == self.chain.leaf:  # a fragment of the same answer
            calls = calls | self.open_calls if len(calls | self.open_calls) <= MAX_OPEN_CALLS else calls
        self.open_calls = calls
        self.running = bool(calls)
        if event.visible:
            self.shown_turn = self.turn
        if event.at is not None:
            self.last_activity_at = event.at

    def returned(self, event: ToolReturned) -> None:
        """A tool result goes to the model, which will answer."""
        self.open_calls = self.open_calls.difference(event.calls, ("",))
        self.running = True

    def ended(self, _: TurnEnded) -> None:
        """The explicit mark of ACP and daemon sessions."""
        self.has_turn_marks = True
        self._stop()

    def rewound(self, _: Rewound) -> None:
        """The abandoned turn is over, whatever state it was in."""
        self.moves += 1
        self._stop()

    def compressed(self, _: Compressed) -> None:
        """The turn goes on; what was prepared from the longer history is stale."""
        self.moves += 1

    def recapped(self, event: RecapShown) -> None:
        """The newest recap in file order, on whatever branch."""
        self.recap = RecapMark(event.uuid, event.text, event.at)

    def snapshot_taken(self, _: SnapshotTaken) -> None:
        """A sign of an interactive session."""
        self.has_snapshot = True

    def source_named(self, _: SourceNamed) -> None:
        """A sign of a session that a daemon or agent made."""
        self.has_source = True

    def _stop(self) -> None:
        self.running = False
        self.open_calls = frozenset()

    def _seen_user(self, at: float | None) -> None:
        if at is not None:
            self.last_user_at = self.last_activity_at = at


_CHAINED = cast(
    "dict[type[Event], Callable[[_Draft, Event], None]]",
    {
        UserSaid: _Draft.prompted,
        InputArrived: _Draft.given_input,
        AssistantSaid: _Draft.answered,
        ToolReturned: _Draft.returned,
        TurnEnded: _Draft.ended,
        Rewound: _Draft.rewound,
        Compressed: _Draft.compressed,
        RecapShown: _Draft.recapped,
        SnapshotTaken: _Draft.snapshot_taken,
        SourceNamed: _Draft.source_named,
    },
)
