"""`title` and `recap`: what the user asks for now, whatever the automatic rules say (design 4)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from watcher.catalog import Catalog
from watcher.cli.guarded import (
    ending_well,
    kept_note,
    readable,
    refuse,
    refuse_locked,
    refuse_mount,
    refuse_no_text,
    refuse_stopped,
    refuse_unwritten,
    uninterrupted,
)
from watcher.cli.output import note, progress, say, takes_utf8
from watcher.cli.request_text import request_lines
from watcher.core.decisions import Act
from watcher.core.generation import Kind
from watcher.core.policy import decide_title_on_request
from watcher.core.reasons import Reason
from watcher.core.text import utf16_len
from watcher.core.write_rules import RECAP_STILL_SECONDS
from watcher.core.writing import SessionFile, WriteOutcome
from watcher.drafting import NoText, Ready
from watcher.edge.text_model import Abort, setup_problem
from watcher.edge.text_model.endpoint import reveal_key
from watcher.errors import UsageError
from watcher.facts import FileFacts
from watcher.plan import model_name
from watcher.qwen.contract import TITLE_LIMIT_UNITS
from watcher.qwen.paths import SessionRef
from watcher.qwen.reading import Reading
from watcher.requested import RecapRequest, RequestedRecap, begin_recap, make_recap
from watcher.workplace import Workplace, refused_mount

T = TypeVar("T")

AUTO: Final = "--auto"
SHOW_REQUEST: Final = "--show-request"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class TitleOrder:
    """What the words behind `title` ask for. `name` None: the model shall find one."""

    session: str
    name: str | None
    show_request: bool


def title_order(words: Sequence[str]) -> TitleOrder:
    """The meaning of `S [--auto [--show-request] | NAME…]`. Raises `UsageError`.

    As for `/rename` (contract 6.4), `--` ends the flags and an unknown one is refused, wherever it stands: a name with
    a flag in it by mistake would be written for good.
    """
    plain: list[str] = []
    flags: set[str] = set()
    for position, word in enumerate(words):
        if word == "--":
            plain += words[position + 1 :]
            break
        if not word.startswith("-") or word == "-":
            plain.append(word)
        elif word in (AUTO, SHOW_REQUEST):
            flags.add(word)
        else:
            raise UsageError(f"no option {word}; put `--` before a name with a word that starts with a dash")
    if not plain:
        raise UsageError("which session? Give an id, a unique id prefix, a file path or `latest`")
    session, *name = plain
    if AUTO in flags:
        if name:
            raise UsageError(f"either {AUTO} or a name, not both")
        return TitleOrder(session, None, SHOW_REQUEST in flags)
    if SHOW_REQUEST in flags:
        raise UsageError(f"{SHOW_REQUEST} belongs to {AUTO}: a name of your own is sent to nobody")
    if not name:
        raise UsageError(f"give a name, or {AUTO} to let the model find one")
    return TitleOrder(session, clean_name(" ".join(name)), show_request=False)


def clean_name(name: str) -> str:
    """The name as one line. Raises `UsageError` for an empty one or one of more than 200 UTF-16 units (design 4)."""
    if not name.isascii():
        # Where the locale is not UTF-8, Python hands over the bytes of an argument as lone surrogates.
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    name = _CONTROL.sub(" ", name).strip()
    if not name:
        raise UsageError("the name is empty; `qwen-watcher undo S` takes a title away")
    if utf16_len(name) > TITLE_LIMIT_UNITS:
        raise UsageError(f"the name has {utf16_len(name)} UTF-16 units; shorten it to {TITLE_LIMIT_UNITS}")
    return name


# -- title -------------------------------------------------------------------------------------------------------------


def title_session(words: Sequence[str]) -> int:
    """Write the user's own name, or with `--auto` one that the model finds; prints the title that stands then.

    `words` as for `title_order`.
    """
    order = title_order(words)
    with ending_well(), Workplace(os.environ) as place:
        ref = Catalog(place.roots, place.liveness, None).find(order.session)
        reading = readable(ref)
        if order.show_request:
            return _show_request(place, Kind.TITLE, ref, reading)
        if order.name is not None:
            refuse_stopped(place, ref)
            with uninterrupted():
                outcome, kept = place.recorder.manual_title(ref, order.name, reading)
            return _tell_title(place, ref, outcome, order.name, kept=kept)
        return _title_by_model(place, ref, reading)


def _title_by_model(place: Workplace, ref: SessionRef, reading: Reading) -> int:
    changed_at = Path(ref.path).stat().st_mtime
    file = FileFacts(changed_at, unsafe=refused_mount(ref.path))
    decision = decide_title_on_request(place.surveyor.title_facts(ref, reading.state, file), place.clock())
    if not isinstance(decision, Act):
        refuse(place, decision.reason, decision.detail)
    refuse_locked(place, ref)
    refuse_stopped(place, ref)
    made = place.drafter.prepare(Kind.TITLE, ref, place.surveyor.settings(ref, reading.state))
    if not isinstance(made, NoText | Ready):
        draft = made
        with progress(f"asking {draft.endpoint.model} …"):
            made = _interruptible(lambda abort: place.drafter.ask(draft, abort, again=True))
    if isinstance(made, NoText):
        refuse_no_text(place, made)
    basis = SessionFile(reading.state, reading.size, changed_at, reading.torn_bytes)
    with uninterrupted():
        outcome, kept = place.recorder.requested_title(ref, made.text, made.model, basis, reading)
    return _tell_title(place, ref, outcome, made.text, kept=kept)


def _tell_title(place: Workplace, ref: SessionRef, outcome: WriteOutcome, title: str, *, kept: bool) -> int:
    refuse_unwritten(place, outcome)
    say(title)
    if kept:
        note(kept_note(place, ref))
    return 0


# -- recap -------------------------------------------------------------------------------------------------------------


def recap_session(session: str, *, write: bool, show_request: bool) -> int:
    """Print a recap; with `write` also record it in the session."""
    if write and show_request:
        raise UsageError(f"either --write or {SHOW_REQUEST}, not both: the latter writes nothing")
    with ending_well(), Workplace(os.environ) as place:
        ref = Catalog(place.roots, place.liveness, None).find(session)
        reading = readable(ref)
        if show_request:
            return _show_request(place, Kind.RECAP, ref, reading)
        if write:
            refuse_mount(place, ref)
            refuse_locked(place, ref)
            refuse_stopped(place, ref)
        recap = _recap(place, ref, reading, write=write)
        say(recap.text)
        if write and not recap.recorded:
            _record(place, ref, recap)
        return 0


def _recap(place: Workplace, ref: SessionRef, reading: Reading, *, write: bool) -> RequestedRecap:
    begun = begin_recap(place, ref, reading, write=write)
    if isinstance(begun, RecapRequest):
        request = begun
        settings = place.surveyor.settings(ref, reading.state)
        model, _ = model_name(place.loaded, settings, place.environ, main=place.config.recap.fallback_to_main)
        with progress(f"asking {model} …"):
            begun = _interruptible(lambda abort: make_recap(place.drafter, request, abort))
    if isinstance(begun, NoText):
        refuse_no_text(place, begun)
    assert isinstance(begun, RequestedRecap)
    return begun


def _record(place: Workplace, ref: SessionRef, recap: RequestedRecap) -> None:
    still_in = Path(ref.path).stat().st_mtime + RECAP_STILL_SECONDS - place.clock()
    if 0 < still_in <= RECAP_STILL_SECONDS:
        time.sleep(still_in)
    with uninterrupted():
        outcome = place.recorder.recap(ref, recap.text, recap.model, recap.basis, recap.reading)
    refuse_unwritten(place, outcome)
    if place.liveness.owners_of(ref.session_id, ref.sidecar).owned:
        note("recorded; its Qwen Code is running and does not re-read its file: the recap is seen on the next resume")


# -- both --------------------------------------------------------------------------------------------------------------


def _show_request(place: Workplace, kind: Kind, ref: SessionRef, reading: Reading) -> int:
    draft = place.drafter.prepare(kind, ref, place.surveyor.settings(ref, reading.state))
    if isinstance(draft, NoText):
        refuse_no_text(place, draft)
    if isinstance(draft, Ready):
        note('nothing is sent: [model] source = "extractive" works offline')
        return 0
    problem = setup_problem(draft.endpoint)
    if problem:
        refuse(place, Reason.MODEL_ERROR, problem)
    request = place.drafter.client(draft.endpoint).first_request(draft.prompt)
    for line in request_lines(request, reveal_key(draft.endpoint), as_ascii=not takes_utf8()):
        say(line)
    return 0


def _interruptible(work: Callable[[Abort], T]) -> T:
    """What `work` gives, done in a thread, so that Ctrl-C ends a call within a fraction of a second."""
    abort = Abort()
    with ThreadPoolExecutor(1, thread_name_prefix="model") as pool:
        try:
            return pool.submit(work, abort).result()
        except KeyboardInterrupt:
            abort.set()
            raise
