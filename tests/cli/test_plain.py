"""The commands that do without the framework: the same options, and nothing decided that needs explaining."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import typer.main

from watcher.cli import plain
from watcher.cli.app import app
from watcher.cli.plain import COMMANDS, Command, run_plain


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, object]]:
    """What `sessions` is called with, instead of being run."""
    seen: list[Mapping[str, object]] = []

    def run(**values: object) -> int:
        seen.append(values)
        return 7

    commands = {"sessions": Command(run, COMMANDS["sessions"].options)}
    monkeypatch.setattr(plain, "COMMANDS", commands)
    return seen


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_those_of_the_framework(name: str) -> None:
    """Every option by every one of its names, with the parameter it sets; flags are flags."""
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    theirs = {
        option: (parameter.name, bool(parameter.is_flag))
        for parameter in command.params
        for option in parameter.opts
        if parameter.name != "help"
    }
    ours = {option: (each.parameter, each.read is None) for option, each in COMMANDS[name].options.items()}
    assert ours == theirs


def test_values_are_read_in_both_forms(calls: list[Mapping[str, object]]) -> None:
    """`--limit 5` and `--limit=5`; what is not given is None or False."""
    assert run_plain(["sessions", "--limit", "5", "--project=/x y", "--all"]) == 7
    assert run_plain(["sessions"]) == 7
    given = {"as_json": False, "limit": 5, "project": Path("/x y"), "every": True, "watch": False}
    assert calls == [given, {"as_json": False, "limit": None, "project": None, "every": False, "watch": False}]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["title", "latest"],
        ["--help"],
        ["sessions", "--help"],
        ["sessions", "-h"],
        ["sessions", "--unknown"],
        ["sessions", "extra"],
        ["sessions", "--limit"],
        ["sessions", "--limit", "0"],
        ["sessions", "--limit", "many"],
        ["sessions", "--limit", "--all"],
        ["sessions", "--all=yes"],
        ["sessions", "--", "x"],
        ["sessions", "--lim=3"],
    ],
)
def test_what_needs_explaining_is_left_to_the_framework(
    arguments: list[str], calls: list[Mapping[str, object]]
) -> None:
    """Help, other commands, wrong options and values: nothing is run."""
    assert run_plain(arguments) is None
    assert not calls
