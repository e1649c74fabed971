"""Where Qwen Code keeps its sessions: config directories and the runtime bases below which transcripts are (1.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from watcher.errors import ConfigError
from watcher.qwen.dotenv import QWEN_DIR, parse_env
from watcher.qwen.settings import SettingsReader
from watcher.qwen.settings_files import can_exist, expand_path

HOME_VARIABLE: Final = "QWEN_HOME"
RUNTIME_VARIABLE: Final = "QWEN_RUNTIME_DIR"
_BOOTSTRAP: Final = (HOME_VARIABLE, RUNTIME_VARIABLE)


@dataclass(frozen=True, slots=True)
class Root:
    """A directory with `projects/…/chats/` below it, and the config directory of the Qwen Code that writes there."""

    config_dir: Path
    runtime_base: Path


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What is known before settings are read. `runtime_dir` None: not set. `origins`: which variable gave which value,
    and where that was set.
    """

    config_dir: Path
    runtime_dir: Path | None
    origins: Mapping[str, str] = field(default_factory=dict)


def bootstrap(reader: SettingsReader) -> Bootstrap:
    """The config directory and `QWEN_RUNTIME_DIR`, from the environment or the `.env` files that may set them (1.1).

    Files: `<config dir>/.env`, then `<parent of config dir>/.env` unless `QWEN_HOME` was in the environment; if that
    gives a new `QWEN_HOME`, its `.env` as well. The first that sets a variable wins.
    """
    found = {name: reader.environ.get(name, "") for name in _BOOTSTRAP}
    origins = {name: f"env {name}" for name in _BOOTSTRAP if found[name]}
    initial = _config_dir(reader, found[HOME_VARIABLE])
    paths = [initial / ".env"]
    if not found[HOME_VARIABLE]:
        paths.append(initial.parent / ".env")
    for path in paths:
        _take(reader, path, found, origins)
    config_dir = _config_dir(reader, found[HOME_VARIABLE])
    if config_dir != initial:
        _take(reader, config_dir / ".env", found, origins)
    runtime = found[RUNTIME_VARIABLE]
    return Bootstrap(config_dir, expand_path(runtime, reader.home, Path.cwd()) if runtime else None, origins)


def session_roots(
    reader: SettingsReader,
    homes: Iterable[Path] = (),
    known_cwds: Iterable[str] = (),
    trusts: Callable[[str], bool] = lambda _cwd: False,
) -> tuple[Root, ...]:
    """Every place where sessions may be, config directories first, without repetition.

    `homes` are the config directories that the user named; without any it is the one that Qwen Code itself would use.
    `known_cwds` are project directories seen so far: a relative `advanced.runtimeOutputDir` means one place in each.
    `trusts` tells whether a project's own settings count. Raises `ConfigError` for a home that no directory can be.
    """
    named = tuple(homes)
    for home in named:
        if not can_exist(home):
            raise ConfigError(f"watch.homes: {str(home)!r} is no name that a directory can have")
    start = bootstrap(reader)
    cwds = tuple(known_cwds)
    roots: list[Root] = []
    for config_dir in named or (start.config_dir,):
        roots.append(Root(config_dir, config_dir))
        if start.runtime_dir is not None:
            roots.append(Root(config_dir, start.runtime_dir))
            continue
        outside = reader.resolve("", False, config_dir).runtime_output_dir
        if _is_anchored(outside):
            roots.append(Root(config_dir, expand_path(outside, reader.home, config_dir)))
        for cwd in cwds:
            written = reader.resolve(cwd, trusts(cwd), config_dir).runtime_output_dir
            if written:
                roots.append(Root(config_dir, expand_path(written, reader.home, Path(cwd))))
    return tuple(root for root in dict.fromkeys(roots) if can_exist(root.runtime_base))


def _config_dir(reader: SettingsReader, qwen_home: str) -> Path:
    if qwen_home:
        return expand_path(qwen_home, reader.home, Path.cwd())
    if reader.home is not None:
        return reader.home / QWEN_DIR
    import tempfile  # noqa: PLC0415 - hardly anybody is without a home

    return Path(tempfile.gettempdir()) / QWEN_DIR


def _take(reader: SettingsReader, path: Path, found: dict[str, str], origins: dict[str, str]) -> None:
    values = parse_env(reader.read(path).text or "")
    for name in _BOOTSTRAP:
        value = values.get(name, "")
        if not found[name] and value and can_exist(value):
            found[name] = value
            origins[name] = f"{name} from {path}"


def _is_anchored(text: str) -> bool:
    """Whether a path means the same from everywhere."""
    return Path(text).is_absolute() or text == "~" or text.startswith("~/")
