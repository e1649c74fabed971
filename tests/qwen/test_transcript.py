"""Whole session files: the real ones, and what was said in them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.qwen.building import REAL, file_of, line, record, said, system, titled
from watcher.core.entries import DialogEntry, Origin
from watcher.core.events import TitleSource
from watcher.core.generation import Role
from watcher.core.session import SessionState, fold
from watcher.qwen.contract import WINDOW_BYTES
from watcher.qwen.entries import LEGACY_ACKNOWLEDGEMENT
from watcher.qwen.jsonl import split_lines
from watcher.qwen.records import decode, decode_dialog
from watcher.qwen.titles import first_prompt, read_title
from watcher.qwen.transcript import active_dialog, analyse, chain_uuids, read_transcript

HOOK = "<qwen:user-prompt-submit-context>\nfrom a hook\n</qwen:user-prompt-submit-context>"
NATIVE = "Native auto title"


@dataclass(frozen=True)
class Real:
    """What stands in a real file, counted by hand: all but the side records are on the chain."""

    records: int
    side: int
    turns: int
    since_recap: int
    answers: int
    titles: tuple[tuple[str, str, int], ...]
    version: str = "0.24.4"
    snapshot: bool = True
    turn_marks: bool = False


SLUG = "Sure, I looked at that. You said: : Sure, I looked at that. You said: old version question two"
FILES = {
    "01-plain-3turn-cjk-thought-native-away-recap": Real(19, 0, 3, 0, 3, ()),
    "02-tool-turn-autotitle-rename-manual-rename-auto-reanchor": Real(
        55, 2, 5, 5, 6, ((NATIVE, "auto", 1), ("My manual name", "manual", 1), (NATIVE, "auto", 4))
    ),
    "03-compression-then-more-turns-killed": Real(44, 2, 6, 6, 6, ((NATIVE, "auto", 3),)),
    "04-rewind-then-new-turn": Real(34, 18, 2, 2, 4, ((NATIVE, "auto", 2),)),
    "05-headless-p-tool-turn": Real(8, 0, 1, 1, 2, (), snapshot=False),
    "06-acp-no-lease-external-title-between-turns": Real(
        13, 1, 2, 2, 2, (("External during lease", "auto", 1),), turn_marks=True
    ),
    "07-acp-lease-broken-by-external-append": Real(
        7, 0, 1, 1, 1, (("External during lease", "auto", 1),), turn_marks=True
    ),
    "08-resumed-autotitle-late-manual-rename": Real(
        37, 0, 5, 2, 5, ((NATIVE, "auto", 1), ("Login test hardening", "manual", 2))
    ),
    "09-external-auto-title-on-live-untitled": Real(13, 1, 2, 2, 2, (("External B on untitled", "auto", 1),)),
    "12-external-auto-title-overwritten-by-native-auto": Real(
        15, 1, 2, 2, 2, (("Ext auto", "auto", 1), (NATIVE, "auto", 2))
    ),
    "13-stale-parent-then-repair-record": Real(
        21, 1, 3, 0, 3, (("Stale parent title", "auto", 1), ("Repaired title", "auto", 1))
    ),
    "14-v0.23.0-manual-recap-branch-source": Real(16, 0, 2, 0, 2, ((NATIVE, "auto", 2),), version="0.23.0"),
    "16-v0.15.10-autotitle-recap-kebab-rename": Real(
        20, 0, 2, 0, 2, ((NATIVE, "auto", 1), (SLUG, "manual", 2)), version="0.15.10", snapshot=False
    ),
}


@pytest.fixture(params=FILES, ids=lambda name: name[:2])
def name(request: pytest.FixtureRequest) -> str:
    """The name of each real file."""
    return str(request.param)


def content(name: str) -> bytes:
    """The bytes of a real file."""
    return (REAL / f"{name}.jsonl").read_bytes()


def test_every_real_file_is_in_the_table() -> None:
    """None is left out."""
    assert {path.stem for path in REAL.glob("*.jsonl")} == set(FILES)


def test_a_real_file_gives_its_state(name: str) -> None:
    """Counters, flags and titles are what was counted by hand; no turn runs at the end and nothing is amiss."""
    expected = FILES[name]
    state = analyse(split_lines(content(name)))
    assert (state.records, state.user_turns, state.turns_since_recap, state.assistant_records) == (
        expected.records,
        expected.turns,
        expected.since_recap,
        expected.answers,
    )
    assert tuple((run.title, run.source, run.count) for run in state.titles) == expected.titles
    assert (state.version, state.has_snapshot, state.has_turn_marks) == (
        expected.version,
        expected.snapshot,
        expected.turn_marks,
    )
    assert (state.sound, state.running, state.open_calls, state.unknown_types) == (True, False, frozenset(), 0)
    assert (state.first_cwd, state.cwd, state.end) == ("/home/user/proj", "/home/user/proj", len(content(name)))
    assert state.shown_turn == state.turn


def test_a_real_file_gives_its_chain(name: str) -> None:
    """All records but the side records, without a gap."""
    expected = FILES[name]
    transcript = read_transcript(split_lines(content(name)))
    assert len(transcript.chain) == expected.records - expected.side
    assert (transcript.gaps, transcript.mixed_ids) == ((), False)
    state = analyse(split_lines(content(name)))
    assert state.leaf == transcript.chain[-1]
    assert all(state.chain.contains_on_active(uuid) for uuid in transcript.chain)
    prompts = [entry for entry in transcript.dialog if entry.origin is Origin.PROMPT]
    assert len(prompts) == expected.turns


def test_a_real_file_shows_its_title_and_prompt(name: str) -> None:
    """The picker's title is the last one; its prompt is the first thing said."""
    data = content(name)
    shown = read_title(data[:WINDOW_BYTES], data[-WINDOW_BYTES:], len(data))
    titles = FILES[name].titles
    assert (shown and (shown.title, shown.source)) == (titles[-1][:2] if titles else None)
    assert first_prompt(data) == active_dialog(split_lines(data))[0].text


