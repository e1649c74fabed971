"""The unit and the plist, which can also be copied by hand: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

from watcher.errors import ServiceError

SYSTEMD_TEMPLATE = "systemd/qwen-watcher.service"
LAUNCHD_TEMPLATE = "launchd/qwen-session-watcher.plist"
WHEEL_DIRECTORY = "_data"
"""Where a wheel has the two directories, below the package `watcher`."""


def read_template(name: str) -> str:
    """The text of a template. Raises ServiceError when this installation lacks it."""
    package = Path(__file__).resolve().parent.parent
    for base in (package / WHEEL_DIRECTORY, package.parent):
        path = base / name
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise ServiceError(f"this installation lacks {name}; install qwen-session-watcher again")
