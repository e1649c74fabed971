"""What the pipeline asks of the world, fitted to files, processes, models and the state database.

One thread owns a desk; only `Drafter.ask` runs elsewhere, and its answer comes back through `post`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, cast

from watcher.core.decisions import Act, Decision, Skip, WaitUntil
from watcher.core.generation import Kind
from watcher.core.interactive import is_interactive
from watcher.core.native_recaps import NativeRecaps
from watcher.core.owner import Ownership
from watcher.core.policy import decide_title
from watcher.core.presence import Presence
from watcher.core.reasons import Reason
from watcher.core.recap_policy import decide_recap
from watcher.core.write_rules import RecapBasis
from watcher.core.writing import Declined, Failed, WriteOutcome, Written
from watcher.drafting import Draft, Drafter, NoText, Ready
from watcher.edge.scan import DirScan, scan_dir, unsafe_status
from watcher.edge.store import IndexRow, JournalEntry, JournalKind, Store
from watcher.edge.text_model import Abort, NotAsked
from watcher.errors import StateError
from watcher.facts import FileFacts, Surveyor
from watcher.following import Look, NoLook, follow
from watcher.holds import Holds
from watcher.log import SESSION_RECAP, SESSION_TITLE, WATCHER, LogEvent, LogKey, get_logger, where_it_failed
from watcher.pipeline import Hold, Missing, Refusal, Seen, Text, Tracked, Unsafe
from watcher.qwen.contract import session_id_of
from watcher.qwen.paths import SessionRef, session_ref
from watcher.recording import Recorder

HELD_SECONDS: Final = 60.0
MAX_TOLD: Final = 4096
"""Files that were named as left alone; beyond that many nothing more is said."""

_LOGGER: Final = {Kind.TITLE: SESSION_TITLE, Kind.RECAP: SESSION_RECAP}
_WRITTEN: Final = {Kind.TITLE: LogEvent.TITLE_WRITTEN, Kind.RECAP: LogEvent.RECAP_WRITTEN}
_FAILED: Final = {Kind.TITLE: LogEvent.TITLE_FAILED, Kind.RECAP: LogEvent.RECAP_FAILED}


@dataclass(frozen=True, slots=True)
class Answered:
    """A model call has ended: put into the inbox by a worker thread."""

    path: str
    answer: Text | Refusal | Hold


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
        drafter: Drafter,
        store: Store,
        *,
        workers: Executor,
        post: Callable[[Answered], None],
        clock: Callable[[], float],
        on_written: Callable[[Note], None] = lambda _: None,
        dry_run: bool = False,
    ) -> None:
        self._surveyor = surveyor
        self._recorder = recorder
        self._drafter = drafter
        self._store = store
        self._workers = workers
        self._post = post
        self._clock = clock
        self._on_written = on_written
        self._dry_run = dry_run
        self._known: dict[str, _Known] = {}
        self._told: set[tuple[str, str]] = set()
        self._aborts: set[Abort] = set()
        self._holds = Holds(store)

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
        """The size at which an earlier run left the file; of a copy or a moved file, that of the session it is."""
        row = self._store.index_at(path)
        if row is not None:
            return row.size
        session_id = session_id_of(path)
        rows = self._store.index_of_session(session_id) if session_id else []
        return max((each.size for each in rows), default=None)

    def use_workers(self, workers: Executor) -> None:
        """Start model calls there from now on."""
        self._workers = workers

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(self, kind: Kind, session: Tracked, now: float) -> Decision:
        """The title or recap decision on all present facts."""
        ref = _ref(session)
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
        for session, found in zip(sessions, self._surveyor.ownerships(map(_ref, sessions)), strict=True):
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
        log = get_logger(_LOGGER[kind])
        say = log.info if self._dry_run else log.debug
        verdict = "act" if isinstance(decision, Act) else "wait" if isinstance(decision, WaitUntil) else "skip"
        reason = "" if isinstance(decision, Act) else decision.reason.value
        detail = "" if isinstance(decision, Act) else decision.detail
        say(
            LogEvent.DECISION,
            **{
                LogKey.SESSION: _ref(session).session_id,
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
        """Start the work; True when an answer will come. In a dry run nothing is started.

        The attempt is counted now, but that of a model call when its turn comes: what waits for a worker when this
        process ends has not been tried.
        """
        state, ref = session.state, _ref(session)
        turn = state.shown_turn if kind is Kind.TITLE else state.turn
        if self._dry_run:
            self._remember(session).attempted[kind] = turn
            return False
        settings = self._surveyor.settings(ref, state)
        held = self._drafter.held(kind, settings)
        if held is not None:
            return self._hold(kind, held)
        made = self._drafter.prepare(kind, ref, settings)
        basis = Text(kind, "", "", turn=state.turn, moves=state.moves)
        if isinstance(made, Draft):
            abort = Abort()
            self._aborts.add(abort)
            self._workers.submit(self._work, session.path, made, basis, turn, abort)
            return True
        self._store.note_attempt(ref.session_id, turn, self._clock(), kind)
        if isinstance(made, NoText):
            return _refusal(made)
        self._post(Answered(session.path, _text(basis, made)))
        return True

    def _hold(self, kind: Kind, held: NotAsked) -> Hold:
        """The endpoint is not to be asked now; said in one line, unless the failure that began it has said so."""
        now = self._clock()
        if self._holds.begin(held.host, held.cause, now, denied=held.denied):
            get_logger(WATCHER).warning(
                LogEvent.MODEL_HELD, **{LogKey.HOST: held.host, LogKey.REASON: held.reason, LogKey.DETAIL: held.detail}
            )
        return Hold(kind, held.retry_at or now + HELD_SECONDS)

    def _work(self, path: str, draft: Draft, basis: Text, turn: str, abort: Abort) -> None:
        made: Ready | NoText
        try:
            made = NoText(draft.kind, Reason.ABORTED)
            if not abort.is_set():
                self._store.note_attempt(draft.session_id, turn, self._clock(), draft.kind)
                made = self._drafter.ask(draft, abort)
        except StateError as error:
            made = NoText(draft.kind, Reason.MODEL_ERROR, f"not asked: {error}")
        except Exception as error:  # noqa: BLE001 - the loop must hear of every end, or the session waits for ever
            made = NoText(draft.kind, Reason.MODEL_ERROR, f"internal error: {type(error).__name__}")
        finally:
            self._aborts.discard(abort)
        if isinstance(made, NoText) and (not made.asked or made.reason is Reason.BUDGET_EXHAUSTED):
            # Another session's call has just closed the way, or was the last one of the day: nothing was tried.
            with suppress(StateError):
                self._store.take_back_attempt(session_id_of(path) or "", made.kind)
            self._post(Answered(path, Hold(made.kind, made.retry_at or self._clock())))
        elif isinstance(made, NoText):
            self._post(Answered(path, _refusal(made)))
        else:
            with suppress(StateError):
                self._holds.answered(draft.endpoint.host)
            self._post(Answered(path, _text(basis, made)))

    def abort_all(self) -> None:
        """End every model call that is running."""
        for abort in tuple(self._aborts):
            abort.set()

    def refused(self, session: Tracked, refusal: Refusal) -> None:
        """Record and log a failed attempt: one line."""
        ref = _ref(session)
        self._store.note_result(ref.session_id, refusal.reason.value, refusal.detail, refusal.kind)
        if refusal.reason is Reason.ABORTED:
            return
        detail = refusal.detail
        if refusal.denied:
            detail = f"{detail}; not asked again until the settings change"
        fields = _fields(ref, refusal.reason, detail)
        if refusal.host:
            if refusal.reason is Reason.MODEL_ERROR:
                self._holds.begin(refusal.host, refusal.detail, self._clock(), denied=refusal.denied)
            fields[LogKey.HOST] = refusal.host
        if refusal.status is not None:
            fields[LogKey.STATUS] = refusal.status
        get_logger(_LOGGER[refusal.kind]).warning(_FAILED[refusal.kind], **fields)

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, session: Tracked, text: Text) -> WriteOutcome:
        """Write a text, decided again on what the file holds by then."""
        ref = _ref(session)
        stopped = self._recorder.stopped(ref.session_id)
        if stopped:
            return Declined(Reason.PAUSED, stopped)
        known = cast("Look", session.seen).reading
        if text.kind is Kind.TITLE:
            return self._recorder.automatic_title(ref, text.text, text.model, known)
        return self._recorder.recap(ref, text.text, text.model, RecapBasis(text.turn, text.moves), known)

    def keep(self, session: Tracked, text: Text, why: str) -> None:
        """Store a text that could not be written yet."""
        self._recorder.keep_text(_ref(session), text.kind, text.text, text.model, text.turn, moves=text.moves)
        get_logger(_LOGGER[text.kind]).debug("kept", **{LogKey.SESSION: _ref(session).session_id, LogKey.DETAIL: why})

    def wrote(self, session: Tracked, text: Text, outcome: WriteOutcome) -> None:
        """Record and log what became of a text: one line for success, one for a failure, none for a lost race."""
        ref = _ref(session)
        log = get_logger(_LOGGER[text.kind])
        if isinstance(outcome, Written):
            log.info(_WRITTEN[text.kind], **{LogKey.SESSION: ref.session_id, "model": text.model})
            self._on_written(Note(text.kind, ref, text.text, text.model, outcome.uuid, outcome.cwd))
            self._store.note_result(ref.session_id, "", "", text.kind)
        elif isinstance(outcome, Declined):
            waits = _stands_or_will(outcome)
            reason = "" if waits else outcome.reason.value
            self._store.note_result(ref.session_id, reason, "" if waits else outcome.detail, text.kind)
            say = log.warning if outcome.reason is Reason.UNSAFE_FILE else log.debug
            say("not_written", **_fields(ref, outcome.reason, outcome.detail))
        else:
            self._store.note_result(ref.session_id, outcome.reason.value, outcome.detail, text.kind)
            log.warning(_FAILED[text.kind], **_fields(ref, outcome.reason, outcome.detail))
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
        ref = _ref(session)
        # By what stood in the journal: commands write to it at the same time.
        before = {each.seq: each.record_uuid for each in self._store.entries(session_id=ref.session_id)}
        retry = self._recorder.deliver(ref, look.state, look.size, session.still_since, look.reading)
        for entry in self._store.entries(session_id=ref.session_id):
            if before.get(entry.seq) != entry.record_uuid:
                self._delivered(ref, entry, again=entry.seq in before)
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
        log = get_logger(_LOGGER[kind])
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
        return self._surveyor.ownership(_ref(session)).owned

    # -- remembering --------------------------------------------------------------------------------------------------

    def leave(self, session: Tracked) -> None:
        """The session is quiet: save how it looks."""
        self.save([session])

    def forgot(self, path: str) -> None:
        """Let go of what was known of the session's user and owners."""
        self._known.pop(path, None)

    def save(self, sessions: Sequence[Tracked]) -> None:
        """Note how the sessions look now, so that only what comes later counts as movement."""
        owners = self._surveyor.ownerships(map(_ref, sessions))
        self._store.upsert_index(map(_index_row, sessions, owners))
        for directory in {session.path.rpartition("/")[0] for session in sessions}:
            listing = scan_dir(directory)
            if not isinstance(listing, DirScan):
                continue
            saved = self._store.stamps(directory)
            start = len(directory) + 1
            if all(saved.get(f.path[start:]) == (f.dev, f.ino, f.size, f.mtime_ns) for f in listing.files):
                self._store.save_scan([(directory, listing.digest)], ())

    def presence(self, path: str) -> tuple[Presence, NativeRecaps]:
        """What is known of the user of this session and of its terminal's own recaps; nothing when it did not move."""
        known = self._known.get(path) or _Known()
        return known.presence, known.native

    def _remember(self, session: Tracked) -> _Known:
        return self._known.setdefault(session.path, _Known())


