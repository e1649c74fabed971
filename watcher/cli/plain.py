"""Some commands without the command-line framework: those that are typed often, and the one that stays.

The framework takes 0.2 s and 20 MiB, pydantic among them. Read here are only command lines that need no explaining;
anything else (help, an unknown option, a wrong value) is left to `watcher.cli.app`, which defines the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watcher.cli.ending import exit_code_of


@dataclass(frozen=True, slots=True)
class Option:
    """An option: the parameter that it sets, and how its value is read; a flag has no value.

    `read` raises ValueError for a value that is left to the framework.
    """

    parameter: str
    read: Callable[[str], object] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its options by name, and what runs it. Each of its parameters is passed."""

    run: Callable[..., int]
    options: Mapping[str, Option]


def run_plain(arguments: Sequence[str]) -> int | None:
    """Run a command line to its end and return its exit code; None, with nothing done, where it is not a plain one."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        return None
    values = _read(command, arguments[1:])
    return None if values is None else exit_code_of(lambda: command.run(**values))


def _read(command: Command, arguments: Sequence[str]) -> dict[str, object] | None:
    values: dict[str, object] = {
        option.parameter: False if option.read is None else None for option in command.options.values()
    }
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        option = command.options.get(name)
        if option is None or (equals and (option.read is None or not name.startswith("--"))):
            return None
        if option.read is None:
            values[option.parameter] = True
            continue
        if not equals:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        try:
            values[option.parameter] = option.read(value)
        except ValueError:
            return None
    return values


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _run(*, config: Path | None, dry_run: bool, log_format: str | None, log_level: str | None) -> int:
    from watcher.cli.run import run_watcher  # noqa: PLC0415

    return run_watcher(config=config, dry_run=dry_run, log_format=log_format, log_level=log_level)


def _sessions(*, as_json: bool, limit: int | None, project: Path | None, every: bool, watch: bool) -> int:
    from watcher.cli.sessions import show_sessions  # noqa: PLC0415

    return show_sessions(as_json=as_json, limit=limit, project=project, every=every, watch=watch)


def _tail(*, follow: bool, as_json: bool, kind: str | None, session: str | None, since: str | None) -> int:
    from watcher.cli.tail import show_tail  # noqa: PLC0415

    return show_tail(follow=follow, as_json=as_json, kind=kind, session=session, since=since)


def _status(*, as_json: bool) -> int:
    from watcher.cli.status import show_status  # noqa: PLC0415

    return show_status(as_json=as_json)


_JSON: Final = {"--json": Option("as_json")}
COMMANDS: Final[Mapping[str, Command]] = {
    "run": Command(
        _run,
        {
            "--config": Option("config", Path),
            "--dry-run": Option("dry_run"),
            "--log-format": Option("log_format", str),
            "--log-level": Option("log_level", str),
        },
    ),
    "sessions": Command(
        _sessions,
        {
            **_JSON,
            "--limit": Option("limit", _count),
            "--project": Option("project", Path),
            "--all": Option("every"),
            "--watch": Option("watch"),
        },
    ),
    "tail": Command(
        _tail,
        {
            "-f": Option("follow"),
            "--follow": Option("follow"),
            **_JSON,
            "--kind": Option("kind", str),
            "--session": Option("session", str),
            "--since": Option("since", str),
        },
    ),
    "status": Command(_status, _JSON),
}
