"""The guarded append: the only code that writes to a session file (contract 4.4, design 8).

    lock → check the file → read all of it → decide again → nothing moved? → no lease? → one write → read back → correct
    → mtime

No existing byte is ever changed, nothing is created, and when in doubt nothing is written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.writing import (
    Declined,
    Failed,
    Intent,
    IntentLog,
    IntentNotKeptError,
    Payload,
    SessionFile,
    Target,
    WriteOutcome,
)
from watcher.edge.files import Files, FileStat
from watcher.edge.lines import Lines
from watcher.edge.verifier import MAX_READ_BACK_BYTES, Verifier, cannot_write
from watcher.qwen.contract import WINDOW_BYTES, session_id_of
from watcher.qwen.reading import Reading, read_state
from watcher.qwen.titles import Evidence, read_title

__all__ = ["Intent", "IntentLog", "SessionWriter", "Target"]

READ_WINDOW_BYTES: Final = 64 * 1024 * 1024
"""Decisions look at the whole file, at most at its last 64 MiB (design 6)."""
MAX_ROUNDS: Final = 6
"""How often a write starts over because the file grew before it."""
LOCK_TRIES: Final = 100
LOCK_PAUSE_SECONDS: Final = 0.02

SPARE_BYTES: Final = 64 * 1024
"""Nothing is written to a disk that is this full: a short write would leave a torn line (contract 4.3 j)."""

Decide = Callable[[SessionFile], Payload | Declined]


class _Stop(Exception):  # noqa: N818 - not an error: carries an outcome out of the procedure
    def __init__(self, outcome: Declined | Failed) -> None:
        super().__init__()
        self.outcome = outcome


class SessionWriter:
    """Appends one record to one session file at a time."""

    def __init__(
        self,
        files: Files,
        intents: IntentLog,
        *,
        clock: Callable[[], float],
        new_uuid: Callable[[], str],
        pause: Callable[[float], None],
        uid: int | None = None,
    ) -> None:
        self._files = files
        self._intents = intents
        self._lines = Lines(clock=clock, new_uuid=new_uuid)
        self._verifier = Verifier(files, intents, self._lines)
        self._pause = pause
        self._uid = os.geteuid() if uid is None else uid

    def append(self, target: Target, decide: Decide, known: Reading | None = None) -> WriteOutcome:
        """Write what `decide` returns for the file as it is now, and see to it that it did no harm.

        `known` is an earlier reading of the same file; only what came after it is read again. `decide` may be called
        several times. Every expected failure is a value; nothing of it raises.
        """
        return self._locked(target, lambda fd, reader: self._append(target, fd, reader, decide, known))

    def recover(self, target: Target, intent: Intent) -> WriteOutcome:
        """Finish a write that was cut off by the end of the process: verify it, correct it, restore the mtime.

        Declined with `nothing_new` when the record never reached the file, with another reason when that cannot be seen
        or nobody may write now: try again later.
        """
        return self._locked(target, lambda fd, reader: self._recover(target, fd, reader, intent))

    def _locked(self, target: Target, work: Callable[[int, int], WriteOutcome]) -> WriteOutcome:
        """What `work` returns for a descriptor to append to, which holds our lock, and one to read from."""
        blocked = target.blocked()
        if blocked:
            return Declined(Reason.LOCKED, blocked)
        try:
            fd = self._files.open_append(target.path)
        except OSError as error:
            return _refusal(error)
        try:
            self._lock(fd)
            reader = self._files.open_read(target.path)
            try:
                return work(fd, reader)
            finally:
                self._files.close(reader)
        except _Stop as stop:
            return stop.outcome
        except OSError as error:
            return Failed(Reason.UNSAFE_FILE, cannot_write(error), unfinished=True)
        finally:
            self._files.close(fd)

    def _append(self, target: Target, fd: int, reader: int, decide: Decide, known: Reading | None) -> WriteOutcome:
        read = known
        for _ in range(MAX_ROUNDS):
            before = self._checked_stat(target, fd, reader)
            read = self._read(reader, before, read)
            payload = decide(
                SessionFile(
                    read.state,
                    before.size,
                    before.mtime_ns / 1e9,
                    read.torn_bytes,
                    self._torn_title(reader, before.size),
                )
            )
            if isinstance(payload, Declined):
                return payload
            self._check_state(target, read.state)
            intent = self._lines.intent(target, before, read, payload)
            if self._begin(target, fd, reader, before, intent):
                return self._verifier.write(target, fd, reader, read, intent)
        return Declined(Reason.WORKING, "the file kept growing while it was read")

    def _recover(self, target: Target, fd: int, reader: int, intent: Intent) -> WriteOutcome:
        now = self._checked_stat(target, fd, reader)
        tail = self._files.read_at(reader, MAX_READ_BACK_BYTES, intent.offset)
        if _ends_in_ours(tail, intent):
            # Killed inside our own write: end the line, so that the next record of anybody stands on one of its own.
            if self._files.write(fd, b"\n") != 1:
                return Failed(Reason.UNSAFE_FILE, "a cut line of ours cannot be ended: no space left", unfinished=True)
            tail += b"\n"
        if tail != intent.line and len(tail) > 1 and intent.line.startswith(tail[:-1]) and tail.endswith(b"\n"):
            self._verifier.restore(target, fd, intent, intent.offset + len(tail))
            return Failed(Reason.UNSAFE_FILE, "our line was cut, and is ended now", "short write, closed later")
        if all(each.encode() in tail for each in intent.spare):
            # Others came in between at each correction; now they have had their time, so there are as many more.
            intent = replace(intent, spare=(*intent.spare, *self._lines.spare_ids()))
            self._note(intent, unfinished=True)
        base = self._read(reader, replace(now, size=intent.offset), None)
        if base.state.session_id != intent.session_id:
            return Declined(Reason.NOTHING_NEW, "the file was replaced")
        outcome = self._verifier.verify(target, fd, reader, base, intent)
        if isinstance(outcome, Declined) and tail:
            # What stands there is somebody else's; its time must not be the one that we may have put back before it.
            self._verifier.restore(target, fd, intent, intent.offset)
        return outcome

    # -- before the write ---------------------------------------------------------------------------------------------

    def _lock(self, fd: int) -> None:
        for _ in range(LOCK_TRIES):
            if self._files.try_lock(fd):
                return
            self._pause(LOCK_PAUSE_SECONDS)
        raise _Stop(Declined(Reason.LOCKED, "another process of this program is writing to it"))

    def _checked_stat(self, target: Target, fd: int, reader: int) -> FileStat:
        mine = self._files.fstat(fd)
        if not stat.S_ISREG(mine.mode):
            raise _Stop(Declined(Reason.UNSAFE_FILE, "not a regular file"))
        if mine.uid != self._uid:
            raise _Stop(Declined(Reason.UNSAFE_FILE, "owned by another user"))
        try:
            named = self._files.lstat(target.path)
        except FileNotFoundError:
            raise _Stop(Declined(Reason.NOT_FOUND, "deleted or archived meanwhile")) from None
        if named.nlink > 1:
            raise _Stop(Declined(Reason.UNSAFE_FILE, "has a second hard link"))
        read = self._files.fstat(reader)
        if len({(each.dev, each.ino) for each in (mine, named, read)}) != 1:
            raise _Stop(Declined(Reason.NOT_FOUND, "replaced or archived meanwhile"))
        return mine

    def _read(self, reader: int, now: FileStat, known: Reading | None) -> Reading:
        return read_state(
            lambda length, offset: self._files.read_at(reader, length, offset),
            dev=now.dev,
            ino=now.ino,
            size=now.size,
            window=READ_WINDOW_BYTES,
            known=known,
        )

    def _torn_title(self, reader: int, size: int) -> str:
        """The title that the picker shows although its line is no whole record, "" when it shows no such title."""
        window = min(size, WINDOW_BYTES)
        tail = self._files.read_at(reader, window, size - window)
        head = self._files.read_at(reader, window, 0) if size > window else tail
        shown = read_title(head, tail, size)
        return shown.title if shown is not None and shown.evidence is Evidence.TORN else ""

    def _check_state(self, target: Target, state: SessionState) -> None:
        if state.leaf is None or not state.session_id:
            raise _Stop(Declined(Reason.UNSAFE_FILE, "no conversation record in it"))
        if state.mixed_ids:
            raise _Stop(Declined(Reason.UNSAFE_FILE, "more than one session id in it"))
        if state.session_id.lower() != (session_id_of(target.path) or "").lower():
            raise _Stop(Declined(Reason.UNSAFE_FILE, "its session id is not its file name"))

    def _begin(self, target: Target, fd: int, reader: int, before: FileStat, intent: Intent) -> bool:
        """Note the intent, then look once more at all that may have changed meanwhile; the lease last, since an append
        under a lease is the one thing that cannot be corrected. False when the file moved: read it again.
        """
        self._note(intent)
        may_write = False
        try:
            blocked = target.blocked()
            if blocked:
                raise _Stop(Declined(Reason.LOCKED, blocked))
            if self._files.room(fd, before.size) < len(intent.line) + SPARE_BYTES:
                raise _Stop(Failed(Reason.UNSAFE_FILE, "no space left on the device"))
            now = self._checked_stat(target, fd, reader)
            if (now.size, now.mtime_ns) != (before.size, before.mtime_ns):
                return False
            leased = target.leased()
            if leased:
                raise _Stop(Declined(Reason.LOCKED, leased))
            may_write = True
        finally:
            if not may_write:
                self._intents.done(intent.uuid)
        return True

    def _note(self, intent: Intent, *, unfinished: bool = False) -> None:
        try:
            self._intents.begin(intent)
        except IntentNotKeptError as error:
            detail = f"nothing is written that cannot be noted first: {error}"
            raise _Stop(Failed(Reason.UNSAFE_FILE, detail, unfinished=unfinished)) from error


def _ends_in_ours(tail: bytes, intent: Intent) -> bool:
    """Whether what was written since the intent ends in a part of a line of ours, or in what may be one."""
    rest = tail[tail.rfind(b"\n") + 1 :]
    line = intent.line.removeprefix(b"\n")
    heads = [b'{"uuid":"%s"' % uuid.encode() for uuid in intent.spare]
    return bool(rest) and (
        line.startswith(rest) or any(head.startswith(rest) or rest.startswith(head) for head in heads)
    )


def _refusal(error: OSError) -> Declined:
    if error.errno == errno.ENOENT:
        return Declined(Reason.NOT_FOUND, "no such file")
    if error.errno == errno.ELOOP:
        return Declined(Reason.UNSAFE_FILE, "a symbolic link")
    if error.errno == errno.ENXIO:
        return Declined(Reason.UNSAFE_FILE, "a FIFO")
    return Declined(Reason.UNSAFE_FILE, cannot_write(error))
