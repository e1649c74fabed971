"""The checks of `doctor` that look at sessions, models and the watcher itself, each on a real home, good and bad."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import watcher
from tests.support.live import eventually
from tests.support.model_server import ModelServer, Request, Response, json_response
from tests.support.transcripts import Transcript
from tests.support.users import open_directory, without_privileges
from watcher.doctor import CHECK_NAMES, CHECKS, Check, Status, gather, run_checks
from watcher.doctor.running import is_watcher
from watcher.edge.store import Heartbeat, Store
from watcher.instance import only_instance
from watcher.workplace import local_day

DAY = 86_400.0
COMMANDS = ("qwen-watcher", "chmod", "echo", "pipx", "npm", "curl", "kill", "ls", "timedatectl", "df", "${EDITOR:-vi}")


class Home:
    """A user's home, and the environment of a shell in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.qwen = path / ".qwen"
        self.chats = self.qwen / "projects" / "-home-user-proj" / "chats"
        self.qwen.mkdir(parents=True)
        self.environ = {
            "HOME": str(path),
            "PATH": os.environ["PATH"],
            "QWEN_CODE_SYSTEM_SETTINGS_PATH": str(path / "no" / "settings.json"),
        }

    @property
    def state(self) -> Path:
        return self.path / ".local" / "state" / "qwen-watcher"

    def settings(self, values: object) -> Path:
        file = self.qwen / "settings.json"
        file.write_text(values if isinstance(values, str) else json.dumps(values))
        return file

    def fast_model(self, url: str = "https://model.example/v1", **entry: Any) -> None:
        """Settings with a fast model of that address; `entry` adds to its provider entry."""
        provider = {"id": "flash", "baseUrl": url, **entry}
        auth = {"auth": {"selectedType": "openai"}}
        self.settings({"modelProviders": {"openai": [provider]}, "fastModel": "flash", "security": auth})

    def config(self, text: str) -> Path:
        file = self.path / ".config" / "qwen-watcher" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def session(self, **fields: Any) -> Transcript:
        made = Transcript(self.chats, at=time.time() - 60, **fields)
        made.turn("Please fix the login test", "Done.")
        return made

    def check(self, name: str, *, with_probe: bool = False, **environ: str) -> Check:
        """One check, as `doctor` runs it in this home."""
        with gather({**self.environ, **environ}, with_probe=with_probe) as context:
            [check] = run_checks(context, {name: CHECKS[name]})
        assert check.check == name
        assert check.detail
        assert "\n" not in check.detail + check.fix
        if check.fix.startswith(COMMANDS):
            parsed = subprocess.run(["bash", "-n", "-c", check.fix], capture_output=True, text=True, check=False)
            assert parsed.returncode == 0, f"cannot be pasted: {check.fix}\n{parsed.stderr}"
        return check


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home(tmp_path / "home of me")


def test_every_check_stands_in_its_documented_place() -> None:
    """The 23 checks of design 11, in that order."""
    assert tuple(CHECKS) == CHECK_NAMES


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_sessions_are_counted(home: Home) -> None:
    """None yet is a warning, some are counted, and recording switched off is why there are none."""
    assert home.check("sessions").status is Status.WARN
    home.settings({"general": {"chatRecording": False}})
    off = home.check("sessions")
    assert (off.status, "chatRecording" in off.detail) == (Status.FAIL, True)
    home.settings({})
    home.session()
    home.session()
    assert home.check("sessions") == Check("sessions", Status.OK, "2 in 1 projects")


def test_sessions_that_are_left_alone_are_named(home: Home) -> None:
    """A file that everybody may write to, and one with a second name: why, and the command that mends the first."""
    session = home.session()
    session.path.chmod(0o666)
    found = home.check("sessions")
    assert found.status is Status.WARN
    assert "everybody may write to it" in found.detail
    subprocess.run(["sh", "-c", found.fix], check=True)
    assert home.check("sessions").status is Status.OK
    os.link(session.path, home.path / "another name")
    assert (home.check("sessions").status, "hard links" in home.check("sessions").detail) == (Status.WARN, True)


