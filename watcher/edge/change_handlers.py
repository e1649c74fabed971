"""From what watchdog says of a path to values: which session file, sidecar, record or directory was touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from watchdog.events import FileSystemEvent, FileSystemEventHandler

from watcher.edge.change_values import (
    Change,
    RegistryTouched,
    Root,
    RootKind,
    RootsChanged,
    SidecarTouched,
    Touched,
    TreeChanged,
)
from watcher.qwen.contract import CHATS_DIR, registry_pid_of, session_id_of

_SIDECAR_END: Final = ".runtime.json"
_REMEMBERED: Final = 256
"""So many paths are sorted only once."""


class RootHandler(FileSystemEventHandler):
    """Turns paths below one root into values, in watchdog's thread."""

    def __init__(self, root: Root, resolved: str, sink: Callable[[Change], None]) -> None:
        self.targets: tuple[str, ...] = (resolved,)
        self.lost = False
        self._shown = root.path.rstrip("/")
        self._prefix = resolved.rstrip("/") + "/"
        self._sink = sink
        self._last: dict[bytes, Change | None] = {}
        self._sort = self._sort_project if root.kind is RootKind.PROJECTS else self._sort_registry

    def dispatch(self, event: FileSystemEvent) -> None:
        """Whatever watchdog says."""
        self._take(os.fsdecode(event.src_path), is_directory=event.is_directory)
        if event.dest_path:
            self._take(os.fsdecode(event.dest_path), is_directory=event.is_directory)

    def modified(self, path: bytes) -> None:
        """Bytes came into the file at `path`: the same few files again and again."""
        if path not in self._last:
            if len(self._last) >= _REMEMBERED:
                self._last.clear()
            name = os.fsdecode(path)
            self._last[path] = self._sort(name[len(self._prefix) :], False) if name.startswith(self._prefix) else None
        value = self._last[path]
        if value is not None:
            self._sink(value)

    def _take(self, path: str, *, is_directory: bool) -> None:
        if path.startswith(self._prefix):
            value = self._sort(path[len(self._prefix) :], is_directory)
            if value is not None:
                self._sink(value)
        elif path in self.targets and is_directory:
            self.lost = True
            self._sink(RootsChanged())

    def _sort_project(self, below: str, is_directory: bool) -> Change | None:
        if is_directory:
            project, _, rest = below.partition("/")
            return TreeChanged(f"{self._shown}/{project}/{CHATS_DIR}") if rest in ("", CHATS_DIR) else None
        directory, _, name = below.rpartition("/")
        if directory.partition("/")[2] != CHATS_DIR:
            return None
        if session_id_of(name) is not None:
            return Touched(f"{self._shown}/{below}")
        return SidecarTouched(f"{self._shown}/{below}") if name.endswith(_SIDECAR_END) else None

    @staticmethod
    def _sort_registry(below: str, is_directory: bool) -> Change | None:
        return RegistryTouched() if not is_directory and registry_pid_of(below) is not None else None


class AnchorHandler(FileSystemEventHandler):
    """Tells when a root below a parent may have come, gone or been moved."""

    def __init__(self, path: str, targets: tuple[str, ...], sink: Callable[[Change], None]) -> None:
        self.targets = targets
        self.lost = False
        self._path = path
        self._sink = sink

    def dispatch(self, event: FileSystemEvent) -> None:
        """Whatever watchdog says."""
        for raw in (event.src_path, event.dest_path):
            path = os.fsdecode(raw)
            if path == self._path:
                self.lost = True
            elif not any(f"{target}/".startswith(f"{path}/") for target in self.targets):
                continue
            self._sink(RootsChanged())
