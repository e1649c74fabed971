"""A home of Qwen Code made by the test itself, a model server, and the real watcher on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chat_server import ChatServer
from tests.support.transcripts import Transcript
from tests.support.watching import watcher_env

TITLE = "Repair the login form"
MODEL = "watcher-model"


class FakeHome:
    """`~/.qwen` with projects; sessions are written by the test in Qwen Code's form."""

    def __init__(self, root: Path) -> None:
        self.path = root / "home"
        self.config_dir = self.path / ".qwen"
        self.projects = self.config_dir / "projects"
        self.state = root / "state"
        self.path.mkdir(parents=True)

    def chats(self, project: str = "proj") -> Path:
        """The folder of one project's sessions; not made."""
        return self.projects / f"-home-user-{project}" / "chats"

    def session(self, project: str = "proj", *, turns: int = 1, ago: float = 1.0) -> Transcript:
        """A new terminal session with some turns, whose records are `ago` seconds old."""
        made = Transcript(self.chats(project), cwd=f"/home/user/{project}", at=time.time() - ago)
        for number in range(turns):
            made.turn(f"Please fix login bug number {number}", f"Done with {number}.")
        return made


@pytest.fixture
def home(tmp_path: Path) -> FakeHome:
    """An empty home."""
    return FakeHome(tmp_path)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """The watcher's model."""
    with ChatServer(title=TITLE) as made:
        yield made


@pytest.fixture
def env(home: FakeHome, server: ChatServer) -> dict[str, str]:
    """A watcher with an explicit model and a short settle time."""
    settings = {
        "model.source": "explicit",
        "model.name": MODEL,
        "model.base_url": server.base_url,
        "title.settle_seconds": 0.3,
    }
    return watcher_env(home.path, home.state, settings)
