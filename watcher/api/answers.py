"""What the running service answers: with all that it knows, and without standing in its own way.

What touches the service's state runs in its loop, and is quick. Files are read, and models asked, outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from watcher.api.server import BusyError
from watcher.catalog import Catalog, read_session
from watcher.core.generation import Kind
from watcher.core.reasons import Reason
from watcher.drafting import NoText
from watcher.edge.text_model import Abort
from watcher.explain import Known, look_at, why_of
from watcher.overview import status_of
from watcher.qwen.paths import SessionRef
from watcher.requested import RecapRequest, RequestedRecap, begin_recap, make_recap
from watcher.workplace import Workplace

RECAP_SECONDS: Final = 60.0
"""Longest wait for a recap (design 4)."""
LOOP_SECONDS: Final = 10.0
"""Longest wait for the service's loop, which may be reading a large file."""

T = TypeVar("T")


class ServiceAnswers:
    """Fits `api.server.Answers`. Any number of threads may use it."""

    def __init__(
        self,
        place: Workplace,
        *,
        post: Callable[[Callable[[], None]], None],
        known: Callable[[SessionRef], Known | None],
        workers: Executor,
        recap_seconds: float = RECAP_SECONDS,
        loop_seconds: float = LOOP_SECONDS,
    ) -> None:
        """`post` hands a callable to the loop that owns `place`; `known`, called there, tells what the loop knows of a
        session that moved lately. `workers` are the threads that ask models, so that calls on request count among
        `model.max_concurrency`.
        """
        self._place = place
        self._post = post
        self._known = known
        self._workers = workers
        self._recap_seconds = recap_seconds
        self._loop_seconds = loop_seconds

    def status(self, abort: Abort) -> Mapping[str, Any]:
        """The object of `status --json`."""
        return self._in_loop(lambda: status_of(self._place), abort)

    def why(self, session: str, abort: Abort) -> Mapping[str, Any]:
        """The object of `why --json`, with what only the running service knows."""
        ref = self._find(session, abort)
        known = self._in_loop(lambda: self._known(ref), abort) or look_at(self._place.store, ref)
        return self._in_loop(lambda: why_of(self._place, ref, known), abort)

    def recap(self, session: str, abort: Abort) -> Mapping[str, Any]:
        """`{sessionId, recap, reason}`: the last recap if nothing happened since, else a new one, or why there is
        none.
        """
        deadline = time.monotonic() + self._recap_seconds
        ref = self._find(session, abort)
        reading = read_session(ref)
        made = self._in_loop(lambda: begin_recap(self._place, ref, reading), abort)
        if isinstance(made, RecapRequest):
            made = self._make(made, abort, deadline)
        text = made.text if isinstance(made, RequestedRecap) else None
        reason = made.reason.value if isinstance(made, NoText) else None
        return {"sessionId": ref.session_id, "recap": text, "reason": reason}

    def _make(self, request: RecapRequest, abort: Abort, deadline: float) -> RequestedRecap | NoText:
        future = self._workers.submit(make_recap, self._place.drafter, request, abort)
        with abort.calling(future.cancel):
            try:
                return future.result(max(0.0, deadline - time.monotonic()))
            except FutureTimeoutError:
                abort.set()
            except CancelledError:
                pass
        return NoText(Kind.RECAP, Reason.ABORTED)

    def _find(self, session: str, abort: Abort) -> SessionRef:
        place = self._place
        return self._in_loop(lambda: Catalog(place.roots, place.liveness, place.store).find(session), abort)

    def _in_loop(self, work: Callable[[], T], abort: Abort) -> T:
        """Have it done by the thread that owns everything, and give what it gives or raises."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, not to the loop
                future.set_exception(error)

        self._post(run)
        with abort.calling(future.cancel):
            try:
                return future.result(self._loop_seconds)
            except FutureTimeoutError:
                future.cancel()
                raise BusyError("the service is busy; try again") from None
            except CancelledError:
                raise BusyError("the service is stopping, or the client went away") from None
