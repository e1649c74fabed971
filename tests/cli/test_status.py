"""`status`, `pause`, `resume`."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator

from tests.cli.home import Home
from tests.support.live import eventually
from watcher.edge.store import Store

FIELDS = {
    "running",
    "pid",
    "started_at",
    "version",
    "homes",
    "sessions_watched",
    "titles_written",
    "recaps_written",
    "attempts_failed",
    "calls_today",
    "calls_per_day",
    "model",
    "recaps_enabled",
    "titles_enabled",
    "last_error",
    "rss_bytes",
}


@contextlib.contextmanager
def running_watcher(home: Home) -> Iterator[subprocess.Popen[str]]:
    """The real `run`, until the block ends."""
    with home.process("run", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        eventually(lambda: home.run("status", "--json").json["started_at"] is not None, 30.0)
        yield process
        process.terminate()
        process.wait(20.0)


def test_without_a_watcher(home: Home) -> None:
    """Exit 0, `running: false`, every field; nothing is made on disk."""
    ran = home.run("status", "--json")
    assert ran.code == 0
    assert set(ran.json) >= FIELDS
    assert (ran.json["running"], ran.json["pid"], ran.json["homes"]) == (False, None, [str(home.qwen)])
    shown = home.run("status")
    assert shown.code == 0
    assert "not running" in shown.out
    assert "titles    none, no fastModel" in shown.out
    assert not home.state.exists()


def test_with_a_watcher(home: Home) -> None:
    """The pid, the start and the counts of the one that runs; `resume` wakes it."""
    home.use_extractive()
    home.env["QWEN_WATCHER_TITLE__SETTLE_SECONDS"] = "0"
    session = home.session()
    with running_watcher(home) as process:
        found = home.run("status", "--json").json
        assert (found["running"], found["pid"]) == (True, process.pid)
        assert found["started_at"].endswith("Z")
        assert found["rss_bytes"] > 1_000_000
        assert found["titles_enabled"] is True
        assert f"running, pid {process.pid}" in home.run("status").out
        assert "no watcher is running" not in home.run("why", session.session_id).out

        assert home.run("pause").code == 0
        session.at = time.time()
        session.turn("Rename the settings page", "Done.")
        eventually(
            lambda: home.run("why", session.session_id, "--json").json["title"]["reason"] == "paused",
            30.0,
        )
        assert home.run("resume").out == "resumed\n"
        eventually(lambda: home.run("sessions", "--json").json[0]["title"] is not None, 30.0)
        assert home.run("status", "--json").json["titles_written"] == 1


def test_the_last_error(home: Home) -> None:
    """The newest attempt that failed: when, of which session, why. One that was stopped is no error."""
    store = Store.open(home.state)
    for number, (reason, detail) in enumerate((("model_error", "HTTP 500"), ("aborted", ""), ("", ""))):
        store.note_attempt(f"aaaa000{number}", "t", 1_796_000_000.0 + number)
        store.note_result(f"aaaa000{number}", reason, detail)
    store.close()
    assert home.run("status", "--json").json["last_error"] == {
        "timestamp": "2026-11-30T00:53:20.000Z",
        "session_id": "aaaa0000",
        "kind": "title",
        "reason": "model_error",
        "detail": "HTTP 500",
    }
    assert "title of aaaa0000: model_error (HTTP 500)" in home.run("status").out


def test_pause_and_resume(home: Home) -> None:
    """A pause has an end or none, stands in `status`, and is told in the user's own time."""
    assert home.run("pause").out.startswith("paused until `qwen-watcher resume`")
    assert home.run("status", "--json").json["paused"] == "until `qwen-watcher resume`"
    assert home.run("pause", "--for", "2h").out.startswith("paused until 20")
    store = Store.open(home.state)
    pause = store.paused(time.time())
    assert pause is not None
    assert pause.until is not None
    assert abs(pause.until - time.time() - 7200) < 60
    store.close()
    assert "paused" in home.run("status").out
    assert home.run("resume").out == "resumed\n"
    assert home.run("resume").out == "there was no pause\n"
    for span in ("0s", "soon", "-1h"):
        assert home.run("pause", "--for", span).code == 2


def test_resume_does_not_hide_the_brake(home: Home) -> None:
    """Three anomalies stop all writing until `doctor`: `resume` says so."""
    store = Store.open(home.state)
    for number in range(3):
        store.note_anomaly(str(number), "line not found after the write", time.time())
    store.close()
    ran = home.run("resume")
    assert "doctor" in ran.err
