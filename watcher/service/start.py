"""Start the watcher with the variables of a file, for launchd: `python -P -m watcher.service.start FILE ARGUMENT…`.

The arguments are those of the interpreter; it replaces this process, so that launchd keeps one process and its signals.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from watcher.errors import ServiceError
from watcher.service.environment import parse_variables
from watcher.service.files import read_text


def environment_with(environ: Mapping[str, str], file: Path) -> dict[str, str]:
    """The environment with the file's variables over it; a missing file changes nothing. Raises ServiceError."""
    return {**environ, **parse_variables(read_text(file) or "")}


def main(arguments: Sequence[str]) -> NoReturn:
    """Replace this process; exits with 1 when the file cannot be read."""
    file, *interpreter_arguments = arguments
    try:
        environ = environment_with(os.environ, Path(file))
    except ServiceError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    os.execve(sys.executable, [sys.executable, *interpreter_arguments], environ)  # noqa: S606  # this interpreter


if __name__ == "__main__":
    main(sys.argv[1:])
