"""The rooms of the house and who may enter which: `docs/architecture.md` as a test.

Imports go inward only: core knows the standard library, the format knows core, edges know the format, the top knows
all.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "watcher"

ROOMS: dict[str, tuple[str, ...]] = {
    # room: the modules of it, by prefix; the longest prefix counts
    "core": ("watcher.core",),
    "qwen": ("watcher.qwen",),
    "errors": ("watcher.errors",),
    "version": ("watcher",),
    "paths": ("watcher.paths", "watcher.atomic_file"),
    "config": ("watcher.config",),
    "absence": ("watcher.absence",),
    "log": ("watcher.log", "watcher.log_lines"),
    "sdnotify": ("watcher.sdnotify",),
    "files": ("watcher.edge.files", "watcher.edge.lines", "watcher.edge.verifier", "watcher.edge.writer"),
    "changes": (
        "watcher.edge.changes",
        "watcher.edge.change_handlers",
        "watcher.edge.change_values",
        "watcher.edge.inotify_shortcuts",
    ),
    "liveness": ("watcher.edge.liveness", "watcher.edge.record_files", "watcher.edge.unregistered"),
    "store": (
        "watcher.edge.store",
        "watcher.edge.store_index",
        "watcher.edge.store_journal",
        "watcher.edge.store_rows",
        "watcher.edge.store_schema",
        "watcher.edge.database",
    ),
    "text_model": ("watcher.edge.text_model",),
    "edge": ("watcher.edge",),
    "pipeline": ("watcher.pipeline",),
    "work": (
        "watcher.recording",
        "watcher.appending",
        "watcher.retries",
        "watcher.title_journal",
        "watcher.signals",
        "watcher.drafting",
        "watcher.facts",
        "watcher.following",
        "watcher.holds",
        "watcher.plan",
        "watcher.calls",
        "watcher.saving",
        "watcher.desk",
        "watcher.catalog",
        "watcher.workplace",
        "watcher.instance",
        "watcher.explain",
        "watcher.overview",
        "watcher.requested",
        "watcher.backfilling",
        "watcher.model_keys",
        "watcher.shapes",
        "watcher.appending",
        "watcher.signals",
    ),
    "daemon": ("watcher.daemon", "watcher.handover", "watcher.happenings", "watcher.lookout", "watcher.reporting"),
    "api": ("watcher.api",),
    "service": ("watcher.service",),
    "doctor": ("watcher.doctor",),
    "cli": ("watcher.cli", "watcher.__main__"),
}
"""Modules of one room may import each other; the modules of `edge`, one outside thing each, may not."""

_EDGES = {"files", "changes", "liveness", "store", "text_model", "edge"}
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "errors": set(),
    "version": set(),
    "qwen": {"core", "errors"},
    "paths": {"errors"},
    "config": {"paths", "errors"},
    "absence": set(),
    "log": {"core", "absence"},
    "sdnotify": set(),
    "files": {"core", "qwen", "errors"},
    "changes": {"core", "qwen", "errors"},
    "liveness": {"core", "qwen", "errors"},
    "store": {"core", "errors"},
    "text_model": {"core", "errors", "version"},
    "edge": {"core", "qwen", "errors", "sdnotify"},
    "pipeline": {"core", "errors"},
    "work": {"core", "qwen", "errors", "paths", "config", "log", "pipeline", "version", *_EDGES},
    "daemon": {
        "core", "qwen", "errors", "paths", "config", "log", "sdnotify", "pipeline", "work", "api", "version", *_EDGES,
    },
    "api": {"core", "qwen", "errors", "paths", "config", "log", "work", "version", *_EDGES},
    "service": {"errors", "paths", "config", "version"},
    "doctor": {"core", "qwen", "errors", "paths", "config", "service", "work", "api", "version", *_EDGES},
    "cli": {
        "core", "qwen", "errors", "paths", "config", "log", "work", "daemon", "api", "service", "doctor", "version",
        "sdnotify", "absence", *_EDGES,
    },
}  # fmt: skip


def module_of(path: Path) -> str:
    parts = ("watcher", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    fitting = [
        (prefix, room)
        for room, prefixes in ROOMS.items()
        for prefix in prefixes
        if module == prefix or (module.startswith(f"{prefix}.") and prefix != "watcher")
    ]
    assert fitting, f"{module} stands in no room: give it one, in ROOMS and in docs/architecture.md"
    return max(fitting)[1]


def imports_of(path: Path) -> list[str]:
    """Every module that the file imports, wherever in it, except for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [
                f"{node.module}.{a.name}"
                if (PACKAGE.parent / node.module.replace(".", "/") / f"{a.name}.py").exists()
                else node.module
                for a in node.names
            ]
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[module_of(path) for path in FILES])
def test_imports_go_inward(path: Path) -> None:
    """Each module imports only from rooms that its own may enter."""
    module = module_of(path)
    room = room_of(module)
    for imported in imports_of(path):
        if imported.split(".")[0] != "watcher":
            continue
        other = room_of(imported)
        same = other == room and (room != "edge" or imported == module)
        assert same or other in ALLOWED[room] - {room}, f"{module} imports {imported}: {room} may not enter {other}"


@pytest.mark.parametrize("path", [path for path in FILES if "core" in path.parts], ids=str)
def test_core_knows_the_standard_library_only(path: Path) -> None:
    """No clock, file, process, network or third-party package in the pure ring."""
    outside = {"os", "time", "pathlib", "socket", "subprocess", "threading", "logging", "random", "uuid", "sys", "io"}
    for imported in imports_of(path):
        top = imported.split(".")[0]
        assert top == "watcher" or top in sys.stdlib_module_names, f"{path}: {imported}"
        assert top not in outside, f"{path}: {imported}"
