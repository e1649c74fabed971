"""The made-up files whose outcome was seen by running Qwen Code's own reader (see `about` in vectors.json)."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.qwen.building import DATA
from watcher.qwen.contract import WINDOW_BYTES
from watcher.qwen.jsonl import split_lines
from watcher.qwen.titles import Evidence, first_prompt, read_title
from watcher.qwen.transcript import analyse, chain_uuids, read_transcript

VECTORS = json.loads((DATA / "vectors.json").read_bytes())


@dataclass(frozen=True)
class Vector:
    """One file and what the reader made of it."""

    name: str
    data: bytes
    chain: list[int] | None
    error: str | None
    gaps: list[list[int]] | None
    title: str | None
    title_source: str | None
    listed: bool
    first_prompt: str | None


FILES = [Vector(each["name"], each["file"].encode(), **each["expect"]) for each in VECTORS["session_files"]]


def number(uuid: str) -> int:
    """The number of a record in the vectors."""
    return int(uuid[:8], 16)


@pytest.fixture(params=FILES, ids=lambda vector: vector.name)
def vector(request: pytest.FixtureRequest) -> Vector:
    """Each session file of the vectors."""
    assert isinstance(request.param, Vector)
    return request.param


def test_the_picker_lists_the_file(vector: Vector) -> None:
    """A file is listed when its first record belongs to the project."""
    state = analyse(split_lines(vector.data))
    assert (state.first_cwd == VECTORS["project_cwd"]) is vector.listed


def test_the_chain_is_restored(vector: Vector) -> None:
    """The same records in the same order, the same gaps, the same refusal."""
    lines = list(split_lines(vector.data))
    transcript = read_transcript(lines)
    assert transcript.mixed_ids is (vector.error == "mixed_session_ids")
    if vector.chain is not None:
        assert [number(uuid) for uuid in chain_uuids(lines)] == vector.chain
        assert [[number(child), number(missing)] for child, missing in transcript.gaps] == (vector.gaps or [])


def test_the_state_agrees_with_the_chain(vector: Vector) -> None:
    """What is folded record by record is what the whole file says."""
    state = analyse(split_lines(vector.data))
    assert state.mixed_ids is (vector.error is not None)
    if vector.chain is not None:
        assert number(state.leaf or "") == vector.chain[-1]
        hides = bool(vector.gaps) or vector.name == "C06_null_parent"
        assert state.chain.broken is hides
        assert state.sound is not hides
        prompts = {1, 3, 7} & set(vector.chain)
        if vector.name == "T10_text_spoof_escaped":
            prompts = {1, 5}
        if vector.name.startswith(("T11", "C27")):
            prompts = {1} if vector.name.startswith("T11") else set()
        assert state.user_turns == len(prompts)


def test_the_title_is_the_pickers(vector: Vector) -> None:
    """The same title and source from the two ends of the file."""
    found = read_title(vector.data[:WINDOW_BYTES], vector.data[-WINDOW_BYTES:], len(vector.data))
    assert (found.title if found else None) == vector.title
    assert (found.source if found else None) == vector.title_source
    if found is not None and vector.name != "C09_partial_tail_then_glued":
        assert found.evidence is Evidence.RECORD


def test_the_first_prompt_is_the_pickers(vector: Vector) -> None:
    """The text that stands for an untitled session."""
    if vector.listed:
        assert first_prompt(vector.data) == vector.first_prompt


def test_a_title_cut_before_its_source_counts_as_the_users() -> None:
    """Vector T09: the new title stands, with no source, and its line is torn."""
    cut = FILES[0].data
    cut = cut[: cut.rindex(b',"titleSource"')]
    found = read_title(cut, cut, len(cut))
    assert found is not None
    assert (found.title, found.source, found.evidence) == ("Fix login test", None, Evidence.TORN)


def test_call_arguments_can_look_like_a_title() -> None:
    """Vector T10b: the picker shows it, and the record is known for what it is."""
    spoof = FILES[0].data.replace(
        b'"text":"Done, added a wait."', b'"functionCall":{"args":{"subtype":"custom_title","customTitle":"Evil"}}'
    )
    spoof = b"\n".join(spoof.split(b"\n")[:2]) + b"\n"
    found = read_title(spoof, spoof, len(spoof))
    assert found is not None
    assert (found.title, found.source, found.evidence) == ("Evil", None, Evidence.SPOOF)
    assert analyse(split_lines(spoof)).title is None


def test_a_title_in_the_middle_of_a_big_file_is_not_shown() -> None:
    """Vector T11b: out of both windows it is invisible to the picker, and known to the state."""
    filler = FILES[0].data.split(b"\n")[1].replace(b"Done, added a wait.", b"x" * 70_000) + b"\n"
    data = filler + FILES[0].data + filler
    assert read_title(data[:WINDOW_BYTES], data[-WINDOW_BYTES:], len(data)) is None
    state = analyse(split_lines(data))
    assert state.title is not None
    assert state.title.title == "Fix login test"


LINEAR = next(each.data for each in FILES if each.name == "C01_linear")
REWOUND = next(each.data for each in FILES if each.name == "C14_rewind")


def added(number: int, parent: int, subtype: str, payload: object) -> bytes:
    """A system record of the session of the vectors."""
    record = {
        "uuid": f"{number:08x}-0000-4000-8000-000000000000",
        "parentUuid": f"{parent:08x}-0000-4000-8000-000000000000",
        "sessionId": VECTORS["session_id"],
        "timestamp": "2026-01-01T10:00:09.000Z",
        "type": "system",
        "cwd": VECTORS["project_cwd"],
        "version": "0.24.4",
        "subtype": subtype,
        "systemPayload": payload,
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


TITLE = {"customTitle": "Ours", "titleSource": "auto"}
ARTIFACT = added(5, 4, "session_artifact_event", {"v": 2})
SHORT_FORMS = {
    "C05": (LINEAR + added(9, 0xDEAD, "custom_title", TITLE), [9], "Ours"),
    "C10": (LINEAR + b'{"uuid":"0000000\n' + added(9, 4, "custom_title", TITLE), [1, 2, 3, 4, 9], "Ours"),
    "C12": (LINEAR.rstrip(b"\n") + added(9, 4, "custom_title", TITLE), [1, 2, 3, 4, 9], "Ours"),
    "C13b": (LINEAR + ARTIFACT + added(9, 4, "custom_title", TITLE), [1, 2, 3, 4, 9], "Ours"),
    "C19": (LINEAR + added(9, 4, "something_new", {}), [1, 2, 3, 4, 9], None),
    "T05": (LINEAR + added(9, 4, "custom_title", {**TITLE, "titleSource": "robot"}), [1, 2, 3, 4, 9], "Ours"),
    "T13": (
        REWOUND.replace(b'{"uuid":"00000006', added(5, 4, "custom_title", TITLE) + b'{"uuid":"00000006'),
        [1, 2, 6, 7, 8],
        "Ours",
    ),
}
"""Vectors that the contract gives in its section 9 only: file, chain, title."""


@pytest.mark.parametrize("name", SHORT_FORMS)
def test_the_vectors_that_stand_in_the_contract_only(name: str) -> None:
    """The same chain, the same leaf, the same title."""
    data, chain, title = SHORT_FORMS[name]
    lines = list(split_lines(data))
    assert [number(uuid) for uuid in chain_uuids(lines)] == chain
    state = analyse(lines)
    assert number(state.leaf or "") == chain[-1]
    found = read_title(data, data, len(data))
    assert (found.title if found else None) == title
    assert (found.source if found else None) == (None if name in {"C19", "T05"} else "auto")
