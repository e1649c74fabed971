"""What may be appended to a session, decided on what its file holds under the writer's lock.

Each rule takes the file as the writer found it and gives the payload to write or the reason not to. They are asked
again for every write, since the file may have moved on while the model answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from watcher.core.events import TitleSource
from watcher.core.policy import OurTitle, heal_wanted, reanchor_wanted, title_standing, turn_over
from watcher.core.reasons import Reason
from watcher.core.session import SessionState
from watcher.core.undo import put_back_by_memory
from watcher.core.writing import Declined, Payload, RecapLine, SessionFile, TitleLine

TORN_QUIET_SECONDS: Final = 30.0
"""An unfinished last line without a live owner counts as abandoned when it is this old (contract 4.3 b)."""
RECAP_STILL_SECONDS: Final = 2.0
"""The file must be still for so long before a recap (design 11)."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the file itself does not tell. `unsupported` says why this version is not written, "" when it is."""

    owned: bool
    owner_known: bool
    unsupported: Callable[[SessionFile], str]
    now: Callable[[], float]


Rule = Callable[[SessionFile], Payload | Declined]


def hindrance(file: SessionFile, circumstances: Circumstances) -> Declined | None:
    """What forbids any append to this file now, None when nothing does."""
    unsupported = circumstances.unsupported(file)
    if unsupported:
        return Declined(Reason.UNSUPPORTED_VERSION, unsupported)
    now = circumstances.now()
    if file.torn and (circumstances.owned or file.mtime <= now < file.mtime + TORN_QUIET_SECONDS):
        return Declined(Reason.WORKING, "its last line is unfinished")
    running = turn_over(
        file.state,
        owned=circumstances.owned,
        owner_known=circumstances.owner_known,
        still_since=file.mtime,
        now=now,
    )
    if running is not None:
        return Declined(Reason.WORKING, "a turn is running")
    return None


def _torn_name(file: SessionFile) -> Declined | None:
    """A name on a line that was cut off is what the picker shows, and by its missing source the user's (vector T09)."""
    return Declined(Reason.MANUAL_TITLE, "a name stands on a line that was cut off") if file.torn_title else None


def automatic_title(title: str, circumstances: Circumstances) -> Rule:
    """An automatic title: any title in the file wins over it."""

    def rule(file: SessionFile) -> Payload | Declined:
        standing = title_standing(file.state)
        if standing is not None:
            return Declined(*standing)
        return _torn_name(file) or hindrance(file, circumstances) or TitleLine(title, TitleSource.AUTO)

    return rule


def requested_title(title: str, basis: SessionFile, circumstances: Circumstances) -> Rule:
    """`title S --auto`: replaces what stood there when the user asked, but not a title given since."""
    before = basis.state.title

    def rule(file: SessionFile) -> Payload | Declined:
        run = file.state.title
        if run is not None and (before is None or (run.title, run.source) != (before.title, before.source)):
            reason = Reason.MANUAL_TITLE if run.is_manual else Reason.TITLE_PRESENT
            return Declined(reason, "a title was given while the model answered")
        return hindrance(file, circumstances) or TitleLine(title, TitleSource.AUTO)

    return rule


def given_title(title: str, source: TitleSource, circumstances: Circumstances) -> Rule:
    """A title that the user gives now, or takes back: it replaces whatever stands there."""

    def rule(file: SessionFile) -> Payload | Declined:
        return hindrance(file, circumstances) or TitleLine(title, source, yields=False)

    return rule


def kept_title(
    title: str, source: TitleSource, given_at: int, ours: frozenset[str], circumstances: Circumstances
) -> Rule:
    """A title that the user gave at this offset while a CLI held another one: put last again once nobody owns the
    session, unless somebody has named it since (design 4).
    """

    def rule(file: SessionFile) -> Payload | Declined:
        if circumstances.owned:
            return Declined(Reason.WORKING, "its owner lives")
        if not put_back_by_memory(file.state.titles, ours, title, source, given_at):
            return Declined(Reason.NOTHING_NEW, "it stands, or another name was given since")
        return hindrance(file, circumstances) or TitleLine(title, source)

    return rule


@dataclass(frozen=True, slots=True)
class RecapBasis:
    """What a recap was made of: the newest prompt, and the session's moves (None: not known any more, after a
    restart).
    """

    turn: str
    moves: int | None = None


def recap(
    text: str, basis: RecapBasis, circumstances: Circumstances, *, still_seconds: float = RECAP_STILL_SECONDS
) -> Rule:
    """A recap of the session as it was at `basis`; dropped when the session moved on, or has got another one since."""

    def rule(file: SessionFile) -> Payload | Declined:
        state = file.state
        counted = basis.moves is not None and not state.partial
        if state.turn != basis.turn or (counted and state.moves != basis.moves):
            return Declined(Reason.NOTHING_NEW, "the session moved on since the recap was made")
        if state.chain.contains_on_active(basis.turn) is False:
            return Declined(Reason.NOTHING_NEW, "the session moved on since the recap was made")
        if _recapped(state):
            return Declined(Reason.NOTHING_NEW, "another recap stands behind the last turn")
        hindered = hindrance(file, circumstances)
        if hindered is None and file.mtime <= circumstances.now() < file.mtime + still_seconds:
            return Declined(Reason.WORKING, "the file is not still yet")
        return hindered or RecapLine(text)

    return rule


def _recapped(state: SessionState) -> bool:
    """Whether a recap stands on the active chain behind all that was said."""
    if state.recap is None or not state.user_turns or state.turns_since_recap:
        return False
    at, last = state.recap.at, state.last_activity_at
    return at is None or last is None or at >= last


def healed_title(ours: tuple[OurTitle, ...], circumstances: Circumstances) -> Rule:
    """The user's title over an old one of ours that a CLI brought back (design promise 2), once nobody owns it."""

    def rule(file: SessionFile) -> Payload | Declined:
        if circumstances.owned:
            return Declined(Reason.WORKING, "its owner lives")
        run = heal_wanted(file.state, ours)
        if run is None:
            return Declined(Reason.NOTHING_NEW, "nothing to heal")
        return _torn_name(file) or hindrance(file, circumstances) or TitleLine(run.title, TitleSource.MANUAL)

    return rule


def title_again(ours: tuple[OurTitle, ...], circumstances: Circumstances) -> Rule:
    """Our own title, once it has left both windows of the picker (design 6)."""

    def rule(file: SessionFile) -> Payload | Declined:
        run = reanchor_wanted(file.state, file.size, ours)
        if run is None or run.source is None:
            return Declined(Reason.NOTHING_NEW, "the title is in sight")
        return _torn_name(file) or hindrance(file, circumstances) or TitleLine(run.title, run.source)

    return rule
