"""What may be written to a session, what can come of it, and how a finished write is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from watcher.core.events import Event, RecapShown, TitleSet, TitleSource
from watcher.core.reasons import Reason
from watcher.core.session import SessionState, fold_all


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
    `repairs` counts corrective records, `healed` tells that a title which landed in between was put last again,
    `overruled` that one which somebody else gave meanwhile stands last, put there or not.
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
    overruled: bool = False
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
    """The attempt to write failed. `anomaly` as in `Written`: non-empty when anything of ours was left behind.

    `unfinished`: something of ours may still have to be verified, corrected or ended, so its intent is left open.
    """

    reason: Reason
    detail: str
    anomaly: str = ""
    unfinished: bool = False


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


class IntentNotKeptError(Exception):
    """An intent cannot be kept, so nothing may be written: a crash could not be put right. The text says why."""


class IntentLog(Protocol):
    """Where intents are kept.

    `begin` is durable when it returns; it raises `IntentNotKeptError` to forbid the write. The writer calls `done` for
    a write that did not happen; after a `Written` the caller does, once it has noted what was written. An intent that
    is left open is one that `recover` must look at: a line that could not be read back, corrected, or ended.
    """

    def begin(self, intent: Intent) -> None: ...

    def done(self, uuid: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Clean:
    """Nothing to correct. `overruled`: a title that somebody else gave meanwhile stands last."""

    overruled: bool = False


@dataclass(frozen=True, slots=True)
class Correct:
    """A corrective record is due: `payload` again, with `parent`."""

    payload: Payload
    parent: str


def judge(
    base: SessionState, since: Sequence[Event], ours: Mapping[str, str], payload: Payload
) -> tuple[Clean | Correct, SessionState]:
    """What the bytes behind a write mean (contract 4.4, steps 6 and 7; design promise 2), and the state after them,
    with directory and version of the last conversation record that is not ours, which a correction copies.

    `base` is the state that the write was decided on, `since` every event behind it, ours included; `ours` maps the
    uuid of each record that we wrote to its parent. Two things need a correction: the chain from the last conversation
    record goes through a record of ours whose parent does not know what another writer put before it; or a title that
    another writer gave meanwhile is hidden behind ours.
    """
    foreign = fold_all(base, (event for event in since if event.uuid not in ours))
    state = fold_all(base, since)
    state = replace(state, cwd=foreign.cwd or state.cwd, version=foreign.version or state.version)
    rival = _rival(base, since, ours, payload)
    wanted, hidden = payload, False
    if rival is not None and state.title is not None:
        wanted = TitleLine(rival.title, rival.source or TitleSource.MANUAL)
        hidden = (state.title.title, state.title.source or TitleSource.MANUAL) != (wanted.title, wanted.source)
    leaf = state.leaf or ""
    unseen = _unseen(base, since, ours, leaf)
    if not hidden and unseen is None:
        return Clean(overruled=rival is not None), state
    parent = unseen or foreign.leaf or leaf
    return Correct(wanted, parent), state


def _unseen(base: SessionState, since: Sequence[Event], ours: Mapping[str, str], leaf: str) -> str | None:
    """The last record that the chain from the leaf leaves out for the sake of a record of ours, None where none is.

    Another watcher's title or recap, or a rename, may hang on our record by then: nothing that anybody would miss, so
    the chain is still ours to put right. A turn that hangs on it is not.
    """
    side = dict(ours)
    """Ours and what hangs on it, with the parent of each."""
    for event in since:
        if isinstance(event, TitleSet | RecapShown) and event.parent in side:
            side.setdefault(event.uuid, event.parent)
    if leaf not in side:
        return None
    others = fold_all(base, (event for event in since if event.uuid not in side)).leaf
    met = {leaf}
    while leaf in side and side[leaf] not in met:
        leaf = side[leaf]
        met.add(leaf)
    return None if others in (None, leaf) else others


def _rival(base: SessionState, since: Iterable[Event], ours: Mapping[str, str], payload: Payload) -> TitleSet | None:
    """The title that somebody else gave meanwhile and that stands above ours, None when there is none.

    A copy of a title that stood there before is nothing that anybody gave: a running CLI writes it from its memory
    (contract 3.3). A name that the user gives now stands above what came before its line, not above what came after.
    """
    if not isinstance(payload, TitleLine):
        return None
    known = {(run.title, run.source) for run in base.titles}
    rival: TitleSet | None = None
    written = False
    for event in since:
        if event.uuid in ours:
            written = True
        elif isinstance(event, TitleSet) and (event.title, event.source) not in known:
            if payload.yields or written:
                rival = event
            else:
                known.add((event.title, event.source))
    return rival
