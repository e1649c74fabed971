"""The real Qwen Code CLI for tests: run in throw-away homes, used like a person uses it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.chat_server import ChatServer
from tests.support.qwen_files import (
    append_recap,
    append_record,
    append_title,
    broken_lines,
    from_prompt,
    recap_texts,
    record_text,
    records,
    title_records,
    turn_ended,
    turns,
)
from tests.support.qwen_install import CACHE, LATEST, REPOSITORY, VERSIONS, InstallError, QwenCode, install
from tests.support.qwen_screen import (
    LOADING,
    PickerEntry,
    has_selection,
    input_box,
    is_idle,
    is_ready,
    letters,
    offers,
    picker_entries,
    same_or_tail,
    selected_row,
    suggests,
    typed,
)
from tests.support.terminal import (
    DEADLINE_SECONDS,
    ProcessTree,
    Terminal,
    WaitTimeoutError,
    squeeze,
    wait_until,
)

_ENTER_SECONDS = 10.0
"""After so long an Enter has done what it does, on a slow machine too."""


# -- a throw-away home ---------------------------------------------------------------------------------------

_QUIET_SETTINGS: Mapping[str, Any] = {
    "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
    "model": {"name": "main-model"},
    # No question, no network and no model call but those that a test is about.
    "tools": {"approvalMode": "yolo", "useRipgrep": False},
    "general": {"enableAutoUpdate": False, "terminalBell": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
    "ide": {"enabled": False, "hasSeenNudge": True},
    "ui": {
        "enableFollowupSuggestions": False,
        "enableUserFeedback": False,
        "enableWelcomeBack": False,
        "hideTips": True,
    },
}

_SESSION_NAME = re.compile(r"[0-9a-fA-F-]{32,36}\.jsonl")


class Home:
    """A person's home directory and a project directory beside it, both below `root`, made for one test.

    Qwen Code starts in it without questions, talks to the model server of the test and to nobody else.
    """

    def __init__(self, root: Path, qwen: QwenCode, settings: Mapping[str, Any] | None = None) -> None:
        self.qwen = qwen
        self.path = root / "home"
        self.project = root / "project"
        self.config_dir = self.path / ".qwen"
        self._temporary = root / "tmp"
        self._runtime = root / "run"
        for folder in (self.config_dir, self.project, self._temporary):
            folder.mkdir(parents=True)
        self._runtime.mkdir(mode=0o700)
        self.settings: dict[str, Any] = {}
        self.configure(_QUIET_SETTINGS)
        self.configure(settings or {})

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Merges `settings` into the user's settings file, objects key by key. It is read at the next start."""
        self.settings = _merged(self.settings, settings)
        (self.config_dir / "settings.json").write_text(json.dumps(self.settings, indent=2))

    def use_fast_model(self, server: ChatServer, name: str = "fast-model") -> None:
        """Sets a fast model, which turns Qwen Code's own titles on."""
        models = [{"id": each, "baseUrl": server.base_url, "envKey": "OPENAI_API_KEY"} for each in ("main-model", name)]
        self.configure({"fastModel": name, "modelProviders": {"openai": models}})

    def show_recaps(self, away_minutes: float) -> None:
        """Turns Qwen Code's own recaps on, for a focus lost for at least `away_minutes` (fractions work)."""
        self.configure({"general": {"showSessionRecap": True, "sessionRecapAwayThresholdMinutes": away_minutes}})

    def env(self, server: ChatServer, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The whole environment of this person's processes: nothing is the real user's, no proxy and no key."""
        return {
            "HOME": str(self.path),
            "PATH": f"{self.qwen.node.parent}:/usr/local/bin:/usr/bin:/bin",
            "SHELL": "/bin/sh",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "TMPDIR": str(self._temporary),
            "XDG_RUNTIME_DIR": str(self._runtime),
            "OPENAI_API_KEY": "dummy",
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_MODEL": "main-model",
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
            **(extra or {}),
        }

    @property
    def chats(self) -> Path:
        """The folder of the project's session files; made by Qwen Code, so it may not exist yet."""
        return self.config_dir / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(self.project)) / "chats"

    def sessions(self) -> list[Path]:
        """The session files of all projects, the one written last first."""
        files = [
            path for path in self.config_dir.glob("projects/*/chats/*.jsonl") if _SESSION_NAME.fullmatch(path.name)
        ]
        return sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True)

    def find_session(self, name: str) -> Path | None:
        """The newest session with this id, title or (without a title) first prompt; None if there is none."""
        for path in self.sessions():
            titles = [title for title, _ in title_records(path)[-1:]] or [text for _, text in turns(path)[:1]]
            if name in (path.stem, *titles):
                return path
        return None

    def registry(self) -> list[dict[str, Any]]:
        """The records of live Qwen Code processes, as those wrote them (since 0.23.0)."""
        return _objects(self.config_dir.glob("sessions/*.json"))

    def sidecars(self) -> list[dict[str, Any]]:
        """The `.runtime.json` files beside the session files; they stay when the process ends (since 0.21)."""
        return _objects(self.config_dir.glob("projects/*/chats/*.runtime.json"))

    def locks(self) -> list[Path]:
        """The writer-lease files of all sessions, in any state."""
        return sorted(self.config_dir.glob("tmp/session-writer-locks/*"))

    def run(
        self, server: ChatServer, *args: str, env: Mapping[str, str] | None = None, timeout: float = DEADLINE_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Runs Qwen Code without a terminal, as a script would (with `-p PROMPT`, say), to its end.

        Raises `subprocess.TimeoutExpired` after `timeout` seconds, having ended it.
        """
        process = subprocess.Popen(
            self.qwen.argv(*args),
            env=self.env(server, env),
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        tree = ProcessTree(process)
        with process:
            try:
                out, errors = process.communicate(timeout=timeout)
            finally:
                tree.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _objects(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The JSON objects in the files that can be read; they may vanish at any moment."""
    found = []
    for path in sorted(paths):
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(path.read_bytes()))
    return found