def test_a_real_recap_is_found() -> None:
    """The focus-triggered recap of the first file, with its time."""
    state = analyse(split_lines(content("01-plain-3turn-cjk-thought-native-away-recap")))
    assert state.recap is not None
    assert state.recap.text == "Working on the login fix. Next: add a retry test."
    assert state.recap.at == state.last_record_at == 1_796_005_068.132
    assert (state.last_user_at, state.last_activity_at) == (1_796_005_050.683, 1_796_005_050.743)


def test_a_real_dialog_is_what_was_said() -> None:
    """Prompts and answers in order, without thoughts."""
    dialog = active_dialog(split_lines(content("01-plain-3turn-cjk-thought-native-away-recap")))
    assert [(entry.role, entry.text[:20]) for entry in dialog] == [
        (Role.USER, "please fix the flaky"),
        (Role.ASSISTANT, "Sure, I looked at th"),
        (Role.USER, "CJK 请修复登录按钮"),
        (Role.ASSISTANT, "好的,我已经修复了登录按钮 🚀。テストも"),
        (Role.USER, "THINK about adding r"),
        (Role.ASSISTANT, "Sure, I looked at th"),
    ]


def test_a_rewound_turn_is_not_said() -> None:
    """Only what is on the active branch counts."""
    dialog = active_dialog(split_lines(content("04-rewind-then-new-turn")))
    assert [entry.text for entry in dialog if entry.role is Role.USER] == ["alpha question one", "delta after rewind"]


def test_a_compression_leaves_earlier_entries_and_marks_its_own() -> None:
    """The summary stands where it was made, marked; prompts before it are still there."""
    dialog = active_dialog(split_lines(content("03-compression-then-more-turns-killed")))
    origins = [entry.origin for entry in dialog]
    assert origins[:6] == [Origin.PROMPT, Origin.ASSISTANT] * 3
    assert Origin.SUMMARY in origins[6:9]
    assert next(entry.text for entry in dialog if entry.origin is Origin.PROMPT) == "first: set up the parser project"
    assert {entry.role for entry in dialog if entry.origin is Origin.SUMMARY} == {Role.USER, Role.ASSISTANT}
    assert origins[-6:] == [Origin.PROMPT, Origin.ASSISTANT] * 3


def test_folding_a_real_file_in_any_steps_gives_the_same_state(name: str) -> None:
    """Event by event, or all at once."""
    state = SessionState()
    for each in split_lines(content(name)):
        for event in decode(each):
            state = fold(state, event)
    assert state == analyse(split_lines(content(name)))


def entry(whole: dict[str, object]) -> DialogEntry | None:
    """The only entry of a record, if any."""
    found = decode_dialog(line(whole))
    assert len(found) <= 1
    return found[0] if found else None


def text_of(whole: dict[str, object]) -> str | None:
    """The text of a record's entry."""
    found = entry(whole)
    return found.text if found else None


