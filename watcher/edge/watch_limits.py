"""The kernel's limits on watching, how much of them is used, and what to tell a user who met one (report F1)."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watcher.errors import words_of

_SYSCTLS: Final = Path("/proc/sys/fs/inotify")
_SUGGESTED_WATCHES: Final = 524_288
_SUGGESTED_INSTANCES: Final = 1024


@dataclass(frozen=True, slots=True)
class InotifyUse:
    """Limits of one user and what that user's visible processes hold; None where the system does not say."""

    max_watches: int | None
    max_instances: int | None
    watches: int
    instances: int


def read_inotify_use(uid: int | None = None) -> InotifyUse:
    """The limits, and what processes of `uid` (by default ours) hold. Walks `/proc`: for `doctor`, not for a loop."""
    owner = os.geteuid() if uid is None else uid
    watches = instances = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid != owner:
                continue
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(link.readlink()) == "anon_inode:inotify":
                        instances += 1
                        watches += (process / "fdinfo" / link.name).read_bytes().count(b"inotify wd:")
    return InotifyUse(_sysctl("max_user_watches"), _sysctl("max_user_instances"), watches, instances)


def is_limit(error: OSError) -> bool:
    """Whether the system refused to watch because a limit was reached."""
    return error.errno in (errno.ENOSPC, errno.EMFILE, errno.ENFILE)


def explain_limit(error: OSError) -> str:
    """What was refused, the limit's name and value, and how to raise it: one line."""
    if error.errno == errno.ENOSPC:
        return _advice("max_user_watches", _SUGGESTED_WATCHES)
    if error.errno == errno.EMFILE and _sysctl("max_user_instances") is not None:
        return _advice("max_user_instances", _SUGGESTED_INSTANCES)
    return f"the system refused to watch files ({words_of(error)}): close programs that hold many files"


def _advice(name: str, suggested: int) -> str:
    value = _sysctl(name)
    limit = "unknown" if value is None else str(value)
    more = max(suggested, 2 * (value or 0))
    return (
        f"other programs and this one have used up fs.inotify.{name} ({limit}): raise it with "
        f"`sudo sysctl fs.inotify.{name}={more}` and keep it in /etc/sysctl.d"
    )


def _sysctl(name: str) -> int | None:
    try:
        return int((_SYSCTLS / name).read_text())
    except (OSError, ValueError):
        return None
