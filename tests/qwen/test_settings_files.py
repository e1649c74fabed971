"""Reading, parsing, expanding and merging of Qwen Code's settings files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.qwen.settings_files import (
    ABSENT,
    MAX_FILE_BYTES,
    Scope,
    SystemPaths,
    expand_path,
    expand_variables,
    merge_scopes,
    parse_settings,
    read_file,
    shown,
    stamp_of,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{\n  // one\n  "a": 1, /* two\n lines */ "b": "http://x/*y*/"\n}', {"a": 1, "b": "http://x/*y*/"}),
        ('{"a": "q\\"// still text"} // end', {"a": 'q"// still text'}),
        ('/**/{"a"/*x*/:/*y*/"\\\\"}', {"a": "\\"}),
        ("", {}),
        (" \n // nothing yet\n", {}),
    ],
)
def test_comments_are_taken_out_and_strings_kept(text: str, values: dict[str, Any]) -> None:
    """`//` and `/* */` are comments outside strings only."""
    assert parse_settings(text) == (values, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1,}', "is not valid JSON"),
        ('{"a": [1, 2,]}', "is not valid JSON"),
        ('{\n"a": 1\n"b": 2}', "line 3"),
        ('{"a": /* open', "is not valid JSON"),
        ("{'a': 1}", "is not valid JSON"),
        ("[1]", "is not a JSON object"),
        ("null", "is not a JSON object"),
        ('{"a": NaN}', "is not valid JSON"),
        ('{"a": [-Infinity]}', "is not valid JSON"),
        ('{"a":' * 80 + "1" + "}" * 80, "nested more than"),
        ('{"a":' * 100_000, "is not valid JSON"),
    ],
)
def test_what_qwen_code_refuses_is_refused(text: str, problem: str) -> None:
    """Trailing commas, single quotes and anything but an object are an error that says where."""
    values, found = parse_settings(text)
    assert values == {}
    assert problem in found


@given(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=4), st.booleans())
@settings(max_examples=150)
def test_every_object_reads_back_with_and_without_comments(value: dict[str, Any], ascii_only: bool) -> None:
    """No string is mistaken for a comment, and comments between the lines change nothing."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)
    commented = "/* head */" + text.replace("\n", " // tail\n") if "\n" in text else text
    assert parse_settings(text) == (value, "")
    assert parse_settings(commented)[0] == value


