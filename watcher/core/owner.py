"""Who owns a session: the Qwen Code processes that serve it, or did, as far as anyone outside can tell.

Values only; `edge.liveness` finds them out. Contract 1.3 (runtime sidecar), 1.4 (live registry), 5 (who must be left
alone).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

TUI = "tui"
"""The `kind` of an interactive terminal. Every other kind is a process into whose session nothing may be written."""

SERVE = "serve"
"""The `kind` of an ACP child of Qwen Code's daemon (contract 1.4)."""

HEADLESS = "headless"
"""The `kind` of any other ACP process (contract 1.4)."""

PRINT = "print"
"""Our word for a one-shot `-p` run; such a run never registers (contract 1.4), it is only ever found by its process."""


class Alive(StrEnum):
    """Whether an owner lives."""

    LIVE = "live"
    GONE = "gone"
    UNKNOWN = "unknown"
    """It cannot be judged from here: another machine, container or boot, or an unreadable record. Treated as live."""


class OwnerSource(StrEnum):
    """Where an owner is known from, best evidence first."""

    REGISTRY = "registry"
    SIDECAR = "sidecar"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process that serves a session, or did.

    `started_at` is seconds since the epoch as the record has it, 0.0 where it has none. `start` tells two processes
    with one pid apart; empty where the system does not say. `tty` is the path of the controlling terminal's device and
    `input_at` the time of the last input there (seconds since the epoch, raw: it may lie in the future and moves in
    steps); both None where there is no terminal or it has gone. Of an owner that has gone, `input_at` is what the
    terminal showed at the moment when its end was noticed.

    `disable_switch` is the value that the process's own environment gives `QWEN_DISABLE_AUTO_TITLE`: empty when it is
    set to nothing, None when it is not set, or not known; `environment_read` tells the last two apart.
    """

    pid: int
    kind: str
    session_id: str
    alive: Alive
    source: OwnerSource
    cwd: str = ""
    version: str = ""
    started_at: float = 0.0
    start: str = ""
    tty: str | None = None
    input_at: float | None = None
    disable_switch: str | None = None
    environment_read: bool = False

    @property
    def counts_as_live(self) -> bool:
        """Whether the session must be treated as owned by this process: it lives, or may."""
        return self.alive is not Alive.GONE

    @property
    def identity(self) -> tuple[int, str, float]:
        """The same for the same process, different for another one that was given its pid."""
        return (self.pid, self.start, 0.0 if self.start else self.started_at)


@dataclass(frozen=True, slots=True)
class Ownership:
    """All known owners of one session, newest start first, those that have gone included while they are remembered."""

    owners: tuple[Owner, ...] = ()
    sidecar_seen: bool = False
    """A runtime sidecar stands beside the transcript: an interactive Qwen Code served the session at some time."""

    @property
    def live(self) -> tuple[Owner, ...]:
        """The owners that live or may live."""
        return tuple(owner for owner in self.owners if owner.counts_as_live)

    @property
    def owned(self) -> bool:
        """Whether any process has the session, or may have it."""
        return any(owner.counts_as_live for owner in self.owners)

    @property
    def is_tui(self) -> bool:
        """Whether an interactive terminal has the session."""
        return any(owner.kind == TUI for owner in self.live)

    @property
    def is_daemon(self) -> bool:
        """Whether a live owner is anything but a terminal: ACP, daemon, `-p`, or a kind that we do not know.

        Nothing may be written while it lives: it may hold a writer lease that an append would break (contract 5).
        """
        return any(owner.kind != TUI for owner in self.live)

    @property
    def interactive(self) -> bool:
        """Whether an owner, also one that has gone, or a sidecar shows an interactive session (design 6)."""
        return self.sidecar_seen or any(owner.kind == TUI for owner in self.owners)

    @property
    def ever_known(self) -> bool:
        """Whether anything at all is known about who served the session."""
        return self.sidecar_seen or bool(self.owners)

    @property
    def disable_switch(self) -> str | None:
        """`QWEN_DISABLE_AUTO_TITLE` as an owner's own environment sets it; None when none is known to name it.

        A live owner is asked before one that has gone, a newer one before an older one (design 11).
        """
        ranked = sorted(self.owners, key=lambda owner: not owner.counts_as_live)
        return next((owner.disable_switch for owner in ranked if owner.disable_switch is not None), None)


NOBODY: Final = Ownership()
"""Nothing is known of any owner."""
