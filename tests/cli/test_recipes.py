"""The recipes of docs/recipes.md as they stand there, in real shells, a real tmux, and with a real notify-send.

Titles and recaps are text from a model: each recipe must show them to the letter, and nothing may run what stands in
them.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.home import SHOP, Home
from tests.support.live import SESSION
from tests.support.notifications import Desktop
from tests.support.terminal import Terminal, wait_until
from watcher.config import load_config
from watcher.edge.hooks import Hooks
from watcher.edge.store import JournalEntry, JournalKind, Store

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "recipes.md"
HOSTILE = (
    ("$(touch pwned) `touch pwned` ${x:-$(pwned)} ; pwned", "You $(pwned) and `pwned` & pwned | pwned > pwned."),
    ("#(touch pwned) #{host} ##[fg=red]x #[bg=red]y #H #", "See #(pwned), #{session_name}, ###{x} and #[reverse]this."),
    ("%F{red}red%f %n %H:%M %% %(!.a.b) %{x%} %1v", "At 50% of %m. Next: the other 50%%."),
    ("-n -h --help", "-n is the flag. Next: -h."),
    ("\\n \\e[1m \\u \\$(pwned) \\074b\\076 \\\\", "Mind the \\ and the \"quotes\", then 'these'."),
    ("<b>bold</b> & <i>", "You escape &amp; and <a href='x'>y</a>. Next: {a,b} * ? ~ !! !x ^a^b."),
    ("修复登录 🙂 «café»", "Alles grün — nächster Schritt: »Tests«."),
)
"""Titles and recaps that mean something to a shell, to tmux, to a prompt, to an option parser, to markup."""


def block(language: str, number: int = 0) -> str:
    """A code block of the page."""
    found = list(re.finditer(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    return found[number][1]


def needs(program: str) -> pytest.MarkDecorator:
    """Skips, and says so, where the program is not installed."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed: recipe untested here")


@pytest.fixture(name="project")
def _project(home: Home) -> Path:
    """A directory to have sessions in, `qwen-watcher` on the PATH, and `pwned` there as well, which must never run."""
    scripts = home.root / "bin"
    scripts.mkdir()
    programs = {
        "qwen-watcher": f'exec "{sys.executable}" -m watcher "$@"',
        "pwned": f"touch {home.root}/pwned",
    }
    for name, code in programs.items():
        (scripts / name).write_text(f"#!/bin/sh\n{code}\n")
        (scripts / name).chmod(0o755)
    home.env["PATH"] = f"{scripts}:{home.env['PATH']}"
    project = home.root / "project"
    project.mkdir()
    return project


@pytest.fixture(name="shown")
def _shown(home: Home, project: Path) -> Callable[[str, str], str]:
    """Gives the project's session this title and recap, and returns the line that is to be seen for them."""
    session = home.session("Begin", cwd=str(project))

    def show(title: str, recap: str) -> str:
        session.title(title)
        session.recap(recap)
        return line(home, project)

    return show


def line(home: Home, project: Path) -> str:
    """The plain status line of a directory."""
    ran = home.run("statusline", "--cwd", str(project))
    assert ran.code == 0
    return ran.out.strip("\n")


def assert_nothing_ran(home: Home) -> None:
    """No file by the name that every hostile text tries to make."""
    assert list(home.root.rglob("pwned*")) == [home.root / "bin" / "pwned"]


# -- shell prompts -----------------------------------------------------------------------------------------------------

READY = "ready>"
FISH_BEFORE = f"set fish_greeting; function fish_prompt; printf '{READY} '; end"
ZSH_SUBST = f"setopt prompt_subst\nPROMPT='$(qwen-watcher statusline --format zsh)\n{READY} '\n"


@contextmanager
def shell(home: Home, project: Path, name: str, startup: str) -> Iterator[Terminal]:
    """An interactive shell of this kind in the project, with this startup file."""
    folder = home.root / "startup"
    folder.mkdir()
    files = {"zsh": ".zshrc", "bash": "bashrc", "dash": "dashrc", "fish": "fish/config.fish"}
    file = folder / files[name]
    file.parent.mkdir(exist_ok=True)
    file.write_text(startup)
    argv = {"bash": ["bash", "--noprofile", "--rcfile", str(file), "-i"], "dash": ["dash", "-i"]}.get(
        name, [name, "-i"]
    )
    env = home.env | {"ZDOTDIR": str(folder), "XDG_CONFIG_HOME": str(folder), "ENV": str(file)}
    with Terminal(argv, env, project, columns=200) as terminal:
        terminal.wait_for(READY if name != "dash" else "$ ")
        yield terminal


