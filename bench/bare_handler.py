"""Reference: the plainest program that follows the same files, a watchdog handler that reads what was appended."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer


class Handler(FileSystemEventHandler):
    """Reads each session file on from where it was left."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self.stamps: list[tuple[int, str, int]] = []
        self.lines = 0

    def on_modified(self, event: FileSystemEvent) -> None:
        path = str(event.src_path)
        if event.is_directory or not path.endswith(".jsonl"):
            return
        with open(path, "rb") as file:
            file.seek(self.offsets.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.lines += 1
                self.offsets[path] = self.offsets.get(path, 0) + len(line)
        self.stamps.append((time.monotonic_ns(), path, self.offsets.get(path, 0)))


def main() -> None:
    """Watch `argv[1]`; at SIGTERM write what was seen to `argv[2]`."""
    handler = Handler()
    observer = Observer()
    observer.schedule(handler, sys.argv[1], recursive=True)
    observer.start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    sys.stderr.write("ready\n")
    stop.wait()
    observer.stop()
    observer.join()
    Path(sys.argv[2]).write_text(json.dumps({"stamps": handler.stamps, "ends": handler.offsets}))


if __name__ == "__main__":
    main()