def _index_row(session: Tracked, owners: Ownership) -> IndexRow:
    look, ref, state = cast("Look", session.seen), _ref(session), session.state
    mark = look.tail.checkpoint
    title = state.title
    return IndexRow(
        path=session.path,
        session_id=ref.session_id,
        dev=mark.dev if mark else 0,
        ino=mark.ino if mark else 0,
        size=look.size,
        mtime_ns=look.tail.mtime_ns,
        offset=look.tail.offset,
        head_print=mark.head_print if mark else b"",
        tail_print=mark.tail_print if mark else b"",
        title=title.title if title else "",
        title_source=("manual" if title.is_manual else "auto") if title else "",
        cwd=state.first_cwd,
        user_turns=state.user_turns,
        last_activity=state.last_activity_at,
        interactive=is_interactive(state, owners),
        recap_text=state.recap.text if state.recap else "",
        recap_at=state.recap.at if state.recap else None,
        version=state.version,
    )


def _stands_or_will(outcome: WriteOutcome) -> bool:
    """Whether the text was written, or is kept until it can be (`pipeline.Pipeline`)."""
    if isinstance(outcome, Declined):
        return outcome.reason in (Reason.LOCKED, Reason.WORKING, Reason.PAUSED)
    return isinstance(outcome, Written) or not outcome.anomaly


def _ref(session: Tracked) -> SessionRef:
    ref = session_ref(session.path)
    assert ref is not None, "only transcripts are tracked"
    return ref


def _text(basis: Text, made: Ready) -> Text:
    return Text(basis.kind, made.text, made.model, basis.turn, basis.moves)


def _refusal(made: NoText) -> Refusal:
    return Refusal(made.kind, made.reason, made.detail, made.host, made.status, made.denied)


def _fields(ref: SessionRef, reason: Reason, detail: str) -> dict[str, object]:
    return {LogKey.SESSION: ref.session_id, LogKey.REASON: reason.value, LogKey.DETAIL: detail}
