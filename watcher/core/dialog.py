"""From the entries of a conversation to what a prompt may hold of it: filter, window, bounds, masking.

Only what the user and the assistant said gets through; tool calls and results never were entries. Other than Qwen
Code (contract 6.2, 9) we leave out notifications, cron jobs, goals, transcripts of speech and compression summaries,
which its replay of the history includes by accident, and commands, which are no intent (`/clear`, `!ls`). And where
Qwen Code sends the user's typed texts alone as soon as one prompt record tells what was typed, we always send the
assistant's answers as well: a short prompt without its answer says too little for a title.

Every text is cut to its window before it is masked, so that masking costs the same for any length. The first cut
leaves a margin around the window: a secret on its edge is seen whole, and the second cut, to the exact length, only
takes away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watcher.core.entries import DialogEntry, Origin, strip_reminders
from watcher.core.generation import Message, Role
from watcher.core.text import (
    Mask,
    MaskedText,
    unmasked,
    utf16_head,
    utf16_len,
    utf16_tail,
    without_surrogates,
)

TITLE_WINDOW_ENTRIES = 20
TITLE_WINDOW_UNITS = 1000
"""Both from contract 6.2."""
RECAP_WINDOW_ENTRIES = 30
"""From contract 6.3."""
RECAP_MESSAGE_UNITS = 4000
RECAP_TOTAL_UNITS = 24_000
MASK_MARGIN_UNITS = 8192
"""More than a private key block, the longest secret that masking knows."""

_ELLIPSIS = " […] "
_SPOKEN = frozenset((Origin.PROMPT, Origin.MID_TURN, Origin.ASSISTANT))
_COMMAND_LINES = re.compile(r"(?:\s*(?:/[A-Za-z][\w:-]*(?=\s|$)|![^\s!])[^\n]*(?:\n|$))+")
_REFERENCED_FILES = re.compile(r"\n?--- Content from referenced files ---.*?(?:--- End of content ---|\Z)", re.DOTALL)
_CONTINUATION = re.compile(
    r"\s*(?:<state_snapshot>"
    r"|(?:this|the) (?:session|conversation|chat) is (?:being )?(?:continued|a continuation|resumed)\b"
    r"|(?:this is a )?continu(?:ed|ing|ation)\b[^.\n]{0,60}\bprevious (?:conversation|session|chat)"
    r"|this is the [a-z]+ (?:code|cli)\. we are setting up the context"
    r"|(?:本|此|这个)?(?:会话|对话)(?:是|接续|延续|继续)[^。\n]{0,20}(?:之前|上一个|先前|上次)的?(?:会话|对话))",
    re.IGNORECASE,
)
_CONTINUATION_REPLY = re.compile(r"\s*got it\. thanks for the (?:additional )?context!?\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RecapDialog:
    """Chat turns that begin with the user, roles alternating, and the secrets that were masked in them."""

    messages: tuple[Message, ...]
    secrets: tuple[str, ...] = ()


def spoken(entries: Iterable[DialogEntry]) -> tuple[Message, ...]:
    """What the user and the assistant really said, oldest first, one message an entry.

    No message is blank or holds a lone surrogate.
    """
    messages = []
    for entry in entries:
        if entry.prelude or entry.origin not in _SPOKEN:
            continue
        text = without_surrogates(strip_reminders(entry.text))
        text = _intent(text) if entry.role is Role.USER else _reply(text)
        if text:
            messages.append(Message(entry.role, text))
    return tuple(messages)


def title_dialog(entries: Iterable[DialogEntry], mask: Mask = unmasked) -> MaskedText:
    """The dialog for a title: `User: …` and `Assistant: …` lines, the last 1000 UTF-16 units of the last 20 entries.

    Empty text when nobody said anything. `mask` is called with texts of at most about 9000 units.
    """
    lines: list[str] = []
    secrets: list[str] = []
    units = 0
    for message in reversed(_window(spoken(entries), TITLE_WINDOW_ENTRIES)):
        masked = mask(utf16_tail(message.text, TITLE_WINDOW_UNITS + MASK_MARGIN_UNITS))
        secrets.extend(masked.secrets)
        lines.append(f"{message.role.capitalize()}: {masked.text.strip()}")
        units += utf16_len(lines[-1]) + 1
        if units > TITLE_WINDOW_UNITS:
            break
    return MaskedText(utf16_tail("\n".join(reversed(lines)), TITLE_WINDOW_UNITS), _distinct(secrets))


def recap_dialog(entries: Iterable[DialogEntry], mask: Mask = unmasked) -> RecapDialog:
    """The dialog for a recap: the last 30 entries as chat turns that begin with the user, same roles merged.

    A message of more than 4000 UTF-16 units keeps its head and tail; of more than 24 000 in all the oldest turns go.
    No messages when the user said nothing. `mask` is called with texts of at most about 24 000 units.
    """
    secrets: list[str] = []
    turns: list[list[str]] = []
    roles: list[Role] = []
    for message in _window(spoken(entries), RECAP_WINDOW_ENTRIES):
        bounded = _bounded(message.text, mask)
        secrets.extend(bounded.secrets)
        if roles and roles[-1] is message.role:
            turns[-1].append(bounded.text)
        elif roles or message.role is Role.USER:
            roles.append(message.role)
            turns.append([bounded.text])
    messages = [
        Message(role, _clipped("\n\n".join(texts), RECAP_MESSAGE_UNITS))
        for role, texts in zip(roles, turns, strict=True)
    ]
    return RecapDialog(_newest(messages, RECAP_TOTAL_UNITS), _distinct(secrets))


def _intent(text: str) -> str:
    """What of a prompt is the user's own intent: no command lines, continuation preambles or pasted file contents."""
    if _CONTINUATION.match(text):
        return ""
    commands = _COMMAND_LINES.match(text)
    return _REFERENCED_FILES.sub("", text[commands.end() :] if commands else text).strip()