def message(*parts: object) -> dict[str, object]:
    """The field `message` with these parts."""
    return {"message": {"role": "user", "parts": list(parts)}}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([{"text": "a"}, {"text": "b"}], "ab"),
        ([{"text": "hm", "thought": True}, {"text": "done"}], "done"),
        ([{"text": "x", "thoughtSignature": "s"}, {"text": "y", "thoughtSignature": ""}], "y"),
        ([{"text": "calling"}, {"functionCall": {"id": "c", "args": {"text": "arg"}}}], "calling"),
        ([{"functionCall": {"id": "c"}}], None),
        ([{"text": " \n"}, {"text": 5}, 7], None),
        ([{"text": "one \ud800"}], "one \ufffd"),
        ([{"text": "<system-reminder>r</system-reminder>ask"}], "<system-reminder>r</system-reminder>ask"),
    ],
)
def test_the_text_of_a_record_is_what_was_visible(parts: list[object], text: str | None) -> None:
    """Parts joined with nothing; no thoughts, calls or signed parts; reminders are left for the prompt to remove."""
    assert text_of(record("b", "a", "assistant", **message(*parts))) == text


@pytest.mark.parametrize(
    ("payload", "parts", "text"),
    [
        (..., ["ask", HOOK], "ask"),
        (..., [HOOK], HOOK),
        (..., ["ask", HOOK + " and more"], "ask" + HOOK + " and more"),
        (..., ["ask", HOOK.replace("hook", "hook" + HOOK)], "ask" + HOOK.replace("hook", "hook" + HOOK)),
        ({"displayText": "typed", "hookContext": "x"}, ["expanded"], "typed"),
        ({"displayText": "typed"}, ["expanded", HOOK], "typed"),
        ({"displayText": "label"}, ["expanded"], "expanded"),
        ({"displayText": "", "hookContext": "x"}, ["expanded"], None),
        ({"displayText": 5, "hookContext": "x"}, ["expanded"], "expanded"),
        ({"other": 1}, ["ask", HOOK], "ask"),
    ],
)
def test_a_prompt_is_what_the_user_typed(payload: object, parts: list[str], text: str | None) -> None:
    """The display text of a prompt payload, else the message without a trailing hook context (contract 2.5)."""
    assert text_of(said("b", "a", "user", *parts, systemPayload=payload)) == text


@pytest.mark.parametrize(
    ("whole", "origin", "role"),
    [
        (said("b", "a", "user", "ask"), Origin.PROMPT, Role.USER),
        (said("b", "a", "user", "/clear"), Origin.COMMAND, Role.USER),
        (said("b", "a", "user", "/model fast"), Origin.COMMAND, Role.USER),
        (said("b", "a", "user", "!ls -l"), Origin.COMMAND, Role.USER),
        (said("b", "a", "user", "/home/user/x is broken"), Origin.PROMPT, Role.USER),
        (said("b", "a", "user", "! is negation"), Origin.PROMPT, Role.USER),
        (
            said("b", "a", "user", "Fix this: …", systemPayload={"displayText": "/fix login", "hookContext": ""}),
            Origin.PROMPT,
            Role.USER,
        ),
        (said("b", "a", "user", "x", subtype="notification"), Origin.NOTIFICATION, Role.USER),
        (said("b", "a", "user", "x", subtype="cron"), Origin.CRON, Role.USER),
        (said("b", "a", "user", "x", subtype="goal_runtime"), Origin.GOAL, Role.USER),
        (said("b", "a", "user", "x", subtype="realtime_message"), Origin.REALTIME, Role.USER),
        (said("b", "a", "user", "x", subtype="mid_turn_user_message"), Origin.MID_TURN, Role.USER),
        (said("b", "a", "user", "x", subtype="never_seen"), Origin.NOTIFICATION, Role.USER),
        (said("b", "a", "assistant", "x"), Origin.ASSISTANT, Role.ASSISTANT),
        (said("b", "a", "assistant", "x", subtype="realtime_message"), Origin.REALTIME, Role.ASSISTANT),
    ],
)
def test_every_entry_tells_where_it_comes_from(whole: dict[str, object], origin: Origin, role: Role) -> None:
    """Commands are told from prompts, the user's words from what the program put in."""
    found = entry(whole)
    assert found is not None
    assert (found.origin, found.role, found.uuid, found.parent) == (origin, role, "b", "a")


@pytest.mark.parametrize("kind", ["tool_result", "weird"])
def test_other_records_say_nothing(kind: str) -> None:
    """Tool results and unknown types have no visible text; a record without identity is none."""
    assert entry(said("b", "a", kind, "text")) is None
    assert entry(said("", "a", "user", "text")) is None
    assert entry(titled("b", "a", "text")) is None


