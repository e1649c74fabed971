"""What the change feed says about real directories."""

from __future__ import annotations

import logging
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from watcher.edge.change_values import (
    Backend,
    Change,
    Mode,
    RegistryTouched,
    RescanAll,
    Root,
    RootKind,
    RootsChanged,
    SidecarTouched,
    Touched,
    TreeChanged,
    poll_seconds,
)
from watcher.edge.changes import ChangeFeed
from watcher.edge.inbox import Inbox
from watcher.edge.watch_limits import explain_limit

ID = "0b8f4c1e-7a52-4f0e-9d53-5c1f0f7a9e01"
OTHER = "0b8f4c1e-7a52-4f0e-9d53-5c1f0f7a9e02"
DEADLINE_SECONDS = 15.0
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's /proc or inotify")


class Feed:
    """A running feed over one home, and what it has said."""

    def __init__(self, home: Path, **options: object) -> None:
        self.projects = Root(str(home / "projects"), RootKind.PROJECTS)
        self.registry = Root(str(home / "sessions"), RootKind.REGISTRY)
        self.inbox: Inbox[Change] = Inbox(RescanAll("too many"), lambda _value: True)
        self.feed = ChangeFeed([self.projects, self.registry], self.inbox.put, **options)  # type: ignore[arg-type]
        self.seen: list[Change] = []

    def wait_for(self, *wanted: Change) -> None:
        """Take values until each wanted one has come; fails after the deadline."""
        end = time.monotonic() + DEADLINE_SECONDS
        missing = set(wanted)
        while missing and (left := end - time.monotonic()) > 0:
            value = self.inbox.get(left)
            if value is not None:
                self.seen.append(value)
                missing.discard(value)
        assert not missing, (missing, self.seen)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Verify at each value until the condition holds; fails after the deadline."""
        end = time.monotonic() + DEADLINE_SECONDS
        while not condition() and time.monotonic() < end:
            if self.inbox.get(0.2) is not None:
                self.feed.verify()
        assert condition(), self.feed.states

    def settle(self, path: Path) -> list[Change]:
        """Everything said until a fresh touch of `path`, and a file made beside it after that, arrive; these are not
        returned. What tells of bytes in a file overtakes all other events, so a new file must come last.
        """
        self.seen.clear()
        append(path)
        last = path.with_name(f"{uuid.uuid4()}.jsonl")
        last.touch()
        known = {Touched(str(path)), Touched(str(last))}
        self.wait_for(*known)
        return [value for value in self.seen if value not in known]

    @property
    def modes(self) -> list[Mode]:
        return [state.mode for state in self.feed.states]


@contextmanager
def running(home: Path, **options: object) -> Iterator[Feed]:
    threads = threading.active_count()
    feed = Feed(home, **options)
    feed.feed.start()
    try:
        yield feed
    finally:
        feed.feed.stop()
    assert threading.active_count() == threads


def append(path: Path, text: str = "{}\n") -> None:
    with path.open("a") as file:
        file.write(text)


def make_project(home: Path, name: str = "-p") -> Path:
    chats = home / "projects" / name / "chats"
    (chats / "archive").mkdir(parents=True)
    return chats


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / ".qwen"
    (home / "sessions").mkdir(parents=True)
    make_project(home)
    return home


@pytest.fixture
def chats(home: Path) -> Path:
    return home / "projects" / "-p" / "chats"


def test_an_append_touches_the_transcript(home: Path, chats: Path) -> None:
    """Creating, growing, archiving and deleting a transcript each touch its path."""
    path = chats / f"{ID}.jsonl"
    with running(home) as feed:
        for act in (
            lambda: append(path),
            lambda: append(path),
            lambda: path.rename(chats / "archive" / path.name),
            lambda: (chats / "archive" / path.name).rename(path),
            path.unlink,
        ):
            act()
            feed.wait_for(Touched(str(path)))


def test_what_is_no_transcript_is_not_told(home: Path, chats: Path) -> None:
    """Subagent transcripts, archived ones, ledgers, sidecars of other kinds and staging files raise nothing."""
    agents = home / "projects" / "-p" / "subagents" / ID
    agents.mkdir(parents=True)
    (home / "projects" / "-p" / "memory").mkdir()
    with running(home) as feed:
        for path in (
            agents / f"agent-{ID}.jsonl",
            agents / f"{ID}.jsonl",
            chats / "archive" / f"{OTHER}.jsonl",
            chats / f"{ID}.ledger.jsonl",
            chats / f"{ID}.worktree.json",
            chats / f".{ID}.fork.tmp",
            home / "projects" / "-p" / "meta.json",
            home / "projects" / f"{ID}.jsonl",
            home / "projects" / "-p" / f"{ID}.jsonl",
            home / "sessions" / "12.json.0123456789ab.tmp",
            home / "settings.json",
        ):
            append(path)
        assert feed.settle(chats / f"{ID}.jsonl") == []


def test_sidecars_and_registry_records_are_told(home: Path, chats: Path) -> None:
    """A sidecar names its path; the registry is one value, also when a record is replaced by rename or removed."""
    record = home / "sessions" / "4711-0badcafe.json"
    temporary = record.with_name(record.name + ".0123456789ab.tmp")
    with running(home) as feed:
        append(chats / f"{ID}.runtime.json")
        feed.wait_for(SidecarTouched(str(chats / f"{ID}.runtime.json")))
        append(temporary)
        temporary.rename(record)
        feed.wait_for(RegistryTouched())
        record.unlink()
        feed.wait_for(RegistryTouched())


def test_a_project_made_in_one_go_is_seen(home: Path) -> None:
    """A new project whose transcript is written at once is told, at least as a directory to look at (report F6)."""
    with running(home) as feed:
        chats = make_project(home, "-new")
        append(chats / f"{ID}.jsonl")
        feed.wait_for(TreeChanged(str(chats)))
        feed.settle(chats / f"{ID}.jsonl")


def test_a_renamed_project_is_told_with_both_names(home: Path, chats: Path) -> None:
    """After a rename both directories are to be looked at, and appends carry the new path (report F5)."""
    path = chats / f"{ID}.jsonl"
    append(path)
    with running(home) as feed:
        (home / "projects" / "-p").rename(home / "projects" / "-q")
        moved = home / "projects" / "-q" / "chats"
        feed.wait_for(TreeChanged(str(chats)), TreeChanged(str(moved)))
        feed.settle(moved / path.name)  # the files inside are told as well, under both names
        assert feed.settle(moved / path.name) == []
    assert not chats.exists()


def test_a_project_moved_in_from_elsewhere_is_followed(home: Path, tmp_path: Path) -> None:
    """Directories that were complete before they came are looked at and watched (report F4)."""
    elsewhere = make_project(tmp_path / "elsewhere")
    append(elsewhere / f"{ID}.jsonl")
    with running(home) as feed:
        elsewhere.parent.rename(home / "projects" / "-moved")
        chats = home / "projects" / "-moved" / "chats"
        feed.wait_for(TreeChanged(str(chats)))
        feed.settle(chats / f"{ID}.jsonl")


@pytest.mark.parametrize("linked", ["home", "roots"])
def test_roots_behind_links_work_and_keep_their_given_name(home: Path, tmp_path: Path, linked: str) -> None:
    """A linked home, or linked roots, as dotfile managers make them, give values under the configured path (F8)."""
    link = tmp_path / "link"
    if linked == "home":
        link.symlink_to(home)
    else:
        link.mkdir()
        for name in ("projects", "sessions"):
            (link / name).symlink_to(home / name)
    with running(link) as feed:
        assert feed.modes == [Mode.NATIVE, Mode.NATIVE]
        append(home / "projects" / "-p" / "chats" / f"{ID}.jsonl")
        feed.wait_for(Touched(str(link / "projects" / "-p" / "chats" / f"{ID}.jsonl")))
        append(home / "sessions" / "77.json")
        feed.wait_for(RegistryTouched())


def test_roots_that_do_not_exist_yet_are_found_when_they_come(tmp_path: Path) -> None:
    """The nearest existing parent is watched, step by step, until the roots are there."""
    home = tmp_path / "a" / "b" / ".qwen"
    with running(home) as feed:
        assert feed.modes == [Mode.MISSING, Mode.MISSING]
        chats = make_project(home)
        feed.wait_until(lambda: feed.modes[0] is Mode.NATIVE)
        feed.settle(chats / f"{ID}.jsonl")
        (home / "sessions").mkdir()
        feed.wait_until(lambda: feed.modes[1] is Mode.NATIVE)
        append(home / "sessions" / "1.json")
        feed.wait_for(RegistryTouched())


@linux_only
@pytest.mark.parametrize(("away", "times"), [("delete", 10), ("move", 3)])
def test_a_root_that_is_made_anew_is_followed_with_the_same_means(
    home: Path, tmp_path: Path, away: str, times: int
) -> None:
    """Deleted or moved away and made again, several times: still followed, with as many threads and descriptors."""
    projects = home / "projects"
    with running(home) as feed:
        threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for number in range(times):
            if away == "delete":
                shutil.rmtree(projects)
            else:
                projects.rename(tmp_path / f"away{number}")
            chats = make_project(home)
            path = chats / f"{ID}.jsonl"
            end = time.monotonic() + DEADLINE_SECONDS
            while True:
                append(path)
                value = feed.inbox.get(0.1)
                if value == RootsChanged():
                    feed.feed.verify()
                if value == Touched(str(path)):
                    break
                assert time.monotonic() < end
        feed.wait_until(lambda: threading.active_count() == threads)
        assert len(os.listdir("/proc/self/fd")) == descriptors


def test_verify_finds_what_raises_no_event(home: Path, tmp_path: Path) -> None:
    """A whole home moved away is noticed by the reconcile, and its return as well."""
    with running(home) as feed:
        assert feed.feed.verify() == ()
        home.rename(tmp_path / "away")
        assert set(feed.feed.verify()) == {feed.projects, feed.registry}
        assert feed.modes == [Mode.MISSING, Mode.MISSING]
        (tmp_path / "away").rename(home)
        assert set(feed.feed.verify()) == {feed.projects, feed.registry}
        feed.settle(home / "projects" / "-p" / "chats" / f"{ID}.jsonl")


@linux_only
def test_an_append_waits_for_no_other_event(home: Path, chats: Path) -> None:
    """Bytes in a known file are told while another event is still being dealt with, in the thread that reads first."""
    path, let_go = chats / f"{ID}.jsonl", threading.Event()
    append(path)
    told: queue.SimpleQueue[Change] = queue.SimpleQueue()

    def sink(value: Change) -> None:
        told.put(value)
        if isinstance(value, TreeChanged):
            let_go.wait(4 * DEADLINE_SECONDS)

    feed = ChangeFeed([Root(str(home / "projects"), RootKind.PROJECTS)], sink)
    feed.start()
    try:
        make_project(home, "-q")
        while not isinstance(told.get(timeout=DEADLINE_SECONDS), TreeChanged):
            pass
        append(path)
        assert told.get(timeout=DEADLINE_SECONDS) == Touched(str(path))
    finally:
        let_go.set()
        feed.stop()


@linux_only
def test_other_readers_and_idleness_wake_nothing(home: Path, chats: Path) -> None:
    """While another program reads the whole tree again and again, no thread of the feed runs (report F7)."""
    for number in range(40):
        append(chats / f"{ID[:-2]}{number:02}.jsonl", "{}\n" * 50)
    main = threading.get_native_id()

    def switches() -> int:
        lines = [
            line
            for task in Path("/proc/self/task").iterdir()
            if int(task.name) != main
            for line in (task / "status").read_text().splitlines()
        ]
        return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

    with running(home) as feed:
        feed.settle(chats / f"{ID}.jsonl")
        end = time.monotonic() + DEADLINE_SECONDS
        before = -1
        while before != switches() and time.monotonic() < end:
            before = switches()
            feed.inbox.get(0.1)  # until all threads have gone back to sleep
        for _ in range(5):
            subprocess.run(["grep", "-r", "nothing", str(home)], check=False, capture_output=True)
        assert feed.inbox.get(0.3) is None
        assert switches() - before <= 5  # each of the 400 opens and closes would be one


@linux_only
def test_lost_events_lead_to_a_rescan(home: Path, chats: Path) -> None:
    """When the kernel's queue overflows, everything is looked at once, and later events come as before."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"needs {limit} events to overflow")
    paths = [chats / f"{ID[:-2]}{number:02}.jsonl" for number in range(8)]
    for path in paths:
        append(path)
    script = (
        "import sys\n"
        "from watcher.edge.changes import ChangeFeed\n"
        "from watcher.edge.change_values import *\n"
        "def say(value): print(repr(value), flush=True)\n"
        "feed = ChangeFeed([Root(sys.argv[1], RootKind.PROJECTS)], say)\n"
        "feed.start()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "feed.stop()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(home / "projects")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        lines = iter(child.stdout.readline, "")
        assert next(lines) == "ready\n"
        os.kill(child.pid, signal.SIGSTOP)
        files = [path.open("ab", buffering=0) for path in paths]
        for number in range(limit + 2000):
            files[number % len(files)].write(b"\n")  # neighbours differ, so that the kernel merges none
        for file in files:
            file.close()
        os.kill(child.pid, signal.SIGCONT)
        assert any("RescanAll" in line for line in lines)
        late = chats / f"{OTHER}.jsonl"
        append(late)
        assert any(str(late) in line for line in lines)
        child.stdin.close()  # type: ignore[union-attr]
        assert child.wait(DEADLINE_SECONDS) == 0


def refusing(error: OSError, only: str = "") -> Callable[[], BaseObserver]:
    """Makes real observers that refuse to watch: anything, or only the path `only`."""

    def make() -> BaseObserver:
        observer = Observer()
        schedule = observer.schedule

        def refuse(handler: object, path: str, **options: object) -> object:
            if only in ("", path):
                raise error
            return schedule(handler, path, **options)  # type: ignore[arg-type]

        observer.schedule = refuse  # type: ignore[method-assign,assignment]
        return observer

    return make


@linux_only
@pytest.mark.parametrize("number", [28, 24])
def test_reached_limits_turn_to_polling_with_the_remedy(home: Path, number: int) -> None:
    """No watches or instances left: everything is polled, no thread stays, and the reason names the sysctl (F1)."""
    threads = threading.active_count()
    error = OSError(number, "limit reached")
    with running(home, make_observer=refusing(error), explain=explain_limit) as feed:
        assert feed.modes == [Mode.POLLING, Mode.POLLING]
        assert feed.feed.needs_polling
        assert all("sudo sysctl fs.inotify.max_user_" in state.reason for state in feed.feed.states)
        assert threading.active_count() == threads
        assert feed.feed.verify() == ()


@linux_only
def test_watches_that_run_out_below_a_root_are_noticed(home: Path) -> None:
    """watchdog passes over subdirectories that it cannot watch; the feed finds out and polls."""
    error = OSError(28, "limit reached")
    with running(home, make_observer=refusing(error, only="/"), explain=explain_limit) as feed:
        assert feed.modes == [Mode.POLLING, Mode.POLLING]


def test_an_observer_that_cannot_be_made_turns_to_polling(home: Path) -> None:
    """No inotify instance left: the same, one step earlier."""

    def fail() -> BaseObserver:
        raise OSError(24, "inotify instance limit reached")

    with running(home, make_observer=fail) as feed:
        assert feed.modes == [Mode.POLLING, Mode.POLLING]


def test_a_network_file_system_is_polled_by_itself(home: Path) -> None:
    """Only the root on it is polled, and its reason is told (F9); `native` overrules that."""

    def no_events(path: str) -> str:
        return "/net is NFS (nfs4)" if path.endswith("projects") else ""

    with running(home, no_events=no_events) as feed:
        assert feed.modes == [Mode.POLLING, Mode.NATIVE]
        assert feed.feed.states[0].reason == "/net is NFS (nfs4)"
        append(home / "sessions" / "1.json")
        feed.wait_for(RegistryTouched())
    with running(home, no_events=no_events, backend=Backend.NATIVE) as feed:
        assert feed.modes == [Mode.NATIVE, Mode.NATIVE]


def test_polling_by_choice_starts_no_thread(home: Path) -> None:
    """`backend = "polling"` makes no observer; a missing root is told as missing."""
    threads = threading.active_count()
    shutil.rmtree(home / "sessions")
    with running(home, backend=Backend.POLLING) as feed:
        assert feed.modes == [Mode.POLLING, Mode.MISSING]
        assert threading.active_count() == threads
        (home / "sessions").mkdir()
        assert feed.feed.verify() == (feed.registry,)


def test_a_dead_observer_is_replaced(home: Path, chats: Path) -> None:
    """Should watchdog's thread ever end, the next verification starts over and asks to look at everything."""
    made: list[BaseObserver] = []

    def make() -> BaseObserver:
        made.append(Observer())
        return made[-1]

    with running(home, make_observer=make) as feed:
        made[0].stop()
        made[0].join()
        assert set(feed.feed.verify()) == {feed.projects, feed.registry}
        feed.settle(chats / f"{ID}.jsonl")


def test_starting_and_stopping_says_nothing(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Many starts and stops leave no line in the log: watchdog's own complaint about being stopped is none of it."""
    for _ in range(30):
        with running(home):
            pass
    logging.getLogger("watchdog.observers.inotify").error("queue_events() called when the thread is inactive")
    assert caplog.records == []


def test_polling_costs_at_most_one_percent_of_a_core() -> None:
    """The pause grows with the cost of a poll and never falls below the floor (F10)."""
    assert poll_seconds(0.001) == 5.0
    assert poll_seconds(0.2) == pytest.approx(20.0)
    assert poll_seconds(0.001, floor_seconds=2.0) == 2.0
