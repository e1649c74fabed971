"""Keeps this process small: what the C library's allocator may hold back, and when it is asked to give back.

Only glibc has these calls; with another C library nothing happens here.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any, Final

MMAP_THRESHOLD_BYTES: Final = 256 * 1024
"""Larger blocks are mapped one by one and go back as soon as they are free. Left alone, glibc raises this to as much as
the largest block that was ever freed, and keeps what is smaller.
"""
MAX_ARENAS: Final = 1
"""Else each thread gets an arena of its own, and each of them holds back a little. Python's lock lets only one of them
allocate at a time anyway.
"""
_M_MMAP_THRESHOLD: Final = -3  # mallopt(3), malloc.h
_M_ARENA_MAX: Final = -8


def keep_memory_small() -> None:
    """For a process that stays; call it before there are threads."""
    library = _library()
    if library is not None:
        library.mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        library.mallopt(_M_ARENA_MAX, MAX_ARENAS)


def give_back_memory() -> None:
    """Collect what is unreachable and hand free pages to the system. Takes some 5 ms."""
    gc.collect()
    library = _library()
    if library is not None:
        library.malloc_trim(0)


def _library() -> Any:
    if sys.platform != "linux":
        return None
    try:
        library = ctypes.CDLL(None)
        library.mallopt, library.malloc_trim  # noqa: B018 - is it glibc?
    except (OSError, AttributeError):
        return None
    return library
