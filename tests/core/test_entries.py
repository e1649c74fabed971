"""System reminders are taken out of text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.entries import is_reminder, strip_reminders

OPEN, CLOSE = "<system-reminder>", "</system-reminder>"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("hello", "hello"),
        ("", ""),
        (f"a{OPEN}x{CLOSE}b", "ab"),
        (f"{OPEN}x{CLOSE}{OPEN}y{CLOSE}b", "b"),
        (f"a{OPEN}x", "a"),
        (f"a{CLOSE}b", f"a{CLOSE}b"),
        (f"a{OPEN}{OPEN}x{CLOSE}b{CLOSE}", f"ab{CLOSE}"),
    ],
)
def test_reminders_are_removed(text: str, left: str) -> None:
    """Each block goes, an unclosed one takes the rest with it."""
    assert strip_reminders(text) == left


@settings(deadline=None)
@given(st.lists(st.sampled_from([OPEN, CLOSE, "a", "<", "system-reminder>"]), max_size=30).map("".join))
def test_no_closed_reminder_is_left(text: str) -> None:
    """What is left holds no opening that was in the text as one, and nothing that was not in the text."""
    left = strip_reminders(text)
    assert len(left) <= len(text)
    assert strip_reminders(text + OPEN) == left
    if OPEN not in text:
        assert left == text


def cpu_seconds(copies: int) -> float:
    """Processor time to strip that many reminders."""
    text = f"{OPEN}x{CLOSE}y" * copies + OPEN * copies
    started = time.process_time()
    strip_reminders(text)
    return time.process_time() - started


def test_many_reminders_cost_their_length() -> None:
    """Eight times the text takes about eight times the work, not 64 times."""
    assert cpu_seconds(80_000) < 40 * max(min(cpu_seconds(10_000) for _ in range(3)), 0.0005)


@pytest.mark.parametrize(
    ("text", "only"),
    [
        (f"{OPEN}\nx\n{CLOSE}", True),
        (f"{OPEN}x{CLOSE} \n", True),
        (f" {OPEN}x{CLOSE}", False),
        (f"{OPEN}x{CLOSE}y", False),
        ("", False),
    ],
)
def test_a_text_of_reminders_only_is_told(text: str, only: bool) -> None:
    """It opens with one and ends with the close of one."""
    assert is_reminder(text) is only
