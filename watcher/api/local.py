"""The local API of one run of the service: opens the socket, and brings together what answers (design 4)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from watcher.api.listener import Listener, SocketError
from watcher.edge.text_model import Abort
from watcher.log import WATCHER, LogEvent, LogKey, get_logger
from watcher.paths import socket_path
from watcher.qwen.paths import SessionRef
from watcher.workplace import Workplace

if TYPE_CHECKING:
    from watcher.desk import Desk
    from watcher.explain import Known
    from watcher.pipeline import Pipeline


class LocalApi:
    """Answers clients from `open` to `close`; trouble is one log line, and never the service's."""

    def __init__(
        self,
        place: Workplace,
        pipeline: Pipeline,
        desk: Desk,
        *,
        post: Callable[[Callable[[], None]], None],
        workers: Executor,
    ) -> None:
        """`post` has a callable run by the thread that owns place, pipeline and desk; `workers` ask the models."""
        self._place = place
        self._pipeline = pipeline
        self._desk = desk
        self._post = post
        self._workers = workers
        self._listener = Listener(socket_path(place.environ), self._serve, self._tell)

    def open(self) -> None:
        """Listen, or say why not."""
        try:
            self._listener.start()
        except SocketError as error:
            detail = f"{error}; there is no local API until then"
            get_logger(WATCHER).warning(LogEvent.API, **{LogKey.DETAIL: detail})

    def close(self) -> None:
        """End all connections and remove the socket. May be repeated."""
        self._listener.close()

    def _serve(self, connection: socket.socket, abort: Abort) -> None:
        # Not imported before somebody asks.
        from watcher.api.answers import ServiceAnswers  # noqa: PLC0415
        from watcher.api.server import serve  # noqa: PLC0415

        answers = ServiceAnswers(self._place, post=self._post, known=self._known, workers=self._workers)
        serve(connection, answers, abort)

    def _known(self, ref: SessionRef) -> Known | None:
        """What the pipeline knows of a session, None when it did not move lately. For the owning thread."""
        from watcher.explain import Known  # noqa: PLC0415

        session = self._pipeline.session(ref.path)
        if session is None:
            return None
        presence, native = self._desk.presence(ref.path)
        return Known(session.state, session.still_since, session.moved, presence, native, frozenset(session.in_flight))

    def _tell(self, error: BaseException) -> None:
        get_logger(WATCHER).warning(LogEvent.API, **{LogKey.DETAIL: f"an answer failed: {type(error).__name__}"})
