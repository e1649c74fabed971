"""The write itself, and what makes it harmless: read back, correct, put the time back (contract 4.4, steps 5 to 8)."""

from __future__ import annotations

import errno
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
    Target,
    WriteOutcome,
    Written,
    judge,
)
from watcher.edge.files import Files
from watcher.edge.lines import MAX_CORRECTIONS, Lines
from watcher.errors import words_of
from watcher.qwen.jsonl import split_lines
from watcher.qwen.reading import Reading, events_of
from watcher.qwen.titles import torn_titles

MAX_READ_BACK_BYTES: Final = 64 * 1024 * 1024


class Verifier:
    """Writes one line and verifies it. Descriptors: `fd` to append, which holds our lock, and `reader`."""

    def __init__(self, files: Files, intents: IntentLog, lines: Lines) -> None:
        self._files = files
        self._intents = intents
        self._lines = lines

    def write(self, target: Target, fd: int, reader: int, read: Reading, intent: Intent) -> WriteOutcome:
        """Append the intent's line to the file as it was read, and see to it that it did no harm."""
        put = self._put(fd, intent.line)
        if not put.problem:
            outcome = self.verify(target, fd, reader, read, intent)
            if isinstance(outcome, Declined):
                return Failed(Reason.UNSAFE_FILE, "our line is not in the file", "line not found after the write")
            return outcome
        # Some systems give the file a new time even where they take nothing.
        self.restore(target, fd, intent, intent.offset + put.taken)
        if not put.left_open:
            self._intents.done(intent.uuid)
        return put.failure()

    def _put(self, fd: int, line: bytes) -> _Put:
        """One `write` of the whole line. A short one is closed with a newline and never continued (contract 4.3 j)."""
        try:
            taken = self._files.write(fd, line)
        except OSError as error:
            return _Put(0, cannot_write(error))
        if taken == len(line):
            self._sync(fd)
            return _Put(taken)
        if taken == 0:
            return _Put(0, "no space left")
        try:
            closed = self._files.write(fd, b"\n") == 1
        except OSError as error:
            return _Put(taken, f"cut after {taken} bytes: {cannot_write(error)}", left_open=True)
        return _Put(taken + closed, f"cut after {taken} bytes: no space left", left_open=not closed)

    def _sync(self, fd: int) -> None:
        try:
            self._files.sync(fd)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
                raise

    def verify(self, target: Target, fd: int, reader: int, read: Reading, intent: Intent) -> WriteOutcome:
        """Read back from the last whole line before the write, and correct what another writer's bytes made wrong.

        Declined when our line is not there.
        """
        payload, tried = intent.payload, set[str]()
        for _ in range(MAX_CORRECTIONS + 1):
            data, events, ours = self._read_back(reader, read, intent)
            if intent.uuid not in ours and read.end:
                # Has somebody cut the file off? What its parent was may be gone then, so all of it is judged. The
                # titles that stood there before stay known: none of them was given meanwhile.
                start = max(0, self._files.fstat(reader).size - MAX_READ_BACK_BYTES)
                read = replace(read, end=start, base=SessionState(partial=start > 0, titles=read.base.titles))
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
                self.restore(target, fd, intent, end)
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
            line = self._lines.encode(state, payload, spare[0], verdict.parent)
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

    def restore(self, target: Target, fd: int, intent: Intent, size: int) -> None:
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


def _due(detail: str, anomaly: str = "", reason: Reason = Reason.UNSAFE_FILE) -> Failed:
    """A correction is still due."""
    return Failed(reason, detail, anomaly, unfinished=True)


def cannot_write(error: OSError) -> str:
    """A failed system call in words."""
    return f"cannot write: {words_of(error)}"
