"""Records → what was said in them (contract 2.2, 2.5, 6.2): the only place where conversation text is read."""

from __future__ import annotations

import re
from typing import Final

from watcher.core.entries import DialogEntry, Origin, is_reminder
from watcher.core.generation import Role
from watcher.qwen.contract import JS_WHITESPACE
from watcher.qwen.jsonl import RawLine
from watcher.qwen.wire import Part, Record, is_blank, is_truthy, messages_of, records_of, text_of, value_of, well_formed

LEGACY_ACKNOWLEDGEMENT: Final = "Got it. Thanks for the context!"
"""What old versions let the model answer to the start-up context that they put in front as a user's entry (6.2)."""

_HOOK_OPEN = "<qwen:user-prompt-submit-context>"
_HOOK_CLOSE = "</qwen:user-prompt-submit-context>"
_COMMAND = re.compile(r"\s*+(?:/[A-Za-z][\w:.-]*+(?:\s|\Z)|!\S)")
_INPUT_ORIGINS = {
    "mid_turn_user_message": Origin.MID_TURN,
    "notification": Origin.NOTIFICATION,
    "cron": Origin.CRON,
    "goal_runtime": Origin.GOAL,
    "realtime_message": Origin.REALTIME,
}
_OTHER_INPUT = Origin.NOTIFICATION
"""An input of a kind that this version does not know is not taken for the user's words."""


def decode_dialog(line: RawLine) -> tuple[DialogEntry, ...]:
    """What was said in the conversation records of a line, in order; nothing for a record without visible text.

    A compression gives one entry for each message that it put in place of the history.
    """
    return tuple([entry for record in records_of(line) if record.chained for entry in entries_of(record)])


def entries_of(record: Record) -> tuple[DialogEntry, ...]:
    """What was said in one record, whose fragments have been merged."""
    if record.type == "user":
        return _entry(record, Role.USER, *_input_text(record), prelude=_is_prelude(record.parts))
    if record.type == "assistant":
        origin = Origin.REALTIME if record.subtype == "realtime_message" else Origin.ASSISTANT
        return _entry(record, Role.ASSISTANT, _visible_text(record.parts), origin)
    if record.type == "system" and record.subtype == "chat_compression":
        return _summary(record)
    return ()


def is_hook_context(text: str) -> bool:
    """Whether the text of a last part is one block that a prompt hook added (2.5)."""
    trimmed = text.strip(JS_WHITESPACE)
    opening, closing = f"{_HOOK_OPEN}\n", f"\n{_HOOK_CLOSE}"
    if not trimmed.startswith(opening) or not trimmed.endswith(closing):
        return False
    body = trimmed[len(opening) : -len(closing)]
    return _HOOK_OPEN not in body and _HOOK_CLOSE not in body


def _entry(record: Record, role: Role, text: str, origin: Origin, *, prelude: bool = False) -> tuple[DialogEntry, ...]:
    if not text.strip(JS_WHITESPACE):
        return ()
    return (DialogEntry(record.uuid or "", record.parent or None, role, text, origin, prelude),)


def _input_text(record: Record) -> tuple[str, Origin]:
    """The text of a user record and where it comes from."""
    parts = record.parts
    has_hook = len(parts) > 1 and is_hook_context(text_of(parts[-1].text) or "")
    text = _visible_text(parts[:-1] if has_hook else parts)
    payload = value_of(record.payload)
    shown = payload.get("displayText") if isinstance(payload, dict) else None
    typed = well_formed(shown) if isinstance(shown, str) else None
    if record.subtype:
        origin = _INPUT_ORIGINS.get(record.subtype, _OTHER_INPUT)
        return (typed or text if origin is Origin.MID_TURN else text), origin
    # A command that was expanded into a prompt is a prompt; what the user typed for it is the display text.
    origin = Origin.COMMAND if _COMMAND.match(text) else Origin.PROMPT
    if typed is not None and isinstance(payload, dict) and (has_hook or isinstance(payload.get("hookContext"), str)):
        text = typed
    return text, origin


def _visible_text(parts: list[Part]) -> str:
    shown = [part for part in parts if not part.thought and not is_truthy(part.thought_signature)]
    return "".join([text_of(part.text) or "" for part in shown if not is_blank(part.text)])


def _is_prelude(parts: list[Part]) -> bool:
    return bool(parts) and all(is_reminder(text_of(part.text) or "") for part in parts)


def _summary(record: Record) -> tuple[DialogEntry, ...]:
    payload = value_of(record.payload)
    messages = messages_of(payload.get("compressedHistory")) if isinstance(payload, dict) else []
    roles = {"user": Role.USER, "model": Role.ASSISTANT}
    return tuple(
        [
            entry
            for message in messages
            if message.role in roles
            for entry in _entry(record, roles[message.role], _visible_text(message.parts or []), Origin.SUMMARY)
        ]
    )
