"""What the service answers, where its loop or its model takes too long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from tests.api.house import House, house
from tests.support.chat_server import ChatServer, Gate, Kind, Reply
from watcher.api.answers import ServiceAnswers
from watcher.api.server import BusyError
from watcher.edge.text_model import Abort
from watcher.errors import NotFoundError
from watcher.workplace import Workplace

RECAP = "You fix the flaky login test. Next: run the whole suite."


@contextmanager
def answering(home: House, *, recap_seconds: float = 60.0, loop_seconds: float = 10.0) -> Iterator[ServiceAnswers]:
    """Answers with a loop in a thread of its own, which owns the workplace."""
    queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def loop() -> None:
        while (run := queue.get()) is not None:
            run()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        with Workplace(home.environ) as place, ThreadPoolExecutor(1) as workers:
            yield ServiceAnswers(
                place,
                post=queue.put,
                known=lambda _: None,
                workers=workers,
                recap_seconds=recap_seconds,
                loop_seconds=loop_seconds,
            )
    finally:
        queue.put(None)
        thread.join()


def test_a_recap_that_takes_too_long_is_given_up() -> None:
    """The model call ends as well, and the reason is told."""
    with ChatServer() as server, house(server.base_url) as home:
        gate = Gate()
        server.script(Reply(RECAP, gate=gate), kind=Kind.RECAP)
        session = home.session()
        with answering(home, recap_seconds=1.0) as answers:
            found = answers.recap(session.session_id, Abort())
            assert found == {"sessionId": session.session_id, "recap": None, "reason": "aborted"}
            (request,) = server.requests()
            assert request.aborted.wait(10)


def test_a_client_that_goes_while_its_turn_has_not_come_costs_nothing() -> None:
    """Calls on request count among those that may run at the same time."""
    with ChatServer(recap=RECAP) as server, house(server.base_url) as home:
        gate = Gate()
        server.script(Reply(f"<recap>{RECAP}</recap>", gate=gate), kind=Kind.RECAP)
        first, second = home.session(), home.session()
        abort = Abort()
        with answering(home) as answers, ThreadPoolExecutor(2) as clients:
            one = clients.submit(answers.recap, first.session_id, Abort())
            gate.wait_arrived()
            two = clients.submit(answers.recap, second.session_id, abort)
            abort.set()
            gate.release()
            assert one.result(20)["recap"] == RECAP
            # Whether it still stood before the loop or already before the model is a matter of luck.
            assert isinstance(two.exception(20), BusyError) or two.result()["reason"] == "aborted"
        assert len(server.requests()) == 1


def test_a_loop_that_has_no_time_is_told() -> None:
    """And what is left in its queue is not done any more."""
    ran: list[int] = []
    with house() as home, Workplace(home.environ) as place, ThreadPoolExecutor(1) as workers:
        waiting: list[Callable[[], None]] = []
        answers = ServiceAnswers(
            place, post=waiting.append, known=lambda _: ran.append(1), workers=workers, loop_seconds=0.05
        )
        with pytest.raises(BusyError):
            answers.status(Abort())
        for run in waiting:
            run()
        assert ran == []


def test_what_the_loop_raises_comes_back() -> None:
    """The loop itself goes on."""
    with house() as home, answering(home) as answers:
        with pytest.raises(NotFoundError):
            answers.why("00000000", Abort())
        assert answers.status(Abort())["running"] is False
