"""Our writing with one thing broken, each: the exploration must find every one of them.

A mutant exchanges a part of the real code; where it does its harm is the configuration that it is tried in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from tests.safety.explore import Explorer
from tests.safety.invariants import Violation
from tests.safety.setups import WINDOW, setup
from tests.safety.watching import Build
from watcher import appending, recording
from watcher.core import policy, undo, write_rules, writing
from watcher.core.events import TitleSource
from watcher.core.session import SessionState
from watcher.core.writing import Clean, Correct, Declined, Intent, Payload, SessionFile, TitleLine
from watcher.edge import lines, verifier, writer
from watcher.edge.files import FileStat
from watcher.edge.lines import Lines
from watcher.edge.verifier import Verifier
from watcher.edge.writer import SessionWriter
from watcher.qwen import records
from watcher.qwen.jsonl import split_lines
from watcher.qwen.reading import Reading
from watcher.recording import Recorder
from watcher.title_journal import TitleJournal

Patch = tuple[object, str, object]
"""Where, which name, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`where` names the configuration, `natives` and `ours` how long its histories must be to show the harm."""

    name: str
    where: str
    natives: int = 2
    ours: int = 2
    patches: tuple[Patch, ...] = ()
    build: Build | None = None

    def hunt(self) -> str:
        """The violation that the exploration finds, "" when it finds none."""
        with self._broken():
            try:
                Explorer(setup(self.where, self.natives, self.ours, self.build)).run()
            except Violation as violation:
                return str(violation)
        return ""

    @contextmanager
    def _broken(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, instead in self.patches:
                stack.enter_context(patch.object(owner, name, instead))
            yield


# -- the writer --------------------------------------------------------------------------------------------------------


class _NoRereading(SessionWriter):
    """Trusts the reading that it was given."""

    def _read(self, reader: int, now: FileStat, known: Reading | None) -> Reading:
        return known if known is not None else super()._read(reader, now, known)


class _ParentIsLastLine(SessionWriter):
    """Takes the last line for the parent, whatever record it is."""

    def _append(self, target: Any, fd: int, reader: int, decide: Any, known: Reading | None) -> Any:
        made = self._lines.intent

        def intent(target: Any, now: FileStat, read: Reading, payload: Payload) -> Intent:
            good = made(target, now, read, payload)
            lines = split_lines(self._files.read_at(reader, now.size, 0))
            last = [event for line in lines for event in records.decode(line)][-1].uuid
            return replace(good, parent=last, line=good.line.replace(good.parent.encode(), last.encode(), 1))

        with patch.object(self._lines, "intent", intent):
            return super()._append(target, fd, reader, decide, known)


class _StaleParent(SessionWriter):
    """Never looks at what slipped in before its line."""

    def _begin(self, target: Any, fd: int, reader: int, before: FileStat, intent: Intent) -> bool:
        self._intents.begin(intent)
        return True


class _AnyPlace(SessionWriter):
    """Does not look whether the file is still at its path, or has a second name."""

    def _checked_stat(self, target: Any, fd: int, reader: int) -> FileStat:
        return self._files.fstat(fd)


class _AnyId(SessionWriter):
    """Writes to files with two session ids."""

    def _check_state(self, target: Any, state: Any) -> None:
        return


class _NotNoted(SessionWriter):
    """Begins to write without a note for the next start."""

    def _note(self, intent: Intent, *, unfinished: bool = False) -> None:
        return


def _no_times(self: Verifier, target: Any, fd: int, intent: Intent, size: int) -> None:
    """Leaves the modification time as its write made it."""


def _old_times(self: Verifier, target: Any, fd: int, intent: Intent, size: int) -> None:
    """Puts the modification time back whatever happened."""
    self._files.set_times(fd, intent.atime_ns, intent.mtime_ns)


def _no_second_look(self: Verifier, target: Any, fd: int, intent: Intent, size: int) -> None:
    """Does not look again after it put the modification time back."""
    if self._files.fstat(fd).size == size:
        self._files.set_times(fd, intent.atime_ns, intent.mtime_ns)


def _foreign_id(self: Lines, state: Any, payload: Payload, uuid: str, parent: str) -> bytes:
    """Takes the session id from the name of the directory, say."""
    return _ENCODE(self, replace(state, session_id="00000000-0000-4000-8000-0000000000aa"), payload, uuid, parent)


def _no_newline(self: Lines, state: Any, payload: Payload, uuid: str, parent: str) -> bytes:
    """Leaves out the newline at the end."""
    return _ENCODE(self, state, payload, uuid, parent).removesuffix(b"\n")


def _glues_on(self: Lines, target: Any, now: FileStat, read: Reading, payload: Payload) -> Intent:
    """Appends to a torn line without ending it."""
    intent = _INTENT(self, target, now, read, payload)
    return replace(intent, line=intent.line.removeprefix(b"\n"))


def _leaves_open(self: Verifier, fd: int, line: bytes) -> Any:
    """Leaves a line that was cut short as it is."""
    taken = self._files.write(fd, line)
    return verifier._Put(taken, "" if taken == len(line) else "cut")


_ENCODE, _INTENT = Lines.encode, Lines.intent


def _spaced(encode: Callable[..., bytes]) -> Callable[..., bytes]:
    def encoded(**fields: Any) -> bytes:
        return json.dumps(json.loads(encode(**fields))).encode() + b"\n"

    return encoded


def _no_repair(*arguments: Any) -> tuple[Clean, Any]:
    _, state = writing.judge(*arguments)
    return Clean(), state


def _no_rival(*_: object) -> None:
    return None


def _with_writer(broken: Callable[..., SessionWriter]) -> Build:
    return Build(writer=broken)


# -- what may be written, and when ------------------------------------------------------------------------------------


class _NoRecovery(Recorder):
    """Forgets what an earlier process was writing."""

    def recover(self, ref_of: Any) -> int:
        for data in self._store.intents():
            self._store.drop_intent(str(data["uuid"]))
        return 0


def _nothing(*_: object, **__: object) -> None:
    return None


def _nothing_waits(*_: object) -> str:
    return ""


def _always(*_: object, **__: object) -> bool:
    return True


def _as_known(self: Any, ref: Any, known: Reading | None) -> SessionFile:
    assert known is not None
    return SessionFile(known.state, known.size, 0.0, known.torn_bytes)


def _last_title_only(state: Any, *, dismissed: bool = False) -> Any:
    """Lets a manual title be overwritten."""
    run = state.title
    return None if run is None or run.is_manual else policy.title_standing(state, dismissed=dismissed)


def _manual(title: str, circumstances: Any) -> Any:
    rule = write_rules.automatic_title(title, circumstances)

    def made(file: SessionFile) -> Payload | Declined:
        payload = rule(file)
        return TitleLine(payload.title, TitleSource.MANUAL) if isinstance(payload, TitleLine) else payload

    return made


def _eager_again(state: Any, size: int, ours: Any) -> Any:
    """Brings a title back into sight that never left it, and anybody's."""
    return state.title