@pytest.mark.parametrize("unit", ['\\"', "/*", '"', "${", "//", "/"])
def test_a_strangers_file_costs_no_more_than_its_size(unit: str) -> None:
    """Eight times the file costs about eight times the work; the settings of an untrusted folder are looked at too."""

    def cost(chars: int) -> float:
        text = unit * (chars // len(unit))
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            parse_settings(text)
            expand_variables(text, lambda _: None)
            best = min(best, time.process_time() - started)
        return best

    assert cost(256_000) < 30 * max(cost(32_000), 0.001)


def test_variables_are_expanded_in_every_string() -> None:
    """`$NAME` and `${NAME}`, nested; unknown names and session ids stay as they are."""
    known = {"A": "1", "B_2": "two", "SESSION_ID": "never"}
    value = {"x": ["$A-${B_2}", {"y": "$A$A"}], "n": 1, "keep": "$C ${D} $SESSION_ID ${ $", "cost": "$5"}
    assert expand_variables(value, known.get) == {
        "x": ["1-two", {"y": "11"}],
        "n": 1,
        "keep": "$C ${D} $SESSION_ID ${ $",
        "cost": "$5",
    }


def scope(name: str, **values: object) -> Scope:
    """A scope with a short label."""
    return Scope(name, name, values)


@pytest.mark.parametrize(
    ("weak", "strong", "merged"),
    [
        ({"fastModel": "a"}, {"fastModel": "b"}, {"fastModel": "b"}),
        ({"general": {"x": 1, "y": 1}}, {"general": {"y": 2}}, {"general": {"x": 1, "y": 2}}),
        ({"general": {"x": 1}}, {"general": None}, {"general": None}),
        ({"general": 1}, {"general": {"x": 1}}, {"general": {"x": 1}}),
        ({"tools": {"list": [1]}}, {"tools": {"list": [2]}}, {"tools": {"list": [2]}}),
        (
            {"modelProviders": {"openai": [{"id": "a"}], "gemini": [{"id": "b"}]}},
            {"modelProviders": {"gemini": [{"id": "c"}]}},
            {"modelProviders": {"openai": [{"id": "a"}], "gemini": [{"id": "c"}]}},
        ),
        ({"env": {"A": "1", "B": "1"}}, {"env": {"B": "2"}}, {"env": {"A": "1", "B": "2"}}),
        ({"env": {"A": {"x": 1}}}, {"env": {"A": {"y": 2}}}, {"env": {"A": {"y": 2}}}),
        (
            {"advanced": {"excludedEnvVars": ["A", "B"]}},
            {"advanced": {"excludedEnvVars": ["B", "C"]}},
            {"advanced": {"excludedEnvVars": ["A", "B", "C"]}},
        ),
        ({"a": 1}, {"__proto__": {"a": 2}, "constructor": 1}, {"a": 1}),
    ],
)
def test_two_scopes_merge(weak: dict[str, object], strong: dict[str, object], merged: dict[str, object]) -> None:
    """Objects merge deeply, providers one by one, environments merge, exclusions unite; the rest is replaced."""
    before = json.dumps([weak, strong])
    assert merge_scopes([scope("weak", **weak), scope("strong", **strong)])[0] == merged
    assert json.dumps([weak, strong]) == before, "the scopes themselves stay as they are"


def test_every_key_tells_the_scope_that_set_it() -> None:
    """Origins name the last scope that touched a dotted key."""
    _, origins = merge_scopes(
        [scope("user", general={"x": 1, "y": 1}, env={"A": "1"}), scope("system", general={"y": 2}, env={"B": "2"})]
    )
    assert origins["general.x"] == "user"
    assert origins["general.y"] == "system"
    assert (origins["env.A"], origins["env.B"]) == ("user", "system")


@given(st.lists(st.dictionaries(st.sampled_from("abc"), JSON_VALUES, max_size=3), min_size=1, max_size=4))
@settings(max_examples=100)
def test_the_strongest_scope_keeps_its_plain_values(values: list[dict[str, object]]) -> None:
    """Whatever comes before it, a plain value of the last scope is in force."""
    merged, origins = merge_scopes([scope(str(number), **each) for number, each in enumerate(values)])
    for key, value in values[-1].items():
        if not isinstance(value, dict):
            assert merged[key] == value
            assert origins[key] == str(len(values) - 1)


def test_files_that_cannot_be_read_are_a_value(tmp_path: Path) -> None:
    """Missing, a folder, a pipe, too large, not UTF-8: never an exception, and no waiting."""
    assert read_file(tmp_path / "none") == read_file(tmp_path / "none")
    assert (read_file(tmp_path / "none").text, read_file(tmp_path / "none").stamp) == (None, ABSENT)
    assert (read_file(tmp_path).text, read_file(tmp_path).problem) == (None, "")
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path / "pipe").problem == "is not a regular file"
    (tmp_path / "big").write_bytes(b" " * (MAX_FILE_BYTES + 1))
    assert "larger than" in read_file(tmp_path / "big").problem
    (tmp_path / "bytes").write_bytes(b"\xef\xbb\xbf{\xff}")
    assert read_file(tmp_path / "bytes").text == "{\ufffd}"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in read_file(tmp_path / "loop").problem
    assert read_file(tmp_path / "big" / "below").text is None
    assert read_file(Path("a\0b")).text is None
    assert stamp_of(Path("a\0b")) == ABSENT


def test_a_stamp_changes_with_the_file(tmp_path: Path) -> None:
    """A replaced file of the same size and time has another stamp."""
    path = tmp_path / "s.json"
    path.write_text("1")
    before = stamp_of(path)
    other = tmp_path / "t.json"
    other.write_text("2")
    os.utime(other, ns=(before.mtime_ns, before.mtime_ns))
    other.rename(path)
    assert stamp_of(path) != before
    assert read_file(path).stamp == stamp_of(path)


@pytest.mark.parametrize(
    ("environ", "platform", "defaults", "settings_path"),
    [
        ({}, "linux", "/etc/qwen-code/system-defaults.json", "/etc/qwen-code/settings.json"),
        (
            {},
            "darwin",
            "/Library/Application Support/QwenCode/system-defaults.json",
            "/Library/Application Support/QwenCode/settings.json",
        ),
        ({"QWEN_CODE_SYSTEM_SETTINGS_PATH": "/x/s.json"}, "linux", "/x/system-defaults.json", "/x/s.json"),
        ({"QWEN_CODE_SYSTEM_DEFAULTS_PATH": "/y/d.json"}, "linux", "/y/d.json", "/etc/qwen-code/settings.json"),
        (
            {"QWEN_CODE_SYSTEM_SETTINGS_PATH": ""},
            "linux",
            "/etc/qwen-code/system-defaults.json",
            "/etc/qwen-code/settings.json",
        ),
    ],
)
def test_system_paths(environ: dict[str, str], platform: str, defaults: str, settings_path: str) -> None:
    """The platform's places, or those of the override variables."""
    paths = SystemPaths.from_environment(environ, platform)
    assert (str(paths.defaults), str(paths.settings)) == (defaults, settings_path)


def test_paths_as_qwen_code_reads_and_people_write_them() -> None:
    """`~` is the home directory both ways; other relative paths belong to their base."""
    home, base = Path("/home/u"), Path("/work/app")
    texts = ["~", "~/x", ".qwen", "../y", "/abs", "~other"]
    assert [str(expand_path(text, home, base)) for text in texts] == [
        "/home/u", "/home/u/x", "/work/app/.qwen", "/work/y", "/abs", "/work/app/~other",
    ]  # fmt: skip
    assert [shown(path, home) for path in (home, home / "a", base)] == ["~", "~/a", "/work/app"]
