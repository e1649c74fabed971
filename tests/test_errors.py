"""What is said of an error of the operating system."""

from __future__ import annotations

import errno

import pytest

from watcher.errors import words_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError(None, "the database is gone"), "the database is gone"),
        (OSError("no number"), "no number"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_words_stand_alone(error: OSError, words: str) -> None:
    """Never `[Errno None]`, never "Success": the system's words, or the error's own."""
    assert words_of(error) == words
