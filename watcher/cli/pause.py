"""`pause` and `resume`: all automatic writing, stopped and started again, also across restarts of the watcher."""

from __future__ import annotations

import contextlib
import os
import signal

from watcher.cli.output import clock_time, note, say
from watcher.cli.tail import span_seconds
from watcher.errors import UsageError
from watcher.instance import running_pid
from watcher.workplace import Workplace


def pause_writing(span: str | None) -> int:
    """Stop automatic writing, for a span or until `resume`."""
    seconds = span_seconds(span) if span is not None else None
    if seconds is not None and seconds <= 0:
        raise UsageError(f"--for {span}: a pause takes some time; write it like 30m, 2h or 7d")
    with Workplace(os.environ) as place:
        until = place.clock() + seconds if seconds is not None else None
        was_paused = place.store.paused(place.clock()) is not None
        place.store.pause(until)
        if was_paused:
            _wake_watcher(place)  # it waits for the end of the pause before this one, which may be later
        end = "until `qwen-watcher resume`" if until is None else f"until {clock_time(until)}"
        say(f"paused {end}; commands that you give yourself still write")
    return 0


def resume_writing() -> int:
    """End a pause; the running watcher goes on at once."""
    with Workplace(os.environ) as place:
        was_paused = place.store.paused(place.clock()) is not None
        place.store.resume()
        stopped = place.store.stopped_all()
        if was_paused:
            _wake_watcher(place)  # what waited for the end of the pause raises no event by itself
    say("resumed" if was_paused else "there was no pause")
    if stopped:
        note(f"writing is still stopped by the brake ({stopped}); run `qwen-watcher doctor`")
    return 0


def _wake_watcher(place: Workplace) -> None:
    """Have the running watcher look at its sessions again, where there is one."""
    pid = running_pid(place.state_directory)
    if pid:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGHUP)
