"""A throw-away home with sessions, a model server to ask, and the real watcher as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.live import eventually
from tests.support.transcripts import Transcript
from watcher.edge.store import Store
from watcher.qwen.contract import sanitize_cwd

PROJECT = "/home/user/proj"
DEADLINE_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    """What came back over the socket: status and JSON, and the whole head."""

    status: int
    value: dict[str, Any]
    head: str


class House:
    """A home below a short path, since the path of a socket must be short."""

    def __init__(self, home: Path, base_url: str = "") -> None:
        self.home = home
        self.state = home / "state"
        self.socket = self.state / "qwen-watcher.sock"
        self.config = home / "config.toml"
        self.log = home / "log"
        self.environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "QWEN_HOME": str(home / ".qwen"),
            "QWEN_WATCHER_STATE_DIR": str(self.state),
            "QWEN_WATCHER_CONFIG": str(self.config),
        }
        self.configure(base_url)

    def configure(self, base_url: str = "", more: str = "") -> None:
        """Write the configuration: the model at `base_url`, or the extractive one; titles soon, recaps off."""
        model = f'source = "explicit"\nname = "small"\nbase_url = "{base_url}"' if base_url else 'source = "extractive"'
        self.config.write_text(
            f"[model]\n{model}\n[title]\nsettle_seconds = 0.2\n" + (more or "[recap]\nenabled = false\n")
        )

    def chats(self, cwd: str = PROJECT) -> Path:
        """The folder of a project's transcripts."""
        return self.home / ".qwen" / "projects" / sanitize_cwd(cwd) / "chats"

    def session(self, turns: int = 3, *, cwd: str = PROJECT, age_seconds: float = 60.0, title: str = "") -> Transcript:
        """A session whose turns ended `age_seconds` ago."""
        made = Transcript(self.chats(cwd), cwd=cwd, at=float(int(time.time() - age_seconds - 10 * turns)))
        for number in range(turns):
            made.turn(f"Please fix the flaky login test, part {number}", f"Part {number} is fixed.")
        if title:
            made.title(title, "manual")
        if made.path.exists():
            made.set_mtime(made.at)
        return made

    def store(self) -> Store:
        """The state database; close it."""
        return Store.open(self.state)

    @contextlib.contextmanager
    def watching(self) -> Iterator[subprocess.Popen[bytes]]:
        """The service, from its first answer to SIGTERM."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "watcher", "run", "--log-format", "json"], env=self.environ, stderr=log
            )
        try:
            eventually(lambda: self.listens() or process.poll() is not None, DEADLINE_SECONDS)
            assert process.poll() is None, self.log.read_text()
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(DEADLINE_SECONDS)
            finally:
                process.kill()
                process.wait()

    def listens(self) -> bool:
        """Whether somebody accepts connections."""
        try:
            with self.connect():
                return True
        except OSError:
            return False

    def connect(self) -> socket.socket:
        """A connection to the socket."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(DEADLINE_SECONDS)
            connection.connect(str(self.socket))
        except BaseException:
            connection.close()
            raise
        return connection

    def ask(self, target: str, method: str = "GET", body: bytes = b"", head: str = "") -> Answer:
        """One request, written out by hand, and its answer."""
        with self.connect() as connection:
            length = f"Content-Length: {len(body)}\r\n" if body else ""
            connection.sendall(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{length}{head}\r\n".encode() + body)
            return read_answer(connection)

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "watcher", *arguments],
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def read_answer(connection: socket.socket) -> Answer:
    """Read to the end and take the answer apart."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    lengths = [int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:")]
    assert lengths == [len(body)]
    return Answer(int(lines[0].split()[1]), json.loads(body), head.decode())


@contextlib.contextmanager
def house(base_url: str = "") -> Iterator[House]:
    """A house that is torn down afterwards."""
    with tempfile.TemporaryDirectory(prefix="qw-", dir="/tmp") as folder:
        yield House(Path(folder), base_url)
