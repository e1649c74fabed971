"""What a change feed says, and what it is told to watch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

POLL_FLOOR_SECONDS: Final = 5.0
POLL_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Touched:
    """Something happened to the file at a transcript's path: it grew, came, went or was moved."""

    path: str


@dataclass(frozen=True, slots=True)
class SidecarTouched:
    """Something happened to a runtime sidecar (contract 1.3)."""

    path: str


@dataclass(frozen=True, slots=True)
class RegistryTouched:
    """Something happened in the live registry: read it anew (contract 1.4)."""


@dataclass(frozen=True, slots=True)
class TreeChanged:
    """A project came, went or was moved: look at its `chats` directory, which may not exist (any more)."""

    directory: str


@dataclass(frozen=True, slots=True)
class RootsChanged:
    """A root came, went or was moved: call `ChangeFeed.verify`."""


@dataclass(frozen=True, slots=True)
class RescanAll:
    """Events were lost, or are too many: look at everything. All of them are equal."""

    reason: str = field(compare=False)


Change = Touched | SidecarTouched | RegistryTouched | TreeChanged | RootsChanged | RescanAll


class RootKind(StrEnum):
    """What lies below a root."""

    PROJECTS = "projects"
    """`<runtime base>/projects` (contract 1.2)."""
    REGISTRY = "registry"
    """`<config dir>/sessions` (contract 1.4)."""


@dataclass(frozen=True, slots=True)
class Root:
    """An absolute path to watch. It may be a symbolic link, and need not exist yet; values carry it as given."""

    path: str
    kind: RootKind


class Backend(StrEnum):
    """The configuration's choice (design 5)."""

    AUTO = "auto"
    NATIVE = "native"
    POLLING = "polling"


class Mode(StrEnum):
    """How a root is followed now."""

    NATIVE = "native"
    POLLING = "polling"
    """No events come: reconcile every `poll_seconds`."""
    MISSING = "missing"
    """It does not exist; its nearest existing parent is watched."""


@dataclass(frozen=True, slots=True)
class RootState:
    """How one root is followed, and why it is polled ("" otherwise)."""

    root: Root
    mode: Mode
    reason: str = ""


def poll_seconds(cost_seconds: float, floor_seconds: float = POLL_FLOOR_SECONDS) -> float:
    """How long to wait between two polls that take `cost_seconds` each, for 1 % of a core at most (report F10)."""
    return max(floor_seconds, cost_seconds / POLL_SHARE)
