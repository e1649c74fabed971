"""The watcher itself as a service: installed from a wheel, on a real `systemd --user`, as root and without privileges.

`tests/test_service_systemd.py` has the fine points of the unit, with a stand-in; here the daemon and the commands run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from ptyprocess import PtyProcessUnicode

import watcher
from tests.support.installed import build_wheel, install_wheel, python_for_everyone, why_no_venv
from tests.support.live import registry_record, write_record
from tests.support.systemd_user import UNPRIVILEGED_USER, UserManager, user_manager, wait_for, why_not
from tests.support.transcripts import Transcript

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]

UNIT = "qwen-watcher.service"
SECONDS = 30.0
FAST = "[Service]\nWatchdogSec=5\nRestartSec=0.1\nStandardError=append:{log}\n"
"""What the tests shorten, and a log that they can read: this manager has no journal."""
QUICK = {"QWEN_WATCHER_TITLE__SETTLE_SECONDS": "0.2"}


class Installation:
    """The wheel, and an environment that it was installed into, with a Python that every user can start."""

    def __init__(self, directory: Path) -> None:
        self.wheel = build_wheel(directory)
        self.wheel.chmod(0o644)
        self.python = python_for_everyone()
        self.for_everyone = self.python is not None
        self.bin = install_wheel(self.python or sys.executable, self.wheel, directory / "venv")


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """One for all tests of this module, where every user can read it."""
    reason = why_not() or why_no_venv(python_for_everyone() or sys.executable)
    if reason:
        pytest.skip(f"not here: {reason}")
    directory = Path("/tmp") / f"qw-installed-{os.getpid()}"
    directory.mkdir(mode=0o755)
    try:
        yield Installation(directory)
    finally:
        shutil.rmtree(directory)


class Machine:
    """A user with a manager and the program."""

    def __init__(self, manager: UserManager, bin_directory: Path) -> None:
        self.manager = manager
        self.bin = bin_directory
        self.log = manager.home / "service.log"
        self.chats = manager.home / ".qwen" / "projects" / "-home-user-proj" / "chats"
        self.chats.mkdir(parents=True)
        self.drop_in(FAST.format(log=self.log))
        manager.own(manager.home)

    def drop_in(self, text: str) -> None:
        file = self.manager.unit_dir / f"{UNIT}.d" / "test.conf"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def call(
        self, *words: str, code: int | None = 0, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command of the program, as the user."""
        done = self.manager.run(str(self.bin / "qwen-watcher"), *words, check=False, environ=environ, timeout=100)
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def doctor(self, environ: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
        done = self.call("doctor", "--json", code=None, environ=environ)
        return {result["check"]: result for result in json.loads(done.stdout)}

    def session(self, prompt: str, **fields: Any) -> Transcript:
        """A new session with one finished turn, which appears whole and belongs to the user."""
        made = Transcript(self.manager.home / "staging", at=time.time() - 20, **fields)
        made.user(prompt)
        made.snapshot()
        made.assistant("Done.")
        self.manager.own(made.path.parent)
        target = self.chats / made.path.name
        made.path.rename(target)
        made.path = target
        return made

    def wait_titled(self, session: Transcript, *, seconds: float = SECONDS) -> None:
        wait_for(lambda: is_titled(session), seconds=seconds, what=f"it has a title\n{self.log_text()}")

    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def config(self, text: str) -> None:
        file = self.manager.home / ".config" / "qwen-watcher" / "config.toml"
        file.write_text(text)

    def pid(self) -> int:
        return int(self.manager.show(UNIT, "MainPID"))

    def wait_for_another(self, pid: int) -> int:
        """Wait until another process than `pid` is active; returns its id."""

        def changed() -> bool:
            return self.manager.show(UNIT, "ActiveState") == "active" and self.pid() not in (0, pid)

        wait_for(changed, seconds=SECONDS, what=f"a new process is active\n{self.log_text()}")
        return self.pid()

    def files(self) -> set[str]:
        """Every file and directory of the user but for sessions, the log and what the program remembers."""
        ignored = (".qwen", "staging", "service.log", ".local", ".cache")
        paths = (str(path.relative_to(self.manager.home)) for path in self.manager.home.rglob("*"))
        return {path for path in paths if not path.startswith(ignored)}


def is_titled(session: Transcript) -> bool:
    return b'"subtype":"custom_title"' in session.path.read_bytes()


@contextmanager
def machine_of(user: str, installation: Installation) -> Iterator[Machine]:
    if user != "root" and not installation.for_everyone:
        pytest.skip(f"no Python 3.11 or later that user {user} can start")
    with user_manager(user) as manager:
        yield Machine(manager, installation.bin)


@pytest.fixture(params=["root", UNPRIVILEGED_USER])
def each_machine(request: pytest.FixtureRequest, installation: Installation) -> Iterator[Machine]:
    """A user manager of root, and one of a user without any privilege, as everybody has one."""
    with machine_of(request.param, installation) as machine:
        yield machine


@pytest.fixture
def machine(installation: Installation) -> Iterator[Machine]:
    """The one without any privilege."""
    with machine_of(UNPRIVILEGED_USER, installation) as made:
        yield made


def test_install_it_and_forget_it(each_machine: Machine) -> None:
    """Installed, it titles; killed or hung, it comes back and goes on; stopped, it stops; removed, it is gone."""
    machine = each_machine
    before = machine.files()
    installed = machine.call("service", "install", "--model", "extractive", environ=QUICK).stdout
    assert "Installed and started" in installed
    assert "titles: cut from your own words, offline and free" in installed
    assert "recaps: off (general.showSessionRecap is off in Qwen Code)" in installed
    assert "qwen-watcher service uninstall" in installed
    assert machine.manager.show(UNIT, "ActiveState") == "active"
    assert machine.manager.systemctl("is-enabled", UNIT) == "enabled"
    machine.wait_titled(machine.session("Please fix the login test in the auth module"))
    assert "extractive" in machine.log_text()

    pid = machine.pid()
    os.kill(pid, signal.SIGKILL)
    pid = machine.wait_for_another(pid)
    machine.wait_titled(machine.session("Please speed up the search index of the shop"))

    os.kill(pid, signal.SIGSTOP)
    pid = machine.wait_for_another(pid)
    machine.wait_titled(machine.session("Please write a parser for the date column"))

    shown = machine.call("service", "status").stdout
    assert f"running (pid {pid}): " in shown
    assert "sessions" in shown
    results = machine.doctor(environ=QUICK)
    bad = {name: result for name, result in results.items() if result["status"] == "fail"}
    assert bad == {}
    healthy = ("homes", "sessions", "events", "instance", "service", "service_environment", "state_dir", "brake")
    assert {name: results[name]["status"] for name in healthy} == dict.fromkeys(healthy, "ok")

    began = time.monotonic()
    machine.manager.systemctl("stop", UNIT)
    assert time.monotonic() - began < 2
    assert machine.manager.show(UNIT, "Result") == "success"
    machine.manager.systemctl("start", UNIT)

    removed = machine.call("service", "uninstall").stdout
    assert "Stopped and removed." in removed
    config = {".config/qwen-watcher", ".config/qwen-watcher/config.toml"}
    assert machine.files() - before == config  # the user's own, and said so
    assert ".config/qwen-watcher/config.toml" in removed
    assert machine.manager.systemctl("list-units", "--all", "--no-legend", UNIT) == ""
    assert machine.call("service", "uninstall").stdout == "nothing was installed\n"
    assert "not installed" in machine.call("service", "status").stdout


def test_reload_with_a_good_and_with_a_bad_file(machine: Machine) -> None:
    """A good file counts at once, a bad one is one warning and changes nothing; the process stays the same."""
    machine.call("service", "install", "--model", "extractive", environ=QUICK)
    pid = machine.pid()
    good = '[model]\nsource = "extractive"\n'
    machine.config(good + "[title]\nenabled = false\n")
    machine.manager.systemctl("reload", UNIT)
    wait_for(lambda: "reloaded" in machine.log_text(), seconds=SECONDS, what="it has reloaded")
    quiet = machine.session("Please fix the login test in the auth module")
    machine.config('[model]\nsource = "extractive\n')
    machine.manager.systemctl("reload", UNIT)
    wait_for(lambda: "reload_failed" in machine.log_text(), seconds=SECONDS, what="it has refused")
    assert machine.manager.show(UNIT, "ActiveState") == "active"
    assert not is_titled(quiet)
    warnings = [line for line in machine.log_text().splitlines() if '"warning"' in line]
    assert len(warnings) == 1
    assert "config.toml" in warnings[0]
    assert "the old configuration stays" in warnings[0]
    machine.config(good)
    machine.manager.systemctl("reload", UNIT)
    machine.wait_titled(quiet)
    assert machine.pid() == pid


def test_an_upgrade_under_the_running_service(machine: Machine, installation: Installation) -> None:
    """The old version goes on, `status` and `doctor` say so, and a second install brings the new one."""
    copy = machine.manager.home / "staging" / "venv"
    shutil.copytree(machine.bin.parent, copy, symlinks=True)
    [package] = copy.glob("lib/python*/site-packages/watcher")
    for script in (copy / "bin").glob("qwen-watcher"):
        script.write_text(script.read_text().replace(str(machine.bin.parent), str(copy)))
    machine.manager.own(copy)
    machine.bin = copy / "bin"
    machine.call("service", "install", "--model", "extractive", environ=QUICK)
    assert machine.doctor(environ=QUICK)["instance"]["status"] == "ok"
    version = (package / "__init__.py").read_text().replace(watcher.__version__, "9.9.9")
    (package / "__init__.py").write_text(version)
    assert "9.9.9 is installed" in machine.call("service", "status").stdout
    found = machine.doctor(environ=QUICK)
    for name in ("instance", "service"):
        assert (found[name]["status"], found[name]["fix"]) == ("warn", "qwen-watcher service install")
        assert watcher.__version__ in found[name]["detail"]
        assert "9.9.9" in found[name]["detail"]
    machine.wait_titled(machine.session("Please fix the login test in the auth module"))
    assert "Restarted: qwen-watcher 9.9.9" in machine.call("service", "install", environ=QUICK).stdout
    assert {machine.doctor(environ=QUICK)[name]["status"] for name in ("instance", "service")} == {"ok"}
    # and an environment that moved away is named, and mended from the new one
    copy.rename(copy.with_name("gone"))
    machine.bin = installation.bin
    gone = machine.doctor(environ=QUICK)["service"]
    assert (gone["status"], gone["fix"]) == ("fail", "qwen-watcher service install")
    assert "is gone" in machine.call("service", "status").stdout
    assert "Repaired" in machine.call("service", "install", environ=QUICK).stdout
    assert machine.doctor(environ=QUICK)["service"]["status"] == "ok"


def test_the_owners_own_environment_is_seen_from_inside_the_unit(machine: Machine) -> None:
    """A user without privileges: QWEN_DISABLE_AUTO_TITLE in the environment of the session's process counts."""
    machine.call("service", "install", "--model", "extractive", environ=QUICK)
    owner = subprocess.Popen(
        machine.manager.as_user(["sleep", "100"]), env={**machine.manager.environ, "QWEN_DISABLE_AUTO_TITLE": "1"}
    )
    try:
        wait_for(
            lambda: Path(f"/proc/{owner.pid}/comm").read_text() == "sleep\n", seconds=SECONDS, what="it has started"
        )
        quiet_id = "1f6c9a52-5a0d-4d3c-9f0e-0d6f0f3b2c11"
        config_dir = machine.manager.home / ".qwen"
        (config_dir / "sessions").mkdir(mode=0o700)
        write_record(config_dir, registry_record(owner.pid, quiet_id))
        machine.manager.own(config_dir / "sessions")
        quiet = machine.session("Please fix the login test in the auth module", session_id=quiet_id)
        machine.wait_titled(machine.session("Please speed up the search index of the shop"))
        why = json.loads(machine.call("why", quiet_id, "--json", environ=QUICK).stdout)
        assert (why["title"]["verdict"], why["title"]["reason"]) == ("skip", "disabled")
        assert not is_titled(quiet)
    finally:
        owner.kill()
        owner.wait()


def test_the_key_of_the_model(machine: Machine) -> None:
    """A key that only the shell has: said, not stored unasked; stored on request; never shown; gone on uninstall."""
    provider = {"id": "flash", "baseUrl": "http://127.0.0.1:9/v1", "envKey": "MY_KEY"}
    settings = {"modelProviders": {"openai": [provider]}, "fastModel": "flash"}
    (machine.manager.home / ".qwen" / "settings.json").write_text(json.dumps(settings))
    shell = {"MY_KEY": "sesame-open"}
    output = machine.call("service", "install", environ=shell).stdout
    assert "The service does not see MY_KEY" in output
    assert "titles: none, MY_KEY is not set" in output
    seen = machine.doctor(environ=shell)["service_environment"]
    assert (seen["status"], seen["fix"].split("  #")[0]) == ("fail", "qwen-watcher service install --store-key")
    file = machine.manager.home / ".config" / "qwen-watcher" / "service.env"
    assert not file.exists()
    output = machine.call("service", "install", "--store-key", environ=shell).stdout
    assert "titles: with flash" in output
    assert "sesame" not in output
    assert file.stat().st_mode & 0o777 == 0o600
    assert "sesame" not in (machine.manager.unit_dir / UNIT).read_text()
    assert machine.doctor(environ=shell)["service_environment"]["status"] == "ok"
    assert "stands there already" in machine.call("service", "install", "--store-key", environ=shell).stdout
    machine.call("service", "uninstall")
    assert not file.exists()
    # where a file has the key, the shell's is not needed
    (machine.manager.home / ".qwen" / ".env").write_text("MY_KEY=sesame-open\n")
    assert "titles: with flash" in machine.call("service", "install", environ=shell).stdout


def test_a_service_that_cannot_start_leaves_everything_as_it_was(machine: Machine) -> None:
    """A state directory that cannot be made: one line that says why to look, no unit, and the old configuration."""
    before = machine.files()
    blocked = {"QWEN_WATCHER_STATE_DIR": "/proc/nowhere"}
    machine.drop_in(FAST.format(log=machine.log).replace("RestartSec=0.1", "Restart=no"))
    done = machine.call("service", "install", "--model", "extractive", "--enable-recaps", code=1, environ=blocked)
    assert "the service did not start" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert machine.files() == before


def test_a_foreground_watcher_stands_in_the_way(machine: Machine) -> None:
    """Two watchers cannot share a state directory, so `install` names the one that runs and how to end it."""
    command = machine.manager.as_user([str(machine.bin / "qwen-watcher"), "run"])
    with machine.log.open("wb") as log:
        process = subprocess.Popen(command, env=dict(machine.manager.environ), stderr=log)
    try:
        wait_for(lambda: "started" in machine.log_text(), seconds=SECONDS, what="it has started")
        done = machine.call("service", "install", code=1)
        assert f"kill {process.pid}" in done.stderr
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)


