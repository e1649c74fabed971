"""A small service that speaks sd_notify as the watcher does, for a real service manager: `notify_service.py DIRECTORY`.

Files in DIRECTORY steer it: `hold` delays READY while it exists; `exit` holds the status to end with at once; `owner`
the id of a process whose environment, working directory and terminal it reads. It leaves `starts` (a line each start)
and `seen.json`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from watcher.sdnotify import Notifier, watchdog_interval  # the copy beside this file comes first


def look(directory: Path) -> dict[str, object]:
    """What the watcher needs to see from inside its unit."""
    seen: dict[str, object] = {"uid": os.getuid(), "QWEN_HOME": os.environ.get("QWEN_HOME")}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("CapEff", "NoNewPrivs", "Seccomp", "Umask"):
            seen[name] = value.strip()
    if not (directory / "owner").exists():
        return seen
    process = Path("/proc") / (directory / "owner").read_text().strip()
    try:
        seen["environ"] = (process / "environ").read_bytes().decode().split("\0")
        seen["cwd"] = str((process / "cwd").readlink())
        terminal = str((process / "fd" / "0").readlink())
        seen["terminal"] = terminal
        seen["input_at"] = Path(terminal).stat().st_atime
    except OSError as error:
        seen["error"] = str(error)
    return seen


def main(directory: Path) -> int:
    """Run until SIGTERM."""
    with (directory / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if (directory / "exit").exists():
        return int((directory / "exit").read_text())
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    signal.signal(signal.SIGHUP, lambda number, _frame: signals.append(number))
    while (directory / "hold").exists() and not signals:
        time.sleep(0.02)
    temporary = directory / "seen.new"
    temporary.write_text(json.dumps(look(directory)))
    temporary.replace(directory / "seen.json")
    notifier = Notifier(os.environ)
    interval = watchdog_interval(os.environ)
    notifier.ready("ready")
    reloads = 0
    due = time.monotonic()
    while True:
        if interval is not None and time.monotonic() >= due:
            notifier.watchdog()
            due = time.monotonic() + interval
        number = signals.pop(0) if signals else 0
        if number == signal.SIGTERM:
            notifier.stopping("bye")
            return 0
        if number == signal.SIGHUP:
            reloads += 1
            notifier.reloading()
            notifier.ready(f"reloaded {reloads}")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
