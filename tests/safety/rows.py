"""Which rows of the contract's hazards a history has reached, and a world in words."""

from __future__ import annotations

from collections import Counter

from tests.safety import native, reader
from tests.safety.watching import Procedure
from tests.safety.world import World
from watcher.core.writing import Declined, Failed, Written


def count_rows(rows: Counter[str], world: World) -> None:
    """What a state at rest shows."""
    active = {record["uuid"] for record in reader.active_chain(world.data)} if world.turns() is not None else set()
    ours = list(world.ours())
    if any(record["uuid"] not in active for record in ours):
        rows["c: ours became a side branch"] += 1
    if ours and any(node.kind == "r" for node in world.mirror):
        rows["d: beside a rewind"] += 1
    if sum(cli.live for cli in world.clis) > 1 and ours:
        rows["h: two processes"] += 1
    if ours:
        rows["f: parent checked"] += len(ours)


def count_outcome(rows: Counter[str], procedure: Procedure, before: World) -> None:
    """What a procedure of ours came to."""
    for outcome in procedure.outcomes:
        if isinstance(outcome, Written):
            if outcome.repairs:
                rows["a: repaired"] += 1
            if outcome.healed:
                rows["a title put last at once"] += 1
            if before.torn and not before.data.endswith(b"\n"):
                rows["b: a torn line ended first"] += 1
        elif isinstance(outcome, Failed):
            rows["j: short write or full disk" if outcome.reason.value == "unsafe_file" else "gave up"] += 1
        elif isinstance(outcome, Declined):
            _count_declined(rows, outcome, before)


def _count_declined(rows: Counter[str], outcome: Declined, before: World) -> None:
    reason = outcome.reason.value
    if reason == "not_found":
        rows["g: gone, archived or replaced"] += 1
    elif reason == "unsafe_file" and before.turns() is None:
        rows["e: two session ids refused"] += 1
    elif reason == "unsafe_file":
        rows["i: link refused"] += 1
    elif reason == "working" and before.torn:
        rows["b: torn line left alone"] += 1
    else:
        rows[f"declined: {reason}"] += 1


def pretty(world: World) -> str:
    """The records of the file, and what it would be without us."""
    lines = []
    for record in reader.records(world.data):
        payload = record.get("systemPayload") or {}
        title = payload.get("customTitle", "")
        kind = record.get("subtype") or record["type"]
        lines.append(f"  {record['uuid']} <- {record['parentUuid']}  {kind} {title} {payload.get('titleSource', '')}")
    chain = " ".join(node.uuid for node in native.mirror_chain(world.mirror))
    return "\n".join([*lines, f"  without us: {chain}; ghost title {world.ghost_title}; wish {world.wish}"])
