"""The exceptions of this package: each says what failed, where, and what to do.

    WatcherError
    ├── UsageError            exit 2: the command line was wrong
    ├── ConfigError           exit 2: names the key, the value and the file
    ├── NotFoundError         exit 1: no session answers to that name
    ├── AlreadyRunningError   exit 1: another watcher owns the state directory
    ├── StateError            exit 1: the state directory or its database cannot be used
    ├── ModelSetupError       no usable text model could be made of the settings
    ├── ServiceError          exit 1: the service manager refused or is missing
    └── RefusedError          exit 1: `reason: …` (a `core.policy.Reason`)

Expected failures of a decision or a write are values (`core.policy.Skip`, `core.writing.WriteOutcome`), not exceptions.
"""

from __future__ import annotations

import os


class WatcherError(Exception):
    """Base of all errors raised on purpose here. `str()` is one line for a user, with the remedy."""

    exit_code = 1


class UsageError(WatcherError):
    """The command line asked for something that does not exist or contradicts itself."""

    exit_code = 2


class ConfigError(WatcherError):
    """A configuration value or file cannot be used; the text names key, value and file."""

    exit_code = 2


class NotFoundError(WatcherError):
    """No session answers to the given id, prefix or path."""


class AlreadyRunningError(WatcherError):
    """Another watcher holds the state directory."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"already running (pid {pid})")
        self.pid = pid


class StateError(WatcherError):
    """The state directory or its database cannot be opened or written."""


class ModelSetupError(WatcherError):
    """The settings name no usable text model; the text says the precise missing piece."""


class ServiceError(WatcherError):
    """The service manager refused, timed out or does not exist."""


class RefusedError(WatcherError):
    """An explicit command was refused; `reason` is one of the documented failure reasons."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason


def words_of(error: OSError) -> str:
    """What the system says went wrong, in words; what the error itself says where it carries no number."""
    if error.strerror:
        return error.strerror
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
