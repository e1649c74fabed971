"""What the documentation says is true: tables are generated, commands run as written or are on a counted list."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.transcripts import Transcript
from tests.support.watching import watcher_env
from watcher.config import config_table_markdown, load_config

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

NOT_RUN_HERE = {
    "make demo": "sets up an environment; run by hand and by whoever reads the README",
    "make test": "this is it",
    "pipx": "needs the package index",
    "uv": "needs the package index",
    "pip": "needs the package index",
    "python3 -m venv": "needs the package index",
    "qwen-watcher service": "needs a service manager: tests/test_service_*.py and tests/scenarios/test_service_real.py",
    "systemctl": "needs a service manager: tests/test_service_*.py",
    "loginctl": "needs logind",
    "qwen-watcher tail -f": "follows for ever: tests/cli/test_recipes.py",
    "PROMPT_COMMAND=": "for an interactive bash: tests/cli/test_recipes.py",
    "PS1=": "for an interactive bash: tests/cli/test_recipes.py",
    "qwen-watcher --install-completion": "needs a shell that completes: tests/cli/test_completion.py",
    "qwen-watcher run": "runs for ever: tests/scenarios/test_run.py",
    "mkdir ": "installs by hand",
    "curl --unix-socket": "needs a running watcher: tests/api",
    "ln ": "installs by hand",
    "rm ": "removes by hand",
    "~/.local/share/qwen-watcher-venv/bin/pip": "needs the package index",
}
"""Commands of the pages that do not run in this test, by how they begin, each with its reason."""


def commands() -> Iterator[tuple[str, str]]:
    """Every command line of every shell block: page and text, comments taken off, continued lines joined."""
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text()):
            if language in ("sh", "bash", "console"):
                yield from ((page.name, command) for command in split(block))


def split(block: str) -> list[str]:
    """The commands of one block; a loop or a pipeline over several lines is one."""
    found: list[str] = []
    for raw in block.splitlines():
        line = re.sub(r"\s+#\s.*$", "", raw.removeprefix("$ ")).rstrip()
        if not line or line.startswith("#"):
            continue
        open_loop = found and (
            re.search(r"\bdo$|\\$", found[-1]) or (" while " in found[-1] and not found[-1].endswith("done"))
        )
        if open_loop:
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


def reason(command: str) -> str | None:
    """Why this command is not run here, None when it is."""
    return next((why for start, why in NOT_RUN_HERE.items() if command.startswith(start)), None)


COMMANDS = sorted(set(commands()))
RUN_HERE = [(page, command) for page, command in COMMANDS if reason(command) is None]


@pytest.mark.parametrize(("page", "command"), RUN_HERE, ids=[f"{p}: {c.splitlines()[0][:60]}" for p, c in RUN_HERE])
def test_commands_run_as_written(page: str, command: str, tmp_path: Path) -> None:
    """In a home with one untitled session and the offline model, each ends with 0, or with 1 and a reason."""
    if "jq" in command and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    home = tmp_path / "home"
    session = Transcript(home / ".qwen/projects/-home-user-proj/chats", at=time.time() - 60)
    session.turn("Please fix the flaky login test in auth_test.py", "Done. Next: run the suite.")
    tools = tmp_path / "bin"
    tools.mkdir()
    script = tools / "qwen-watcher"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m watcher "$@"\n')
    script.chmod(0o755)
    env = watcher_env(home, tmp_path / "state", {"model.source": "extractive"})
    env["PATH"] = f"{tools}:{env['PATH']}"
    text = re.sub(r"\bS\b(?=$|\s)", "latest", command)
    done = subprocess.run(
        ["/bin/sh", "-c", text],
        env=env,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    fine = done.returncode == 0 or (done.returncode == 1 and ("reason: " in done.stderr or "doctor" in command))
    assert fine, f"{command}\n{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


def test_every_reason_for_not_running_is_needed() -> None:
    """The list is short and holds nothing stale."""
    unused = [start for start in NOT_RUN_HERE if not any(command.startswith(start) for _, command in COMMANDS)]
    assert unused == []
    assert RUN_HERE


def test_the_configuration_table_is_the_generated_one() -> None:
    """`docs/configuration.md` holds exactly what the settings model says."""
    assert config_table_markdown() in (ROOT / "docs" / "configuration.md").read_text()


def test_configuration_examples_are_valid(tmp_path: Path) -> None:
    """Every TOML block is a configuration that loads."""
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text()):
            if language == "toml":
                file = tmp_path / "config.toml"
                file.write_text(block)
                load_config({"HOME": str(tmp_path)}, path=file)
                tomllib.loads(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the repository."""
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
