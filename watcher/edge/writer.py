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
from dataclasses import dataclass, replace
from typing import Final

from watcher.core.events import Event
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.writing import (
    Clean,
    Declined,
    Failed,
    Intent,
    IntentLog,
    IntentNotKeptError,
    Payload,
    SessionFile,
    Target,
    TitleLine,
    WriteOutcome,
    Written,
    judge,
)
from watcher.edge.files import Files, FileStat
from watcher.errors import words_of
from watcher.qwen.contract import WINDOW_BYTES, session_id_of
from watcher.qwen.jsonl import split_lines
from watcher.qwen.reading import Reading, events_of, read_state
from watcher.qwen.records import encode_recap, encode_title
from watcher.qwen.titles import Evidence, read_title, torn_titles

__all__ = ["Intent", "IntentLog", "SessionWriter", "Target"]

READ_WINDOW_BYTES: Final = 64 * 1024 * 1024
"""Decisions look at the whole file, at most at its last 64 MiB (design 6)."""
MAX_ROUNDS: Final = 6
"""How often a write starts over because the file grew before it."""
MAX_CORRECTIONS: Final = 3
LOCK_TRIES: Final = 100
LOCK_PAUSE_SECONDS: Final = 0.02
MAX_READ_BACK_BYTES: Final = 64 * 1024 * 1024

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
        self._clock = clock
        self._new_uuid = new_uuid
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
            return Failed(Reason.UNSAFE_FILE, _words(error), unfinished=True)
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
            intent = self._intent(target, before, read, payload)
            if self._begin(target, fd, reader, before, intent):
                return self._write(target, fd, reader, read, intent)
        return Declined(Reason.WORKING, "the file kept growing while it was read")

    def _recover(self, target: Target, fd: int, reader: int, intent: Intent) -> WriteOutcome:
        now = self._checked_stat(target, fd, reader)
        if now.size < intent.offset:
            return Declined(Reason.NOTHING_NEW, "the file was replaced")
        tail = self._files.read_at(reader, MAX_READ_BACK_BYTES, intent.offset)
        if _ends_in_ours(tail, intent):
            # Killed inside our own write: end the line, so that the next record of anybody stands on one of its own.
            if self._files.write(fd, b"\n") != 1:
                return Failed(Reason.UNSAFE_FILE, "a cut line of ours cannot be ended: no space left", unfinished=True)
            tail += b"\n"
        if tail != intent.line and len(tail) > 1 and intent.line.startswith(tail[:-1]) and tail.endswith(b"\n"):
            self._restore(target, fd, intent, intent.offset + len(tail))
            return Failed(Reason.UNSAFE_FILE, "our line was cut, and is ended now", "short write, closed later")
        if all(each.encode() in tail for each in intent.spare):
            # Others came in between at each correction; now they have had their time, so there are as many more.
            intent = replace(intent, spare=(*intent.spare, *self._spare_ids()))
            self._note(intent, unfinished=True)
        base = self._read(reader, replace(now, size=intent.offset), None)
        if base.state.session_id != intent.session_id:
            return Declined(Reason.NOTHING_NEW, "the file was replaced")
        outcome = self._verify(target, fd, reader, base, intent)
        if isinstance(outcome, Declined) and tail:
            # What stands there is somebody else's; its time must not be the one that we may have put back before it.
            self._restore(target, fd, intent, intent.offset)
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
        if max(mine.nlink, named.nlink) > 1:
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

    def _intent(self, target: Target, now: FileStat, read: Reading, payload: Payload) -> Intent:
        uuid = self._new_uuid()
        parent = read.state.leaf or ""
        line = self._encode(read.state, payload, uuid, parent)
        return Intent(
            uuid,
            self._spare_ids(),
            parent,
            target.path,
            read.state.session_id,
            now.dev,
            now.ino,
            now.size,
            b"\n" + line if read.torn_bytes else line,
            now.atime_ns,
            now.mtime_ns,
            payload,
            target.label,
        )

    def _spare_ids(self) -> tuple[str, ...]:
        return tuple(self._new_uuid() for _ in range(MAX_CORRECTIONS))

    def _encode(self, state: SessionState, payload: Payload, uuid: str, parent: str) -> bytes:
        common = {
            "uuid": uuid,
            "parent": parent,
            "session_id": state.session_id,
            "at": self._clock(),
            "cwd": state.cwd,
            "version": state.version,
        }
        if isinstance(payload, TitleLine):
            return encode_title(title=payload.title, source=payload.source, **common)  # type: ignore[arg-type]
        return encode_recap(text=payload.text, **common)  # type: ignore[arg-type]

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

    # -- the write and what follows -----------------------------------------------------------------------------------

    def _write(self, target: Target, fd: int, reader: int, read: Reading, intent: Intent) -> WriteOutcome:
        put = self._put(fd, intent.line)
        if not put.problem:
            outcome = self._verify(target, fd, reader, read, intent)
            if isinstance(outcome, Declined):
                return Failed(Reason.UNSAFE_FILE, "our line is not in the file", "line not found after the write")
            return outcome
        # Some systems give the file a new time even where they take nothing.
        self._restore(target, fd, intent, intent.offset + put.taken)
        if not put.left_open:
            self._intents.done(intent.uuid)
        return put.failure()

    def _put(self, fd: int, line: bytes) -> _Put:
        """One `write` of the whole line. A short one is closed with a newline and never continued (contract 4.3 j)."""
        try:
            taken = self._files.write(fd, line)
        except OSError as error:
            return _Put(0, _words(error))
        if taken == len(line):
            self._sync(fd)
            return _Put(taken)
        if taken == 0:
            return _Put(0, "no space left")
        try:
            closed = self._files.write(fd, b"\n") == 1
        except OSError as error:
            return _Put(taken, f"cut after {taken} bytes: {_words(error)}", left_open=True)
        return _Put(taken + closed, f"cut after {taken} bytes: no space left", left_open=not closed)

    def _sync(self, fd: int) -> None:
        try:
            self._files.sync(fd)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
                raise

    def _verify(self, target: Target, fd: int, reader: int, read: Reading, intent: Intent) -> WriteOutcome:
        """Read back from the last whole line before the write, and correct what another writer's bytes made wrong.

        Declined when our line is not there.
        """
        payload, tried = intent.payload, set[str]()
        for _ in range(MAX_CORRECTIONS + 1):
            data, events, ours = self._read_back(reader, read, intent)
            if intent.uuid not in ours and read.end:
                # Has somebody cut the file off? What its parent was may be gone then, so all of it is judged.
                start = max(0, self._files.fstat(reader).size - MAX_READ_BACK_BYTES)
                read = replace(read, end=start, base=SessionState(partial=start > 0))
                data, events, ours = self._read_back(reader, read, intent)
            if intent.uuid not in ours:
                return Declined(Reason.NOTHING_NEW, "the record was never written")
            ids = (intent.uuid, *intent.spare)
            parents = {event.uuid: event.parent or "" for event in events if event.uuid in ids}
            verdict, state = judge(read.base, events, parents, intent.payload)
            if isinstance(verdict, Clean) or state.mixed_ids:
                # A file with a second session id is refused by Qwen Code, whatever stands last: no more of ours.
                newest = next(reversed(ours.values()))
                corrections = [event.end - event.offset for each, event in ours.items() if each != intent.uuid]
                end = intent.offset + len(intent.line) + sum(corrections)
                self._restore(target, fd, intent, end)
                return Written(
                    newest.uuid,
                    newest.parent or "",
                    ours[intent.uuid].offset,
                    end,
                    tuple(ours),
                    len(corrections),
                    healed=payload != intent.payload,
                    overruled=isinstance(verdict, Clean) and verdict.overruled,
                    foreign=read.end + len(data) != end,
                    cwd=state.cwd,
                    anomaly="a second session id appeared" if state.mixed_ids else "",
                )
            spare = [each for each in intent.spare if each not in ours and each not in tried]
            if not spare:
                break
            payload = verdict.payload
            tried.add(spare[0])
            line = self._encode(state, payload, spare[0], verdict.parent)
            if not data.endswith(b"\n"):
                line = b"\n" + line
            if self._files.room(fd, read.end + len(data)) < len(line):
                return _due("no space left for a correction")
            blocked = target.blocked()  # the last thing that is looked at, as before the first write
            if blocked:
                return _due(blocked, "a correction was not possible", Reason.LOCKED)
            put = self._put(fd, line)
            if put.problem:
                return _due(put.problem, "a correction could not be written")
        return _due("another writer kept writing behind ours", "corrections did not settle", Reason.WORKING)

    def _read_back(self, reader: int, read: Reading, intent: Intent) -> tuple[bytes, list[Event], dict[str, Event]]:
        """The bytes behind a reading, what they tell, and which of it is ours, by uuid in file order."""
        data = self._files.read_at(reader, MAX_READ_BACK_BYTES, read.end)
        ids = (intent.uuid, *intent.spare)
        records = events_of(data, read.end)
        ours = {event.uuid: event for event in records if event.uuid in ids}
        torn = (title for line in split_lines(data, read.end) for title in torn_titles(line, ids))
        return data, sorted((*records, *torn), key=lambda event: event.offset), ours

    def _restore(self, target: Target, fd: int, intent: Intent, size: int) -> None:
        """Put the mtime back, unless somebody else wrote: then it is theirs, or now (contract 3.6). Nor under a lease:
        its holder remembers the times (contract 5).
        """
        now = self._files.fstat(fd)
        if (now.dev, now.ino) != (intent.dev, intent.ino):
            return  # brought back from a backup, as it may be before `recover`
        if now.size == size and now.mtime_ns != intent.mtime_ns and not target.leased():
            self._files.set_times(fd, intent.atime_ns, intent.mtime_ns)
            now = self._files.fstat(fd)
        if now.size != size and now.mtime_ns == intent.mtime_ns:
            self._files.touch_now(fd)


