"""What all measurements share: the generated home, a folder for states, a model server that answers at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.process import Running, script
from bench.tree import Tree
from tests.support.chat_server import ChatServer

TEXT = "some words of a session that goes on and on, " * 40
"""The text of a record of about two kilobytes."""


@dataclass(slots=True)
class Stage:
    """One run of the benchmark."""

    tree: Tree
    folder: Path
    server: ChatServer
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_path(self, name: str) -> Path:
        """A path that does not exist yet."""
        return self.folder / f"{name}-{next(self._numbers)}"

    @property
    def with_model(self) -> dict[str, object]:
        """Settings with a model over HTTP."""
        return {"model.source": "explicit", "model.name": "bench-model", "model.base_url": self.server.base_url}

    def bare_handler(self, out: Path) -> Running:
        """The plainest watchdog handler on the tree."""
        return script("bare_handler", self.tree.home, str(self.tree.root), str(out))

    def five_libraries(self) -> Running:
        """Python with the five libraries imported."""
        return script("five_libraries", self.tree.home)


@contextmanager
def stage(tree: Tree, folder: Path) -> Iterator[Stage]:
    """The shared things, the server closed at the end."""
    with ChatServer(title="Repair the login form") as server:
        yield Stage(tree, folder, server)
