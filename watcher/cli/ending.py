"""How a command ends: its exit code, and one line for what went wrong. Knows nothing of the command-line framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from watcher.cli.output import fail
from watcher.errors import WatcherError, words_of

INTERRUPTED: Final = 130


def exit_code_of(command: Callable[[], object]) -> int:
    """Run a command: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted; an integer result is the code.

    What went wrong is told on stderr.
    """
    try:
        result = command()
    except KeyboardInterrupt:
        return INTERRUPTED
    except WatcherError as error:
        return fail(error)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return fail(WatcherError(f"{words_of(error)}{where}"))
    return result if isinstance(result, int) else 0
