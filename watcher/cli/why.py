"""`why`: what decides about a session's title and recap, and what would change it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from watcher.api.client import ask
from watcher.catalog import Catalog
from watcher.cli.output import clock_time_of, say, say_filled, say_json, styled
from watcher.cli.places import reading_place
from watcher.core.controls import printable
from watcher.explain import why_of
from watcher.instance import running_pid
from watcher.paths import socket_path
from watcher.workplace import Workplace

_HEADINGS: Final = (("title", "TITLE"), ("recap", "RECAP"))
_STYLES: Final = {"act": "green", "wait": "yellow", "skip": "red"}
_WORDS: Final = {
    "act": "will be made now",
    "wait": "waits",
    "skip": "will not be made",
}
_KINDS: Final = {
    "title": "a title",
    "recap": "a recap",
    "manual_title": "the user's title",
    "undo": "the title that `undo` put back",
}
_SIGNS: Final = {"terminal": "input at", "prompt": "last prompt", "first_seen": "nothing; counted from the first look"}
_NAME_WIDTH: Final = 20


def show_why(session: str, *, as_json: bool) -> int:
    """Print every guard of titling and recap; asks the running watcher, which knows more, and else finds out itself."""
    with reading_place(os.environ) as place:
        ref = Catalog(place.roots, place.liveness, place.store).find(session)
        found = ask(socket_path(place.environ), f"/session/{ref.session_id}/why")
        if found is None or found.get("path", ref.path) != ref.path:
            found = why_of(place, ref)
        if as_json:
            say_json(found)
            return 0
        _print(found, place)
    return 0


def _print(found: Mapping[str, Any], place: Workplace) -> None:
    where = f"{found['session_id']}  {printable(found.get('cwd') or '')}".rstrip()
    say_filled(where, first="session  ", rest="         ")
    stands = found.get("stands")
    if stands is None:
        say("title    none")
    else:
        text = f"{printable(stands['title'])} ({stands['source']})" if stands["title"] else "none, as the user wants it"
        say_filled(text, first="title    ", rest="         ")
    for owner in found.get("owners", ()):
        say_filled(_owner(owner), first="owner    ", rest="         ")
    if not found.get("owners"):
        say("owner    nobody, as far as can be seen")
    _print_presence(found.get("presence") or {})
    if found.get("lease"):
        say_filled(printable(found["lease"]), first="lease    ", rest="         ")
    for waiting in found.get("pending", ()):
        say_filled(_pending(waiting), first="kept     ", rest="         ")
    if not found.get("watched") and running_pid(place.state_directory) is None:
        text = "no watcher is running, so nothing happens by itself; start it with `qwen-watcher run`"
        say_filled(text, first="note     ", rest="         ", style="yellow")
    for key, heading in _HEADINGS:
        say("")
        _print_verdict(heading, found[key], found["session_id"])
    if found.get("next_look"):
        say("")
        say(f"next look at {clock_time_of(found['next_look'])}")


def _owner(owner: Mapping[str, Any]) -> str:
    words = [f"pid {owner['pid']}", owner["kind"], owner["alive"], f"known from the {owner['source']}"]
    if owner.get("tty"):
        words.append(str(owner["tty"]))
    if owner.get("version"):
        words.append(f"Qwen Code {owner['version']}")
    return printable(", ".join(words))


def _print_presence(presence: Mapping[str, Any]) -> None:
    if presence.get("status"):
        since = f" since {clock_time_of(presence['since'])}" if presence.get("since") else ""
        say(f"user     {presence['status']}{since}")
    for sign in presence.get("signs", ()):
        newer = f", or up to {sign['newer_seconds']:g} s later" if sign["newer_seconds"] else ""
        name = f" {printable(sign['name'])}" if sign["name"] else ""
        say_filled(
            f"{_SIGNS.get(sign['source'], sign['source'])}{name}: {clock_time_of(sign['at'])}{newer}",
            first="         ",
            rest="         ",
        )


def _pending(waiting: Mapping[str, Any]) -> str:
    kind = _KINDS.get(waiting["kind"], waiting["kind"])
    waits = f", waits for {waiting['waits_for']}" if waiting.get("waits_for") else ""
    text = f": {printable(waiting['text'])}" if waiting.get("text") else ""
    return f"{kind} since {clock_time_of(waiting['since'])}{waits}{text}"


def _print_verdict(heading: str, verdict: Mapping[str, Any], session_id: str) -> None:
    word = verdict["verdict"]
    reason = f": {verdict['reason']}" if verdict["reason"] else ""
    say(f"{styled(heading, 'bold')}    {styled(_WORDS.get(word, word) + reason, _STYLES.get(word, ''))}")
    decided = False
    for guard in verdict["guards"]:
        decides = not guard["ok"] and not decided
        decided = decided or decides
        mark = "->" if decides else "  "
        state = "ok" if guard["ok"] else "no"
        first = f"  {mark} {state}  {guard['name']:<{_NAME_WIDTH}}"
        style = "" if decides else "dim"
        if guard["detail"]:
            say_filled(printable(guard["detail"]), first=f"{first} ", rest=" " * (len(first) + 1), style=style)
        else:
            say(first.rstrip())
    attempts = verdict.get("attempts") or {}
    if attempts.get("count"):
        ended = f", the last one ended with {attempts['last_reason']}" if attempts.get("last_reason") else ""
        detail = f" ({printable(attempts['last_detail'])})" if attempts.get("last_detail") else ""
        at = f" at {clock_time_of(attempts['last_at'])}" if attempts.get("last_at") else ""
        say_filled(f"{attempts['count']} so far{ended}{detail}{at}", first="  attempts: ", rest="    ")
    if verdict.get("change"):
        change = verdict["change"].replace(" S ", f" {session_id[:8]} ").replace(" S`", f" {session_id[:8]}`")
        say_filled(change, first="  to change this: ", rest="    ")
