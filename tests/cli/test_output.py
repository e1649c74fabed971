"""Terminal manners: widths, colours, tables, help."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

from tests.cli.home import Home
from watcher.cli import cells
from watcher.cli.app import app
from watcher.cli.output import Column, ago, fit

WIDE = st.text(st.sampled_from("ab 重构é🚀❤\ufe0f\u200d👨🇩🇪\u0301\x1b[31m\u202e"), max_size=60)


@settings(max_examples=150)
@given(WIDE, st.integers(1, 30))
def test_a_cut_text_fits_and_says_that_it_was_cut(text: str, room: int) -> None:
    """At most so many cells, as the terminal counts them too; whole where it fits."""
    shown = cells.plain(text)
    cut = cells.cut(shown, room)
    assert cells.width(cut) <= room
    assert cut == shown or cut.endswith("…")
    assert wcswidth(cut) >= 0


@settings(max_examples=150)
@given(WIDE, st.integers(4, 30))
def test_wrapped_lines_fit_and_lose_nothing(text: str, room: int) -> None:
    """Every line fits; all characters but blanks are there in their order."""
    shown = cells.plain(text)
    lines = cells.wrap(shown, room)
    assert all(cells.width(line) <= room for line in lines)
    assert "".join("".join(lines).split()) == "".join(shown.split())


@settings(max_examples=100)
@given(st.lists(st.integers(0, 300), min_size=4, max_size=4), st.integers(60, 220))
def test_columns_fit_the_terminal(natural: list[int], room: int) -> None:
    """Fixed columns stay, flexible ones shrink to their minimum, optional ones go last."""
    natural = [min(natural[0], 8), natural[1], min(natural[2], 10), natural[3]]
    table = (
        Column("A", "a"),
        Column("B", "b", flexible=True, min_width=16),
        Column("C", "c", optional=1),
        Column("D", "d", flexible=True, min_width=12),
    )
    widths = fit(table, dict(zip("abcd", natural, strict=True)), room)
    assert {"a", "b", "d"} <= set(widths)
    assert sum(widths.values()) + 2 * (len(widths) - 1) <= room
    assert all(widths[key] <= width for key, width in zip("abcd", natural, strict=True) if key in widths)


@pytest.mark.parametrize(
    ("age", "words"), [(-5, "0 s"), (59, "59 s"), (61, "1 min"), (7300, "2 h"), (86_400 * 3 + 5, "3 d")]
)
def test_ages(age: float, words: str) -> None:
    """A short age in the largest whole unit."""
    assert ago(1000.0, 1000.0 + age) == words


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 200])
def test_tables_and_texts_fit_the_terminal(home: Home, columns: int) -> None:
    """At 80 and at 200 columns no command writes a line that the terminal has to wrap."""
    session = home.session("请重构用户鉴权中间件，并补充单元测试与文档 🚀👨‍👩‍👧 " * 5)
    session.recap("You fix the flaky login test in the shop, 重构用户鉴权中间件. Next: run the suite. " * 3)
    home.rest(session)
    long = home.session(cwd="/home/user/" + "a-very-long-project-name-" * 4)
    long.title("A title of nearly two hundred characters " * 5)
    home.rest(long)
    for arguments in (["sessions"], ["status"], ["why", session.session_id], ["config", "show"], ["tail"]):
        lines = home.raw_lines(*arguments, columns=columns)
        assert all(0 <= wcswidth(line) <= columns for line in lines), arguments
        if arguments == ["sessions"]:
            rows = [line for line in lines if line]
            assert [row[:8].strip() for row in rows] == ["SESSION", long.session_id[:8], session.session_id[:8]]
            starts = {_cells_before(row, word) for row in rows for word in ("STATE", "ended") if word in row}
            assert len(starts) == 1, "the columns are aligned"
            assert "RECAP" in rows[0]


@pytest.mark.parametrize("columns", [80, 200])
def test_doctor_fits_the_terminal_and_a_fix_can_be_pasted(home: Home, columns: int) -> None:
    """Details are wrapped beneath each other; a fix is one whole line, its words before it where they do not fit."""
    home.session("Please fix it")
    checks = home.run("doctor", "--json").json
    lines = home.raw_lines("doctor", columns=columns)
    fixes = [line.removeprefix("     fix: ") for line in lines if line.startswith("     fix: ")]
    assert len(fixes) == sum(bool(check["fix"]) for check in checks)
    for line in lines:
        if not line.startswith("     fix: "):
            assert 0 <= wcswidth(line) <= columns, line
    for check in checks:
        if check["fix"]:
            command, _, words = check["fix"].partition("  # ")
            assert " ".join(check["fix"].split()) in fixes or (
                command in fixes and words.split()[0] in " ".join(lines)
            ), check
    shown = "".join("".join(lines).split())
    assert all(check["detail"].split()[0] in shown for check in checks)
    assert not any("…" in line for line in lines), "nothing is cut"


def _cells_before(row: str, word: str) -> int:
    return wcswidth(row[: row.index(word)])


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals_that_want_it(home: Home, environment: dict[str, str], coloured: bool) -> None:
    """An automatic title is dim on a terminal; `NO_COLOR` and `TERM=dumb` are respected; a pipe never gets a code."""
    home.env |= environment
    session = home.session()
    session.title("Fix the login")
    home.rest(session)
    with home.terminal("sessions") as terminal:
        assert terminal.wait_exit() == 0
        assert terminal.cells("Fix the login")[0].dim is coloured
        assert terminal.cells("SESSION")[0].bold is coloured
    assert "\x1b" not in home.run("sessions").out


def test_a_long_title_leaves_room_for_the_recap(home: Home) -> None:
    """On a wide terminal one long title does not take the room of all recaps; on a narrow one it stays and fits."""
    session = home.session()
    session.title("A title of nearly two hundred characters " * 4)
    session.recap("You fix the login test. Next: run it.")
    home.rest(session)
    assert "You fix the login test. Next: run it." in "".join(home.raw_lines("sessions", columns=200))
    for columns in (40, 60):
        lines = home.raw_lines("sessions", columns=columns)
        assert all(wcswidth(line) <= columns for line in lines)
        assert "A title of" in lines[1]


def test_every_command_has_help_with_an_example(home: Home) -> None:
    """`--help` of each command shows one example that begins with the program's name."""
    commands = [[info.name or (info.callback.__name__ if info.callback else "")] for info in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        assert group.name is not None
        commands.append([group.name])
        for info in group.typer_instance.registered_commands:
            commands.append([group.name, info.name or (info.callback.__name__ if info.callback else "")])
    for name in commands:
        ran = home.run(*name, "--help")
        assert ran.code == 0
        assert len(re.findall(r"^ *Example: qwen-watcher ", ran.out, re.MULTILINE)) == 1, name
    assert "..." not in home.run("--help").out.replace("[ARGS]...", "")


def test_a_wrong_command_line_is_one_line(home: Home) -> None:
    """No usage screen and no traceback: what is wrong, and where help is."""
    for arguments in (["bogus"], ["why"], ["recap", "x", "--nope"], ["sessions", "--limit", "x"], ["config", "x"]):
        ran = home.run(*arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), arguments
        assert "--help" in ran.err


def test_a_wrong_configuration_is_one_line(home: Home) -> None:
    """Key, value and place, exit 2, for every command that reads the configuration."""
    home.env["QWEN_WATCHER_TITLE__MAX_ATTEMPTS"] = "0"
    for arguments in (["sessions"], ["status", "--json"], ["title", "latest", "x"], ["pause"]):
        ran = home.run(*arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "title.max_attempts" in ran.err


def test_a_full_disk_behind_stdout_is_one_line(home: Home) -> None:
    """What the system refuses is told in one line, without a traceback."""
    home.session()
    with open("/dev/full", "w") as full, home.process("sessions", stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == "qwen-watcher: No space left on device; free some space on that disk\n"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["status"]])
def test_whatever_stdout_is_python_adds_nothing(home: Home, arguments: list[str]) -> None:
    """A full disk is one line and exit 1, a reader that is gone is silence: no exit 120, no "Exception ignored"."""
    with open("/dev/full", "w") as full, home.process(*arguments, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("\n")) == (1, 1)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as broken, home.process(*arguments, stdout=broken) as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode in (0, 1), err) == (True, "")