def _not_leased(self: Any, ref: Any) -> str:
    return ""


def _leased_is_late(original: Any) -> Any:
    def target(self: Any, ref: Any, purpose: Any) -> Any:
        return replace(original(self, ref, purpose), leased=lambda: "")

    return target


def _daemon_is_welcome(original: Any) -> Any:
    def target(self: Any, ref: Any, purpose: Any) -> Any:
        made = original(self, ref, purpose)
        return replace(made, blocked=made.leased)

    return target


def _fresh_ids(intent: Intent) -> Any:
    return replace(intent, spare=tuple(f"{each}x" for each in intent.spare))


class _NoLock(SessionWriter):
    """Does not wait for another one of us."""

    def _lock(self, fd: int) -> None:
        return


class _ForgetsEarly(SessionWriter):
    """Drops its note before the line was read back."""

    def _begin(self, target: Any, fd: int, reader: int, before: FileStat, intent: Intent) -> bool:
        begun = super()._begin(target, fd, reader, before, intent)
        self._intents.done(intent.uuid)
        return begun


class _RecoversOnly(Recorder):
    """Finishes what an earlier process was writing, for one kind of text."""

    kept = "title"

    def recover(self, ref_of: Any) -> int:
        for data in self._store.intents():
            if self.kept not in data["payload"]:
                self._store.drop_intent(str(data["uuid"]))
        return super().recover(ref_of)


class _RecoversRecaps(_RecoversOnly):
    kept = "recap"


def _judged(change: Callable[[Correct, SessionState, Any], Correct]) -> Any:
    """The verdict on a write, with its correction changed."""

    def judge(base: SessionState, since: Any, ours: Any, payload: Payload) -> Any:
        verdict, state = writing.judge(base, since, ours, payload)
        return (change(verdict, base, ours) if isinstance(verdict, Correct) else verdict), state

    return judge


