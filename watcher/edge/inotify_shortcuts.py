"""What watchdog 7.1's inotify emitter leaves to be wished, and gets from us.

All of it reaches into watchdog's own parts. Where a part is not there (another system, another version) nothing is
changed: all works, only later.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

from watchdog.events import FileSystemEvent


def take_shortcuts(
    emitter: Any,
    dispatch: Callable[[FileSystemEvent], None],
    modified: Callable[[bytes], None],
    dropped: Callable[[], None],
) -> None:
    """Call back from watchdog's first thread that knows; none of the three may raise.

    * An event goes to `dispatch` in the emitter's thread instead of through a queue to a third one.
    * Bytes in a file, by far the most frequent happening, go to `modified` already in the thread that reads from the
      kernel. They so overtake other events, also a file that was moved away, which holds up everything for half a
      second until it is clear where it went. Whoever looks at the files themselves may take them in any order.
    * `dropped` tells that the kernel dropped events, which watchdog only logs. It comes after watchdog has set its
      watches anew, so the log line, which comes before, could not be used for it.
    """
    group: Any = getattr(emitter, "_inotify", None)
    rebuild = getattr(group, "on_queue_overflow", None)
    if rebuild is None:
        return
    emitter.queue_event = _only(emitter.watch.event_filter, dispatch)

    def overflowed() -> None:
        rebuild()
        dropped()

    group.on_queue_overflow = overflowed
    take = getattr(group, "on_event", None)
    directories: Any = getattr(group, "_active_callbacks_by_watch", None)
    if take is None or directories is None:
        return

    def on_event(event: Any) -> None:
        if not event.is_modify or event.is_directory:
            take(event)
        elif (directory := directories.get(event.wd)) is not None:
            modified(directory + b"/" + event.name)

    group.on_event = on_event


def _only(
    wanted: frozenset[type[FileSystemEvent]] | None, dispatch: Callable[[FileSystemEvent], None]
) -> Callable[[FileSystemEvent], None]:
    """What `queue_event` does with an event: only those that were asked for count."""
    kinds = tuple(wanted or (FileSystemEvent,))

    def queue_event(event: FileSystemEvent) -> None:
        if isinstance(event, kinds):
            dispatch(event)

    return queue_event


def quieten_watchdog() -> None:
    """Two things that watchdog 7.1 says although nothing is wrong.

    It warns in its reading thread when directories are made quickly one inside the other: where warnings are errors
    that would end the thread, and with it all events. And when it is stopped it may log an error about an emitter that
    is inactive, which is what was asked for.
    """
    warnings.filterwarnings("ignore", message="Callback with id", category=RuntimeWarning)
    logging.getLogger("watchdog.observers.inotify").addFilter(_is_worth_logging)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return not record.getMessage().endswith("called when the thread is inactive")
