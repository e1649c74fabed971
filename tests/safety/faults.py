"""Faults on the real write path: real files, a real state database, real signals; then the next start.

Every fault ends the same way: the session file is what it was, or longer by whole lines of ours (and, after a short
write, by the part of one that was taken, ended with a newline); another start finishes what was begun; and the user's
conversation is all there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.safety import reader
from tests.safety.invariants import KEYS, Violation
from tests.safety.scene import OLD, Hooked, Scene, Tally, calls_of, in_child, scene
from tests.support.transcripts import Transcript
from watcher.qwen.contract import lease_paths

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
KINDS = ("title", "recap", "title behind a torn line", "title beside a racing turn", "title beside a racing name")


def _judge(tally: Tally, what: str, made: Scene, *, cut: bool = False, finish: bool = True) -> None:
    """After a fault: the file, the next start, the conversation."""
    tally.faults += 1
    try:
        if finish:
            made.next_start()
        tally.lines += made.check_bytes(cut=cut)
        made.check_title()
        made.check_time()
        before = made.path.read_bytes()
        made.next_start()
        if made.path.read_bytes() != before:
            raise Violation("a second start wrote again")
        made.check_conversation()
    except Violation as violation:
        tally.violations.append(f"{what}: {violation}")


# -- the faults --------------------------------------------------------------------------------------------------------


def kills(kind: str) -> Tally:
    """SIGKILL before and after each call of a write, those to the state database included."""
    tally = Tally()
    for number, name in enumerate(calls_of(kind)):
        for when in ("before", "after"):
            with scene(kind) as made:
                status = in_child(partial(_write_and_die, made, number, when))
                if not os.WIFSIGNALED(status):
                    tally.violations.append(f"{kind}: not killed {when} {name}")
                if made.kind.endswith("turn") and len(made.path.read_bytes()) > len(made.before):
                    _learn(made)
                _judge(tally, f"{kind}: killed {when} call {number} ({name})", made)
    return tally


def _write_and_die(made: Scene, number: int, when: str) -> None:
    files = Hooked()

    def die(at: int, name: str) -> None:
        if at == number:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(files, when, die)
    made.write(files)


def _learn(made: Scene) -> None:
    """What the terminal wrote in the child is not known here: read it."""
    known = set(made.native)
    for record in reader.records(made.path.read_bytes()):
        if record["type"] in ("user", "assistant") and record["uuid"] not in known:
            made.native.append(record["uuid"])
            made.session.tail = record["uuid"]


def kills_in_recovery(kind: str = "title beside a racing turn") -> Tally:
    """Killed right after the write, and again before and after each call of the start that would have finished it."""
    tally = Tally()
    at = calls_of(kind).index("sync")
    with scene(kind) as made:
        in_child(partial(_write_and_die, made, at, "before"))
        files = Hooked()
        made.next_start(files)
        calls = len(files.names)
    for number in range(calls):
        for when in ("before", "after"):
            with scene(kind) as made:
                in_child(partial(_write_and_die, made, at, "before"))
                _learn(made)
                status = in_child(partial(_recover_and_die, made, number, when))
                if not os.WIFSIGNALED(status):
                    tally.violations.append(f"recovery: not killed {when} call {number}")
                _judge(tally, f"{kind}: recovery killed {when} call {number}", made)
    return tally


def _recover_and_die(made: Scene, number: int, when: str) -> None:
    files = Hooked()

    def die(at: int, name: str) -> None:
        if at == number:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(files, when, die)
    made.next_start(files)


def errors(kind: str) -> Tally:
    """Each call fails with each of the errors that a disk gives."""
    tally = Tally()
    for number, name in enumerate(calls_of(kind)):
        if name in ("put_intent", "drop_intent", "record"):
            continue  # these fail with an error of their own, see `tests/edge/test_recording.py`
        for code in ERRORS:
            with scene(kind) as made:
                files = Hooked()
                files.before = _failing(number, code)
                made.write(files)
                _judge(tally, f"{kind}: {errno.errorcode[code]} in call {number} ({name})", made)
    return tally


def _failing(number: int, code: int) -> Callable[[int, str], None]:
    def fail(at: int, name: str) -> None:
        if at == number:
            raise OSError(code, os.strerror(code))

    return fail


def short_writes(kind: str = "title") -> Tally:
    """The system takes a part of the line: it is ended, by this process or by the next."""
    tally = Tally()
    for taken in (0, 1, 8, 20, 60, 150, 250, 280):
        for closes in (True, False):
            with scene(kind) as made:
                files = Hooked()
                files.take = taken
                if not closes:
                    files.before = _no_second_write()
                made.write(files)
                _judge(tally, f"{kind}: {taken} bytes taken, {'ended' if closes else 'left open'}", made, cut=True)
    return tally


def _no_second_write() -> Callable[[int, str], None]:
    writes = 0

    def fail(number: int, name: str) -> None:
        nonlocal writes
        writes += name == "write"
        if name == "write" and writes == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return fail


def size_limits(kind: str = "title") -> Tally:
    """RLIMIT_FSIZE: refused beforehand; and a real short write where the check of the room is fooled."""
    tally = Tally()
    for spare in (0, 1, 30, 200):
        for fooled in (False, True):
            with scene(kind) as made:
                status = in_child(partial(_limited, made, spare, fooled))
                if status:
                    tally.violations.append(f"size limit: the child ended with {status}")
                if not fooled and made.path.read_bytes() != made.before:
                    tally.violations.append("size limit: something was written in spite of it")
                _judge(tally, f"size limit {spare}, {'fooled' if fooled else 'seen'}", made, cut=True)
    return tally


def _limited(made: Scene, spare: int, fooled: bool) -> None:
    files = Hooked()
    files.lies_about_room = fooled
    store, _ = made.open(files)  # made before the limit, so that it only meets the session file
    store.close()
    limit = made.path.stat().st_size + spare

    def limited(size: int) -> Callable[[int, str], None]:
        def change(number: int, name: str) -> None:
            if name in ("room", "write"):
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        return change

    files.before, files.after = limited(limit), limited(resource.RLIM_INFINITY)
    made.write(files)


def full_disk(kind: str = "title") -> Tally:
    """A file system without a free page, for a moment and for long: real ENOSPC and real short writes."""
    tally = Tally()
    if os.geteuid() != 0:
        tally.skipped.append("full disk: only root may mount a small tmpfs; this fault was NOT tried")
        return tally
    for slack in (0, 1, 100, 4000):
        for fooled in (False, True):
            folder = Path(tempfile.mkdtemp(prefix="qwen-watcher-safety-"))
            disk = folder / "disk"
            disk.mkdir()
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False
            )
            if mounted.returncode:
                tally.skipped.append("full disk: a small tmpfs may not be mounted here; this fault was NOT tried")
                shutil.rmtree(folder)
                return tally
            try:
                _fill_and_write(tally, Scene(folder, kind, disk / ".qwen"), disk, slack, fooled=fooled)
            finally:
                subprocess.run(["umount", str(disk)], check=True)
                shutil.rmtree(folder)
    return tally


def _fill_and_write(tally: Tally, made: Scene, disk: Path, slack: int, *, fooled: bool) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    size = made.path.stat().st_size
    filler = made.session.record("system", provenance="system", subtype="ui_telemetry", systemPayload={"x": ""})
    length = (-(size + len(json.dumps(filler, separators=(",", ":"))) + 1 + slack)) % page
    filler["systemPayload"]["x"] = "x" * length
    made.session.append(filler)
    made.session.set_mtime(OLD)
    made.before = made.path.read_bytes()
    assert (len(made.before) + slack) % page == 0
    fd = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(fd, b"x" * page):
            pass
    os.close(fd)
    files = Hooked()
    files.lies_about_room = fooled
    made.write(files)
    if not fooled and made.path.read_bytes() != made.before:
        tally.violations.append("full disk: something was written in spite of it")
    (disk / "filler").unlink()
    _judge(tally, f"full disk, {slack} bytes left, {'fooled' if fooled else 'seen'}", made, cut=True)


PLACES: dict[str, Callable[[Path], None]] = {}
"""What can become of a session file under our hands."""


def _place(name: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(change: Callable[[Path], None]) -> Callable[[Path], None]:
        PLACES[name] = change
        return change

    return register


@_place("archived")
def _archive(path: Path) -> None:
    (path.parent / "archive").mkdir(exist_ok=True)
    path.rename(path.parent / "archive" / path.name)


@_place("deleted")
def _delete(path: Path) -> None:
    path.rename(path.parent.parent / "deleted.jsonl")  # kept where the test can look at it


@_place("replaced")
def _replace(path: Path) -> None:
    path.rename(path.parent.parent / "moved.jsonl")
    Transcript(path.parent, session_id=path.stem).turn("something else", "Yes.")


@_place("made a link")
def _link(path: Path) -> None:
    path.rename(path.parent.parent / "target.jsonl")
    path.symlink_to(path.parent.parent / "target.jsonl")


@_place("given a second name")
def _second_name(path: Path) -> None:
    os.link(path, path.parent.parent / "second.jsonl")


def places(kind: str = "title") -> Tally:
    """The file is moved, replaced or linked before each call of a write."""
    tally = Tally()
    for name, change in PLACES.items():
        for number, call in enumerate(calls_of(kind)):
            with scene(kind) as made:
                tally.faults += 1
                try:
                    tally.lines += _moved(made, number, change)
                except Violation as violation:
                    tally.violations.append(f"{name} before call {number} ({call}): {violation}")
    return tally


def _moved(made: Scene, number: int, change: Callable[[Path], None]) -> int:
    files = Hooked()
    written_before = False

    def before(at: int, name: str) -> None:
        nonlocal written_before
        if at == number:
            written_before = "write" in files.names[:-1]
            change(made.path)

    files.before = before
    made.write(files)
    homes = [made.path.parent.parent, made.path.parent / "archive", made.path.parent]
    inodes = {found.stat().st_ino: found for home in homes for found in home.glob("*.jsonl") if not found.is_symlink()}
    sessions = [found for found in inodes.values() if found.read_bytes().startswith(made.before)]
    if len(sessions) != 1:
        raise Violation(f"the session file is not there any more: {sessions}")
    lines = made.check_bytes(sessions[0])
    # One that stood there before we opened it is the session as we know it.
    others = [found for found in inodes.values() if found != sessions[0]] if number else []
    if any(list(record) == KEYS for found in others for record in reader.records(found.read_bytes())):
        raise Violation("the file that was put in its place was written to")
    at_write = files.names[number] == "write"
    if lines and not (written_before or at_write or _too_late(files.names, number)):
        raise Violation("written although it was not at its path any more")
    made.check_conversation(sessions[0])
    return lines


def _too_late(names: list[str], number: int) -> bool:
    """Behind the last look at the path before the write, nothing can be known."""
    look = max(at for at, name in enumerate(names) if name == "lstat" and "write" not in names[:at])
    return number > look


def truncations(kind: str = "title") -> Tally:
    """Somebody cuts the file off before each call (Qwen Code never does): nothing of what is left is lost."""
    tally = Tally()
    for number, call in enumerate(calls_of(kind)):
        with scene(kind) as made:
            tally.faults += 1
            made.turn()
            whole = made.path.read_bytes()
            kept = whole[: len(made.before)]
            made.before = whole
            files = Hooked()
            files.before = lambda at, name, number=number, made=made, kept=kept: (  # type: ignore[misc]
                os.truncate(made.path, len(kept)) if at == number else None
            )
            made.write(files)
            made.before = kept
            made.native = made.native[:2]
            try:
                made.next_start()
                tally.lines += made.check_bytes()
                made.check_conversation()
            except Violation as violation:
                tally.violations.append(f"truncated before call {number} ({call}): {violation}")
    return tally


def leases(kind: str = "title") -> Tally:
    """A writer lease or its claim appears before each call: nothing is appended from then on."""
    tally = Tally()
    names = calls_of(kind)
    for number, call in enumerate(names):
        for which in (0, 1):
            with scene(kind) as made:
                tally.faults += 1
                files = Hooked()
                at_lease: list[bytes] = []

                def take(
                    at: int, name: str, made: Scene = made, which: int = which, seen: list[bytes] = at_lease
                ) -> None:
                    if at == number:  # noqa: B023 - used in this round only
                        lock = Path(lease_paths(str(made.base), made.ref.session_id)[which])
                        lock.parent.mkdir(parents=True, exist_ok=True)
                        lock.write_text("{}")
                        seen.append(made.path.read_bytes())

                files.before = take
                made.write(files)
                if call != "write" and at_lease and made.path.read_bytes() != at_lease[0]:
                    tally.violations.append(f"written under a lease taken before call {number} ({call})")
                tally.lines += made.check_bytes()
    return tally
