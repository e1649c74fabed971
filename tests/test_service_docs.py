"""The pages about installing and trouble: what they tell people to type exists, and what they quote is true."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.installed import ROOT
from watcher.core.reasons import Reason
from watcher.doctor import CHECK_NAMES

PAGES = ["install.md", "troubleshooting.md"]
_CODE = re.compile(r"```sh\n(.*?)```|`([^`\n]+)`", re.DOTALL)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    """The words of each `qwen-watcher …` in code, up to what a shell would take for itself."""
    code = "\n".join(block or inline for block, inline in _CODE.findall(text))
    found = re.findall(r"^(?:\S+/)?qwen-watcher((?: [^\n|&;#]+)?)$", code, re.MULTILINE)
    return [words.split() for words in found if words]


@cache
def help_of(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "watcher", *command, "--help"],
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_command_and_option_exists(name: str) -> None:
    """Each documented `qwen-watcher …` has a help, and each of its options stands in it."""
    found = commands(page(name))
    assert len(found) > 8
    for words in found:
        depth = 2 if words[0] in ("service", "config") else 1
        text = help_of(*words[:depth])
        for option in (word for word in words[depth:] if word.startswith("-")):
            assert option in text, f"{words}: no {option}"


@pytest.mark.parametrize("name", PAGES)
def test_the_shell_can_read_every_block(name: str) -> None:
    """Each block of commands is valid for a shell."""
    for block in re.findall(r"```sh\n(.*?)```", page(name), re.DOTALL):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), block


def test_the_names_in_the_trouble_page_exist() -> None:
    """Every check and reason that is named there is one."""
    known = {*CHECK_NAMES, *(reason.value for reason in Reason)}
    text = page("troubleshooting.md")
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    assert named - {"calls_per_day", "rss_bytes", "sessions_watched"} <= known
    assert {"fast_model", "service_environment", "left_to_qwen"} <= named


def test_the_links_lead_somewhere() -> None:
    """Links to other pages and the files that are named exist."""
    for name in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page(name)):
            assert (ROOT / "docs" / target).exists(), target
    assert (ROOT / "systemd" / "qwen-watcher.service").exists()
    assert "untested" in page("install.md")
    assert Path(ROOT / "tests" / "test_service_systemd.py").exists()
