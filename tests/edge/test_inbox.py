"""The hand-over between threads, signal handlers and the loop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.edge.inbox import Inbox

ALL = "all"
DEADLINE_SECONDS = 10.0


def make(limit: int = 4096) -> Inbox[str]:
    """Lower-case values coalesce, upper-case ones are kept."""
    return Inbox(ALL, str.islower, limit)


def drain(inbox: Inbox[str]) -> list[str]:
    values = []
    while (value := inbox.get(0)) is not None:
        values.append(value)
    return values


def test_equal_values_wait_once_in_the_order_of_the_first() -> None:
    """A burst on one file is one value; other values keep their place and their number."""
    inbox = make()
    for value in ("a", "b", "a", "STOP", "a", "STOP"):
        inbox.put(value)
    assert inbox.waiting == 4
    assert drain(inbox) == ["a", "b", "STOP", "STOP"]


def test_a_value_put_after_it_was_taken_comes_again() -> None:
    """What happens while a value is being acted on is a new happening."""
    inbox = make()
    inbox.put("a")
    assert inbox.get(0) == "a"
    inbox.put("a")
    assert drain(inbox) == ["a"]


def test_too_many_values_become_one() -> None:
    """Past the limit only the value that stands for all comes out, values that must not be lost beside it."""
    inbox = make(limit=3)
    for value in ("a", "b", "STOP", "c", "d", "e", "RESULT"):
        inbox.put(value)
    assert drain(inbox) == ["STOP", ALL, "RESULT"]
    inbox.put("a")
    assert drain(inbox) == ["a"]


def test_the_queue_stays_bounded() -> None:
    """Ten thousand distinct values leave at most the limit and one more."""
    inbox = make(limit=100)
    for number in range(10_000):
        inbox.put(f"v{number}")
    assert inbox.waiting == 101
    assert drain(inbox) == [ALL]


def test_no_value_in_time_is_none() -> None:
    """Also for a deadline that has passed already."""
    inbox = make()
    assert inbox.get(0.01) is None
    assert inbox.get(-1.0) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.sampled_from("abcdeXY"), st.none(), st.just(ALL)), max_size=60), st.integers(1, 4))
def test_every_happening_is_followed_by_a_value_that_covers_it(steps: list[str | None], limit: int) -> None:
    """Whatever the order of puts and gets (None), nothing that was put is lost, and kept values come exactly once."""
    inbox = make(limit)
    uncovered: set[str] = set()
    kept: list[str] = []
    for step in [*steps, *[None] * (len(steps) + 1)]:
        if step is not None:
            inbox.put(step)
            (uncovered.add if step.islower() else kept.append)(step)
            continue
        value = inbox.get(0)
        if value == ALL:
            uncovered.clear()
        elif value is not None and value.islower():
            uncovered.discard(value)
        elif value is not None:
            assert value == kept.pop(0)
        assert inbox.waiting <= limit + 1 + len(kept)
    assert not uncovered
    assert not kept


@contextmanager
def _alarm(handler: Callable[[int, FrameType | None], object], interval_seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, interval_seconds, interval_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_handler_may_put_at_any_moment() -> None:
    """A handler that interrupts `put` and `get` at random neither blocks nor loses its value."""
    inbox = make()
    puts = 0

    def on_alarm(_number: int, _frame: object) -> None:
        nonlocal puts
        puts += 1
        inbox.put("STOP")
        inbox.put("file")

    stops = 0
    end = time.monotonic() + DEADLINE_SECONDS
    with _alarm(on_alarm, 0.0005):
        while puts < 300 and time.monotonic() < end:
            inbox.put("file")
            stops += inbox.get(0.001) == "STOP"
    stops += drain(inbox).count("STOP")
    assert puts >= 300
    assert stops == puts


def test_a_signal_wakes_the_waiting_loop() -> None:
    """A loop that waits without a timeout goes on at once when a handler puts something."""
    inbox = make()
    with _alarm(lambda _number, _frame: inbox.put("STOP"), 0.05):
        assert inbox.get(DEADLINE_SECONDS) == "STOP"


def test_another_thread_wakes_the_waiting_loop() -> None:
    """`get` returns what a thread puts while it waits."""
    inbox = make()
    thread = threading.Thread(target=inbox.put, args=("a",))
    thread.start()
    assert inbox.get(DEADLINE_SECONDS) == "a"
    thread.join()


def test_many_threads_lose_nothing() -> None:
    """Every thread's last value is seen after it was put."""
    inbox = make(limit=50)
    seen: dict[str, int] = {}
    latest: dict[str, int] = {}

    def work(name: str) -> None:
        for number in range(2000):
            latest[name] = number
            inbox.put(name)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end and any(seen.get(f"t{number}") != 1999 for number in range(4)):
        value = inbox.get(0.05)
        if value is not None:
            seen[value] = latest[value]
    for thread in threads:
        thread.join()
    assert seen == {f"t{number}": 1999 for number in range(4)}
