"""What of a conversation reaches a prompt, and how it is cut and masked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.core.dialog import (
    MASK_MARGIN_UNITS,
    RECAP_MESSAGE_UNITS,
    RECAP_TOTAL_UNITS,
    RECAP_WINDOW_ENTRIES,
    TITLE_WINDOW_ENTRIES,
    TITLE_WINDOW_UNITS,
    recap_dialog,
    title_dialog,
)
from watcher.core.entries import DialogEntry, Origin
from watcher.core.generation import Message, Role
from watcher.core.text import (
    MaskedText,
    utf16_cut_at_word,
    utf16_head,
    utf16_len,
    utf16_tail,
    without_surrogates,
)

SECRET = "sk-0123456789"


def entry(text: str, origin: Origin = Origin.PROMPT, role: Role | None = None, *, prelude: bool = False) -> DialogEntry:
    role = role or (Role.ASSISTANT if origin is Origin.ASSISTANT else Role.USER)
    return DialogEntry("u", None, role, text, origin, prelude)


def said(*texts: str) -> list[DialogEntry]:
    """Entries in turn of the user and the assistant."""
    return [entry(text, Origin.ASSISTANT if index % 2 else Origin.PROMPT) for index, text in enumerate(texts)]


def mask_keys(text: str) -> MaskedText:
    return MaskedText(re.sub(r"sk-\d{10}", "[secret]", text), tuple(re.findall(r"sk-\d{10}", text)))


def lines(entries: list[DialogEntry]) -> str:
    return title_dialog(entries).text


@pytest.mark.parametrize(
    ("entries", "dialog"),
    [
        (said("fix login", "done"), "User: fix login\nAssistant: done"),
        (
            [entry("fix login"), entry("calling", Origin.ASSISTANT), entry("done", Origin.ASSISTANT)],
            "User: fix login\nAssistant: calling\nAssistant: done",
        ),
        (said("fix login"), "User: fix login"),
        (said("ab"), "User: ab"),
        (said("a <system-reminder>x</system-reminder>b", "c"), "User: a b\nAssistant: c"),
        (said("a <system-reminder>never closed", "c"), "User: a\nAssistant: c"),
        (said("<system-reminder>x</system-reminder>", "c"), "Assistant: c"),
        ([], ""),
    ],
)
def test_contract_table(entries: list[DialogEntry], dialog: str) -> None:
    """The dialog table of contract 9: one line an entry, in order, reminders removed."""
    assert lines(entries) == dialog


@pytest.mark.parametrize(
    "origin", [Origin.NOTIFICATION, Origin.CRON, Origin.GOAL, Origin.REALTIME, Origin.SUMMARY, Origin.COMMAND]
)
def test_what_nobody_said_is_left_out(origin: Origin) -> None:
    """Text that only the replay of the history puts there reaches neither prompt."""
    entries = [entry("machine text", origin), *said("fix login", "done"), entry("machine text", origin)]
    assert lines(entries) == "User: fix login\nAssistant: done"
    assert [message.text for message in recap_dialog(entries).messages] == ["fix login", "done"]


def test_mid_turn_words_of_the_user_stay() -> None:
    """What the user typed while the model worked is the user's word."""
    assert lines([*said("fix login", "on it"), entry("only on mobile", Origin.MID_TURN)]).endswith(
        "User: only on mobile"
    )


def test_prelude_is_left_out() -> None:
    """What a start-up put before the first prompt is no prompt."""
    assert lines([entry("context", prelude=True), *said("hello")]) == "User: hello"


@pytest.mark.parametrize(
    "command", ["/clear", "/model x", "!ls", "/clear\n!ls -la", "/compress\n", "/fix login", " /a:b c"]
)
def test_commands_are_no_intent(command: str) -> None:
    """A slash command or shell line typed as a prompt reaches neither prompt (reports B6)."""
    entries = [entry(command), *said("fix the flaky test", "done")]
    assert lines(entries) == "User: fix the flaky test\nAssistant: done"


@pytest.mark.parametrize(
    "text", ["/home/me/a.py is broken", "// is a comment?", "!", "wow! nice", "and/or", "/etc/hosts"]
)
def test_paths_and_exclamations_are_no_commands(text: str) -> None:
    """A text that only looks like a command stays."""
    assert lines(said(text)) == f"User: {text}"


def test_words_under_a_command_line_stay() -> None:
    """The lines after a command line are the user's own words."""
    assert lines(said("/fix\nthe login button")) == "User: the login button"