def _reply(text: str) -> str:
    return "" if _CONTINUATION_REPLY.match(text) else text.strip()


def _window(messages: Sequence[Message], size: int) -> list[Message]:
    """The last `size` messages; when that cuts, from the next user message on (contract 6.2).

    A window without any, as a long turn of tool calls makes it, is led by the user's last message before it.
    """
    window = list(messages[-size:])
    if len(messages) <= size:
        return window
    for index, message in enumerate(window):
        if message.role is Role.USER:
            return window[index:]
    before = next((message for message in reversed(messages[:-size]) if message.role is Role.USER), None)
    return [before, *window[1:]] if before else window


def _bounded(text: str, mask: Mask) -> MaskedText:
    """`text` masked and cut to the length of one message of a recap."""
    if utf16_len(text) <= RECAP_MESSAGE_UNITS + 2 * MASK_MARGIN_UNITS:
        masked = mask(text)
        return MaskedText(_clipped(masked.text, RECAP_MESSAGE_UNITS), masked.secrets)
    reach = RECAP_MESSAGE_UNITS // 2 + MASK_MARGIN_UNITS
    head = mask(utf16_head(text, reach))
    tail = mask(utf16_tail(text, reach))
    return MaskedText(_ends(head.text, tail.text, RECAP_MESSAGE_UNITS), (*head.secrets, *tail.secrets))


def _clipped(text: str, units: int) -> str:
    text = text.strip()
    return text if utf16_len(text) <= units else _ends(text, text, units)


def _ends(head: str, tail: str, units: int) -> str:
    half = (units - len(_ELLIPSIS)) // 2
    return utf16_head(head, half).strip() + _ELLIPSIS + utf16_tail(tail, half).strip()


def _newest(messages: list[Message], units: int) -> tuple[Message, ...]:
    """The longest run of whole newest messages that begins with the user and fits; at least the last user message."""
    first = len(messages)
    total = 0
    for index in range(len(messages) - 1, -1, -1):
        total += utf16_len(messages[index].text)
        if total > units and first < len(messages):
            break
        if messages[index].role is Role.USER:
            first = index
    return tuple(messages[first:])


def _distinct(secrets: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(secrets))
