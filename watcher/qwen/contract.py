"""Names, limits and path rules of Qwen Code's session store: constants and pure functions only.

Every value names the section of the wire contract that it comes from.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

PROJECTS_DIR: Final = "projects"
"""Under the runtime base: one folder a project (1.2)."""
CHATS_DIR: Final = "chats"
"""Under a project's folder: the transcripts, directly in it (1.2)."""
ARCHIVE_DIR: Final = "archive"
"""Under `chats/`: archived transcripts, which nobody but Qwen Code touches (1.2)."""
REGISTRY_DIR: Final = "sessions"
"""Under the config directory: one file a live process or hosted session (1.4)."""
REGISTRY_MAX_BYTES: Final = 64 * 1024
"""Largest registry file that is honoured (1.4)."""
LEASE_DIR: Final = "tmp/session-writer-locks"
"""Under the runtime base: writer leases (5)."""

WINDOW_BYTES: Final = 65_536
"""What the session picker reads of each end of a file (3.1)."""
FIRST_PROMPT_LINES: Final = 10
"""Non-empty lines in which the picker looks for the first prompt (2.5)."""
FIRST_PROMPT_LENGTH: Final = 200
"""Code points at which the picker cuts the first prompt (2.5)."""
TITLE_LIMIT_UNITS: Final = 200
"""Longest title that `/rename` takes, in UTF-16 code units (3.1)."""

RECORD_TYPES: Final = frozenset({"user", "assistant", "tool_result", "system"})
"""Every other `type` is skipped by the reader (2.1)."""
ARTIFACT_SUBTYPES: Final = frozenset(
    {
        "session_artifact_event",
        "session_artifact_snapshot",
        "session_sources_snapshot",
        "managed_session_header_v1",
        "managed_session_event_v1",
        "managed_session_commit_v1",
    }
)
"""Subtypes of `system` records that are not conversation records and never the leaf (2.3)."""

MIN_WRITABLE_VERSION: Final = (0, 21, 0)
"""Files of an older Qwen Code are read and never written (8 and design 6)."""
TESTED_VERSIONS: Final = frozenset({(0, 21, 2), (0, 23, 0), (0, 24, 4)})
"""The versions whose readers were run on the vectors (8)."""

DISABLE_TITLE_VARIABLE: Final = "QWEN_DISABLE_AUTO_TITLE"
"""Environment variable that switches automatic titles off (6.1)."""

JS_WHITESPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What `String.prototype.trim` removes; `str.strip` alone removes a different set."""

SIDECAR_SUFFIX: Final = ".runtime.json"
"""How the names of runtime sidecars end (1.3)."""

_TRANSCRIPT_NAME = re.compile(r"([0-9a-fA-F-]{32,36})\.jsonl")
_REGISTRY_NAME = re.compile(r"([0-9]+)(?:-[0-9a-f]{8})?\.json")
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?:[-+].*)?", re.DOTALL)
_OUTSIDE_ALNUM = re.compile(r"[^A-Za-z0-9]")
_URI_COMPONENT_MARKS = "!~*'()"
_LAST_BMP_CODE_POINT = 0xFFFF


def sanitize_cwd(cwd: str) -> str:
    """The name of the folder under `projects/` for a project directory (1.2).

    Every UTF-16 code unit outside `[A-Za-z0-9]` becomes one dash, so a character beyond the BMP gives two. The rule
    loses information: never go back from a folder name to a directory.
    """
    return _OUTSIDE_ALNUM.sub(lambda match: "-" * utf16_units(match[0]), cwd)


def utf16_units(text: str) -> int:
    """Length of `text` in UTF-16 code units, the unit of Qwen Code's limits (3.1, 6.2)."""
    return len(text) + sum(1 for character in text if ord(character) > _LAST_BMP_CODE_POINT)


def session_id_of(path_name: str) -> str | None:
    """The session id that a transcript's file name or path carries, None where it is no transcript's name (1.2).

    The id keeps the case of the name. Whether the file lies directly in `chats/` is for the caller to see to.
    """
    match = _TRANSCRIPT_NAME.fullmatch(path_name.rpartition("/")[2])
    return match[1] if match else None


def runtime_sidecar_name(session_id: str) -> str:
    """Name, in `chats/`, of the sidecar that says which process serves the session (1.3)."""
    return f"{session_id}{SIDECAR_SUFFIX}"


def registry_pid_of(name: str) -> int | None:
    """The process id that a registry file's name carries, None where it is no registry file's name (1.4)."""
    match = _REGISTRY_NAME.fullmatch(name)
    return int(match[1]) if match else None


def lease_name(session_id: str) -> str:
    """File name of the session's writer lease: the id percent-encoded like `encodeURIComponent`, then `.lock` (5)."""
    return f"{quote(session_id, safe=_URI_COMPONENT_MARKS, errors='surrogatepass')}.lock"


def lease_paths(runtime_base: str, session_id: str) -> tuple[str, ...]:
    """The two paths whose existence, in any form, forbids writing: the lease and its claim (5).

    Names keep the case of `session_id`; where file name and records differ in case, ask for both.
    """
    lease = f"{runtime_base.rstrip('/')}/{LEASE_DIR}/{lease_name(session_id)}"
    return lease, f"{lease}.claim"


def parse_version(version: str) -> tuple[int, int, int] | None:
    """`"0.24.4"` as `(0, 24, 4)`; what follows a dash or plus is ignored. None where it is no such version (8)."""
    match = _VERSION.fullmatch(version.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def is_truthy_switch(value: str | None) -> bool:
    """Whether the value of a `QWEN_DISABLE_…` variable switches the thing off (6.1): unset and "no" words do not."""
    return value is not None and value.strip(JS_WHITESPACE).lower() not in {"", "0", "false", "no", "off"}
