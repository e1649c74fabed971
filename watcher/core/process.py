"""What can be asked about the processes of this machine, and the values of the answers; `edge.processes` answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from watcher.core.owner import Alive


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What the system says about one pid now.

    `start` is a token that two processes with one pid never share, empty where it cannot be read; on Linux it is spelt
    as Qwen Code's registry spells it, `<boot id>:<ticks>` (contract 1.4). `started_at` is seconds since the epoch by
    today's wall clock, None where it cannot be read.
    """

    alive: Alive
    start: str = ""
    started_at: float | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """What tells this machine, boot and pid namespace from others; empty or None where the system does not say.

    `booted_at` is seconds since the epoch by today's wall clock.
    """

    name: str
    boot_id: str = ""
    pid_namespace: int | None = None
    booted_at: float | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentValue:
    """One variable of a process: `value` is None when it is not set, or not `readable`."""

    readable: bool
    value: str | None = None


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """A process that a search turned up. `opened` tells whether it holds a file open, by path."""

    pid: int
    parent: int
    argv: tuple[str, ...]
    cwd: str
    opened: Callable[[str], bool]


class ProcessTable(Protocol):
    """What can be asked about processes."""

    def boot_id(self) -> str:
        """The id of this boot, empty where the system has none."""

    def pid_namespace(self) -> int | None:
        """The inode of our own pid namespace, None where the system has none."""

    def booted_at(self) -> float | None:
        """When the system was started, in seconds since the epoch by the present wall clock."""

    def state(self, pid: int) -> ProcessState:
        """Whether the process lives; one that is not ours does, a zombie does not."""

    def environment_value(self, pid: int, name: str) -> EnvironmentValue:
        """One variable of the environment that the process was started with. Nothing else of it is kept."""

    def terminal(self, pid: int) -> str | None:
        """A path at which the device of the controlling terminal can be looked at, None without one."""

    def input_time(self, terminal: str) -> float | None:
        """When something was last typed at, or reported by, the terminal: seconds since the epoch.

        It is the device's access time, which Linux moves in steps of 8 s only. None when the device has gone or the
        path is no device.
        """

    def command_line(self, pid: int) -> tuple[str, ...]:
        """Program and arguments, empty when they cannot be read."""

    def search(self, wanted: Callable[[Sequence[str]], bool]) -> Iterator[FoundProcess]:
        """Our user's processes with a wanted command line. Costs 5-8 ms: not for a regular check."""
