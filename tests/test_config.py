"""The configuration: sources and their order, origins, and errors that name key, value and place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.config import (
    Config,
    LoadedConfig,
    TitleConfig,
    config_fields,
    config_path,
    config_table_markdown,
    default_config_text,
    display_value,
    env_variable,
    load_config,
    runtime_dir,
    save_values,
    socket_path,
    state_dir,
)
from watcher.config.editing import with_values
from watcher.config.sources import PLAIN_VARIABLES
from watcher.errors import ConfigError

HOME = {"HOME": "/home/someone"}


def load(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, **flags: object) -> LoadedConfig:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return load_config(HOME | (environ or {}), path=file, flags={k.replace("__", "."): v for k, v in flags.items()})


def error_of(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environ)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_those_of_the_design(tmp_path: Path) -> None:
    """Without any source every key has the default that design 5 promises, and says so."""
    loaded = load_config(HOME | {"XDG_CONFIG_HOME": str(tmp_path)})
    config = loaded.config
    assert not loaded.exists
    assert loaded.path == tmp_path / "qwen-watcher" / "config.toml"
    assert set(loaded.origins.values()) == {"default"}
    assert (config.title.enabled, config.title.settle_seconds, config.title.max_attempts) == (True, 8.0, 3)
    assert (config.watch.backend, config.title.sessions) == ("auto", "interactive")
    assert (config.recap.enabled, config.recap.trigger, config.recap.after_exit) == ("auto", "away", "always")
    assert (config.recap.min_user_turns, config.recap.min_user_turns_between) == (3, 2)
    assert (config.recap.fallback_to_main, config.recap.user_memory, config.recap.away_minutes) == (True, False, None)
    assert (config.model.source, config.model.api, config.model.timeout_seconds) == ("qwen", "openai", 30.0)
    assert (config.model.max_concurrency, config.budget.calls_per_day, config.privacy.redact) == (2, 300, True)
    assert (config.hooks.on_title, config.hooks.on_recap) == ((), ())
    assert (config.log.level, config.log.format) == ("info", "auto")


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    """Each source wins over the next, and the origin of each key names the one that won."""
    text = '[title]\nmax_attempts = 5\nsettle_seconds = 1\n[log]\nlevel = "error"\n'
    environ = {"QWEN_WATCHER_TITLE__SETTLE_SECONDS": "2.5", "QWEN_WATCHER_LOG__LEVEL": "warning"}
    loaded = load(tmp_path, text, environ, log__level="debug", log__format=None)
    assert loaded.config.title == TitleConfig(max_attempts=5, settle_seconds=2.5)
    assert loaded.config.log.level == "debug"
    assert loaded.origins["title.max_attempts"] == f"file {tmp_path / 'config.toml'}"
    assert loaded.origins["title.settle_seconds"] == "env QWEN_WATCHER_TITLE__SETTLE_SECONDS"
    assert loaded.origins["log.level"] == "flag"
    assert loaded.origins["log.format"] == "default"
    assert loaded.value("log.level") == "debug"
    assert set(loaded.origins) == {key for key, _ in config_fields()}


def test_every_key_can_be_set_by_its_variable(tmp_path: Path) -> None:
    """Any key can be given in the environment: lists as JSON, numbers, words for booleans, plain text."""
    environ = {
        "QWEN_WATCHER_WATCH__HOMES": '["~/q", "/srv/ü b"]',
        "QWEN_WATCHER_WATCH__EXCLUDE": '["~/private/*", "*/x"]',
        "QWEN_WATCHER_HOOKS__ON_TITLE": '["~/bin/hook", "~/not-expanded"]',
        "QWEN_WATCHER_RECAP__ENABLED": "yes",
        "QWEN_WATCHER_RECAP__AWAY_MINUTES": "0.5",
        "QWEN_WATCHER_TITLE__ENABLED": "off",
        "QWEN_WATCHER_TITLE__MAX_ATTEMPTS": "4",
        "QWEN_WATCHER_MODEL__NAME": "7",
        "QWEN_WATCHER_MODEL__LANGUAGE": "",
    }
    config = load(tmp_path, "", environ).config
    assert config.watch.homes == (Path("/home/someone/q"), Path("/srv/ü b"))
    assert config.watch.exclude == ("/home/someone/private/*", "*/x")
    assert config.hooks.on_title == ("/home/someone/bin/hook", "~/not-expanded")
    assert (config.recap.enabled, config.recap.away_minutes) == (True, 0.5)
    assert (config.title.enabled, config.title.max_attempts) == (False, 4)
    assert (config.model.name, config.model.language) == ("7", None)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[title]\nenabeld = true", ["title.enabeld = true", "did you mean title.enabled?"]),
        ("[titel]\nenabled = true", ["titel = ", "did you mean title?"]),
        ("max_concurrency = 2", ["max_concurrency = 2", "did you mean model.max_concurrency?"]),
        ("[zzz]", ["zzz = {}", "unknown key"]),
        ("title = 3", ["title = 3", "section"]),
        ('[title]\nenabled = "true"', ['title.enabled = "true"', "true | false"]),
        ("[title]\nenabled = 1", ["title.enabled = 1", "true | false"]),
        ("[title]\nsettle_seconds = -0.1", ["title.settle_seconds = -0.1", "from 0 to 3600"]),
        ("[title]\nsettle_seconds = nan", ["title.settle_seconds = NaN"]),
        ("[title]\nsettle_seconds = inf", ["title.settle_seconds = Infinity"]),
        ("[title]\nmax_attempts = 1.5", ["title.max_attempts = 1.5", "whole number"]),
        ("[recap]\nenabled = 'sometimes'", ['recap.enabled = "sometimes"', "auto | true | false"]),
        ("[recap]\naway_minutes = 0", ["recap.away_minutes = 0", "above 0"]),
        ("[model]\nmax_concurrency = 17", ["model.max_concurrency = 17", "from 1 to 16"]),
        ("[model]\nbase_url = 'ftp://host'", ['model.base_url = "ftp://host"', "http://"]),
        ("[watch]\nhomes = ['relative']", ["watch.homes", "neither absolute"]),
        ("[watch]\nhomes = '~/.qwen'", ["watch.homes", "list of paths"]),
        ("[watch]\ninclude = ['']", ['watch.include = [""]']),
        ("[budget]\ncalls_per_day = 2024-01-01", ["budget.calls_per_day", "2024-01-01"]),
        ("[model]\nsource = 'explicit'\nname = 'm'", ["model.source", "needs model.base_url"]),
        ("[title", ["not valid TOML"]),
    ],
)
def test_a_bad_file_is_named_with_key_and_value(tmp_path: Path, text: str, parts: list[str]) -> None:
    """An unknown key, a bad value or bad TOML is one line with key, value, file and what would be right."""
    message = error_of(tmp_path, text)
    for part in [*parts, str(tmp_path / "config.toml")]:
        assert part in message


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("QWEN_WATCHER_TITLE__SETLE_SECONDS", "2", ["did you mean QWEN_WATCHER_TITLE__SETTLE_SECONDS?"]),
        ("QWEN_WATCHER_CONFG", "/x", ["did you mean QWEN_WATCHER_CONFIG?"]),
        ("QWEN_WATCHER_WATCH__INCLUDE", "a", ["watch.include", '"a"', "list of texts"]),
        ("QWEN_WATCHER_WATCH__INCLUDE", "[1]", ["watch.include", "[1]"]),
        ("QWEN_WATCHER_TITLE__MAX_ATTEMPTS", "three", ["title.max_attempts", '"three"']),
        ("QWEN_WATCHER_TITLE__ENABLED", "maybe", ["title.enabled", '"maybe"']),
    ],
)
def test_a_bad_variable_is_named(tmp_path: Path, name: str, value: str, parts: list[str]) -> None:
    """A wrong or misspelt variable is an error that names the variable."""
    message = error_of(tmp_path, "", {name: value})
    for part in [*parts, name]:
        assert part in message


def test_every_bad_value_is_reported_at_once(tmp_path: Path) -> None:
    """Two faults are both in the message, so that they can be mended in one go."""
    message = error_of(tmp_path, "[title]\nmax_attempts = 0\n", {"QWEN_WATCHER_LOG__LEVEL": "loud"})
    assert "title.max_attempts = 0" in message
    assert 'log.level = "loud"' in message


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ('[model]\napi_key = "sk-sesame"', {}),
        ('[model]\napi_key_env = "sk-sesame"', {}),
        ("", {"QWEN_WATCHER_MODEL__API_KEY": "sk-sesame"}),
        ('[model]\nbase_url = "ftp://me:sk-sesame@host/"', {}),
    ],
)
def test_a_key_in_the_wrong_place_is_not_printed(tmp_path: Path, text: str, environ: dict[str, str]) -> None:
    """Where a user pasted a key instead of its variable's name, the error does not repeat the key."""
    message = error_of(tmp_path, text, environ)
    assert "sesame" not in message


