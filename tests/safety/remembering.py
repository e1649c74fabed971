"""Pure functions of the product, remembered: the same bytes are read again and again by an exploration."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Generic, TypeVar
from unittest.mock import patch

from tests.safety import reader
from watcher.core import policy, writing
from watcher.core.events import Event
from watcher.core.session import SessionState, fold_all
from watcher.edge import verifier, writer
from watcher.qwen import reading, records, titles, versions
from watcher.qwen.reading import ReadAt, Reading, read_state

ENTRIES = 50_000
T = TypeVar("T")


@contextmanager
def remembered() -> Iterator[None]:
    """Within it, what is read from the same bytes is computed once."""
    kept = lru_cache(maxsize=ENTRIES)
    with ExitStack() as stack:
        for owner, name, pure in (
            (reading, "decode", records.decode),
            (verifier, "events_of", reading.events_of),
            (writer, "read_title", titles.read_title),
            (verifier, "torn_titles", titles.torn_titles),
            (versions, "parse_version", versions.parse_version),
        ):
            stack.enter_context(patch.object(owner, name, kept(pure)))
        stack.enter_context(patch.object(writer, "read_state", _remembered_read_state()))
        stack.enter_context(patch.object(writing, "fold_all", _remembered_fold()))
        yield


class _Same(Generic[T]):
    """A value as a key: the one object, which the key keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def _remembered_fold() -> Callable[[SessionState, Iterable[Event]], SessionState]:
    @lru_cache(maxsize=ENTRIES)
    def of(state: _Same[SessionState], events: tuple[_Same[Event], ...]) -> SessionState:
        return fold_all(state.value, (event.value for event in events))

    def fold(state: SessionState, events: Iterable[Event]) -> SessionState:
        return of(_Same(state), tuple(map(_Same, events)))

    return fold


def _remembered_read_state():  # type: ignore[no-untyped-def]
    @lru_cache(maxsize=ENTRIES)
    def of(content: bytes, dev: int, ino: int, window: int, known: _Same[Reading | None]) -> Reading:
        return read_state(
            lambda length, offset: content[offset : offset + length],
            dev=dev,
            ino=ino,
            size=len(content),
            window=window,
            known=known.value,
        )

    def read(read_at: ReadAt, *, dev: int, ino: int, size: int, window: int, known: Reading | None = None) -> Reading:
        return of(read_at(size, 0), dev, ino, window, _Same(known))

    return read


@contextmanager
def one_try_for_the_lock() -> Iterator[None]:
    """Who finds the lock taken tries again for two seconds: in vain, as long as the other waits for its own next call.
    (The one that gets it in time does so when the other has ended, which is explored from the other's side.)
    """
    with patch.object(writer, "LOCK_TRIES", 1):
        yield


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Millions of values that live long: only the youngest are looked through for garbage, few at a time, so that they
    are still in the processor's cache.
    """
    before = gc.get_threshold()
    gc.set_threshold(1_000, 5_000, 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def small_windows(size: int) -> Iterator[None]:
    """Windows of this size at both ends of a file, for the product as for Qwen Code (contract 3.1)."""
    if size >= reader.WINDOW_BYTES:
        yield
        return
    with patch.object(policy, "WINDOW_BYTES", size), patch.object(titles, "WINDOW_BYTES", size):
        yield
