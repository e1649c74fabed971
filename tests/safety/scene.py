"""A session on a real disk and our side of it as one process has it, with hooks around each system call."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.safety import reader
from tests.safety.invariants import KEYS, Violation
from tests.support.transcripts import Transcript
from watcher.core.owner import Alive, Owner, Ownership, OwnerSource
from watcher.core.write_rules import RecapBasis
from watcher.core.writing import WriteOutcome
from watcher.edge.files import FileStat, RealFiles
from watcher.edge.store import JournalEntry, Store
from watcher.edge.writer import SessionWriter
from watcher.qwen.paths import SessionRef, session_ref
from watcher.qwen.reading import read_state
from watcher.recording import Recorder, StoreIntents

NOW = 1_796_100_000.0
OLD = 1_796_000_050.25

Act = Callable[[], object]


@dataclass(slots=True)
class Tally:
    """Faults injected, lines of ours looked at, what was found wrong, and what could not be tried here."""

    faults: int = 0
    lines: int = 0
    violations: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in another one."""
        self.faults += other.faults
        self.lines += other.lines
        self.violations += other.violations
        self.skipped += other.skipped


class Hooked(RealFiles):
    """The real calls, numbered; `before(number, name)` and `after(number, name)` surround each."""

    def __init__(self) -> None:
        self.before: Callable[[int, str], None] = lambda number, name: None
        self.after: Callable[[int, str], None] = lambda number, name: None
        self.names: list[str] = []
        self.take: int | None = None
        self.lies_about_room = False

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        number = len(self.names)
        self.names.append(name)
        self.before(number, name)
        try:
            yield
        finally:
            self.after(number, name)

    def open_append(self, path: str) -> int:
        with self._call("open_append"):
            return super().open_append(path)

    def open_read(self, path: str) -> int:
        with self._call("open_read"):
            return super().open_read(path)

    def try_lock(self, fd: int) -> bool:
        with self._call("try_lock"):
            return super().try_lock(fd)

    def fstat(self, fd: int) -> FileStat:
        with self._call("fstat"):
            return super().fstat(fd)

    def lstat(self, path: str) -> FileStat:
        with self._call("lstat"):
            return super().lstat(path)

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        with self._call("read_at"):
            return super().read_at(fd, length, offset)

    def write(self, fd: int, data: bytes) -> int:
        with self._call("write"):
            if self.take is not None:
                data, self.take = data[: self.take], None
            return super().write(fd, data) if data else 0

    def sync(self, fd: int) -> None:
        with self._call("sync"):
            super().sync(fd)

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        with self._call("set_times"):
            super().set_times(fd, atime_ns, mtime_ns)

    def touch_now(self, fd: int) -> None:
        with self._call("touch_now"):
            super().touch_now(fd)

    def room(self, fd: int, size: int) -> int:
        with self._call("room"):
            return 1 << 40 if self.lies_about_room else super().room(fd, size)


class HookedStore(Store):
    """The real state database, whose changes are numbered like the calls."""

    files: Hooked | None = None

    def put_intent(self, uuid: str, data: object) -> None:
        with self._named("put_intent"):
            super().put_intent(uuid, data)  # type: ignore[arg-type]

    def drop_intent(self, uuid: str) -> None:
        with self._named("drop_intent"):
            super().drop_intent(uuid)

    def record(self, entry: JournalEntry, intent: str = "") -> int:
        with self._named("record"):
            return super().record(entry, intent)

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        if self.files is None:
            yield
        else:
            with self.files._call(name):
                yield


