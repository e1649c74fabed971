"""From a session file and a model's answer to a title or none: public reports C, G12 and G15, each with its price."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.conftest import MODEL, FakeHome
from tests.support.chat_server import ChatServer, Kind, Reply, ToolCall
from tests.support.transcripts import Transcript
from watcher.core.generation import Kind as TextKind
from watcher.core.prompts import EXAMPLES
from watcher.core.reasons import Reason
from watcher.core.sanitize import NATIVE_EXAMPLES
from watcher.drafting import Draft, NoText, Ready
from watcher.edge.text_model import Abort
from watcher.qwen.paths import session_ref
from watcher.workplace import Workplace

TITLE = "Fix the login redirect"
SPOKEN = "ZEBRA-MARZIPAN"
"""Stands in every conversation, and must stand in no reason."""


@pytest.fixture(name="place")
def _place(env: dict[str, str]) -> Iterator[Workplace]:
    """What the service and the commands work with, in this process."""
    with Workplace(env) as place:
        yield place


def ask(place: Workplace, session: Transcript, kind: TextKind = TextKind.TITLE) -> Ready | NoText:
    """The way from the file to the text."""
    ref = session_ref(str(session.path))
    assert ref is not None
    settings = place.settings_of(session.cwd, ref.runtime_base)
    draft = place.drafter.prepare(kind, ref, settings)
    return place.drafter.ask(draft, Abort()) if isinstance(draft, Draft) else draft


def talk(home: FakeHome, *prompts: str) -> Transcript:
    """A session in which the user says this."""
    session = home.session(turns=0)
    for prompt in prompts or (f"Please fix the login redirect of {SPOKEN}",):
        session.turn(prompt, "Done.")
    return session


@dataclass(frozen=True)
class Answer:
    """What the model says in the function call, and what becomes of it: the title, or None for none."""

    name: str
    said: str
    title: str | None


def echoes() -> Iterator[Answer]:
    """Report C1: an example of the prompt comes back, as it is or in other clothes."""
    for example in (*EXAMPLES, *NATIVE_EXAMPLES):
        yield Answer(f"C1 echo {example}", example, None)
        yield Answer(f"C1 dressed echo {example}", f'"{example.upper()}."', None)


ANSWERS = (
    *echoes(),
    Answer("C4 no access", "I cannot access external URLs, so I can't summarize this page.", None),
    Answer("C4 sorry", "I'm sorry, but I can't help with that.", None),
    Answer("C4 as an AI", "As an AI language model, I do not have access to your files", None),
    Answer("C4 Chinese", "抱歉，我无法访问外部链接。", None),
    Answer("C6 greeting", "Hello! How can I help you today?", None),
    Answer("C6 Chinese greeting", "你好！有什么可以帮你的吗？", None),
    Answer("C6 an answer", "Sure! I have fixed the login redirect for you. Let me know if you need more.", None),
    Answer("C6 a question", "Could you please share the code of the login form?", None),
    Answer("C10 straight quotes", f'"{TITLE}"', TITLE),
    Answer("C10 curly quotes", f"“{TITLE}”", TITLE),
    Answer("C10 corner brackets", f"「{TITLE}」", TITLE),
    Answer("C10 guillemets", f"«{TITLE}»", TITLE),
    Answer("C10 fence", f"```\n{TITLE}\n```", TITLE),
    Answer("C10 label", f"Title: {TITLE}", TITLE),
    Answer("C10 heading", f"# {TITLE}", TITLE),
    Answer("C10 bold", f"**{TITLE}**", TITLE),
    Answer("C10 full stop", f"{TITLE}。", TITLE),
    Answer("C10 everything", f'## **Title:** "{TITLE}".', TITLE),
    Answer("K3 colours", f"\x1b[31m{TITLE}\x1b[0m", TITLE),
    Answer("K3 bare background", f"]11;rgb:00/00/00\x07{TITLE}", TITLE),
)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.name)
def test_an_answer_becomes_a_title_or_none(
    home: FakeHome, server: ChatServer, place: Workplace, answer: Answer
) -> None:
    """One request each; what is rejected has the reason `empty_result`, and the reason gives nothing away."""
    server.title = answer.said
    made = ask(place, talk(home))
    if answer.title is None:
        assert isinstance(made, NoText), made
        assert made.reason is Reason.EMPTY_RESULT
        assert SPOKEN not in made.detail
        assert answer.said not in made.detail
    else:
        assert isinstance(made, Ready), made
        assert made.text == answer.title
    assert len(server.requests()) == 1


def test_what_is_put_before_the_prompt_is_not_sent(home: FakeHome, server: ChatServer, place: Workplace) -> None:
    """Report C3: reminders, skills and memory of 8 KiB before a "hello": the request holds only what was said."""
    reminder = f"<system-reminder>\n{'Skill of the day. ' * 500}\n</system-reminder>\n"
    session = home.session(turns=0)
    session.turn(f"{reminder}hello", "Hi!")
    ask(place, session)
    [request] = server.requests()
    sent = json.dumps(request.body)
    assert "Skill of the day" not in sent
    assert "User: hello" in request.prompt
    assert len(sent) < 8192


def test_a_long_paste_costs_no_more(home: FakeHome, server: ChatServer, place: Workplace) -> None:
    """Report G15: 500 KB in the first message, and a request of less than 8 KB."""
    log = "2026-01-01 ERROR login failed for user\n" * 13_000
    ask(place, talk(home, f"Fix this log:\n{log}"))
    [request] = server.requests()
    assert len(json.dumps(request.body)) < 8192


def test_what_one_model_taught_is_not_sent_to_another(home: FakeHome, server: ChatServer, place: Workplace) -> None:
    """Report G12: the fast model refuses `temperature` and functions; the main model's recap request knows nothing of
    it.
    """
    refused = {MODEL}
    server.respond = lambda request: (
        Reply("Unsupported parameter: 'temperature' is not supported with this model.", status=400)
        if request.model in refused and "temperature" in request.body
        else None
    )
    assert isinstance(ask(place, talk(home)), Ready)
    with Workplace({**place.environ, "QWEN_WATCHER_MODEL__NAME": "other-model"}) as other:
        assert isinstance(ask(other, talk(home), TextKind.RECAP), Ready)
    first, second, recap = server.requests()
    assert ("temperature" in first.body, "temperature" in second.body) == (True, False)
    assert (recap.model, recap.body["temperature"]) == ("other-model", 0.3)


def test_the_same_recap_is_paid_once(home: FakeHome, server: ChatServer, place: Workplace) -> None:
    """Report C12: nothing has changed, so the text is the one before, at no cost; a new turn asks anew."""
    session = talk(home)
    texts = [ask(place, session, TextKind.RECAP) for _ in range(3)]
    assert [text for text in texts if isinstance(text, Ready)] == texts
    assert len(server.requests(Kind.RECAP)) == 1
    session.turn("And the logout, please", "Done.")
    ask(place, session, TextKind.RECAP)
    assert len(server.requests(Kind.RECAP)) == 2


def test_a_call_of_another_function_is_no_title(home: FakeHome, server: ChatServer, place: Workplace) -> None:
    """A model that takes the conversation for its own and calls a tool of it."""
    server.respond = lambda _: Reply(tool_calls=[ToolCall("shell", {"command": f"rm -rf {Path.home()}"})])
    made = ask(place, talk(home))
    assert isinstance(made, NoText)
    assert made.reason is Reason.EMPTY_RESULT
