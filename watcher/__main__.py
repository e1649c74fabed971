"""`qwen-watcher` and `python -m watcher`. What must be fast is answered before the command-line framework is loaded."""

from __future__ import annotations

import os
import sys

from watcher.cli.interrupts import end_quietly, hold_signals, leave


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    end_quietly()
    arguments = sys.argv[1:]
    if "run" in arguments[:1]:
        hold_signals()
    try:
        sys.exit(_run(arguments))
    finally:
        leave()


def _run(arguments: list[str]) -> int:
    _open_standard_streams()
    if arguments in (["--version"], ["-V"]):
        from watcher import __version__  # noqa: PLC0415

        sys.stdout.write(f"qwen-watcher {__version__}\n")
        return 0
    if arguments[:1] == ["statusline"]:
        from watcher.cli.statusline import main as statusline  # noqa: PLC0415

        return statusline(arguments[1:])
    from watcher.cli.plain import run_plain  # noqa: PLC0415

    code = run_plain(arguments)
    if code is not None:
        _give_up_broken_stderr()
        return code
    from watcher.cli.app import main as command_line  # noqa: PLC0415

    return command_line(arguments)


def _open_standard_streams() -> None:
    """Where the caller closed one, the next file that is opened would get its number, and its log lines."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))


def _give_up_broken_stderr() -> None:
    """What nobody reads any more is no failure: Python would end with exit code 120."""
    try:
        sys.stderr.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)


if __name__ == "__main__":
    main()
