"""`service …`: what the options mean, which keys a service would miss, and what is said where no manager answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from watcher.cli.service_choices import chosen_values, config_with, keys_to_store
from watcher.config import load_config
from watcher.errors import ServiceError, UsageError
from watcher.model_keys import key_variables


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose home is empty."""
    nowhere = str(tmp_path / "no" / "settings.json")
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "QWEN_CODE_SYSTEM_SETTINGS_PATH": nowhere}


def call(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "watcher", "service", *words]
    return subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


def values(environ: dict[str, str], **options: Any) -> dict[str, object]:
    defaults = {"model": None, "base_url": None, "api_key_env": None, "enable_recaps": False}
    return chosen_values(load_config(environ), **{**defaults, **options})


def test_options_stand_for_configuration_keys(environ: dict[str, str]) -> None:
    """The offline model, an explicit one with and without a key, recaps; and nothing at all."""
    assert values(environ) == {}
    assert values(environ, enable_recaps=True) == {"recap.enabled": True}
    assert values(environ, model="extractive") == {"model.source": "extractive"}
    explicit = values(environ, model="m", base_url="http://h/v1", api_key_env="K", enable_recaps=True)
    assert explicit == {
        "model.source": "explicit",
        "model.name": "m",
        "model.base_url": "http://h/v1",
        "model.api_key_env": "K",
        "recap.enabled": True,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "m"}, "--base-url"),
        ({"base_url": "http://h"}, "need --model"),
        ({"api_key_env": "K"}, "need --model"),
        ({"model": "extractive", "base_url": "http://h"}, "asks nobody"),
    ],
)
def test_options_that_contradict_themselves(environ: dict[str, str], options: dict[str, str], words: str) -> None:
    """Each with what is missing or too much."""
    with pytest.raises(UsageError, match=words):
        values(environ, **options)


def test_an_address_that_is_configured_need_not_be_given_again(environ: dict[str, str]) -> None:
    """Another model at the same address."""
    file = Path(environ["HOME"]) / ".config" / "qwen-watcher" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[model]\nbase_url = "http://h/v1"\n')
    assert values(environ, model="m")["model.base_url"] == "http://h/v1"


def test_a_variable_that_would_win_over_the_option_is_named(environ: dict[str, str]) -> None:
    """An option that is saved in the file and then overruled would be a puzzle."""
    with pytest.raises(UsageError, match="QWEN_WATCHER_MODEL__SOURCE"):
        values({**environ, "QWEN_WATCHER_MODEL__SOURCE": "qwen"}, model="extractive")


def test_the_configuration_is_put_back_when_the_install_fails(environ: dict[str, str]) -> None:
    """A file that was made is gone with its directory, one that was changed is as before, its mode included."""
    file = Path(environ["HOME"]) / ".config" / "qwen-watcher" / "config.toml"

    def fail() -> None:
        with config_with(environ, file, {"model.source": "extractive"}):
            assert load_config(environ).config.model.source == "extractive"
            raise ServiceError("no")

    with pytest.raises(ServiceError):
        fail()
    assert list(Path(environ["HOME"]).iterdir()) == []
    file.parent.mkdir(parents=True)
    file.write_text("# mine\n[title]\nenabled = false\n")
    file.chmod(0o640)
    with pytest.raises(ServiceError):
        fail()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("# mine\n[title]\nenabled = false\n", 0o640)


def write_settings(environ: dict[str, str], **settings: object) -> Path:
    directory = Path(environ["HOME"]) / ".qwen"
    directory.mkdir(exist_ok=True)
    auth = {"auth": {"selectedType": "openai"}}
    (directory / "settings.json").write_text(json.dumps({"security": auth, **settings}))
    return directory


def test_keys_that_only_the_shell_has(environ: dict[str, str]) -> None:
    """The fast model's, the main model's where it stands in for recaps; not one that a file has as well."""
    providers = {
        "openai": [
            {"id": "flash", "baseUrl": "http://h", "envKey": "FLASH_KEY"},
            {"id": "big", "baseUrl": "http://h", "envKey": "BIG_KEY"},
        ]
    }
    shell = {**environ, "FLASH_KEY": "f", "BIG_KEY": "b", "OTHER_KEY": "o"}
    assert key_variables(shell) == ()
    directory = write_settings(environ, modelProviders=providers, model={"name": "big"})
    assert key_variables(shell) == ("BIG_KEY",)
    write_settings(environ, modelProviders=providers, fastModel="flash", model={"name": "big"})
    assert key_variables(shell) == ("FLASH_KEY",)
    assert key_variables(environ) == ()
    (directory / ".env").write_text("FLASH_KEY=f\n")
    assert key_variables(shell) == ()
    (directory / ".env").write_text("FLASH_KEY=another\n")
    assert key_variables(shell) == ("FLASH_KEY",)
    explicit = {
        "QWEN_WATCHER_MODEL__SOURCE": "explicit",
        "QWEN_WATCHER_MODEL__NAME": "m",
        "QWEN_WATCHER_MODEL__BASE_URL": "http://h",
        "QWEN_WATCHER_MODEL__API_KEY_ENV": "OTHER_KEY",
    }
    assert key_variables({**shell, **explicit}) == ("OTHER_KEY",)
    assert key_variables({**shell, "QWEN_WATCHER_MODEL__SOURCE": "extractive"}) == ()


def test_a_key_is_stored_only_when_wanted_and_when_it_is_not_there_yet() -> None:
    """Nobody to ask and no option: none. With the option those that are missing or have changed."""
    environ = {"A": "1", "B": "2"}
    assert keys_to_store(["A", "B"], {}, environ, yes=False) == []
    assert keys_to_store(["A", "B"], {}, environ, yes=True) == ["A", "B"]
    assert keys_to_store(["A", "B"], {"A": "1", "B": "old"}, environ, yes=True) == ["B"]
    assert keys_to_store(["A"], {"A": "1"}, environ, yes=True) == []


@pytest.mark.slow
def test_where_no_manager_answers(environ: dict[str, str]) -> None:
    """One line with the command to use instead, exit code 1, and no file made; status and uninstall still answer."""
    done = call(environ, "install", "--model", "extractive", "--enable-recaps")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "qwen-watcher run" in done.stderr
    assert list(Path(environ["HOME"]).iterdir()) == []
    status = call(environ, "status")
    assert (status.returncode, "not installed" in status.stdout) == (0, True)
    assert call(environ, "uninstall").stdout == "nothing was installed\n"


@pytest.mark.slow
def test_wrong_usage_is_exit_2_before_anything_is_looked_for(environ: dict[str, str]) -> None:
    """Also where no manager answers, the mistake in the options is told first."""
    assert call(environ, "install", "--model", "m").returncode == 2
    file = Path(environ["HOME"]) / ".config" / "qwen-watcher" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[titel]\n")
    done = call(environ, "install")
    assert (done.returncode, "titel" in done.stderr) == (2, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have come by sudo")
def test_sudo_is_refused(environ: dict[str, str]) -> None:
    """A user service that root installs would watch root's sessions; the error names the user to run it as."""
    done = call({**environ, "SUDO_USER": "alice"}, "install")
    assert (done.returncode, "run it as alice, without sudo" in done.stderr) == (1, True)


def test_logs_without_a_program_to_show_them(environ: dict[str, str], tmp_path: Path) -> None:
    """No journalctl: one line with another way to see the log."""
    done = call({**environ, "PATH": str(tmp_path)}, "logs")
    assert (done.returncode, "journalctl" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