def test_display_value_hides_credentials() -> None:
    """`config show` prints addresses without credentials and never what looks like a key instead of a name."""
    assert display_value("model.base_url", "https://me:pw@host/v1?key=abc") == '"https://…@host/v1?…"'
    assert display_value("model.api_key_env", "DASHSCOPE_API_KEY") == '"DASHSCOPE_API_KEY"'
    assert display_value("model.api_key_env", "abcdef0123456789") == "(not shown)"
    assert display_value("title.enabled", True) == "true"
    assert display_value("watch.homes", (Path("/a"),)) == '["/a"]'
    assert len(display_value("model.name", "x" * 500)) == 80


def test_a_missing_file_is_an_error_only_when_it_was_asked_for(tmp_path: Path) -> None:
    """A file named by `--config` or QWEN_WATCHER_CONFIG must exist; the default one need not."""
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        load_config(HOME, path=missing)
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        load_config(HOME | {"QWEN_WATCHER_CONFIG": str(missing)})


def test_the_config_variable_chooses_the_file(tmp_path: Path) -> None:
    """QWEN_WATCHER_CONFIG names another file; `~` is the user's home."""
    (tmp_path / "mine.toml").write_text("[title]\nenabled = false\n")
    loaded = load_config({"HOME": str(tmp_path), "QWEN_WATCHER_CONFIG": "~/mine.toml"})
    assert loaded.exists
    assert loaded.path == tmp_path / "mine.toml"
    assert loaded.config.title.enabled is False


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A directory in place of the file, a file that is not UTF-8 or has no end, is a ConfigError and no traceback."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(HOME, path=tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(HOME, path=tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match="larger than 1024 KiB"):
        load_config(HOME, path=Path("/dev/zero"))


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    """A file saved with a byte order mark reads like any other."""
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf[title]\nmax_attempts = 2\n")
    assert load_config(HOME, path=tmp_path / "bom.toml").config.title.max_attempts == 2