def test_sessions_that_cannot_be_read_fail_with_the_command() -> None:
    """A transcript without permissions is a failure, and the fix mends it."""
    with open_directory() as directory, without_privileges():
        home = Home(directory / "home")
        session = home.session()
        session.path.chmod(0)
        found = home.check("sessions")
        assert (found.status, str(session.path) in found.detail) == (Status.FAIL, True)
        subprocess.run(["sh", "-c", found.fix], check=True)
        assert home.check("sessions").status is Status.OK


def test_sessions_from_the_future_raise_doubt_about_the_clock(home: Home) -> None:
    """A transcript dated tomorrow names the clock."""
    home.session().set_mtime(time.time() + DAY)
    found = home.check("sessions")
    assert (found.status, "clock" in found.detail) == (Status.WARN, True)


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        ("0.24.4", Status.OK, "0.24.4 (1 sessions)"),
        ("0.20.9", Status.FAIL, "never written"),
        ("0.99.0", Status.WARN, "untested"),
        ("", Status.OK, "no version seen"),
    ],
)
def test_the_version_of_qwen_code(home: Home, version: str, status: Status, words: str) -> None:
    """A tested version passes, an old one fails with the update, a newer one is called untested."""
    if version:
        home.session(version=version)
    found = home.check("qwen_version")
    assert (found.status, words in found.detail) == (status, True)
    assert bool(found.fix) is (status is not Status.OK)


def test_the_newest_session_decides_about_the_version(home: Home) -> None:
    """Old sessions of an old Qwen Code do not matter once a newer one is in use."""
    home.session(version="0.15.0").set_mtime(time.time() - DAY)
    home.session()
    assert home.check("qwen_version").status is Status.OK


def test_leases_are_named_with_their_holder(home: Home) -> None:
    """No lease passes; one that is held, sealed, broken or left behind is named, and no fix removes it."""
    assert home.check("leases") == Check("leases", Status.OK, "none is held")
    leases = home.qwen / "tmp" / "session-writer-locks"
    leases.mkdir(parents=True)
    assert home.check("leases").status is Status.OK
    (leases / "aaaa.lock").write_text(json.dumps({"state": "active", "pid": os.getpid()}))
    held = home.check("leases")
    assert held.status is Status.WARN
    assert f"aaaa (held by pid {os.getpid()})" in held.detail
    (leases / "aaaa.lock").write_text(json.dumps({"state": "sealed", "pid": 4_194_304}))
    assert "sealed by pid 4194304, which is gone" in home.check("leases").detail
    (leases / "aaaa.lock").write_text("{")
    (leases / "b%20b.lock.claim").write_text("[]")
    assert "aaaa (unreadable), b b (unreadable)" in home.check("leases").detail
    assert "rm " not in home.check("leases").fix


def test_leases_that_cannot_be_listed_fail() -> None:
    """A directory that nobody may read holds every session, so that is a failure."""
    with open_directory() as directory, without_privileges():
        home = Home(directory / "home")
        leases = home.qwen / "tmp" / "session-writer-locks"
        leases.mkdir(parents=True)
        leases.chmod(0)
        found = home.check("leases")
        assert found.status is Status.FAIL
        subprocess.run(["sh", "-c", found.fix], check=True)
        assert home.check("leases").status is Status.OK


def test_a_home_that_cannot_be_entered_leaves_every_check_its_word(home: Home) -> None:
    """Whatever is closed, each check of files says what it found; none breaks off."""
    names = ("homes", "filesystem", "sessions", "events", "settings", "leases", "state_dir")
    checks = {name: CHECKS[name] for name in names}
    with gather(home.environ) as context:
        run_checks(context, checks)  # what they import may be for root's eyes only
    with open_directory() as directory, without_privileges():
        closed = Home(directory / "home")
        closed.settings({})
        closed.path.chmod(0)
        try:
            with gather(closed.environ) as context:
                results = {each.check: each for each in run_checks(context, checks)}
        finally:
            closed.path.chmod(0o700)
    assert [each for each in results.values() if "could not be made" in each.detail] == []
    assert results["homes"].fix == f"chmod u+rwx {closed.qwen}"
    assert {results[name].status for name in ("homes", "settings", "state_dir")} == {Status.FAIL}


# -- settings, model, key, endpoint ------------------------------------------------------------------------------------


