"""Thoughts never get through, and the answer is found wherever small models put it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.edge.text_model.extract import extract, extract_argument, without_thoughts
from watcher.edge.text_model.reply import decode

PLAIN = st.text(st.characters(exclude_characters="<>[]{}|◁▷\"'\\", exclude_categories=["Cs"]), max_size=40)
TAGS = st.sampled_from(
    [
        ("<think>", "</think>"),
        ("<THINKING>", "</THINKING>"),
        ("< reasoning >", "< /reasoning >"),
        ("[THINK]", "[/THINK]"),
        ("<thought>", "</thought>"),
        ("◁think▷", "◁/think▷"),
        ('<think type="x">', "</think>"),
    ]
)


@given(PLAIN, PLAIN, TAGS)
def test_a_closed_thought_is_removed(thought: str, answer: str, tags: tuple[str, str]) -> None:
    """What stands between the tags is gone, what follows stays."""
    assert without_thoughts(f"{tags[0]}{thought}{tags[1]}{answer}") == (answer.strip(), True)


@given(PLAIN, PLAIN, TAGS)
def test_an_unclosed_thought_takes_the_rest_with_it(thought: str, answer: str, tags: tuple[str, str]) -> None:
    """Nothing after an opening tag without a closing one is an answer."""
    assert without_thoughts(f"{answer}{tags[0]}{thought}") == (answer.strip(), True)


@given(PLAIN, PLAIN, TAGS)
def test_a_thought_that_the_template_opened_is_removed(thought: str, answer: str, tags: tuple[str, str]) -> None:
    """Everything before a closing tag that nothing opened is thought."""
    assert without_thoughts(f"{thought}{tags[1]}{answer}") == (answer.strip(), True)


def test_a_stray_closing_tag_makes_all_before_it_a_thought() -> None:
    """Also what stood between two thoughts."""
    assert without_thoughts("a<think>b</think>c</think>Answer")[0] == "Answer"


def test_nested_thoughts_are_removed_as_a_whole() -> None:
    """A tag inside of a thought does not end it."""
    assert without_thoughts("<think>a <think>b</think> c</think>Answer")[0] == "Answer"


@given(st.text(max_size=60))
def test_text_without_tags_is_left_alone(text: str) -> None:
    """No tag, no change but the trimming."""
    if not any(mark in text.lower() for mark in ("<", "[", "◁")):
        assert without_thoughts(text) == (text.strip(), False)


@given(st.text(max_size=60), st.sampled_from(["", "Sure:\n```json\n", "<think>no {}</think>"]))
def test_the_value_is_found_in_json_wherever_it_stands(title: str, before: str) -> None:
    """Any title survives, whatever stands before the object."""
    if without_thoughts(title)[1]:
        return
    found = extract(before + json.dumps({"other": 1, "title": title}), "title")
    assert found.text == title.encode("utf-16", "ignore").decode("utf-16").strip()
    assert found.closed


@pytest.mark.parametrize(
    ("text", "expected", "closed"),
    [
        ('{"title": "Fix it"', "Fix it", True),
        ('{"title": "Fix i', "Fix i", False),
        ('{"title":"Fix \\"it\\""}', 'Fix "it"', True),
        ("{'title': 'Don\\'t \"panic\"'}", 'Don\'t "panic"', True),
        ('{title: "Fix it"}', "Fix it", True),
        ('{"Title": "Fix it"}', "Fix it", True),
        ('{"title": "Fix\nit"}', "Fix\nit", True),
        ('{"name":"give_answer","arguments":"{\\"title\\": \\"Fix it\\"}"}', "Fix it", True),
        ("<title>Fix it</title>", "Fix it", True),
        ('[{"title": "Fix it"}]', "Fix it", True),
        ('{"a": {"b": 1}} {"title": "Fix it"}', "Fix it", True),
        ("Fix it", "Fix it", False),
        ('{"name": "Fix it"}', "", False),
        ("<tool_call>broken", "", False),
        ('{"title": 5}', "", False),
        ('{"title": ["Fix it"]}', "", False),
        ("", "", False),
    ],
)
def test_json_of_all_sorts(text: str, expected: str, closed: bool) -> None:
    """Whole, cut and odd objects give their title; JSON without one gives none."""
    found = extract(text, "title")
    assert (found.text, found.closed) == (expected, closed)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"title": "Fix it"}, "Fix it"),
        ({"title": "<think>hm</think>Fix it"}, "Fix it"),
        ({"title": "Hide <think> tags"}, "Hide <think> tags"),
        ({}, ""),
        (None, ""),
        (["Fix it"], ""),
        ("Fix it", "Fix it"),
        ('{"titel": "Fix it"}', ""),
        ('{"title": "Fix it"}{"title": "Fix it"}', "Fix it"),
    ],
)
def test_arguments_of_all_sorts(arguments: object, expected: str) -> None:
    """Objects, texts and rubbish."""
    assert extract_argument(arguments, "title").text == expected


@given(st.text(st.sampled_from("{}\"\\:<>/titlehnk '[]|"), max_size=200), st.sampled_from(["title", None]))
@settings(max_examples=200)
def test_rubbish_never_raises(text: str, key: str | None) -> None:
    """Whatever comes, something comes out."""
    extract(text, key)
    extract_argument(text, "title")
    decode(text.encode())


@pytest.mark.parametrize(
    "piece", ['{"title":', "{", "<think>", "</think>", '{"title": "', "'title': '", "\\", "<", "<|channel|>", '{"a":[']
)
def test_64_kib_of_anything_take_no_time(piece: str) -> None:
    """Every pattern is linear: an answer of the largest size is read in far less than a second."""
    text = piece * (65_536 // len(piece))
    started = time.process_time()
    extract(text, "title")
    extract_argument(text, "title")
    assert time.process_time() - started < 2.0
