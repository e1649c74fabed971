"""Finding session files, and which of them changed, by looking at real directories."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.edge.scan import (
    DirChanges,
    DirScan,
    Found,
    Reconciler,
    Unreadable,
    Unsafe,
    scan,
    scan_dir,
    unsafe_path,
    unsafe_reason,
)

ID = "0b8f4c1e-7a52-4f0e-9d53-5c1f0f7a9e{:02}"
OURS = os.geteuid()
NOBODY = 65534
LONG_AGO_NS = 10**18


class Saved:
    """What a store would remember: stamps a directory and its digest."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, tuple[int, int, int, int]]] = {}
        self.digests: dict[str, bytes] = {}
        self.asked = 0

    def stamps(self, directory: str) -> dict[str, tuple[int, int, int, int]]:
        self.asked += 1
        return self.rows.get(directory, {})

    def keep(self, changes: DirChanges) -> None:
        rows = self.rows.setdefault(changes.directory, {})
        for file in (*changes.new, *changes.changed):
            rows[os.path.basename(file.path)] = (file.dev, file.ino, file.size, file.mtime_ns)
        for path in changes.vanished:
            del rows[os.path.basename(path)]
        self.digests[changes.directory] = changes.digest

    def reconciler(self) -> Reconciler:
        return Reconciler.resume(self.digests, self.stamps, time.time_ns)


def write(path: Path, text: str = "{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(files: Iterable[Found]) -> list[str]:
    return sorted(os.path.relpath(file.path) for file in files)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "projects")


@pytest.fixture
def chats(root: str) -> Path:
    chats = Path(root) / "-p" / "chats"
    chats.mkdir(parents=True)
    return chats


def test_only_transcripts_directly_in_chats_are_found(root: str, chats: Path) -> None:
    """Archived files, subagents, ledgers, sidecars and strange names are left out; upper case is a transcript."""
    upper = ID.format(9).upper()
    for good in (f"{ID.format(1)}.jsonl", f"{upper}.jsonl", "a" * 32 + ".jsonl"):
        write(chats / good)
    for bad in (
        f"archive/{ID.format(2)}.jsonl",
        f"{ID.format(3)}.ledger.jsonl",
        f"{ID.format(3)}.runtime.json",
        f".{ID.format(3)}.fork.tmp",
        "x" * 36 + ".jsonl",
        "a" * 37 + ".jsonl",
        f"../subagents/{ID.format(4)}.jsonl",
        f"../{ID.format(5)}.jsonl",
        f"../../{ID.format(6)}.jsonl",
    ):
        write(chats / bad)
    (Path(root) / "-empty").mkdir()
    found = [item for item in scan(root) if isinstance(item, Found)]
    assert names(found) == sorted(f"projects/-p/chats/{name}.jsonl" for name in (ID.format(1), upper, "a" * 32))


def test_found_carries_what_stat_says(root: str, chats: Path) -> None:
    """Identity, size, time, links, owner and mode are those of the file."""
    path = write(chats / f"{ID.format(1)}.jsonl", "12345")
    status = path.stat()
    assert list(scan(root)) == [
        Found(
            str(path),
            status.st_dev,
            status.st_ino,
            5,
            status.st_mtime_ns,
            1,
            OURS,
            status.st_mode,
        )
    ]


def test_a_root_behind_a_link_is_scanned_under_its_given_name(root: str, chats: Path, tmp_path: Path) -> None:
    """Dotfile managers link whole directories (report F8)."""
    write(chats / f"{ID.format(1)}.jsonl")
    link = tmp_path / "link"
    link.symlink_to(root)
    assert [item.path for item in scan(str(link)) if isinstance(item, Found)] == [
        f"{link}/-p/chats/{ID.format(1)}.jsonl"
    ]


def test_unsafe_files_are_told_and_links_are_not_read(root: str, chats: Path, tmp_path: Path) -> None:
    """Links, pipes, directories, hard links and files that all may write to are named with the reason."""
    target = write(tmp_path / "outside.jsonl")
    (chats / f"{ID.format(1)}.jsonl").symlink_to(target)
    os.mkfifo(chats / f"{ID.format(2)}.jsonl")
    (chats / f"{ID.format(3)}.jsonl").mkdir()
    write(chats / f"{ID.format(4)}.jsonl")
    os.link(chats / f"{ID.format(4)}.jsonl", tmp_path / "second")
    write(chats / f"{ID.format(5)}.jsonl").chmod(0o666)
    write(chats / f"{ID.format(6)}.jsonl").chmod(0o664)
    items = list(scan(root))
    unsafe = {item.path[-8:-6]: item.why for item in items if isinstance(item, Unsafe)}
    assert unsafe == {
        "01": "a symbolic link",
        "02": "not a regular file",
        "03": "not a regular file",
        "04": "it has 2 hard links",
        "05": "everybody may write to it",
    }
    assert sorted(item.path[-8:-6] for item in items if isinstance(item, Found)) == ["04", "05", "06"]


