"""Which sessions may be written, by the version that wrote them (contract 8, design 6)."""

from __future__ import annotations

from watcher.core.session import SessionState
from watcher.qwen.contract import MIN_WRITABLE_VERSION, TESTED_VERSIONS, parse_version

_NEWEST_TESTED = max(TESTED_VERSIONS)


def unsupported(state: SessionState) -> str:
    """Why a session is read and not written, "" when it may be.

    Below 0.21: never. Newer than the versions tested: as long as the file looks as the contract says.
    """
    version = parse_version(state.version)
    if version is None:
        return f"no usable version in its newest record: {state.version[:40]!r}" if state.leaf else ""
    if version < MIN_WRITABLE_VERSION:
        return f"written by Qwen Code {state.version[:40]}, older than 0.21"
    if version > _NEWEST_TESTED and (state.unknown_types or not state.sound):
        return f"written by Qwen Code {state.version[:40]}, which is newer than tested, and looks different"
    return ""


def is_tested(version: str) -> bool:
    """Whether the reader of this version was run on the vectors, or lies between such versions."""
    parsed = parse_version(version)
    return parsed is not None and min(TESTED_VERSIONS) <= parsed <= _NEWEST_TESTED
