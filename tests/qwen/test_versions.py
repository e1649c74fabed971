"""Which sessions may be written, by the version that wrote them (contract 8, design 6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.test_policy import Story
from watcher.core.session import SessionState
from watcher.qwen.versions import is_tested, unsupported


def state(version: str) -> SessionState:
    """A session whose newest record names this version."""
    return replace(Story().turn().state, version=version)


@pytest.mark.parametrize("version", ["0.21.0", "0.21.2", "0.23.0", "0.24.4", "0.22.9-nightly.1", "0.25.0", "1.0.0"])
def test_what_is_written(version: str) -> None:
    """From 0.21 on, as long as the file looks as it should."""
    assert unsupported(state(version)) == ""


@pytest.mark.parametrize("version", ["0.20.99", "0.15.10", "0.12.0", "0.0.0", "", "0.24", "v0.24.4", "0.24.4x", "new"])
def test_what_is_only_read(version: str) -> None:
    """Older ones, and those of no version that can be read."""
    assert unsupported(state(version))


@pytest.mark.parametrize(
    "odd",
    [
        {"unknown_types": 1},
        {"mixed_ids": True},
        {"session_id": ""},
        {"chain": Story().turn().state.chain.add("x", "nowhere")},
    ],
)
def test_a_newer_version_is_written_only_while_it_looks_the_same(odd: dict[str, object]) -> None:
    """Anything new in an untested version means that nobody knows what else is; a tested one is known."""
    found = replace(state("0.99.0"), **odd)  # type: ignore[arg-type]
    assert "newer than tested" in unsupported(found)
    assert unsupported(replace(found, version="0.24.4")) == ""


def test_a_rewind_to_the_first_turn_is_no_damage() -> None:
    """It has no parent, on purpose."""
    story = Story().turn()
    rewound = replace(story.state, chain=story.state.chain.add("r", None, is_root=True), version="0.99.0")
    assert unsupported(rewound) == ""


def test_an_empty_file_has_no_version_yet() -> None:
    """Nothing is wrong with it."""
    assert unsupported(SessionState()) == ""


def test_tested_versions_are_those_between_the_oldest_and_the_newest() -> None:
    """What `doctor` calls untested."""
    assert [is_tested(each) for each in ("0.21.1", "0.21.2", "0.22.0", "0.24.4", "0.24.5", "x")] == [
        False, True, True, True, False, False,
    ]  # fmt: skip
