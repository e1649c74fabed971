"""What the service tells: its log, the service manager, other processes through the heartbeat, and the user's hooks."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Final

from watcher import __version__
from watcher.core.generation import Kind
from watcher.desk import Note
from watcher.edge.hooks import Hooks
from watcher.edge.store import Heartbeat
from watcher.errors import StateError
from watcher.log import WATCHER, LogEvent, LogKey, choose_form, configure_logging, get_logger, log_to, rotate_log
from watcher.paths import log_path
from watcher.plan import plan_lines
from watcher.sdnotify import NOTIFY_VARIABLES, Notifier
from watcher.shapes import entry_as_dict
from watcher.workplace import Workplace, local_day

MAX_LOG_BYTES: Final = 5 * 1024 * 1024
"""Under launchd the log is rotated at this size; one older file is kept."""
STDERR: Final = 2
LAST_LINES_SECONDS: Final = 0.5
"""So long the end waits for whoever reads the log and is slow; a stop takes at most 2 s (design 4)."""


class Reporter:
    """Tells others what this process does. `close` ends hooks; `last_lines` is for the very end."""

    def __init__(self, place: Workplace, *, dry_run: bool) -> None:
        self._place = place
        self._dry_run = dry_run
        self._started_at = time.time()
        self._lines = log_to(sys.stderr)
        self._log = get_logger(WATCHER)
        self.notifier = Notifier(place.environ)
        environ = {name: value for name, value in place.environ.items() if name not in NOTIFY_VARIABLES}
        self._hooks = Hooks(self._hook_failed, environ)

    def close(self) -> None:
        """End what hooks run."""
        self._hooks.close()

    def last_lines(self) -> None:
        """Wait for a slow reader of the log, for a moment."""
        self._lines.drain(LAST_LINES_SECONDS)

    def announce(self) -> None:
        """Say what this configuration will and will not do."""
        for line in plan_lines(self._place.loaded, self._place.general_settings, self._place.environ):
            self._log.info(line)
        if self._dry_run:
            self._log.info("dry run: nothing is asked of a model and nothing is written")

    def on_written(self, note: Note) -> None:
        """A title or recap was written."""
        self.notifier.status(self.status_line())
        hooks = self._place.config.hooks
        argv = hooks.on_title if note.kind is Kind.TITLE else hooks.on_recap
        if not argv:
            return
        for entry in self._place.store.entries(session_id=note.ref.session_id, limit=4):
            if entry.record_uuid == note.record_uuid:
                line = json.dumps(entry_as_dict(entry), ensure_ascii=False) + "\n"
                self._hooks.start(f"on_{note.kind}", argv, line.encode("utf-8", "backslashreplace"))

    def _hook_failed(self, name: str, detail: str) -> None:
        self._log.warning(LogEvent.HOOK_FAILED, hook=name, **{LogKey.DETAIL: detail})

    def status_line(self) -> str:
        """One line for `systemctl status`."""
        try:
            calls = self._place.store.calls_on(local_day(self._place.clock()))
            return f"{self._place.store.count_index()} sessions; {calls} model calls today"
        except StateError as error:
            return str(error)

    def beat(self, tracked: int) -> None:
        """Leave what other processes ask for. Raises `StateError`."""
        store = self._place.store
        # `statusline` has no time to read configuration and settings, and finds here where sessions are.
        data = {
            "sessions_watched": store.count_index(),
            "tracked": tracked,
            "roots": [[str(root.config_dir), str(root.runtime_base)] for root in self._place.roots],
            "away_seconds": self._place.surveyor.recap_rules(self._place.general_settings).away_seconds,
        }
        beat = Heartbeat(os.getpid(), self._started_at, self._started_at, __version__, data)
        if store.heartbeat() != beat:
            store.put_heartbeat(beat)

    def configure_log(self) -> None:
        """Log as the configuration in force says."""
        config = self._place.config.log
        form = choose_form(config.format, sys.stderr, self._place.environ)
        configure_logging(config.level, form, self._lines)

    def rotate_log(self) -> None:
        """Under launchd, which never does; anywhere else stderr is another file."""
        rotate_log(log_path(self._place.environ), STDERR, max_bytes=MAX_LOG_BYTES)
