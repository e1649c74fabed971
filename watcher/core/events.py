"""What can happen in a session, in our words.

One decoded record of a session file becomes one event. Events carry identity, order and the few facts that decisions
need; conversation text stays in the file (see `core.dialog` for the one place where it is read).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TitleSource(StrEnum):
    """Who gave a title. A title without a usable source belongs to the user (contract 3.1)."""

    AUTO = "auto"
    MANUAL = "manual"


class InputKind(StrEnum):
    """A user-role record that is not a prompt typed between turns (contract 2.3)."""

    MID_TURN = "mid_turn_user_message"
    NOTIFICATION = "notification"
    CRON = "cron"
    GOAL = "goal_runtime"
    REALTIME = "realtime_message"
    BLANK = "blank"
    """A plain user record without a non-blank text part."""
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What every record has in common.

    `parent` is None for a first record. `chained` is False for records that the reader of Qwen Code leaves out of the
    conversation chain: those with a bad identity and the artifact groups (contract 2.3, 4.1); such a record never
    becomes the leaf. `at` is seconds since the epoch, None where the timestamp cannot be read. `offset` and `end` are
    the byte range of the physical line, its newline included.
    """

    uuid: str
    parent: str | None
    session_id: str
    at: float | None
    cwd: str
    version: str
    offset: int
    end: int
    chained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSaid(Event):
    """A real prompt (contract 2.5): the start of a user turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputArrived(Event):
    """A user-role record that starts or continues model work without being a real prompt."""

    kind: InputKind


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantSaid(Event):
    """One model answer. `visible` tells whether it holds non-blank text that is not a thought."""

    visible: bool
    calls: tuple[str, ...] = ()
    """Ids of the tool calls it opens; a call without an id is ``""`` and is closed by the next tool result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned(Event):
    """Results of tool calls; `calls` are the ids that they close."""

    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded(Event):
    """An explicit end-of-turn mark, which only ACP and daemon sessions have (contract 2.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TitleSet(Event):
    """A title record, ours or anybody's. An empty `title` says that the session has none on purpose."""

    title: str
    source: TitleSource | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecapShown(Event):
    """A `/recap` result that holds an away recap."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound(Event):
    """The user went back to an earlier turn; its parent is the tail before that turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed(Event):
    """The model-facing history was replaced by a summary; the chain goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken(Event):
    """A `file_history_snapshot`: only interactive sessions write it (contract 2.7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNamed(Event):
    """A `session_source` or `parent_session` record: a daemon or an agent made this session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Event):
    """Any other record: telemetry, attribution, slash commands, unknown subtypes. Never a sign of the user's life."""

    subtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """A record whose `type` is not one of the contract's four; skipped by the chain (`chained` is False)."""

    type: str = ""
