"""A terminal as in VS Code: a pty of node-pty, as VS Code's own, in a process that the windows do not have.

This process, the pty host, keeps the terminal while no window shows it (one that is reloaded, or the closed one of a
remote VS Code) and takes it along at its end. In it is a shell with VS Code's variables. All as seen with 1.139.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.qwen_install import QwenCode
from tests.support.terminal import ProcessTree

PROMPT = "in-vscode$"
_HOST = Path(__file__).with_name("pty_host.cjs")
# Shell integration: marks around the prompt that only VS Code reads.
_SHELL_INIT = rf"PS1='\[\e]633;A\a\]{PROMPT} \[\e]633;B\a\]'" + "\nunset VSCODE_INJECTION\n"


def node_pty(qwen: QwenCode) -> Path | None:
    """The library as it comes with Qwen Code; None when it does not exist for this machine."""
    modules = next(parent for parent in qwen.entry.parents if parent.name == "node_modules")
    folder = modules / "@lydell" / "node-pty"
    built = subprocess.run(
        [qwen.node, "-e", "require(process.argv[1])", folder],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return folder if built.returncode == 0 else None


class VsCodeTerminal:
    """A shell in it, not shown by a window so far. Use as a context manager: leaving it ends all that runs in it."""

    def __init__(self, node: Path, library: Path, env: Mapping[str, str], cwd: Path, folder: Path) -> None:
        """`env` is the environment that VS Code itself was started with, `folder` is for files of its own."""
        folder.mkdir(mode=0o700)
        socket, init = folder / "pty", folder / "shell-integration.bash"
        init.write_text(_SHELL_INIT)
        self.window: Sequence[str] = [str(node), str(_HOST), "window", str(socket)]
        """The command line of a window, which wants a terminal of its own; one at a time."""
        self._process = subprocess.Popen(
            [node, _HOST, "host", socket, library, "/bin/bash", "--init-file", init],
            env={**env, **_variables(folder)},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._tree = ProcessTree(self._process)
        assert self._process.stdout is not None
        name = self._process.stdout.readline().strip()
        assert name, "the pty host ended before it had a terminal"
        self.tty = Path(name)
        """The device that programs in it see."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tree.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def quit(self) -> None:
        """Ends VS Code: the pty host goes, and with it the terminal. Waits for the end of all that ran in it."""
        self._tree.pids()
        self._process.terminate()
        self._process.wait()
        self._tree.wait_ended()


def _variables(folder: Path) -> dict[str, str]:
    """What VS Code adds to the environment of a shell."""
    return {
        "TERM_PROGRAM": "vscode",
        "TERM_PROGRAM_VERSION": "1.139.1",
        "COLORTERM": "truecolor",
        "SHELL": "/bin/bash",
        "VSCODE_INJECTION": "1",
        "VSCODE_IPC_HOOK_CLI": str(folder / "vscode-ipc.sock"),
        "VSCODE_GIT_IPC_HANDLE": str(folder / "vscode-git.sock"),
    }