def test_one_path_can_be_judged(chats: Path, tmp_path: Path) -> None:
    """The same reasons for a single path; nothing to say of a plain file or a missing one."""
    good, link = write(chats / f"{ID.format(1)}.jsonl"), chats / f"{ID.format(2)}.jsonl"
    link.symlink_to(good)
    assert (unsafe_path(str(good)), unsafe_path(str(tmp_path / "missing"))) == ("", "")
    assert unsafe_path(str(link)) == "a symbolic link"
    assert unsafe_path(str(good), uid=OURS + 1) == f"it belongs to user {OURS}"


def test_files_of_another_user_are_unsafe(chats: Path) -> None:
    """Whoever they belong to is named."""
    write(chats / f"{ID.format(1)}.jsonl")
    result = scan_dir(str(chats), uid=OURS + 1)
    assert isinstance(result, DirScan)
    assert [item.why for item in result.unsafe] == [f"it belongs to user {OURS}"]
    assert unsafe_reason(result.files[0], OURS) == ""


def test_what_cannot_be_listed_is_told(root: str, chats: Path, tmp_path: Path) -> None:
    """A missing root is empty; a root that is a file, and links instead of directories, are values, not errors."""
    assert list(scan(f"{root}/missing")) == []
    file = write(tmp_path / "file")
    assert list(scan(str(file))) == [Unreadable(str(file), errno.ENOTDIR)]
    outside = tmp_path / "outside" / "chats"
    write(outside / f"{ID.format(1)}.jsonl")
    (Path(root) / "-link").symlink_to(outside.parent)
    (Path(root) / "-q").mkdir()
    (Path(root) / "-q" / "chats").symlink_to(outside)
    assert set(scan(root)) == {
        Unreadable(f"{root}/-link", errno.ELOOP),
        Unreadable(f"{root}/-q/chats", errno.ELOOP),
    }


@contextmanager
def plain_user() -> Iterator[None]:
    """Root may list everything: be nobody for a moment."""
    if OURS == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if OURS == 0:
            os.seteuid(0)


def test_a_directory_without_permission_is_unreadable() -> None:
    """Its files are neither found nor gone, and other projects are still looked at."""
    with plain_user(), tempfile.TemporaryDirectory() as root:
        chats = Path(root) / "-p" / "chats"
        write(chats / f"{ID.format(1)}.jsonl")
        saved = Saved()
        for changes in saved.reconciler().full(root):
            assert isinstance(changes, DirChanges)
            saved.keep(changes)
        write(Path(root) / "-q" / "chats" / f"{ID.format(2)}.jsonl")
        chats.chmod(0)
        try:
            told = list(saved.reconciler().full(root))
        finally:
            chats.chmod(0o700)
        assert Unreadable(str(chats), errno.EACCES) in told
        assert [len(item.new) for item in told if isinstance(item, DirChanges)] == [1]


def test_a_root_that_vanished_is_not_a_deletion(root: str, chats: Path) -> None:
    """A home that is not mounted right now loses nothing; a project that is gone does."""
    write(chats / f"{ID.format(1)}.jsonl")
    saved = Saved()
    reconciler = saved.reconciler()
    for changes in reconciler.full(root):
        assert isinstance(changes, DirChanges)
        saved.keep(changes)
    os.rename(root, f"{root}.away")
    assert list(reconciler.full(root)) == [Unreadable(root, errno.ENOENT)]
    os.rename(f"{root}.away", root)
    assert list(reconciler.full(root)) == []
    shutil.rmtree(f"{root}/-p")
    assert list(reconciler.full(root)) == [DirChanges(str(chats), b"", vanished=(f"{chats}/{ID.format(1)}.jsonl",))]
    assert list(reconciler.full(root)) == [], "told once"


def test_a_saved_index_spares_every_lookup(root: str, chats: Path) -> None:
    """After a restart an unchanged tree yields nothing and no row is asked for; a changed file is the only one told."""
    paths = [write(chats / f"{ID.format(number)}.jsonl") for number in range(5)]
    saved = Saved()
    for changes in saved.reconciler().full(root):
        assert isinstance(changes, DirChanges)
        saved.keep(changes)
    saved.asked = 0
    assert list(saved.reconciler().full(root)) == []
    assert saved.asked == 0
    with paths[3].open("a") as file:
        file.write("{}\n")
    (changes,) = saved.reconciler().full(root)
    assert isinstance(changes, DirChanges)
    assert (names(changes.changed), changes.new, changes.vanished) == ([os.path.relpath(paths[3])], (), ())


def test_a_digest_that_was_not_saved_is_looked_at_again(root: str, chats: Path) -> None:
    """What was told but never kept is told again after a restart."""
    write(chats / f"{ID.format(1)}.jsonl")
    saved = Saved()
    assert len(list(saved.reconciler().full(root))) == 1
    assert len(list(saved.reconciler().full(root))) == 1