@contextmanager
def at_terminal(machine: Machine, *words: str, environ: Mapping[str, str] | None = None) -> Iterator[PtyProcessUnicode]:
    """A command of the program at a terminal of its own."""
    command = machine.manager.as_user([str(machine.bin / "qwen-watcher"), *words])
    process = PtyProcessUnicode.spawn(
        command, env={**machine.manager.environ, "TERM": "xterm", **(environ or {})}, cwd=str(machine.manager.home)
    )
    try:
        yield process
    finally:
        process.close(force=True)


def read_until(process: PtyProcessUnicode, condition: Callable[[str], bool]) -> str:
    """What the terminal showed, until the condition holds of it, or until the program has ended."""
    shown = ""
    while not condition(shown):
        try:
            shown += process.read(1024)
        except EOFError:
            break
    return shown


def test_at_a_terminal_it_asks(machine: Machine) -> None:
    """Without a fast model it offers the choice; the answer is saved, the service runs with it."""
    with at_terminal(machine, "service", "install", environ=QUICK) as terminal:
        shown = read_until(terminal, lambda text: "Choice" in text)
        assert "no fastModel is set in Qwen Code's settings" in shown
        terminal.write("7\n")
        read_until(terminal, lambda text: "1 to 3" in text)
        terminal.write("2\n")
        assert "titles: cut from your own words" in read_until(terminal, lambda _: False)
        assert terminal.wait() == 0
    machine.wait_titled(machine.session("Please fix the login test in the auth module"))
    with at_terminal(machine, "doctor") as terminal:
        assert "\x1b[32mok  \x1b[0m python" in read_until(terminal, lambda _: False)


