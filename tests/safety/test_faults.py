"""Faults on the real write path, and what the next start makes of them."""

from __future__ import annotations

import os

import pytest

from tests.safety import faults
from tests.safety.scene import Tally


def nothing_wrong(tally: Tally) -> None:
    """Faults were injected and did no harm; what could not be tried is said loudly."""
    for skipped in tally.skipped:
        pytest.skip(skipped)
    assert tally.faults
    assert tally.violations == []


@pytest.mark.parametrize("kind", ["title", "recap", "title behind a torn line", "title beside a racing turn"])
def test_killed_at_any_call(kind: str) -> None:
    """A real SIGKILL before and after each call: the file is whole, and the next start finishes the write."""
    nothing_wrong(faults.kills(kind))


def test_killed_again_while_finishing() -> None:
    """A second SIGKILL at each call of the start that repairs: the third one does it."""
    nothing_wrong(faults.kills_in_recovery())


@pytest.mark.parametrize("kind", ["title", "title beside a racing name"])
def test_a_disk_that_fails_at_any_call(kind: str) -> None:
    """EIO, ENOSPC, EDQUOT and EROFS from each call: nothing is lost, nothing is half written."""
    nothing_wrong(faults.errors(kind))


def test_a_write_that_is_cut_short() -> None:
    """However much the system takes: the cut line is ended, at once or by the next start, never continued."""
    nothing_wrong(faults.short_writes())


def test_a_size_limit() -> None:
    """A real RLIMIT_FSIZE: seen before the write; and a real short write where that look is fooled."""
    nothing_wrong(faults.size_limits())


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TRIED: only root may mount a small tmpfs for a full disk")
def test_a_full_disk() -> None:
    """A real file system without a free page, with what is left of the last one from nothing to plenty."""
    nothing_wrong(faults.full_disk())


def test_a_file_that_is_moved_or_linked_at_any_call() -> None:
    """Archived, deleted, replaced, made a link, given a second name: left alone, and nothing else is written."""
    nothing_wrong(faults.places())


def test_a_file_that_is_cut_off_at_any_call() -> None:
    """What somebody left of the file keeps all its turns."""
    nothing_wrong(faults.truncations())


def test_a_lease_that_is_taken_at_any_call() -> None:
    """A lock or a claim between any two calls: nothing is appended from then on."""
    nothing_wrong(faults.leases())
