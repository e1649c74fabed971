"""What the session picker shows, from the two ends of a file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.qwen.building import encoded, file_of, record, said, titled
from watcher.core.events import TitleSource
from watcher.qwen.contract import WINDOW_BYTES
from watcher.qwen.jsonl import split_lines
from watcher.qwen.titles import Evidence, PickerTitle, first_prompt, read_title, torn_titles


def shown(data: bytes) -> PickerTitle | None:
    """The title of a file with this content."""
    return read_title(data[:WINDOW_BYTES], data[-WINDOW_BYTES:], len(data))


def test_the_last_title_wins() -> None:
    """By position in the file, whoever gave it."""
    data = file_of(titled("a", None, "One", "manual"), titled("b", "a", "Two"))
    assert shown(data) == PickerTitle("Two", TitleSource.AUTO, Evidence.RECORD)


def test_an_empty_title_hides_older_ones() -> None:
    """It says that there is none."""
    assert shown(file_of(titled("a", None, "One"), titled("b", "a", ""))) is None


def test_an_empty_title_at_the_end_hides_one_at_the_start() -> None:
    """The start is looked at only when the end has no title at all."""
    filler = said("f", "a", "assistant", "x" * WINDOW_BYTES)
    assert shown(file_of(titled("a", None, "One"), filler, titled("b", "f", ""))) is None


@pytest.mark.parametrize(
    ("payload", "title", "source"),
    [
        (b'"customTitle":"A","titleSource":"auto"', "A", TitleSource.AUTO),
        (b'"customTitle" \t: "A","titleSource" : "manual"', "A", TitleSource.MANUAL),
        (b'"titleSource":"auto","customTitle":"A"', "A", TitleSource.AUTO),
        (b'"customTitle":"A","titleSource":"robot"', "A", None),
        (b'"customTitle":"A","titleSource":5', "A", None),
        (b'"customTitle":"A","customTitle":"B","titleSource":"auto"', "B", TitleSource.AUTO),
        (b'"customTitle":"A","titleSource":"auto","titleSource":"manual"', "A", TitleSource.AUTO),
        (b'"customTitle":"\\u767b\\"\\\\ \\ud83d\\ude00"', '登"\\ 😀', None),
        (b'"customTitle":"bad \\q escape"', "bad \\q escape", None),
        (b'"customTitle":"lone \\ud800"', "lone \ufffd", None),
    ],
)
def test_fields_are_found_as_text(payload: bytes, title: str, source: TitleSource | None) -> None:
    """Blanks around the colon, any order, the last title and first source of the line; bad escapes as they stand."""
    found = shown(b'{"type":"system","subtype":"custom_title","systemPayload":{' + payload + b"}}\n")
    assert found is not None
    assert (found.title, found.source) == (title, source)


@pytest.mark.parametrize(
    "text",
    [
        b'{"subtype": "custom_title","customTitle":"A"}\n',
        b'{"subtype":"custom_title"}\n{"customTitle":"A"}\n',
        b'{"subtype":"custom_title","customTitle":"A\n',
        b'{"subtype":"custom_title","customTitle":"A\\',
        b'{"subtype":"custom_title","customTitle":"A\rB"}\n',
        b'{"subtype":"custom_title","customTitle":5}\n',
        b'{"subtype":"custom_title","customTitle"\n:"A"}\n',
        b'{\\"subtype\\":\\"custom_title\\",\\"customTitle\\":\\"A\\"}\n',
        b"",
    ],
)
def test_other_text_is_no_title(text: bytes) -> None:
    """The marker must stand without a blank on the same line as a whole string."""
    assert shown(text) is None


def test_a_title_at_the_start_is_shown_when_the_end_has_none() -> None:
    """The first window is read up to its last newline."""
    filler = said("f", "a", "assistant", "x" * 2 * WINDOW_BYTES)
    assert shown(file_of(titled("a", None, "Head"), filler)) == PickerTitle("Head", TitleSource.AUTO, Evidence.RECORD)
    across = encoded(said("u", None, "user", "x" * (WINDOW_BYTES - 400))) + b"\n" + encoded(titled("a", "u", "y" * 400))
    assert shown(across + b"\n" + encoded(filler) + b"\n") is None


def test_a_title_on_a_line_that_begins_before_the_window_is_taken_for_real() -> None:
    """Its record cannot be parsed, so it is no proven spoof."""
    data = encoded(record("a", None, "assistant", pad="x" * WINDOW_BYTES, subtype="custom_title", customTitle="Half"))
    assert shown(data + b"\n") == PickerTitle("Half", None, Evidence.TORN)


def test_a_title_record_glued_to_another_is_a_record() -> None:
    """Vector T12: the last title, the first source of the line."""
    data = encoded(titled("a", None, "One")) + encoded(titled("b", "a", "Two", "manual")) + b"\n"
    assert shown(data) == PickerTitle("Two", TitleSource.AUTO, Evidence.RECORD)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                b'"customTitle"',
                b'"titleSource"',
                b'"subtype":"custom_title"',
                b":",
                b'"',
                b"\\",
                b"\n",
                b"\r",
                b" ",
                b"A",
                b"\xff",
            ]
        ),
        max_size=40,
    ),
    st.integers(0, 50),
)
def test_any_text_gives_a_title_or_none(parts: list[bytes], cut: int) -> None:
    """Nothing in a window raises, and a title that is found is not empty."""
    data = b"".join(parts)
    found = read_title(data[:cut], data[cut:], len(data))
    assert found is None or found.title


@pytest.mark.parametrize(
    ("unit", "title"),
    [
        (b'"subtype":"custom_title""customTitle":', "subtype"),
        (b'"subtype":"custom_title""customTitle"' + b" " * 500, None),
        (b'"subtype":"custom_title"\n', None),
        (b'"subtype":"custom_title""customTitle":"\\', '"subtype'),
        (b'"subtype":"custom_title""customTitle":"\\\\', "\\"),
        (b'"subtype":"custom_title""customTitle":"', None),
        (b'"subtype":"custom_title""customTitle":"A"', "A"),
        (b'"', None),
        (b"\\", None),
    ],
)
def test_a_hostile_window_is_answered(unit: bytes, title: str | None) -> None:
    """Copies of what nearly is a title fill the window; the answer is that of a few copies, and comes at once."""
    few, many = shown(unit * 3), shown(unit * (WINDOW_BYTES // len(unit)))
    assert (few.title if few else None) == (many.title if many else None) == title


@pytest.mark.parametrize(
    ("records", "prompt"),
    [
        ([said("a", None, "user", "fix it", "now")], "fix it"),
        ([said("a", None, "user", "", "now"), said("b", "a", "user", "second")], "second"),
        ([said("a", None, "user", "x" * 300)], "x" * 200),
        ([said("a", None, "user", "😀" * 300)], "😀" * 200),
        ([said("a", None, "user", "note", subtype="cron"), said("b", "a", "user", "real")], "real"),
        ([said("a", None, "user", "long text", systemPayload={"displayText": "/fix"})], "/fix"),
        ([said("a", None, "user", "hidden", systemPayload={"displayText": ""}), said("b", "a", "user", "b")], "b"),
        ([said("a", None, "assistant", "x")], ""),
        ([], ""),
    ],
)
def test_the_first_prompt_is_found(records: list[dict[str, object]], prompt: str) -> None:
    """The first text part or display text of the first plain user record that has one, cut at 200 code points."""
    assert first_prompt(file_of(*records)) == prompt


def test_the_first_prompt_is_looked_for_in_ten_lines() -> None:
    """Blank lines do not count; a prompt on the eleventh line is not seen."""
    notes = [record(f"n{index}", None, "system", subtype="ui_telemetry") for index in range(9)]
    prompt = said("p", "n8", "user", "here")
    assert first_prompt(b"\n \n\r\n".join(encoded(each) for each in [*notes, prompt])) == "here"
    assert first_prompt(file_of(*notes, notes[0], prompt)) == ""


def test_a_line_cut_at_the_end_of_the_head_is_not_seen() -> None:
    """Half a record is no record."""
    data = file_of(said("a", None, "user", "hello"))
    assert first_prompt(data[:-5]) == ""


def torn(data: bytes, *ours: str) -> list[tuple[str, TitleSource | None, str]]:
    """The titles on lines that are no whole records."""
    found = (title for line in split_lines(data) for title in torn_titles(line, ours))
    return [(each.title, each.source, each.uuid) for each in found]


def test_a_name_that_was_cut_off_is_found_on_its_line() -> None:
    """Vector T09; a whole record is none, and neither is a line that was cut before its name."""
    whole = file_of(titled("a", None, "One", "manual"))
    assert torn(whole) == []
    assert torn(whole[: whole.index(b'"titleSource"')]) == [("One", None, "")]
    assert torn(whole[:40]) == []


def test_a_record_of_ours_on_a_cut_line_is_known() -> None:
    """What stood before it counts on its own; what the whole line shows is ours."""
    name = file_of(titled("a", None, "One", "manual"))
    ours = file_of(titled("b", "a", "Two"))
    data = name[: name.index(b'"titleSource"')] + ours
    assert torn(data, "b") == [("One", None, ""), ("Two", TitleSource.AUTO, "b")]
    assert torn(name[:40] + ours, "b") == [("Two", TitleSource.AUTO, "b")]
    assert torn(ours, "b") == []