# -- a chat in a terminal ------------------------------------------------------------------------------------


class Chat:
    """Qwen Code in a terminal, and a person at it. Use as a context manager: leaving it ends the process.

    The verbs wait for their effect, on the screen and in the session file where both have one; those ending in
    `_nowait` do not.
    """

    def __init__(self, home: Home, terminal: Terminal) -> None:
        self.home = home
        self.terminal = terminal
        self._pid: int | None = None
        self._resumed: Path | None = None
        self._sessions_before = set(home.sessions())

    @classmethod
    def open(
        cls,
        home: Home,
        server: ChatServer,
        *args: str,
        env: Mapping[str, str] | None = None,
        columns: int = 100,
        rows: int = 40,
    ) -> Chat:
        """Starts Qwen Code with these arguments and returns at once."""
        return cls(home, Terminal(home.qwen.argv(*args), home.env(server, env), home.project, columns, rows))

    @classmethod
    def start(
        cls,
        home: Home,
        server: ChatServer,
        *args: str,
        env: Mapping[str, str] | None = None,
        columns: int = 100,
        rows: int = 40,
    ) -> Chat:
        """Starts Qwen Code and waits until it can be typed to."""
        chat = cls.open(home, server, *args, env=env, columns=columns, rows=rows)
        with chat.closed_on_error():
            chat.wait_ready()
            chat._wait_registered()
        return chat

    @classmethod
    def resume(
        cls, home: Home, server: ChatServer, session_id: str, *args: str, columns: int = 100, rows: int = 40
    ) -> Chat:
        """Starts Qwen Code with an earlier session, by id or title, and waits until it can be typed to."""
        chat = cls.start(home, server, "--resume", session_id, *args, columns=columns, rows=rows)
        chat._resumed = home.find_session(session_id)
        return chat

    @classmethod
    def resume_picker(cls, home: Home, server: ChatServer) -> Chat:
        """Starts Qwen Code with the list of earlier sessions and waits until at least one is shown."""
        chat = cls.open(home, server, "--resume")
        with chat.closed_on_error():
            chat.wait_picker(bool)
        return chat

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.terminal.close()

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Ends the process when the block raises."""
        try:
            yield
        except BaseException:
            self.terminal.close()
            raise

    # -- what it is ------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Process id of the Qwen Code that serves the session; what the terminal started is only its launcher."""
        self._own_record()
        return self._pid if self._pid is not None else self.terminal.pids()[-1]

    @property
    def session(self) -> Path:
        """The file of the current session. It does not exist before the first prompt."""
        own = self._own_record()
        if own is not None:
            return self.home.chats / f"{own.get('sessionId') or own['session_id']}.jsonl"
        new = [path for path in self.home.sessions() if path not in self._sessions_before]
        return next((path for path in (self._resumed, *new) if path), self.home.chats / "not-made-yet.jsonl")

    @property
    def session_id(self) -> str:
        """The id of the current session."""
        return self.session.stem

    def _own_record(self) -> dict[str, Any] | None:
        """The registry record (since 0.23.0) or the sidecar (since 0.21) of this process."""
        pids = {self._pid} if self._pid is not None else set(self.terminal.pids())
        for record in (*self.home.registry(), *self.home.sidecars()):
            if record["pid"] in pids:
                self._pid = record["pid"]
                return record
        return None

    def _wait_registered(self) -> None:
        """Waits until this process has said which session it serves, if its version says that at all."""
        if self.home.qwen.says_session:
            wait_until(self._own_record, "a registry record or sidecar of this process", dump=self.terminal.text)

    # -- what it shows ---------------------------------------------------------------------------------------

    def wait_ready(self, timeout: float = DEADLINE_SECONDS) -> None:
        """Waits until Qwen Code is idle with an empty input box."""
        self.terminal.wait_for(is_ready, timeout, "an empty input box")

    def wait_idle(self, timeout: float = DEADLINE_SECONDS) -> None:
        """Waits until no turn runs; the input box may hold text."""
        self.terminal.wait_for(is_idle, timeout, "the end of the turn")

    def typed(self) -> str:
        """What stands in the input box, without white space; empty if nothing does."""
        return typed(self.terminal.screen()) or ""

    def shown_title(self) -> str | None:
        """The session's title as the rule above the input box shows it; None if it shows none."""
        box = input_box(self.terminal.screen())
        return box.title if box else None

    def wait_title(self, title: str, timeout: float = DEADLINE_SECONDS) -> None:
        """Waits until the rule above the input box shows this title, or as much of it as has room there."""

        def is_shown(_: list[str]) -> bool:
            shown = self.shown_title() or ""
            return shown == title or (shown.endswith("…") and title.startswith(shown[:-1].rstrip()))

        self.terminal.wait_for(is_shown, timeout, f"the title {title!r} above the input box")

    def picker(self) -> list[PickerEntry]:
        """The entries of the resume picker that are visible now, from top to bottom."""
        return picker_entries(self.terminal)

    def wait_picker(
        self, condition: Callable[[list[PickerEntry]], object], timeout: float = DEADLINE_SECONDS
    ) -> list[PickerEntry]:
        """Waits until the entries of the resume picker satisfy the condition; returns them."""

        def entries(_: list[str]) -> list[PickerEntry] | None:
            shown = self.picker()
            return shown if condition(shown) else None

        found = self.terminal.wait_for(entries, timeout, "the resume picker")
        assert isinstance(found, list)
        return found

    # -- what the person does --------------------------------------------------------------------------------

    def type(self, text: str) -> None:
        """Types `text` into the empty input box and waits until it stands there.

        An Enter that reaches Qwen Code in the same read as text counts as pasted, so it must not be sent before
        that. A newline in the text is typed as Ctrl+J, which does not send. A text with `@` or with `!` or `?`
        in front means something else to the box.
        """
        self.terminal.send(text)
        self._wait_typed(text)

    def _wait_typed(self, text: str) -> None:
        wanted = squeeze(text)
        self.terminal.wait_for(lambda lines: same_or_tail(typed(lines) or "", wanted), why=f"the typed text {text!r}")

    def _send_typed(self, text: str) -> None:
        """Presses Enter, again when nothing comes of it: a suggestion that shows up late takes an Enter and sends
        nothing.
        """
        wanted = squeeze(text)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            self.terminal.press("enter")
            try:
                self.terminal.wait_for(
                    lambda lines: not same_or_tail(typed(lines) or "", wanted), _ENTER_SECONDS, "the text sent"
                )
            except WaitTimeoutError:
                if time.monotonic() > deadline or not self.terminal.pids():
                    raise
            else:
                return

    def say_nowait(self, prompt: str) -> None:
        """Types a prompt, sends it, and waits only until it has left the input box."""
        self.type(prompt)
        self._send_typed(prompt)

    def say_next(self, prompt: str, after: str = "") -> None:
        """As `say_nowait`, but typed while a turn may still run, and sent as soon as it has ended: when what it shows
        at its end, `after`, is visible and nothing runs any more.
        """
        self.type(prompt)
        self.terminal.wait_for(after)
        self.wait_idle()
        self._send_typed(prompt)

    def say(self, prompt: str, timeout: float = DEADLINE_SECONDS) -> str:
        """Says `prompt`; waits for the end of the turn in the file and on the screen; returns the last answer."""
        before = len(records(self.session))
        self.say_nowait(prompt)
        return self.wait_turn(before, timeout)

    def wait_turn(self, after_record: int, timeout: float = DEADLINE_SECONDS) -> str:
        """Waits for the end of a turn that begins behind that many records; returns its last answer's text."""

        def ended() -> list[dict[str, Any]]:
            turn = from_prompt(records(self.session)[after_record:])
            return turn if turn_ended(turn) else []

        turn = wait_until(ended, "the end of the turn in the session file", timeout, self.terminal.text)
        answer = record_text([each for each in turn if each["type"] == "assistant"][-1]).strip()
        wanted = letters(answer)[-40:]
        self.terminal.wait_for(lambda lines: wanted in letters("".join(lines)), why=f"the answer {answer!r}")
        self.wait_ready()
        return answer

    def command(self, command: str) -> None:
        """Types a slash command that this version knows and sends it; waits only until it has left the input box."""
        self._type_command(command)
        self._send_typed(command)

    def _type_command(self, command: str) -> None:
        """Types a slash command once it is offered: Qwen Code loads them while it can already be typed to."""
        name, space, rest = command.partition(" ")
        self.terminal.send(name)
        self.terminal.wait_for(lambda lines: offers(lines, name), why=f"the command {name} below the input box")
        if rest:  # before that, a hint about the arguments may stand behind the name
            self.terminal.send(space + rest)
            self._wait_typed(command)
            self._accept_suggestion(name)

    def _accept_suggestion(self, name: str) -> None:
        """Takes the suggestion for an argument, if there is one: an Enter does only that, and sends nothing."""
        self.terminal.wait_for(
            lambda lines: not offers(lines, name) and not any(LOADING in line for line in lines),
            why="the suggestions for the argument",
        )
        if suggests(self.terminal.screen()):
            self.terminal.press("enter")
            self.terminal.wait_for(lambda lines: not suggests(lines), why="the suggestion taken")

    def rename(self, title: str) -> None:
        """`/rename TITLE`: waits until the manual title is in the session file."""
        before = len(title_records(self.session))
        self.command(f"/rename {title}")
        wait_until(
            lambda: (title, "manual") in title_records(self.session)[before:],
            f"the title {title!r} in the session file",
            dump=self.terminal.text,
        )
        self.wait_title(title)
        self.wait_ready()

    def select(self, title: str) -> None:
        """Moves the picker's selection to the entry with this title."""
        entries = self.wait_picker(has_selection)
        while entries[row := selected_row(entries)].title != title:
            titles = [entry.title for entry in entries]
            up = title in titles[:row]
            if not up and row == len(entries) - 1:
                raise AssertionError(f"not in the picker: {title!r}, only {titles}")
            self.terminal.press("up" if up else "down")
            entries = self._wait_moved(row, titles[row])

    def _wait_moved(self, row: int, title: str) -> list[PickerEntry]:
        def moved(shown: list[PickerEntry]) -> bool:
            return has_selection(shown) and (selected_row(shown), shown[selected_row(shown)].title) != (row, title)

        return self.wait_picker(moved)

    def pick(self, title: str) -> None:
        """Opens the session with this title from the picker and waits until it can be typed to."""
        self.select(title)
        self._resumed = self.home.find_session(title)
        self.terminal.press("enter")
        self.wait_ready()
        self._wait_registered()

    def away(self, seconds: float) -> None:
        """The person looks at another window for so long and comes back, as focus reports tell it.

        Qwen Code measures between its reads of the reports: let `seconds` exceed a threshold by a second or more.
        """
        self.terminal.focus_out()
        time.sleep(seconds)
        self.terminal.focus_in()

    # -- how it ends -----------------------------------------------------------------------------------------

    def quit(self) -> int:
        """`/quit`: waits for the end of the process; returns its exit status."""
        self._type_command("/quit")
        self.terminal.press("enter")
        return self.terminal.wait_exit()

    def hangup(self) -> int:
        """Closes the terminal's window; waits for the end of the process and returns its exit status."""
        self.terminal.hangup()
        status = self.terminal.wait_exit()
        wait_until(lambda: not self.terminal.pids(), "the end of the processes behind the closed window")
        return status

    def kill9(self) -> None:
        """SIGKILL to Qwen Code and its launcher at once; waits for their end."""
        self.terminal.kill()


__all__ = [
    "CACHE",
    "LATEST",
    "REPOSITORY",
    "VERSIONS",
    "Chat",
    "Home",
    "InstallError",
    "PickerEntry",
    "QwenCode",
    "append_recap",
    "append_record",
    "append_title",
    "broken_lines",
    "install",
    "recap_texts",
    "record_text",
    "records",
    "title_records",
    "turn_ended",
    "turns",
]