def test_unsafe_files_are_told_once(root: str, chats: Path) -> None:
    """Other changes in the same directory do not repeat them; a new reason does."""
    first = write(chats / f"{ID.format(1)}.jsonl")
    first.chmod(0o666)
    reconciler = Saved().reconciler()
    (changes,) = reconciler.full(root)
    assert isinstance(changes, DirChanges)
    assert [item.path for item in changes.unsafe] == [str(first)]
    write(chats / f"{ID.format(2)}.jsonl")
    (changes,) = reconciler.full(root)
    assert isinstance(changes, DirChanges)
    assert changes.unsafe == ()
    os.link(first, chats.parent / "other")
    (changes,) = reconciler.full(root)
    assert isinstance(changes, DirChanges)
    assert [item.why for item in changes.unsafe] == ["it has 2 hard links"]


def test_quick_sees_new_files_and_projects_without_looking_at_old_ones(root: str, chats: Path) -> None:
    """Directories whose time stands still are not listed, so an append stays for the full pass."""
    path = write(chats / f"{ID.format(1)}.jsonl")
    os.utime(chats, ns=(LONG_AGO_NS, LONG_AGO_NS))
    saved = Saved()
    reconciler = saved.reconciler()
    for changes in reconciler.full(root):
        assert isinstance(changes, DirChanges)
        saved.keep(changes)
    with path.open("a") as file:
        file.write("{}\n")
    assert list(reconciler.quick(root)) == []
    new = write(Path(root) / "-new" / "chats" / f"{ID.format(2)}.jsonl")
    (changes,) = reconciler.quick(root)
    assert isinstance(changes, DirChanges)
    assert names(changes.new) == [os.path.relpath(new)]
    saved.keep(changes)
    (changes,) = reconciler.full(root)
    assert isinstance(changes, DirChanges)
    assert names(changes.changed) == [os.path.relpath(path)]


def test_quick_does_not_trust_a_directory_that_changed_just_now(root: str, chats: Path) -> None:
    """A file that appears in the same tick of the clock as the last look is still found."""
    write(chats / f"{ID.format(1)}.jsonl")
    reconciler = Saved().reconciler()
    list(reconciler.full(root))
    status = chats.stat()
    second = write(chats / f"{ID.format(2)}.jsonl")
    os.utime(chats, ns=(status.st_atime_ns, status.st_mtime_ns))
    (changes,) = reconciler.quick(root)
    assert isinstance(changes, DirChanges)
    assert os.path.relpath(second) in names(changes.new)


def test_one_directory_can_be_looked_at(root: str, chats: Path) -> None:
    """New, unchanged, gone and never there: a value only when something differs."""
    write(chats / f"{ID.format(1)}.jsonl")
    saved = Saved()
    reconciler = saved.reconciler()
    changes = reconciler.directory(str(chats))
    assert isinstance(changes, DirChanges)
    saved.keep(changes)
    assert reconciler.directory(str(chats)) is None
    shutil.rmtree(chats)
    gone = reconciler.directory(str(chats))
    assert isinstance(gone, DirChanges)
    assert gone.vanished == (f"{chats}/{ID.format(1)}.jsonl",)
    assert reconciler.directory(f"{root}/-never/chats") is None


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["create", "append", "rewrite", "delete", "rename", "replace", "chmod", "restart", "look"]),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(ACTIONS)
def test_the_index_follows_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, int]]
) -> None:
    """After any history of changes, looks and restarts, keeping what one full pass tells gives the real state."""
    root = tmp_path_factory.mktemp("tree") / "projects"
    paths = [root / f"-{number % 2}" / "chats" / f"{ID.format(number)}.jsonl" for number in range(5)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    saved = Saved()
    reconciler = saved.reconciler()

    def look() -> None:
        for changes in reconciler.full(str(root)):
            assert isinstance(changes, DirChanges)
            saved.keep(changes)

    for number, (action, one, other) in enumerate(actions):
        path, target = paths[one], paths[other]
        if action == "create":
            path.write_text("{}\n")
        elif action == "append":
            with path.open("a") as file:
                file.write(f"{number}\n")
        elif action == "rewrite":
            path.write_text("x" * (number + 1))
        elif action == "replace":
            temporary = path.with_suffix(".tmp")
            temporary.write_text("x" * (number + 1))
            temporary.replace(path)
        elif action == "delete":
            path.unlink(missing_ok=True)
        elif action == "rename" and path.exists():
            path.replace(target)
        elif action == "chmod" and path.exists():
            path.chmod(0o600 if number % 2 else 0o666)
        elif action == "restart":
            reconciler = saved.reconciler()
        elif action == "look":
            look()
    look()
    real = {
        str(path): (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        for path in paths
        if path.exists() and (status := path.stat())
    }
    assert {
        f"{directory}/{name}": stamp for directory, rows in saved.rows.items() for name, stamp in rows.items()
    } == real
    assert list(saved.reconciler().full(str(root))) == []
