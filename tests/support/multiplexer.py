"""A program in a detached tmux or screen session: typed to and read from outside, as through a client."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.terminal import squeeze, wait_until


@dataclass(frozen=True)
class Pane:
    """Where the program runs. `attach` is the command line of a client, `tty` the device that the program sees."""

    tty: Path
    attach: Sequence[str]
    _send: Callable[[str], object]
    _text: Callable[[], str]
    _kill: Callable[[], object]

    def send(self, text: str) -> None:
        """Writes `text` to the program as if typed."""
        self._send(text)

    def wait_for(self, text: str) -> None:
        """Waits until a text is visible; white space and line wraps do not count."""
        wait_until(lambda: squeeze(text) in squeeze(self._text()), f"{text!r} in the pane", dump=self._text)

    def kill(self) -> None:
        """Closes the pane: its program gets a SIGHUP."""
        self._kill()


Multiplexer = Callable[[Sequence[str], Mapping[str, str], Path, Path], contextlib.AbstractContextManager[Pane]]
"""Runs a command line, with this environment, in this directory; the last folder is for files of its own."""


@contextlib.contextmanager
def in_tmux(argv: Sequence[str], env: Mapping[str, str], cwd: Path, folder: Path) -> Iterator[Pane]:
    """The program in a new tmux server, to which no client is attached."""
    tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]

    def run(*words: str) -> str:
        return subprocess.run([*tmux, *words], env=env, cwd=cwd, check=True, capture_output=True, text=True).stdout

    run("new-session", "-d", "-x", "100", "-y", "40", *argv)
    try:
        yield Pane(
            Path(run("display-message", "-p", "#{pane_tty}").strip()),
            [*tmux, "attach"],
            lambda text: run("send-keys", "-l", text),
            lambda: run("capture-pane", "-p"),
            lambda: run("kill-session"),
        )
    finally:
        subprocess.run([*tmux, "kill-server"], env=env, capture_output=True, check=False)


@contextlib.contextmanager
def in_screen(argv: Sequence[str], env: Mapping[str, str], cwd: Path, folder: Path) -> Iterator[Pane]:
    """The program in a new screen session, to which no client is attached."""
    sockets = folder / "screens"
    sockets.mkdir(mode=0o700)
    env = dict(env) | {"SCREENDIR": str(sockets)}
    device, shot = folder / "tty", folder / "shot"
    # What screen starts tells its terminal first.
    code = "import os, sys; open(sys.argv[1], 'w').write(os.ttyname(0)); os.execvp(sys.argv[2], sys.argv[2:])"
    screen = ["screen", "-U", "-c", "/dev/null", "-S", "pane"]

    def run(*words: str) -> None:
        subprocess.run([*screen, "-p", "0", "-X", *words], env=env, cwd=cwd, check=True, capture_output=True)

    def text() -> str:
        run("hardcopy", str(shot))
        return shot.read_text(errors="replace") if shot.exists() else ""

    started = [*screen, "-dm", sys.executable, "-I", "-c", code, str(device), *argv]
    subprocess.run(started, env=env, cwd=cwd, check=True, capture_output=True)
    try:
        wait_until(lambda: device.exists() and device.read_text(), "the terminal of screen's window")
        # screen reads `^X`, `\\` and `$` in what is to be typed as its own.
        yield Pane(
            Path(device.read_text()),
            ["env", f"SCREENDIR={sockets}", *screen[:-2], "-r", "pane"],
            lambda typed: run("stuff", "".join(f"\\{ord(each):03o}" for each in typed)),
            text,
            lambda: run("quit"),
        )
    finally:
        subprocess.run([*screen, "-X", "quit"], env=env, capture_output=True, check=False)
        wait_until(lambda: not any("pane" in name for name in os.listdir(sockets)), "the end of screen")
