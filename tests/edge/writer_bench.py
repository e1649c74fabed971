"""A guarded writer on real files, at whose every call something may happen."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

from tests.safety.scene import Hooked
from tests.support.transcripts import Transcript
from watcher.core.events import TitleSource
from watcher.core.writing import Intent, Payload, TitleLine, WriteOutcome
from watcher.edge.writer import SessionWriter, Target

NOW = 1_796_000_100.0
OLD = 1_796_000_050.5
TITLE = TitleLine("Fix login test", TitleSource.AUTO)


class Intents:
    """Keeps intents in memory."""

    def __init__(self) -> None:
        self.open: dict[str, Intent] = {}

    def begin(self, intent: Intent) -> None:
        self.open[intent.uuid] = intent

    def done(self, uuid: str) -> None:
        self.open.pop(uuid, None)


class Bench:
    """A writer on real files, with something that may happen before each call."""

    def __init__(self, session: Transcript) -> None:
        self.session = session
        self.intents = Intents()
        self.blocked = ""
        self.leased = ""
        self.use(Hooked())

    def use(self, files: Hooked) -> None:
        """A process of ours, with these calls."""
        self.files = files
        self.writer = SessionWriter(
            files,
            self.intents,
            clock=lambda: NOW,
            new_uuid=lambda: str(uuid.uuid4()),
            pause=lambda _: None,
        )

    @property
    def target(self) -> Target:
        """The session."""
        return Target(str(self.session.path), lambda: self.blocked or self.leased, lambda: self.leased)

    def at(self, name: str, what: Callable[[], object], nth: int = 1) -> None:
        """Let this happen before the nth call of this name."""
        given = self.files.before
        seen = 0

        def before(number: int, call: str) -> None:
            nonlocal seen
            given(number, call)
            seen += call == name
            if call == name and seen == nth:
                what()

        self.files.before = before

    def write(self, payload: Payload = TITLE) -> WriteOutcome:
        """One write."""
        return self.writer.append(self.target, lambda _: payload)

    def recover(self) -> WriteOutcome:
        """The next start, with the one intent that was left open."""
        self.use(Hooked())
        (intent,) = self.intents.open.values()
        return self.writer.recover(self.target, intent)

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.session.path.read_bytes()

    @property
    def mtime(self) -> float:
        """The file's modification time."""
        return self.session.path.stat().st_mtime


def raising(code: int) -> Callable[[], object]:
    """A system call that fails."""

    def fail() -> object:
        raise OSError(code, os.strerror(code))

    return fail


class Cut(BaseException):
    """The process ends here."""


def die() -> None:
    raise Cut
