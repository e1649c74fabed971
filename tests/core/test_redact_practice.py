"""A second corpus: secrets as they are pasted into chats, and ordinary text that looks like them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

import pytest

from watcher.core.redact import PLACEHOLDER, looks_secret, mask

DATA = Path(__file__).resolve().parents[1] / "data"


class Pasted(TypedDict):
    """A text, and what of it must not leave the machine; all made up."""

    kind: str
    text: str
    secrets: list[str]


PASTED: list[Pasted] = json.loads((DATA / "secrets_in_practice.json").read_text("utf-8"))
LOOKALIKES: list[str] = json.loads((DATA / "secret_lookalikes.json").read_text("utf-8"))
KNOWN_MISSES = frozenset({"gha env", "algolia"})
"""A short value beside `NPM_AUTH`, and 32 hexadecimal digits that only their position tells from a hash."""
_PIECE_CHARS = 10


def survives(secret: str, text: str) -> bool:
    """Whether `secret`, or ten characters of it in a row, stand in `text`."""
    pieces = (secret[at : at + _PIECE_CHARS] for at in range(max(1, len(secret) - _PIECE_CHARS + 1)))
    return any(piece in text for piece in pieces)


@pytest.mark.parametrize("entry", PASTED, ids=lambda entry: entry["kind"])
def test_a_pasted_secret_is_masked(entry: Pasted) -> None:
    """Wherever it stands in a file, on a command line or in a sentence; also amid other lines."""
    for text in (entry["text"], f"Please look:\n\n{entry['text']}\n\nthanks!"):
        masked = mask(text)
        found = [secret for secret in entry["secrets"] if survives(secret, masked.text)]
        assert bool(found) is (entry["kind"] in KNOWN_MISSES)
    if entry["kind"] not in KNOWN_MISSES:
        assert PLACEHOLDER in mask(entry["text"]).text
        assert looks_secret(entry["text"])


def test_lookalikes_are_left_alone() -> None:
    """Hashes, paths, placeholders, talk about passwords: of 164 at most two are touched."""
    touched = [text for text in LOOKALIKES if mask(text).text != text]
    assert len(LOOKALIKES) >= 160
    assert len(touched) <= 2, touched


def test_an_image_is_no_text_that_hides_a_secret() -> None:
    """Base64 is opened, once; what holds no text, or text without a secret, stays."""
    image = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5"
    )
    assert mask(image).text == image
    greeting = "aGVsbG8gd29ybGQsIHRoaXMgaXMgbm8gc2VjcmV0"
    assert mask(greeting).text == greeting
