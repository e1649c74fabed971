"""One guarded append with all that belongs to it: what forbids it, its intent, its journal entry, what a crash left.

`edge.writer` knows how to append without harm, `core.write_rules` what may be appended; this module brings them
together with the state database. `watcher.recording` says when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from watcher.core.events import TitleSource
from watcher.core.owner import Ownership
from watcher.core.reasons import Reason
from watcher.core.write_rules import Circumstances, Rule
from watcher.core.writing import (
    Declined,
    Failed,
    Intent,
    IntentNotKeptError,
    Payload,
    RecapLine,
    SessionFile,
    Target,
    TitleLine,
    WriteOutcome,
    Written,
)
from watcher.edge.leases import lease_state
from watcher.edge.store import JournalEntry, JournalKind, Store
from watcher.edge.writer import SessionWriter
from watcher.errors import StateError
from watcher.qwen.paths import SessionRef
from watcher.qwen.reading import Reading
from watcher.qwen.versions import unsupported

MAX_NOTED: Final = 64

RuleFor = Callable[[Circumstances], Rule]
"""A rule for the circumstances as they are when it is asked, under the writer's lock."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The number of a journal entry; `again`: that of an earlier write, whose text was appended once more."""

    seq: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why something is written. `seq`: the journal entry whose text is appended again, 0 for a new one."""

    kind: JournalKind
    model: str = ""
    seq: int = 0

    @property
    def label(self) -> str:
        """As text, for an intent."""
        return f"{self.kind.value} {self.seq} {self.model}"

    @classmethod
    def of(cls, intent: Intent) -> Self:
        """From an intent; what cannot be read is taken from its payload."""
        kind, _, rest = intent.label.partition(" ")
        seq, _, model = rest.partition(" ")
        if kind in set(JournalKind) and seq.isdigit():
            return cls(JournalKind(kind), model, int(seq))
        return cls(JournalKind.TITLE if isinstance(intent.payload, TitleLine) else JournalKind.RECAP)


class StoreIntents:
    """The writer's intents, kept in the state database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self, intent: Intent) -> None:
        """Keep it, safe from a power cut. Raises `IntentNotKeptError`, so that nothing is written when that fails."""
        try:
            self._store.put_intent(intent.uuid, intent_to_json(intent))
        except StateError as error:
            raise IntentNotKeptError(str(error)) from error

    def done(self, uuid: str) -> None:
        """Forget it."""
        self._store.drop_intent(uuid)


