"""`why`: every guard of titling and recap for one session, which one decides, and what would change it (design 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from watcher.catalog import read_session
from watcher.core.decisions import Act, Decision, Guard, WaitUntil
from watcher.core.generation import Kind
from watcher.core.native_recaps import NativeRecaps
from watcher.core.owner import Ownership
from watcher.core.policy import decide_title, explain_title
from watcher.core.presence import Away, Here, Presence, Source, Status, evidence
from watcher.core.reasons import Reason
from watcher.core.recap_delivery import decide_delivery
from watcher.core.recap_policy import RecapFacts, decide_recap, explain_recap
from watcher.core.session import SessionState
from watcher.edge.clock import read_clocks
from watcher.edge.leases import lease_state
from watcher.edge.scan import unsafe_path
from watcher.edge.store import Attempts, Pending, PendingKind, Store
from watcher.errors import NotFoundError
from watcher.facts import FileFacts
from watcher.shapes import iso

if TYPE_CHECKING:
    from watcher.qwen.paths import SessionRef
    from watcher.workplace import Workplace

_CHANGE: Final = {
    Reason.NO_FAST_MODEL: "set fastModel in Qwen Code's settings.json, or [model] source in the configuration",
    Reason.EMPTY_HISTORY: "send a prompt and let it be answered",
    Reason.MANUAL_TITLE: "`qwen-watcher title S --auto` replaces it",
    Reason.TITLE_PRESENT: "`qwen-watcher title S --auto` replaces it",
    Reason.WORKING: "it goes on by itself when the turn has ended and the file is still",
    Reason.LOCKED: "it goes on by itself when the lease or the owning process is gone",
    Reason.PAUSED: "`qwen-watcher resume`; after an anomaly `qwen-watcher doctor`",
    Reason.DISABLED: "switch titling on where the detail says; `qwen-watcher title S --auto` works all the same",
    Reason.NOT_INTERACTIVE: '[title] sessions = "all"; `qwen-watcher title S --auto` works all the same',
    Reason.ATTEMPTS_EXHAUSTED: "`qwen-watcher title S --auto`, or `qwen-watcher backfill --retry`",
    Reason.BUDGET_EXHAUSTED: "wait for midnight, or raise [budget] calls_per_day",
    Reason.RECAPS_OFF: "set general.showSessionRecap in Qwen Code's settings.json, or [recap] enabled = true; "
    "`qwen-watcher recap S` works all the same",
    Reason.TOO_FEW_TURNS: "more prompts, or lower [recap] min_user_turns and min_user_turns_between; "
    "`qwen-watcher recap S` works all the same",
    Reason.NOTHING_NEW: "another prompt; `qwen-watcher backfill` titles old sessions",
    Reason.LEFT_TO_QWEN: "nothing needs to be done: the running Qwen Code does this itself",
    Reason.UNSAFE_FILE: "put right what the detail says about the file",
    Reason.UNSUPPORTED_VERSION: "continue the session with Qwen Code 0.21 or newer",
    Reason.IN_FLIGHT: "it goes on by itself when the model has answered",
    Reason.AWAY_NOT_YET: "it goes on by itself when the user has been away long enough, see [recap] away_minutes",
}
_CHANGE_RECAP: Final = {
    Reason.NO_FAST_MODEL: "set fastModel or a main model in Qwen Code's settings.json, or [model] source in the "
    "configuration",
    Reason.NOTHING_NEW: "another prompt; `qwen-watcher recap S` works all the same",
    Reason.NOT_INTERACTIVE: "nothing: recaps are for terminal and editor sessions; `qwen-watcher recap S` prints one",
    Reason.LEFT_TO_QWEN: "nothing needs to be done: the running Qwen Code shows it itself when the focus returns",
}
_SOURCES: Final = {Source.TERMINAL: "terminal", Source.RECORD: "prompt", Source.FIRST_SEEN: "first_seen"}


@dataclass(frozen=True, slots=True)
class Known:
    """How a session stands. `watched`: as the running watcher knows it; else as the file alone tells."""

    state: SessionState
    still_since: float
    moved: bool
    presence: Presence = field(default_factory=Presence)
    native: NativeRecaps = field(default_factory=NativeRecaps)
    in_flight: frozenset[Kind] = frozenset()
    watched: bool = True


def why_of(place: Workplace, ref: SessionRef, known: Known | None = None) -> dict[str, Any]:
    """The object of `why --json`, with what was found beside the guards: owners, lease, attempts, signs of life.

    Reads the file unless `known` tells how it stands. Raises `NotFoundError` when it cannot be read, `StateError` when
    the state database cannot be used.
    """
    found = known or look_at(place.store, ref)
    file = FileFacts(found.still_since, found.moved, unsafe_path(ref.path))
    now = place.clock()
    title = place.surveyor.title_facts(ref, found.state, file, in_flight=Kind.TITLE in found.in_flight)
    recap, presence, _ = place.surveyor.recap_facts(
        ref,
        found.state,
        file,
        found.presence,
        found.native,
        in_flight=Kind.RECAP in found.in_flight,
        complete=True,
    )
    store = place.store
    lease = lease_state(ref.runtime_base, ref.session_id)
    held = lease or ("a live ACP or daemon process has the session" if recap.ownership.is_daemon else "")
    standing = found.state.title
    verdicts = {
        Kind.TITLE: _verdict(Kind.TITLE, decide_title(title, now), explain_title(title, now), held),
        Kind.RECAP: _verdict(Kind.RECAP, decide_recap(recap, now), explain_recap(recap, now), held),
    }
    for kind, verdict in verdicts.items():
        verdict["attempts"] = _attempts(store.attempts(ref.session_id, kind))
    return {
        "session_id": ref.session_id,
        "title": verdicts[Kind.TITLE],
        "recap": verdicts[Kind.RECAP],
        "path": ref.path,
        "cwd": found.state.first_cwd,
        "stands": None
        if standing is None
        else {"title": standing.title, "source": "manual" if standing.is_manual else "auto"},
        "owners": _owners(recap.ownership),
        "presence": _presence(recap, presence),
        "lease": lease,
        "pending": _pending(place, ref, found, held, now),
        "next_look": min(filter(None, (verdict["until"] for verdict in verdicts.values())), default=None),
        "watched": found.watched,
    }


def look_at(store: Store, ref: SessionRef) -> Known:
    """How the session stands by its file alone; reads it, at most 64 MiB. Raises `NotFoundError`, `StateError`."""
    try:
        reading = read_session(ref)
    except NotFoundError:
        if not unsafe_path(ref.path):
            raise
        return Known(SessionState(), 0.0, moved=False, watched=False)  # a link, say: never read, and `why` says so
    row = store.index_at(ref.path)
    try:
        changed_at = Path(ref.path).stat().st_mtime
    except OSError:
        changed_at = 0.0
    return Known(reading.state, changed_at, moved=row is None or reading.size > row.size, watched=False)


def _verdict(kind: Kind, decision: Decision, guards: tuple[Guard, ...], held: str) -> dict[str, Any]:
    """The decision with what the writer asks last of all: whether somebody else holds the file."""
    guards = (*guards, Guard(Reason.LOCKED.value, not held, held))
    if isinstance(decision, Act) and held:
        decision = WaitUntil(None, Reason.LOCKED, held)
    shown: dict[str, Any] = {
        "verdict": "act" if isinstance(decision, Act) else "wait" if isinstance(decision, WaitUntil) else "skip",
        "reason": None,
        "guards": [{"name": guard.name, "ok": guard.ok, "detail": guard.detail} for guard in guards],
        "detail": "",
        "until": None,
        "change": "",
    }
    if not isinstance(decision, Act):
        shown["reason"] = decision.reason.value
        shown["detail"] = decision.detail
        change = _CHANGE_RECAP.get(decision.reason, "") if kind is Kind.RECAP else ""
        shown["change"] = change or _CHANGE.get(decision.reason, "")
    if isinstance(decision, WaitUntil):
        shown["until"] = iso(decision.at)
    return shown


def _attempts(attempts: Attempts) -> dict[str, Any]:
    return {
        "count": attempts.count,
        "last_at": iso(attempts.last_at),
        "last_reason": attempts.last_reason or None,
        "last_detail": attempts.last_detail if attempts.last_reason else "",
    }


def _pending(place: Workplace, ref: SessionRef, found: Known, held: str, now: float) -> list[dict[str, Any]]:
    """The texts that wait, and for what; what the recorder will decide when it delivers them."""
    return [
        {
            "kind": each.kind.value,
            "text": each.text,
            "since": iso(each.created_at),
            "waits_for": _waits_for(place, ref, found, each, held, now),
        }
        for each in place.store.pending(ref.session_id)
    ]


def _waits_for(place: Workplace, ref: SessionRef, found: Known, each: Pending, held: str, now: float) -> str:
    ownership = place.surveyor.ownership(ref)
    if each.kind in (PendingKind.MANUAL_TITLE, PendingKind.UNDO):
        return "the end of its Qwen Code" if ownership.owned else held
    if each.kind is PendingKind.TITLE:
        return place.recorder.stopped(ref.session_id) or held
    decision = decide_delivery(place.recorder.delivery_facts(ref, each, found.state, found.still_since), now)
    return "" if isinstance(decision, Act) else decision.detail


def _owners(ownership: Ownership) -> list[dict[str, Any]]:
    return [
        {
            "pid": owner.pid,
            "kind": owner.kind,
            "alive": owner.alive.value,
            "source": owner.source.value,
            "version": owner.version,
            "tty": owner.tty,
            "input_at": iso(owner.input_at),
        }
        for owner in ownership.owners
    ]


def _presence(facts: RecapFacts, presence: Presence) -> dict[str, Any]:
    """What is known of the user; a sign of life may be `newer_seconds` newer than it shows (design 7)."""
    status = facts.status
    return {
        "status": _status_word(status),
        "since": iso(status.since) if isinstance(status, Away) else None,
        "signs": [
            {
                "source": _SOURCES[sign.source],
                "name": sign.name,
                "at": iso(sign.at),
                "newer_seconds": sign.newer_seconds,
            }
            for sign in evidence(presence, read_clocks())
        ],
    }


def _status_word(status: Status) -> str:
    if isinstance(status, Away):
        return "away"
    return "here" if isinstance(status, Here) else "working"
