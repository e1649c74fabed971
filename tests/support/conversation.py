"""Conversations as folded states, built of the events of one session, without a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from watcher.core.events import (
    AssistantSaid,
    Event,
    RecapShown,
    Rewound,
    SnapshotTaken,
    TitleSet,
    TitleSource,
    UserSaid,
)
from watcher.core.session import SessionState, fold

SESSION = "800ec011-bd66-45b3-b7e5-27e3387a2e2a"


@dataclass
class Conversation:
    """A session that grows. `tail` is the record that Qwen Code would chain to; ours do not move it."""

    state: SessionState = field(default_factory=SessionState)
    tail: str | None = None
    count: int = 0
    turns: list[str] = field(default_factory=list)

    def turn(self, at: float, *, answered: bool = True) -> str:
        """A prompt and its answer; returns the prompt's uuid."""
        uuid = self._native(UserSaid, at)
        self.turns.append(uuid)
        self._native(SnapshotTaken, at)
        if answered:
            self.answer(at)
        return uuid

    def answer(self, at: float) -> str:
        """The answer that ends the turn."""
        return self._native(AssistantSaid, at, visible=True)

    def native_recap(self, at: float) -> str:
        """A recap by Qwen Code itself."""
        return self._native(RecapShown, at, text="theirs")

    def rewind(self, at: float, turn: str) -> None:
        """Back to before a turn."""
        self.tail = self._parent(turn)
        self._native(Rewound, at)

    def title_copy(self, at: float) -> None:
        """What a live Qwen Code appends at its exit when it holds a title."""
        self._add(TitleSet, at, parent=self.tail, title="a title", source=TitleSource.AUTO)

    def our_recap(self, at: float) -> str:
        """A recap of ours: its parent is the last record of the file, and Qwen Code does not know of it."""
        return self._add(RecapShown, at, parent=self.state.leaf, text="ours")

    def resumed(self) -> None:
        """Another Qwen Code reads the file and goes on from its leaf."""
        self.tail = self.state.leaf

    def _parent(self, uuid: str) -> str | None:
        return self._parents[uuid]

    _parents: dict[str, str | None] = field(default_factory=dict)

    def _native(self, kind: type[Event], at: float, **more: Any) -> str:
        self.tail = self._add(kind, at, parent=self.tail, **more)
        return self.tail

    def _add(self, kind: type[Event], at: float, *, parent: str | None, **more: Any) -> str:
        self.count += 1
        uuid = f"r{self.count}"
        self._parents[uuid] = parent
        event = kind(
            uuid=uuid,
            parent=parent,
            session_id=SESSION,
            at=at,
            cwd="/home/user/proj",
            version="0.24.4",
            offset=self.count * 100,
            end=self.count * 100 + 100,
            **more,
        )
        self.state = fold(self.state, event)
        return uuid
