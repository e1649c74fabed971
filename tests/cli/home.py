"""A throw-away home with session files, and the command line run in it, in this process or as one of its own."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptyprocess import PtyProcess

from tests.support.live import registry_record, running, write_record
from tests.support.model_server import ModelServer, Request, Response, json_response
from tests.support.terminal import Terminal
from tests.support.transcripts import Transcript
from watcher.cli.app import main
from watcher.qwen.contract import lease_paths, sanitize_cwd

REPOSITORY = Path(__file__).resolve().parents[2]
SHOP = "/home/user/shop"
KEY = "sk-test-0123456789abcdef"


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What stands on stdout, as JSON."""
        return json.loads(self.out)


class Home:
    """The home directory of one test. `env` is the whole environment of every command in it."""

    def __init__(self, root: Path, set_environment: Callable[[Mapping[str, str]], None]) -> None:
        self.root = root
        self.qwen = root / ".qwen"
        self.state = root / "state"
        self.env = {
            "HOME": str(root),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PYTHONPATH": str(REPOSITORY),
            "QWEN_WATCHER_STATE_DIR": str(self.state),
            "QWEN_CODE_SYSTEM_SETTINGS_PATH": str(root / "no-system-settings.json"),
        }
        self._set_environment = set_environment
        self._count = 0
        self.qwen.mkdir(parents=True)

    # -- what is there -------------------------------------------------------------------------------------------------

    def session(self, *prompts: str, cwd: str = SHOP, age: float = 3600.0, **options: Any) -> Transcript:
        """A terminal session that ended `age` seconds ago, one answered turn a prompt."""
        self._count += 1
        options.setdefault("session_id", f"{self._count:04x}{uuid.uuid4()}"[:36].replace("--", "-"))
        at = time.time() - age - 10.0 * len(prompts)
        transcript = Transcript(self.qwen / "projects" / sanitize_cwd(cwd) / "chats", cwd=cwd, at=at, **options)
        for prompt in prompts or ("Fix the flaky login test",):
            transcript.turn(prompt, "Done: it waits for the redirect now.")
        self.rest(transcript)
        return transcript

    @staticmethod
    def rest(transcript: Transcript) -> None:
        """Give the file the time of its last record."""
        transcript.set_mtime(transcript.at)

    def settings(self, **values: Any) -> None:
        """Qwen Code's user settings."""
        (self.qwen / "settings.json").write_text(json.dumps(values))

    def use_model(self, url: str, **more: Any) -> None:
        """Settings with a fast model at `url` whose key is in `FLASH_KEY`."""
        self.settings(
            fastModel="flash",
            security={"auth": {"selectedType": "openai"}},
            modelProviders={"openai": [{"id": "flash", "baseUrl": f"{url}/v1", "envKey": "FLASH_KEY"}]},
            **more,
        )
        self.env["FLASH_KEY"] = KEY

    def use_extractive(self) -> None:
        """The offline model, for commands that are not about the model."""
        self.env["QWEN_WATCHER_MODEL__SOURCE"] = "extractive"

    def lease(self, transcript: Transcript) -> Path:
        """Put a writer lease on the session."""
        path = Path(lease_paths(str(self.qwen), transcript.session_id)[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        return path

    @contextlib.contextmanager
    def owner(self, transcript: Transcript, **changes: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A live process that has the session, as the registry tells; gone with the block."""
        with running() as process:
            record = write_record(self.qwen, registry_record(process.pid, transcript.session_id, **changes))
            yield process
        record.unlink()

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, *arguments: str, encoding: str = "utf-8") -> Ran:
        """Run a command in this process, with pipes for stdout and stderr."""
        self._set_environment(self.env)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(arguments)
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
        return Ran(code, _text(out, encoding), _text(err, encoding))

    @contextlib.contextmanager
    def process(self, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """A command as a process of its own, with pipes for stdout and stderr; ended with the block."""
        process = subprocess.Popen(
            [sys.executable, "-m", "watcher", *arguments],
            env=self.env,
            cwd=self.root,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            | options,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def raw_lines(self, *arguments: str, columns: int) -> list[str]:
        """What a command writes to a terminal of that width, line by line as it was written, colour codes left out."""
        process = PtyProcess.spawn(
            [sys.executable, "-m", "watcher", *arguments], env=self.env, cwd=str(self.root), dimensions=(50, columns)
        )
        data = b""
        with contextlib.closing(process), contextlib.suppress(EOFError):
            while True:
                data += process.read(65536)
        return re.sub(r"\x1b\[[0-9;]*m", "", data.decode()).split("\r\n")

    def terminal(self, *arguments: str, columns: int = 80, rows: int = 50) -> Terminal:
        """Start a command in a pseudo-terminal."""
        return Terminal([sys.executable, "-m", "watcher", *arguments], self.env, self.root, columns, rows)


def _text(stream: io.TextIOWrapper, encoding: str) -> str:
    stream.flush()
    data = bytes(stream.detach().getvalue())  # type: ignore[attr-defined]  # the buffer is a BytesIO
    return data.decode(encoding)


def title_reply(title: str) -> Response:
    """A chat completion that calls the function with a title."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "give_answer", "arguments": json.dumps({"title": title})},
    }
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": 210, "completion_tokens": 9}
    return json_response({"choices": [{"finish_reason": "tool_calls", "message": message}], "usage": usage})


def text_reply(text: str) -> Response:
    """A chat completion with a text."""
    return json_response({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]})


def answering(title: str = "Fix flaky login test", recap: str = "You fix the login test. Next: run it.") -> ModelServer:
    """A server that gives one title and one recap."""

    def script(request: Request) -> Response:
        return title_reply(title) if "tools" in request.json else text_reply(f"<recap>{recap}</recap>")

    return ModelServer(script)
