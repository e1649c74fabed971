"""Names, paths and small rules of Qwen Code's session store."""

from __future__ import annotations

import pytest

from watcher.qwen import contract


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/home/user/my_proj.x", "-home-user-my-proj-x"),
        ("/srv/日本", "-srv---"),
        ("/a/😀b", "-a---b"),
        ("", ""),
    ],
)
def test_a_project_directory_gives_its_folder(cwd: str, folder: str) -> None:
    """Every UTF-16 unit that is no ASCII letter or digit becomes one dash; an emoji becomes two."""
    assert contract.sanitize_cwd(cwd) == folder


@pytest.mark.parametrize(
    ("name", "session_id"),
    [
        ("800ec011-bd66-45b3-b7e5-27e3387a2e2a.jsonl", "800ec011-bd66-45b3-b7e5-27e3387a2e2a"),
        ("/x/chats/800EC011-bd66-45b3-b7e5-27e3387a2e2a.jsonl", "800EC011-bd66-45b3-b7e5-27e3387a2e2a"),
        ("0123456789abcdef0123456789abcdef.jsonl", "0123456789abcdef0123456789abcdef"),
        ("800ec011-bd66-45b3-b7e5-27e3387a2e2a.ledger.jsonl", None),
        ("800ec011-bd66-45b3-b7e5-27e3387a2e2a.runtime.json", None),
        ("800ec011-bd66-45b3-b7e5-27e3387a2e2a.jsonl\n", None),
        ("agent-1.jsonl", None),
        ("800ec011-bd66-45b3-b7e5-27e3387a2e2.jsonl", "800ec011-bd66-45b3-b7e5-27e3387a2e2"),
        ("800ec011.jsonl", None),
    ],
)
def test_only_a_transcript_name_carries_a_session_id(name: str, session_id: str | None) -> None:
    """Sidecars, ledgers and agents' files are no transcripts; upper-case ids are."""
    assert contract.session_id_of(name) == session_id


def test_the_registry_name_carries_the_pid() -> None:
    """One file a process, or one a hosted session with eight hex digits behind; temporary files are neither."""
    assert contract.registry_pid_of("10086.json") == 10086
    assert contract.registry_pid_of("10086-0a1b2c3d.json") == 10086
    assert contract.registry_pid_of("10086.json.0a1b2c3d4e5f.tmp") is None
    assert contract.registry_pid_of("١٢.json") is None


def test_the_lease_paths_are_the_lock_and_its_claim() -> None:
    """Both stand under the runtime base, the id percent-encoded as `encodeURIComponent` does."""
    assert contract.lease_paths("/home/user/.qwen/", "ab-1") == (
        "/home/user/.qwen/tmp/session-writer-locks/ab-1.lock",
        "/home/user/.qwen/tmp/session-writer-locks/ab-1.lock.claim",
    )
    assert contract.lease_name("a b/ä!~*'()") == "a%20b%2F%C3%A4!~*'().lock"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.24.4", (0, 24, 4)),
        ("0.24.4-preview.1", (0, 24, 4)),
        (" 1.0.0+build ", (1, 0, 0)),
        ("unknown", None),
        ("0.24", None),
        ("", None),
        ("0.24.4x", None),
    ],
)
def test_versions_are_read_with_any_suffix(text: str, version: tuple[int, int, int] | None) -> None:
    """Three numbers, then nothing or a suffix; anything else is no version."""
    assert contract.parse_version(text) == version


def test_versions_compare_with_the_oldest_writable_one() -> None:
    """0.21 and up are written to."""
    assert (contract.parse_version("0.15.10") or ()) < contract.MIN_WRITABLE_VERSION
    assert (contract.parse_version("0.21.0-nightly") or ()) >= contract.MIN_WRITABLE_VERSION
    assert contract.parse_version("0.24.4") in contract.TESTED_VERSIONS


@pytest.mark.parametrize("value", [None, "", "0", " No ", "FALSE", "off\n", "\ufeff"])
def test_no_words_leave_the_switch_off(value: str | None) -> None:
    """Unset, empty and the five no words do not switch titles off."""
    assert not contract.is_truthy_switch(value)


@pytest.mark.parametrize("value", ["1", "true", "yes", "n", "x", "disabled"])
def test_anything_else_switches(value: str) -> None:
    """Every other value does, `n` too."""
    assert contract.is_truthy_switch(value)


def test_lengths_are_counted_in_utf16_units() -> None:
    """A character beyond the BMP counts twice."""
    assert contract.utf16_units("a登😀") == 4
