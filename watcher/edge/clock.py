"""All clocks of the machine, read together."""

from __future__ import annotations

import time

from watcher.core.presence import Moment

# While the machine is suspended, Linux lets BOOTTIME go on and MONOTONIC stand still; on macOS MONOTONIC goes on and
# UPTIME_RAW stands still.
_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_AWAKE: int = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)


def read_clocks() -> Moment:
    """Now, on every clock."""
    return Moment(time.time(), time.clock_gettime(_STEADY), time.clock_gettime(_AWAKE))
