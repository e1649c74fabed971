"""How a command ends: its exit code, and one line for what went wrong. Knows nothing of the command-line framework."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from watcher.cli.output import fail
from watcher.errors import WatcherError, words_of

INTERRUPTED: Final = 130
_NOT_OURS: Final = "see with `ls -ld` who may read and write it, and give this user access"
_REMEDIES: Final = {
    errno.EACCES: _NOT_OURS,
    errno.EPERM: _NOT_OURS,
    errno.EROFS: "that file system is mounted read-only",
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space: your quota on that disk is used up",
    errno.EMFILE: "raise the limit on open files (`ulimit -n`)",
    errno.ENFILE: "the whole system has too many files open; try again later",
}


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
        remedy = _REMEDIES.get(error.errno or 0, "")
        return fail(WatcherError(f"{words_of(error)}{where}{remedy and f'; {remedy}'}"))
    return result if isinstance(result, int) else 0
