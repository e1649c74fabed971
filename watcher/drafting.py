"""From a session file to a cleaned title or recap: read the dialog, mask it, ask the model, clean the answer.

file ─► active dialog ─► window, mask ─► prompt ─► text model ─► sanitize ─► text
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from watcher.config import Config
from watcher.core.dialog import recap_dialog, spoken, title_dialog
from watcher.core.digest import digest_of
from watcher.core.entries import DialogEntry
from watcher.core.generation import Failure, Kind, Outcome, Prompt, Role
from watcher.core.language import Language, dominant_language, matches
from watcher.core.prompts import EXAMPLES, recap_prompt, title_prompt
from watcher.core.reasons import Reason
from watcher.core.redact import looks_secret, mask
from watcher.core.sanitize import extract_recap, sanitize_recap, sanitize_title
from watcher.core.text import Mask, unmasked
from watcher.edge.call_locks import CallLocks
from watcher.edge.files import RealFiles
from watcher.edge.store import MadeText, Store
from watcher.edge.text_model import (
    Abort,
    Connect,
    Endpoint,
    Gate,
    Learned,
    NotAsked,
    TextModelClient,
    WireApi,
    in_this_process,
)
from watcher.errors import StateError, words_of
from watcher.qwen.model_choice import Choice, Missing, ModelChoice, explicit_choice
from watcher.qwen.paths import SessionRef
from watcher.qwen.reading import lines_of
from watcher.qwen.settings import QwenSettings
from watcher.qwen.transcript import active_dialog

DIALOG_WINDOW_BYTES: Final = 64 * 1024 * 1024
EXTRACTIVE: Final = "extractive"
LANGUAGE_MESSAGES: Final = 20
LANGUAGE_CHARACTERS: Final = 8000
MAX_MEMORY_BYTES: Final = 64 * 1024
LOCK_TIMEOUTS: Final = 2.5
"""How long to wait for somebody else's call for the same text, in times of one request: it may take two (`client`)."""


