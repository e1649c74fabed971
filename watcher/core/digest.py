"""A short digest of bytes, to see whether they changed; no defence against anybody."""

from __future__ import annotations

from typing import Final

try:
    # The very function that `hashlib` gives, which would load OpenSSL for it: 4 MiB that an idle service never uses.
    from _blake2 import blake2b
except ImportError:  # a Python that is built in another way
    from hashlib import blake2b

DIGEST_BYTES: Final = 16


def digest_of(data: bytes) -> bytes:
    """16 bytes that stand for `data`."""
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