def test_at_a_terminal_it_asks_before_it_stores_a_key(machine: Machine) -> None:
    """An explicit model's key is stored after a yes, and not after a no."""
    options = ("--model", "mine", "--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "MY_KEY")
    for answer, stored in (("n", False), ("y", True)):
        with at_terminal(machine, "service", "install", *options, environ={"MY_KEY": "sesame-open"}) as terminal:
            read_until(terminal, lambda text: "Store it" in text)
            terminal.write(f"{answer}\n")
            shown = read_until(terminal, lambda _: False)
            assert "sesame" not in shown
            assert ("titles: with mine" in shown) is stored
    assert "sesame-open" in (machine.manager.home / ".config" / "qwen-watcher" / "service.env").read_text()


def test_the_command_says_what_systemd_says(machine: Machine) -> None:
    """`service logs` runs the journal's own program; `doctor` names lingering with the command that mends it."""
    machine.call("service", "install", "--model", "extractive")
    logs = machine.call("service", "logs", "-n", "5", code=None)
    assert "Traceback" not in logs.stderr
    lingering = machine.doctor()["lingering"]
    assert lingering["status"] in ("ok", "warn")
    if lingering["status"] == "warn":
        assert lingering["fix"] == f"loginctl enable-linger {machine.manager.user}"


def test_a_new_user_from_the_wheel_alone(installation: Installation) -> None:
    """Empty home, empty environment: pip, one command, a title to be seen, one command to be rid of it."""
    if installation.python is None:
        pytest.skip(f"no Python 3.11 or later that user {UNPRIVILEGED_USER} can start")
    with user_manager(UNPRIVILEGED_USER) as manager:
        bin_directory = install_wheel(installation.python, installation.wheel, manager.home / "venv")
        machine = Machine(manager, bin_directory)
        assert machine.call("--version").stdout == f"qwen-watcher {watcher.__version__}\n"
        assert (
            "Installed and started" in machine.call("service", "install", "--model", "extractive", environ=QUICK).stdout
        )
        session = machine.session("Please fix the login test in the auth module")
        machine.wait_titled(session)
        [listed] = json.loads(machine.call("sessions", "--json").stdout)
        assert listed["session_id"] == session.session_id
        assert listed["title_source"] == "auto"
        assert "login test" in listed["title"]
        [written] = machine.call("tail", "--json").stdout.splitlines()
        assert json.loads(written)["text"] == listed["title"]
        assert json.loads(machine.call("status", "--json").stdout)["running"] is True
        memory = psutil.Process(machine.pid()).memory_info().rss
        assert memory < 256 * 2**20
        machine.call("service", "uninstall")
        assert json.loads(machine.call("status", "--json").stdout)["running"] is False
        assert not list(manager.unit_dir.glob(UNIT))