@pytest.mark.parametrize(
    ("name", "startup"),
    [
        pytest.param("zsh", f"PROMPT='{READY} '\n" + block("zsh"), marks=needs("zsh"), id="zsh"),
        pytest.param(
            "zsh", f"setopt prompt_subst\nPROMPT='{READY} '\n" + block("zsh"), marks=needs("zsh"), id="zsh-with-subst"
        ),
        pytest.param("zsh", ZSH_SUBST, marks=needs("zsh"), id="zsh-by-substitution"),
        pytest.param("bash", f"PS1='{READY} '\n" + block("bash"), marks=needs("bash"), id="bash"),
        pytest.param("fish", f"{FISH_BEFORE}\n" + block("fish"), marks=needs("fish"), id="fish"),
        pytest.param("dash", block("posix"), marks=needs("dash"), id="dash"),
    ],
)
def test_a_prompt_shows_the_line_to_the_letter(
    home: Home, project: Path, shown: Callable[[str, str], str], name: str, startup: str
) -> None:
    """Above the prompt stands what `statusline` prints, whatever that is; a directory without a session has none."""
    with shell(home, project, name, startup) as terminal:
        for title, recap in HOSTILE:
            expected = shown(title, recap)
            terminal.press("enter")
            terminal.wait_for(expected, why=expected)
        terminal.send("cd /; echo gone\r")
        last = re.compile(r"gone\n\n?(\$|ready>)\s*\Z")  # some have an empty line above the prompt then
        terminal.wait_for(lambda lines: last.search("\n".join(lines)), why="no line")
    assert_nothing_ran(home)


# -- tmux --------------------------------------------------------------------------------------------------------------


@contextmanager
def tmux(home: Home, project: Path) -> Iterator[Terminal]:
    """tmux with the recipe as its configuration, asking every second, and a client that looks at it."""
    file = home.root / "tmux.conf"
    file.write_text(block("tmux") + "set -g status-left ''\nset -g window-status-current-format ''\n")
    socket = str(home.root / "tmux")
    with Terminal(["tmux", "-S", socket, "-f", str(file), "new-session", "cat"], home.env, project, columns=150) as it:
        try:
            command(home, "set", "-g", "status-interval", "1")
            yield it
        finally:
            command(home, "kill-server")


def command(home: Home, *words: str) -> None:
    """A tmux command, tried again while the server starts."""

    def done() -> bool:
        argv = ["tmux", "-S", str(home.root / "tmux"), *words]
        ran = subprocess.run(argv, env=home.env, capture_output=True, text=True, check=False)
        last[:] = [ran.stderr]
        return ran.returncode == 0

    last: list[str] = []
    wait_until(done, f"tmux {words}", 20.0, lambda: str(last))


@needs("tmux")
def test_tmux_shows_the_line_to_the_letter(home: Home, project: Path, shown: Callable[[str, str], str]) -> None:
    """In the status bar stands what `statusline` prints for the pane's directory."""
    with tmux(home, project) as terminal:
        for title, recap in HOSTILE:
            expected = shown(title, recap)
            terminal.wait_for(expected, why=expected)
    assert_nothing_ran(home)


@needs("tmux")
def test_the_name_of_a_directory_is_no_command_to_tmux(home: Home, project: Path) -> None:
    """Nor to the shell that tmux starts; `pwned` on a line of its own would be one."""
    names = ["a b", "$(pwned)", "`pwned`", "x\npwned\ny", "; pwned", '"q"', "&pwned&", "%H", "\\"]
    with tmux(home, project) as terminal:
        for number, name in enumerate(names):
            (project / name).mkdir()
            home.session(f"Number {number} of them", cwd=str(project / name))
            command(home, "respawn-pane", "-k", "-c", str(project / name), "cat")
            terminal.wait_for(f"Number {number} of them")
        (project / "it's; pwned").mkdir()
        home.session("Not shown", cwd=str(project / "it's; pwned"))
        command(home, "respawn-pane", "-k", "-c", str(project / "it's; pwned"), "cat")
        terminal.wait_for(lambda lines: not any("of them" in each for each in lines))
        assert not terminal.shows("Not shown")
    assert_nothing_ran(home)