class CallCounter(Protocol):
    """Counts model calls; `take` is asked before every HTTP request."""

    def take(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Draft:
    """A request that is ready to be sent: the session it is for, the prompt, and the endpoint that answers it."""

    kind: Kind
    session_id: str
    prompt: Prompt
    endpoint: Endpoint
    language: Language | None


@dataclass(frozen=True, slots=True)
class Ready:
    """A text that needed no model call."""

    kind: Kind
    text: str
    model: str


@dataclass(frozen=True, slots=True)
class NoText:
    """There is no text, and why."""

    kind: Kind
    reason: Reason
    detail: str = ""
    host: str = ""
    status: int | None = None
    retry_at: float | None = None
    asked: bool = True
    """False when no request was sent: a pause or an open circuit stood in the way."""
    denied: bool = False
    """The account was refused: nothing is asked until the settings change."""


class Drafter:
    """Makes drafts and turns model answers into texts. `prepare` reads the file; `ask` may run in a worker thread."""

    def __init__(
        self,
        config: Callable[[], Config],
        store: Store,
        gate: Gate,
        budget: CallCounter,
        *,
        environ: Mapping[str, str],
        clock: Callable[[], float],
        note_tokens: Callable[[int, int], None],
        calls: CallLocks,
        connect: Connect = in_this_process,
    ) -> None:
        self._config = config
        self._store = store
        self._calls = calls
        self._connect = connect
        self._learned = StoreLearned(store)
        self._gate = gate
        self._budget = budget
        self._environ = environ
        self._clock = clock
        self._note_tokens = note_tokens

    def prepare(self, kind: Kind, ref: SessionRef, settings: QwenSettings) -> Draft | Ready | NoText:
        """What to send for this session, or the finished text of the extractive model. Reads the file, at most 64
        MiB.
        """
        try:
            entries = read_dialog(ref.path)
        except OSError as error:
            return NoText(kind, Reason.NOT_FOUND, words_of(error))
        if self._config().model.source == EXTRACTIVE:
            # A megabyte of words and patterns that a session with another model does not need.
            from watcher.core.extractive import extract_recap_text, extract_title  # noqa: PLC0415

            extract = extract_title if kind is Kind.TITLE else extract_recap_text
            text = extract(entries, self._masker)
            if text is None:
                return NoText(kind, Reason.EMPTY_HISTORY, "nothing in it names a task")
            if looks_secret(text):
                return NoText(kind, Reason.EMPTY_RESULT, "the text looks like a secret")
            return Ready(kind, text, EXTRACTIVE)
        choice = self.choose(kind, settings)
        if isinstance(choice, Missing):
            return NoText(kind, Reason.NO_FAST_MODEL, choice.reason)
        return self._draft(kind, ref, entries, settings, self._endpoint(choice))

    def choose(self, kind: Kind, settings: QwenSettings) -> Choice:
        """The model for this kind of text; see `choose_model`."""
        return choose_model(kind, self._config(), settings, self._environ)

    def held(self, kind: Kind, settings: QwenSettings) -> NotAsked | None:
        """Why the model would not be asked now (a pause of its endpoint), None when it would."""
        choice = None if self._config().model.source == EXTRACTIVE else self.choose(kind, settings)
        return None if choice is None or isinstance(choice, Missing) else self.client(self._endpoint(choice)).held()

    @property
    def _masker(self) -> Mask:
        """What takes secrets out, also out of texts that stay here: titles and recaps are shown (`privacy.redact`)."""
        return mask if self._config().privacy.redact else unmasked

    def _endpoint(self, choice: ModelChoice) -> Endpoint:
        return endpoint_of(choice, self._config().model.timeout_seconds)

    def _draft(
        self, kind: Kind, ref: SessionRef, entries: list[DialogEntry], settings: QwenSettings, endpoint: Endpoint
    ) -> Draft | NoText:
        masker = self._masker
        wish = self._config().model.language or settings.output_language_text or settings.output_language or None
        if kind is Kind.TITLE:
            dialog = title_dialog(entries, masker)
            if not dialog.text.strip():
                return NoText(kind, Reason.EMPTY_HISTORY, "nobody has said anything yet")
            language = _language(entries)
            prompt = title_prompt(dialog, language, wish)
            return Draft(kind, ref.session_id, prompt, endpoint, None if wish else language)
        turns = recap_dialog(entries, masker)
        if not turns.messages:
            return NoText(kind, Reason.EMPTY_HISTORY, "nobody has said anything yet")
        language = _language(entries)
        memory = masker(user_memory(settings.user_memory)) if self._config().recap.user_memory else None
        prompt = recap_prompt(turns, language, wish, memory)
        return Draft(kind, ref.session_id, prompt, endpoint, None if wish else language)

    def client(self, endpoint: Endpoint) -> TextModelClient:
        """A client for this endpoint, sharing pauses, budget and what was learned with all others."""
        return TextModelClient(
            endpoint,
            learned=self._learned,
            budget=self._budget,
            gate=self._gate,
            clock=self._clock,
            environ=self._environ,
            connect=self._connect,
        )

    def ask(self, draft: Draft, abort: Abort, *, again: bool = False) -> Ready | NoText:
        """Send the draft and clean what comes back. Blocks; made for a worker thread.

        Only one call for the same text runs at a time, in all processes of this state directory, and a request that has
        been answered is not sent again. `again`: the user wants another answer, so only one that somebody else's call
        gave while this one waited for it will do.
        """
        patience = LOCK_TIMEOUTS * draft.endpoint.timeout_seconds
        try:
            with self._calls.hold(draft.session_id, draft.kind.value, abort, patience) as waited:
                if waited is None:
                    if abort.is_set():
                        return NoText(draft.kind, Reason.ABORTED)
                    return NoText(draft.kind, Reason.MODEL_ERROR, "another call for this session does not end")
                before = self._answered_before(draft) if waited or not again else None
                return before or self._ask(draft, abort)
        except OSError as error:
            return NoText(draft.kind, Reason.MODEL_ERROR, f"cannot take the lock of the call: {words_of(error)}")

    def _answered_before(self, draft: Draft) -> Ready | None:
        """The text that the same request gave."""
        try:
            made = self._store.made(draft.session_id, draft.kind)
        except StateError:
            return None
        same = made is not None and made.request == _digest(draft)
        return Ready(draft.kind, made.text, made.model) if made is not None and same else None

    def _ask(self, draft: Draft, abort: Abort) -> Ready | NoText:
        outcome = self.client(draft.endpoint).generate(draft.prompt, abort)
        # The answer is paid: a full disk costs the next one a call, not this one its answer.
        with contextlib.suppress(StateError):
            if outcome.tokens_in or outcome.tokens_out:
                self._note_tokens(outcome.tokens_in or 0, outcome.tokens_out or 0)
        made = clean(draft, outcome)
        if isinstance(made, Ready):
            with contextlib.suppress(StateError):  # before the lock is given up
                kept = MadeText(_digest(draft), made.text, made.model, self._clock())
                self._store.put_made(draft.session_id, draft.kind, kept)
        return made


def _digest(draft: Draft) -> bytes:
    """What tells two requests apart; nothing of the conversation can be read from it."""
    words = [draft.endpoint.key, draft.prompt.system, *(f"{each.role}\0{each.text}" for each in draft.prompt.messages)]
    return digest_of("\0\0".join(words).encode("utf-8", "surrogatepass"))


def choose_model(kind: Kind, config: Config, settings: QwenSettings, environ: Mapping[str, str]) -> Choice:
    """The model for this kind of text: the main model may stand in for a recap, never for a title (promise 3).

    Not for `model.source = "extractive"`, which asks none.
    """
    model = config.model
    if model.source == "explicit":
        return explicit_choice(model.api, model.name or "", model.base_url, model.api_key_env, environ)
    choice = settings.fast_model
    if isinstance(choice, Missing) and kind is Kind.RECAP and config.recap.fallback_to_main:
        main = settings.main_model
        return choice if isinstance(main, Missing) else main
    return choice


def _language(entries: Iterable[DialogEntry]) -> Language | None:
    """The language that the user writes in, lately."""
    texts = [message.text for message in spoken(entries) if message.role is Role.USER]
    return dominant_language("\n".join(texts[-LANGUAGE_MESSAGES:])[-LANGUAGE_CHARACTERS:])


def clean(draft: Draft, outcome: Outcome) -> Ready | NoText:
    """The text that a model's answer gives, or why it gives none."""
    if isinstance(outcome, Failure):
        asked = not isinstance(outcome, NotAsked)
        return NoText(
            draft.kind,
            outcome.reason,
            outcome.detail,
            outcome.host,
            outcome.status,
            outcome.retry_at,
            asked,
            outcome.denied,
        )
    masked = draft.prompt.masked
    if draft.kind is Kind.TITLE:
        text = sanitize_title(outcome.text, EXAMPLES, masked)
    else:
        found = extract_recap(outcome.text)
        text = sanitize_recap(found, masked) if found is not None else None
    if text is None:
        return NoText(draft.kind, Reason.EMPTY_RESULT, "the answer held no usable text", draft.endpoint.host)
    if looks_secret(text):
        return NoText(draft.kind, Reason.EMPTY_RESULT, "the answer looks like a secret", draft.endpoint.host)
    if draft.language is not None and not matches(text, draft.language):
        detail = f"the answer is not in {draft.language.name}, the language of the conversation"
        return NoText(draft.kind, Reason.EMPTY_RESULT, detail, draft.endpoint.host)
    return Ready(draft.kind, text, outcome.model)


def read_dialog(path: str) -> list[DialogEntry]:
    """What was said on the active branch of a session file, from at most its last 64 MiB. Raises `OSError`."""
    files = RealFiles()
    fd = files.open_read(path)
    try:
        size = files.fstat(fd).size
        return active_dialog(
            lines_of(lambda length, offset: files.read_at(fd, length, offset), size, DIALOG_WINDOW_BYTES)
        )
    finally:
        files.close(fd)


def user_memory(paths: Iterable[Path]) -> str:
    """What the user keeps in these files, one below the other, "" where there are none that can be read."""
    texts: list[str] = []
    for path in paths:
        with contextlib.suppress(OSError):
            if path.is_file():  # a pipe of this name would be waited for
                with path.open("rb") as file:
                    texts.append(file.read(MAX_MEMORY_BYTES).decode("utf-8", "replace").strip())
    return "\n\n".join(filter(None, texts))


def endpoint_of(choice: ModelChoice, timeout_seconds: float) -> Endpoint:
    """The endpoint of a chosen model. The user's own timeout counts where the settings name one."""
    return Endpoint(
        protocol=WireApi(choice.protocol.value),
        base_url=choice.base_url,
        model=choice.id,
        api_key=choice.api_key,
        headers=choice.headers,
        sampling=choice.sampling,
        extra_body=choice.extra_body,
        timeout_seconds=choice.timeout_seconds or timeout_seconds,
        thinking_mandatory=choice.thinking_mandatory,
        reasoning=choice.capabilities_reasoning,
        bearer=choice.bearer,
    )


class StoreLearned:
    """What endpoints have taught, kept in the state database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, endpoint_key: str) -> Learned | None:
        """What is known of the endpoint."""
        data = self._store.learned(endpoint_key)
        return None if data is None else Learned.from_json(json.dumps(data))

    def put(self, endpoint_key: str, learned: Learned) -> None:
        """Keep it, if that can be done: an answer that came with it is worth more."""
        with contextlib.suppress(StateError):
            self._store.learn(endpoint_key, json.loads(learned.to_json()))
