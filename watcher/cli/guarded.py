"""What the commands that write have in common: what they refuse, in which words, and how they end (design 4)."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final, NoReturn

from watcher.catalog import read_session
from watcher.core.reasons import Reason
from watcher.core.writing import WriteOutcome, Written
from watcher.drafting import NoText
from watcher.edge.leases import lease_state
from watcher.edge.scan import unsafe_path
from watcher.errors import RefusedError
from watcher.instance import running_pid
from watcher.plan import how_to_choose
from watcher.qwen.paths import SessionRef
from watcher.qwen.reading import Reading
from watcher.workplace import Workplace, refused_mount

_FIXES: Final = {
    Reason.WORKING: "try again when the turn has ended",
    Reason.LOCKED: "try again when it is gone",
    Reason.BUDGET_EXHAUSTED: "wait for midnight, or raise [budget] calls_per_day",
    Reason.EMPTY_HISTORY: "send a prompt in this session first",
    Reason.EMPTY_RESULT: "try again, or see what is sent with --show-request",
    Reason.MODEL_ERROR: "`qwen-watcher doctor --probe` says more",
    Reason.UNSUPPORTED_VERSION: "continue the session with Qwen Code 0.21 or newer first",
    Reason.PAUSED: "run `qwen-watcher doctor`",
}


def readable(ref: SessionRef) -> Reading:
    """The session as its file tells it. Raises `RefusedError` for a file that is left alone, `NotFoundError`."""
    unsafe = unsafe_path(ref.path)
    if unsafe:
        raise RefusedError(Reason.UNSAFE_FILE.value, f"{ref.path}: {unsafe}")
    return read_session(ref)


@contextlib.contextmanager
def ending_well() -> Iterator[None]:
    """Ctrl-C is a failure with a reason of its own: raises `RefusedError` (`aborted`)."""
    try:
        yield
    except KeyboardInterrupt:
        raise RefusedError(Reason.ABORTED.value, "stopped by the user") from None


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of a write and its verification, which take milliseconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def refuse_mount(place: Workplace, ref: SessionRef) -> None:
    """Nothing is written to a network file system (design 8)."""
    mount = refused_mount(ref.path)
    if mount:
        refuse(place, Reason.UNSAFE_FILE, mount)


def refuse_locked(place: Workplace, ref: SessionRef) -> None:
    """Before a model is paid for; the writer looks again."""
    lease = lease_state(ref.runtime_base, ref.session_id)
    if lease is not None:
        refuse(place, Reason.LOCKED, lease)
    if place.surveyor.ownership(ref).is_daemon:
        refuse(place, Reason.LOCKED, "a live ACP or daemon process has the session")


def refuse_stopped(place: Workplace, ref: SessionRef) -> None:
    """The brake holds for everybody (design promise 6); a pause only for automatic writing (design 4)."""
    everything, session = place.store.stopped_all(), place.store.session_stopped(ref.session_id)
    if everything or session:
        refuse(place, Reason.PAUSED, f"writing was stopped after an anomaly: {everything or session}")


def refuse_unwritten(place: Workplace, outcome: WriteOutcome) -> None:
    """Raises `RefusedError` unless the line was written."""
    if not isinstance(outcome, Written):
        refuse(place, outcome.reason, outcome.detail)


def refuse_no_text(place: Workplace, made: NoText) -> NoReturn:
    """Raises `RefusedError` for a text that was not made, with the endpoint where one was asked."""
    where = ", ".join(filter(None, (made.host, f"HTTP {made.status}" if made.status else "")))
    refuse(place, made.reason, f"{where}: {made.detail}" if where and made.detail else where or made.detail)


def refuse(place: Workplace, reason: Reason, detail: str) -> NoReturn:
    """Raises `RefusedError` with what the user can do about it."""
    fix = how_to_choose(place.loaded.path, detail) if reason is Reason.NO_FAST_MODEL else _FIXES.get(reason, "")
    raise RefusedError(reason.value, "; ".join(filter(None, (detail, fix))))


def kept_note(place: Workplace, ref: SessionRef) -> str:
    """What a user is told whose title a running Qwen Code may write over at its exit (design 4)."""
    live = place.liveness.owners_of(ref.session_id, ref.sidecar).live
    owner = f"Qwen Code (pid {live[0].pid})" if live else "its Qwen Code"
    watcher = "" if running_pid(place.state_directory) else "; start `qwen-watcher run` for that, it is not running"
    return (
        f"{owner} is running and may write the title that it holds again at its exit: yours is kept, and put last when "
        f"the session closes, unless you rename it there{watcher}"
    )
