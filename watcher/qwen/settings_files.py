"""Qwen Code's settings files: read, parsed as Qwen Code parses them, merged with a note of where each value came from.

Contract 7.1. Reading never raises for what is in a file or missing: a problem is a value.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watcher.errors import words_of

MAX_FILE_BYTES: Final = 1024 * 1024
"""Settings and `.env` files are a few KiB; something larger is not one."""

SYSTEM_SETTINGS_VARIABLE: Final = "QWEN_CODE_SYSTEM_SETTINGS_PATH"
SYSTEM_DEFAULTS_VARIABLE: Final = "QWEN_CODE_SYSTEM_DEFAULTS_PATH"

_SYSTEM_SETTINGS: Final = {
    "darwin": "/Library/Application Support/QwenCode/settings.json",
    "win32": "C:\\ProgramData\\qwen-code\\settings.json",
}
_SYSTEM_SETTINGS_ELSEWHERE: Final = "/etc/qwen-code/settings.json"
_SYSTEM_DEFAULTS_NAME: Final = "system-defaults.json"

_MAX_DEPTH: Final = 64
_SHALLOW: Final = frozenset({"env"})
_UNITED: Final = frozenset({"advanced.excludedEnvVars"})
_NEVER_MERGED: Final = frozenset({"__proto__", "constructor", "prototype"})

_COMMENT_OR_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?')
"""The ends are optional so that each character is looked at once, whatever a stranger's file holds."""
_VARIABLE: Final = re.compile(r"\$(?:(?P<bare>\w+)|\{(?P<braced>[^}]{1,200})\})", re.ASCII)
_NEVER_EXPANDED: Final = frozenset({"SESSION_ID", "QWEN_CODE_SESSION_ID"})


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells that a file is the one that was read. All zero: there was none."""

    mtime_ns: int = 0
    ctime_ns: int = 0
    size: int = 0
    inode: int = 0


ABSENT: Final = Stamp()


@dataclass(frozen=True, slots=True)
class FileText:
    """What a file held. `text` is None when there is none; `problem` says why, but for a missing file or a folder."""

    path: Path
    stamp: Stamp
    text: str | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """One settings file: `label` for people (`user settings ~/.qwen/settings.json`), what it holds, what is wrong."""

    name: str
    label: str
    values: Mapping[str, object]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SystemPaths:
    """The two system-wide files; `settings` is the strongest scope, `defaults` the weakest."""

    defaults: Path
    settings: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], platform: str = sys.platform) -> SystemPaths:
        """Where this platform has them, or where the two override variables point (contract 7.1)."""
        settings = Path(
            environ.get(SYSTEM_SETTINGS_VARIABLE) or _SYSTEM_SETTINGS.get(platform, _SYSTEM_SETTINGS_ELSEWHERE)
        )
        return cls(
            defaults=Path(environ.get(SYSTEM_DEFAULTS_VARIABLE) or settings.parent / _SYSTEM_DEFAULTS_NAME),
            settings=settings,
        )


def stamp_of(path: Path) -> Stamp:
    """The present stamp of `path`, `ABSENT` when it cannot be seen. One `stat`."""
    try:
        return _stamp(path.stat())
    except (OSError, ValueError):
        return ABSENT


def read_file(path: Path) -> FileText:
    """The text of a regular file of at most `MAX_FILE_BYTES`, without a byte order mark. Never blocks on a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno not in {errno.ENOENT, errno.ENOTDIR}:
            return FileText(path, stamp_of(path), None, f"cannot be read: {words_of(error)}")
        return FileText(path, ABSENT, None)
    try:
        return _read_open(path, descriptor)
    finally:
        os.close(descriptor)


def _read_open(path: Path, descriptor: int) -> FileText:
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        return FileText(path, _stamp(found), None)
    if not stat.S_ISREG(found.st_mode):
        return FileText(path, _stamp(found), None, "is not a regular file")
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return FileText(path, _stamp(found), None, f"cannot be read: {words_of(error)}")
    if len(content) > MAX_FILE_BYTES:
        return FileText(path, _stamp(found), None, f"is larger than {MAX_FILE_BYTES // 1024} KiB")
    return FileText(path, _stamp(found), content.decode("utf-8", "replace").removeprefix("\ufeff"))


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def shown(path: Path, home: Path | None) -> str:
    """`path` as people write it: with `~` for the home directory."""
    if home is not None and path.is_relative_to(home):
        return f"~/{path.relative_to(home)}" if path != home else "~"
    return str(path)


