"""What `service install` is told or asks for: the model, recaps, and whether to store a key."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from watcher.atomic_file import replace_file
from watcher.cli.output import say
from watcher.config import LoadedConfig, env_variable, save_values
from watcher.config.sources import read_config_text
from watcher.drafting import EXTRACTIVE
from watcher.errors import UsageError
from watcher.paths import home_dir
from watcher.service.files import remove_empty_directories

LOCAL_EXAMPLE = "--model qwen3:4b --base-url http://127.0.0.1:11434/v1"


def at_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def chosen_values(
    loaded: LoadedConfig,
    *,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    enable_recaps: bool,
) -> dict[str, object]:
    """The configuration keys that the options stand for. Raises UsageError where they contradict themselves."""
    values: dict[str, object] = {}
    if model == EXTRACTIVE:
        if base_url or api_key_env:
            raise UsageError("--model extractive asks nobody: it takes neither --base-url nor --api-key-env")
        values["model.source"] = EXTRACTIVE
    elif model is not None:
        values |= _explicit(loaded, model, base_url, api_key_env)
    elif base_url or api_key_env:
        raise UsageError(f"--base-url and --api-key-env need --model, as in {LOCAL_EXAMPLE}")
    if enable_recaps:
        values["recap.enabled"] = True
    for key in values:
        if loaded.origins[key].startswith("env "):
            raise UsageError(f"{env_variable(key)} is set in this shell and would win; unset it first")
    return values


def _explicit(loaded: LoadedConfig, model: str, base_url: str | None, api_key_env: str | None) -> dict[str, object]:
    address = base_url or loaded.config.model.base_url
    if not address:
        raise UsageError(f"--model {model} needs --base-url, as in {LOCAL_EXAMPLE}; or take --model extractive")
    values: dict[str, object] = {"model.source": "explicit", "model.name": model, "model.base_url": address}
    if api_key_env:
        values["model.api_key_env"] = api_key_env
    return values


def ask_model(missing: str) -> dict[str, str | None]:
    """Ask who shall write the texts, and return the options that the answer stands for; empty for "nobody yet"."""
    say(f"Titles need a model, and {missing}. Who shall write them?")
    say("  1  nobody for now: set fastModel in Qwen Code's settings later, and it is used at once")
    say("  2  extractive: cut from your own words, offline and free")
    say("  3  another model, on this machine or elsewhere: asks for name, address and the variable of its key")
    answer = typer.prompt("Choice", default="1")
    while answer not in ("1", "2", "3"):
        answer = typer.prompt("Choice, 1 to 3", default="1")
    if answer == "1":
        return {}
    if answer == "2":
        return {"model": EXTRACTIVE}
    return {
        "model": typer.prompt("Model"),
        "base_url": typer.prompt("Address", default="http://127.0.0.1:11434/v1"),
        "api_key_env": typer.prompt("Variable that holds its key (empty: none)", default="", show_default=False)
        or None,
    }


def keys_to_store(
    needed: Iterable[str], stored: Mapping[str, str], environ: Mapping[str, str], *, yes: bool
) -> list[str]:
    """Those of the variables that the user wants stored: all with `yes`, else as answered at a terminal, else none."""
    missing = [name for name in needed if stored.get(name) != environ.get(name)]
    if yes or not missing or not at_terminal():
        return missing if yes else []
    names = ", ".join(missing)
    say(f"The key of your model is in {names} of this shell, which a service does not see.")
    return missing if typer.confirm("Store it for the service, in a file that only you can read?") else []


@contextmanager
def config_with(environ: Mapping[str, str], path: Path, values: Mapping[str, object]) -> Iterator[None]:
    """Save the values in the configuration; when the block fails, the file is as before. Raises ConfigError."""
    if not values:
        yield
        return
    before = read_config_text(path)
    mode = path.stat().st_mode & 0o777 if before is not None else 0o600
    save_values(environ, path, values)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if before is None:
                path.unlink()
                remove_empty_directories(path.parent, up_to=home_dir(environ))
            else:
                replace_file(path, before, mode)
        raise
