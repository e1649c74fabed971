"""Whether a writer lease stands on a session (contract 5).

A lease is never judged: live, stale, sealed or unreadable, a file at one of its paths means that nobody else may write.
"""

from __future__ import annotations

import os
from pathlib import Path

from watcher.errors import words_of
from watcher.qwen.contract import lease_paths


def lease_state(runtime_base: Path, *session_ids: str) -> str | None:
    """What stands in the way of a write, in words for `why`; None when neither a lock nor its claim exists.

    More than one id: where the name of the file and the records in it differ in case, a lease may be named by either.
    Anything but a plain "no such file" counts as held: a path that cannot be looked at may be a lease.
    """
    paths = [path for session_id in session_ids for path in lease_paths(str(runtime_base), session_id)]
    for path in paths:
        try:
            os.lstat(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"the writer lease cannot be looked at ({words_of(error)}): {path}"
        except ValueError:  # a NUL in the path
            return "the path of the writer lease cannot be looked at"
        return f"a writer lease stands at {path}"
    return None
