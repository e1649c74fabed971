"""What must hold after every complete interleaving, judged by the independent reader."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from tests.safety import reader
from tests.safety.native import CWD, SESSION, VERSION, Title
from tests.safety.world import BASE_NS, OUR_PREFIX, World

KEYS = [
    "uuid", "parentUuid", "sessionId", "timestamp", "type", "provenance", "cwd", "version", "subtype", "systemPayload",
]  # fmt: skip
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Violation(AssertionError):  # noqa: N818 - it is a finding
    """An invariant does not hold."""


def check_lines(before: World, after: World) -> int:
    """What we appended: whole valid lines (contract 4.5), chained to a conversation record that stands before them.

    Returns how many lines were looked at.
    """
    if not after.data.startswith(before.data):
        raise Violation("an existing byte was changed")
    if after.place != "replaced" and after.other != before.other:
        raise Violation("the file that was put in its place was written to")
    begin = before.data.rfind(b"\n") + 1
    seen = set(_chained(before.data[:begin]))
    checked = 0
    position = begin
    for line in after.data[begin:].split(b"\n"):
        position += len(line) + 1
        for record in reader.objects(line):
            if str(record.get("uuid", "")).startswith(OUR_PREFIX) and position > len(before.data):
                _check_record(line, record, seen)
                checked += 1
            if record.get("subtype") not in reader.ARTIFACTS and "uuid" in record:
                seen.add(record["uuid"])
    return checked


@lru_cache(maxsize=20_000)
def _chained(data: bytes) -> frozenset[str]:
    """The ids that a record may have as its parent."""
    records = (record for line in data.split(b"\n") for record in reader.objects(line))
    return frozenset(
        record["uuid"] for record in records if record.get("subtype") not in reader.ARTIFACTS and "uuid" in record
    )


def _check_record(line: bytes, record: reader.Record, seen: set[str]) -> None:
    if json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() != line:
        raise Violation("a line of ours is not compact, or not alone on its line")
    if list(record) != KEYS:
        raise Violation(f"fields of a record of ours: {list(record)}")
    if record["parentUuid"] not in seen:
        raise Violation("the parent of a record of ours is no conversation record before it")
    expected = (SESSION, "system", "system", CWD, VERSION)
    if tuple(record[name] for name in ("sessionId", "type", "provenance", "cwd", "version")) != expected:
        raise Violation(f"a record of ours has a wrong field: {record}")
    if not _TIME.fullmatch(record["timestamp"]):
        raise Violation(f"timestamp: {record['timestamp']}")
    payload = record["systemPayload"]
    if record["subtype"] == "custom_title":
        ours = {"T": "auto", "Q": "auto", "N": "manual"}.get(payload.get("customTitle", "")[:1])
        if ours not in (None, payload.get("titleSource")):
            raise Violation(f"a title of ours with a wrong source: {payload}")
        good = set(payload) == {"customTitle", "titleSource"} and payload["titleSource"] in ("auto", "manual")
        found = reader.last_title(line)
        good = good and found == (payload["customTitle"], payload["titleSource"])
    else:
        items = payload.get("outputHistoryItems", [{}])
        good = payload == {"phase": "result", "rawCommand": "/recap", "outputHistoryItems": items}
        good = good and len(items) == 1 and set(items[0]) == {"type", "text"} and items[0]["type"] == "away_recap"
    if not good:
        raise Violation(f"the payload of a record of ours: {payload}")


def check_turns(world: World) -> None:
    """A resumed conversation has exactly the turns that it would have without us; or that it would have had, where a
    process loaded it before our repair was there.
    """
    with_us, without_us = world.turns(), world.turns_without_us()
    if with_us is None:
        return  # a second session id, which `check_alien` knows to be somebody else's
    if with_us != without_us and not (world.early and with_us == world.turns_brought_back()):
        lost = [uuid for uuid in without_us if uuid not in with_us]
        back = [uuid for uuid in with_us if uuid not in without_us]
        raise Violation(f"turns lost: {lost}; turns resurrected: {back}; {with_us} instead of {without_us}")


def check_recaps(world: World) -> None:
    """Nobody is told twice where the conversation stands: between two recaps of ours stands something that was said."""
    fresh = True
    for record in reader.active_chain(world.data):
        if record["type"] in ("user", "assistant"):
            fresh = True
        elif str(record["uuid"]).startswith(OUR_PREFIX) and record["subtype"] == "slash_command":
            if not fresh:
                raise Violation("two recaps of ours in a row")
            fresh = False


def check_ids(before: World, after: World) -> None:
    """We bring no second session id, and write nothing to a file that has one."""
    ids = {record["sessionId"] for record in after.ours()}
    if ids - {SESSION}:
        raise Violation("a record of ours has another session id")
    if before.turns() is None and len(list(after.ours())) != len(list(before.ours())):
        raise Violation("something was appended to a file with two session ids")


def check_mtime(world: World) -> None:
    """The picker's order is as it would be without us (contract 3.6)."""
    if world.lease or world.crashed != (False,) * len(world.crashed):
        return
    if any(store.intents for store in world.stores):
        return
    if world.touched == BASE_NS and world.mtime != BASE_NS:
        raise Violation("the modification time moved although nobody else wrote")
    if world.mtime < world.touched:
        raise Violation("the modification time was turned back behind somebody's write")


def check_title(world: World) -> None:
    """Nobody owns the session and nothing of ours waits: the title is the one that the user, or Qwen Code, gave."""
    found = reader.last_title(world.data)
    expected = _expected(world)
    if any(_same(found, each) for each in expected):
        return
    raise Violation(f"the title is {found}, and should be one of {expected}")


def check_sight(world: World, window: int) -> None:
    """A title of ours that stands last is one that the picker shows."""
    last = [record for record in reader.records(world.data) if record.get("subtype") == "custom_title"][-1:]
    ours = last and str(last[0]["uuid"]).startswith(OUR_PREFIX) and last[0]["systemPayload"]["customTitle"]
    if ours and reader.shown_title(world.data, window) is None:
        raise Violation("our title is out of sight")


def _expected(world: World) -> list[Title | None]:
    if world.wish is not None and world.wish[1]:
        return [world.wish[0]]
    expected: list[Title | None] = [world.ghost_title]
    if world.wish is not None and world.wish[0][1] != "auto":
        expected.append(world.wish[0])
    if world.ghost_title is None:
        expected += [(f"T{number}", "auto") for number in range(len(world.stores))]
    return expected


def _same(one: Title | None, other: Title | None) -> bool:
    """A title without a source is a manual one; an empty one is none that the picker shows, but it masks older ones."""
    if one is None or other is None:
        return one is other
    return one[0] == other[0] and (one[1] == "auto") == (other[1] == "auto")
