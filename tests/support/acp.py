"""Qwen Code as an editor drives it: the Agent Client Protocol, JSON-RPC lines over the streams of `qwen --acp`."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.chat_server import ChatServer
from tests.support.qwen_code import Home
from tests.support.terminal import DEADLINE_SECONDS, ProcessTree, WaitTimeoutError


class AcpError(Exception):
    """The agent answered a request with an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(json.dumps(error))
        self.code = int(error.get("code", 0))
        self.message = str(error.get("message", ""))
        self.data: Any = error.get("data")


class AcpClient:
    """A client with its agent process, ready for sessions once constructed.

    Use it as a context manager: leaving it ends the agent. Permission questions of the agent are answered with the
    first option that allows; it may not use the client's files or terminals.
    """

    def __init__(self, home: Home, server: ChatServer, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.updates: list[dict[str, Any]] = []
        """The parameters of all `session/update` notifications, oldest first."""
        self._ids = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            home.qwen.argv("--acp", *args),
            env=home.env(server, env),
            cwd=home.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._tree = ProcessTree(self._process)
        self._threads = [
            threading.Thread(target=target, name=f"acp-{self.pid}-{target.__name__}", daemon=True)
            for target in (self._read_output, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()
        try:
            capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
            self.initialized = self.request("initialize", protocolVersion=1, clientCapabilities=capabilities)
        except BaseException:
            self.kill9()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()

    @property
    def pid(self) -> int:
        """Process id of what was started, a launcher of the agent."""
        return self._process.pid

    def new_session(self) -> str:
        """Starts a session in the project; returns its id. Its file is made with the first prompt."""
        return str(self.request("session/new", cwd=str(self.home.project), mcpServers=[])["sessionId"])

    def load_session(self, session_id: str) -> None:
        """Opens an earlier session of the project."""
        self.request("session/load", sessionId=session_id, cwd=str(self.home.project), mcpServers=[])

    def prompt(self, session_id: str, text: str, timeout: float = DEADLINE_SECONDS) -> str:
        """Says `text`; waits for the end of the turn; returns its stop reason (`end_turn`). Raises `AcpError`."""
        return str(self.finish(self.begin_prompt(session_id, text), timeout)["stopReason"])

    def begin_prompt(self, session_id: str, text: str) -> int:
        """Says `text` and returns the request's number at once, for `finish`."""
        return self.begin("session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])

    def session(self, session_id: str) -> Path:
        """The file of a session."""
        return self.home.chats / f"{session_id}.jsonl"

    def said(self, session_id: str) -> str:
        """What the agent has said in that session since the client started."""
        with self._changed:
            updates = [each["update"] for each in self.updates if each["sessionId"] == session_id]
        return "".join(each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk")

    def request(self, method: str, timeout: float = DEADLINE_SECONDS, /, **params: Any) -> dict[str, Any]:
        """Sends any request and returns its result, as `finish` does."""
        return self.finish(self.begin(method, **params), timeout)

    def begin(self, method: str, /, **params: Any) -> int:
        """Sends a request and returns its number at once."""
        number = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def finish(self, number: int, timeout: float = DEADLINE_SECONDS) -> dict[str, Any]:
        """The result of a request that was begun.

        Raises `AcpError` for an error answer, `WaitTimeoutError` when there is none within `timeout` seconds or the
        agent ends.
        """
        with self._changed:
            self._changed.wait_for(lambda: number in self._answers or self._ended, timeout)
            answer = self._answers.pop(number, None)
        if answer is None:
            raise WaitTimeoutError(
                f"request {number} not answered in {timeout:g} s; the agent said:\n{self._complaints()}"
            )
        if "error" in answer:
            raise AcpError(answer["error"])
        result: dict[str, Any] = answer.get("result") or {}
        return result

    def close(self) -> int:
        """Hangs up as an editor does when it quits; waits for the agent's end; returns its exit status."""
        assert self._process.stdin is not None
        self._tree.pids()  # to know them, should one stay behind
        self._process.stdin.close()
        try:
            status = self._process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            raise WaitTimeoutError("the agent did not end when its input was closed") from None
        self._tree.wait_ended()
        self._join()
        return status

    def kill9(self) -> None:
        """SIGKILL to the agent and its launcher at once; waits for their end. Does nothing when it has ended."""
        self._tree.kill()
        self._join()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # a message that the agent never read
                    stream.close()

    def _complaints(self) -> str:
        return "".join(self._errors[-50:])

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise WaitTimeoutError(f"the agent has ended; it said:\n{self._complaints()}") from None

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                self._errors.append(line)  # something that was printed where only messages belong
                continue
            self._take(message)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)

    def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            with self._changed:
                self._answers[message["id"]] = message
                self._changed.notify_all()
        elif method == "session/update":
            with self._changed:
                self.updates.append(message["params"])
        elif method == "session/request_permission":
            allowed = [each for each in message["params"]["options"] if each["kind"].startswith("allow")]
            outcome = {"outcome": "selected", "optionId": allowed[0]["optionId"]}
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": {"outcome": outcome}})
        elif "id" in message:
            error = {"code": -32601, "message": f"this client has no {method}"}
            self._send({"jsonrpc": "2.0", "id": message["id"], "error": error})
