"""`config show`, `config path`, `config init`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.home import KEY, Home
from watcher.config import config_fields, default_config_text


def config_file(home: Home) -> Path:
    return home.root / ".config" / "qwen-watcher" / "config.toml"


def test_path_also_of_a_broken_file(home: Home) -> None:
    """The path is printed whatever is in the file; another one by the variable."""
    assert home.run("config", "path").out == f"{config_file(home)}\n"
    config_file(home).parent.mkdir(parents=True)
    config_file(home).write_text("[title\n")
    assert home.run("config", "path").out == f"{config_file(home)}\n"
    assert home.run("config", "show").code == 2
    home.env["QWEN_WATCHER_CONFIG"] = str(home.root / "other.toml")
    assert home.run("config", "path").out == f"{home.root / 'other.toml'}\n"


def test_init_writes_every_key_once(home: Home) -> None:
    """The file changes nothing, is private, and is not replaced without `--force`."""
    assert home.run("config", "init").out == f"written: {config_file(home)}\n"
    assert config_file(home).read_text() == default_config_text()
    assert config_file(home).stat().st_mode & 0o777 == 0o600
    config_file(home).write_text("[title]\nenabled = false\n")
    ran = home.run("config", "init")
    assert (ran.code, "--force" in ran.err) == (2, True)
    assert home.run("config", "show", "--json").json["values"]["title.enabled"]["value"] is False
    assert home.run("config", "init", "--force").code == 0
    assert config_file(home).read_text() == default_config_text()


def test_show_tells_every_value_and_its_origin(home: Home) -> None:
    """File, environment and default, for each key."""
    config_file(home).parent.mkdir(parents=True)
    config_file(home).write_text("[title]\nmax_attempts = 5\n")
    home.env["QWEN_WATCHER_BUDGET__CALLS_PER_DAY"] = "7"
    found = home.run("config", "show", "--json").json
    assert set(found["values"]) == {key for key, _ in config_fields()}
    assert found["values"]["title.max_attempts"] == {"value": 5, "origin": f"file {config_file(home)}"}
    assert found["values"]["budget.calls_per_day"] == {
        "value": 7,
        "origin": "env QWEN_WATCHER_BUDGET__CALLS_PER_DAY",
    }
    assert found["values"]["recap.trigger"] == {"value": "away", "origin": "default"}
    shown = home.run("config", "show").out
    assert f"title.max_attempts\t5\tfile {config_file(home)}" in shown


def test_show_tells_what_qwen_code_has(home: Home) -> None:
    """The models, where each came from, whether the key is there and its variable's name; never the key."""
    home.use_model("http://127.0.0.1:9", general={"showSessionRecap": True, "outputLanguage": "German"})
    qwen = home.run("config", "show", "--json").json["qwen"]
    assert qwen["fast_model"] == {
        "id": "flash",
        "missing": None,
        "protocol": "openai",
        "base_url": "http://127.0.0.1:9/v1",
        "key_set": True,
        "key_name": "FLASH_KEY",
    }
    assert (qwen["show_session_recap"], qwen["output_language"]) == (True, "German")
    assert qwen["origins"]["fastModel"] == "user settings ~/.qwen/settings.json"
    shown = home.run("config", "show").out
    assert "set, from FLASH_KEY" in shown
    assert "session recaps\ton\tuser settings ~/.qwen/settings.json" in shown
    del home.env["FLASH_KEY"]
    assert "FLASH_KEY is not set" in home.run("config", "show").out


