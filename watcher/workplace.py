"""Builds what the service and the commands work with, from the environment and the configuration; one place, once.

What only makes or writes texts is imported where it is built: a command that lists need not wait for it.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from watcher.config import Config, LoadedConfig, load_config, load_config_apart
from watcher.core.owner import Ownership
from watcher.edge.liveness import Liveness
from watcher.edge.mounts import FileSystemKind, file_system_of
from watcher.edge.processes import process_table
from watcher.edge.store import Store
from watcher.edge.unregistered import SearchHint
from watcher.paths import home_dir, state_dir
from watcher.qwen.contract import WINDOW_BYTES
from watcher.qwen.paths import SessionRef
from watcher.qwen.roots import Root, session_roots
from watcher.qwen.settings import QwenSettings, SettingsReader

if TYPE_CHECKING:
    from watcher.drafting import Drafter
    from watcher.edge.text_model import Gate
    from watcher.facts import Surveyor
    from watcher.recording import Recorder


@dataclass(slots=True)
class StoreBudget:
    """The day's model calls, counted in the state database, from local midnight to midnight (design 11)."""

    store: Store
    limit: Callable[[], int]
    clock: Callable[[], float]

    def take(self) -> bool:
        """Count one request; False when today's are used up."""
        return self.store.take_call(local_day(self.clock()), self.limit())


def local_day(now: float) -> str:
    """The local date of a time, as the budget counts days."""
    return datetime.fromtimestamp(now).astimezone().date().isoformat()


