"""`run`: its plain command lines are read without the command-line framework, whose 8 MiB would stay for months."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from watcher.absence import absent
from watcher.cli.ending import exit_code_of

_DRY_RUN: Final = "--dry-run"
_CONFIG: Final = "--config"
_WITH_VALUE: Final = (_CONFIG, "--log-format", "--log-level")


def run_watcher(*, config: Path | None, dry_run: bool, log_format: str | None, log_level: str | None) -> int:
    """Watch until a signal. Returns the exit code; raises `WatcherError` when it cannot start."""
    with absent("ssl"), absent("typing_extensions"):
        # structlog loads asyncio, and that OpenSSL: 5 MiB for a process that speaks no TLS itself (`text_model.apart`).
        # msgspec only asks the other for what `typing` has as well.
        import msgspec  # noqa: F401, PLC0415

        import watcher.log  # noqa: F401, PLC0415
    from watcher.daemon import Daemon  # noqa: PLC0415

    flags = {key: value for key, value in (("log.format", log_format), ("log.level", log_level)) if value is not None}
    return Daemon(os.environ, config_file=config, flags=flags, dry_run=dry_run).run()


def run_plainly(arguments: Sequence[str]) -> int | None:
    """Run what follows the word `run`; None, and nothing done, where the framework has something to explain."""
    options = _read(arguments)
    if options is None:
        return None
    config = options.get(_CONFIG)
    return exit_code_of(
        lambda: run_watcher(
            config=Path(config) if config is not None else None,
            dry_run=_DRY_RUN in options,
            log_format=options.get("--log-format"),
            log_level=options.get("--log-level"),
        )
    )


def _read(arguments: Sequence[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    rest: Iterator[str] = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == _DRY_RUN:
            found[argument] = ""
        elif name in _WITH_VALUE:
            if not equals:
                value = next(rest, "-")
                if value.startswith("-"):
                    return None
            found[name] = value
        else:
            return None
    return found