def test_an_unknown_flag_is_refused(tmp_path: Path) -> None:
    """A flag that maps to no key is an error and not ignored."""
    with pytest.raises(ConfigError, match=r"log\.levle"):
        load(tmp_path, log__levle="debug")


def test_explicit_model_is_complete(tmp_path: Path) -> None:
    """An explicit model with name and address loads; the key variable is optional."""
    config = load(tmp_path, '[model]\nsource="explicit"\nname="m"\nbase_url="http://127.0.0.1:1/v1"\n').config
    assert config.model.name == "m"
    assert config.model.api_key_env is None


def test_the_configuration_is_frozen() -> None:
    """A configuration is a value: nothing can be changed in place."""
    with pytest.raises(FrozenInstanceError):
        Config().title.enabled = False  # type: ignore[misc]  # what is tested


def test_default_text_changes_nothing_and_every_line_of_it_is_valid(tmp_path: Path) -> None:
    """`config init` writes a file without effect; with every # before a key removed it still loads."""
    text = default_config_text()
    assert all(table == {} for table in tomllib.loads(text).values())
    assert set(tomllib.loads(text)) == {field.name for field in fields(Config)}
    enabled = "\n".join(line[1:] if line.startswith("#") and line[1:2].isalpha() else line for line in text.split("\n"))
    loaded = load(tmp_path, enabled)
    assert all(origin.startswith("file ") for origin in loaded.origins.values())


