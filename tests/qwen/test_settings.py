"""Settings of a session: scopes, trust, environment order, switches, and re-reading."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.qwen.settings_house import House, touch_later
from watcher.qwen.model_choice import Missing, ModelChoice
from watcher.qwen.settings import SettingsReader
from watcher.qwen.settings_files import FileText, SystemPaths

SCOPES = ["system defaults", "user", "workspace", "system"]


@pytest.fixture
def house(tmp_path: Path) -> House:
    """An empty home."""
    return House(tmp_path)


def fast(name: str, **entry: str) -> dict[str, Any]:
    """Settings that name a fast model and list it."""
    auth = {"security": {"auth": {"selectedType": "openai"}}}
    return {"fastModel": name, "modelProviders": {"openai": [{"id": name, **entry}]}, **auth}


def key_of(house: House, environ: dict[str, str] | None = None, **how: Any) -> str:
    """The API key of the fast model."""
    choice = house.resolve(environ, **how).fast_model
    assert isinstance(choice, ModelChoice), choice
    return choice.api_key.reveal() if choice.api_key else ""


# --- scopes


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_stronger_scope_wins(house: House, count: int) -> None:
    """System defaults, user, workspace, system: later wins."""
    for name in SCOPES[:count]:
        house.settings(name, fast(f"model of {name}"))
    found = house.resolve()
    assert found.fast_model.id == f"model of {SCOPES[count - 1]}"
    assert found.origins["fastModel"].startswith(f"{SCOPES[count - 1]} settings ")


def test_workspace_settings_need_our_trust(house: House) -> None:
    """A folder that the user does not trust here chooses no model and shows no recaps."""
    house.settings("user", fast("mine"))
    house.settings("workspace", {**fast("theirs"), "general": {"showSessionRecap": True}})
    assert house.resolve(trusted=False).fast_model.id == "mine"
    assert not house.resolve(trusted=False).show_session_recap
    assert house.resolve(trusted=True).fast_model.id == "theirs"
    assert house.resolve(trusted=True).show_session_recap


@pytest.mark.parametrize("link", [False, True])
def test_the_home_directory_is_no_workspace(tmp_path: Path, link: bool) -> None:
    """In the home directory `.qwen/settings.json` is the user's file and nothing else."""
    house = House(tmp_path)
    house.config_dir = tmp_path / "elsewhere"
    house.config_dir.mkdir()
    (house.home / ".qwen" / "settings.json").write_text('{"fastModel": "workspace"}')
    cwd = house.home
    if link:
        cwd = tmp_path / "alias"
        cwd.symlink_to(house.home)
    assert house.resolve(cwd=cwd).fast_model == Missing("no fastModel is set in Qwen Code's settings")


def test_each_session_has_its_own_project(house: House) -> None:
    """The session's directory decides, from one reader."""
    other = house.home / "work" / "other"
    (other / ".qwen").mkdir(parents=True)
    house.settings("workspace", fast("app model"))
    house.env(other / ".qwen" / "settings.json", '{"fastModel": "x"}')
    reader = house.reader()
    assert reader.resolve(str(house.project), True, house.config_dir).fast_model.id == "app model"
    assert "x but no" in reader.resolve(str(other), True, house.config_dir).fast_model.missing


@pytest.mark.parametrize("scope", SCOPES)
def test_a_broken_file_is_an_error_and_no_model(house: House, scope: str) -> None:
    """Qwen Code does not start with it; we say which file it is and call nothing."""
    house.settings("user", fast("mine"))
    path = house.settings(scope, '{"fastModel": "x",}')
    found = house.resolve()
    assert len(found.errors) == 1
    assert "is not valid JSON" in found.errors[0]
    assert path.name in found.errors[0]
    assert found.fast_model == Missing(found.errors[0])
    assert found.main_model == found.fast_model


def test_a_broken_file_of_an_untrusted_folder_concerns_nobody(house: House) -> None:
    """What is not in force cannot break anything."""
    house.settings("user", fast("mine"))
    house.settings("workspace", "{")
    found = house.resolve(trusted=False)
    assert (found.fast_model.id, found.errors) == ("mine", ())


