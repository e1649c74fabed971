"""What the watcher does, as its state directory tells it: the object of `status --json` and of the local API."""

from __future__ import annotations

from typing import Any

import psutil

from watcher import __version__
from watcher.edge.store import Heartbeat, JournalKind, Store
from watcher.instance import running_pid
from watcher.plan import model_name, plan_lines
from watcher.shapes import iso
from watcher.workplace import Workplace, local_day


def status_of(place: Workplace) -> dict[str, Any]:
    """The object of `status --json` (design 4)."""
    pid = running_pid(place.state_directory)
    store = Store.open_existing(place.state_directory)
    beat = store.heartbeat() if store is not None else None
    if beat is not None and beat.pid != pid:
        beat = None
    settings = place.general_settings
    model, _ = model_name(place.loaded, settings, place.environ)
    titles, recaps = plan_lines(place.loaded, settings, place.environ)
    day = local_day(place.clock())
    tokens = store.tokens_on(day) if store is not None else (0, 0)
    found = {
        "running": pid is not None,
        "pid": pid,
        "started_at": iso(beat.started_at) if beat else None,
        "version": beat.version if beat else __version__,
        "homes": list(dict.fromkeys(str(root.config_dir) for root in place.roots)),
        "sessions_watched": _watched(beat),
        "titles_written": store.count_entries(JournalKind.TITLE) if store else 0,
        "recaps_written": store.count_entries(JournalKind.RECAP) if store else 0,
        "attempts_failed": store.failed_attempts(0.0) if store else 0,
        "calls_today": store.calls_on(day) if store else 0,
        "calls_per_day": place.config.budget.calls_per_day,
        "tokens_today": {"in": tokens[0], "out": tokens[1]},
        "model": model or None,
        "recaps_enabled": not recaps.startswith(("recaps: off", "recaps: none")),
        "titles_enabled": not titles.startswith(("titles: off", "titles: none")),
        "last_error": _last_error(store),
        "rss_bytes": _rss(pid),
        "paused": _paused(store, place.clock()),
    }
    if store is not None:
        store.close()
    return found


def _watched(beat: Heartbeat | None) -> int:
    return int(beat.data.get("sessions_watched", 0)) if beat is not None else 0


def _last_error(store: Store | None) -> dict[str, Any] | None:
    failure = store.last_failure() if store is not None else None
    if failure is None:
        return None
    return {
        "timestamp": iso(failure.at),
        "session_id": failure.session_id,
        "kind": failure.kind.value,
        "reason": failure.reason,
        "detail": failure.detail,
    }


def _paused(store: Store | None, now: float) -> str | None:
    if store is None:
        return None
    pause = store.paused(now)
    if pause is not None:
        return "until `qwen-watcher resume`" if pause.until is None else f"until {iso(pause.until)}"
    return store.stopped_all()


def _rss(pid: int | None) -> int | None:
    if pid is None:
        return None
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
