"""`run`: the service in the foreground."""

from __future__ import annotations

import os
from pathlib import Path

from watcher.absence import absent


def run_watcher(*, config: Path | None, dry_run: bool, log_format: str | None, log_level: str | None) -> int:
    """Watch until a signal. Returns the exit code; raises `WatcherError` when it cannot start."""
    with absent("typing_extensions"):  # half a megabyte, of which msgspec asks only for what `typing` has as well
        import msgspec  # noqa: F401, PLC0415
    from watcher.daemon import Daemon  # noqa: PLC0415

    flags = {key: value for key, value in (("log.format", log_format), ("log.level", log_level)) if value is not None}
    return Daemon(os.environ, config_file=config, flags=flags, dry_run=dry_run).run()