def test_settings_that_cannot_be_opened_are_an_error(house: House) -> None:
    """A pipe, a folder: said, not waited for."""
    os.mkfifo(house.scopes["user"])
    assert "is not a regular file" in house.resolve().errors[0]
    house.scopes["user"].unlink()
    house.scopes["user"].mkdir()
    assert "is a folder" in house.resolve().errors[0]


def test_variables_in_settings(house: House) -> None:
    """Expanded from the environment, else from the home `.env` files; unknown ones stay."""
    house.settings("user", {**fast("$NAME", baseUrl="http://${HOST}/v1"), "general": {"outputLanguage": "$NOPE"}})
    house.env(house.config_dir / ".env", "NAME=from-qwen\nHOST=from-qwen\n")
    house.env(house.home / ".env", "HOST=from-home\nNOPE=\n")
    found = house.resolve({"NAME": "from-process"})
    assert isinstance(found.fast_model, ModelChoice)
    assert (found.fast_model.id, found.fast_model.base_url) == ("from-process", "http://from-qwen/v1")
    assert found.output_language == "$NOPE"


def test_general_settings(house: House) -> None:
    """The rest of what is read, with defaults."""
    found = house.resolve()
    assert (found.chat_recording, found.output_language, found.runtime_output_dir) == (True, "", "")
    general = {"chatRecording": False, "outputLanguage": "Deutsch"}
    house.settings("user", {"general": general, "advanced": {"runtimeOutputDir": ".qwen"}})
    found = house.resolve()
    assert (found.chat_recording, found.output_language, found.runtime_output_dir) == (False, "Deutsch", ".qwen")


@pytest.mark.parametrize(
    ("value", "minutes"),
    [(None, 5.0), (0, 5.0), (-3, 5.0), ("7", 5.0), (True, 5.0), (0.5, 0.5), (12, 12.0)],
)
def test_the_away_threshold(house: House, value: object, minutes: float) -> None:
    """Fractions work; zero, negative and no number mean five minutes."""
    house.settings("user", {"general": {"sessionRecapAwayThresholdMinutes": value}})
    assert house.resolve().away_threshold_minutes == minutes


def test_the_output_language_file(house: House) -> None:
    """The user's, or in a trusted folder the project's; bounded."""
    (house.config_dir / "output-language.md").write_text("\nRespond in German.\n" + "x" * 100_000)
    (house.project / ".qwen" / "output-language.md").write_text("Respond in Basque.")
    text = house.resolve(trusted=False).output_language_text
    assert text.startswith("Respond in German.")
    assert len(text) <= 10_000
    assert house.resolve(trusted=True).output_language_text == "Respond in Basque."


@pytest.mark.parametrize(
    ("named", "names"),
    [
        (None, ["QWEN.md", "AGENTS.md"]),
        ("CONTEXT.md", ["CONTEXT.md"]),
        ([" A.md ", "QWEN.md", "A.md"], ["A.md", "QWEN.md"]),
        (["", "..", "../secret", "/etc/passwd", "a\0b", 7], ["QWEN.md", "AGENTS.md"]),
        (7, ["QWEN.md", "AGENTS.md"]),
    ],
)
def test_the_users_memory_files(house: House, named: object, names: list[str]) -> None:
    """In the config dir, by the names that `context.fileName` gives; nothing outside of it."""
    house.settings("user", {"context": {"fileName": named}})
    assert [str(path) for path in house.resolve().user_memory] == [f"{house.config_dir}/{name}" for name in names]


def test_wrong_types_everywhere_are_harmless(house: House) -> None:
    """Numbers, lists and nulls where objects belong change nothing and raise nothing."""
    keys = ["general", "model", "security", "env", "advanced", "modelProviders", "providerProtocol", "fastModel"]
    house.settings("user", {key: [1] for key in keys})
    house.settings("system", {"security": {"auth": 3}, "env": {"A": 1, "B": None}, "model": {"name": {}}})
    assert isinstance(house.resolve().fast_model, Missing)


# --- environment