@dataclass(frozen=True, slots=True)
class _Put:
    """What became of one `write`: the bytes that stand in the file, and why not all of them do, "" when they do."""

    taken: int
    problem: str = ""
    left_open: bool = False

    def failure(self) -> Failed:
        """The same as an outcome."""
        if not self.taken:
            return Failed(Reason.UNSAFE_FILE, self.problem)
        anomaly = f"short write, {'left open' if self.left_open else 'closed'}"
        return Failed(Reason.UNSAFE_FILE, self.problem, anomaly, unfinished=self.left_open)


def _ends_in_ours(tail: bytes, intent: Intent) -> bool:
    """Whether what was written since the intent ends in a part of a line of ours, or in what may be one."""
    rest = tail[tail.rfind(b"\n") + 1 :]
    line = intent.line.removeprefix(b"\n")
    heads = [b'{"uuid":"%s"' % uuid.encode() for uuid in intent.spare]
    return bool(rest) and (
        line.startswith(rest) or any(head.startswith(rest) or rest.startswith(head) for head in heads)
    )


def _due(detail: str, anomaly: str = "", reason: Reason = Reason.UNSAFE_FILE) -> Failed:
    """A correction is still due."""
    return Failed(reason, detail, anomaly, unfinished=True)


def _refusal(error: OSError) -> Declined:
    if error.errno == errno.ENOENT:
        return Declined(Reason.NOT_FOUND, "no such file")
    if error.errno == errno.ELOOP:
        return Declined(Reason.UNSAFE_FILE, "a symbolic link")
    if error.errno == errno.ENXIO:
        return Declined(Reason.UNSAFE_FILE, "a FIFO")
    return Declined(Reason.UNSAFE_FILE, _words(error))


def _words(error: OSError) -> str:
    return f"cannot write: {words_of(error)}"
