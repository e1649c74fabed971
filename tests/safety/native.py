"""A model of how Qwen Code writes a session file, from contract 2, 3.2, 3.3, 4 and 5.

One process is a `Cli`: what it holds in memory, and nothing else; it never looks at the file except when it loads it.
Each operation is one append, or a change of its memory alone. Of each process there are three minds in one:

* the real one, whose records go into the real file;
* the mirror: the same records chained as if we had never written, which says what a resumed conversation would hold;
* the ghost: the titles it would hold and write without us.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tests.safety import reader

SESSION = "00000000-0000-4000-8000-000000000001"
CWD = "/home/user/proj"
VERSION = "0.24.4"
STAMP = "2026-11-30T00:00:00.000Z"

Title = tuple[str, str | None]
"""Text and source; a source of None is the user's."""


@dataclass(frozen=True, slots=True)
class Node:
    """One native conversation record in the mirror. `kind`: u(ser), a(ssistant), r(ewind), c(ompression), t(itle)."""

    uuid: str
    parent: str | None
    kind: str
    hashed: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hashed", hash((self.uuid, self.parent, self.kind)))

    def __hash__(self) -> int:
        return self.hashed


@dataclass(frozen=True, slots=True)
class TitleMemory:
    """The title that a process holds, and how much it wrote since it last wrote the title (contract 3.3)."""

    title: Title | None = None
    written: int = 0
    changed: bool = False

    def after_record(self, size: int) -> TitleMemory:
        """A record without a title was appended."""
        return replace(self, written=self.written + size, changed=True) if self.title else self

    def after_title(self, title: Title) -> TitleMemory:
        """A title was appended."""
        return TitleMemory(title)


@dataclass(frozen=True, slots=True)
class Cli:
    """One process. `turns` are the tails before each prompt of the conversation; `holds` is the file as the holder of a
    writer lease remembers it (contract 5).
    """

    live: bool = False
    kind: str = "tui"
    tail: str | None = None
    turns: tuple[str | None, ...] = ()
    mirror_tail: str | None = None
    mirror_turns: tuple[str | None, ...] = ()
    in_turn: bool = False
    memory: TitleMemory = TitleMemory()
    ghost: TitleMemory = TitleMemory()
    holds: bytes | None = None
    rest: bytes = b""
    """What is still to come of a line that is being written."""
    hashed: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        what = (self.tail, self.turns, self.mirror_tail, self.mirror_turns, self.memory, self.ghost)
        object.__setattr__(self, "hashed", hash((self.live, self.kind, self.in_turn, self.holds, self.rest, what)))

    def __hash__(self) -> int:
        return self.hashed


ENDED = Cli()


@lru_cache(maxsize=100_000)
def record_line(uuid: str, parent: str | None, kind: str, name: str = "", source: str | None = None) -> bytes:
    """A record as Qwen Code writes it, newline included (contract 2.1 to 2.3)."""
    record: dict[str, Any] = {
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": STAMP,
        "type": {"u": "user", "a": "assistant"}.get(kind, "system"),
        "cwd": CWD,
        "version": VERSION,
    }
    match kind:
        case "u":
            record |= {"message": {"role": "user", "parts": [{"text": "go on"}]}}
        case "a":
            record |= {"message": {"role": "model", "parts": [{"text": "done"}]}, "model": "m"}
        case "t":
            payload = {"customTitle": name} | ({"titleSource": source} if source else {})
            record |= {"subtype": "custom_title", "systemPayload": payload}
        case "r":
            record |= {"subtype": "rewind", "systemPayload": {"truncatedCount": 1}}
        case "c":
            record |= {"subtype": "chat_compression", "systemPayload": {"info": {}, "compressedHistory": []}}
        case "artifact":
            record |= {"subtype": "session_artifact_event", "systemPayload": {}}
        case "alien":
            record |= {"sessionId": "00000000-0000-4000-8000-0000000000ff", "subtype": "slash_command"}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def load(data: bytes, mirror: tuple[Node, ...], ghost_title: Title | None, *, window: int, anchor: int) -> Cli | None:
    """A process that resumes the session (contract 3.2, 4.1); None when it cannot be loaded."""
    try:
        chain = reader.active_chain(data)
    except reader.MixedIds:
        return None
    steps = loaded_steps(chain, mirror)
    title = reader.shown_title(data, window)
    # After a resume the counter starts full, so that a copy follows the first new record.
    memory = TitleMemory(title, anchor if title else 0)
    shown = ghost_title if ghost_title and ghost_title[0] else None
    return Cli(
        live=True,
        tail=chain[-1]["uuid"] if chain else None,
        turns=tuple(record["parentUuid"] for record in chain if record["type"] == "user" and "subtype" not in record),
        mirror_tail=steps[-1].uuid if steps else None,
        mirror_turns=tuple(node.parent for node in steps if node.kind == "u"),
        memory=memory,
        ghost=TitleMemory(shown, anchor if shown else 0),
    )


def loaded_steps(chain: list[reader.Record], mirror: tuple[Node, ...]) -> list[Node]:
    """What a process that loads this chain has in its mirror: all that was said; without the turns that it does not see
    when it loads the session behind a line of ours whose repair is still due.

    From then on nothing else may be lost, so its records are chained to the last one that it has seen.
    """
    steps = mirror_chain(mirror)
    native = {node.uuid: node for node in mirror}
    seen = [native[record["uuid"]] for record in chain if record["uuid"] in native]
    if _said(seen) == _said(steps):
        return steps
    return mirror_chain(mirror, seen[-1].uuid) if seen else []


