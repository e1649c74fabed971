"""A tiny endurance run: what `make soak` does for months, for some seconds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.soak import Soak


@pytest.mark.skipif(sys.platform != "linux", reason="it is measured through /proc")
@pytest.mark.slow
def test_sessions_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    """Created, grown, renamed, archived and deleted, with a model that fails and reloads in between: all that was open
    for them is closed again, and nothing of what is gone is remembered. Memory is a matter for the long run.
    """
    samples = list(Soak(tmp_path, records=900, sessions=60, samples=3, interactive=0.2, quiet_seconds=1.0).run())
    assert [sample.records >= 300 * number for number, sample in enumerate(samples, 1)] == [True] * 3
    assert samples[-1].sessions == 60
    assert sum(sample.titles for sample in samples) > 0
    assert len({sample.descriptors for sample in samples}) == 1
    assert samples[-1].threads <= samples[0].threads + 2  # the workers of the model calls, started when needed
