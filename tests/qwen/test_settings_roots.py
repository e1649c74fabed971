"""Where sessions are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.qwen.settings_house import House
from watcher.qwen.roots import Root, bootstrap, session_roots


@pytest.fixture
def house(tmp_path: Path) -> House:
    """An empty home."""
    return House(tmp_path)


def test_the_default_is_the_config_directory(house: House) -> None:
    """Without any setting: `~/.qwen`, both ways."""
    assert session_roots(house.reader()) == (Root(house.config_dir, house.config_dir),)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("/abs/q", "/abs/q"), ("~/q", "{home}/q"), ("~", "{home}"), ("rel", "{cwd}/rel"), ("", "{home}/.qwen")],
)
def test_qwen_home(house: House, value: str, expected: str) -> None:
    """`~` is expanded, relative values are absolute from here, an empty one counts as unset."""
    found = bootstrap(house.reader({"QWEN_HOME": value})).config_dir
    assert str(found) == expected.format(home=house.home, cwd=os.getcwd())


def test_no_home_directory(tmp_path: Path) -> None:
    """Then Qwen Code uses the directory for temporary files."""
    house = House(tmp_path)
    house.home = None  # type: ignore[assignment]
    assert bootstrap(house.reader()).config_dir.name == ".qwen"


@pytest.mark.parametrize(
    ("environ", "files", "config_dir", "runtime"),
    [
        ({}, {".qwen/.env": "QWEN_RUNTIME_DIR=/r1", ".env": "QWEN_RUNTIME_DIR=/r2"}, "{home}/.qwen", "/r1"),
        ({}, {".env": "QWEN_RUNTIME_DIR=/r2"}, "{home}/.qwen", "/r2"),
        ({"QWEN_RUNTIME_DIR": "/r0"}, {".env": "QWEN_RUNTIME_DIR=/r2"}, "{home}/.qwen", "/r0"),
        ({}, {".env": "QWEN_HOME={home}/q", "q/.env": "QWEN_RUNTIME_DIR=/r3"}, "{home}/q", "/r3"),
        ({"QWEN_HOME": "~/q"}, {".env": "QWEN_RUNTIME_DIR=/r2", "q/.env": "QWEN_HOME=/no"}, "{home}/q", None),
        ({"QWEN_HOME": "~/a/q"}, {".env": "QWEN_RUNTIME_DIR=/r2"}, "{home}/a/q", None),
        ({}, {"work/app/.env": "QWEN_HOME=/project"}, "{home}/.qwen", None),
    ],
)
def test_before_settings(
    house: House, environ: dict[str, str], files: dict[str, str], config_dir: str, runtime: str | None
) -> None:
    """Both variables from the environment, else from the files that may set them; never from a project."""
    for name, text in files.items():
        house.env(house.home / name, text.format(home=house.home))
    found = bootstrap(house.reader(environ))
    assert str(found.config_dir) == config_dir.format(home=house.home)
    assert found.runtime_dir == (Path(runtime) if runtime else None)


def test_each_variable_tells_where_it_was_set(house: House) -> None:
    """The environment, or the file that gave it first; nothing for one that nobody has set."""
    house.env(house.home / ".env", f"QWEN_HOME={house.home}/q")
    house.env(house.home / "q" / ".env", "QWEN_RUNTIME_DIR=/r")
    assert bootstrap(house.reader()).origins == {
        "QWEN_HOME": f"QWEN_HOME from {house.home}/.env",
        "QWEN_RUNTIME_DIR": f"QWEN_RUNTIME_DIR from {house.home}/q/.env",
    }
    assert bootstrap(house.reader({"QWEN_HOME": "~/a"})).origins == {"QWEN_HOME": "env QWEN_HOME"}


def test_the_runtime_variable_adds_a_root(house: House) -> None:
    """The config directory stays one: it is the only place that is certain."""
    reader = house.reader({"QWEN_RUNTIME_DIR": "/r"})
    assert session_roots(reader) == (Root(house.config_dir, house.config_dir), Root(house.config_dir, Path("/r")))


@pytest.mark.parametrize(("written", "base"), [("/r/out", "/r/out"), ("~/out", "{home}/out")])
def test_an_absolute_output_directory_adds_one_root(house: House, written: str, base: str) -> None:
    """User settings name one place for all projects."""
    house.settings("user", {"advanced": {"runtimeOutputDir": written}})
    roots = session_roots(house.reader(), known_cwds=[str(house.project), "/other"])
    assert roots[1:] == (Root(house.config_dir, Path(base.format(home=house.home))),)


def test_a_relative_output_directory_is_a_place_in_each_project(house: House) -> None:
    """One root for each known project, none without any."""
    house.settings("user", {"advanced": {"runtimeOutputDir": ".qwen"}})
    assert session_roots(house.reader()) == (Root(house.config_dir, house.config_dir),)
    roots = session_roots(house.reader(), known_cwds=["/a", "/b", "/a"])
    assert [root.runtime_base for root in roots[1:]] == [Path("/a/.qwen"), Path("/b/.qwen")]


def test_a_projects_own_output_directory_needs_trust(house: House) -> None:
    """Workspace settings count as everywhere else: only where the user trusts the folder here."""
    house.settings("workspace", {"advanced": {"runtimeOutputDir": "/theirs"}})
    cwds = [str(house.project)]
    assert len(session_roots(house.reader(), known_cwds=cwds)) == 1
    roots = session_roots(house.reader(), known_cwds=cwds, trusts=lambda _: True)
    assert roots[1].runtime_base == Path("/theirs")


def test_named_homes(house: House) -> None:
    """The user's own list replaces the default; each has its own settings."""
    other = house.home / "other"
    house.env(other / "settings.json", '{"advanced": {"runtimeOutputDir": "/o"}}')
    roots = session_roots(house.reader(), [house.config_dir, other])
    assert roots == (Root(house.config_dir, house.config_dir), Root(other, other), Root(other, Path("/o")))