def test_a_mid_turn_message_is_what_was_typed() -> None:
    """Its label, not the wrapped text that the model got."""
    whole = said(
        "b", "a", "user", "\n[…]: also", subtype="mid_turn_user_message", systemPayload={"displayText": "also"}
    )
    assert text_of(whole) == "also"


def test_start_up_text_is_marked() -> None:
    """A record of reminders only, and the pair of old versions; the same words later are no prelude."""
    reminder = "<system-reminder>\ncontext\n</system-reminder>\n"
    records = [
        said("a", None, "user", reminder, reminder),
        said("b", "a", "user", reminder, "hello"),
        said("c", "b", "assistant", LEGACY_ACKNOWLEDGEMENT),
    ]
    assert [found.prelude for found in active_dialog(split_lines(file_of(*records)))] == [True, False, False]
    pair = [said("a", None, "user", "This is the context"), said("b", "a", "assistant", LEGACY_ACKNOWLEDGEMENT)]
    dialog = active_dialog(split_lines(file_of(*pair, said("c", "b", "user", "hi"))))
    assert [found.prelude for found in dialog] == [True, True, False]


def test_fragments_are_one_entry() -> None:
    """Parts of the records with one uuid are joined, wherever they stand; the first parent counts (vector C15)."""
    records = [
        said("a", None, "user", "hi"),
        said("b", "a", "assistant", "Part one. "),
        said("c", "b", "user", "next"),
        said("b", "c", "assistant", "Part two."),
        titled("d", "c", "T"),
    ]
    lines = list(split_lines(file_of(*records)))
    assert chain_uuids(lines) == ["a", "b", "c", "d"]
    assert [found.text for found in active_dialog(lines)] == ["hi", "Part one. Part two.", "next"]


def test_of_a_very_long_session_the_first_and_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte of conversation is not held to make a title of its end; the chain is whole all the same."""
    monkeypatch.setattr("watcher.qwen.transcript.FIRST_BYTES", 2000)
    monkeypatch.setattr("watcher.qwen.transcript.KEPT_BYTES", 5000)
    records = [
        said(f"u{number}", f"u{number - 1}" if number else None, "user", f"prompt {number}") for number in range(99)
    ]
    lines = list(split_lines(file_of(*records)))
    assert len(chain_uuids(lines)) == 99
    numbers = [int(found.text.split()[1]) for found in active_dialog(lines)]
    first, newest = numbers[: 2000 // lines[0].length], numbers[2000 // lines[0].length :]
    assert first == list(range(len(first)))
    assert newest == list(range(99 - len(newest), 99))
    assert len(first) + len(newest) < 60
    huge = list(split_lines(file_of(*records, said("last", "u98", "user", "x" * 9000))))
    assert active_dialog(huge)[-1].text == "x" * 9000


def test_a_compression_gives_its_messages() -> None:
    """Text of either side; what is no message, or has no visible text, is left out."""
    history = [
        {"role": "user", "parts": [{"text": "summary"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "ok"}]},
        {"role": "model", "parts": [{"functionCall": {}}]},
        {"role": "other", "parts": [{"text": "x"}]},
        {"parts": 5},
        7,
    ]
    found = decode_dialog(line(system("b", "a", "chat_compression", {"compressedHistory": history})))
    assert [(each.role, each.text, each.origin) for each in found] == [
        (Role.USER, "summary", Origin.SUMMARY),
        (Role.ASSISTANT, "ok", Origin.SUMMARY),
    ]
    for payload in (None, {}, {"compressedHistory": "x"}, ...):
        assert decode_dialog(line(system("b", "a", "chat_compression", payload))) == ()


def test_a_cycle_ends_the_chain() -> None:
    """Records that are each other's parents are shown once."""
    lines = list(split_lines(file_of(said("a", "b", "user", "hi"), said("b", "a", "assistant", "yo"))))
    assert chain_uuids(lines) == ["a", "b"]
    assert analyse(lines).chain.broken


def test_an_empty_file_has_nothing() -> None:
    """No chain, no dialog, no title."""
    assert chain_uuids([]) == []
    assert active_dialog([]) == []
    assert analyse([]) == SessionState()


def test_a_source_is_kept_with_a_title() -> None:
    """The state tells an automatic title from the user's."""
    run = analyse(split_lines(file_of(titled("a", None, "T", "manual")))).title
    assert run is not None
    assert (run.source, run.is_manual) == (TitleSource.MANUAL, True)
