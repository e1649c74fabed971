"""What the service's loop takes out of its inbox, whoever put it there."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from watcher.calls import Answered
from watcher.edge.change_values import (
    RegistryTouched,
    RescanAll,
    RootsChanged,
    SidecarTouched,
    Touched,
    TreeChanged,
)
from watcher.edge.exits import OwnerGone
from watcher.edge.inbox import Inbox


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM or SIGINT."""


@dataclass(frozen=True, slots=True)
class Reload:
    """SIGHUP."""


@dataclass(frozen=True, slots=True)
class Errand:
    """Something that the local API wants done by the thread that owns everything. Raises nothing, takes no time."""

    run: Callable[[], None]


Item = (
    Touched
    | SidecarTouched
    | RegistryTouched
    | TreeChanged
    | RootsChanged
    | RescanAll
    | OwnerGone
    | Answered
    | Errand
    | Stop
    | Reload
)
SIGNALS: Final[Mapping[signal.Signals, Item]] = {
    signal.SIGTERM: Stop(),
    signal.SIGINT: Stop(),
    signal.SIGHUP: Reload(),
}
_COALESCED: Final = (Touched, SidecarTouched, RegistryTouched, TreeChanged, RootsChanged, RescanAll)


def new_inbox() -> Inbox[Item]:
    """An inbox in which equal changes wait once, and too many of them mean a look at everything."""
    return Inbox(RescanAll("too many changes at once"), lambda item: isinstance(item, _COALESCED))