@pytest.mark.parametrize(
    "preamble",
    [
        "This session is being continued from a previous conversation that ran out of context. Summary: …",
        "The conversation is continued from an earlier one.",
        "Continuing from the previous session: …",
        "<state_snapshot><overall_goal>x</overall_goal></state_snapshot>",
        "This is the Qwen Code. We are setting up the context for our chat.",
        "本会话是从之前的对话继续的：……",
    ],
)
def test_continuation_preamble_is_no_intent(preamble: str) -> None:
    """The stock text of a continued conversation is never a source of a title (reports B7)."""
    entries = [entry(preamble), entry("Got it. Thanks for the context!", Origin.ASSISTANT), *said("fix login", "done")]
    assert lines(entries) == "User: fix login\nAssistant: done"


def test_pasted_file_contents_are_left_out() -> None:
    """Of a prompt that refers to files only the user's words stay."""
    text = "explain @a.py\n--- Content from referenced files ---\nAPI_KEY=1\n--- End of content ---\nbriefly"
    assert lines(said(text)) == "User: explain @a.py\nbriefly"
    assert lines(said(text.partition("\n--- End")[0])) == "User: explain @a.py"


def test_title_keeps_exactly_the_last_1000_units() -> None:
    """Contract 9: 600 and 600 characters leave a tail of 1000 units whose cut line has no role."""
    dialog = lines(said("x" * 600, "y" * 600))
    assert utf16_len(dialog) == TITLE_WINDOW_UNITS
    assert dialog == "x" * 388 + "\nAssistant: " + "y" * 600


def test_title_cut_splits_no_character() -> None:
    """Where the cut would split a surrogate pair, one unit less is kept."""
    dialog = lines(said("🚀" * 600))
    assert dialog == "🚀" * 500
    assert lines(said("🚀" * 600 + "x")) == "🚀" * 499 + "x"


def test_title_window_begins_with_a_user() -> None:
    """Of more than 20 entries the last 20 count, from the first user among them on."""
    entries = said(*(f"t{number}" for number in range(TITLE_WINDOW_ENTRIES + 1)))
    assert lines(entries).splitlines()[0] == "User: t2"
    assert lines(entries[1:]).splitlines()[0] == "Assistant: t1"


def test_long_turn_keeps_the_users_last_word() -> None:
    """A window of nothing but answers is led by the prompt that they belong to."""
    entries = [*said("fix login"), *(entry(f"step {number}", Origin.ASSISTANT) for number in range(40))]
    assert lines(entries).splitlines()[0] == "User: fix login"
    assert recap_dialog(entries).messages[0] == Message(Role.USER, "fix login")


def test_recap_is_alternating_turns_that_begin_with_the_user() -> None:
    """Messages of one role are merged; answers before the first prompt go."""
    entries = [
        entry("welcome", Origin.ASSISTANT),
        *said("a", "b"),
        entry("c", Origin.ASSISTANT),
        entry("d"),
        entry("e", Origin.MID_TURN),
    ]
    assert recap_dialog(entries).messages == (
        Message(Role.USER, "a"),
        Message(Role.ASSISTANT, "b\n\nc"),
        Message(Role.USER, "d\n\ne"),
    )
    assert recap_dialog(entries[:1]).messages == ()


def test_recap_bounds() -> None:
    """A long message keeps head and tail, the whole keeps its newest turns, the window its last 30 entries."""
    text = "head " + "x" * 9000 + " tail"
    (message,) = recap_dialog(said(text)).messages
    assert message.text.startswith("head ")
    assert message.text.endswith(" tail")
    assert utf16_len(message.text) <= RECAP_MESSAGE_UNITS
    (huge,) = recap_dialog(said("head " + "x" * 100_000 + " tail")).messages
    assert (huge.text[:5], huge.text[-5:]) == ("head ", " tail")
    many = recap_dialog(said(*["y" * 5000] * 20)).messages
    assert sum(utf16_len(message.text) for message in many) <= RECAP_TOTAL_UNITS
    assert len(many) > 4
    assert many[0].role is Role.USER
    short = recap_dialog(said(*(str(number) for number in range(40)))).messages
    assert [message.text for message in short] == [str(number) for number in range(40 - RECAP_WINDOW_ENTRIES, 40)]


