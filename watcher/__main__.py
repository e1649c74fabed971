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
        _open_standard_streams()
        code = _run(arguments)
        _give_up_broken_streams()
        sys.exit(code)
    finally:
        leave()


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from watcher import __version__  # noqa: PLC0415

        return _say_version(__version__)
    if arguments[:1] == ["statusline"]:
        from watcher.cli.statusline import main as statusline  # noqa: PLC0415

        return statusline(arguments[1:])
    from watcher.cli.plain import run_plain  # noqa: PLC0415

    code = run_plain(arguments)
    if code is not None:
        return code
    from watcher.cli.app import main as command_line  # noqa: PLC0415

    return command_line(arguments)


def _say_version(version: str) -> int:
    """As any other command, but without loading what they use."""
    try:
        sys.stdout.write(f"qwen-watcher {version}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return 0
    except OSError as error:
        sys.stderr.write(f"qwen-watcher: {error.strerror}\n")
        return 1
    return 0


def _open_standard_streams() -> None:
    """Where the caller closed one, the next file that is opened would get its number, and its log lines."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))


def _give_up_broken_streams() -> None:
    """What nobody reads any more is no failure, and any other one was told: Python would end with exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


if __name__ == "__main__":
    main()
