"""Keeps a library from loading what it would use, and we never do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


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


@contextmanager
def hollow(module: str) -> Iterator[None]:
    """Within, `import module` gives an empty module: for what a library only uses in functions that we never call."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = ModuleType(module)
    try:
        yield
    finally:
        del sys.modules[module]
