"""Shell completion of session ids."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.home import Home

IDS = ("abcd1111-0000-4000-8000-000000000001", "abcd2222-0000-4000-8000-000000000002")


@pytest.fixture
def program(home: Home) -> Path:
    """A `qwen-watcher` on the PATH of the home."""
    path = home.root / "bin" / "qwen-watcher"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m watcher "$@"\n')
    path.chmod(0o755)
    home.env["PATH"] = f"{path.parent}:{home.env['PATH']}"
    for number, session_id in enumerate(IDS):
        session = home.session(session_id=session_id, age=1000.0 * (2 - number))
        session.title('It\'s "$(touch pwned)" `touch pwned`; \\$(touch pwned) :)) [x]')
        home.rest(session)
    return path


def in_shell(home: Home, *command: str) -> str:
    ran = subprocess.run(command, env=home.env, cwd=home.root, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert not (home.root / "pwned").exists()
    return ran.stdout


@pytest.mark.usefixtures("program")
def test_bash(home: Home) -> None:
    """Tab offers commands, ids newest first, and the kinds of `tail`."""
    script = """
        eval "$(_QWEN_WATCHER_COMPLETE=source_bash qwen-watcher)"
        for line in "qwen-watcher title abcd" "qwen-watcher tail --session abcd2" "qwen-watcher tail --kind r"; do
            COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _qwen_watcher_completion qwen-watcher
            echo "${COMPREPLY[@]}"
        done
    """
    lines = in_shell(home, "bash", "-c", script).splitlines()
    assert lines == [f"{IDS[1]} {IDS[0]}", IDS[1], "recap"]


@pytest.mark.usefixtures("program")
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(home: Home) -> None:
    """fish shows each id with its title."""
    script = "_QWEN_WATCHER_COMPLETE=source_fish qwen-watcher | source; complete -C 'qwen-watcher why abcd'"
    lines = in_shell(home, "fish", "-c", script).splitlines()
    assert [line.split("\t")[0] for line in lines] == sorted(IDS)
    assert lines[0].split("\t")[1].startswith("It s")


@pytest.mark.usefixtures("program")
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(home: Home) -> None:
    """zsh evaluates what it is offered: no title can make it run anything."""
    script = """
        autoload -Uz compinit; compinit -u -d .zcompdump
        eval "$(_QWEN_WATCHER_COMPLETE=source_zsh qwen-watcher)"
        _arguments() { local spec=${1#*: :}; eval ws=\\( ${${spec#\\(\\(}%\\)\\)} \\); print -rl -- $ws }
        words=(qwen-watcher why abcd); CURRENT=3
        _qwen_watcher_completion
    """
    lines = in_shell(home, "zsh", "-f", "-c", script).splitlines()
    assert [line.partition(":")[0] for line in lines] == [IDS[1], IDS[0]]


def test_nothing_is_offered_when_the_configuration_is_broken(home: Home) -> None:
    """A completion never prints an error into the user's line."""
    from watcher.cli.completion import complete_session  # noqa: PLC0415

    home.env["QWEN_WATCHER_CONFIG"] = str(home.root / "missing.toml")
    assert home.run("sessions").code == 2
    assert complete_session("") == []