def test_documentation_has_every_key() -> None:
    """The README's table has one row for each key, with its default and meaning."""
    rows = config_table_markdown().splitlines()[2:]
    keys = [key for key, field in config_fields() if field.description]
    assert [row.split("`")[1] for row in rows] == keys
    assert all(len(re.findall(r"(?<!\\)\| ", row)) == 4 for row in rows)


def test_saving_a_value_keeps_everything_else(tmp_path: Path) -> None:
    """A value is set in the user's file without touching comments, order or other keys; mode and link stay."""
    real = tmp_path / "dotfiles" / "w.toml"
    real.parent.mkdir()
    text = "# mine\n[title]\nmax_attempts = 2  # few\n\n[recap]\n# later\ntrigger = 'return'\n"
    real.write_text(text)
    real.chmod(0o640)
    file = tmp_path / "config.toml"
    file.symlink_to(real)
    save_values(HOME, file, {"recap.enabled": True, "model.source": "extractive", "watch.homes": ["~/.qwen"]})
    assert file.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    saved = real.read_text()
    assert saved.startswith(text.replace("[recap]\n", "[recap]\nenabled = true\n"))
    config = load_config(HOME, path=file).config
    assert (config.recap.enabled, config.recap.trigger, config.title.max_attempts) == (True, "return", 2)
    assert (config.model.source, config.watch.homes) == ("extractive", (Path("/home/someone/.qwen"),))
    save_values(HOME, file, {"recap.enabled": "auto"})
    assert real.read_text() == saved.replace("enabled = true", 'enabled = "auto"')


def test_saving_makes_a_missing_file_from_the_default_text(tmp_path: Path) -> None:
    """Without a file, one with every key described is made, private, with just the new value in force."""
    file = tmp_path / "new" / "config.toml"
    save_values(HOME, file, {"recap.enabled": True})
    assert file.stat().st_mode & 0o777 == 0o600
    loaded = load_config(HOME, path=file)
    assert [key for key, origin in loaded.origins.items() if origin != "default"] == ["recap.enabled"]
    assert "#settle_seconds = 8.0" in file.read_text()


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(["model.source", "recap.trigger", "hooks.on_title", "log.level"]), st.just(0)))
def test_a_saved_value_stands_under_its_own_description(chosen: dict[str, int]) -> None:
    """In a commented file the line that shows the default is replaced; no other line is touched or moved."""
    some = {"model.source": "extractive", "recap.trigger": "return", "hooks.on_title": ["a b"], "log.level": "debug"}
    old = default_config_text().splitlines()
    new = with_values(default_config_text(), {key: some[key] for key in chosen}).splitlines()
    changed = [(before, after) for before, after in zip(old, new, strict=True) if before != after]
    assert len(changed) == len(chosen)
    assert all(before.startswith(f"#{after.split(' = ')[0]} = ") for before, after in changed)


def test_a_value_goes_where_the_section_is() -> None:
    """At the head of a section without such a line; sections that are missing, or dotted keys, work too."""
    above = "# about the log\n"
    assert with_values(f"[model]\n{above}[log]", {"model.source": "qwen"}) == f'[model]\nsource = "qwen"\n{above}[log]'
    for text in ("", 'model.api = "gemini"\n', 'model = {api = "gemini"}\n', 'x = """\n[model]\n"""\n', "[model]"):
        assert tomllib.loads(with_values(text, {"model.source": "qwen"}))["model"]["source"] == "qwen"


