"""Terminal manners: widths, colours, tables, help."""

from __future__ import annotations

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
        Column("C", "c", optional=True),
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


def test_every_command_has_help_with_an_example(home: Home) -> None:
    """`--help` of each command shows one example that begins with the program's name."""
    names = [info.name or (info.callback.__name__ if info.callback else "") for info in app.registered_commands]
    for name in names:
        ran = home.run(name, "--help")
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
    assert err == "qwen-watcher: No space left on device\n"
