"""Following one real file."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from watcher.edge.tailer import Change, Checkpoint, Tail, TailResult
from watcher.qwen.jsonl import LineSplitter, RawLine

NAME = "0b8f4c1e-7a52-4f0e-9d53-5c1f0f7a9e01.jsonl"

LineTail = Tail[RawLine, bytes]


def data_of(line: RawLine) -> Iterator[bytes]:
    yield line.data


def follow(path: Path, checkpoint: Checkpoint | None = None, *, chunk: int = 1 << 20, cold: int = 1 << 26) -> LineTail:
    return Tail(str(path), LineSplitter, data_of, checkpoint=checkpoint, chunk_bytes=chunk, cold_bytes=cold)


def drain(tail: LineTail, now: float = 0.0) -> tuple[list[TailResult[bytes]], list[bytes]]:
    results = [tail.poll(now)]
    while results[-1].more:
        results.append(tail.poll(now))
    return results, [item for result in results for item in result.items]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(b"one\ntwo\n")
    return path


def test_only_new_lines_are_delivered(path: Path) -> None:
    """First everything, then what was appended, then nothing."""
    tail = follow(path)
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"one", b"two"))
    append(path, b"three\n")
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"three",))
    assert tail.poll(0.0) == TailResult(Change.UNCHANGED)
    assert (tail.offset, tail.size) == (14, 14)


def test_lines_carry_their_offsets(path: Path) -> None:
    """Offsets are those in the file, also after a restart in the middle."""
    tail = Tail(str(path), LineSplitter, lambda line: (line,))
    tail.poll(0.0)
    append(path, b"three\n")
    again = Tail(str(path), LineSplitter, lambda line: (line,), checkpoint=tail.checkpoint)
    assert again.poll(0.0).items == (RawLine(8, 14, b"three"),)


def test_an_unfinished_line_is_held_back_and_dated(path: Path) -> None:
    """It is delivered once, whole, when its newline comes; how long it has stood unchanged is known."""
    tail = follow(path)
    append(path, b"thr")
    assert tail.poll(10.0).items == (b"one", b"two")
    assert (tail.torn_bytes, tail.torn_since, tail.offset) == (3, 10.0, 8)
    assert tail.poll(20.0).change is Change.UNCHANGED
    assert tail.torn_since == 10.0
    append(path, b"e")
    assert tail.poll(30.0) == TailResult(Change.GREW)
    assert tail.torn_since == 30.0
    append(path, b"e\nfo")
    assert tail.poll(40.0).items == (b"three",)
    assert (tail.torn_bytes, tail.torn_since) == (2, 40.0)
    append(path, b"ur\n")
    assert tail.poll(50.0).items == (b"four",)
    assert tail.torn_since is None


def test_a_cut_unfinished_line_voids_nothing(path: Path) -> None:
    """When only a torn line is removed or finished differently, what was delivered stands."""
    tail = follow(path)
    append(path, b"torn tail")
    tail.poll(0.0)
    os.truncate(path, 8)
    assert tail.poll(0.0).reset is False
    append(path, b"three, longer than the torn one\n")
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"three, longer than the torn one",))
    append(path, b"torn")
    tail.poll(0.0)
    os.truncate(path, path.stat().st_size - 4)
    append(path, b"four, longer\n")
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"four, longer",))


def test_truncation_starts_over(path: Path) -> None:
    """Fewer whole lines than delivered: everything is void and read again."""
    tail = follow(path)
    tail.poll(0.0)
    os.truncate(path, 4)
    result = tail.poll(0.0)
    assert result == TailResult(Change.TRUNCATED, (b"one",))
    assert result.reset
    append(path, b"new\n")
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"new",))


def test_a_file_emptied_and_written_again_starts_over(path: Path) -> None:
    """Nothing is delivered for the empty file, everything for what follows."""
    tail = follow(path)
    tail.poll(0.0)
    os.truncate(path, 0)
    assert tail.poll(0.0) == TailResult(Change.TRUNCATED)
    assert tail.checkpoint is None
    append(path, b"a\n")
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"a",))


@pytest.mark.parametrize("after_restart", [False, True])
@pytest.mark.parametrize("text", [b"1\n2\n3\n4\n5\n6\n", b"ONE\ntwo\nthree\n", b"one\nTWO\n"])
def test_a_rewritten_file_starts_over(path: Path, text: bytes, after_restart: bool) -> None:
    """Rewritten in place, as long as before or longer, with another first or last line (report D11)."""
    tail = follow(path)
    tail.poll(0.0)
    with path.open("r+b") as file:
        file.write(text)
    os.utime(path, ns=(1, 1))
    if after_restart:
        tail = follow(path, tail.checkpoint)
    assert tail.poll(0.0) == TailResult(Change.REWRITTEN, tuple(text.splitlines()))


@pytest.mark.parametrize("where", ["first line", "last line"])
def test_either_end_betrays_a_rewritten_file(path: Path, where: str) -> None:
    """A long file of which only the beginning, or only what stood before the offset, is not as it was."""
    first, middle, last = (letter * 200 + b"\n" for letter in (b"a", b"b", b"c"))
    path.write_bytes(first + middle + last)
    tail = follow(path)
    drain(tail)
    if where == "first line":
        first = b"A" * 200 + b"\n"
    else:
        last = b"C" * 200 + b"\n"
    with path.open("r+b") as file:
        file.write(first + middle + last + b"more\n")
    result = tail.poll(0.0)
    assert (result.change, len(result.items)) == (Change.REWRITTEN, 4)


def test_a_replaced_file_starts_over(path: Path) -> None:
    """Another file put at the path by rename is read from its start."""
    tail = follow(path)
    tail.poll(0.0)
    other = path.with_name("other")
    other.write_bytes(b"one\ntwo\nthree\n")
    other.replace(path)
    assert tail.poll(0.0) == TailResult(Change.REPLACED, (b"one", b"two", b"three"))


def test_deleted_and_made_again(path: Path) -> None:
    """Gone is told each time; a new file at the path starts over, whatever inode it got."""
    tail = follow(path)
    tail.poll(0.0)
    path.unlink()
    assert tail.poll(0.0).change is Change.GONE
    assert tail.poll(0.0).change is Change.GONE
    path.write_bytes(b"another first line\nand more\n")
    result = tail.poll(0.0)
    assert result.reset
    assert result.items == (b"another first line", b"and more")


def test_a_missing_file_that_comes_later(tmp_path: Path) -> None:
    """A sidecar may come before its transcript: there is nothing to start over then."""
    path = tmp_path / NAME
    tail = follow(path)
    assert tail.poll(0.0).change is Change.GONE
    path.write_bytes(b"one\n")
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"one",))


def test_archived_and_brought_back(path: Path) -> None:
    """A file that was moved into the archive is told as such; it goes on where it was when it returns."""
    archive = path.parent / "archive"
    archive.mkdir()
    tail = follow(path)
    tail.poll(0.0)
    path.rename(archive / NAME)
    assert tail.poll(0.0).change is Change.ARCHIVED
    (archive / NAME).rename(path)
    append(path, b"three\n")
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"three",))
    path.rename(path.with_name("elsewhere"))
    (archive / NAME).write_bytes(b"a stranger with the same name\n")
    assert tail.poll(0.0).change is Change.GONE


def test_a_renamed_directory_keeps_the_place(path: Path, tmp_path: Path) -> None:
    """The same file under a new path goes on, by the same tail or from its checkpoint (report F5)."""
    tail = follow(path)
    tail.poll(0.0)
    moved = path.rename(tmp_path / "moved.jsonl")
    append(moved, b"three\n")
    assert follow(moved, tail.checkpoint).poll(0.0) == TailResult(Change.GREW, (b"three",))
    tail.path = str(moved)
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"three",))


def test_a_checkpoint_survives_a_restart(path: Path) -> None:
    """Nothing is delivered twice or lost, the unfinished line included (report D13)."""
    append(path, b"thr")
    tail = follow(path)
    tail.poll(0.0)
    again = follow(path, tail.checkpoint)
    assert again.poll(0.0) == TailResult(Change.GREW)
    append(path, b"ee\n")
    assert again.poll(0.0).items == (b"three",)
    assert follow(path, again.checkpoint).poll(0.0) == TailResult(Change.UNCHANGED)


def test_a_checkpoint_of_another_file_starts_over(path: Path) -> None:
    """Restored from a backup: another inode."""
    tail = follow(path)
    tail.poll(0.0)
    content = path.read_bytes()
    path.rename(path.with_name("kept"))
    path.write_bytes(content)
    assert follow(path, tail.checkpoint).poll(0.0) == TailResult(Change.REPLACED, (b"one", b"two"))


def test_a_cold_start_far_into_the_file(path: Path) -> None:
    """Reading begins at most so far before the end, says so, and drops the line that it cuts."""
    append(path, b"a long third line\nfour\n")
    tail = follow(path, cold=10)
    size = path.stat().st_size
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"four",), skipped_bytes=size - 10)
    append(path, b"five\n")
    assert tail.poll(0.0) == TailResult(Change.GREW, (b"five",))
    exact = follow(path, cold=10)
    assert exact.poll(0.0).items == (b"four", b"five"), "the byte before the start ends a line"


def test_a_cold_start_inside_one_long_line(path: Path) -> None:
    """As long as the cut line has no end there is nothing to deliver and nothing to save."""
    append(path, b"x" * 100)
    tail = follow(path, cold=50, chunk=16)
    results, items = drain(tail)
    assert (len(results), items, tail.checkpoint) == (4, [], None)
    append(path, b"end of it\nthree\n")
    assert drain(tail)[1] == [b"three"]
    assert tail.checkpoint is not None
    append(path, b"four\n")
    assert drain(follow(path, tail.checkpoint))[1] == [b"four"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_chunks_change_nothing(path: Path, chunk: int) -> None:
    """Whatever is read at once, the same lines come, and `more` says when to go on."""
    append(path, b"three\n\nfive" + b"!" * 100 + b"\n")
    tail = follow(path, chunk=chunk)
    results, items = drain(tail)
    assert items == [b"one", b"two", b"three", b"", b"five" + b"!" * 100]
    assert len(results) == -(-path.stat().st_size // chunk)
    append(path, b"six\n")
    assert drain(tail)[1] == [b"six"]


def test_an_append_costs_its_own_bytes(path: Path) -> None:
    """With 50 MB before it, a small append reads little more than itself (report E1)."""
    append(path, (b"x" * 9999 + b"\n") * 5000)
    tail = follow(path)
    drain(tail)
    before = _bytes_read()
    for _ in range(100):
        append(path, b"y" * 1000 + b"\n")
        assert len(tail.poll(0.0).items) == 1
    assert _bytes_read() - before < 1_000_000


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_regular_file_is_not_read(path: Path, tmp_path: Path, kind: str) -> None:
    """A link, a pipe without a writer or a directory: told at once, without waiting."""
    target = tmp_path / "target"
    path.rename(target)
    if kind == "link":
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    result = follow(path).poll(0.0)
    assert (result.change, result.items) == (Change.UNSAFE, ())
    assert result.detail == ("a symbolic link" if kind == "link" else "not a regular file")


def test_a_file_that_may_not_be_read_keeps_its_place() -> None:
    """The refusal is a value; when the right comes back, reading goes on."""
    script = (
        "import os, sys, tempfile\n"
        "from watcher.edge.tailer import Tail\n"
        "from watcher.qwen.jsonl import LineSplitter\n"
        "if os.geteuid() == 0:\n"
        "    os.seteuid(65534)\n"
        "with tempfile.NamedTemporaryFile(buffering=0) as file:\n"
        "    tail = Tail(file.name, LineSplitter, lambda line: (line.data,))\n"
        "    file.write(b'one\\n')\n"
        "    print(tail.poll(0.0).items)\n"
        "    file.write(b'two\\n')\n"
        "    os.fchmod(file.fileno(), 0)\n"
        "    print(tail.poll(0.0).change, tail.poll(0.0).detail)\n"
        "    os.fchmod(file.fileno(), 0o600)\n"
        "    print(tail.poll(0.0).items)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["(b'one',)", "unreadable Permission denied", "(b'two',)"]


def test_no_descriptor_stays_open(path: Path, tmp_path: Path) -> None:
    """Many files cost no descriptor between polls, whatever a poll found."""
    paths = [path, tmp_path / "missing", tmp_path]
    tails = [follow(one) for one in paths for _ in range(50)]
    before = len(os.listdir("/dev/fd"))
    for tail in tails:
        tail.poll(0.0)
    assert len(os.listdir("/dev/fd")) == before


def test_access_times_stay(path: Path) -> None:
    """Reading an own file does not even change its access time, where the system can do that."""
    if not hasattr(os, "O_NOATIME"):
        pytest.skip("this system has no such flag")
    os.utime(path, ns=(1_000, 2_000))
    follow(path).poll(0.0)
    assert path.stat().st_atime_ns == 1_000


def test_a_huge_line_is_skipped_within_bounds(tmp_path: Path) -> None:
    """A sparse file of 3 GiB without a newline costs little memory, and what follows it is read (reports D7, E2)."""
    path = tmp_path / NAME
    path.write_bytes(b"")
    os.truncate(path, 3 << 30)
    append(path, b"\nlast\n")
    script = (
        "import resource, sys\n"
        "from watcher.edge.tailer import Tail\n"
        "from watcher.qwen.jsonl import LineSplitter\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "tail = Tail(sys.argv[1], LineSplitter, lambda line: (line.data,))\n"
        "before = peak()\n"
        "items = []\n"
        "while True:\n"
        "    result = tail.poll(0.0)\n"
        "    items += result.items\n"
        "    if not result.more:\n"
        "        break\n"
        "print(items, peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    items, _, grown = done.stdout.strip().rpartition(" ")
    unit = 1 if sys.platform == "darwin" else 1024
    assert items == "[b'last']"
    assert int(grown) * unit < 100 * 1024 * 1024


def _bytes_read() -> int:
    """Bytes that this process asked the kernel for, or the blocks that it counted."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512
    return int(lines[0].split()[1])


def test_a_link_put_at_the_path_in_the_last_moment_is_not_followed(path: Path, tmp_path: Path) -> None:
    """What the caller has just seen was a plain file; the open decides by itself."""
    seen = path.lstat()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert follow(path).poll(0.0, seen).change is Change.UNREADABLE
