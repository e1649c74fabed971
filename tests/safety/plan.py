"""What is explored, and what was seen of it, as values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.safety.operations import Alphabet
from tests.safety.watching import Build
from tests.safety.world import World


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration: who takes part, what each can do, and how often."""

    name: str
    begin: World
    alphabet: Alphabet
    ours: frozenset[str]
    native_operations: int
    our_operations: int
    kills: int = 0
    watchers: int = 1
    build: Build = field(default_factory=Build)


@dataclass(slots=True)
class Summary:
    """What an exploration has seen."""

    interleavings: int = 0
    states: int = 0
    contents: int = 0
    lines: int = 0
    rests: int = 0
    seconds: float = 0.0
    rows: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)

    def add(self, other: Summary) -> None:
        """Take in another one."""
        for name in ("interleavings", "states", "contents", "lines", "rests", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("rows", "excluded", "operations"):
            getattr(self, name).update(getattr(other, name))


@dataclass(slots=True)
class Node:
    """Our side is at rest, with so much left to do; `path` is the history that led here, in words."""

    world: World
    natives: int
    ours: int
    path: tuple[str, ...]


class Visited:
    """States that were met, each with how much was left to do then: with less left, nothing new can follow."""

    def __init__(self, natives: int, ours: int) -> None:
        self._width = ours + 1
        self._met: dict[int, int] = {}
        self._covering = {
            (some, few): sum(
                1 << (more * self._width + most) for more in range(some, natives + 1) for most in range(few, ours + 1)
            )
            for some in range(natives + 1)
            for few in range(ours + 1)
        }

    def __len__(self) -> int:
        return len(self._met)

    def knows(self, key: int, natives: int, ours: int) -> bool:
        """Whether this state was met before with at least as much left."""
        return bool(self._met.get(key, 0) & self._covering[natives, ours])

    def is_new(self, key: int, natives: int, ours: int) -> bool:
        """Whether this state was not met before with at least as much left; it is noted."""
        met = self._met.get(key, 0)
        if met & self._covering[natives, ours]:
            return False
        self._met[key] = met | 1 << (natives * self._width + ours)
        return True
