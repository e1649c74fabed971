"""What the tests of the text model share: prompts with marked texts, a store and a budget in memory, a clock."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from watcher.core.generation import Kind, Message, Outcome, Prompt, Role
from watcher.core.secret import SecretText
from watcher.edge.text_model import Abort, Endpoint, Gate, Learned, TextModelClient, WireApi

SPOKEN = "ZEBRA-MARZIPAN"
"""Stands in every prompt, and must stand in no log line, error or stored fact."""
KEY = "sk-test-QUAGGA-0123456789"
"""The API key of every endpoint; the same holds."""
NOW = 1_800_000_000.0


def title_prompt(**changes: object) -> Prompt:
    """A title request."""
    fields: dict[str, object] = {
        "kind": Kind.TITLE,
        "system": f"Give a title. Only the JSON object. {SPOKEN}",
        "messages": (Message(Role.USER, f"User: please fix the login of {SPOKEN}"),),
        "temperature": 0.2,
        "max_tokens": 100,
        "answer_key": "title",
    }
    return Prompt(**{**fields, **changes})  # type: ignore[arg-type]


def recap_prompt() -> Prompt:
    """A recap request, with real turns."""
    return Prompt(
        kind=Kind.RECAP,
        system=f"Where were we? {SPOKEN}",
        messages=(
            Message(Role.USER, f"fix the login of {SPOKEN}"),
            Message(Role.ASSISTANT, "Done, tests are running."),
            Message(Role.USER, "Recap, please."),
        ),
        temperature=0.3,
        max_tokens=300,
    )


def make_endpoint(
    base_url: str, protocol: WireApi = WireApi.OPENAI, model: str = "small-model", **more: object
) -> Endpoint:
    """An endpoint with a key and a short timeout."""
    fields: dict[str, object] = {"api_key": SecretText(KEY), "timeout_seconds": 10.0, **more}
    return Endpoint(protocol, base_url, model, **fields)  # type: ignore[arg-type]


class MemoryStore:
    """Keeps what was learned as the text that a real store would hold."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.puts = 0

    def get(self, endpoint_key: str) -> Learned | None:
        text = self.texts.get(endpoint_key)
        return None if text is None else Learned.from_json(text)

    def put(self, endpoint_key: str, learned: Learned) -> None:
        self.puts += 1
        self.texts[endpoint_key] = learned.to_json()


class CountingBudget:
    """Counts requests, and permits `limit` of them."""

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self.taken = 0
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            if self.taken >= self.limit:
                return False
            self.taken += 1
            return True


@dataclass
class Desk:
    """One process's worth of what clients share. `now` is the clock's reading."""

    store: MemoryStore = field(default_factory=MemoryStore)
    budget: CountingBudget = field(default_factory=CountingBudget)
    gate: Gate = field(default_factory=Gate)
    environ: Mapping[str, str] = field(default_factory=dict)
    now: float = NOW

    def client(self, endpoint: Endpoint) -> TextModelClient:
        return TextModelClient(
            endpoint,
            learned=self.store,
            budget=self.budget,
            gate=self.gate,
            clock=lambda: self.now,
            environ=self.environ,
        )

    def ask(self, endpoint: Endpoint, prompt: Prompt | None = None) -> Outcome:
        """One call of `generate`."""
        return self.client(endpoint).generate(prompt or title_prompt(), Abort())