def test_secrets_are_masked_and_reported() -> None:
    """Prompts hold the masked text; the secrets come back beside it, each once."""
    entries = said(f"use {SECRET}", f"{SECRET} it is")
    title = title_dialog(entries, mask_keys)
    assert title == MaskedText("User: use [secret]\nAssistant: [secret] it is", (SECRET,))
    recap = recap_dialog(entries, mask_keys)
    assert [message.text for message in recap.messages] == ["use [secret]", "[secret] it is"]
    assert recap.secrets == (SECRET,)


@pytest.mark.parametrize("tail", range(TITLE_WINDOW_UNITS - len(SECRET) - 2, TITLE_WINDOW_UNITS + 2))
def test_secret_on_the_edge_of_the_title_window(tail: int) -> None:
    """A secret that the window cuts is masked whole: no part of it gets through."""
    dialog = title_dialog(said(f"{'a ' * 300}{SECRET} {'b' * tail}"), mask_keys)
    assert not re.search(r"\d", dialog.text)


@pytest.mark.parametrize("before", range(RECAP_MESSAGE_UNITS // 2 - len(SECRET) - 4, RECAP_MESSAGE_UNITS // 2 + 4))
@pytest.mark.parametrize("rest", [5_000, 50_000])
def test_secret_on_the_edge_of_a_recap_message(before: int, rest: int) -> None:
    """The same for head and tail of a long message."""
    text = f"{'a' * before} {SECRET} {'b' * rest} {SECRET} {'c' * before}"
    (message,) = recap_dialog(said(text), mask_keys).messages
    assert not re.search(r"\d", message.text)


def test_masking_cost_is_bounded() -> None:
    """The mask never sees more than a window and its margins, however long the texts are."""
    seen: list[int] = []

    def mask(text: str) -> MaskedText:
        seen.append(utf16_len(text))
        return MaskedText(text)

    entries = said(*["word " * 200_000] * 6)
    title_dialog(entries, mask)
    assert max(seen) <= TITLE_WINDOW_UNITS + MASK_MARGIN_UNITS
    assert len(seen) == 1
    seen.clear()
    recap_dialog(entries, mask)
    assert max(seen) <= RECAP_MESSAGE_UNITS + 2 * MASK_MARGIN_UNITS
    assert len(seen) <= 2 * len(entries)


TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="a\ud83d\ude80🚀 \n", max_size=30),
    st.sampled_from(["x" * 700, "🚀" * 400, "/clear", "!ls", "<system-reminder>", "</system-reminder>", "\ud83d", " "]),
)
ENTRIES = st.lists(
    st.builds(lambda text, origin: entry(text, origin), TEXTS, st.sampled_from(list(Origin))), max_size=45
)


@settings(max_examples=100, deadline=None)
@given(ENTRIES)
def test_dialog_properties(entries: list[DialogEntry]) -> None:
    """Whatever the entries hold: bounded, encodable, alternating, never raising."""
    title = title_dialog(entries).text
    assert utf16_len(title) <= TITLE_WINDOW_UNITS
    title.encode("utf-8")
    messages = recap_dialog(entries).messages
    assert sum(utf16_len(message.text) for message in messages) <= RECAP_TOTAL_UNITS
    assert all(message.text.strip() for message in messages)
    assert [message.role for message in messages] == [Role.USER, Role.ASSISTANT] * (len(messages) // 2) + [
        Role.USER
    ] * (len(messages) % 2)
    for message in messages:
        message.text.encode("utf-8")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab é界🚀", max_size=30), st.integers(0, 40))
def test_utf16_cuts(text: str, units: int) -> None:
    """Head and tail are the longest that fit; a cut at a word is a head that ends with a whole word."""
    assert utf16_len(text) == len(text.encode("utf-16-le")) // 2
    head, tail = utf16_head(text, units), utf16_tail(text, units)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert utf16_len(head) <= units
    assert utf16_len(tail) <= units
    assert len(head) == len(text) or utf16_len(text[: len(head) + 1]) > units
    assert len(tail) == len(text) or utf16_len(text[-len(tail) - 1 :]) > units
    cut = utf16_cut_at_word(text, units)
    assert utf16_len(cut) <= units
    if len(cut.split()) > 1:
        assert cut.split()[-1] in text.split()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["a", "é", "🚀", "\ud83d", "\ude80"]), max_size=12))
def test_without_surrogates(pieces: list[str]) -> None:
    """Lone surrogates go, halves of a pair join, everything else stays in order."""
    joined = "".join(pieces).replace("\ud83d\ude80", "🚀")
    assert without_surrogates("".join(pieces)) == re.sub("[\ud800-\udfff]", "", joined)
