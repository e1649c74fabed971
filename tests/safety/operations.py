"""What others can do in a `World`: native processes, other tools, and what may happen to the file itself.

An operation is named `<what>.<process>` for a process, else by its one word. `enabled` says which are possible now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.safety import native, reader
from tests.safety.native import ENDED, Append, Node
from tests.safety.world import World

SHORT = 20
"""So many bytes are taken by a write that is cut short."""


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Which operations a configuration has. `window` and `anchor` are Qwen Code's 64 KiB and 32 KiB, made small."""

    names: frozenset[str]
    processes: int = 1
    window: int = 1 << 20
    anchor: int = 500

    def enabled(self, world: World) -> list[str]:
        """All operations that can happen now."""
        found = [name for name in self.names if "." not in name and name in _WORLD_OPS and _possible(name, world)]
        for process in range(self.processes):
            found += [f"{name}.{process}" for name in self._of(world, process)]
        return sorted(found)

    def _of(self, world: World, process: int) -> list[str]:
        cli = world.clis[process]
        if world.place != "chats" or _our_torn(world) or world.room is not None:
            return []
        if not cli.live:
            return [name for name in ("start", "acp", "serve") if name in self.names and _may_start(world, name)]
        if cli.rest:
            wanted = ["rest"]
        elif self._due(world, process):
            wanted = ["anchor", "kill"]
        elif cli.in_turn:
            wanted = ["say", "leave", "kill", "torn"]
        else:
            wanted = ["say", "rename", "auto", "compress", "artifact", "leave", "kill", "torn", "torn_name", "half"]
            wanted += ["rewind"] * bool(cli.turns and cli.mirror_turns)
        return [name for name in wanted if name in self.names]

    def _due(self, world: World, process: int) -> bool:
        memory = world.clis[process].memory
        return memory.title is not None and memory.changed and memory.written >= self.anchor

    def apply(self, world: World, operation: str) -> None:
        """Do it."""
        name, _, process = operation.partition(".")
        if not process:
            _WORLD_OPS[name](world)
            return
        number = int(process)
        cli = world.clis[number]
        uuid = f"n{world.serial}"
        match name:
            case "start" | "acp" | "serve":
                self._start(world, number, name)
            case "kill":
                world.put(number, ENDED)
            case "leave":
                world.perform(native.copy(cli, uuid, anchor=self.anchor, ending=True), number)
                world.lease = world.lease and cli.kind != "acp"
                world.put(number, ENDED)
            case "anchor":
                world.perform(native.copy(cli, uuid, anchor=self.anchor, ending=False), number)
            case "auto" if cli.memory.title is None:
                done = native.auto_title(cli, uuid, reader.shown_title(world.data, self.window))
                self._titled(world, number, done)
            case "auto":
                self._titled(world, number, native.rename_auto(cli, uuid))
            case "rename":
                self._titled(world, number, native.rename(cli, uuid))
            case "half":
                done = native.say(cli, uuid)
                line = done.line or b""
                world.append_native(line[:60])
                world.torn = True
                world.put(number, replace(cli, rest=line[60:]))
            case "rest":
                done = native.say(replace(cli, rest=b""), uuid)
                world.torn = False
                world.perform(replace(done, line=cli.rest), number)
            case "torn" | "torn_name":
                _tear(world, number, uuid, name)
            case _:
                world.perform(_CONTENT[name](cli, uuid), number)

    def _start(self, world: World, process: int, name: str) -> None:
        shown = world.ghost_title
        cli = native.load(world.data, world.mirror, shown, window=self.window, anchor=self.anchor)
        if cli is None:
            return
        if name == "acp":
            world.lease = True
            cli = replace(cli, kind="acp", holds=world.data)
        elif name == "serve":
            cli = replace(cli, kind="serve")
        world.put(process, cli)

    def _titled(self, world: World, process: int, done: Append) -> None:
        if done.ghost_title is not None:
            world.wish = (done.ghost_title, False)
            world.blurred = False
        world.perform(done, process)


_CONTENT = {
    "say": native.say,
    "compress": native.compress,
    "artifact": native.artifact,
    "rewind": native.rewind,
}


def _our_torn(world: World) -> bool:
    return not world.torn and bool(world.data) and not world.data.endswith(b"\n")


def _may_start(world: World, name: str) -> bool:
    """A lease that somebody left behind keeps an ACP process out; one lease holder at a time (contract 5)."""
    return name != "acp" or (not world.lease and not any(cli.kind == "acp" for cli in world.clis if cli.live))


def _possible(name: str, world: World) -> bool:
    match name:
        case "unsourced" | "alien":
            busy = _our_torn(world) or world.room is not None or any(cli.rest for cli in world.clis)
            return world.place == "chats" and not busy and not _has_alien(world)
        case "full":
            return world.room is None and world.place == "chats"
        case "space":
            return world.room is not None
        case "short":
            return not world.short and world.place == "chats"
        case _:
            return world.place == "chats"


def _has_alien(world: World) -> bool:
    return len({record["sessionId"] for record in reader.records(world.data)}) > 1


def _tear(world: World, process: int, uuid: str, name: str) -> None:
    """A process dies inside its write. A name that is cut behind its value is shown, as the user's (vector T09)."""
    cli = world.clis[process]
    if name == "torn_name":
        title = (f"M{uuid}", "manual")
        line = native.record_line(uuid, cli.tail, "t", *title)
        line = line[: line.index(b'"titleSource"') + 9]
        world.ghost_title = (title[0], None)
        world.wish = ((title[0], None), False)
    else:
        line = native.record_line(uuid, cli.tail, "u")[:60]
    if cli.holds is not None and cli.holds != world.data:
        world.broken = "the holder of a writer lease finds its session changed"
    world.append_native(line)
    world.torn = True
    world.serial += 1
    world.put(process, ENDED)


def _unsourced(world: World) -> None:
    """Another tool writes a title without a source, as the user's (contract 3.1)."""
    uuid = f"n{world.serial}"
    title = (f"X{uuid}", None)
    parent = reader.leaf(world.data)
    swallowed = world.torn and not world.data.endswith(b"\n")
    world.append_native(native.record_line(uuid, parent, "t", *title))
    chain = native.loaded_steps(reader.active_chain(world.data), world.mirror)
    if not swallowed:
        world.mirror += (Node(uuid, chain[-1].uuid if chain else None, "t"),)
    world.torn = False
    world.ghost_title = title
    world.wish = (title, False)
    world.blurred = False
    world.serial += 1


def _alien(world: World) -> None:
    """A record with another session id (hazard e)."""
    world.append_native(native.record_line(f"n{world.serial}", reader.leaf(world.data), "alien"))
    world.torn = False
    world.serial += 1


def _place(place: str) -> None:
    def change(world: World) -> None:
        world.place = place
        if place == "replaced":
            world.other = native.record_line("x1", None, "alien")

    _WORLD_OPS[place] = change


def _full(world: World) -> None:
    world.room = SHORT


def _space(world: World) -> None:
    world.room = None


def _short(world: World) -> None:
    world.short = SHORT


_WORLD_OPS = {
    "unsourced": _unsourced,
    "alien": _alien,
    "full": _full,
    "space": _space,
    "short": _short,
}
for each in ("archived", "deleted", "replaced", "symlink", "linked"):
    _place(each)
