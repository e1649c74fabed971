"""Learning of the end of real processes."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.live import NO_PID, end, eventually, running
from watcher.core.owner import Alive
from watcher.edge.exits import ExitWatch, OwnerGone
from watcher.edge.processes import process_table


def always() -> bool:
    """The pid still belongs to the process that is meant."""
    return True


def lives(pid: int) -> Callable[[], bool]:
    """Whether the pid's process lives, for the mode without descriptors."""
    return lambda: process_table().state(pid).alive is Alive.LIVE


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no pid descriptors here")
def test_the_end_of_a_process_is_told_once() -> None:
    """One that ends is told, the others stay watched; watching twice changes nothing."""
    gone: queue.Queue[OwnerGone] = queue.Queue()
    with running() as one, running() as other, ExitWatch(gone.put) as watch:
        for _ in range(2):
            watch.watch(one.pid, always)
            watch.watch(other.pid, always)
        end(one)
        assert gone.get(timeout=10) == OwnerGone(one.pid)
        eventually(lambda: watch.watched() == {other.pid})
        assert gone.empty()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no pid descriptors here")
def test_a_process_that_became_a_zombie_is_told() -> None:
    """Nobody needs to have waited for it."""
    gone: queue.Queue[OwnerGone] = queue.Queue()
    with running() as process, ExitWatch(gone.put) as watch:
        watch.watch(process.pid, always)
        process.kill()
        assert gone.get(timeout=10) == OwnerGone(process.pid)
        assert Path(f"/proc/{process.pid}").exists()


@pytest.mark.parametrize("pid_descriptors", [True, False])
def test_a_process_that_is_not_there_is_told_at_once(pid_descriptors: bool) -> None:
    """It ended between the look and the watch."""
    if pid_descriptors and not hasattr(os, "pidfd_open"):
        pytest.skip("no pid descriptors here")
    gone: queue.Queue[OwnerGone] = queue.Queue()
    with ExitWatch(gone.put, pid_descriptors=pid_descriptors) as watch:
        watch.watch(NO_PID, lives(NO_PID))
        assert gone.get(timeout=10) == OwnerGone(NO_PID)


def test_a_pid_that_was_given_to_another_process_is_told() -> None:
    """The process that was meant is gone, whoever has its number now."""
    gone: queue.Queue[OwnerGone] = queue.Queue()
    with running() as process, ExitWatch(gone.put) as watch:
        watch.watch(process.pid, lambda: False)
        assert gone.get(timeout=10) == OwnerGone(process.pid)


def test_without_pid_descriptors_it_looks_from_time_to_time() -> None:
    """The fallback finds the end by itself."""
    gone: queue.Queue[OwnerGone] = queue.Queue()
    with running() as process, ExitWatch(gone.put, pid_descriptors=False, poll_seconds=0.02) as watch:
        watch.watch(process.pid, lives(process.pid))
        eventually(lambda: watch.watched() == {process.pid})
        end(process)
        assert gone.get(timeout=10) == OwnerGone(process.pid)
        assert watch.watched() == frozenset()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_a_hundred_ends_leave_neither_thread_nor_descriptor_behind() -> None:
    """Threads are constant while it runs; everything is given back."""
    gone: queue.Queue[OwnerGone] = queue.Queue()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    with running() as one, running() as other:
        watch = ExitWatch(gone.put)
        assert threading.active_count() == threads + 1
        for _ in range(100):
            watch.watch(other.pid, lambda: False)
            assert gone.get(timeout=10) == OwnerGone(other.pid)
        watch.watch(one.pid, always)
        eventually(lambda: watch.watched() == {one.pid})
        assert threading.active_count() == threads + 1
        watch.close()
        watch.close()
        watch.watch(other.pid, always)
    assert gone.empty()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts wake-ups in /proc")
def test_it_sleeps_while_nothing_ends() -> None:
    """A watched process that lives costs no wake-up of the thread."""
    gone: queue.Queue[OwnerGone] = queue.Queue()
    before = {thread.native_id for thread in threading.enumerate()}
    with running() as process, ExitWatch(gone.put) as watch:
        ident = next(t.native_id for t in threading.enumerate() if t.native_id not in before)
        watch.watch(process.pid, always)

        def switches() -> int:
            lines = Path(f"/proc/self/task/{ident}/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

        def asleep() -> bool:
            return Path(f"/proc/self/task/{ident}/stat").read_text().rpartition(")")[2].split()[0] == "S"

        seen: list[int] = []

        def settled() -> bool:
            seen.append(switches())
            return asleep() and len(seen) > 20 and len(set(seen[-20:])) == 1

        eventually(settled)
        assert gone.empty()
