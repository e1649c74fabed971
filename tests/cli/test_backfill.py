"""`backfill`: old sessions get their titles, each one once, whatever interrupts it."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from tests.cli.home import SHOP, Home, answering, title_reply
from tests.support.live import eventually
from tests.support.model_server import ModelServer, Request, Response, json_response
from tests.support.transcripts import Transcript
from watcher.edge.store import Store

DAY = 86_400.0


def titles(session: Transcript) -> list[str]:
    """The titles in a session file."""
    records = session.records()
    return [each["systemPayload"]["customTitle"] for each in records if each.get("subtype") == "custom_title"]


def old_session(home: Home, name: str, age: float = 2 * DAY, cwd: str = SHOP) -> Transcript:
    """A session that ended long ago, without a title."""
    return home.session(f"Please fix the flaky login test in {name}", cwd=cwd, age=age)


def today() -> str:
    """The local date, as the budget counts."""
    return datetime.now().astimezone().date().isoformat()


def test_old_sessions_get_a_title_newest_first(home: Home) -> None:
    """One line each, the number of calls before, and the order of the picker is as it was."""
    with answering() as server:
        home.use_model(server.url)
        home.env["QWEN_WATCHER_MODEL__MAX_CONCURRENCY"] = "1"
        sessions = [old_session(home, f"part {n}", age=(n + 1) * DAY) for n in range(3)]
        times = [session.path.stat().st_mtime_ns for session in sessions]
        ran = home.run("backfill", "--yes")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.splitlines() == [
            "3 sessions without a title in the last 30d, newest first",
            "3 model calls with flash",
            *(f"{session.session_id[:8]}  Fix flaky login test" for session in sessions),
            "3 sessions titled",
        ]
        assert [titles(session) for session in sessions] == [["Fix flaky login test"]] * 3
        assert [session.path.stat().st_mtime_ns for session in sessions] == times
        assert [json.loads(line)["session_id"] for line in home.run("tail", "--json").out.splitlines()] == [
            session.session_id for session in sessions
        ]
        again = home.run("backfill", "--yes")
        assert (again.code, again.out) == (0, "nothing to title in the last 30d\n")
        assert len(server.requests) == 3


def test_only_what_is_asked_for(home: Home) -> None:
    """`--since`, `--project` and `--limit`; sessions that need none are left alone."""
    home.use_extractive()
    new, old = old_session(home, "new", age=DAY), old_session(home, "old", age=40 * DAY)
    blog = old_session(home, "blog", age=3 * DAY, cwd="/home/user/blog")
    titled = old_session(home, "titled")
    titled.title("Mine", "manual")
    home.rest(titled)
    script = Transcript(new.path.parent, cwd=SHOP, at=time.time() - DAY)
    script.user("Please fix the flaky login test from a script")
    script.assistant("Done.")
    home.rest(script)

    ran = home.run("backfill", "--yes", "--project", "/home/user/blog")
    assert ran.out.splitlines()[:2] == [
        "1 session without a title in the last 30d, newest first",
        "no model calls: the titles are cut from your own words, offline",
    ]
    assert [bool(titles(each)) for each in (new, old, blog, script)] == [False, False, True, False]
    other = old_session(home, "other", age=2 * DAY)
    ran = home.run("backfill", "--yes", "--limit", "1", "--since", "60d")
    assert ran.out.startswith("1 session (of 3) without a title in the last 60d")
    assert [bool(titles(each)) for each in (new, other, old)] == [True, False, False]
    home.run("backfill", "--yes", "--since", "60d")
    assert [bool(titles(each)) for each in (other, old, script)] == [True, True, False]
    assert titles(titled) == ["Mine"]


def test_a_dry_run_changes_nothing(home: Home) -> None:
    """It says what would be done and leaves no state behind."""
    home.use_extractive()
    session = old_session(home, "part 1")
    before = session.path.read_bytes()
    ran = home.run("backfill", "--dry-run")
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == f"{session.session_id[:8]}\tshop\t2 d"
    assert session.path.read_bytes() == before
    assert not home.state.exists()


def test_where_nobody_can_be_asked_it_asks_for_a_flag(home: Home) -> None:
    """Exit 2, with the fix, before anything is looked at."""
    old_session(home, "part 1")
    with home.process("backfill") as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "")
    assert "--yes" in err
    assert home.run("backfill", "--yes", "--since", "soon").code == 2


def test_at_a_terminal_it_asks(home: Home) -> None:
    """No is an answer with a reason; yes shows a bar and the titles."""
    home.use_extractive()
    session = old_session(home, "part 1")
    with home.terminal("backfill") as terminal:
        terminal.wait_for("Go on? [y/N]")
        terminal.send("\r")
        terminal.wait_for("reason: aborted (nothing was done)")
        assert terminal.wait_exit() == 1
    assert titles(session) == []
    with home.terminal("backfill") as terminal:
        terminal.wait_for("Go on? [y/N]")
        terminal.send("y\r")
        terminal.wait_for("1 session titled")
        assert terminal.wait_exit() == 0
    assert len(titles(session)) == 1


def test_the_bar_shows_the_current_session(home: Home) -> None:
    """While the model thinks; in a narrow terminal too, on one line."""
    gate = threading.Event()

    def script(request: Request) -> Response:
        gate.wait(20)
        return title_reply("Fix flaky login test")

    with ModelServer(script) as server:
        home.use_model(server.url)
        sessions = [old_session(home, f"part {n}", age=(n + 1) * DAY) for n in range(3)]
        with home.terminal("backfill", "--yes", columns=60) as terminal:
            terminal.wait_for(f"{sessions[1].session_id[:8]} shop")
            (bar,) = [line for line in terminal.screen() if "0/3" in line]
            assert bar.endswith(f"{sessions[1].session_id[:8]} shop")
            gate.set()
            terminal.wait_for("3 sessions titled")
            assert terminal.wait_exit() == 0
            assert not any("3/3" in line for line in terminal.screen())


def test_switches_are_obeyed(home: Home) -> None:
    """Where something stands in the way of all, it is the reason; it costs nothing."""
    with answering() as server:
        session = old_session(home, "part 1")
        ran = home.run("backfill", "--yes")
        assert (ran.code, ran.err.split(" (")[0]) == (1, "reason: no_fast_model")
        assert "fastModel" in ran.err
        home.use_model(server.url)
        for switch, reason in (
            ({"QWEN_DISABLE_AUTO_TITLE": "1"}, "disabled"),
            ({"QWEN_WATCHER_TITLE__ENABLED": "false"}, "disabled"),
            ({"QWEN_WATCHER_WATCH__EXCLUDE": '["/home/user/*"]'}, "disabled"),
            ({"QWEN_WATCHER_BUDGET__CALLS_PER_DAY": "0"}, "budget_exhausted"),
        ):
            home.env |= switch
            ran = home.run("backfill", "--yes")
            assert (ran.code, ran.out, ran.err.split(" (")[0].strip()) == (1, "", f"reason: {reason}")
            for name in switch:
                del home.env[name]
        home.run("pause")
        ran = home.run("backfill", "--yes")
        assert (ran.code, ran.err.split(" (")[0]) == (1, "reason: paused")
        home.run("resume")
        lease = home.lease(session)
        ran = home.run("backfill", "--yes")
        assert (ran.code, ran.out) == (0, "nothing to title in the last 30d\nleft alone: 1 locked\n")
        lease.unlink()
        with home.owner(session):
            assert "1 left_to_qwen" in home.run("backfill", "--yes").out
        for _ in range(3):
            session.turn("Go on", "Done.")
        home.rest(session)
        with home.owner(session, kind="serve"):
            assert "1 locked" in home.run("backfill", "--yes").out
        session.user("Go on")
        with home.owner(session):
            assert "1 working" in home.run("backfill", "--yes").out
        session.assistant("Done.")
        home.rest(session)
        assert server.requests == []
        assert home.run("backfill", "--yes").code == 0
        assert len(titles(session)) == 1


def test_the_end_of_the_budget_ends_it(home: Home) -> None:
    """Said before, and the reason afterwards; the sessions that are left have lost no attempt."""
    with answering() as server:
        home.use_model(server.url)
        home.env["QWEN_WATCHER_BUDGET__CALLS_PER_DAY"] = "2"
        sessions = [old_session(home, f"part {n}", age=(n + 1) * DAY) for n in range(5)]
        ran = home.run("backfill", "--yes")
        assert ran.code == 1
        assert "only 2 calls are left today" in ran.out
        assert ran.err.startswith("reason: budget_exhausted")
        assert "2 sessions titled, 3 left; run it again to go on" in ran.err
        assert sum(len(titles(session)) for session in sessions) == len(server.requests) == 2
        store = Store.open(home.state)
        assert [store.attempts(session.session_id).count for session in sessions] == [1, 1, 0, 0, 0]
        store.close()


def test_the_cost_is_told_where_replies_have_told_it(home: Home) -> None:
    """An average of what calls have cost so far."""
    with answering() as server:
        home.use_model(server.url)
        for n in range(3):
            old_session(home, f"part {n}")
        store = Store.open(home.state)
        for _ in range(4):
            store.take_call(today(), 300)
        store.add_tokens(today(), 4000, 200)
        store.close()
        assert "3 model calls with flash, roughly 3,200 tokens" in home.run("backfill", "--dry-run").out


def failing(request: Request) -> Response:
    """An answer without a title in it."""
    return json_response({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": ""}}]})


def test_failures_are_told_and_used_up_attempts_are_left_alone(home: Home) -> None:
    """Unless `--retry` is given; a failure of one session is not the end of the others."""

    def script(request: Request) -> Response:
        return failing(request) if "hopeless" in request.body.decode() else title_reply("Fix flaky login test")

    with ModelServer(script) as server:
        home.use_model(server.url)
        home.env["QWEN_WATCHER_TITLE__MAX_ATTEMPTS"] = "1"
        hopeless, other = old_session(home, "hopeless", age=DAY), old_session(home, "part 1")
        ran = home.run("backfill", "--yes")
        assert ran.code == 0
        assert f"{hopeless.session_id[:8]}  empty_result" in ran.out
        assert ran.out.splitlines()[-1] == "1 session titled, 1 failed (empty_result)"
        assert len(titles(other)) == 1
        ran = home.run("backfill", "--yes")
        assert ran.out.splitlines()[-1] == "left alone: 1 attempts_exhausted (--retry tries them again)"
        ran = home.run("backfill", "--yes", "--retry")
        assert (ran.code, ran.err) == (1, "reason: empty_result (0 sessions titled, 1 failed (empty_result))\n")


def test_an_endpoint_that_is_down_does_not_use_up_attempts(home: Home) -> None:
    """After the first refusals nothing more is tried, and the reason is told."""

    def script(request: Request) -> Response:
        return json_response({"error": {"message": "no such key"}}, 401)

    with ModelServer(script) as server:
        home.use_model(server.url)
        home.env["QWEN_WATCHER_MODEL__MAX_CONCURRENCY"] = "1"
        sessions = [old_session(home, f"part {n}") for n in range(10)]
        ran = home.run("backfill", "--yes")
        assert ran.code == 1
        assert ran.err.startswith("reason: model_error")
        assert len(server.requests) < 5
        store = Store.open(home.state)
        assert sum(store.attempts(session.session_id).count for session in sessions) < 5
        store.close()


def test_a_title_given_meanwhile_wins(home: Home) -> None:
    """Also while the model answers; and a session that goes away is no harm."""
    sessions: list[Transcript] = []

    def script(request: Request) -> Response:
        if not titles(sessions[0]):
            sessions[0].title("Mine", "manual")
            sessions[1].path.unlink()
        return title_reply("Fix flaky login test")

    with ModelServer(script) as server:
        home.use_model(server.url)
        home.env["QWEN_WATCHER_MODEL__MAX_CONCURRENCY"] = "1"
        sessions += [old_session(home, f"part {n}", age=(n + 1) * DAY) for n in range(3)]
        ran = home.run("backfill", "--yes")
        assert ran.code == 0
        assert titles(sessions[0]) == ["Mine"]
        assert titles(sessions[2]) == ["Fix flaky login test"]
        assert ran.out.splitlines()[-1].startswith("1 session titled, 2 skipped (")
        assert len(server.requests) == 2


@pytest.mark.slow
def test_three_hundred_sessions_interrupted_twice(home: Home) -> None:
    """No session is titled twice, none is asked for twice but those whose call was cut off, and the picker's order is
    the same.
    """
    answered: Counter[str] = Counter()
    reached = threading.Semaphore(0)

    def script(request: Request) -> Response:
        body = request.body.decode()
        answered[body[body.index("number ") :][:10]] += 1
        reached.release()
        return title_reply("Fix flaky login test")

    with ModelServer(script) as server:
        home.use_model(server.url)
        home.env["QWEN_WATCHER_BUDGET__CALLS_PER_DAY"] = "1000"
        sessions = [old_session(home, f"number {n:03}", age=DAY + n * 600) for n in range(300)]
        before = picker(sessions[0].path.parent)
        interruptions = []
        for stop_after in (80, 100):
            with home.process("backfill", "--yes") as process:
                for _ in range(stop_after):
                    assert reached.acquire(timeout=30)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
            assert process.returncode == 1, out + err
            assert err.startswith("reason: aborted (")
            assert err.rstrip().endswith("left; run it again to go on)")
            interruptions.append(sum(len(titles(session)) for session in sessions))
        assert 0 < interruptions[0] < interruptions[1] < 300
        with home.process("backfill", "--yes") as process:
            out, err = process.communicate(timeout=100)
        assert (process.returncode, err) == (0, "")
        assert out.splitlines()[-1] == f"{300 - interruptions[1]} sessions titled"
        assert [titles(session) for session in sessions] == [["Fix flaky login test"]] * 300
        assert picker(sessions[0].path.parent) == before
        assert len(answered) == 300
        assert sum(answered.values()) <= 300 + 2 * 2
    store = Store.open(home.state)
    assert [store.attempts(session.session_id).count for session in sessions] == [1] * 300
    assert len(store.entries()) == 300
    store.close()


def picker(chats: Path) -> list[tuple[str, int]]:
    """The order of the picker: names and times, newest first."""
    files = [(path.name, path.stat().st_mtime_ns) for path in chats.glob("*.jsonl")]
    return sorted(files, key=lambda file: file[1], reverse=True)


def test_a_running_watcher_and_a_backfill_do_not_title_twice(home: Home) -> None:
    """Two backfills and the service at the same time: one title and one call a session."""
    with answering() as server:
        home.use_model(server.url)
        home.env["QWEN_WATCHER_TITLE__SETTLE_SECONDS"] = "0"
        sessions = [old_session(home, f"number {n:03}") for n in range(20)]
        with home.process("run") as service, home.process("backfill", "--yes") as first:
            fresh = old_session(home, "fresh", age=30.0)
            with home.process("backfill", "--yes") as second:
                assert first.communicate(timeout=60)[1] == ""
                assert second.communicate(timeout=60)[1] == ""
            eventually(lambda: bool(titles(fresh)), 30)
            service.terminate()
            service.communicate(timeout=30)
        assert [len(titles(session)) for session in (*sessions, fresh)] == [1] * 21
        assert len(server.requests) == 21


@pytest.mark.parametrize("mode", ["C", "POSIX"])
def test_a_poor_locale_is_enough(home: Home, mode: str) -> None:
    """Titles in other scripts are shown as far as the terminal can."""
    home.use_extractive()
    home.env |= {"LC_ALL": mode, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    session = home.session("请修复登录页面的测试失败问题", age=DAY)
    with home.process("backfill", "--yes") as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("1 session titled\n")
    assert len(titles(session)) == 1
