"""Writes to session files as the rest of the program asks for them: titles, recaps, kept for later, undone, healed.

`watcher.appending` does one guarded append; this module knows what to append when, keeps what cannot be written yet,
and brings back what another program's memory wrote over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from watcher.appending import Appender, Noted, Purpose, RuleFor, StoreIntents
from watcher.core.decisions import Skip, WaitUntil
from watcher.core.events import TitleSource
from watcher.core.generation import Kind
from watcher.core.owner import Ownership
from watcher.core.policy import heal_wanted, reanchor_wanted, turn_over
from watcher.core.recap_delivery import DeliveryFacts, KeptRecap, decide_delivery
from watcher.core.session import SessionState
from watcher.core.undo import put_back_by_memory
from watcher.core.write_rules import (
    Circumstances,
    RecapBasis,
    Rule,
    automatic_title,
    given_title,
    healed_title,
    kept_title,
    recap,
    requested_title,
    title_again,
)
from watcher.core.writing import Declined, Payload, SessionFile, WriteOutcome, Written
from watcher.edge.leases import lease_state
from watcher.edge.store import JournalKind, Pending, PendingKind, Store
from watcher.edge.writer import SessionWriter
from watcher.qwen.paths import SessionRef
from watcher.qwen.reading import Reading
from watcher.qwen.versions import unsupported
from watcher.retries import LOCKED_RETRY_SECONDS, Retry, retry_after, soonest
from watcher.title_journal import TitleJournal

__all__ = ["Recorder", "Retry", "StoreIntents"]

_BY_USER: Final = (PendingKind.MANUAL_TITLE, PendingKind.UNDO)


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
        lease: Callable[..., str | None] = lease_state,
    ) -> None:
        """`refused_mount(path)` says why files there are never written (a network file system), or "".
        `lease(runtime_base, *session_ids)` as `edge.leases.lease_state`.
        """
        self._store = store
        self._ownership = ownership
        self._clock = clock
        self.titles = TitleJournal(store, clock)
        self._appender = Appender(
            store, writer, ownership=ownership, refused_mount=refused_mount, clock=clock, lease=lease
        )

    # -- writing ------------------------------------------------------------------------------------------------------

    def automatic_title(self, ref: SessionRef, text: str, model: str, known: Reading | None = None) -> WriteOutcome:
        """Write an automatic title, unless any title stands there."""
        purpose = Purpose(JournalKind.TITLE, model)
        return self._appender.write(ref, lambda now: automatic_title(text, now), known, purpose)

    def requested_title(
        self, ref: SessionRef, text: str, model: str, basis: SessionFile, known: Reading | None = None
    ) -> tuple[WriteOutcome, bool]:
        """Write the title that `title S --auto` asked for. The flag as for `manual_title`."""
        return self._by_user(
            ref,
            lambda now: requested_title(text, basis, now),
            known,
            Purpose(JournalKind.TITLE, model),
            PendingKind.MANUAL_TITLE,
        )

    def manual_title(self, ref: SessionRef, name: str, known: Reading | None = None) -> tuple[WriteOutcome, bool]:
        """Write the user's own name. The flag: a live CLI may bring its own title back, so the name is kept to the
        end.
        """
        return self._by_user(
            ref,
            lambda now: given_title(name, TitleSource.MANUAL, now),
            known,
            Purpose(JournalKind.TITLE),
            PendingKind.MANUAL_TITLE,
        )

    def undo_title(
        self, ref: SessionRef, title: str, source: TitleSource, known: Reading | None = None
    ) -> tuple[WriteOutcome, bool]:
        """Put back the title that stood before ours; the session is never titled automatically again."""
        outcome, kept = self._by_user(
            ref, lambda now: given_title(title, source, now), known, Purpose(JournalKind.UNDO), PendingKind.UNDO
        )
        if isinstance(outcome, Written):
            self._store.dismiss(ref.session_id, self._clock())
        return outcome, kept

    def _by_user(
        self, ref: SessionRef, rule_for: RuleFor, known: Reading | None, purpose: Purpose, kind: PendingKind
    ) -> tuple[WriteOutcome, bool]:
        """Write a title that the user asked for. Earlier wishes are void then; this one is kept when a CLI may write
        over it at its exit.
        """
        titled = False

        def noting(now: Circumstances) -> Rule:
            def rule(file: SessionFile) -> Payload | Declined:
                nonlocal titled
                titled = file.state.title is not None
                return rule_for(now)(file)

            return rule

        outcome = self._appender.write(ref, noting, known, purpose)
        if not isinstance(outcome, Written):
            return outcome, False
        for old in (PendingKind.TITLE, *_BY_USER):
            self._store.drop_pending(ref.session_id, old)
        # A CLI holds a title (contract 3.2) when there was one that it can have read, or when it wrote meanwhile.
        entry = self.titles.entry_of(ref, outcome.uuid)
        if not (titled or outcome.foreign) or entry is None or outcome.overruled:
            return outcome, False
        self.titles.keep(ref, kind, entry)
        if self._ownership(ref).owned:
            return outcome, True
        # Who read the file before our line has ended by now, its last words are in it, and one more look tells all.
        look = self._appender.look(ref, known)
        if isinstance(look, SessionFile):
            for each in self._kept(ref, kind):
                self._deliver_user_title(ref, each, look.state, known, owned=False)
        return outcome, bool(self._kept(ref, kind))

    def _kept(self, ref: SessionRef, kind: PendingKind) -> list[Pending]:
        return [each for each in self._store.pending(ref.session_id) if each.kind is kind]

    def recap(
        self, ref: SessionRef, text: str, model: str, basis: RecapBasis, known: Reading | None = None
    ) -> WriteOutcome:
        """Write a recap of the session as it was at `basis`.

        While an owner lives it may be hidden by what that owner writes next, so it is kept and looked at again when the
        owner has gone (design 7).
        """
        purpose = Purpose(JournalKind.RECAP, model)
        outcome = self._appender.write(ref, lambda now: recap(text, basis, now), known, purpose)
        if isinstance(outcome, Written) and self._ownership(ref).owned:
            entry = self.titles.entry_of(ref, outcome.uuid)
            self.keep_text(ref, Kind.RECAP, text, model, basis.turn, seq=entry.seq if entry else 0)
        return outcome

    def keep_text(
        self, ref: SessionRef, kind: Kind, text: str, model: str, turn: str, *, moves: int | None = None, seq: int = 0
    ) -> None:
        """Keep a text that could not be written yet, or that was (`seq`: its journal entry) and may be hidden;
        `deliver` writes it, without another model call. `turn` and `moves` say what it was made of.
        """
        self._store.put_pending(
            Pending(
                session_id=ref.session_id,
                kind=PendingKind.TITLE if kind is Kind.TITLE else PendingKind.RECAP,
                path=ref.path,
                created_at=self._clock(),
                text=text,
                model=model,
                basis_turn=turn,
                basis_moves=-1 if moves is None else moves,
                journal_seq=seq,
            )
        )

    def take_noted(self) -> tuple[Noted, ...]:
        """The journal entries that this recorder made since it was last asked; see `Appender`."""
        return self._appender.take_noted()

    def stopped(self, session_id: str) -> str:
        """Why nothing is written automatically now: a pause or the brake (design promise 6); "" when nothing stops
        it.
        """
        paused = self._store.paused(self._clock())
        if paused is not None:
            return f"paused until {'`resume`' if paused.until is None else _people_time(paused.until)}"
        return self._appender.braked(session_id)

    # -- what is due without a model call -----------------------------------------------------------------------------

    def deliver(
        self, ref: SessionRef, state: SessionState, size: int, still_since: float, known: Reading | None
    ) -> Retry | None:
        """Write what waits for this session, heal and re-anchor its title; says when to look again, None when done.

        What the user asked for comes first and decides the title; only then is anything brought back.
        """
        unfinished = self._appender.finish(ref)
        if unfinished:
            return Retry(self._clock() + LOCKED_RETRY_SECONDS, unfinished)
        retries: list[Retry | None] = []
        waiting = self._store.pending(ref.session_id)
        owners = self._ownership(ref)
        if waiting and not owners.owned:
            # Since `state` was read its owner may have written its last words, and nothing may be dropped for that.
            look = self._appender.look(ref, known)
            if not isinstance(look, SessionFile):
                return retry_after(look, self._clock())
            state = look.state
        for each in waiting:
            if each.kind in _BY_USER:
                retries.append(self._deliver_user_title(ref, each, state, known, owned=owners.owned))
        if not any(retries):
            retries.append(self._bring_back(ref, state, size, still_since, known))
        for each in waiting:
            if each.kind not in _BY_USER:
                facts = replace(self.delivery_facts(ref, each, state, still_since), ownership=owners)
                retries.append(self._deliver_text(ref, each, facts, known))
        return soonest(retries)

    def _deliver_user_title(
        self, ref: SessionRef, each: Pending, state: SessionState, known: Reading | None, *, owned: bool
    ) -> Retry | None:
        if owned:
            return Retry(None, "the user's title is put last again when the session closes")
        source = TitleSource(each.source or TitleSource.MANUAL.value)
        given = self.titles.given(ref, each)
        if not put_back_by_memory(state.titles, given.ours, each.text, source, given.offset):
            self._store.drop_pending(ref.session_id, each.kind)
            return None
        outcome = self._appender.write(
            ref,
            lambda now: kept_title(each.text, source, given.offset, given.ours, now),
            known,
            Purpose(JournalKind.HEAL),
        )
        return self._settle(ref, each, outcome)

    def _bring_back(
        self, ref: SessionRef, state: SessionState, size: int, still_since: float, known: Reading | None
    ) -> Retry | None:
        """The user's title over an old one of ours (design promise 2); our own once it is out of sight (design 6)."""
        ours = self.titles.our_titles(ref.session_id)
        heal = heal_wanted(state, ours) is not None
        if not heal and reanchor_wanted(state, size, ours) is None:
            return None
        stopped = self.stopped(ref.session_id)
        if stopped:
            return Retry(None, stopped)
        owners = self._ownership(ref)
        if heal and owners.owned:
            return Retry(None, "a manual title is put last when the session closes")
        running = turn_over(
            state,
            owned=owners.owned,
            owner_known=owners.ever_known,
            still_since=still_since,
            now=self._clock(),
        )
        if isinstance(running, WaitUntil):
            return Retry(running.at, running.detail)
        if heal:
            outcome = self._appender.write(ref, lambda now: healed_title(ours, now), known, Purpose(JournalKind.HEAL))
        else:
            purpose = Purpose(JournalKind.REANCHOR)
            outcome = self._appender.write(ref, lambda now: title_again(ours, now), known, purpose)
        return retry_after(outcome, self._clock())

    def _deliver_text(
        self, ref: SessionRef, each: Pending, facts: DeliveryFacts, known: Reading | None
    ) -> Retry | None:
        if facts.paused:
            return Retry(None, facts.paused)
        if each.kind is PendingKind.RECAP:
            return self._deliver_recap(ref, each, facts, known)
        return self._settle(ref, each, self.automatic_title(ref, each.text, each.model, known))

    def _deliver_recap(
        self, ref: SessionRef, each: Pending, facts: DeliveryFacts, known: Reading | None
    ) -> Retry | None:
        """Write a kept recap, or again one that a live terminal wrote over; see `core.recap_delivery`."""
        decision = decide_delivery(facts, self._clock())
        if isinstance(decision, WaitUntil):
            return Retry(decision.at, decision.detail)
        if isinstance(decision, Skip):
            self._store.drop_pending(ref.session_id, each.kind)
            return None
        if not facts.kept.record_uuids:
            basis = RecapBasis(each.basis_turn, None if each.basis_moves < 0 else each.basis_moves)
            outcome = self.recap(ref, each.text, each.model, basis, known)
            kept = isinstance(outcome, Written) and any(
                one.kind is PendingKind.RECAP and one.journal_seq for one in self._store.pending(ref.session_id)
            )
            return None if kept else self._settle(ref, each, outcome)
        purpose = Purpose(JournalKind.RECAP, each.model, each.journal_seq)
        basis = RecapBasis(each.basis_turn)
        return self._settle(
            ref, each, self._appender.write(ref, lambda now: recap(each.text, basis, now), known, purpose)
        )

    def delivery_facts(self, ref: SessionRef, each: Pending, state: SessionState, still_since: float) -> DeliveryFacts:
        """What the delivery of a kept recap is decided on."""
        entry = self._store.entry(each.journal_seq) if each.journal_seq else None
        return DeliveryFacts(
            state=state,
            still_since=still_since,
            kept=KeptRecap(each.basis_turn, entry.uuids if entry else ()),
            ownership=self._ownership(ref),
            unsupported=unsupported(state),
            paused=self.stopped(ref.session_id),
            leased=self._appender.leased(ref),
        )

    def _settle(self, ref: SessionRef, each: Pending, outcome: WriteOutcome) -> Retry | None:
        """Keep what may still be written, forget what was written or never will be."""
        retry = retry_after(outcome, self._clock())
        if retry is None:
            self._store.drop_pending(ref.session_id, each.kind)
        return retry

    # -- after a crash ------------------------------------------------------------------------------------------------

    def recover(self, ref_of: Callable[[str], SessionRef | None]) -> int:
        """Verify every write that an earlier process began and did not finish. Returns how many must wait, for a lease
        or a disk.
        """
        return self._appender.recover(ref_of)


def _people_time(seconds: float) -> str:
    """In the user's own zone, as `pause` says it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