def test_broken_settings_are_shown_with_the_place(home: Home) -> None:
    """Settings that are no JSON fail with file and line; a wrong configuration of ours fails and stops nothing else."""
    assert home.check("settings").status is Status.OK
    home.settings('{"fastModel": "x",}')
    broken = home.check("settings")
    assert (broken.status, "settings.json" in broken.detail, "line 1" in broken.detail) == (Status.FAIL, True, True)
    assert str(home.qwen / "settings.json") in shlex.split(broken.fix)
    home.settings({})
    file = home.config("[title]\nenabeld = true\n")
    ours = home.check("settings")
    assert (ours.status, "title.enabeld" in ours.detail, "title.enabled" in ours.detail) == (Status.FAIL, True, True)
    assert str(file) in shlex.split(ours.fix)
    assert home.check("fast_model").detail
    file.write_text("[title]\nenabled = true\n")
    assert str(file) in home.check("settings").detail
    variable = home.check("settings", QWEN_WATCHER_TITLE__ENABLED="perhaps")
    assert (variable.status, "QWEN_WATCHER_TITLE__ENABLED" in variable.detail) == (Status.FAIL, True)


def test_the_fast_model_or_the_missing_piece(home: Home) -> None:
    """Resolved, it is named with its origin; without one the fix is a choice that can be pasted."""
    missing = home.check("fast_model")
    assert (missing.status, "no fastModel is set" in missing.detail) == (Status.FAIL, True)
    assert missing.fix.startswith("qwen-watcher service install --model extractive")
    home.config("[title]\nenabled = false\n")
    assert home.check("fast_model").status is Status.WARN
    home.config("")
    home.settings({"fastModel": "gone"})
    assert "no modelProviders entry has that id" in home.check("fast_model").detail
    home.fast_model()
    found = home.check("fast_model")
    assert (found.status, "flash (openai)" in found.detail, "settings.json" in found.detail) == (Status.OK, True, True)
    home.config('[model]\nsource = "extractive"\n')
    assert home.check("fast_model").status is Status.OK
    home.config('[model]\nsource = "explicit"\nname = "mine"\nbase_url = "http://127.0.0.1:1/v1"\n')
    assert home.check("fast_model").detail == "mine (openai)"


def test_the_key_is_named_and_never_shown(home: Home) -> None:
    """Set, it passes by the name of its variable; unset, the fix puts it where Qwen Code and the service find it."""
    home.fast_model(envKey="MY_KEY")
    unset = home.check("api_key")
    assert (unset.status, "MY_KEY is not set" in unset.detail) == (Status.FAIL, True)
    assert home.check("fast_model").fix == "see api_key"
    good = home.check("api_key", MY_KEY="sesame-open")
    assert (good.status, "MY_KEY from the environment" in good.detail) == (Status.OK, True)
    assert "sesame" not in good.detail + good.fix
    subprocess.run(["sh", "-c", unset.fix.replace("YOUR-KEY", "sesame-open")], check=True)
    file = home.check("api_key")
    assert (file.status, ".env" in file.detail) == (Status.OK, True)
    assert (home.qwen / ".env").stat().st_mode & 0o777 == 0o600
    home.fast_model()
    assert home.check("api_key").status is Status.WARN
    home.fast_model("http://127.0.0.1:11434/v1")
    assert home.check("api_key").status is Status.OK
    home.settings({})
    assert home.check("api_key").status is Status.WARN


def _answer(request: Request) -> Response:
    message = {"role": "assistant", "content": "ready"}
    usage = {"prompt_tokens": 20, "completion_tokens": 1}
    return json_response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})


