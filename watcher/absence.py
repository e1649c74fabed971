"""Keeps a library from loading what it would use if it were there, and we do not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(module: str) -> Iterator[None]:
    """Within, importing `module` fails as if it were not installed; what is loaded already stays as it is."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # documented: import raises ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules[module]