def parse_settings(text: str) -> tuple[Mapping[str, object], str]:
    """The object that a settings file holds, and what is wrong with it (empty when nothing is).

    JSON with `//` and `/* */` comments; trailing commas are refused as Qwen Code refuses them (contract 7.1). A file
    of nothing but white space is an empty object, as one that is just being written.
    """
    bare = _COMMENT_OR_STRING.sub(_blank_comment, text)
    if not bare.strip():
        return {}, ""
    try:
        value = json.loads(bare, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        return {}, f"is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError) as error:
        return {}, f"is not valid JSON: {type(error).__name__}"
    if not isinstance(value, dict):
        return {}, "is not a JSON object"
    if _is_deep(value):
        return {}, f"is nested more than {_MAX_DEPTH} levels deep"
    return value, ""


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")  # Python reads NaN and Infinity, Qwen Code does not


def _is_deep(value: object) -> bool:
    """Whether lists and objects nest deeper than any settings do; what follows walks them recursively."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _blank_comment(match: re.Match[str]) -> str:
    """Strings stay; a comment becomes blanks of the same shape, so that error positions stay true."""
    found = match[0]
    unfinished = found.startswith("/*") and not found.endswith("*/")
    return found if found.startswith('"') or unfinished else re.sub(r"[^\r\n]", " ", found)


def expand_variables(value: object, lookup: Callable[[str], str | None]) -> object:
    """`value` with `$NAME` and `${NAME}` replaced in every string; names that `lookup` does not know stay (7.1)."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _expansion(match, lookup), value)
    if isinstance(value, list):
        return [expand_variables(item, lookup) for item in value]
    if isinstance(value, dict):
        return {key: expand_variables(item, lookup) for key, item in value.items()}
    return value


def _expansion(match: re.Match[str], lookup: Callable[[str], str | None]) -> str:
    name = match["bare"] or match["braced"]
    found = None if name.upper() in _NEVER_EXPANDED else lookup(name)
    return match[0] if found is None else found


def merge_scopes(scopes: Iterable[Scope]) -> tuple[dict[str, object], dict[str, str]]:
    """All settings in force, weakest scope first, and for each dotted key the label of the scope that set it.

    Objects merge deeply, `env` one level deep; `advanced.excludedEnvVars` is united; everything else, and so each list
    of models, is replaced (contract 7.1). `modelProviders` too is merged provider by provider: its schema says
    "replace", but neither Qwen Code 0.23.0 nor 0.24.4 does so (`packages/cli/src/utils/deepMerge.ts`; seen in
    `tests/e2e/test_same_request.py`).
    """
    merged: dict[str, object] = {}
    origins: dict[str, str] = {}
    for scope in scopes:
        _merge(merged, scope.values, "", scope.label, origins)
    return merged, origins


def _merge(
    target: dict[str, object], source: Mapping[str, object], prefix: str, label: str, origins: dict[str, str]
) -> None:
    for key, value in source.items():
        if key in _NEVER_MERGED:
            continue
        path = prefix + key
        present = target.get(key)
        if path in _UNITED and isinstance(present, list):
            added = value if isinstance(value, list) else [value]
            target[key] = present + [item for item in added if item not in present]
        elif isinstance(value, dict):
            deeper = target[key] = dict(present) if isinstance(present, dict) else {}
            if path in _SHALLOW:
                deeper.update(value)
                origins.update({f"{path}.{name}": label for name in value})
            else:
                _merge(deeper, value, f"{path}.", label, origins)
        else:
            target[key] = value
        origins[path] = label


def can_exist(path: str | Path) -> bool:
    """Whether any file can have this path: JSON can hold what no file system takes, a NUL or half a character."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def expand_path(text: str, home: Path | None, base: Path) -> Path:
    """A directory as Qwen Code reads one: `~` and `~/x` from the home directory, else relative to `base` (1.1)."""
    if home is not None and (text == "~" or text.startswith("~/")):
        text = str(home) + text[1:]
    return Path(os.path.normpath(base / text))