def test_the_endpoint_is_asked_only_on_request(home: Home) -> None:
    """Without --probe no request is made; with it one, counted as any other; a refusal says what to look at."""
    assert home.check("endpoint").status is Status.WARN
    with ModelServer(_answer) as server:
        home.fast_model(f"{server.url}/v1")
        quiet = home.check("endpoint")
        assert (quiet.status, "--probe" in quiet.detail, server.requests) == (Status.OK, True, [])
        good = home.check("endpoint", with_probe=True)
        assert (good.status, "flash at 127.0.0.1 answered" in good.detail) == (Status.OK, True)
        assert len(server.requests) == 1
        Store.open(home.state).close()
        home.check("endpoint", with_probe=True)
        store = Store.open(home.state)
        assert store.calls_on(local_day(time.time())) == len(server.requests) - 1
        store.close()
        server.script = lambda _: json_response({"error": {"message": "bad key"}}, status=401)
        denied = home.check("endpoint", with_probe=True)
        assert (denied.status, "HTTP 401" in denied.detail, "api_key" in denied.fix) == (Status.FAIL, True, True)
        server.script = lambda _: json_response({"error": {"message": "no such model"}}, status=404)
        assert "model's name" in home.check("endpoint", with_probe=True).fix
        url = server.url
    gone = home.check("endpoint", with_probe=True)
    assert (gone.status, gone.fix.startswith("curl"), url in gone.fix) == (Status.FAIL, True, True)
    home.fast_model("ftp://nowhere")
    assert home.check("endpoint").status is Status.FAIL
    home.config('[model]\nsource = "extractive"\n')
    assert home.check("endpoint", with_probe=True).status is Status.OK


def test_recaps_are_off_on_purpose_or_have_a_model(home: Home) -> None:
    """Off says how to have them; on without a model fails; the main model may stand in."""
    off = home.check("recaps")
    assert (off.status, "--enable-recaps" in off.detail) == (Status.OK, True)
    home.config("[recap]\nenabled = true\n")
    bare = home.check("recaps")
    assert (bare.status, "extractive" in bare.fix) == (Status.FAIL, True)
    provider = {"id": "big", "baseUrl": "https://model.example/v1"}
    auth = {"auth": {"selectedType": "openai"}}
    main = {"modelProviders": {"openai": [provider]}, "model": {"name": "big"}, "security": auth}
    home.settings(main)
    assert home.check("recaps") == Check("recaps", Status.OK, "on, with big, 5 min after you went away")
    home.config("")
    home.settings({**main, "general": {"showSessionRecap": True, "sessionRecapAwayThresholdMinutes": 2}})
    assert "2 min" in home.check("recaps").detail
    home.config('[model]\nsource = "extractive"\n')
    assert "extractive" in home.check("recaps").detail


# -- the watcher itself ------------------------------------------------------------------------------------------------


@contextmanager
def open_store(home: Home) -> Iterator[Store]:
    """The home's state database."""
    store = Store.open(home.state)
    try:
        yield store
    finally:
        store.close()


def test_the_budget_of_today(home: Home) -> None:
    """Unused passes, nearly used warns, used up fails, none at all fails; the offline model needs none."""
    assert home.check("budget") == Check("budget", Status.OK, "0 of 300 calls used today")
    home.config("[budget]\ncalls_per_day = 5\n")
    with open_store(home) as store:
        for number, status in enumerate([Status.OK, Status.OK, Status.OK, Status.WARN, Status.FAIL], start=1):
            assert store.take_call(local_day(time.time()), 5)
            assert (home.check("budget").status, f"{number} of 5" in home.check("budget").detail) == (status, True)
    home.config("[budget]\ncalls_per_day = 0\n")
    assert home.check("budget").status is Status.FAIL
    home.config('[model]\nsource = "extractive"\n[budget]\ncalls_per_day = 0\n')
    assert home.check("budget").status is Status.OK


@contextmanager
def running_watcher(home: Home, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """The real watcher in the foreground."""
    process = subprocess.Popen(
        [sys.executable, "-m", "watcher", "run"], env={**home.environ, **environ}, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if b"started" in line:
                break
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.slow
def test_the_running_instance(home: Home) -> None:
    """None is a warning; one of this version passes; another version, and a second watcher, are named."""
    assert home.check("instance").detail == "no watcher is running"
    with running_watcher(home) as process:
        eventually(lambda: home.check("instance").status is Status.OK)
        assert home.check("instance").detail == f"pid {process.pid}, version {watcher.__version__}"
        with open_store(home) as store:
            beat = store.heartbeat()
            assert beat is not None
            store.put_heartbeat(replace(beat, version="0.0.1"))
        old = home.check("instance")
        assert (old.status, "0.0.1" in old.detail, str(process.pid) in old.fix) == (Status.WARN, True, True)
        second = {"QWEN_WATCHER_STATE_DIR": str(home.path / "second")}
        with running_watcher(home, **second) as other:
            found = home.check("instance")
            assert (found.status, f"pid {other.pid}" in found.detail) == (Status.WARN, True)
    assert home.check("instance").status is Status.WARN


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/v/bin/python -P -m watcher run", True),
        ("/v/bin/python /v/bin/qwen-watcher run --dry-run", True),
        ("/home/me/.local/bin/qwen-watcher run", True),
        ("/v/bin/python -m watcher doctor", False),
        ("vi qwen-watcher", False),
        ("npm run qwen-watcher", False),
    ],
)
def test_a_watcher_is_known_by_its_command_line(command: str, expected: bool) -> None:
    """`qwen-watcher run` in each of its spellings, and nothing else."""
    assert is_watcher(command.split()) is expected


