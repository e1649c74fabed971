"""What is not loaded where it is not needed; times are measured elsewhere (`make bench`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.conftest import FakeHome
from tests.support.watching import Watching, watcher_env

FRAMEWORK = {"typer", "rich", "click"}
MODEL_CALL = {"httpx", "httpcore", "anyio", "certifi", "ssl", "_ssl", "_hashlib", "asyncio"}
CHECKING = {"pydantic", "pydantic_core", "tomlkit"}
HEAVY = FRAMEWORK | MODEL_CALL | CHECKING

_LISTING = """
import atexit, json, os, sys
report = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
atexit.register(lambda: os.write(report, json.dumps(sorted(sys.modules)).encode()))
"""
_COMMAND = _LISTING + "from watcher.__main__ import main; main()"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A home with one session, and a configuration that sets something."""
    home = FakeHome(tmp_path)
    home.session()
    return watcher_env(home.path, home.state, {"title.max_attempts": 2})


def loaded(program: str, env: dict[str, str], *args: str) -> set[str]:
    """The modules that a program has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        env=env,
        cwd=env["HOME"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
    )
    found: list[str] = json.loads(done.stderr)
    return set(found)


def without_configuration(env: dict[str, str]) -> dict[str, str]:
    """The environment without any of our settings but the state directory."""
    return {key: value for key, value in env.items() if "__" not in key}


def test_the_version_costs_no_more_than_python(env: dict[str, str]) -> None:
    """`--version` loads nothing of ours but the version, and what keeps an interrupt quiet."""
    found = loaded(_COMMAND, env, "--version")
    assert {name for name in found if name.startswith("watcher.")} == {
        "watcher.__main__",
        "watcher.cli",
        "watcher.cli.interrupts",
    }
    assert found & {"signal", "threading"} == set()


def test_the_status_line_is_light(env: dict[str, str]) -> None:
    """`statusline` runs before every prompt: no framework, no records, no structlog, no process list."""
    found = loaded(_COMMAND, env, "statusline")
    assert found & (HEAVY | {"structlog", "watchdog", "psutil", "msgspec", "sqlite3"}) == set()


@pytest.mark.parametrize("command", ["sessions", "tail", "status"])
def test_frequent_commands_load_no_framework(command: str, env: dict[str, str]) -> None:
    """Nothing that makes texts, writes or calls; pydantic only checks what somebody has set."""
    assert "pydantic" in loaded(_COMMAND, env, command)
    found = loaded(_COMMAND, without_configuration(env), command)
    assert found & (HEAVY - {"ssl", "_ssl"} | {"watchdog", "structlog"}) == set()
    assert found & {"watcher.drafting", "watcher.recording", "watcher.edge.text_model.client"} == set()


def test_an_idle_service_keeps_only_what_it_uses(env: dict[str, str], tmp_path: Path) -> None:
    """Neither the framework, nor what checked the configuration, nor what calls models and speaks TLS."""
    listing = tmp_path / "modules.json"
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import atexit, json, sys\n"
        "if sys.argv[1:2] == ['run'] or '-m' in sys.orig_argv:\n"
        f"    atexit.register(lambda: open({str(listing)!r}, 'w').write(json.dumps(sorted(sys.modules))) and None)\n"
    )
    with Watching(env | {"PYTHONPATH": f"{hook}{os.pathsep}{env['PYTHONPATH']}", "PYTHONWARNINGS": "default"}):
        pass
    found = set(json.loads(listing.read_text()))
    assert "watcher.daemon" in found
    assert found & HEAVY == set()
    assert found & {"typing_extensions", "email", "tomllib"} == set()
    assert found & {"watcher.core.extractive", "watcher.edge.text_model.transport", "watcher.api.server"} == set()
    assert sys.platform != "linux" or "psutil" not in found


def test_the_log_brings_neither_rich_nor_asyncio() -> None:
    """structlog asks for both; whoever needs asyncio later gets the real one."""
    program = (
        "import sys, watcher.log\n"
        "assert not {'rich', 'asyncio'} & set(sys.modules)\n"
        "import asyncio\n"
        "asyncio.run(asyncio.sleep(0))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