def test_order_of_the_environment(house: House) -> None:
    """Process, project `.qwen/.env`, then the home files, then `settings.env`; the first to set a key wins."""
    setters = ["process", "project", "config", "home", "settings"]
    house.settings("user", {**fast("m"), "env": {"OPENAI_API_KEY": "settings"}})
    project = house.env(house.project / ".qwen" / ".env", "OPENAI_API_KEY=project")
    config = house.env(house.config_dir / ".env", "OPENAI_API_KEY=config")
    home = house.env(house.home / ".env", "OPENAI_API_KEY=home")
    assert key_of(house, {"OPENAI_API_KEY": "process"}) == setters[0]
    for path, setter in zip((project, config, home), setters[1:4], strict=True):
        assert key_of(house, {"OPENAI_API_KEY": ""}) == setter, "an empty value counts as unset"
        path.write_text("OPENAI_API_KEY=\n")
    assert key_of(house) == setters[4]
    assert house.resolve().origins["fastModel.apiKey"] == "OPENAI_API_KEY from user settings ~/.qwen/settings.json"


@pytest.mark.parametrize(
    ("files", "key"),
    [
        (["work/app/.qwen/.env", "work/app/.env"], "work/app/.qwen/.env"),
        (["work/app/.env", "work/.qwen/.env"], "work/app/.env"),
        (["work/.qwen/.env", "work/.env", ".env"], "work/.qwen/.env"),
        (["work/.env", ".qwen/.env"], "work/.env"),
        ([".qwen/.env", ".env"], ".qwen/.env"),
        ([".env"], ".env"),
    ],
)
def test_the_walk_upward(house: House, files: list[str], key: str) -> None:
    """The first directory with a file counts, `.qwen/.env` before `.env`, then the home files."""
    house.settings("user", fast("m"))
    for file in files:
        house.env(house.home / file, f"OPENAI_API_KEY={file}")
    assert key_of(house) == key


def test_only_the_first_project_file_is_read(house: House) -> None:
    """What the nearest file does not set is taken from the home files, not from the next directory up."""
    house.settings("user", fast("m"))
    house.env(house.project / ".env", "OTHER=1")
    house.env(house.home / "work" / ".env", "OPENAI_API_KEY=parent")
    house.env(house.home / ".env", "OPENAI_API_KEY=home")
    assert key_of(house) == "home"


def test_project_files_need_our_trust(house: House) -> None:
    """Without trust only the home files count; a project outside the home directory is no different."""
    house.settings("user", fast("m"))
    house.env(house.project / ".env", "OPENAI_API_KEY=project")
    house.env(house.config_dir / ".env", "OPENAI_API_KEY=config")
    assert key_of(house, trusted=False) == "config"
    outside = house.home.parent / "outside"
    house.env(outside / ".env", "OPENAI_API_KEY=outside")
    assert key_of(house, trusted=False, cwd=outside) == "config"
    assert key_of(house, trusted=True, cwd=outside) == "outside"


def test_home_candidates_with_another_config_directory(house: House) -> None:
    """`<config dir>/.env`, then `<home>/.qwen/.env`, then `<home>/.env`."""
    legacy = house.config_dir
    house.config_dir = house.home.parent / "conf"
    house.scopes["user"] = house.config_dir / "settings.json"
    house.config_dir.mkdir()
    house.settings("user", fast("m"))
    paths = [house.config_dir / ".env", legacy / ".env", house.home / ".env"]
    for path in paths:
        house.env(path, f"OPENAI_API_KEY={path}")
    for path in paths:
        assert key_of(house) == str(path)
        path.unlink()


def test_a_linked_project_is_searched_where_it_really_is(house: House) -> None:
    """The walk goes up from the directory without symbolic links."""
    house.settings("user", fast("m"))
    house.env(house.home / "work" / ".env", "OPENAI_API_KEY=real parent")
    link = house.home / "link"
    link.symlink_to(house.project)
    assert key_of(house, cwd=link) == "real parent"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("OPENAI_API_KEY=plain", "plain"),
        ("export OPENAI_API_KEY = 'single $HOME' # note", "single $HOME"),
        ('\ufeffOPENAI_API_KEY="double\\n${HOME}"\r\n', "double\n${HOME}"),
        ("# OPENAI_API_KEY=no\n\nOPENAI_API_KEY=a=b", "a=b"),
        ("broken line here\nOPENAI_API_KEY=after", "after"),
        ("OPENAI_API_KEY=one\nOPENAI_API_KEY=two", "two"),
    ],
)
def test_env_files_as_people_write_them(house: House, text: str, key: str) -> None:
    """Quotes, comments, `export`, byte order marks and Windows line ends; `$` is not expanded."""
    house.settings("user", fast("m"))
    house.env(house.config_dir / ".env", text)
    assert key_of(house, {"HOME": "/h"}) == key