def test_show_tells_where_files_and_sessions_are_and_why_there(home: Home) -> None:
    """Our own variables, Qwen Code's, its `.env` and its settings."""
    home.use_model("http://127.0.0.1:9", advanced={"runtimeOutputDir": "/srv/out"})
    assert places(home)["sessions"] == (str(home.root / ".qwen"), "default")
    assert places(home)[""] == ("/srv/out", "advanced.runtimeOutputDir in user settings ~/.qwen/settings.json")
    (home.root / ".qwen" / ".env").write_text("QWEN_RUNTIME_DIR=/srv/run\n")
    assert places(home)[""] == ("/srv/run", f"QWEN_RUNTIME_DIR from {home.root / '.qwen' / '.env'}")
    home.env |= {"QWEN_WATCHER_STATE_DIR": "/srv/state", "QWEN_HOME": "~/other", "XDG_CONFIG_HOME": "/srv/config"}
    found = places(home)
    assert found["state"] == ("/srv/state", "env QWEN_WATCHER_STATE_DIR")
    assert found["socket"] == ("/srv/state/qwen-watcher.sock", "env QWEN_WATCHER_STATE_DIR")
    assert found["sessions"] == (str(home.root / "other"), "env QWEN_HOME")
    assert found["file"][1].startswith("env XDG_CONFIG_HOME; not there")
    home.env["QWEN_WATCHER_WATCH__HOMES"] = '["~/third"]'
    assert places(home)["sessions"] == (str(home.root / "third"), "env QWEN_WATCHER_WATCH__HOMES")


def places(home: Home) -> dict[str, tuple[str, str]]:
    """What `config show` says of files and directories; the table for people says the same."""
    found = home.run("config", "show", "--json").json["places"]
    shown = home.run("config", "show").out
    assert all(f"{each['path']} ({each['origin']})" in shown for each in found)
    return {each["what"]: (each["path"], each["origin"]) for each in found}


def test_show_tells_what_follows_qwen_code(home: Home) -> None:
    """A key that nobody set has the value of Qwen Code's own setting; one that is set does not follow."""
    home.use_model("http://127.0.0.1:9", general={"showSessionRecap": True})
    values = home.run("config", "show", "--json").json["values"]
    assert values["recap.enabled"]["value"] == "auto"
    assert values["recap.enabled"]["effective"] is True
    assert values["recap.away_minutes"]["effective"] == 5.0
    by = "true by general.showSessionRecap (user settings ~/.qwen/settings.json)"
    assert f'recap.enabled\t"auto"\tdefault: {by}' in home.run("config", "show").out
    home.env["QWEN_WATCHER_RECAP__ENABLED"] = "false"
    assert "effective" not in home.run("config", "show", "--json").json["values"]["recap.enabled"]


def test_show_tells_every_place_that_switches_titles_off(home: Home) -> None:
    """This environment, our own key, Qwen Code's settings: never `on` where nothing is titled."""
    home.use_model("http://127.0.0.1:9")
    assert "titles\ton\tdefault" in home.run("config", "show").out
    home.use_model("http://127.0.0.1:9", env={"QWEN_DISABLE_AUTO_TITLE": "1"})
    where = "QWEN_DISABLE_AUTO_TITLE in `env` of user settings ~/.qwen/settings.json"
    assert f"titles\toff\t{where}" in home.run("config", "show").out
    home.env["QWEN_DISABLE_AUTO_TITLE"] = "1"
    assert "titles\toff\tQWEN_DISABLE_AUTO_TITLE in the environment" in home.run("config", "show").out


def test_show_hides_secrets(home: Home) -> None:
    """Keys in the wrong place, credentials in addresses and in hook arguments, keys in settings' `env`."""
    secret = "pa55word-Zq81xx"
    home.use_model(f"http://user:{secret}@127.0.0.1:9", env={"OTHER_KEY": KEY})
    home.env |= {
        "QWEN_WATCHER_MODEL__BASE_URL": f"https://me:{secret}@example.test/v1?key={secret}",
        "QWEN_WATCHER_MODEL__API_KEY_ENV": "sk_live_abcdefghijklmnop",
        "QWEN_WATCHER_HOOKS__ON_TITLE": f'["notify", "--token={KEY}"]',
    }
    for arguments in ([], ["--json"]):
        ran = home.run("config", "show", *arguments)
        assert ran.code == 0, ran.err
        for hidden in (secret, KEY, "sk_live"):
            assert hidden not in ran.out
        assert "example.test" in ran.out


def test_a_file_that_cannot_be_written_is_named(home: Home) -> None:
    """One line with the path and what to do."""
    home.env["QWEN_WATCHER_CONFIG"] = "/proc/nothing/config.toml"
    ran = home.run("config", "init")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "/proc/nothing/config.toml" in ran.err
