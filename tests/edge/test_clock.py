"""The clocks of this machine."""

from __future__ import annotations

import time

from watcher.edge.clock import read_clocks


def test_the_clocks_are_read_together_and_run() -> None:
    """Wall time is the system's; the other two never go back, and the one that stands still never runs ahead."""
    first, second = read_clocks(), read_clocks()
    assert abs(first.wall - time.time()) < 60.0
    assert second.steady >= first.steady
    assert second.awake >= first.awake
    assert (second.awake - first.awake) - (second.steady - first.steady) < 1.0
