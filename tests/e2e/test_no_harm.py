"""No session is ever harmed, and the user's word wins: seen with the real Qwen Code, beside writers without patience.

The stories are played side by side, each in a home of its own.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.busy_writer import MODEL as BUSY
from tests.support.busy_writer import TITLE as BUSY_TITLE
from tests.support.chat_server import ChatRequest, ChatServer, Gate, Kind, Reply, ToolCall
from tests.support.qwen_code import (
    LATEST,
    VERSIONS,
    Chat,
    Home,
    PickerEntry,
    broken_lines,
    recap_texts,
    records,
    title_records,
    turns,
)
from tests.support.stories import MODEL, Stage, Story, Told, told
from tests.support.terminal import ProcessTree, wait_until
from tests.support.transcripts import Transcript
from tests.support.watching import REPOSITORY, Watching, command
from watcher.edge.store import Pending, Store

OLDER = VERSIONS[-1]
TITLE = "Repair the login form"
RECAP = "Repairing the login form. Next: run its tests."
NATIVE = "Title of Qwen Code"
TURNS = 200
"""So many prompts are typed beside the writers without patience, in one session."""
TURNS_BESIDE_DYING_WRITERS = 48
CHECKPOINT = 10
"""Every so many turns the typist waits until both writers have written again."""
QUIET_SECONDS = 2.0
KEPT = "yours is kept, and put last when the session closes, unless you rename it there"
AT_ONCE = 5
"""So many stories are played at a time."""

# A watcher that is forced to write at every chance: nobody's absence is too short, no file is too restless.
WITHOUT_PATIENCE = """
import watcher.core.presence as presence
import watcher.core.recap_policy as recap_policy
import watcher.core.write_rules as write_rules
presence.TERMINAL_STEP_SECONDS = 0.0
recap_policy.RECAP_STILL_SECONDS = 0.0
write_rules.recap.__kwdefaults__["still_seconds"] = 0.0
"""
RESTLESS: Mapping[str, object] = {
    "title.settle_seconds": 0,
    "title.max_attempts": 20,
    "recap.enabled": True,
    "recap.away_minutes": 1e-6,
    "recap.min_user_turns": 1,
    "recap.min_user_turns_between": 1,
    "budget.calls_per_day": 1_000_000,
}

_SAID = re.compile(r"(Prompt|Done) (\d{3})")

STORIES: dict[str, Story] = {}
PROGRAMME: list[tuple[str, str]] = []


def story(*versions: str) -> Callable[[Story], Story]:
    """Puts a story on the programme, to be played with these versions."""

    def put(play: Story) -> Story:
        STORIES[play.__name__] = play
        PROGRAMME.extend((play.__name__, version) for version in versions)
        return play

    return put


def stage(home: Home, server: ChatServer, model: ChatServer, root: Path) -> Stage:
    """An empty home; its watchers make titles at once, and no recaps."""
    server.title = NATIVE
    model.title, model.recap = TITLE, RECAP
    return Stage(home, server, model, root, {"title.settle_seconds": 0.5})


@pytest.fixture(name="told", scope="module")
def _told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """The outcome of every chosen story, by name and version."""
    with told(request, tmp_path_factory, STORIES, stage, at_once=AT_ONCE) as outcomes:
        yield outcomes


# -- what can be seen --------------------------------------------------------------------------------------------------


def history(env: Mapping[str, str], session: Path) -> list[dict[str, Any]]:
    """What `history S --json` tells."""
    done = command(env, "history", session.stem, "--json")
    assert done.returncode == 0, done.stderr
    entries: list[dict[str, Any]] = json.loads(done.stdout)
    return entries


def kept(env: Mapping[str, str], session: Path) -> list[Pending]:
    """What waits to be written to this session."""
    store = Store.open_existing(Path(env["QWEN_WATCHER_STATE_DIR"]))
    if store is None:
        return []
    try:
        return store.pending(session.stem)
    finally:
        store.close()


def wait_nothing_kept(env: Mapping[str, str], session: Path, watching: Watching) -> None:
    """Waits until the watcher has placed or dropped all that waited for this session."""
    wait_until(lambda: not kept(env, session), "nothing left to write", dump=watching.dump)


def wait_still(session: Path) -> None:
    """Waits until nobody has written to the session for a while."""
    looks: list[tuple[int, float]] = [(-1, 0.0)]

    def still() -> bool:
        size, now = session.stat().st_size, time.monotonic()
        if size != looks[-1][0]:
            looks.append((size, now))
        return now - looks[-1][1] > QUIET_SECONDS

    wait_until(still, "a file that nobody writes to")


def in_picker(stage: Stage) -> list[PickerEntry]:
    """The entries of `qwen --resume`."""
    with Chat.resume_picker(stage.home, stage.server) as chat:
        return chat.picker()


def said(session: Path) -> list[tuple[str, str]]:
    """What stands in the file as said, in file order, whatever the chain: ("Prompt" or "Done", number)."""
    found = [_SAID.match(text) for _, text in turns(session)]
    assert all(found)
    return [(each[1], each[2]) for each in found if each]


# -- writers without patience ------------------------------------------------------------------------------------------


class Writers:
    """A watcher without patience, and beside it a process that writes titles with the same writer at every chance."""

    def __init__(self, stage: Stage, session_id: str, seed: str) -> None:
        folder = stage.root / "without-patience"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(WITHOUT_PATIENCE)
        self.env = stage.env(RESTLESS, {"PYTHONPATH": f"{folder}:{REPOSITORY}"})
        self._argv = [sys.executable, "-m", "tests.support.busy_writer", session_id, seed]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()

    def start(self) -> None:
        """Start both."""
        self.watching = Watching(self.env)
        self._busy = subprocess.Popen(self._argv, env=self.env, cwd=REPOSITORY, start_new_session=True)
        self._tree = ProcessTree(self._busy)
        self.watching.wait_event("started")

    def stop_busy(self) -> None:
        """End the one that never rests; it must have met no fault."""
        if self._busy.poll() is None:
            self._busy.send_signal(signal.SIGTERM)
        assert self._busy.wait() == 0

    def kill9(self) -> None:
        """End both without warning, whatever they are about to write."""
        self._tree.kill()
        self.watching.kill9()


def echo(request: ChatRequest) -> Reply | None:
    """To "Prompt 007" the model says "Done 007."."""
    return Reply(f"Done {request.prompt.split()[1]}.") if request.kind is Kind.TURN else None


class Typist:
    """Types numbered prompts into one session as fast as its terminal takes them, over the ends of its processes."""

    def __init__(self, stage: Stage, seed: str) -> None:
        self._stage = stage
        self.chance = random.Random(seed)
        self.number = 0
        stage.server.respond = echo

    def type(self, chat: Chat, count: int, pause: Callable[[Path], None]) -> None:
        """The next `count` prompts, each sent as soon as the turn before it has ended."""
        answer = ""
        for _ in range(count):
            if answer and self.number % CHECKPOINT == 0:
                chat.terminal.wait_for(answer)
                pause(chat.session)
            before = len(self._stage.server.requests(Kind.TURN))
            self.number += 1
            chat.say_next(f"Prompt {self.number:03d}", after=answer)
            answer = f"Done {self.number:03d}."
            self._stage.server.wait_requests(before + 1, Kind.TURN)

    def wait_a_moment(self) -> float:
        """Some time between nothing and that of a turn; returns the seconds."""
        seconds = self.chance.uniform(0.0, 0.4)
        deadline = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() > deadline, "a random moment")
        return seconds


def both_wrote(session: Path) -> None:
    """Waits until the watcher and the busy writer have both written behind the last prompt."""

    def fresh() -> bool:
        behind = session.read_bytes().rpartition(b'"type":"user"')[2]
        return BUSY_TITLE.encode() in behind and RECAP.encode() in behind

    wait_until(fresh, "both writers' records")


def assert_all_on_screen(stage: Stage, session: Path, recorded: list[tuple[str, str]]) -> None:
    """Resumed on a screen that is high enough for all of it, the session shows exactly what was recorded, in order."""
    rows = 2 * len(recorded) + 80
    with Chat.resume(stage.home, stage.server, session.stem, rows=rows, columns=60) as chat:
        # A long conversation is drawn from its end on, in several steps.
        chat.terminal.wait_for(lambda lines: _SAID.findall("\n".join(lines)) == recorded, why="every recorded turn")


@story(LATEST)
def every_turn_is_on_the_screen_after_kill_9_beside_writers_without_patience(stage: Stage) -> str:
    """200 typed turns in one session; the CLI is killed at a random moment in the middle and again at the end, and each
    time the resumed one shows every turn that it had recorded.
    """
    seed = f"kill the CLI {stage.home.qwen.version}"
    typist = Typist(stage, seed)
    first = typist.chance.randint(TURNS // 4, 3 * TURNS // 4)
    told = []
    session: Path | None = None
    for count in (first, TURNS - first):
        args = ["--resume", session.stem] if session else []
        with Chat.start(stage.home, stage.server, *args, rows=12, columns=60) as chat:
            session = chat.session
            with Writers(stage, session.stem, seed) as writers:
                typist.type(chat, count, both_wrote)
                moment = typist.wait_a_moment()
                chat.kill9()
                recorded = said(session)
                writers.stop_busy()
                wait_still(session)
                assert_all_on_screen(stage, session, recorded)
                assert {line["model"] for line in writers.watching.log("title_written")} <= {MODEL}
        told.append(
            f"killed {moment:.3f} s after prompt {typist.number}: {len(recorded)} records of turns on the screen"
        )
    assert session is not None
    assert typist.number == TURNS
    assert len(recorded) >= 2 * TURNS - 20, "the kills cut off more than the last turns"
    return "; ".join([*told, what_was_written(writers.env, session)])


def what_was_written(env: Mapping[str, str], session: Path) -> str:
    """How much of the writers stands between the CLI's records; it is enough to speak of a proof, and sound."""
    entries = history(env, session)
    ours = {uuid for entry in entries for uuid in entry["record_uuids"]}
    found = records(session)
    assert broken_lines(session) == []
    assert len({each["sessionId"] for each in found}) == 1
    last = max(index for index, each in enumerate(found) if each["type"] == "user")
    between = [index for index, each in enumerate(found[:last]) if each["uuid"] in ours]
    for model in (MODEL, BUSY):
        assert len([entry for entry in entries if entry["model"] == model]) >= len(said(session)) // 2 // CHECKPOINT - 2
    raced = [index for index in between if found[index]["parentUuid"] != found[index - 1]["uuid"]]
    repaired = [entry for entry in entries if len(entry["record_uuids"]) > 1]
    return (
        f"{len(between)} of the {last} records before the last prompt are ours, {len(raced)} of them behind a "
        f"record that came in between, {len(repaired)} corrected"
    )