class Scene:
    """A home with one session that ended a while ago, and our state directory."""

    def __init__(self, folder: Path, kind: str = "title", base: Path | None = None) -> None:
        self.folder = folder
        self.kind = kind
        self.base = base or folder / ".qwen"
        self.session = Transcript(self.base / "projects" / "-home-user-proj" / "chats")
        self.session.turn("fix the login test", "Done, added a wait.")
        if kind == "title behind a torn line":
            with self.session.path.open("ab") as file:
                file.write(b'{"uuid":"5b0ba2f4-torn","parentUuid":"')
        self.path = self.session.path
        self.session.set_mtime(OLD)
        self.before = self.path.read_bytes()
        self.native = [record["uuid"] for record in self._native(self.before)]

    @property
    def ref(self) -> SessionRef:
        """The session."""
        ref = session_ref(str(self.path))
        assert ref is not None
        return ref

    @staticmethod
    def _native(data: bytes) -> list[reader.Record]:
        return [record for record in reader.active_chain(data) if record["type"] in ("user", "assistant")]

    def turn(self) -> None:
        """The terminal goes on, chained to its own tail."""
        self.native += [self.session.user("and now the logout"), self.session.assistant("Done too.")]

    def open(self, files: Hooked) -> tuple[Store, Recorder]:
        """Our side, as one process has it."""
        store = HookedStore.open(self.folder / "state")
        assert isinstance(store, HookedStore)
        store.files = files
        writer = SessionWriter(
            files,
            StoreIntents(store),
            clock=lambda: NOW,
            new_uuid=lambda: str(uuid.uuid4()),
            pause=lambda _: None,
        )
        gone = Owner(pid=1, kind="tui", session_id="", alive=Alive.GONE, source=OwnerSource.REGISTRY)
        recorder = Recorder(
            store,
            writer,
            ownership=lambda _: Ownership((gone,)),
            refused_mount=lambda _: "",
            clock=lambda: NOW,
        )
        return store, recorder

    def write(self, files: Hooked) -> WriteOutcome:
        """One write by one process of ours."""
        store, recorder = self.open(files)
        try:
            if self.kind == "recap":
                turn = next(record["uuid"] for record in reader.records(self.before) if record["type"] == "user")
                return recorder.recap(self.ref, "Fixing login. Next: tests.", "m", RecapBasis(turn))
            self._race(files)
            return recorder.automatic_title(self.ref, "Fix login test", "m")
        finally:
            store.files = None  # type: ignore[attr-defined]
            store.close()

    def _race(self, files: Hooked) -> None:
        given = files.before
        raced = False

        def before(number: int, name: str) -> None:
            nonlocal raced
            if name == "write" and not raced and "racing" in self.kind:
                raced = True
                if self.kind.endswith("turn"):
                    self.turn()
                else:
                    self.session.title("My name", "manual")
            given(number, name)

        files.before = before

    def next_start(self, files: Hooked | None = None) -> None:
        """Another process of ours: it recovers, and delivers what is due."""
        store, recorder = self.open(files or Hooked())
        try:
            recorder.recover(session_ref)
            if not self.path.exists() or self.path.is_symlink():
                return
            data = self.path.read_bytes()
            reading = read_state(
                lambda length, offset: data[offset : offset + length],
                dev=0, ino=0, size=len(data), window=1 << 26,
            )  # fmt: skip
            recorder.deliver(self.ref, reading.state, reading.size, self.path.stat().st_mtime, None)
            if store.intents():
                raise Violation("a write is still open after the next start")
        finally:
            store.files = None  # type: ignore[attr-defined]
            store.close()

    # -- judging ------------------------------------------------------------------------------------------------------

    def check_bytes(self, path: Path | None = None, *, cut: bool = False) -> int:
        """The file is what it was, or longer by whole lines of ours and of the terminal. Returns how many are ours."""
        data = (path or self.path).read_bytes()
        if not data.startswith(self.before):
            raise Violation("an existing byte was changed")
        added = data[len(self.before) :]
        if added and not added.endswith(b"\n"):
            raise Violation("the file ends in a part of a line")
        return sum(self._check_line(line, cut=cut) for line in added.split(b"\n") if line)

    def _check_line(self, line: bytes, *, cut: bool) -> bool:
        try:
            record = json.loads(line)
        except ValueError:
            if cut and line.startswith(b'{"uuid":"'[: len(line)]):
                return False
            raise Violation(f"a line that is no record: {line[:60]!r}") from None
        if list(record) != KEYS:
            return False  # the terminal's own
        if json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() != line:
            raise Violation("a line of ours is not compact")
        if record["sessionId"] != self.session.session_id:
            raise Violation("a line of ours has another session id")
        return True

    def check_conversation(self, path: Path | None = None) -> None:
        """Every turn is there, in its order, also after the terminal has gone on."""
        path = path or self.path
        for _ in range(2):
            found = [record["uuid"] for record in self._native(path.read_bytes())]
            if found != self.native:
                raise Violation(f"turns {found} instead of {self.native}")
            self.session.path = path
            self.session.tail = reader.leaf(path.read_bytes())
            if not path.read_bytes().endswith(b"\n"):
                return  # a torn line that is not ours: what is glued to it is lost in any case
            self.turn()

    def check_title(self) -> None:
        """A name that was given stands."""
        data = self.path.read_bytes()
        if b"My name" in data:
            found = reader.shown_title(data)
            if found is None or found[0] != "My name":
                raise Violation(f"the title is {found}")

    def check_time(self) -> None:
        """Nobody else wrote: the modification time is what it was. Somebody did: it is not."""
        old = self.path.stat().st_mtime == OLD
        if old and "racing" in self.kind and self.path.read_bytes().count(b"\n") > self.before.count(b"\n") + 1:
            raise Violation("the modification time was turned back behind somebody's write")
        if not old and "racing" not in self.kind:
            raise Violation("the modification time moved although nobody else wrote")


@contextmanager
def scene(kind: str = "title") -> Iterator[Scene]:
    """A scene in a folder of its own, which is removed."""
    folder = Path(tempfile.mkdtemp(prefix="qwen-watcher-safety-"))
    try:
        yield Scene(folder, kind)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def calls_of(kind: str) -> list[str]:
    """The calls of one undisturbed write, in order."""
    with scene(kind) as made:
        files = Hooked()
        made.write(files)
        return files.names


def in_child(work: Act) -> int:
    """Run this in a process of its own; returns its exit status as `os.waitpid` gives it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - the process ends here, and its parent is to see why
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]