def test_a_wrong_value_or_file_is_not_written(tmp_path: Path) -> None:
    """Neither a bad value nor a file that is wrong already is written to; an unwritable place is named."""
    file = tmp_path / "config.toml"
    file.write_text("[title]\nenabled = true\n")
    with pytest.raises(ConfigError, match=r"recap\.enabled"):
        save_values(HOME, file, {"recap.enabled": "sometimes"})
    with pytest.raises(ConfigError, match=r"recap\.enabeld"):
        save_values(HOME, file, {"recap.enabeld": True})
    assert file.read_text() == "[title]\nenabled = true\n"
    file.write_text("[titel]\n")
    with pytest.raises(ConfigError, match="titel"):
        save_values(HOME, file, {"recap.enabled": True})
    assert file.read_text() == "[titel]\n"
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be"):
        save_values(HOME, tmp_path / "file" / "x.toml", {"recap.enabled": True})


KEYS = [key for key, _ in config_fields()]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([env_variable(key) for key in KEYS]),
        st.one_of(st.text(max_size=12), st.integers().map(str), st.floats().map(str), st.just("[]"), st.just("true")),
        max_size=4,
    )
)
def test_any_environment_loads_or_names_its_variable(environ: dict[str, str]) -> None:
    """Whatever the variables hold, the result is a configuration or a ConfigError that names one of them."""
    try:
        load_config(HOME | {"XDG_CONFIG_HOME": "/nonexistent"} | environ)
    except ConfigError as error:
        assert any(name in str(error) for name in environ)


def test_directories_follow_the_environment() -> None:
    """XDG variables and our own choose the directories; relative XDG values are ignored."""
    assert config_path(HOME | {"XDG_CONFIG_HOME": "/c"}) == Path("/c/qwen-watcher/config.toml")
    assert config_path(HOME | {"QWEN_WATCHER_CONFIG": "/x.toml"}) == Path("/x.toml")
    assert state_dir(HOME | {"XDG_STATE_HOME": "/s"}) == Path("/s/qwen-watcher")
    assert state_dir(HOME | {"QWEN_WATCHER_STATE_DIR": "~/w"}) == Path("/home/someone/w")
    assert runtime_dir({"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7")
    assert runtime_dir({"XDG_RUNTIME_DIR": "/run/user/7", "QWEN_WATCHER_STATE_DIR": "/w"}) == Path("/w")
    assert socket_path({"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7/qwen-watcher.sock")
    assert state_dir({"XDG_STATE_HOME": "relative", "HOME": "/h"}).is_relative_to("/h")


def test_without_home_the_user_database_decides() -> None:
    """A service without HOME still finds its directories."""
    assert state_dir({}).is_relative_to(Path(os.path.expanduser("~" + os.environ.get("USER", "root"))))


@pytest.mark.skipif(sys.platform != "linux", reason="the Linux defaults")
def test_linux_defaults() -> None:
    """On Linux the files are where the XDG base directory specification puts them."""
    assert config_path(HOME) == Path("/home/someone/.config/qwen-watcher/config.toml")
    assert state_dir(HOME) == Path("/home/someone/.local/state/qwen-watcher")
    assert runtime_dir(HOME) == state_dir(HOME)


def test_directories_agree_with_platformdirs(tmp_path: Path) -> None:
    """The directories are those of platformdirs for this platform, which only the process environment can ask."""
    script = (
        "import os, platformdirs; from watcher.paths import config_dir, state_dir\n"
        "assert platformdirs.user_config_path('qwen-watcher') == config_dir(os.environ)\n"
        "assert platformdirs.user_state_path('qwen-watcher') == state_dir(os.environ)\n"
    )
    for environ in ({}, {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, {"XDG_STATE_HOME": ""}):
        subprocess.run([sys.executable, "-c", script], env={"HOME": str(tmp_path)} | environ, check=True, timeout=60)


def test_paths_need_no_pydantic() -> None:
    """A short command finds the socket without paying for pydantic."""
    script = "import sys, watcher.paths; sys.exit('pydantic' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_plain_variables_are_not_keys() -> None:
    """The two variables that are no keys collide with none."""
    assert not set(PLAIN_VARIABLES) & {env_variable(key) for key in KEYS}
