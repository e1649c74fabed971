"""News of growth goes to whoever may work on the sessions: the loop, or while it sleeps the one that brings it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from watcher.edge.change_values import RegistryTouched, Touched
from watcher.handover import Handover
from watcher.happenings import Errand, Item

PATH = "/home/user/.qwen/projects/-p/chats/0b8f4c1e-7a52-4f0e-9d53-5c1f0f7a9e01.jsonl"
LONG = 60.0


class Loop:
    """A loop that sleeps once, in a thread of its own, and tells what woke it."""

    def __init__(self, read_on: Callable[[str], float | None]) -> None:
        self.woken: list[Item | None] = []
        self.read: list[tuple[str, int]] = []
        self._read_on = read_on
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.handover = Handover(self._noted)
        self._ready.set()
        self.woken.append(self.handover.get(LONG))

    def _noted(self, path: str) -> float | None:
        self.read.append((path, threading.get_ident()))
        return self._read_on(path)

    @contextmanager
    def asleep(self) -> Iterator[Handover]:
        """Within it the loop sleeps; behind it it has woken."""
        self._thread.start()
        self._ready.wait(LONG)
        while self.handover._at_work.locked():
            assert self._thread.is_alive()
        yield self.handover
        self._thread.join(LONG)
        assert not self._thread.is_alive()


def test_growth_is_read_where_it_is_told_while_the_loop_sleeps() -> None:
    """The loop is not woken for it, as long as it would wake in time by itself."""
    loop = Loop(lambda _path: 2 * LONG)
    with loop.asleep() as handover:
        handover.put(Touched(PATH))
        assert loop.read == [(PATH, threading.get_ident())]
        assert not loop.woken
        handover.put(RegistryTouched())
    assert loop.woken == [RegistryTouched()]


def test_the_loop_is_woken_where_something_is_due_sooner() -> None:
    """It would sleep too long otherwise."""
    loop = Loop(lambda _path: LONG / 2)
    with loop.asleep() as handover:
        handover.put(Touched(PATH))
    [woken] = loop.woken
    assert isinstance(woken, Errand)
    woken.run()


def test_a_loop_that_is_slow_to_wake_is_woken_once() -> None:
    """Nothing piles up meanwhile: it would have to be worked through."""
    handover = Handover(lambda _path: LONG / 2)
    handover._sleeps_until = time.monotonic() + LONG
    handover._at_work.release()  # as in `get`, from which it has not returned yet
    for _ in range(5):
        handover.put(Touched(PATH))
    assert handover.waiting == 1


def test_what_is_more_than_growth_is_for_the_loop() -> None:
    """A new session, or one that is gone."""
    loop = Loop(lambda _path: None)
    with loop.asleep() as handover:
        handover.put(Touched(PATH))
    assert loop.woken == [Touched(PATH)]


def test_a_fault_is_told_by_the_loop() -> None:
    """Whoever brings news has nobody to tell it to, and must go on."""

    def fail(_path: str) -> float | None:
        raise ZeroDivisionError

    loop = Loop(fail)
    with loop.asleep() as handover:
        handover.put(Touched(PATH))
    [woken] = loop.woken
    assert isinstance(woken, Errand)
    with pytest.raises(ZeroDivisionError):
        woken.run()


def test_while_the_loop_works_nobody_else_does() -> None:
    """Whatever comes then waits for it."""
    read: list[str] = []

    def read_on(path: str) -> float | None:
        read.append(path)
        return LONG

    handover = Handover(read_on)
    thread = threading.Thread(target=lambda: handover.put(Touched(PATH)))
    thread.start()
    thread.join(LONG)
    assert not read
    assert handover.waiting == 1
    assert handover.get(LONG) == Touched(PATH)
    handover.put(Touched(PATH))
    assert not read