def _said(nodes: list[Node]) -> list[str]:
    return [node.uuid for node in nodes if node.kind != "t"]


def mirror_chain(mirror: tuple[Node, ...], leaf: str | None = None) -> list[Node]:
    """The active chain of the session as it would be without us, oldest first; up to `leaf` where given."""
    nodes: dict[str, Node] = {}
    for node in mirror:
        nodes.setdefault(node.uuid, node)
    steps: list[Node] = []
    step = leaf or (mirror[-1].uuid if mirror else None)
    while step is not None and step in nodes and len(steps) <= len(nodes):
        steps.append(nodes[step])
        step = nodes[step].parent
    return steps[::-1]


@dataclass(frozen=True, slots=True)
class Append:
    """One append of a process, in all three worlds. `line` None: nothing is written to the real file."""

    cli: Cli
    line: bytes | None = None
    node: Node | None = None
    ghost_title: Title | None = None


_remembered = lru_cache(maxsize=50_000)
"""The same process does the same again and again in an exploration."""

Operation = Callable[[Cli, str], Append]
"""`(process, uuid for its record)` → what it appends."""


def _content(cli: Cli, uuid: str, kind: str) -> Append:
    line = record_line(uuid, cli.tail, kind)
    node = Node(uuid, cli.mirror_tail, kind)
    memory, ghost = cli.memory.after_record(len(line)), cli.ghost.after_record(len(line))
    return Append(replace(cli, tail=uuid, mirror_tail=uuid, memory=memory, ghost=ghost), line, node)


@_remembered
def say(cli: Cli, uuid: str) -> Append:
    """The user's prompt, or the answer that ends the turn."""
    if cli.in_turn:
        done = _content(cli, uuid, "a")
        return replace(done, cli=replace(done.cli, in_turn=False))
    done = _content(cli, uuid, "u")
    turns, mirror_turns = (*cli.turns, cli.tail), (*cli.mirror_turns, cli.mirror_tail)
    return replace(done, cli=replace(done.cli, in_turn=True, turns=turns, mirror_turns=mirror_turns))


@_remembered
def compress(cli: Cli, uuid: str) -> Append:
    """`/compress`: the history is replaced by a summary; the chain goes on."""
    return _content(cli, uuid, "c")


@_remembered
def artifact(cli: Cli, uuid: str) -> Append:
    """A record that is no conversation record; the tail stays."""
    line = record_line(uuid, cli.tail, "artifact")
    memory, ghost = cli.memory.after_record(len(line)), cli.ghost.after_record(len(line))
    return Append(replace(cli, memory=memory, ghost=ghost), line)


@_remembered
def rewind(cli: Cli, uuid: str) -> Append:
    """Back to before the last prompt: a record whose parent is the tail before it."""
    line = record_line(uuid, cli.turns[-1], "r")
    node = Node(uuid, cli.mirror_turns[-1], "r")
    return Append(
        replace(
            cli,
            tail=uuid,
            mirror_tail=uuid,
            turns=cli.turns[:-1],
            mirror_turns=cli.mirror_turns[:-1],
            memory=cli.memory.after_record(len(line)),
            ghost=cli.ghost.after_record(len(line)),
        ),
        line,
        node,
    )


def _titled(cli: Cli, uuid: str, title: Title) -> Append:
    line = record_line(uuid, cli.tail, "t", *title)
    memory, ghost = cli.memory.after_title(title), cli.ghost.after_title(title)
    node = Node(uuid, cli.mirror_tail, "t")
    return Append(replace(cli, tail=uuid, mirror_tail=uuid, memory=memory, ghost=ghost), line, node, title)


@_remembered
def rename(cli: Cli, uuid: str) -> Append:
    """`/rename <name>`."""
    return _titled(cli, uuid, (f"M{uuid}", "manual"))


@_remembered
def rename_auto(cli: Cli, uuid: str) -> Append:
    """`/rename --auto`: the same generator, overrides anything."""
    return _titled(cli, uuid, (f"A{uuid}", "auto"))


def auto_title(cli: Cli, uuid: str, shown: Title | None) -> Append:
    """The detached generator, with no title in memory: a manual one on disk is adopted, an automatic one is overridden
    (contract 6.1).
    """
    if shown is not None and shown[1] != "auto":
        ghost = cli.ghost if cli.ghost.title else replace(cli.ghost, title=shown)
        return Append(replace(cli, memory=replace(cli.memory, title=shown), ghost=ghost))
    return _titled(cli, uuid, (f"A{uuid}", "auto"))


@_remembered
def copy(cli: Cli, uuid: str, *, anchor: int, ending: bool) -> Append:
    """The title from memory again: a side record, the tail stays. At a re-anchor when enough was written since, at the
    end when anything was (contract 3.3); each mind decides for itself.
    """
    real, ghost = (
        memory.title is not None and (memory.changed if ending else memory.written >= anchor)
        for memory in (cli.memory, cli.ghost)
    )
    line, node, ghost_title = None, None, None
    after = cli
    if real and cli.memory.title is not None:
        line = record_line(uuid, cli.tail, "t", *cli.memory.title)
        node = Node(uuid, cli.mirror_tail, "t")
        after = replace(after, memory=cli.memory.after_title(cli.memory.title))
    if ghost and cli.ghost.title is not None:
        ghost_title = cli.ghost.title
        after = replace(after, ghost=cli.ghost.after_title(cli.ghost.title))
    return Append(after, line, node, ghost_title)
