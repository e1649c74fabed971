"""Writes to session files as the rest of the program asks for them: guarded, journaled, kept for later, undone.

The writer (`edge.writer`) knows how to append without harm; this module knows what to append when, notes it in the
journal, keeps what cannot be written yet, and brings back what another program's memory overwrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from watcher.core.decisions import Skip, WaitUntil
from watcher.core.events import TitleSource
from watcher.core.generation import Kind
from watcher.core.owner import Ownership
from watcher.core.policy import OurTitle, heal_wanted, reanchor_wanted
from watcher.core.reasons import Reason
from watcher.core.recap_delivery import DeliveryFacts, KeptRecap, decide_delivery
from watcher.core.session import SessionState
from watcher.core.title_runs import TitleRun
from watcher.core.write_rules import (
    Circumstances,
    RecapBasis,
    Rule,
    automatic_title,
    given_title,
    healed_title,
    recap,
    requested_title,
    title_again,
)
from watcher.core.writing import (
    Declined,
    Failed,
    RecapLine,
    SessionFile,
    TitleLine,
    WriteOutcome,
    Written,
)
from watcher.edge.leases import lease_state
from watcher.edge.store import JournalEntry, JournalKind, Pending, PendingKind, Store
from watcher.edge.writer import Intent, SessionWriter, Target
from watcher.errors import StateError
from watcher.qwen.paths import SessionRef
from watcher.qwen.reading import Reading
from watcher.qwen.versions import unsupported

LOCKED_RETRY_SECONDS: Final = 10.0
WORKING_RETRY_SECONDS: Final = 15.0
FAILED_RETRY_SECONDS: Final = 300.0

_JOURNAL_KIND: Final = {Kind.TITLE: JournalKind.TITLE, Kind.RECAP: JournalKind.RECAP}


@dataclass(frozen=True, slots=True)
class Retry:
    """Something waits; look again at `at` (seconds since the epoch), or only when an event changes it (None)."""

    at: float | None
    why: str


class StoreIntents:
    """The writer's intents, kept in the state database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self, intent: Intent) -> None:
        """Keep it, safe from a power cut; raises `OSError` so that nothing is written when that fails."""
        try:
            self._store.put_intent(intent.uuid, _intent_to_json(intent))
        except StateError as error:
            raise OSError(None, f"the state database cannot be written: {error}") from error

    def done(self, uuid: str) -> None:
        """Forget it."""
        self._store.drop_intent(uuid)