def test_nobody_listening_to_errors_changes_no_exit_code(home: Home) -> None:
    """What is only said on stderr may get lost; the command does its work, and ends, as it would have."""
    session = home.session()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as broken:
        for arguments, code in ((["bogus"], 2), (["why", "ffffffff"], 1), (["undo", session.session_id], 1)):
            with home.process(*arguments, stderr=broken) as process:
                process.communicate(timeout=60)
            assert process.returncode == code, arguments


def test_json_cannot_move_the_cursor(home: Home) -> None:
    """Control and bidirectional characters of a title come escaped, also those that JSON allows as they are."""
    session = home.session()
    session.title("a\x9b2Jb\u202ec\x7f\u2028d\x1b[2Je")
    home.rest(session)
    ran = home.run("sessions", "--json")
    assert ran.json[0]["title"] == "a\x9b2Jb\u202ec\x7f\u2028d\x1b[2Je"
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", ran.out)


def test_a_state_directory_that_cannot_be_entered_is_one_line_with_the_fix(home: Home) -> None:
    """Commands that only look say it as those that write do; `doctor` names it and goes on."""
    home.state.symlink_to(home.state)
    for arguments in (["sessions"], ["tail"], ["status"], ["why", "latest"], ["backfill", "--dry-run"]):
        ran = home.run(*arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1), arguments
        assert "QWEN_WATCHER_STATE_DIR" in ran.err
    ran = home.run("doctor", "--json")
    assert ran.code == 1
    found = {each["check"]: each for each in ran.json}
    assert {found[name]["status"] for name in ("events", "budget", "brake")} == {"warn"}
    assert (found["state_dir"]["status"], bool(found["state_dir"]["fix"])) == ("fail", True)
    assert not any("could not be made" in each["detail"] for each in found.values())
