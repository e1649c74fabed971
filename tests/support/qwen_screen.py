"""What Qwen Code's screen shows: the input box, suggestions below it, the entries of the resume picker."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.terminal import Cell, Terminal, squeeze


@dataclass(frozen=True)
class PickerEntry:
    """A session in the resume picker: its title or first prompt, whether it is selected, the line below it.

    `dim` says whether the title is drawn as an automatic one; None for the selected entry, whose highlight
    hides the difference.
    """

    title: str
    selected: bool
    dim: bool | None
    detail: str


@dataclass(frozen=True)
class InputBox:
    """Qwen Code's input box: the lines of text in it, and the session's title in the rule above it."""

    lines: list[str]
    title: str | None


_RULE = re.compile(r"─+(?: (?P<title>.+?) ─+|─{20,})")
_PROMPT_MARK = re.compile(r"[>*!] ?")
_PLACEHOLDER = squeeze("Type your message or @path/to/file")
_ENTRY = re.compile(r" [› ] \S")
LOADING = "Loading suggestions"
_BUSY = ("esc to cancel", "Initializing")


def input_box(lines: list[str]) -> InputBox | None:
    """The input box on a screen with these lines: what stands between the last two rules over the whole width."""
    rules = [(row, match) for row, line in enumerate(lines) if (match := _RULE.fullmatch(line))]
    if len(rules) < 2:
        return None
    (top, rule), (bottom, _) = rules[-2:]
    return InputBox(lines[top + 1 : bottom], rule["title"])


def typed(lines: list[str]) -> str | None:
    """The text in the input box without white space; None without an input box."""
    box = input_box(lines)
    if box is None or not box.lines:
        return None
    text = squeeze("".join([_PROMPT_MARK.sub("", box.lines[0]), *box.lines[1:]]))
    return "" if text == _PLACEHOLDER else text


def below(lines: list[str]) -> list[str]:
    """The lines below the input box: a footer, or suggestions for what is typed."""
    rules = [row for row, line in enumerate(lines) if _RULE.fullmatch(line)]
    return lines[rules[-1] + 1 :] if rules else []


def offers(lines: list[str], command: str) -> bool:
    """Whether this slash command is suggested below the input box."""
    suggestion = re.compile(rf"\s*(> )?{re.escape(command[1:])}\b")
    return any(map(suggestion.match, below(lines)))


def suggests(lines: list[str]) -> bool:
    """Whether a suggestion below the input box is selected, so that Enter would take it."""
    return any(line.startswith("  > ") for line in below(lines))


def is_idle(lines: list[str]) -> bool:
    return input_box(lines) is not None and not any(word in line for line in lines for word in _BUSY)


def is_ready(lines: list[str]) -> bool:
    return is_idle(lines) and typed(lines) == ""


def same_or_tail(shown: str, wanted: str) -> bool:
    """Whether the input box shows the wanted text: all of it, or the end of one too long for the box."""
    return shown == wanted or (len(shown) > 300 and wanted.endswith(shown))


def letters(text: str) -> str:
    """Only the letters and digits: what markdown and a screen leave of a text."""
    return "".join(filter(str.isalnum, text))


def picker_entries(terminal: Terminal) -> list[PickerEntry]:
    """The entries between the two inner rules of the picker's frame: blocks of a title and its details."""
    with terminal.still():
        lines = [line.strip("│") for line in terminal.screen()]
        rules = [row for row, line in enumerate(lines) if _RULE.fullmatch(line)]
        if len(rules) < 2 or not any(line.strip().startswith("Resume Session") for line in lines):
            return []
        inside = range(rules[0] + 1, rules[-1])
        titles = [row for row in inside if _ENTRY.match(lines[row]) and not lines[row - 1].strip("─ ")]
        return [picker_entry(terminal.row(row), terminal.row(row + 1)) for row in titles]


def has_selection(entries: list[PickerEntry]) -> bool:
    return any(entry.selected for entry in entries)


def selected_row(entries: list[PickerEntry]) -> int:
    return [entry.selected for entry in entries].index(True)


def picker_entry(title: list[Cell], detail: list[Cell]) -> PickerEntry:
    selected = title[2].text == "›"
    text = "".join(cell.text for cell in title[4:]).rstrip("│ ")
    below = "".join(cell.text for cell in detail[4:]).rstrip("│ ")
    # The theme's colour for secondary text: the details always have it, and an automatic title has it too.
    return PickerEntry(text, selected, None if selected else title[4].style == detail[4].style, below)