def _as_automatic(verdict: Correct, base: SessionState, ours: Any) -> Correct:
    payload = verdict.payload
    return replace(verdict, payload=replace(payload, source=TitleSource.AUTO)) if _is_title(payload) else verdict


def _is_title(payload: Payload) -> bool:
    return isinstance(payload, TitleLine)


def _stale_again(verdict: Correct, base: SessionState, ours: Any) -> Correct:
    return replace(verdict, parent=base.leaf or verdict.parent)


def _on_ours(verdict: Correct, base: SessionState, ours: Any) -> Correct:
    return replace(verdict, parent=next(iter(ours)))


def _same_text(verdict: Correct, base: SessionState, ours: Any) -> Correct:
    return replace(verdict, payload=TitleLine("T0", TitleSource.AUTO)) if _is_title(verdict.payload) else verdict


def _copies_are_names(base: SessionState, since: Any, ours: Any, payload: Payload) -> Any:
    """Takes what a CLI writes from memory for what somebody gave."""
    return _RIVAL(replace(base, titles=()), since, ours, payload)


_RIVAL = writing._rival


def _never_given_now(*arguments: Any) -> Any:
    """A name that is given in this moment gives way to one given before it."""
    rule = write_rules.given_title(*arguments)

    def made(file: SessionFile) -> Payload | Declined:
        payload = rule(file)
        return replace(payload, yields=True) if isinstance(payload, TitleLine) else payload

    return made


def _whatever_stands(title: str, basis: SessionFile, circumstances: Any) -> Any:
    """`title S --auto` over a name that was given since."""
    return write_rules.given_title(title, TitleSource.AUTO, circumstances)


def _heals_anything(state: Any, ours: Any) -> Any:
    """Puts a manual title over any automatic one behind it."""
    manual = [run for run in state.titles if run.is_manual]
    return manual[-1] if manual and not state.title.is_manual else None


def _heals_the_first(state: Any, ours: Any) -> Any:
    """Brings back the oldest name instead of the newest."""
    wanted = policy.heal_wanted(state, ours)
    return wanted and next(run for run in state.titles if run.is_manual)


class _UnknownCorrections(SessionWriter):
    """After a restart, does not know a correction of its own for what it is."""

    def recover(self, target: Any, intent: Intent) -> Any:
        return super().recover(target, _fresh_ids(intent))