class Recorder:
    """All writing to session files."""

    def __init__(
        self,
        store: Store,
        writer: SessionWriter,
        *,
        ownership: Callable[[SessionRef], Ownership],
        refused_mount: Callable[[str], str],
        clock: Callable[[], float],
    ) -> None:
        """`refused_mount(path)` says why files there are never written (a network file system), or ""."""
        self._store = store
        self._writer = writer
        self._ownership = ownership
        self._refused_mount = refused_mount
        self._clock = clock

    # -- writing ------------------------------------------------------------------------------------------------------

    def circumstances(self, ref: SessionRef) -> Circumstances:
        """What the file itself does not tell, judged now."""
        owners = self._ownership(ref)
        return Circumstances(
            owned=owners.owned,
            owner_known=owners.ever_known,
            unsupported=lambda file: unsupported(file.state),
            now=self._clock,
        )

    def automatic_title(self, ref: SessionRef, text: str, model: str, known: Reading | None = None) -> WriteOutcome:
        """Write an automatic title, unless any title stands there."""
        rule = automatic_title(text, self.circumstances(ref))
        return self._write(ref, rule, known, JournalKind.TITLE, model=model)

    def requested_title(
        self, ref: SessionRef, text: str, model: str, basis: SessionFile, known: Reading | None = None
    ) -> WriteOutcome:
        """Write the title that `title S --auto` asked for."""
        rule = requested_title(text, basis, self.circumstances(ref))
        return self._write(ref, rule, known, JournalKind.TITLE, model=model)

    def manual_title(self, ref: SessionRef, name: str, known: Reading | None = None) -> tuple[WriteOutcome, bool]:
        """Write the user's own name. The flag: a live CLI may bring its own title back, so the name is kept to the
        end.
        """
        held = self._cli_holds_title(ref, known)
        rule = given_title(name, TitleSource.MANUAL, self.circumstances(ref))
        outcome = self._write(ref, rule, known, JournalKind.TITLE)
        if held and isinstance(outcome, Written):
            self._keep(ref, PendingKind.MANUAL_TITLE, name, TitleSource.MANUAL)
            return outcome, True
        self._store.drop_pending(ref.session_id, PendingKind.MANUAL_TITLE)
        return outcome, False

    def undo_title(
        self, ref: SessionRef, title: str, source: TitleSource, known: Reading | None = None
    ) -> tuple[WriteOutcome, bool]:
        """Put back the title that stood before ours; the session is never titled automatically again."""
        held = self._cli_holds_title(ref, known)
        rule = given_title(title, source, self.circumstances(ref))
        outcome = self._write(ref, rule, known, JournalKind.UNDO)
        if not isinstance(outcome, Written):
            return outcome, False
        self._store.dismiss(ref.session_id, self._clock())
        self._store.drop_pending(ref.session_id)
        if held:
            self._keep(ref, PendingKind.UNDO, title, source)
        return outcome, held

    def recap(
        self, ref: SessionRef, text: str, model: str, basis: RecapBasis, known: Reading | None = None
    ) -> WriteOutcome:
        """Write a recap of the session as it was at `basis`.

        While an owner lives it may be hidden by what that owner writes next, so it is kept and looked at again when the
        owner has gone (design 7).
        """
        circumstances = self.circumstances(ref)
        outcome = self._write(ref, recap(text, basis, circumstances), known, JournalKind.RECAP, model=model)
        if isinstance(outcome, Written) and circumstances.owned:
            newest = self._store.entries(kinds=(JournalKind.RECAP,), session_id=ref.session_id, limit=1)
            self._store.put_pending(
                Pending(
                    session_id=ref.session_id,
                    kind=PendingKind.RECAP,
                    path=ref.path,
                    created_at=self._clock(),
                    text=text,
                    model=model,
                    basis_turn=basis.turn,
                    journal_seq=newest[-1].seq if newest else 0,
                )
            )
        return outcome

    def keep_text(self, ref: SessionRef, kind: Kind, text: str, model: str, turn: str) -> None:
        """Keep a text that could not be written yet; `deliver` writes it, without another model call."""
        self._store.put_pending(
            Pending(
                session_id=ref.session_id,
                kind=PendingKind.TITLE if kind is Kind.TITLE else PendingKind.RECAP,
                path=ref.path,
                created_at=self._clock(),
                text=text,
                source=TitleSource.AUTO.value if kind is Kind.TITLE else "",
                model=model,
                basis_turn=turn,
            )
        )

    def stopped(self, session_id: str) -> str:
        """Why nothing is written automatically now: a pause or the brake (design promise 6); "" when nothing stops
        it.
        """
        paused = self._store.paused(self._clock())
        if paused is not None:
            return "paused until `resume`" if paused.until is None else f"paused until {paused.until:.0f}"
        everything = self._store.stopped_all()
        if everything:
            return f"stopped by the brake ({everything}); run `qwen-watcher doctor`"
        session = self._store.session_stopped(session_id)
        return f"stopped for this session ({session})" if session else ""

    # -- what is due without a model call -----------------------------------------------------------------------------

    def deliver(
        self, ref: SessionRef, state: SessionState, size: int, still_since: float, known: Reading | None
    ) -> Retry | None:
        """Write what waits for this session, heal and re-anchor its title; says when to look again, None when done."""
        waiting = self._store.pending(ref.session_id)
        ours = self.our_titles(ref.session_id)
        heal = heal_wanted(state, ours) is not None
        again = not heal and reanchor_wanted(state, size, ours) is not None
        if not waiting and not heal and not again:
            return None
        stopped = self.stopped(ref.session_id)
        owned = self._ownership(ref).owned
        retries: list[Retry] = []
        for each in waiting:
            by_user = each.kind in (PendingKind.MANUAL_TITLE, PendingKind.UNDO)
            if stopped and not by_user:
                retries.append(Retry(None, stopped))
                continue
            retry = self._deliver_one(ref, each, state, still_since, known, owned=owned)
            if retry is not None:
                retries.append(retry)
        if heal and not waiting and not owned and not stopped:
            self._write(ref, healed_title(ours, self.circumstances(ref)), known, JournalKind.HEAL)
        elif heal:
            retries.append(Retry(None, "a manual title is put last when the session closes"))
        elif again and not stopped and not state.running:
            self._write(ref, title_again(ours, self.circumstances(ref)), known, JournalKind.REANCHOR)
        return _soonest(retries)

    def _deliver_one(
        self,
        ref: SessionRef,
        each: Pending,
        state: SessionState,
        still_since: float,
        known: Reading | None,
        *,
        owned: bool,
    ) -> Retry | None:
        if each.kind in (PendingKind.MANUAL_TITLE, PendingKind.UNDO):
            return self._deliver_user_title(ref, each, state, known, owned=owned)
        if each.kind is PendingKind.RECAP:
            return self._deliver_recap(ref, each, state, still_since, known)
        outcome = self.automatic_title(ref, each.text, each.model, known)
        return self._settle(ref, each, outcome)

    def _deliver_user_title(
        self, ref: SessionRef, each: Pending, state: SessionState, known: Reading | None, *, owned: bool
    ) -> Retry | None:
        if owned:
            return Retry(None, "the user's title is put last again when the session closes")
        source = TitleSource(each.source or TitleSource.MANUAL.value)
        last = state.title
        ours = {uuid for entry in self._store.our_titles(ref.session_id) for uuid in entry.uuids}
        renamed = last is not None and last.is_manual and last.last_uuid not in ours and last.title != each.text
        if renamed or (last is not None and (last.title, last.source) == (each.text, source)):
            self._store.drop_pending(ref.session_id, each.kind)
            return None
        rule = given_title(each.text, source, self.circumstances(ref))
        return self._settle(ref, each, self._write(ref, rule, known, JournalKind.HEAL))

    def _deliver_recap(
        self, ref: SessionRef, each: Pending, state: SessionState, still_since: float, known: Reading | None
    ) -> Retry | None:
        """Write a kept recap, or again one that a live terminal wrote over; see `core.recap_delivery`."""
        entry = self._store.entry(each.journal_seq) if each.journal_seq else None
        facts = DeliveryFacts(
            state=state,
            still_since=still_since,
            kept=KeptRecap(each.basis_turn, entry.uuids if entry else ()),
            ownership=self._ownership(ref),
            unsupported=unsupported(state),
            paused=self.stopped(ref.session_id),
            leased=lease_state(ref.runtime_base, ref.session_id) or "",
        )
        decision = decide_delivery(facts, self._clock())
        if isinstance(decision, WaitUntil):
            return Retry(decision.at, decision.detail)
        if isinstance(decision, Skip):
            self._store.drop_pending(ref.session_id, each.kind)
            return None
        basis = RecapBasis(each.basis_turn)
        if entry is None:
            outcome = self.recap(ref, each.text, each.model, basis, known)
            return None if isinstance(outcome, Written) and facts.ownership.owned else self._settle(ref, each, outcome)
        outcome = self._append(ref, recap(each.text, basis, self.circumstances(ref)), known)
        if isinstance(outcome, Written):
            self._store.redelivered(entry.seq, outcome.uuid, self._clock(), outcome.offset)
            self._store.drop_intent(outcome.uuids[0])
        return self._settle(ref, each, outcome)

    def _settle(self, ref: SessionRef, each: Pending, outcome: WriteOutcome) -> Retry | None:
        now = self._clock()
        if isinstance(outcome, Declined) and outcome.reason is Reason.LOCKED:
            return Retry(now + LOCKED_RETRY_SECONDS, outcome.detail)
        if isinstance(outcome, Declined) and outcome.reason is Reason.WORKING:
            return Retry(now + WORKING_RETRY_SECONDS, outcome.detail)
        if isinstance(outcome, Failed) and not outcome.anomaly:
            return Retry(now + FAILED_RETRY_SECONDS, outcome.detail)
        self._store.drop_pending(ref.session_id, each.kind)
        return None

    # -- after a crash ------------------------------------------------------------------------------------------------

    def recover(self, ref_of: Callable[[str], SessionRef | None]) -> int:
        """Verify every write that an earlier process began and did not finish. Returns how many still wait for a
        lease.
        """
        left = 0
        for data in self._store.intents():
            intent = _intent_from_json(data)
            ref = ref_of(intent.path) if intent else None
            if intent is None or ref is None:
                self._store.drop_intent(str(data.get("uuid", "")))
                continue
            outcome = self._writer.recover(self._target(ref), intent)
            if isinstance(outcome, Declined) and outcome.reason is Reason.LOCKED:
                left += 1
                continue
            if isinstance(outcome, Written):
                kind = JournalKind.TITLE if isinstance(intent.payload, TitleLine) else JournalKind.RECAP
                self._journal(ref, intent.payload, outcome, kind, "", "found after a restart")
            else:
                self._store.drop_intent(intent.uuid)
        return left

    # -- what we know of our own titles -------------------------------------------------------------------------------

    def our_titles(self, session_id: str) -> tuple[OurTitle, ...]:
        """The titles that we wrote to this session, oldest first."""
        return tuple(
            OurTitle(entry.text, TitleSource(entry.source), frozenset(entry.uuids), entry.offset)
            for entry in self._store.our_titles(session_id)
            if entry.source in (TitleSource.AUTO.value, TitleSource.MANUAL.value)
        )

    def title_before_ours(self, state: SessionState, session_id: str) -> TitleRun | None:
        """The title that stood before the newest one of ours, None when there was none."""
        ours = {uuid for entry in self._store.our_titles(session_id) for uuid in entry.uuids}
        texts = {entry.text for entry in self._store.our_titles(session_id)}
        foreign = [run for run in state.titles if not ours & set(run.uuids) and run.title not in texts]
        return foreign[-1] if foreign else None

    def _cli_holds_title(self, ref: SessionRef, known: Reading | None) -> bool:
        """Whether a live CLI may hold a title that it writes again at its exit (contract 3.2): it had one to hold."""
        if not self._ownership(ref).owned:
            return False
        return known is None or known.state.title is not None

    def _keep(self, ref: SessionRef, kind: PendingKind, text: str, source: TitleSource) -> None:
        self._store.put_pending(
            Pending(
                session_id=ref.session_id,
                kind=kind,
                path=ref.path,
                created_at=self._clock(),
                text=text,
                source=source.value,
            )
        )

    # -- one guarded append -------------------------------------------------------------------------------------------

    def _target(self, ref: SessionRef) -> Target:
        def blocked() -> str:
            lease = lease_state(ref.runtime_base, ref.session_id)
            if lease is not None:
                return lease
            return "a live ACP or daemon process has the session" if self._ownership(ref).is_daemon else ""

        return Target(ref.path, blocked)

    def _append(self, ref: SessionRef, rule: Rule, known: Reading | None) -> WriteOutcome:
        mount = self._refused_mount(ref.path)
        if mount:
            return Declined(Reason.UNSAFE_FILE, mount)
        outcome = self._writer.append(self._target(ref), rule, known)
        if not isinstance(outcome, Declined) and outcome.anomaly:
            self._store.note_anomaly(ref.session_id, outcome.anomaly, self._clock())
        return outcome

    def _write(
        self, ref: SessionRef, rule: Rule, known: Reading | None, kind: JournalKind, *, model: str = ""
    ) -> WriteOutcome:
        last: list[TitleLine | RecapLine] = []

        def remembering(file: SessionFile) -> TitleLine | RecapLine | Declined:
            payload = rule(file)
            if not isinstance(payload, Declined):
                last[:] = [payload]
            return payload

        outcome = self._append(ref, remembering, known)
        if isinstance(outcome, Written):
            self._journal(ref, last[0], outcome, kind, model, "")
        return outcome

    def _journal(
        self,
        ref: SessionRef,
        payload: TitleLine | RecapLine,
        outcome: Written,
        kind: JournalKind,
        model: str,
        note: str,
    ) -> None:
        title = isinstance(payload, TitleLine)
        self._store.record(
            JournalEntry(
                kind=kind,
                session_id=ref.session_id,
                path=ref.path,
                at=self._clock(),
                text=payload.title if isinstance(payload, TitleLine) else payload.text,
                cwd=outcome.cwd,
                source=payload.source.value if isinstance(payload, TitleLine) and title else "",
                model=model,
                record_uuid=outcome.uuid,
                parent_uuid=outcome.parent,
                offset=outcome.offset,
                uuids=outcome.uuids,
                note=note or ("a title that landed in between was put last" if outcome.healed else ""),
            )
        )
        self._store.drop_intent(outcome.uuids[0])


def _soonest(retries: list[Retry]) -> Retry | None:
    timed = [retry for retry in retries if retry.at is not None]
    if timed:
        return min(timed, key=lambda retry: retry.at or 0.0)
    return retries[0] if retries else None


def _intent_to_json(intent: Intent) -> dict[str, Any]:
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
        "parent": intent.parent,
        "path": intent.path,
        "session_id": intent.session_id,
        "dev": intent.dev,
        "ino": intent.ino,
        "offset": intent.offset,
        "length": intent.length,
        "atime_ns": intent.atime_ns,
        "mtime_ns": intent.mtime_ns,
        "payload": payload,
    }


def _intent_from_json(data: Mapping[str, Any]) -> Intent | None:
    try:
        given = data["payload"]
        payload = (
            RecapLine(given["recap"])
            if "recap" in given
            else TitleLine(given["title"], TitleSource(given["source"]), given["yields"])
        )
        names = ("uuid", "parent", "path", "session_id", "dev", "ino", "offset", "length", "atime_ns", "mtime_ns")
        return Intent(**{name: data[name] for name in names}, payload=payload)
    except (KeyError, TypeError, ValueError):
        return None
