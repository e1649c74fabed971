"""The absolute interpreter that a service can still start next year."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from watcher.errors import ServiceError
from watcher.service.values import Runner

_UV_THROW_AWAY = {"archive-v0", "environments-v2", "builds-v0"}
"""Directories of uv's cache in which `uvx` builds its environments (uv documentation, "Cache directory")."""

_MODULE = "watcher"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that has this package."""

    path: Path
    kind: str
    """`pipx`, `uv tool`, `venv` or `system`."""
    notes: tuple[str, ...] = ()

    @property
    def run_command(self) -> tuple[str, ...]:
        """The watcher in the foreground. -P: a directory `watcher` in the working directory is not our package."""
        return (str(self.path), "-P", "-m", _MODULE, "run")


def find_interpreter(executable: str, prefix: str, base_prefix: str) -> Interpreter:
    """The interpreter to put into a unit, from `sys.executable`, `sys.prefix` and `sys.base_prefix`.

    The path is kept as it is: behind a venv's link stands the bare Python without our package.

    Raises ServiceError for an environment that its tool throws away (`uvx`, `pipx run`).
    """
    if not executable:
        raise ServiceError("this Python does not know its own path; start qwen-watcher from an ordinary installation")
    path = Path(os.path.abspath(executable))  # noqa: PTH100  # pathlib's resolve() would follow the link
    if _UV_THROW_AWAY & set(path.parts):
        raise ServiceError("`uvx` throws its environment away; install it first: uv tool install qwen-session-watcher")
    if _is_below(path, "pipx", ".cache") or _is_below(path, ".cache", "pipx"):
        raise ServiceError(
            "`pipx run` throws its environment away; install it first: pipx install qwen-session-watcher"
        )
    if _is_below(path, "pipx", "venvs"):
        kind = "pipx"
    elif _is_below(path, "uv", "tools"):
        kind = "uv tool"
    else:
        kind = "venv" if prefix != base_prefix else "system"
    notes: tuple[str, ...] = ()
    if path.is_relative_to(tempfile.gettempdir()):
        notes = (f"{path} is in a temporary directory; once that is cleaned, run `service install` again",)
    return Interpreter(path, kind, notes)


def check_interpreter(interpreter: Interpreter, run: Runner) -> None:
    """Prove that a service could start it: the package is found without this shell's directory and variables.

    Raises ServiceError, as for a checkout that is not installed.
    """
    done = run([str(interpreter.path), "-P", "-c", f"import {_MODULE}"])
    if done.returncode != 0:
        last = done.message.rpartition(" Traceback")[2][-200:]
        raise ServiceError(
            f"a service could not start {interpreter.path}: {last or 'it fails'}; install this program first, "
            "as with `pipx install .` in its directory"
        )


def _is_below(path: Path, parent: str, child: str) -> bool:
    """Whether the directory `parent/child` is on the way to `path`."""
    return (parent, child) in zip(path.parts, path.parts[1:], strict=False)