MUTANTS: tuple[Mutant, ...] = (
    Mutant("no re-read before the write", "one terminal", build=_with_writer(_NoRereading)),
    Mutant("parent = last line", "hostile records", build=_with_writer(_ParentIsLastLine)),
    Mutant("no look at what slipped in", "one terminal", build=_with_writer(_StaleParent)),
    Mutant("no repair", "one terminal", patches=((verifier, "judge", _no_repair),)),
    Mutant(
        "json.dumps with spaces",
        "one terminal",
        patches=(
            (lines, "encode_title", _spaced(records.encode_title)),
            (lines, "encode_recap", _spaced(records.encode_recap)),
        ),
    ),
    Mutant("no mtime restore", "one terminal", patches=((Verifier, "restore", _no_times),)),
    Mutant("mtime restored over another's write", "one terminal", patches=((Verifier, "restore", _old_times),)),
    Mutant("no look after the mtime restore", "one terminal", patches=((Verifier, "restore", _no_second_look),)),
    Mutant("no newline at the end", "one terminal", patches=((Lines, "encode", _no_newline),)),
    Mutant("nothing is noted before the write", "killed and started again", build=_with_writer(_NotNoted)),
    Mutant("a moved or linked file is written", "hostile places", build=_with_writer(_AnyPlace)),
    Mutant("another session id", "one terminal", patches=((Lines, "encode", _foreign_id),)),
    Mutant("two session ids are fine", "hostile records", build=_with_writer(_AnyId)),
    Mutant("glued to a torn line", "hostile records", patches=((Lines, "intent", _glues_on),)),
    Mutant(
        "torn lines are ended at once",
        "hostile records",
        patches=((write_rules, "TORN_QUIET_SECONDS", -1e9), (write_rules, "hindrance", _nothing)),
    ),
    Mutant("a cut line is left open", "full disk", patches=((Verifier, "_put", _leaves_open),)),
    Mutant("a cut line is left open by the next start", "full disk", patches=((writer, "_ends_in_ours", _nothing),)),
    Mutant("heal left out", "two terminals", 3, 1, ((recording, "heal_wanted", _nothing),)),
    Mutant("lease ignored", "writer lease", patches=((appending.Appender, "leased", _not_leased),)),
    Mutant(
        "no look at the lease directly before the write",
        "writer lease",
        patches=((appending.Appender, "_target", _leased_is_late(appending.Appender._target)),),
    ),
    Mutant(
        "daemon ignored",
        "writer lease",
        patches=((appending.Appender, "_target", _daemon_is_welcome(appending.Appender._target)),),
    ),
    Mutant(
        "manual title taken from the window instead of the file",
        "a name out of sight",
        patches=((writer, "READ_WINDOW_BYTES", WINDOW),),
    ),
    Mutant(
        "an automatic title over a manual one",
        "one terminal",
        patches=((write_rules, "title_standing", _last_title_only),),
    ),
    Mutant("an automatic title as the user's", "one terminal", patches=((recording, "automatic_title", _manual),)),
    Mutant("an automatic title over a torn name", "hostile records", patches=((write_rules, "_torn_name", _nothing),)),
    Mutant("a title that slipped in stays hidden", "one terminal", patches=((writing, "_rival", _no_rival),)),
    Mutant(
        "anybody's title is written again",
        "one terminal",
        patches=((recording, "reanchor_wanted", _eager_again), (write_rules, "reanchor_wanted", _eager_again)),
    ),
    Mutant("out of sight for ever", "out of sight", 3, 1, ((recording, "reanchor_wanted", _nothing),)),
    Mutant("the user's wish is not kept", "the user's wishes", patches=((TitleJournal, "keep", _nothing),)),
    Mutant(
        "the user's wish over a newer rename",
        "the user's wishes",
        patches=((write_rules, "put_back_by_memory", _always), (recording, "put_back_by_memory", _always)),
    ),
    Mutant("a wish dropped on an old look", "the user's wishes", 3, 2, ((appending.Appender, "look", _as_known),)),
    Mutant("a second recap of the same turn", "two watchers", patches=((write_rules, "_recapped", _nothing),)),
    Mutant("the lock is not taken", "two watchers", build=_with_writer(_NoLock)),
    Mutant("the note is dropped too early", "killed and started again", build=_with_writer(_ForgetsEarly)),
    Mutant("no recovery of recaps", "killed and started again", build=Build(recorder=_RecoversOnly)),
    Mutant("no recovery of titles", "killed and started again", build=Build(recorder=_RecoversRecaps)),
    Mutant("an unfinished write is left", "full disk", patches=((appending.Appender, "finish", _nothing_waits),)),
    Mutant(
        "a correction as an automatic title", "one terminal", patches=((verifier, "judge", _judged(_as_automatic)),)
    ),
    Mutant("a correction with the stale parent", "one terminal", patches=((verifier, "judge", _judged(_stale_again)),)),
    Mutant("a correction on our own line", "one terminal", patches=((verifier, "judge", _judged(_on_ours)),)),
    Mutant("a correction with our own title", "one terminal", patches=((verifier, "judge", _judged(_same_text)),)),
    Mutant("copies count as names", "the user's wishes", patches=((writing, "_rival", _copies_are_names),)),
    Mutant("a name given now gives way", "the user's wishes", patches=((recording, "given_title", _never_given_now),)),
    Mutant(
        "a title on request over a newer name",
        "the user's wishes",
        patches=((recording, "requested_title", _whatever_stands),),
    ),
    Mutant(
        "another's title is healed over",
        "one terminal",
        3,
        1,
        ((recording, "heal_wanted", _heals_anything), (write_rules, "heal_wanted", _heals_anything)),
    ),
    Mutant(
        "the oldest name is brought back",
        "two terminals",
        3,
        1,
        ((recording, "heal_wanted", _heals_the_first), (write_rules, "heal_wanted", _heals_the_first)),
    ),
    Mutant("no recovery", "killed and started again", build=Build(recorder=_NoRecovery)),
    Mutant(
        "a killed correction is not known again", "killed and started again", build=_with_writer(_UnknownCorrections)
    ),
)

__all__ = ["MUTANTS", "Mutant", "undo"]
