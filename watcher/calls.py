"""Model calls of the service: begun in a worker thread, counted, held while an endpoint is not to be asked, ended.

One thread owns this; only `Drafter.ask` runs elsewhere, and its answer comes back through `post`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from watcher.core.generation import Kind
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.drafting import Draft, Drafter, NoText, Ready
from watcher.edge.store import Store
from watcher.edge.text_model import Abort, NotAsked
from watcher.errors import StateError
from watcher.holds import Holds
from watcher.log import SESSION_RECAP, SESSION_TITLE, WATCHER, LogEvent, LogKey, get_logger
from watcher.pipeline import Hold, Refusal, Text
from watcher.qwen.contract import session_id_of
from watcher.qwen.paths import SessionRef
from watcher.qwen.settings import QwenSettings

HELD_SECONDS: Final = 60.0

LOGGERS: Final = {Kind.TITLE: SESSION_TITLE, Kind.RECAP: SESSION_RECAP}
FAILED: Final = {Kind.TITLE: LogEvent.TITLE_FAILED, Kind.RECAP: LogEvent.RECAP_FAILED}


@dataclass(frozen=True, slots=True)
class Answered:
    """A model call has ended: put into the inbox by a worker thread."""

    path: str
    answer: Text | Refusal | Hold


class Calls:
    """The model calls that run."""

    def __init__(
        self,
        drafter: Drafter,
        store: Store,
        *,
        workers: Executor,
        post: Callable[[Answered], None],
        clock: Callable[[], float],
    ) -> None:
        self._drafter = drafter
        self._store = store
        self._workers = workers
        self._post = post
        self._clock = clock
        self._aborts: set[Abort] = set()
        self._holds = Holds(store)

    def use_workers(self, workers: Executor) -> None:
        """Start model calls there from now on."""
        self._workers = workers

    def begin(self, kind: Kind, ref: SessionRef, state: SessionState, settings: QwenSettings) -> Refusal | Hold | bool:
        """Start the work; True when an answer will come.

        The attempt is counted now, but that of a model call when its turn comes: what waits for a worker when this
        process ends has not been tried.
        """
        turn = state.shown_turn if kind is Kind.TITLE else state.turn
        held = self._drafter.held(kind, settings)
        if held is not None:
            return self._hold(kind, held)
        made = self._drafter.prepare(kind, ref, settings)
        basis = Text(kind, "", "", turn=state.turn, moves=state.moves)
        if isinstance(made, Draft):
            abort = Abort()
            self._aborts.add(abort)
            self._workers.submit(self._work, ref.path, made, basis, turn, abort)
            return True
        self._store.note_attempt(ref.session_id, turn, self._clock(), kind)
        if isinstance(made, NoText):
            return _refusal(made)
        self._post(Answered(ref.path, _text(basis, made)))
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

    def refused(self, ref: SessionRef, refusal: Refusal) -> None:
        """Record and log a failed attempt: one line."""
        self._store.note_result(ref.session_id, refusal.reason.value, refusal.detail, refusal.kind)
        if refusal.reason is Reason.ABORTED:
            return
        detail = refusal.detail
        if refusal.denied:
            detail = f"{detail}; not asked again until the settings change"
        fields = failure_fields(ref, refusal.reason, detail)
        if refusal.host:
            if refusal.reason is Reason.MODEL_ERROR:
                self._holds.begin(refusal.host, refusal.detail, self._clock(), denied=refusal.denied)
            fields[LogKey.HOST] = refusal.host
        if refusal.status is not None:
            fields[LogKey.STATUS] = refusal.status
        get_logger(LOGGERS[refusal.kind]).warning(FAILED[refusal.kind], **fields)


def _text(basis: Text, made: Ready) -> Text:
    return Text(basis.kind, made.text, made.model, basis.turn, basis.moves)


def _refusal(made: NoText) -> Refusal:
    return Refusal(made.kind, made.reason, made.detail, made.host, made.status, made.denied)


def failure_fields(ref: SessionRef, reason: Reason, detail: str) -> dict[str, object]:
    """What a line about a failure holds."""
    return {LogKey.SESSION: ref.session_id, LogKey.REASON: reason.value, LogKey.DETAIL: detail}
