"""`.env` files: which ones Qwen Code reads for a directory, in what order, and what they may set (contract 7.2)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

QWEN_DIR: Final = ".qwen"
ENV_NAME: Final = ".env"
MAX_ENV_CHARS: Final = 256 * 1024
"""A larger `.env` file is not read: parsing one takes about a second a MiB, and a stranger's project may hold any."""
DEFAULT_EXCLUDED: Final = ("DEBUG", "DEBUG_MODE")
"""Default of `advanced.excludedEnvVars` (contract 7.1)."""

_OPERATOR_ONLY: Final = frozenset(
    {
        # where Qwen Code keeps and finds things
        "QWEN_HOME",
        "QWEN_RUNTIME_DIR",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH",
        "QWEN_CODE_SYSTEM_DEFAULTS_PATH",
        "QWEN_CODE_TRUSTED_FOLDERS_PATH",
        "QWEN_CODE_MCP_APPROVALS_PATH",
        # whom a request trusts
        "QWEN_TLS_INSECURE",
        "NODE_TLS_REJECT_UNAUTHORIZED",
        "NODE_EXTRA_CA_CERTS",
        "NODE_OPTIONS",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        # what else a program of the user's takes from its environment
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "TMPDIR",
        "TMP",
        "TEMP",
    }
)
"""Keys that no project file and no `settings.env` can set (contract 7.2), as far as this program could act on them."""


@dataclass(frozen=True, slots=True)
class EnvCandidate:
    """A place where a `.env` file may be. `home` ones belong to the user and need no trust."""

    path: Path
    home: bool

    @property
    def qwen_scoped(self) -> bool:
        """Whether it is Qwen Code's own file, which `advanced.excludedEnvVars` does not concern."""
        return self.home or self.path.parent.name == QWEN_DIR


@dataclass(frozen=True, slots=True)
class Variable:
    """A value of the environment and, for people, where it was set. The value may be secret: never shown."""

    value: str = field(repr=False)
    origin: str


@dataclass(frozen=True, slots=True)
class Environment:
    """What `$NAME` is for a session: the process's own value, else what files set. An empty value counts as unset."""

    process: Mapping[str, str] = field(repr=False)
    files: Mapping[str, Variable] = field(repr=False)

    def get(self, name: str) -> Variable | None:
        """The non-empty value of `name` in force, or None."""
        own = self.process.get(name, "")
        return Variable(own, "the environment") if own else self.files.get(name)

    def value(self, name: str) -> str:
        """The value of `name`, empty when it is unset."""
        found = self.get(name)
        return found.value if found else ""


def parse_env(text: str) -> dict[str, str]:
    """The assignments of a `.env` text; a key without `=`, or a line that is none, is left out. `$` is not expanded.

    A text of more than `MAX_ENV_CHARS` gives nothing.
    """
    if len(text) > MAX_ENV_CHARS:
        return {}
    from dotenv.parser import parse_stream  # noqa: PLC0415 - what the idle service does not need it does not import

    return {
        binding.key: binding.value
        for binding in parse_stream(io.StringIO(text))
        if binding.key is not None and binding.value is not None and not binding.error
    }


def home_candidates(home: Path | None, config_dir: Path) -> tuple[EnvCandidate, ...]:
    """The user's own files: `<config dir>/.env`, `<home>/.qwen/.env` when different, `<home>/.env`."""
    paths = [config_dir / ENV_NAME]
    if home is not None:
        paths += [home / QWEN_DIR / ENV_NAME, home / ENV_NAME]
    return tuple(EnvCandidate(path, home=True) for path in dict.fromkeys(paths))


def project_candidates(cwd: Path, home: Path | None, config_dir: Path) -> Iterator[EnvCandidate]:
    """From `cwd` upward, `.qwen/.env` before `.env` in each directory, until the home directory. The first one counts.

    `cwd` must be absolute and free of symbolic links.
    """
    own = {candidate.path for candidate in home_candidates(home, config_dir)}
    for directory in (cwd, *cwd.parents):
        if directory == home:
            return
        for path in (directory / QWEN_DIR / ENV_NAME, directory / ENV_NAME):
            yield EnvCandidate(path, home=path in own)


def may_set(candidate: EnvCandidate, key: str, excluded: Sequence[str]) -> bool:
    """Whether this file may set `key`: project files cannot set operator keys, nor excluded ones unless in `.qwen/`."""
    if not candidate.home and key.upper() in _OPERATOR_ONLY:
        return False
    return candidate.qwen_scoped or key not in excluded


def settings_may_set(key: str) -> bool:
    """Whether the `env` object of settings may set `key`."""
    return key.upper() not in _OPERATOR_ONLY
