"""One model call at a time for one text, in all threads and processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.live import eventually
from watcher.edge.call_locks import CallLocks
from watcher.edge.text_model import Abort

HOLDER = """
import sys, pathlib
from watcher.edge.call_locks import CallLocks
from watcher.edge.text_model import Abort
with CallLocks(pathlib.Path(sys.argv[1])).hold("S1", "recap", Abort(), 10) as waited:
    print(waited, flush=True)
    sys.stdin.readline()
"""


def test_threads_take_turns(tmp_path: Path) -> None:
    """Never two at once; no file is left."""
    locks = CallLocks(tmp_path)
    inside, most = 0, 0
    waits: list[bool | None] = []
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with locks.hold("s1", "recap", Abort(), 20) as waited:
            with guard:
                inside += 1
                most = max(most, inside)
                waits.append(waited)
            time.sleep(0.01)
            with guard:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert len(waits) == 8
    assert None not in waits
    assert list((tmp_path / "calls").iterdir()) == []


def test_other_texts_do_not_wait(tmp_path: Path) -> None:
    """Another session, or the title of the same one; the case of an id does not matter."""
    locks = CallLocks(tmp_path)
    with (
        locks.hold("S1", "recap", Abort(), 1) as first,
        locks.hold("s2", "recap", Abort(), 1) as second,
        locks.hold("s1", "title", Abort(), 1) as third,
        locks.hold("s1", "recap", Abort(), 0) as fourth,
    ):
        assert (first, second, third, fourth) == (False, False, False, None)


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    """And one that is killed lets go at once, whatever it leaves."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    locks = CallLocks(tmp_path)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "False\n"
        with locks.hold("s1", "recap", Abort(), 0.1) as waited:
            assert waited is None
        holder.kill()
    with locks.hold("s1", "recap", Abort(), 10) as waited:
        assert waited is not None


def test_who_loses_patience_or_is_stopped_gets_nothing(tmp_path: Path) -> None:
    """The holder is not disturbed."""
    locks = CallLocks(tmp_path)
    abort = Abort()
    seen: list[bool | None] = []

    def wait() -> None:
        with locks.hold("s1", "recap", abort, 60) as waited:
            seen.append(waited)

    with locks.hold("s1", "recap", Abort(), 0):
        with locks.hold("s1", "recap", Abort(), 0.05) as waited:
            assert waited is None
        thread = threading.Thread(target=wait)
        thread.start()
        abort.set()
        thread.join(10)
        assert seen == [None]
    with locks.hold("s1", "recap", Abort(), 0) as waited:
        assert waited is False


def test_a_failure_inside_lets_go(tmp_path: Path) -> None:
    """The next one does not wait."""
    locks = CallLocks(tmp_path)
    with pytest.raises(ZeroDivisionError), locks.hold("s1", "title", Abort(), 0):
        raise ZeroDivisionError
    with locks.hold("s1", "title", Abort(), 0) as waited:
        assert waited is False


def test_many_processes_never_share(tmp_path: Path) -> None:
    """The name is removed and made anew all the time, and still means one lock."""
    code = (
        "import sys, os, pathlib\n"
        "from watcher.edge.call_locks import CallLocks\n"
        "from watcher.edge.text_model import Abort\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "for _ in range(40):\n"
        "    with CallLocks(folder).hold('s1', 'recap', Abort(), 60) as waited:\n"
        "        assert waited is not None\n"
        "        os.close(os.open(folder / 'inside', os.O_CREAT | os.O_EXCL))\n"
        "        os.unlink(folder / 'inside')\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [process.wait(100) for process in processes] == [0, 0, 0]
    eventually(lambda: list((tmp_path / "calls").iterdir()) == [])
