"""What was said in a conversation: the entries from which prompts are made. The only values that hold its text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from watcher.core.generation import Role

_REMINDER_OPEN = "<system-reminder>"
_REMINDER_CLOSE = "</system-reminder>"


class Origin(StrEnum):
    """Where the text of an entry comes from."""

    PROMPT = "prompt"
    """A prompt of the user; what was typed, where the record tells it."""
    ASSISTANT = "assistant"
    MID_TURN = "mid_turn"
    """Typed by the user while the model worked."""
    NOTIFICATION = "notification"
    CRON = "cron"
    GOAL = "goal"
    REALTIME = "realtime"
    """A transcript of speech, the user's or the model's."""
    SUMMARY = "summary"
    """Part of the history that a compression put in place of the earlier entries."""
    COMMAND = "command"
    """A prompt record that is only a slash command or shell escape, such as `/clear` or `!ls`."""


@dataclass(frozen=True, slots=True)
class DialogEntry:
    """The visible text of one record: no thoughts, no tool calls, no hook context.

    `text` is never blank and still holds system reminders (see `strip_reminders`). `prelude` marks what a start-up put
    before the first prompt.
    """

    uuid: str
    parent: str | None
    role: Role
    text: str
    origin: Origin
    prelude: bool = False


def strip_reminders(text: str) -> str:
    """`text` without its `<system-reminder>…</system-reminder>` blocks; an unclosed one cuts to the end (contract 6.2).

    Linear in the length of the text.
    """
    kept: list[str] = []
    start = 0
    while (opened := text.find(_REMINDER_OPEN, start)) >= 0:
        kept.append(text[start:opened])
        closed = text.find(_REMINDER_CLOSE, opened + len(_REMINDER_OPEN))
        if closed < 0:
            break
        start = closed + len(_REMINDER_CLOSE)
    else:
        kept.append(text[start:])
    return "".join(kept)


def is_reminder(text: str) -> bool:
    """Whether the text is nothing but reminders: it opens with one and ends with the close of one (contract 6.2)."""
    return text.startswith(_REMINDER_OPEN) and text.rstrip().endswith(_REMINDER_CLOSE)
