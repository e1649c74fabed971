"""What the pipeline asks of the world, fitted to files, processes, models and the state database.

One thread owns a desk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from watcher.calls import FAILED, LOGGERS, Calls, failure_fields
from watcher.core.decisions import Act, Decision, Skip, WaitUntil
from watcher.core.generation import Kind
from watcher.core.native_recaps import NativeRecaps
from watcher.core.policy import decide_title
from watcher.core.presence import Presence
from watcher.core.reasons import Reason
from watcher.core.recap_policy import decide_recap
from watcher.core.write_rules import RecapBasis
from watcher.core.writing import Declined, Failed, WriteOutcome, Written
from watcher.edge.scan import unsafe_status
from watcher.edge.store import JournalEntry, JournalKind, Store
from watcher.facts import FileFacts, Surveyor
from watcher.following import Look, NoLook, follow
from watcher.log import WATCHER, LogEvent, LogKey, get_logger, where_it_failed
from watcher.pipeline import Hold, Missing, Refusal, Seen, Text, Tracked, Unsafe
from watcher.qwen.contract import session_id_of
from watcher.qwen.paths import SessionRef, session_ref
from watcher.recording import Recorder
from watcher.saving import ref_of, save_sessions

MAX_TOLD: Final = 4096
"""Files that were named as left alone; beyond that many nothing more is said."""

_WRITTEN: Final = {Kind.TITLE: LogEvent.TITLE_WRITTEN, Kind.RECAP: LogEvent.RECAP_WRITTEN}


@dataclass(frozen=True, slots=True)
class Note:
    """Something was written: for hooks."""

    kind: Kind
    ref: SessionRef
    text: str
    model: str
    record_uuid: str
    cwd: str


@dataclass(slots=True)
class _Known:
    """What the desk remembers of one session while it moves."""

    presence: Presence = field(default_factory=Presence)
    native: NativeRecaps = field(default_factory=NativeRecaps)
    owners: frozenset[tuple[int, str, float]] | None = None
    """Who had it when that was last asked; None before."""
    attempted: dict[Kind, str] = field(default_factory=dict)


class Desk:
    """Fits `pipeline.World`."""

    def __init__(
        self,
        surveyor: Surveyor,
        recorder: Recorder,
        calls: Calls,
        store: Store,
        *,
        clock: Callable[[], float],
        on_written: Callable[[Note], None] = lambda _: None,
        dry_run: bool = False,
    ) -> None:
        self._surveyor = surveyor
        self._recorder = recorder
        self._calls = calls
        self._store = store
        self._clock = clock
        self._on_written = on_written
        self._dry_run = dry_run
        self._known: dict[str, _Known] = {}
        self._told: set[tuple[str, str]] = set()

    # -- reading ------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def settle_seconds(self) -> float:
        """The quiet time before a title."""
        return self._surveyor.config.title.settle_seconds

    def read(self, path: str, known: Seen | None) -> Seen | Missing | Unsafe:
        """The file as it is now."""
        if known is None and session_ref(path) is None:
            return Missing()
        try:
            seen = os.lstat(path)
        except OSError:
            seen = None
        unsafe = unsafe_status(seen) if seen is not None else ""
        if unsafe:
            return Unsafe(unsafe)
        found = follow(path, cast("Look | None", known), self._clock(), seen)
        if isinstance(found, NoLook):
            return Missing() if found.gone else Unsafe(found.why)
        return found

    def baseline(self, path: str) -> int | None:
        """The size at which an earlier run left the file, None when it was never seen."""
        row = self._store.index_at(path)
        return None if row is None else row.size

    def original_size(self, path: str) -> int:
        """The size of the session that a new file is a copy of, or was moved from; 0 for a new session."""
        session_id = session_id_of(path)
        if self._store.index_at(path) is not None:
            return 0
        rows = self._store.index_of_session(session_id) if session_id else []
        return max((each.size for each in rows), default=0)

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(self, kind: Kind, session: Tracked, now: float) -> Decision:
        """The title or recap decision on all present facts."""
        ref = ref_of(session)
        file = FileFacts(session.still_since, session.moved)
        known = self._remember(session)
        in_flight = kind in session.in_flight
        if kind is Kind.TITLE:
            facts = self._surveyor.title_facts(ref, session.state, file, in_flight=in_flight)
            if self._dry_run and known.attempted.get(kind) == session.state.shown_turn:
                return WaitUntil(None, Reason.NOTHING_NEW, "dry run")
            return self._timed(decide_title(facts, now))
        recap, known.presence, known.native = self._surveyor.recap_facts(
            ref, session.state, file, known.presence, known.native, in_flight=in_flight
        )
        if self._dry_run and known.attempted.get(kind) == session.state.turn:
            return WaitUntil(None, Reason.NOTHING_NEW, "dry run")
        return self._timed(decide_recap(recap, now))

    def _timed(self, decision: Decision) -> Decision:
        """With the time of what no event tells of: calls come back at midnight, a pause may end by itself."""
        if not isinstance(decision, WaitUntil) or decision.at is not None:
            return decision
        if decision.reason is Reason.BUDGET_EXHAUSTED:
            return replace(decision, at=self._surveyor.budget_renewed_at())
        if decision.reason is Reason.PAUSED:
            return replace(decision, at=self._pause_ends_at())
        return decision

    def _pause_ends_at(self) -> float | None:
        """When the pause in force ends by itself; None without one, and where only `resume` ends it."""
        paused = self._store.paused(self._clock())
        return paused.until if paused is not None else None

    def with_new_owners(self, sessions: Sequence[Tracked]) -> list[Tracked]:
        """Those to which somebody came, or which somebody left, since this was last asked; or may have, if it never
        was.
        """
        changed: list[Tracked] = []
        for session, found in zip(sessions, self._surveyor.ownerships(map(ref_of, sessions)), strict=True):
            known = self._remember(session)
            owners = frozenset(owner.identity for owner in found.live)
            if owners != known.owners:
                known.owners = owners
                changed.append(session)
        return changed

    def decided(self, kind: Kind, session: Tracked, decision: Decision) -> None:
        """Log a decision: every one in a dry run, else at level debug; that a damaged file is left alone, once."""
        if isinstance(decision, Skip) and decision.reason is Reason.UNSAFE_FILE:
            self.skipped(session.path, decision.detail)
        log = get_logger(LOGGERS[kind])
        say = log.info if self._dry_run else log.debug
        verdict = "act" if isinstance(decision, Act) else "wait" if isinstance(decision, WaitUntil) else "skip"
        reason = "" if isinstance(decision, Act) else decision.reason.value
        detail = "" if isinstance(decision, Act) else decision.detail
        say(
            LogEvent.DECISION,
            **{
                LogKey.SESSION: ref_of(session).session_id,
                "verdict": verdict,
                LogKey.REASON: reason,
                LogKey.DETAIL: detail,
            },
        )

    def skipped(self, path: str, why: str) -> None:
        """Log once that a file is left alone."""
        if (path, why) in self._told or len(self._told) >= MAX_TOLD:
            return
        self._told.add((path, why))
        get_logger(WATCHER).warning(
            LogEvent.SKIPPED, **{LogKey.PATH: path, LogKey.REASON: Reason.UNSAFE_FILE.value, LogKey.DETAIL: why}
        )

    # -- generating ---------------------------------------------------------------------------------------------------

    def begin(self, kind: Kind, session: Tracked) -> Refusal | Hold | bool:
        """Start a model call; True when an answer will come. In a dry run nothing is started."""
        state, ref = session.state, ref_of(session)
        if self._dry_run:
            self._remember(session).attempted[kind] = state.shown_turn if kind is Kind.TITLE else state.turn
            return False
        return self._calls.begin(kind, ref, state, self._surveyor.settings(ref, state))

    def refused(self, session: Tracked, refusal: Refusal) -> None:
        """Record and log a failed attempt: one line."""
        self._calls.refused(ref_of(session), refusal)

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, session: Tracked, text: Text) -> WriteOutcome:
        """Write a text, decided again on what the file holds by then."""
        ref = ref_of(session)
        stopped = self._recorder.stopped(ref.session_id)
        if stopped:
            return Declined(Reason.PAUSED, stopped)
        known = cast("Look", session.seen).reading
        if text.kind is Kind.TITLE:
            return self._recorder.automatic_title(ref, text.text, text.model, known)
        return self._recorder.recap(ref, text.text, text.model, RecapBasis(text.turn, text.moves), known)

    def keep(self, session: Tracked, text: Text, why: str) -> None:
        """Store a text that could not be written yet."""
        self._recorder.keep_text(ref_of(session), text.kind, text.text, text.model, text.turn, moves=text.moves)
        get_logger(LOGGERS[text.kind]).debug("kept", **{LogKey.SESSION: ref_of(session).session_id, LogKey.DETAIL: why})

    def wrote(self, session: Tracked, text: Text, outcome: WriteOutcome) -> None:
        """Record and log what became of a text: one line for success, one for a failure, none for a lost race."""
        ref = ref_of(session)
        log = get_logger(LOGGERS[text.kind])
        if isinstance(outcome, Written):
            log.info(_WRITTEN[text.kind], **{LogKey.SESSION: ref.session_id, "model": text.model})
            self._on_written(Note(text.kind, ref, text.text, text.model, outcome.uuid, outcome.cwd))
            self._store.note_result(ref.session_id, "", "", text.kind)
        elif isinstance(outcome, Declined):
            waits = _stands_or_will(outcome)
            reason = "" if waits else outcome.reason.value
            self._store.note_result(ref.session_id, reason, "" if waits else outcome.detail, text.kind)
            say = log.warning if outcome.reason is Reason.UNSAFE_FILE else log.debug
            say("not_written", **failure_fields(ref, outcome.reason, outcome.detail))
        else:
            self._store.note_result(ref.session_id, outcome.reason.value, outcome.detail, text.kind)
            log.warning(FAILED[text.kind], **failure_fields(ref, outcome.reason, outcome.detail))
        if text.kind is Kind.RECAP and _stands_or_will(outcome):
            self._store.note_made(ref.session_id, text.turn, session.state.user_turns, text.kind)
        self._tell_anomaly(ref, outcome)

    def _tell_anomaly(self, ref: SessionRef, outcome: WriteOutcome) -> None:
        if isinstance(outcome, Written | Failed) and outcome.anomaly:
            get_logger(WATCHER).warning(
                LogEvent.BRAKE, **{LogKey.SESSION: ref.session_id, LogKey.DETAIL: outcome.anomaly}
            )

    def deliver(self, session: Tracked, now: float) -> WaitUntil | None:
        """Write what waits for this session, heal its title, bring it back into sight."""
        if self._dry_run:
            return None
        look = cast("Look", session.seen)
        ref = ref_of(session)
        self._recorder.take_noted()
        retry = self._recorder.deliver(ref, look.state, look.size, session.still_since, look.reading)
        # Not what the journal has got meanwhile: commands and other threads write to it at the same time.
        for noted in self._recorder.take_noted():
            entry = self._store.entry(noted.seq)
            if entry is not None:
                self._delivered(ref, entry, again=noted.again)
        del now
        if retry is None:
            return None
        at = self._pause_ends_at() if retry.at is None else retry.at
        return WaitUntil(at, Reason.LOCKED, retry.why)

    def _delivered(self, ref: SessionRef, entry: JournalEntry, *, again: bool) -> None:
        """Log what was written without a model call: what was told before (appended again, put back, brought back into
        sight) at level debug, since one line a text is enough.
        """
        kind = Kind.RECAP if entry.kind is JournalKind.RECAP else Kind.TITLE
        log = get_logger(LOGGERS[kind])
        if again or entry.kind not in (JournalKind.TITLE, JournalKind.RECAP):
            log.debug(LogEvent.WRITTEN_AGAIN, **{LogKey.SESSION: ref.session_id, "purpose": entry.kind.value})
            return
        log.info(_WRITTEN[kind], **{LogKey.SESSION: ref.session_id, "model": entry.model, "delivered": True})
        self._on_written(Note(kind, ref, entry.text, entry.model, entry.record_uuid, entry.cwd))

    def faulted(self, path: str, error: Exception) -> None:
        """Log an error that nobody expected: its kind and place, no values."""
        get_logger(WATCHER).error(
            LogEvent.INTERNAL_ERROR,
            **{LogKey.SESSION: session_id_of(path) or "", LogKey.DETAIL: where_it_failed(error)},
        )

    def owned(self, session: Tracked) -> bool:
        """Whether any process has the session: then an event may still change what is decided."""
        return self._surveyor.ownership(ref_of(session)).owned

    # -- remembering --------------------------------------------------------------------------------------------------

    def leave(self, session: Tracked) -> None:
        """The session is quiet: save how it looks."""
        self.save([session])

    def forgot(self, path: str) -> None:
        """Let go of what was known of the session's user and owners."""
        self._known.pop(path, None)

    def save(self, sessions: Sequence[Tracked]) -> None:
        """Note how the sessions look now, so that only what comes later counts as movement."""
        save_sessions(self._store, sessions, self._surveyor.ownerships(map(ref_of, sessions)))

    def presence(self, path: str) -> tuple[Presence, NativeRecaps]:
        """What is known of the user of this session and of its terminal's own recaps; nothing when it did not move."""
        known = self._known.get(path) or _Known()
        return known.presence, known.native

    def _remember(self, session: Tracked) -> _Known:
        return self._known.setdefault(session.path, _Known())


def _stands_or_will(outcome: WriteOutcome) -> bool:
    """Whether the text was written, or is kept until it can be (`pipeline.Pipeline`)."""
    if isinstance(outcome, Declined):
        return outcome.reason in (Reason.LOCKED, Reason.WORKING, Reason.PAUSED)
    return isinstance(outcome, Written) or not outcome.anomaly