@story(OLDER)
def every_turn_is_on_the_screen_although_the_writers_are_killed_as_well(stage: Stage) -> str:
    """The writers die at random moments with kill -9 and are started again; at last they and the CLI die together."""
    seed = f"kill the writers {stage.home.qwen.version}"
    typist = Typist(stage, seed)
    kills = 3
    with Chat.start(stage.home, stage.server, rows=12, columns=60) as chat:
        session = chat.session
        with Writers(stage, session.stem, seed) as writers:
            for _ in range(kills):
                typist.type(chat, TURNS_BESIDE_DYING_WRITERS // (kills + 1), both_wrote)
                typist.wait_a_moment()
                writers.kill9()
                writers.start()
            typist.type(chat, TURNS_BESIDE_DYING_WRITERS // (kills + 1), both_wrote)
            typist.wait_a_moment()
            writers.kill9()
            chat.kill9()
    recorded = said(session)
    with Watching(writers.env):
        wait_still(session)
        assert_all_on_screen(stage, session, recorded)
    assert len(recorded) >= 2 * TURNS_BESIDE_DYING_WRITERS - 10
    return f"writers killed {kills + 1} times; {what_was_written(writers.env, session)}"


# -- two watchers ------------------------------------------------------------------------------------------------------


@story(LATEST)
def two_watchers_on_one_home_give_one_title_and_one_recap(stage: Stage) -> None:
    """They know nothing of each other and both ask their model before either has written: one text, one call more."""
    gates = {Kind.TITLE: Gate(), Kind.RECAP: Gate()}
    stage.model.script(
        *[Reply(tool_calls=[ToolCall("name", {"title": TITLE})], gate=gates[Kind.TITLE])] * 2, kind=Kind.TITLE
    )
    stage.model.script(*[Reply(f"<recap>{RECAP}</recap>", gate=gates[Kind.RECAP])] * 2, kind=Kind.RECAP)
    settings = {"recap.enabled": True, "recap.away_minutes": 1.0 / 60.0, "recap.min_user_turns": 2}
    one, two = (stage.env(settings, state=name) for name in ("one", "two"))
    with Watching(one) as first, Watching(two) as second, Chat.start(stage.home, stage.server) as chat:
        chat.say("Fix the login bug")
        session = chat.session
        stage.model.wait_requests(2, Kind.TITLE)
        gates[Kind.TITLE].release()
        for watching in (first, second):
            watching.wait_event("decision", reason="title_present", session=session.stem)
        chat.say("And the logout")
        stage.model.wait_requests(2, Kind.RECAP)
        gates[Kind.RECAP].release()
        wait_until(lambda: recap_texts(session), "the recap", dump=first.dump)
        for watching in (first, second):
            wait_until(
                lambda: watching.log("recap_written") or watching.log("not_written", reason="nothing_new"),  # noqa: B023
                "the end of both",
                dump=watching.dump,
            )
        assert title_records(session) == [(TITLE, "auto")]
        assert recap_texts(session) == [RECAP]
        chat.quit()
        with Chat.resume(stage.home, stage.server, session.stem) as again:
            assert again.terminal.text().count("※ recap:") == 1
            again.wait_title(TITLE)
            again.quit()
    assert [entry["kind"] for env in (one, two) for entry in history(env, session)] in (
        ["title", "recap"],
        ["recap", "title"],
    )
    assert stage.calls() == 4


# -- the user's word ---------------------------------------------------------------------------------------------------


@story(*VERSIONS)
def a_name_from_outside_outlives_what_the_cli_holds(stage: Stage) -> None:
    """A live CLI writes the title that it holds again at its exit, its own or one that its user gave there. A name from
    outside is put last behind that, and so is what `undo` puts back; but what the user gives there later stands.
    """
    stage.home.use_fast_model(stage.server)
    env = stage.env()
    with Watching(env) as watching:
        with Chat.start(stage.home, stage.server) as chat:
            chat.say("Fix the login bug")
            session = chat.session
            wait_until(lambda: title_records(session) == [(NATIVE, "auto")], "Qwen Code's own title")
            chat.wait_title(NATIVE)
            give_from_outside(env, session, "My name")
            _say_and_quit(chat, "And the logout", brings_back=(NATIVE, "auto"))
            wait_nothing_kept(env, session, watching)
        with Chat.resume(stage.home, stage.server, session.stem) as chat:
            chat.wait_title("My name")
            undone = command(env, "undo", session.stem)
            assert (undone.returncode, undone.stdout) == (0, f"put back: {NATIVE}\n")
            assert KEPT in " ".join(undone.stderr.split())
            _say_and_quit(chat, "And the signup", brings_back=("My name", "manual"))
            wait_nothing_kept(env, session, watching)
        with Chat.resume_picker(stage.home, stage.server) as chat:
            assert [entry.title for entry in chat.picker()] == [NATIVE]
            chat.pick(NATIVE)
            chat.wait_title(NATIVE)
            give_from_outside(env, session, "Not wanted after all")
            chat.rename("Given in the CLI")
            _say_and_quit(chat, "And the mails", brings_back=("Given in the CLI", "manual"))
            wait_nothing_kept(env, session, watching)
        with Chat.resume_picker(stage.home, stage.server) as chat:
            assert [entry.title for entry in chat.picker()] == ["Given in the CLI"]
            chat.pick("Given in the CLI")
            chat.rename("Held by the CLI")
            give_from_outside(env, session, "My last word")
            _say_and_quit(chat, "Thank you", brings_back=("Held by the CLI", "manual"))
            wait_nothing_kept(env, session, watching)
        recap = command(env, "recap", session.stem, "--write")
        assert (recap.returncode, recap.stdout) == (0, f"{RECAP}\n")
        with Chat.resume_picker(stage.home, stage.server) as chat:
            assert [entry.title for entry in chat.picker()] == ["My last word"]
            chat.pick("My last word")
            chat.wait_title("My last word")
            assert chat.terminal.shows(f"※ recap: {RECAP}")
    prompts = [text for speaker, text in turns(session) if speaker == "user"]
    assert prompts == ["Fix the login bug", "And the logout", "And the signup", "And the mails", "Thank you"]


def give_from_outside(env: Mapping[str, str], session: Path, name: str) -> None:
    """`title S NAME` for a live session that holds a title: the command says what will become of it."""
    given = command(env, "title", session.stem, name)
    assert (given.returncode, given.stdout) == (0, f"{name}\n")
    assert KEPT in " ".join(given.stderr.split())


def _say_and_quit(chat: Chat, prompt: str, brings_back: tuple[str, str]) -> None:
    """One more turn, then `/quit`, at which Qwen Code writes the title that it holds again."""
    session, before = chat.session, len(title_records(chat.session))
    chat.say(prompt)
    chat.quit()
    assert brings_back in title_records(session)[before:]


@story(OLDER)
def undo_takes_our_title_away_for_good(stage: Stage) -> None:
    """`history` tells of our title; after `undo` the picker shows the first prompt again, and more turns bring no
    other title.
    """
    env = stage.env()
    with Watching(env) as watching:
        with Chat.start(stage.home, stage.server) as chat:
            chat.say("Fix the login bug")
            session = chat.session
            watching.wait_event("title_written", session=session.stem)
            chat.quit()
        told = command(env, "history", session.stem)
        assert f"title: {TITLE} (auto)" in told.stdout
        assert f"by {MODEL}" in told.stdout
        undone = command(env, "undo", session.stem)
        assert (undone.returncode, undone.stdout) == (0, "title taken away: there was none before it\n")
        with Chat.resume_picker(stage.home, stage.server) as chat:
            assert [entry.title for entry in chat.picker()] == ["Fix the login bug"]
            chat.pick("Fix the login bug")
            for prompt in ("And the logout", "And the signup"):
                chat.say(prompt)
            assert chat.shown_title() is None
            watching.wait_event("decision", reason="manual_title", session=session.stem)
            chat.quit()
        wait_still(session)
    assert title_records(session) == [(TITLE, "auto"), ("", "manual")]
    assert stage.calls() == 1
    again = command(env, "undo", session.stem)
    assert (again.returncode, again.stdout) == (1, "")
    assert "taken back already" in again.stderr


# -- what is seen in the picker ----------------------------------------------------------------------------------------


@story(LATEST)
def a_title_out_of_sight_is_brought_back_once(stage: Stage) -> None:
    """Big answers push our title out of the first and the last 64 KiB while the CLI, which does not know of it, lives
    on; once it is still, the title is appended again, and the picker shows it, dim.
    """
    env = stage.env()
    big = "\n\n".join(f"{number:03d} " + "word " * 60 for number in range(250))
    assert len(big) > 70_000
    stage.server.script(f"{big}\n\nThe first end.", "A small answer.", f"{big}\n\nThe last end.", "Another small one.")
    with Watching(env) as watching:
        with Chat.start(stage.home, stage.server) as chat:
            chat.say("Fix the login bug")
            session = chat.session
            watching.wait_event("title_written", session=session.stem)
            chat.say("And the logout")
            assert title_records(session) == [(TITLE, "auto")]
            chat.say("And the signup")
            wait_until(lambda: len(title_records(session)) == 2, "the title appended again", dump=watching.dump)
            chat.say("Thank you")
            wait_still(session)
            assert chat.shown_title() is None, "the CLI learnt nothing of it"
            chat.quit()
        # The newest entry is selected, which hides whether it is dim.
        newer = Transcript(
            stage.home.chats, cwd=str(stage.home.project), version=stage.home.qwen.version, at=time.time()
        )
        newer.turn("Something else", "Done.")
        assert {entry.title: entry.dim for entry in in_picker(stage) if not entry.selected} == {TITLE: True}
    assert title_records(session) == [(TITLE, "auto")] * 2
    assert [entry["kind"] for entry in history(env, session)] == ["title", "reanchor"]


@story(*VERSIONS)
def title_and_recap_leave_the_order_of_sessions_alone(stage: Stage) -> None:
    """The older of two sessions gets both after the newer one was used: `--continue` and the picker do not notice."""
    gate = Gate()
    stage.model.script(Reply(f"<recap>{RECAP}</recap>", gate=gate), kind=Kind.RECAP)
    recaps = {"recap.enabled": True, "recap.away_minutes": 1.0 / 60.0, "recap.min_user_turns": 2}
    env = stage.env(recaps | {"title.enabled": False, "model.timeout_seconds": 300})
    with Watching(env) as watching:
        with Chat.start(stage.home, stage.server) as chat:
            chat.say("Fix the login bug")
            chat.say("And the logout")
            older = chat.session
            chat.quit()
        gate.wait_arrived()
        with Chat.start(stage.home, stage.server) as chat:
            chat.say("Something else")
            newer = chat.session
            chat.quit()
        before = older.stat().st_mtime_ns, newer.stat().st_mtime_ns
        gate.release()
        watching.wait_event("recap_written", session=older.stem)
        titled = command(env, "title", older.stem, "--auto")
        assert titled.returncode == 0, titled.stderr
    assert (title_records(older), recap_texts(older)) == ([(TITLE, "auto")], [RECAP])
    assert (older.stat().st_mtime_ns, newer.stat().st_mtime_ns) == before
    assert [entry.title for entry in in_picker(stage)] == ["Something else", TITLE]
    with Chat.start(stage.home, stage.server, "--continue") as chat:
        assert chat.terminal.shows("Something else")
        assert chat.session == newer


# -- the programme -----------------------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "version"), PROGRAMME)
def test_story(told: Told, capsys: pytest.CaptureFixture[str], name: str, version: str) -> None:
    """Every story above."""
    report = told[name, version].result()
    if report:
        with capsys.disabled():
            print(f"\n{name} {version}: {report}")
