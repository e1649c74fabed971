"""Stories with the real Qwen Code, played side by side: nearly all that they do is wait, for a start or for time.

A story is a function of a `Stage`, an empty home and two model servers of its own, so stories cannot meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import qwen_code
from tests.support.chat_server import ChatServer
from tests.support.qwen_code import Home
from tests.support.watching import watcher_env

MODEL = "watcher-model"


@dataclass(frozen=True)
class Stage:
    """What a story begins with: a home, Qwen Code's own model server, and the watcher's, which is explicit.

    `settings` are those of every watcher, by dotted key, unless the story says otherwise.
    """

    home: Home
    server: ChatServer
    model: ChatServer
    root: Path
    settings: Mapping[str, object]

    def env(
        self,
        settings: Mapping[str, object] | None = None,
        extra: Mapping[str, str] | None = None,
        *,
        state: str = "state",
    ) -> dict[str, str]:
        """The environment of a watcher; `state` is the name of its state directory."""
        model = {"model.source": "explicit", "model.name": MODEL, "model.base_url": self.model.base_url}
        return watcher_env(self.home.path, self.root / state, model | dict(self.settings) | dict(settings or {}), extra)

    def calls(self) -> int:
        """How often the watcher's model was asked."""
        return len(self.model.requests())


Story = Callable[[Stage], str | None]
"""What it has to report, if anything, is for who reads the test's output."""
Told = Mapping[tuple[str, str], Future[str | None]]
"""The outcome of every chosen story, by name and version."""


@contextmanager
def told(
    request: pytest.FixtureRequest,
    folders: pytest.TempPathFactory,
    stories: Mapping[str, Story],
    stage: Callable[[Home, ChatServer, ChatServer, Path], Stage],
    *,
    at_once: int,
) -> Iterator[Told]:
    """Plays the stories that the chosen tests of the requesting module name (parameters `name` and `version`), so many
    at a time, and gives their outcomes at once.
    """

    def play(name: str, version: str, root: Path) -> str | None:
        with ChatServer() as server, ChatServer() as model:
            return stories[name](stage(Home(root, qwen_code.install(version)), server, model, root))

    items = [each for each in request.session.items if isinstance(each, pytest.Function)]
    wanted = [each.callspec.params for each in items if each.module is request.module and hasattr(each, "callspec")]
    chosen = [(str(params["name"]), str(params["version"])) for params in wanted if "name" in params]
    for _, version in chosen:
        qwen_code.install(version)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="story")
    try:
        yield {each: pool.submit(play, *each, folders.mktemp("story")) for each in chosen}
    finally:
        pool.shutdown(cancel_futures=True)
