"""Ctrl-C at any moment: a command ends, and Python tells nobody where it was.

Installed before anything else is imported, so this imports nothing that takes time.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

_AGAIN_SECONDS = 0.02


def end_quietly() -> None:
    """From now on no interrupt shows a traceback, wherever in the program it arrives."""
    sys.excepthook = _excepthook
    sys.unraisablehook = _unraisable


def hold_signals() -> None:
    """Signals that end or reload a service wait, until `watcher.signals` is there to take them."""
    import signal  # noqa: PLC0415 - a hundred times as long as the rest

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def interrupt_on(*numbers: int) -> None:
    """Have these signals end a command as Ctrl-C does, with its tidying up; not those that are ignored (nohup)."""
    import signal  # noqa: PLC0415

    for number in numbers:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def leave() -> None:
    """The command is done: an interrupt while Python tidies up ends it on the spot."""
    signal = sys.modules.get("signal")
    if signal is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    # Python itself then ends by the same signal, as a shell expects it.
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def _unraisable(found: Any) -> None:
    """An interrupt that arrived where Python cannot raise it, such as in a destructor, is sent once more."""
    if not isinstance(found.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(found)
        return
    import os  # noqa: PLC0415 - once in a blue moon
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415

    again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    try:
        again.start()
    except RuntimeError:  # the interpreter is ending
        return
