"""Draws the README's picture from a real run: the resume picker of Qwen Code before and after.

python -m tests.support.picture docs/picker.svg
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from tests.support import qwen_code
from tests.support.chat_server import ChatRequest, ChatServer, Reply, ToolCall
from tests.support.qwen_code import Chat, Home, title_records
from tests.support.terminal import Terminal, wait_until
from tests.support.watching import Watching, watcher_env

COLUMNS, ROWS = 96, 24
PROMPTS = {
    "hi, can you have a look at why the login test fails about one time in five on ci? i pasted the log": (
        "Stabilise the flaky login test"
    ),
    "ok so there is this csv export thing, users say umlauts are broken when they open it in a spreadsheet": (
        "Fix umlauts in the CSV export"
    ),
    "请看一下为什么航班查询第二页的结果和第一页一样": "修复航班查询第二页重复的结果",
    "we need to drop the old payments table but first check what still reads from it please": (
        "Find readers of the old payments table"
    ),
}


def name(request: ChatRequest) -> Reply | None:
    """The title for the prompt that is in the request."""
    if request.title_function is None:
        return None
    title = next((title for prompt, title in PROMPTS.items() if prompt[:30] in request.prompt), "Something")
    return Reply(tool_calls=[ToolCall(request.title_function, {"title": title})])


def screen(terminal: Terminal) -> Text:
    """The terminal's screen with its colours."""
    text = Text()
    for row in range(ROWS):
        for cell in terminal.row(row):
            colour = None if cell.foreground == "default" else _colour(cell.foreground)
            text.append(cell.text.replace(" ", "\u00a0"), style=f"{'bold ' if cell.bold else ''}{colour or ''}".strip())
        text.append("\n")
    text.rstrip()
    return text


def _colour(name_: str) -> str:
    known = {"brown": "yellow", "brightblack": "bright_black"}
    return known.get(name_, f"#{name_}" if re.fullmatch("[0-9a-f]{6}", name_) else name_)


def picker(home: Home, server: ChatServer) -> Text:
    """The picker of a real Qwen Code."""
    with Chat.open(home, server, "--resume", columns=COLUMNS, rows=ROWS) as chat:
        chat.wait_picker(lambda entries: len(entries) == len(PROMPTS))
        with chat.terminal.still():
            return screen(chat.terminal)


def main(target: Path) -> None:
    """Chat, look, title, look again, draw."""
    with tempfile.TemporaryDirectory() as folder, ChatServer() as server, ChatServer() as titles:
        titles.respond = name
        home = Home(Path(folder), qwen_code.install("0.24.4"))
        for prompt in PROMPTS:
            with Chat.start(home, server) as chat:
                chat.say(prompt)
                chat.quit()
        before = picker(home, server)
        settings = {
            "model.source": "explicit",
            "model.name": "fast-model",
            "model.base_url": titles.base_url,
            "title.settle_seconds": 0.5,
        }
        with Watching(watcher_env(home.path, Path(folder) / "state", settings)) as watching:
            for session in home.sessions():
                with Chat.resume(home, server, session.stem) as chat:
                    chat.say("go on")
                    wait_until(partial(title_records, session), "the title", dump=watching.dump)
                    chat.quit()
        after = picker(home, server)
    console = Console(record=True, width=COLUMNS + 4, file=io.StringIO(), force_terminal=True)
    console.print(Group(Panel(before, title="before"), Panel(after, title="after")))
    target.write_text(console.export_svg(title="qwen --resume"))


if __name__ == "__main__":
    started = time.time()
    main(Path(sys.argv[1]))
    sys.stderr.write(f"drawn in {time.time() - started:.0f} s\n")