def test_an_older_process_holding_the_state_directory_is_told_by_its_pid(home: Home) -> None:
    """A holder that left no version is named by its pid alone."""
    with only_instance(home.state):
        assert f"pid {os.getpid()}" in home.check("instance").detail


def test_running_doctor_ends_the_brake(home: Home) -> None:
    """Three anomalies stop all writing; doctor tells them, ends that, and the sessions concerned stay alone."""
    assert home.check("brake") == Check("brake", Status.OK, "not pulled")
    with open_store(home) as store:
        for number in range(3):
            store.note_anomaly(f"session-{number}", "bytes changed under us", time.time())
        assert store.stopped_all()
        found = home.check("brake")
        assert found.status is Status.WARN
        assert "3 anomalies within a day" in found.detail
        assert "ended that" in found.detail
        assert store.stopped_all() is None
        again = home.check("brake")
        assert (again.status, "3 sessions are left alone" in again.detail) == (Status.WARN, True)
        assert "ended that" not in again.detail


def test_a_pause_is_told(home: Home) -> None:
    """A pause that was forgotten is a reason why nothing is written."""
    with open_store(home) as store:
        store.pause(None)
        assert home.check("brake").fix == "qwen-watcher resume"
        store.resume()
        assert home.check("brake").status is Status.OK


def test_a_state_database_that_cannot_be_used_fails(home: Home) -> None:
    """One of a newer version is told by `state_dir`, with its fix; brake and budget refer to that, the others go on."""
    with open_store(home) as store:
        store._db.run("PRAGMA user_version = 999")
    found = home.check("state_dir")
    assert (found.status, "newer version" in found.detail, bool(found.fix)) == (Status.FAIL, True, True)
    for name in ("brake", "budget"):
        found = home.check(name)
        assert (found.status, "see state_dir" in found.detail) == (Status.WARN, True)
    assert home.check("python").status is Status.OK


# -- the command -------------------------------------------------------------------------------------------------------


def doctor(environ: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "watcher", "doctor", *options]
    return subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_command_shows_every_check(home: Home) -> None:
    """JSON on stdout with the documented keys and order; exit code 1 exactly when something fails."""
    done = doctor(home.environ, "--json")
    results = json.loads(done.stdout)
    assert [result["check"] for result in results] == list(CHECK_NAMES)
    assert all(set(result) == {"check", "status", "detail", "fix"} for result in results)
    assert done.returncode == 1
    assert {r["check"] for r in results if r["status"] == "fail"} == {"fast_model"}
    home.config('[model]\nsource = "extractive"\n')
    text = doctor(home.environ)
    assert (text.returncode, text.stderr) == (0, "")
    shown = [line.split()[1] for line in text.stdout.splitlines() if re.match(r"(ok|warn|fail) ", line)]
    assert shown == list(CHECK_NAMES)
    assert "fix: qwen-watcher service install" in text.stdout


def test_the_command_works_with_a_wrong_configuration(home: Home) -> None:
    """Where every other command ends with 2, doctor says what is wrong and checks the rest."""
    home.config("not toml")
    done = doctor(home.environ, "--json")
    results = {result["check"]: result for result in json.loads(done.stdout)}
    assert (done.returncode, results["settings"]["status"], len(results)) == (1, "fail", len(CHECK_NAMES))


def test_the_heartbeat_of_another_process_is_no_running_version(home: Home) -> None:
    """What an earlier run noted of itself says nothing about the one that runs now."""
    with open_store(home) as store:
        store.put_heartbeat(Heartbeat(1, 0.0, 0.0, "0.0.1", {}))
    with only_instance(home.state), gather(home.environ) as context:
        assert (context.running_pid, context.running_version) == (os.getpid(), "")
