"""The allocator is asked to keep little and to give back; where it cannot be asked, nothing happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from watcher.edge import memory

_PROGRAM = """
import sys
from watcher.edge.memory import give_back_memory, keep_memory_small

def resident():
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * 4096

keep_memory_small()
before = resident()
for number in range(30):  # each a little larger than all before: what is freed is no use to the next
    block = b'x' * ((number + 1) << 20)
    kept = [bytes(100_000) for _ in range(20)]
    del block
del kept
give_back_memory()
sys.exit(resident() > before + (8 << 20))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc and /proc")
def test_large_blocks_go_back_to_the_system() -> None:
    """After work that took 30 MiB at once the process is hardly larger than before."""
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60, cwd=Path(__file__).parents[2])


def test_another_system_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such call on macOS: nothing is looked up, nothing fails."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("ctypes.CDLL", None)
    memory.keep_memory_small()
    memory.give_back_memory()