# -- notifications -----------------------------------------------------------------------------------------------------


def run_hook(home: Home, toml: str, text: str, env: dict[str, str]) -> list[str]:
    """Starts the `on_recap` of a configuration as the watcher does; returns what it complains about, at its end."""
    file = home.root / "config.toml"
    file.write_text(toml)
    argv = load_config({"HOME": str(home.root)}, path=file).config.hooks.on_recap
    failures: list[str] = []
    hooks = Hooks(lambda _, detail: failures.append(detail), env)
    payload = {"kind": "recap", "text": text, "cwd": SHOP}
    hooks.start("on_recap", argv, json.dumps(payload, ensure_ascii=False).encode() + b"\n")
    wait_until(lambda: hooks.idle, "the end of the hook")
    hooks.close()
    return failures


@needs("notify-send")
@needs("jq")
def test_notify_send_shows_the_recap_and_nothing_of_it_is_markup(home: Home, project: Path) -> None:
    """What a notification service makes of the body, entities being all that it may interpret, is the text itself."""
    with Desktop(home.root) as desktop:
        env = home.env | {"DBUS_SESSION_BUS_ADDRESS": desktop.address}
        for text in [each for pair in HOSTILE for each in pair]:
            assert run_hook(home, block("toml", 0), text, env) == []
            shown = desktop.shown.pop()
            assert (shown.app_name, shown.summary) == ("Qwen Code", "Where you were")
            assert "<" not in shown.body
            assert html.unescape(shown.body) == text
        assert desktop.shown == []
    assert_nothing_ran(home)


@needs("jq")
def test_terminal_notifier_gets_the_recap_on_its_standard_input(home: Home, project: Path) -> None:
    """With a stand-in for the program, which exists on macOS only: no text of ours is among its arguments."""
    notifier = home.root / "bin" / "terminal-notifier"
    notifier.write_text('#!/bin/sh\nprintf "%s|" "$@" > "$HOME/arguments"\ncat > "$HOME/message"\n')
    notifier.chmod(0o755)
    for text in [each for pair in HOSTILE for each in pair]:
        assert run_hook(home, block("toml", 1), text, home.env) == []
        assert (home.root / "message").read_text() == text + "\n"
        assert (home.root / "arguments").read_text() == "-title|Qwen Code|-subtitle|Where you were|"
    assert_nothing_ran(home)


# -- a pane of its own -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=needs("jq"))], ids=["text", "json"])
def test_tail_tells_each_recap_as_it_is_written(home: Home, project: Path, number: int) -> None:
    """As text, and as an event a line for another program."""
    store = Store.open(home.state)
    process = subprocess.Popen(
        ["sh", "-c", block("sh", number)], env=home.env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        for title, recap in HOSTILE:
            record(store, title, recap)
            assert recap in process.stdout.readline()
    finally:
        os.killpg(process.pid, 9)
        process.communicate()
        store.close()
    assert_nothing_ran(home)


def record(store: Store, title: str, recap: str) -> None:
    """A title and a recap, as the watcher notes them when it has written them."""
    for kind, text in ((JournalKind.TITLE, title), (JournalKind.RECAP, recap)):
        entry = JournalEntry(kind=kind, session_id=SESSION, path="x", cwd=SHOP, at=time.time(), text=text)
        store.record(entry)


def test_the_recipes_of_the_readme_are_those_of_the_page() -> None:
    """What is tried here is what most people read."""
    readme, page = (ROOT / "README.md").read_text(), PAGE.read_text()
    recipes = readme[readme.index("### Recipes") : readme.index("### For other programs")]
    blocks = re.findall(r"^```\w+\n.*?^```", recipes, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    assert [block for block in blocks if block not in page] == []
