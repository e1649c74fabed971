"""Reference: the plainest look at every session file, timed inside the process. `argv`: `read` or `stat`, the root."""

from __future__ import annotations

import json
import os
import sys
import time

WINDOW = 4096
"""So much of head and tail: less than any title could be found in, so that the reference is a cheap one."""


def main() -> None:
    """Print how long it took, as `[wall, cpu]` in seconds, and how many files there were."""
    wall, cpu = time.perf_counter(), time.thread_time()
    files = scan(sys.argv[2], read=sys.argv[1] == "read")
    print(json.dumps([time.perf_counter() - wall, time.thread_time() - cpu, files]))


def scan(root: str, *, read: bool) -> int:
    """Stat every session file, and with `read` read its tail and its head."""
    files = 0
    for project in os.scandir(root):
        for entry in os.scandir(f"{project.path}/chats"):
            if not entry.name.endswith(".jsonl"):
                continue
            size = entry.stat(follow_symlinks=False).st_size
            files += 1
            if read:
                fd = os.open(entry.path, os.O_RDONLY)
                os.pread(fd, WINDOW, max(0, size - WINDOW))
                os.pread(fd, WINDOW, 0)
                os.close(fd)
    return files


if __name__ == "__main__":
    main()
