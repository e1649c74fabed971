"""One HTTP request in a process of its own, for a service that stays: what httpx and TLS take ends with the request.

Measured with Python 3.11: 12 MiB that the service would keep for months after its first title, for 0.14 s of processor
time and 0.2 s of waiting a request, which itself takes seconds. The process gets the request, with the key in it,
through a pipe, and ends with the watcher, however that ends: it leaves when the pipe is closed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final

from watcher.edge.text_model.abort import Abort
from watcher.edge.text_model.endpoint import HttpRequest
from watcher.edge.text_model.exchange import Exchange, Fault, HttpReply, NoReply, in_this_process
from watcher.edge.text_model.network import TLS_VARIABLES, Route
from watcher.errors import ModelSetupError, words_of

GRACE_SECONDS: Final = 10.0
"""The process keeps the time limit itself; it is killed when it is so late, as on a machine without any memory left."""
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from watcher.edge.text_model import apart; apart.answer()"
)


def in_another_process(route: Route, environ: Mapping[str, str]) -> Exchange:
    """As `in_this_process`; certificates that cannot be used show when the request is made, as `Fault.SETUP`."""

    def exchange(request: HttpRequest, *, timeout_seconds: float, abort: Abort) -> HttpReply | NoReply:
        question = {
            "url": request.url,
            "headers": request.headers,
            "body": request.body.decode("utf-8"),
            "route": {"proxy": route.proxy, "secure": route.secure},
            "environ": {name: environ[name] for name in TLS_VARIABLES if name in environ},
            "timeout_seconds": timeout_seconds,
        }
        try:
            found = _ask(question, timeout_seconds + GRACE_SECONDS, abort)
        except OSError as error:
            return NoReply(Fault.SETUP, f"cannot start a process for the request: {words_of(error)}")
        if abort.is_set():
            return NoReply(Fault.ABORTED)
        if found is None:
            return NoReply(Fault.UNREACHABLE, "the process that made the request ended without an answer")
        if "fault" in found:
            return NoReply(Fault(found["fault"]), found["phrase"])
        return HttpReply(found["status"], found["headers"], base64.b64decode(found["body"]))

    return exchange


def _ask(question: Mapping[str, object], timeout_seconds: float, abort: Abort) -> dict[str, Any] | None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for the watcher alone
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(timeout_seconds, process.kill)
        try:
            with abort.calling(process.kill):
                late.start()
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(json.dumps(question).encode() + b"\n")
                    process.stdin.flush()
                text = process.stdout.read()
        finally:
            late.cancel()
            late.join()
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return found


def answer() -> None:
    """The other process: a question on stdin, what came of it on stdout."""
    question = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_leave_with_the_watcher, daemon=True).start()
    reply = _send(question)
    if isinstance(reply, NoReply):
        found: dict[str, object] = {"fault": reply.fault.value, "phrase": reply.phrase}
    else:
        body = base64.b64encode(reply.body).decode("ascii")
        found = {"status": reply.status, "headers": dict(reply.headers), "body": body}
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # without waiting for a resolver that does not answer


def _send(question: Mapping[str, Any]) -> HttpReply | NoReply:
    headers = tuple((name, value) for name, value in question["headers"])
    request = HttpRequest(question["url"], headers, question["body"].encode("utf-8"))
    try:
        exchange = in_this_process(Route(**question["route"]), question["environ"])
    except ModelSetupError as error:
        return NoReply(Fault.SETUP, str(error))
    return exchange(request, timeout_seconds=question["timeout_seconds"], abort=Abort())


def _leave_with_the_watcher() -> None:
    os.read(0, 1)
    os._exit(1)
