"""What may be written to a session, what can come of it, and how a finished write is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from watcher.core.events import Event, TitleSet, TitleSource
from watcher.core.reasons import Reason
from watcher.core.session import SessionState, fold


@dataclass(frozen=True, slots=True)
class TitleLine:
    """A title record. `yields` is False for a name that the user gave just now: then the last word is ours."""

    title: str
    source: TitleSource
    yields: bool = True


@dataclass(frozen=True, slots=True)
class RecapLine:
    """A lone `/recap` result with an away recap."""

    text: str


Payload = TitleLine | RecapLine


@dataclass(frozen=True, slots=True)
class SessionFile:
    """What the writer found under its lock: the state of the whole file and how its end looks.

    `torn` counts the bytes behind the last newline; they may be a record that is being written right now. `torn_title`
    is the title that the picker shows although its line is no whole record, "" when there is none: a name that somebody
    gave and that was cut off (contract 3.1).
    """

    state: SessionState
    size: int
    mtime: float
    torn: int = 0
    torn_title: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """Our line stands in the file and was read back.

    `uuid` is the record that carries the text now (after a repair: the repair record), `uuids` are all records written.
    `repairs` counts corrective records, `healed` tells that a title which landed in between was put last again.
    `foreign` tells that another writer's bytes were seen beside ours. `anomaly` is non-empty when the verification
    found something that must not happen; it feeds the brake (design promise 6).
    """

    uuid: str
    parent: str
    offset: int
    end: int
    uuids: tuple[str, ...] = ()
    repairs: int = 0
    healed: bool = False
    foreign: bool = False
    cwd: str = ""
    anomaly: str = ""


@dataclass(frozen=True, slots=True)
class Declined:
    """Nothing was written: the decision, taken again on what the file holds now, said no (`reason` says why)."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt to write failed. `anomaly` as in `Written`: non-empty when anything of ours was left behind."""

    reason: Reason
    detail: str
    anomaly: str = ""


WriteOutcome = Written | Declined | Failed


@dataclass(frozen=True, slots=True)
class Target:
    """The file to write to. `blocked` says why nobody may write now (a lease, a daemon), "" when nothing stands
    there; `leased` is the part of it that costs next to nothing, and is asked directly before the write.

    `label` is the caller's own word for this write; it comes back in the intent.
    """

    path: str
    blocked: Callable[[], str]
    leased: Callable[[], str] = lambda: ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Intent:
    """What is about to be written: enough for the next start to verify a write that was cut off.

    `line` is all that goes into the one write, at `offset`: a newline before it where a torn line had to be ended.
    `spare` are the ids that corrective records will have, so that the next start knows them for ours.
    """

    uuid: str
    spare: tuple[str, ...]
    parent: str
    path: str
    session_id: str
    dev: int
    ino: int
    offset: int
    line: bytes
    atime_ns: int
    mtime_ns: int
    payload: Payload
    label: str = ""


class IntentLog(Protocol):
    """Where intents are kept.

    `begin` is durable when it returns; it may raise `OSError` to forbid the write. The writer calls `done` for a write
    that did not happen; after a `Written` the caller does, once it has noted what was written. An intent that is left
    open is one that `recover` must look at: a line that could not be read back, corrected, or ended.
    """

    def begin(self, intent: Intent) -> None: ...

    def done(self, uuid: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Clean:
    """Nothing to correct."""


@dataclass(frozen=True, slots=True)
class Correct:
    """A corrective record is due: `payload` again, with `parent`."""

    payload: Payload
    parent: str


def judge(
    base: SessionState, since: Iterable[Event], ours: dict[str, str], payload: Payload
) -> tuple[Clean | Correct, SessionState]:
    """What the bytes behind a write mean (contract 4.4, steps 6 and 7; design promise 2), and the state after them.

    `base` is the state that the write was decided on, `since` every event behind it, ours included; `ours` maps the
    uuid of each record that we wrote to its parent. Two things need a correction: our record is the last conversation
    record although another writer's stands before it, which its parent does not know; or a title that another writer
    gave in between is hidden behind ours. A copy of the title that stood there before, which a running CLI writes from
    its memory (contract 3.3), is nothing that anybody gave.
    """
    state = foreign = base
    before = None if base.title is None else (base.title.title, base.title.source)
    rival: TitleSet | None = None
    for event in since:
        state = fold(state, event)
        if event.uuid not in ours:
            foreign = fold(foreign, event)
            if isinstance(event, TitleSet) and (event.title, event.source) != before:
                rival = event
    wanted = payload
    hidden = False
    if rival is not None and isinstance(payload, TitleLine) and payload.yields and state.title is not None:
        wanted = TitleLine(rival.title, rival.source or TitleSource.MANUAL)
        hidden = (state.title.title, state.title.source or TitleSource.MANUAL) != (wanted.title, wanted.source)
    leaf = state.leaf or ""
    stale = leaf in ours and foreign.leaf not in (None, ours[leaf])
    if not hidden and not stale:
        return Clean(), state
    parent = (foreign.leaf if leaf in ours else state.leaf) or leaf
    return Correct(wanted, parent), state
