"""The configuration read in a process of its own: the same values and errors as in this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from watcher.config import LoadedConfig, config_fields, env_variable, load_config, load_config_apart
from watcher.errors import ConfigError

TEXT = """
[watch]
homes = ["~/a", "/srv/ü b"]
exclude = ["~/private/*"]
[title]
settle_seconds = 2
[recap]
enabled = true
away_minutes = 0.5
[hooks]
on_title = ["~/bin/hook", "--json"]
"""
EXAMPLES = {
    "title.max_attempts": "4",
    "title.enabled": "off",
    "model.name": "a model",
    "model.base_url": "http://127.0.0.1:1/v1",
    "watch.homes": '["~/q"]',
    "recap.away_minutes": "x",
    "budget.calls_per_day": "-1",
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A home without a configuration."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def both(environ: dict[str, str], path: Path | None = None, **flags: object) -> list[LoadedConfig | str]:
    """What each way of reading gives: a configuration, or the text of an error."""
    found: list[LoadedConfig | str] = []
    for load in (load_config, load_config_apart):
        try:
            found.append(load(environ, path=path, flags={key.replace("__", "."): each for key, each in flags.items()}))
        except ConfigError as error:
            found.append(str(error))
    return found


def test_the_values_are_the_same(tmp_path: Path, environ: dict[str, str]) -> None:
    """Paths, lists, numbers and words; origins and path as well."""
    file = tmp_path / "w.toml"
    file.write_text(TEXT)
    here, apart = both(environ | {"QWEN_WATCHER_MODEL__SOURCE": "extractive"}, file, log__level="debug")
    assert isinstance(here, LoadedConfig)
    assert here.config.watch.homes == (tmp_path / "a", Path("/srv/ü b"))
    assert apart == here


def test_the_errors_are_the_same(tmp_path: Path, environ: dict[str, str]) -> None:
    """An unknown key, a bad value, a missing file."""
    file = tmp_path / "w.toml"
    file.write_text("[title]\nenabeld = true\n")
    here, apart = both(environ, file)
    assert "title.enabeld" in str(here)
    assert apart == here
    here, apart = both(environ, tmp_path / "none.toml")
    assert "no such file" in str(here)
    assert apart == here


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(sorted(EXAMPLES)), min_size=1, max_size=3))
@pytest.mark.slow
def test_any_environment_gives_the_same(environ: dict[str, str], keys: set[str]) -> None:
    """Variables, right and wrong ones."""
    here, apart = both(environ | {env_variable(key): EXAMPLES[key] for key in keys})
    assert apart == here


def test_defaults_start_no_process(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is set there is nothing to check."""
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    loaded = load_config_apart(environ)
    assert set(loaded.origins.values()) == {"default"}
    assert set(loaded.origins) == {key for key, _ in config_fields()}


def test_without_a_process_it_is_read_here(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that starts no more processes still gets its configuration."""
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert load_config_apart(environ | {"QWEN_WATCHER_TITLE__ENABLED": "off"}).config.title.enabled is False


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list any directory")
def test_a_hidden_file_is_an_error(tmp_path: Path, environ: dict[str, str]) -> None:
    """A configuration that cannot be looked for is not taken for none."""
    folder = tmp_path / "config"
    (folder / "qwen-watcher").mkdir(parents=True)
    folder.chmod(0)
    try:
        here, apart = both(environ)
    finally:
        folder.chmod(0o700)
    assert "cannot be read" in str(here)
    assert apart == here