def test_excluded_variables(house: House) -> None:
    """`advanced.excludedEnvVars` keeps a project's plain `.env` from setting a key, not Qwen Code's own files."""
    house.settings("user", {**fast("m"), "advanced": {"excludedEnvVars": ["OPENAI_API_KEY"]}})
    path = house.env(house.project / ".env", "OPENAI_API_KEY=project")
    assert key_of(house) == ""
    path.rename(house.project / ".qwen" / ".env")
    assert key_of(house) == "project"


def test_project_files_cannot_set_operator_variables(house: House) -> None:
    """`QWEN_HOME` and security keys come from the user's own files only."""
    house.settings("user", {**fast("m", envKey="NODE_EXTRA_CA_CERTS"), "env": {"NODE_EXTRA_CA_CERTS": "settings"}})
    house.env(house.project / ".env", "NODE_EXTRA_CA_CERTS=project")
    assert isinstance(house.resolve().fast_model, Missing)
    house.env(house.home / ".env", "NODE_EXTRA_CA_CERTS=home")
    assert key_of(house) == "home"


def test_a_folder_or_pipe_named_env(house: House) -> None:
    """A virtual environment called `.env` is passed over; a pipe is said and not waited for."""
    house.settings("user", fast("m"))
    (house.project / ".env").mkdir()
    house.env(house.home / "work" / ".env", "OPENAI_API_KEY=parent")
    assert key_of(house) == "parent"
    assert house.resolve().errors == ()
    os.mkfifo(house.config_dir / ".env")
    assert house.resolve().errors == ("~/.qwen/.env is not a regular file",)


def test_an_enormous_env_file_is_not_read(house: House) -> None:
    """It is said instead; what comes after it still counts."""
    house.settings("user", fast("m"))
    house.env(house.config_dir / ".env", "OPENAI_API_KEY=big\n" + "#" * 300_000)
    house.env(house.home / ".env", "OPENAI_API_KEY=home")
    assert key_of(house) == "home"
    assert house.resolve().errors == ("~/.qwen/.env is larger than 256 KiB",)


# --- the disable switch


@pytest.mark.parametrize(
    ("value", "off"),
    [("1", True), ("true", True), ("YES", True), ("anything", True), ("0", False), ("False", False), (" no ", False),
     ("off", False), ("", False)],
)  # fmt: skip
@pytest.mark.parametrize("where", ["dotenv", "settings"])
def test_values_of_the_disable_switch(house: House, value: str, off: bool, where: str) -> None:
    """Unset and the words for no leave titling on; everything else turns it off."""
    if where == "dotenv":
        house.env(house.config_dir / ".env", f'QWEN_DISABLE_AUTO_TITLE="{value}"')
        expected = "~/.qwen/.env"
    else:
        house.settings("user", {"env": {"QWEN_DISABLE_AUTO_TITLE": value}})
        expected = "`env` of user settings ~/.qwen/settings.json"
    assert house.resolve().title_disabled_by == (expected if off else None)


def test_the_first_place_that_sets_the_switch_decides(house: House) -> None:
    """A `.env` file comes before settings, a stronger scope before a weaker one."""
    house.settings("user", {"env": {"QWEN_DISABLE_AUTO_TITLE": "1"}})
    house.settings("system", {"env": {"QWEN_DISABLE_AUTO_TITLE": "yes"}})
    assert house.resolve().title_disabled_by == f"`env` of system settings {house.system.settings}"
    house.env(house.home / ".env", "QWEN_DISABLE_AUTO_TITLE=0")
    assert house.resolve().title_disabled_by is None


