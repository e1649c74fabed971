"""Gathers what the title and recap decisions look at: configuration, Qwen Code's settings, owners, attempts, budget.

The decisions themselves are pure (`core.policy`, `core.recap_policy`); this is the one place that fills in their facts,
for the service, the commands and `why` alike.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path

from watcher.config import Config, LoadedConfig
from watcher.core.generation import Kind
from watcher.core.guard_rows import UNLIMITED_CALLS
from watcher.core.interactive import is_interactive
from watcher.core.native_recaps import Focus, NativeRecaps, Seen, next_weighing_at, weigh
from watcher.core.owner import TUI, Owner, Ownership
from watcher.core.policy import TitleFacts, TitleRules, turn_over
from watcher.core.presence import Here, Moment, Presence, Sample, TerminalInput, observe
from watcher.core.presence import status as presence_status
from watcher.core.recap_policy import MadeRecap, RecapFacts, RecapRules, Trigger
from watcher.core.session import SessionState
from watcher.edge.clock import read_clocks
from watcher.edge.liveness import Liveness
from watcher.edge.store import Attempts, Store
from watcher.edge.unregistered import SearchHint
from watcher.plan import model_name
from watcher.qwen.contract import DISABLE_TITLE_VARIABLE, is_truthy_switch, session_id_of
from watcher.qwen.paths import SessionRef
from watcher.qwen.settings import QwenSettings
from watcher.qwen.versions import unsupported


@dataclass(frozen=True, slots=True)
class FileFacts:
    """How the file itself looks, beside its state. `still_since` is seconds since the epoch."""

    still_since: float
    moved: bool = True
    unsafe: str = ""


class Surveyor:
    """Fills in facts. Cheap: everything it asks is cached by those whom it asks."""

    def __init__(
        self,
        loaded: LoadedConfig,
        store: Store,
        liveness: Liveness,
        settings_of: Callable[[str, Path], QwenSettings],
        *,
        environ: Mapping[str, str],
        stopped: Callable[[str], str],
        clock: Callable[[], float],
        moment: Callable[[], Moment] = read_clocks,
    ) -> None:
        """`settings_of(cwd, runtime_base)` gives Qwen Code's settings as a session there has them."""
        self.loaded = loaded
        self._store = store
        self._liveness = liveness
        self._settings_of = settings_of
        self._environ = environ
        self._stopped = stopped
        self._clock = clock
        self._moment = moment

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.loaded.config

    def settings(self, ref: SessionRef, state: SessionState) -> QwenSettings:
        """Qwen Code's settings for the project that the session belongs to."""
        return self._settings_of(state.cwd or state.first_cwd, ref.runtime_base)

    def ownership(self, ref: SessionRef) -> Ownership:
        """Who has the session, judged now."""
        return self._liveness.owners_of(ref.session_id, ref.sidecar)

    def ownerships(self, refs: Iterable[SessionRef]) -> list[Ownership]:
        """The same for many sessions at one look."""
        return self._liveness.owners_of_all((ref.session_id, ref.sidecar) for ref in refs)

    def ownership_in(self, ref: SessionRef, state: SessionState) -> Ownership:
        """The same, and for an editor's session also looked for among the processes: ACP need not register."""
        hint = SearchHint(Path(ref.path), state.first_cwd) if state.has_turn_marks else None
        return self._liveness.owners_of(ref.session_id, ref.sidecar, search=hint)

    def watched(self, state: SessionState) -> str:
        """Why the configuration leaves this project out, "" when it does not."""
        cwd = state.first_cwd or state.cwd
        if any(_matches(cwd, pattern) for pattern in self.config.watch.exclude):
            return f"{cwd} is excluded by watch.exclude"
        include = self.config.watch.include
        if include and not any(_matches(cwd, pattern) for pattern in include):
            return f"{cwd} is not among watch.include"
        return ""

    def title_facts(
        self, ref: SessionRef, state: SessionState, file: FileFacts, *, in_flight: bool = False
    ) -> TitleFacts:
        """All that `core.policy.decide_title` looks at."""
        settings = self.settings(ref, state)
        owners = self.ownership_in(ref, state)
        attempts = self._store.attempts(ref.session_id, Kind.TITLE)
        model, missing = model_name(self.loaded, settings, self._environ)
        return TitleFacts(
            state=state,
            still_since=file.still_since,
            unsafe=file.unsafe or looks_unsafe(ref, state),
            unsupported=unsupported(state),
            moved=file.moved,
            owned=owners.owned,
            owner_known=owners.ever_known,
            interactive=is_interactive(state, owners),
            owner_titles=self._owner_titles(owners, settings),
            attempts=attempts.count,
            attempted_turn=attempts.last_turn,
            dismissed=self._store.is_dismissed(ref.session_id),
            in_flight=in_flight,
            disabled_by=self.title_disabled_by(owners, settings) or self.watched(state),
            paused=self._stopped(ref.session_id),
            model=model,
            model_missing=missing,
            calls_left=self.calls_left(),
            rules=TitleRules(
                self.config.title.settle_seconds,
                self.config.title.max_attempts,
                all_sessions=self.config.title.sessions == "all",
            ),
        )

    def recap_rules(self, settings: QwenSettings) -> RecapRules:
        """The recap part of the configuration, completed by Qwen Code's own settings where it follows them."""
        recap = self.config.recap
        if recap.enabled == "auto":
            enabled = settings.show_session_recap
            by = f"general.showSessionRecap is {'on' if enabled else 'off'} in Qwen Code's settings"
        else:
            enabled = bool(recap.enabled)
            origin = self.loaded.origins.get("recap.enabled", "configuration")
            by = f"recap.enabled = {str(enabled).lower()} ({origin})"
        minutes = recap.away_minutes if recap.away_minutes is not None else settings.away_threshold_minutes
        return RecapRules(
            enabled=enabled,
            enabled_by=by,
            trigger=Trigger(recap.trigger),
            away_seconds=minutes * 60.0,
            after_exit=recap.after_exit == "always",
            min_user_turns=recap.min_user_turns,
            min_user_turns_between=recap.min_user_turns_between,
        )

    def recap_facts(
        self,
        ref: SessionRef,
        state: SessionState,
        file: FileFacts,
        presence: Presence,
        native: NativeRecaps,
        *,
        in_flight: bool = False,
        complete: bool = False,
    ) -> tuple[RecapFacts, Presence, NativeRecaps]:
        """All that `core.recap_policy.decide_recap` looks at, and what was learnt of the user by looking.

        With recaps off nobody is looked at: that costs nothing (design 7); but for `why`, which asks for `complete`
        ones.
        """
        settings = self.settings(ref, state)
        rules = self.recap_rules(settings)
        if not rules.enabled and not complete:
            return RecapFacts(state, file.still_since, Here(None), rules), presence, native
        owners = self.ownership_in(ref, state)
        moment = self._moment()
        presence = observe(presence, self._sample(state, file, owners, moment), rules.away_seconds)
        status = presence_status(presence, moment, rules.away_seconds)
        shows_itself = settings.show_session_recap and owners.is_tui
        terminal = next((owner for owner in owners.live if owner.kind == TUI), None)
        look_at = None
        if shows_itself and terminal is not None:
            native = weigh(native, self._seen(ref, state, presence, native, terminal), moment)
            look_at = next_weighing_at(native, status, moment)
        attempts = self._store.attempts(ref.session_id, Kind.RECAP)
        model, missing = model_name(self.loaded, settings, self._environ, main=self.config.recap.fallback_to_main)
        facts = RecapFacts(
            state=state,
            still_since=file.still_since,
            status=status,
            rules=rules,
            ownership=owners,
            unsafe=file.unsafe or looks_unsafe(ref, state) or self.watched(state),
            unsupported=unsupported(state),
            moved=file.moved,
            interactive=is_interactive(state, owners),
            in_flight=in_flight,
            attempted_turn=attempts.last_turn,
            made=_made(attempts),
            paused=self._stopped(ref.session_id),
            model=model,
            model_missing=missing,
            calls_left=self.calls_left(),
            native_recaps=shows_itself,
            no_focus_reports=native.focus is Focus.SILENT,
            native_look_at=look_at,
        )
        return facts, presence, native

    def _sample(self, state: SessionState, file: FileFacts, owners: Ownership, moment: Moment) -> Sample:
        running = turn_over(
            state, owned=owners.owned, owner_known=owners.ever_known, still_since=file.still_since, now=moment.wall
        )
        # The terminal that an editor's agent was started from says nothing of who sits at the editor.
        inputs = {
            owner.tty: TerminalInput(owner.tty, owner.input_at)
            for owner in owners.owners
            if owner.kind == TUI and owner.tty is not None and owner.input_at is not None
        }
        return Sample(
            now=moment,
            user_record_at=state.last_user_at,
            inputs=tuple(inputs.values()),
            turn_running=running is not None,
        )

    def _seen(
        self, ref: SessionRef, state: SessionState, presence: Presence, native: NativeRecaps, terminal: Owner
    ) -> Seen:
        newest = native.newest
        if state.recap is not None:
            ours = {uuid for entry in self._store.entries(session_id=ref.session_id) for uuid in entry.uuids}
            newest = newest if state.recap.uuid in ours else state.recap.uuid
        return Seen(
            owner=terminal.identity,
            presence=presence,
            newest=newest,
            user_turns=state.user_turns,
            turns_since_recap=state.turns_since_recap,
        )

    def title_disabled_by(self, owners: Ownership, settings: QwenSettings) -> str:
        """Where titling is switched off, "" where it is on (design 5 and 11)."""
        if not self.config.title.enabled:
            return f"title.enabled = false ({self.loaded.origins.get('title.enabled', 'configuration')})"
        owner = owners.disable_switch
        if owner is not None:
            # The owner's own environment decides for its session where it names the switch, either way.
            name = f"{DISABLE_TITLE_VARIABLE}={owner}" if is_truthy_switch(owner) else ""
            return f"{name} in the environment of its Qwen Code process" if name else ""
        if is_truthy_switch(self._environ.get(DISABLE_TITLE_VARIABLE)):
            return f"{DISABLE_TITLE_VARIABLE} in the environment of this program"
        where = settings.title_disabled_by
        return f"{DISABLE_TITLE_VARIABLE} in {where}" if where else ""

    def _owner_titles(self, owners: Ownership, settings: QwenSettings) -> bool:
        """Whether a live owner titles the session itself (contract 6.1): a fast model, and its switch not set."""
        if not owners.owned or not settings.has_native_fast_model:
            return False
        switch = owners.disable_switch
        if switch is not None:
            return not is_truthy_switch(switch)
        return not settings.title_disabled_by

    def calls_left(self) -> int:
        """Model calls left today; the extractive model needs none."""
        if self.config.model.source == "extractive":
            return UNLIMITED_CALLS
        return self.config.budget.calls_per_day - self._store.calls_on(self.today())

    def budget_renewed_at(self) -> float:
        """When the day's calls come back: the next local midnight, seconds since the epoch."""
        here = datetime.fromtimestamp(self._clock()).astimezone()
        return datetime.combine(here.date() + timedelta(days=1), time.min).timestamp()

    def today(self) -> str:
        """The local date: calls count from local midnight to midnight (design 11)."""
        return datetime.fromtimestamp(self._clock()).astimezone().date().isoformat()


def _made(attempts: Attempts) -> MadeRecap | None:
    """Our last recap, whatever became of later attempts."""
    return MadeRecap(attempts.made_turn, attempts.made_user_turns) if attempts.made_turn else None


def looks_unsafe(ref: SessionRef, state: SessionState) -> str:
    """What about the records forbids writing to the file, "" when nothing does."""
    if state.mixed_ids:
        return "more than one session id in it"
    if state.session_id and state.session_id.lower() != (session_id_of(ref.path) or "").lower():
        return "its session id is not its file name"
    return ""


def _matches(cwd: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(cwd, pattern) or fnmatch.fnmatchcase(cwd, f"{pattern.rstrip('/')}/*")
