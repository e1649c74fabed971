"""`qwen-watcher` and `python -m watcher`. What must be fast is answered before the command-line framework is loaded."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from watcher import __version__  # noqa: PLC0415

        sys.stdout.write(f"qwen-watcher {__version__}\n")
        return
    if arguments[:1] == ["statusline"]:
        from watcher.cli.statusline import main as statusline  # noqa: PLC0415

        sys.exit(statusline(arguments[1:]))
    from watcher.cli.plain import run_plain  # noqa: PLC0415

    code = run_plain(arguments)
    if code is not None:
        sys.exit(code)
    from watcher.cli.app import main as command_line  # noqa: PLC0415

    sys.exit(command_line(arguments))


if __name__ == "__main__":
    main()