@pytest.mark.parametrize("where", ["dotenv", "settings"])
def test_an_untrusted_project_can_only_switch_titling_off(house: House, where: str) -> None:
    """A project's own files turn titling off for it without any trust, and never on."""

    def set_in_project(value: str) -> None:
        if where == "dotenv":
            house.env(house.project / ".env", f"QWEN_DISABLE_AUTO_TITLE={value}")
        else:
            house.settings("workspace", {"env": {"QWEN_DISABLE_AUTO_TITLE": value}})

    set_in_project("1")
    expected = "~/work/app/.env" if where == "dotenv" else "`env` of workspace settings ~/work/app/.qwen/settings.json"
    assert house.resolve(trusted=False).title_disabled_by == expected
    assert house.resolve(trusted=True).title_disabled_by == expected
    set_in_project("0")
    house.settings("user", {"env": {"QWEN_DISABLE_AUTO_TITLE": "1"}})
    assert house.resolve(trusted=False).title_disabled_by == "`env` of user settings ~/.qwen/settings.json"


# --- re-reading


class CountingReader(SettingsReader):
    """Counts how often it is asked for a file's text."""

    asked = 0

    def read(self, path: Path) -> FileText:
        self.asked += 1
        return super().read(path)


def test_unchanged_files_give_the_same_object(house: House) -> None:
    """A second resolution asks for no file's text; another project reads only what it does not share."""
    house.settings("user", fast("m"))
    reader = CountingReader(house.home, {}, house.system)
    first = reader.resolve(str(house.project), True, house.config_dir)
    assert reader.asked > 0
    reader.asked = 0
    assert reader.resolve(str(house.project), True, house.config_dir) is first
    assert reader.asked == 0


@pytest.mark.parametrize("file", [".qwen/settings.json", "work/app/.qwen/settings.json", "work/app/.env", ".env"])
def test_a_new_changed_or_removed_file_is_noticed(house: House, file: str) -> None:
    """Each file that counts, also one that did not exist before; the fingerprint changes with it."""
    house.settings("user", fast("m"))
    reader = house.reader()
    path = house.home / file
    prints = set()

    def now() -> str:
        found = reader.resolve(str(house.project), True, house.config_dir)
        assert path in found.files
        prints.add(found.fingerprint)
        choice = found.fast_model
        return choice.api_key.reveal() if isinstance(choice, ModelChoice) and choice.api_key else ""

    def write(key: str) -> None:
        settings = json.dumps({**fast("m"), "env": {"OPENAI_API_KEY": key}})
        house.env(path, settings if path.suffix == ".json" else f"OPENAI_API_KEY={key}")
        touch_later(path)

    assert now() == ""
    write("one")
    assert now() == "one"
    write("two")
    touch_later(path)
    assert now() == "two"
    path.unlink()
    assert now() == ""
    assert len(prints) >= 3


def test_many_projects_are_remembered_within_bounds(house: House) -> None:
    """Months of sessions in ever new directories do not pile up."""
    reader = house.reader()
    for number in range(300):
        reader.resolve(f"/nowhere/{number}", False, house.config_dir)
    assert len(reader._remembered) <= 128
    assert len(reader._texts) < 2000


def test_origins_and_errors_hold_no_values(house: House) -> None:
    """Where a value came from is told without the value."""
    house.settings("user", {**fast("m", envKey="K"), "env": {"K": "s3cret-value"}})
    found = house.resolve()
    assert found.origins["fastModel.apiKey"] == "K from user settings ~/.qwen/settings.json"
    assert "s3cret-value" not in repr(found)


def test_a_user_without_home(tmp_path: Path) -> None:
    """No home directory: the config directory alone counts."""
    (tmp_path / "settings.json").write_text('{"fastModel": "m"}')
    (tmp_path / ".env").write_text("OPENAI_MODEL=m\nOPENAI_API_KEY=k\nOPENAI_BASE_URL=http://x\n")
    paths = SystemPaths(tmp_path / "none", tmp_path / "none2")
    found = SettingsReader(None, {}, paths).resolve("/somewhere", False, tmp_path)
    assert found.fast_model.id == "m"
    assert re.fullmatch(r"[0-9a-f]{32}", found.fingerprint)