class Appender:
    """Every append to a session file goes through here."""

    def __init__(
        self,
        store: Store,
        writer: SessionWriter,
        *,
        ownership: Callable[[SessionRef], Ownership],
        refused_mount: Callable[[str], str],
        clock: Callable[[], float],
        lease: Callable[..., str | None] = lease_state,
    ) -> None:
        """`refused_mount(path)` says why files there are never written (a network file system), or "".
        `lease(runtime_base, *session_ids)` as `edge.leases.lease_state`.
        """
        self._store = store
        self._writer = writer
        self.ownership = ownership
        self._refused_mount = refused_mount
        self._clock = clock
        self._lease = lease
        self._noted: deque[Noted] = deque(maxlen=MAX_NOTED)
        self._left_open: set[str] = set()
        """The files to which a write of ours is not finished."""

    def take_noted(self) -> tuple[Noted, ...]:
        """The journal entries of writes that were begun here, made since this was last asked; at most the newest 64.
        What other processes write to the same journal is not among them, noted by whomever.
        """
        noted = tuple(self._noted)
        self._noted.clear()
        return noted

    def circumstances(self, ref: SessionRef) -> Circumstances:
        """What the file itself does not tell, judged now."""
        owners = self.ownership(ref)
        return Circumstances(
            owned=owners.owned,
            owner_known=owners.ever_known,
            unsupported=lambda file: unsupported(file.state),
            now=self._clock,
        )

    def leased(self, ref: SessionRef) -> str:
        """Which writer lease stands there, "" for none. A lease may be named by the file or by the records in it."""
        spellings = dict.fromkeys((ref.session_id, ref.session_id.lower(), ref.session_id.upper()))
        return self._lease(ref.runtime_base, *spellings) or ""

    def braked(self, session_id: str) -> str:
        """What stopped all writing, to every session or to this one, after an anomaly (design promise 6), or ""."""
        everything = self._store.stopped_all()
        if everything:
            return f"stopped by the brake ({everything}); run `qwen-watcher doctor`"
        session = self._store.session_stopped(session_id)
        return f"stopped for this session ({session})" if session else ""

    def write(self, ref: SessionRef, rule_for: RuleFor, known: Reading | None, purpose: Purpose) -> WriteOutcome:
        """Append what the rule says to the file as it is now, and note it in the journal."""
        stopped = self._refused_mount(ref.path)
        if stopped:
            return Declined(Reason.UNSAFE_FILE, stopped)
        stopped = self.braked(ref.session_id)
        if stopped:
            return Declined(Reason.PAUSED, stopped)
        unfinished = self.finish(ref)
        if unfinished:
            return Declined(Reason.LOCKED, unfinished)
        last: list[Payload] = []

        def decide(file: SessionFile) -> Payload | Declined:
            payload = rule_for(self.circumstances(ref))(file)
            if not isinstance(payload, Declined):
                last[:] = [payload]
            return payload

        outcome = self._writer.append(self._target(ref, purpose), decide, known)
        self._note_anomaly(ref, outcome)
        if isinstance(outcome, Written):
            self._noted.extend(self._note(ref, last[0], outcome, purpose, ""))
        elif isinstance(outcome, Failed) and outcome.unfinished:
            self._left_open.add(ref.path)
        return outcome

    def look(self, ref: SessionRef, known: Reading | None) -> SessionFile | Declined | Failed:
        """The file as it is now, under the writer's lock."""
        seen: list[SessionFile] = []

        def decide(file: SessionFile) -> Declined:
            seen.append(file)
            return Declined(Reason.NOTHING_NEW)

        outcome = self._writer.append(self._target(ref, Purpose(JournalKind.REPAIR)), decide, known)
        assert not isinstance(outcome, Written), "nothing was to be written"
        return seen[-1] if seen else outcome

    # -- after a crash ------------------------------------------------------------------------------------------------

    def recover(self, ref_of: Callable[[str], SessionRef | None]) -> int:
        """Verify every write that was begun and never finished. Returns how many must wait, for a lease or a disk."""
        waiting = 0
        for data in self._store.intents():
            intent = intent_from_json(data)
            ref = ref_of(intent.path) if intent else None
            if intent is None or ref is None:
                self._store.drop_intent(str(data.get("uuid", "")))
            elif self._recover(ref, intent):
                waiting += 1
        return waiting

    def finish(self, ref: SessionRef) -> str:
        """Verify what was begun on this file and never finished; says what it must wait for, "" when it is done."""
        for data in self._store.intents():
            intent = intent_from_json(data)
            if intent is not None and intent.path == ref.path:
                waiting = self._recover(ref, intent)
                if waiting:
                    return f"an earlier write is not finished: {waiting}"
        return ""

    def _recover(self, ref: SessionRef, intent: Intent) -> str:
        stopped = self._store.stopped_all()
        if stopped:
            return f"stopped by the brake ({stopped})"
        refused = self._refused_mount(ref.path)
        if refused:
            return refused
        purpose = Purpose.of(intent)
        outcome = self._writer.recover(self._target(ref, purpose), intent)
        self._note_anomaly(ref, outcome)
        if isinstance(outcome, Failed) and outcome.unfinished:
            return outcome.detail
        if isinstance(outcome, Declined) and outcome.reason is Reason.LOCKED:
            return outcome.detail
        begun_here = ref.path in self._left_open
        self._left_open.discard(ref.path)
        if isinstance(outcome, Written):
            noted = self._note(ref, intent.payload, outcome, purpose, "found after a restart")
            if begun_here:
                self._noted.extend(noted)
            return ""
        # A file that is not there, or not as it should be, may come back from the archive: its intent stays.
        if isinstance(outcome, Failed) or outcome.reason is Reason.NOTHING_NEW:
            self._store.drop_intent(intent.uuid)
        return ""

    # -- parts --------------------------------------------------------------------------------------------------------

    def _target(self, ref: SessionRef, purpose: Purpose) -> Target:
        def blocked() -> str:
            held = self.ownership(ref).is_daemon
            return self.leased(ref) or ("a live ACP or daemon process has the session" if held else "")

        return Target(ref.path, blocked, lambda: self.leased(ref), purpose.label)

    def _note_anomaly(self, ref: SessionRef, outcome: WriteOutcome) -> None:
        if not isinstance(outcome, Declined) and outcome.anomaly:
            self._store.note_anomaly(ref.session_id, outcome.anomaly, self._clock())

    def _note(
        self, ref: SessionRef, payload: Payload, outcome: Written, purpose: Purpose, note: str
    ) -> tuple[Noted, ...]:
        """Note a write in the journal; its entry, none where it is noted already."""
        intent = outcome.uuids[0]
        if purpose.seq:
            self._store.redelivered(purpose.seq, outcome.uuid, self._clock(), outcome.offset)
            self._store.drop_intent(intent)
            return (Noted(purpose.seq, again=True),)
        entry = JournalEntry(
            kind=purpose.kind,
            session_id=ref.session_id,
            path=ref.path,
            at=self._clock(),
            cwd=outcome.cwd,
            model=purpose.model,
            record_uuid=outcome.uuid,
            parent_uuid=outcome.parent,
            offset=outcome.offset,
            uuids=outcome.uuids,
            note=note or ("a title that landed in between was put last" if outcome.healed else ""),
        )
        if isinstance(payload, TitleLine):
            entry = replace(entry, text=payload.title, source=payload.source.value)
        else:
            entry = replace(entry, text=payload.text)
        seq = self._store.record(entry, intent)
        return (Noted(seq),) if seq else ()


def intent_to_json(intent: Intent) -> dict[str, Any]:
    """An intent as JSON values."""
    payload: dict[str, Any]
    if isinstance(intent.payload, TitleLine):
        payload = {
            "title": intent.payload.title,
            "source": intent.payload.source.value,
            "yields": intent.payload.yields,
        }
    else:
        payload = {"recap": intent.payload.text}
    return {
        "uuid": intent.uuid,
        "spare": list(intent.spare),
        "parent": intent.parent,
        "path": intent.path,
        "session_id": intent.session_id,
        "dev": intent.dev,
        "ino": intent.ino,
        "offset": intent.offset,
        "line": intent.line.decode("utf-8"),
        "atime_ns": intent.atime_ns,
        "mtime_ns": intent.mtime_ns,
        "payload": payload,
        "label": intent.label,
    }


def intent_from_json(data: Mapping[str, Any]) -> Intent | None:
    """The intent, None where it cannot be read."""
    try:
        given = data["payload"]
        payload = (
            RecapLine(given["recap"])
            if "recap" in given
            else TitleLine(given["title"], TitleSource(given["source"]), given["yields"])
        )
        names = ("uuid", "parent", "path", "session_id", "dev", "ino", "offset", "atime_ns", "mtime_ns", "label")
        line = data["line"].encode("utf-8")
        spare = tuple(data["spare"])
        return Intent(**{name: data[name] for name in names}, spare=spare, payload=payload, line=line)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
