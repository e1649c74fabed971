"""Replacing a small file in one step."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str, mode: int) -> None:
    """Write `path` so that a reader sees the old text or the new one, with that mode from the first moment.

    Missing directories are made, 0700. A symbolic link is followed: its target is replaced. Raises OSError.
    """
    import tempfile  # noqa: PLC0415 - with it come four compression libraries, and most commands write no file

    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
