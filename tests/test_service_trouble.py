"""What a service meets in months of running: a full disk, a new configuration, a sleeping laptop, a growing log."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.terminal import wait_until
from tests.support.transcripts import Transcript
from tests.support.watching import Watching, command, watcher_env
from watcher.paths import log_path

SETTINGS = {"model.source": "extractive", "title.settle_seconds": 0.1}
DAY = 86_400.0


class Home:
    """A user's home with sessions that the test writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)

    def session(self, number: int, *, home: str = ".qwen") -> Transcript:
        made = Transcript(self.path / home / "projects" / "-home-user-proj" / "chats", at=time.time() - 20)
        made.turn(f"Please fix login test number {number} in the auth module", "Done.")
        return made

    def config(self, text: str) -> None:
        file = self.path / ".config" / "qwen-watcher" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home(tmp_path / "home")


def is_titled(session: Transcript) -> bool:
    return b'"subtype":"custom_title"' in session.path.read_bytes()


def wait_titled(session: Transcript, watching: Watching) -> None:
    wait_until(lambda: is_titled(session), "it has a title", dump=watching.dump)


def cpu_seconds(watching: Watching) -> float:
    """What the watcher has spent so far."""
    times = psutil.Process(watching.pid).cpu_times()
    return float(times.user + times.system)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB: enough to begin with, soon full."""
    disk = tmp_path / "small disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(disk)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no small file system can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take all the space that is left; returns the file that has it."""
    file = disk / "fill"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (4096, 1):
            while True:
                try:
                    os.write(descriptor, b"x" * size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    break
    finally:
        os.close(descriptor)
    return file


def test_a_full_disk_is_one_line_and_no_harm(home: Home, small_disk: Path) -> None:
    """The state directory is full: nothing is written anywhere, it is said once; with room again, titles come again."""
    with Watching(watcher_env(home.path, small_disk / "state", SETTINGS)) as watching:
        wait_titled(home.session(0), watching)
        full = fill(small_disk)
        sessions = [home.session(number) for number in range(1, 6)]
        before = [session.path.read_bytes() for session in sessions]
        watching.wait_event("state")
        used = cpu_seconds(watching)
        # It answers a signal, so it has not stopped at the first trouble.
        watching.send_signal(signal.SIGHUP)
        watching.wait_event("reloaded")
        assert [session.path.read_bytes() for session in sessions] == before
        [line] = [each for each in watching.log(level="warning") if each["event"] == "state"]
        assert "disk is full" in line["detail"]
        assert "free some space" in line["detail"]
        full.unlink()
        for session in sessions:
            session.turn("Please look at the search index as well", "Done.")
            wait_titled(session, watching)
        assert cpu_seconds(watching) - used < 5
        assert watching.log(level="error") == []


def test_a_disk_that_is_full_at_the_start_is_one_line(home: Home, small_disk: Path) -> None:
    """No state can be made: exit code 1, one line with the remedy, no traceback; doctor says the same."""
    (small_disk / "state").mkdir()
    fill(small_disk)
    env = watcher_env(home.path, small_disk / "state", SETTINGS)
    done = command(env, "run")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("qwen-watcher: ")
    assert "free some space" in last
    found = {result["check"]: result for result in json.loads(command(env, "doctor", "--json").stdout)}
    assert (found["state_dir"]["status"], found["state_dir"]["fix"].startswith("df -h")) == ("fail", True)


def test_a_reload_follows_another_home(home: Home, tmp_path: Path) -> None:
    """A home that is named later is watched; what stands there already is left alone; one that is dropped is left."""
    first, second = str(home.path / ".qwen"), str(home.path / "other")
    home.config(f'[watch]\nhomes = ["{first}"]\n')
    old = home.session(0, home="other")
    with Watching(watcher_env(home.path, tmp_path / "state", SETTINGS)) as watching:
        wait_titled(home.session(1), watching)
        home.config(f'[watch]\nhomes = ["{second}"]\n[model]\nmax_concurrency = 1\n')
        watching.send_signal(signal.SIGHUP)
        watching.wait_event("reloaded")
        left = home.session(2)
        wait_titled(home.session(3, home="other"), watching)
        assert (is_titled(old), is_titled(left)) == (False, False)
        old.turn("Please fix the search index as well", "Done.")
        wait_titled(old, watching)
        home.config(f'[watch]\nhomes = ["{first}", "{second}"]\n')
        watching.send_signal(signal.SIGHUP)
        wait_titled(left, watching)
        wait_titled(home.session(4, home="other"), watching)


def test_a_reload_may_change_how_changes_are_noticed(home: Home, tmp_path: Path) -> None:
    """From events to polling and back, without a restart."""
    with Watching(watcher_env(home.path, tmp_path / "state", SETTINGS)) as watching:
        wait_titled(home.session(0), watching)
        home.config('[watch]\nbackend = "polling"\n')
        watching.send_signal(signal.SIGHUP)
        watching.wait_event("polling")
        home.config("")
        watching.send_signal(signal.SIGHUP)
        wait_until(lambda: len(watching.log("reloaded")) == 2, "it has reloaded twice", dump=watching.dump)
        wait_titled(home.session(1), watching)


def test_a_sleep_brings_no_storm(home: Home, tmp_path: Path) -> None:
    """Stopped for a while and woken: what happened meanwhile is done once, and then it is quiet again."""
    with Watching(watcher_env(home.path, tmp_path / "state", SETTINGS)) as watching:
        wait_titled(home.session(0), watching)
        watching.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(watching.pid).status() == psutil.STATUS_STOPPED, "it sleeps")
        sessions = [home.session(number) for number in range(1, 21)]
        watching.send_signal(signal.SIGCONT)
        for session in sessions:
            wait_titled(session, watching)
        wait_until(lambda: len(watching.log("title_written")) == 21, "all is told", dump=watching.dump)
        assert [line for line in watching.log() if line["level"] in ("warning", "error")] == []
        counts = [session.path.read_bytes().count(b'"subtype":"custom_title"') for session in sessions]
        assert counts == [1] * 20


def test_the_log_under_launchd_is_rotated(home: Home, tmp_path: Path) -> None:
    """Where stderr is launchd's log file, one of 5 MiB is put aside at the next look; another file is left alone."""
    env = watcher_env(home.path, tmp_path / "state", SETTINGS)
    file = log_path(env)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"old line\n" * 700_000)
    with file.open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "watcher", "run"], env=env, stderr=log)
    try:
        wait_until(lambda: file.stat().st_size < 100_000, "it is rotated")
        assert file.with_name(file.name + ".1").read_bytes().startswith(b"old line\n")
        wait_until(lambda: b'"started"' in file.read_bytes(), "it goes on there")
    finally:
        process.terminate()
        process.wait(timeout=30)
