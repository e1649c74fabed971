"""A recap because somebody asks for one: the command `recap` and the local API (design 4).

The same way from file to text as the away recap (`watcher.drafting`), without its gates. Where nothing happened since
the last recap, that one is given and no model is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watcher.catalog import read_session
from watcher.core.decisions import Act
from watcher.core.generation import Kind
from watcher.core.presence import Here
from watcher.core.recap_policy import RecapFacts, decide_recap_on_request
from watcher.core.session import SessionState
from watcher.core.write_rules import RecapBasis
from watcher.drafting import Drafter, NoText, Ready
from watcher.edge.scan import unsafe_path
from watcher.edge.store import JournalKind, PendingKind, Store
from watcher.facts import looks_unsafe
from watcher.plan import model_name
from watcher.qwen.paths import SessionRef
from watcher.qwen.reading import Reading
from watcher.qwen.settings import QwenSettings
from watcher.qwen.versions import unsupported

if TYPE_CHECKING:
    from watcher.edge.text_model import Abort
    from watcher.workplace import Workplace


@dataclass(frozen=True, slots=True)
class RequestedRecap:
    """A recap and what it was made of. `model` is "" for one of Qwen Code's own.

    `recorded`: it stands on the active branch of the session file, so there is nothing to write.
    """

    text: str
    model: str
    recorded: bool
    reading: Reading

    @property
    def basis(self) -> RecapBasis:
        """The state of the session that the text belongs to, for `Recorder.recap`."""
        return RecapBasis(self.reading.state.turn, self.reading.state.moves)


@dataclass(frozen=True, slots=True)
class RecapRequest:
    """A request that passed its guards and needs a text made: what `make_recap` goes on with, in any thread."""

    ref: SessionRef
    reading: Reading
    settings: QwenSettings


def recap_on_request(
    place: Workplace, ref: SessionRef, abort: Abort, *, write: bool = False
) -> RequestedRecap | NoText:
    """The recap of a session now, or why there is none. Blocks while a model answers.

    `write`: it is to be recorded, so a running turn and an unsupported version forbid it. Raises `NotFoundError` when
    the file cannot be read, `StateError` when the state database cannot be used.
    """
    begun = begin_recap(place, ref, read_session(ref), write=write)
    return begun if not isinstance(begun, RecapRequest) else make_recap(place.drafter, begun, abort)


def begin_recap(
    place: Workplace, ref: SessionRef, reading: Reading, *, write: bool = False
) -> RecapRequest | RequestedRecap | NoText:
    """Judge a request; quick. To be called in the thread that owns `place`."""
    state = reading.state
    unsafe = unsafe_path(ref.path) or looks_unsafe(ref, state)
    stored = None if unsafe else stored_recap(place.store, ref, state)
    found = None if stored is None else RequestedRecap(stored.text, stored.model, stored.recorded, reading)
    if found is not None and (found.recorded or not write):
        return found
    surveyor = place.surveyor
    settings = surveyor.settings(ref, state)
    model, missing = model_name(place.loaded, settings, place.environ, main=place.config.recap.fallback_to_main)
    facts = RecapFacts(
        state=state,
        still_since=_changed_at(ref),
        status=Here(None),
        rules=surveyor.recap_rules(settings),
        ownership=surveyor.ownership(ref),
        unsafe=unsafe,
        unsupported=unsupported(state),
        model="stored" if found is not None else model,
        model_missing=missing,
        calls_left=1 if found is not None else surveyor.calls_left(),
    )
    decision = decide_recap_on_request(facts, place.clock(), write=write)
    if not isinstance(decision, Act):
        return NoText(Kind.RECAP, decision.reason, decision.detail)
    return found if found is not None else RecapRequest(ref, reading, settings)


def make_recap(drafter: Drafter, request: RecapRequest, abort: Abort) -> RequestedRecap | NoText:
    """Ask the model. Blocks; may be called in any thread."""
    made = drafter.prepare(Kind.RECAP, request.ref, request.settings)
    if not isinstance(made, NoText | Ready):
        made = drafter.ask(made, abort)
    if isinstance(made, NoText):
        return made
    return RequestedRecap(made.text, made.model, recorded=False, reading=request.reading)


@dataclass(frozen=True, slots=True)
class StoredRecap:
    """A recap that still tells how things stand. `recorded`: it stands on the active branch of the session file."""

    text: str
    model: str
    recorded: bool


def stored_recap(store: Store, ref: SessionRef, state: SessionState) -> StoredRecap | None:
    """The last recap of this session, Qwen Code's own included, unless the conversation has moved on since."""
    since = state.last_activity_at
    if since is None or not state.user_turns or state.chain.contains_on_active(state.turn) is False:
        return None
    shown = state.recap
    if shown is not None and state.turns_since_recap == 0 and (shown.at or since) >= since:
        written = store.entries(kinds=(JournalKind.RECAP,), session_id=ref.session_id, limit=1)
        ours = bool(written) and shown.uuid in written[-1].uuids
        if state.chain.contains_on_active(shown.uuid) is not False:
            return StoredRecap(shown.text, written[-1].model if ours else "", recorded=True)
    for waiting in store.pending(ref.session_id):
        if waiting.kind is PendingKind.RECAP and waiting.created_at >= since:
            return StoredRecap(waiting.text, waiting.model, recorded=False)
    # A live Qwen Code chains past our record, so the file may hide what the journal knows.
    for entry in store.entries(kinds=(JournalKind.RECAP,), session_id=ref.session_id, limit=1):
        if entry.at >= since:
            return StoredRecap(entry.text, entry.model, recorded=False)
    return None


def _changed_at(ref: SessionRef) -> float:
    try:
        return Path(ref.path).stat().st_mtime
    except OSError:
        return 0.0
