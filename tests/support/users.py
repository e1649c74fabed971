"""Being somebody without privileges for a moment, since root may read and write everything."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user can reach, unlike pytest's own, and that belongs to the unprivileged user."""
    with tempfile.TemporaryDirectory(prefix="qw-", dir="/tmp") as name:
        path = Path(name)
        if os.geteuid() == 0:
            os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
        path.chmod(0o755)
        yield path


@contextmanager
def without_privileges() -> Iterator[None]:
    """Act as user `nobody` where the tests run as root; as oneself elsewhere."""
    if os.geteuid() != 0:
        yield
        return
    try:
        uid = pwd.getpwnam("nobody").pw_uid
    except KeyError:
        pytest.skip("there is no user nobody")
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