class Workplace:
    """Everything for one process, made when it is first asked for. Close it, or use it as a context manager."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        config_file: Path | None = None,
        flags: Mapping[str, object] | None = None,
        clock: Callable[[], float] = time.time,
        watch_exit: Callable[[int, Callable[[], bool]], None] = lambda _pid, _is_same: None,
        throw_away_state: bool = False,
        stays: bool = False,
    ) -> None:
        """`throw_away_state`: work on a copy of the state that is deleted at the end, so that nothing is changed.
        `stays`: this process runs for months, so what is needed for moments only (pydantic, httpx and TLS) is done in
        processes of their own.
        """
        self.environ = dict(environ)
        self.clock = clock
        self._config_file = config_file
        self._flags = dict(flags or {})
        self._watch_exit = watch_exit
        self._open = ExitStack()
        self._throw_away_state = throw_away_state
        self._stays = stays
        self.loaded: LoadedConfig = self._load()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened."""
        self._open.close()

    def _load(self) -> LoadedConfig:
        load = load_config_apart if self._stays else load_config
        return load(self.environ, path=self._config_file, flags=self._flags)

    def reload(self) -> None:
        """Read the configuration again. Raises `ConfigError` and keeps the old one when it is wrong."""
        self.loaded = self._load()
        self.surveyor.loaded = self.loaded
        self.__dict__.pop("roots", None)
        self.liveness.follow(dict.fromkeys(root.config_dir for root in self.roots))

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.loaded.config

    @cached_property
    def state_directory(self) -> Path:
        """The state directory; it need not exist."""
        directory = state_dir(self.environ)
        if not self._throw_away_state:
            return directory
        from tempfile import TemporaryDirectory

        copy = Path(self._open.enter_context(TemporaryDirectory(prefix="qwen-watcher-")))
        original = Store.open_existing(directory)
        if original is not None:
            original.copy_to(copy)
            original.close()
        return copy

    @cached_property
    def store(self) -> Store:
        """The state database, made when missing. Raises `StateError`."""
        store = Store.open(self.state_directory)
        self._open.callback(store.close)
        return store

    @cached_property
    def settings(self) -> SettingsReader:
        """The reader of Qwen Code's settings."""
        return SettingsReader(home_dir(self.environ), self.environ)

    @cached_property
    def roots(self) -> tuple[Root, ...]:
        """Where sessions may be (contract 1.1)."""
        return session_roots(self.settings, self.config.watch.homes, trusts=self.trusts)

    def trusts(self, cwd: str) -> bool:
        """Whether the user trusts this project's own settings (`watch.trusted_folders`)."""
        path = Path(cwd)
        return any(path == folder or folder in path.parents for folder in self.config.watch.trusted_folders)

    def config_dir_of(self, runtime_base: Path) -> Path:
        """The config directory of the Qwen Code that writes below this runtime base."""
        for root in self.roots:
            if root.runtime_base == runtime_base:
                return root.config_dir
        return self.roots[0].config_dir

    def settings_of(self, cwd: str, runtime_base: Path) -> QwenSettings:
        """Qwen Code's settings as a session in `cwd`, stored below `runtime_base`, has them."""
        return self.settings.resolve(cwd, self.trusts(cwd), self.config_dir_of(runtime_base))

    @property
    def general_settings(self) -> QwenSettings:
        """Qwen Code's settings apart from any project."""
        return self.settings.resolve(str(home_dir(self.environ)), False, self.roots[0].config_dir)

    @cached_property
    def liveness(self) -> Liveness:
        """Who owns which session."""
        config_dirs = tuple(dict.fromkeys(root.config_dir for root in self.roots))
        return Liveness(
            config_dirs,
            process_table(),
            on_local_disk=is_local_disk,
            watch_exit=self._watch_exit,
            clock=self.clock,
        )

    def owners_before_a_write(self, ref: SessionRef) -> Ownership:
        """Who has the session. One without any known owner is also looked for among the processes: ACP need not
        register (contract 1.4). That costs some milliseconds, so it is for writes only.
        """
        owners = self.liveness.owners_of(ref.session_id, ref.sidecar)
        if owners.owned or owners.sidecar_seen:
            return owners
        hint = SearchHint(Path(ref.path), first_cwd(ref.path))
        return self.liveness.owners_of(ref.session_id, ref.sidecar, search=hint)

    @cached_property
    def recorder(self) -> Recorder:
        """All writing to session files."""
        import uuid

        from watcher.edge.files import RealFiles
        from watcher.edge.writer import SessionWriter
        from watcher.recording import Recorder, StoreIntents

        writer = SessionWriter(
            RealFiles(),
            StoreIntents(self.store),
            clock=self.clock,
            new_uuid=lambda: str(uuid.uuid4()),
            pause=time.sleep,
        )
        return Recorder(
            self.store,
            writer,
            ownership=self.owners_before_a_write,
            refused_mount=refused_mount,
            clock=self.clock,
        )

    @cached_property
    def surveyor(self) -> Surveyor:
        """Fills in the facts of decisions."""
        from watcher.facts import Surveyor

        return Surveyor(
            self.loaded,
            self.store,
            self.liveness,
            self.settings_of,
            environ=self.environ,
            stopped=self.recorder.stopped,
            clock=self.clock,
        )

    @cached_property
    def gate(self) -> Gate:
        """Pauses and circuits of all endpoints."""
        from watcher.edge.text_model import Gate

        return Gate()

    @cached_property
    def budget(self) -> StoreBudget:
        """The day's model calls."""
        return StoreBudget(self.store, lambda: self.config.budget.calls_per_day, self.clock)

    @cached_property
    def drafter(self) -> Drafter:
        """Makes titles and recaps."""
        from watcher.drafting import Drafter
        from watcher.edge.call_locks import CallLocks
        from watcher.edge.text_model import in_another_process, in_this_process

        return Drafter(
            lambda: self.config,
            self.store,
            self.gate,
            self.budget,
            environ=self.environ,
            clock=self.clock,
            note_tokens=lambda taken, given: self.store.add_tokens(local_day(self.clock()), taken, given),
            calls=CallLocks(self.state_directory),
            connect=in_another_process if self._stays else in_this_process,
        )


def first_cwd(path: str) -> str:
    """The working directory that the first record of a session file names, "" when there is none."""
    from watcher.qwen.jsonl import split_lines
    from watcher.qwen.records import decode

    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path may hold bytes that are no text
            head = file.read(WINDOW_BYTES)
    except OSError:
        return ""
    return next((event.cwd for line in split_lines(head) for event in decode(line)), "")


def refused_mount(path: str) -> str:
    """Why files at this path are never written, "" on a local file system (design 8: NFS, CIFS/SMB and sshfs)."""
    found = file_system_of(path)
    return found.reason if found.is_network else ""


def is_local_disk(path: Path) -> bool:
    """Whether no other machine can reach this directory."""
    return file_system_of(str(path)).kind is FileSystemKind.NATIVE
