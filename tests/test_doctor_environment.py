"""Each check of `doctor` that needs only the environment, shown failing and passing on the real condition."""

from __future__ import annotations

import dataclasses
import functools
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watchdog.observers.polling import PollingObserver

from tests.support.users import open_directory, without_privileges
from watcher.config import Config, TitleConfig, WatchConfig
from watcher.doctor import CHECK_NAMES, CHECKS, Check, DoctorContext, Status, run_checks, worst
from watcher.doctor.places import measure_event
from watcher.edge.mounts import Mount, parse_mountinfo, read_mounts
from watcher.edge.watch_limits import InotifyUse, read_inotify_use
from watcher.errors import StateError
from watcher.qwen.roots import Root, session_roots
from watcher.qwen.settings import SettingsReader
from watcher.service import ServiceState, ServiceStatus
from watcher.service.environment import with_block

Make = Callable[..., DoctorContext]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A context of a user whose home is `tmp_path`; keywords replace its values."""

    def build(**values: Any) -> DoctorContext:
        environ: dict[str, str] = {"HOME": str(tmp_path), **values.pop("environ", {})}
        reader = SettingsReader(tmp_path, environ)
        roots = session_roots(reader)
        context = DoctorContext(
            environ=environ,
            config=Config(),
            home=tmp_path,
            state_dir=tmp_path / "state",
            roots=roots,
            settings={root.config_dir: reader.resolve("", False, root.config_dir) for root in roots},
        )
        return dataclasses.replace(context, **values)

    return build


def run(name: str, context: DoctorContext) -> Check:
    """One check, as `doctor` runs it."""
    [check] = run_checks(context, {name: CHECKS[name]})
    assert check.check == name
    assert "\n" not in check.detail
    assert check.status is Status.OK or check.detail
    return check


def make_project(home: Path, name: str = "-work-app") -> Path:
    chats = home / ".qwen" / "projects" / name / "chats"
    chats.mkdir(parents=True)
    return chats


def test_python_is_new_enough(make: Make) -> None:
    """This Python passes; 3.10 fails with the command that mends it."""
    assert run("python", make()).status is Status.OK
    old = run("python", make(python_version=(3, 10, 14)))
    assert (old.status, "3.10.14" in old.detail) == (Status.FAIL, True)
    assert "pipx install --python python3.11" in old.fix


def write_distribution(base: Path, name: str, version: str, *requires: str) -> None:
    directory = base / f"{name.replace('-', '_')}-{version}.dist-info"
    directory.mkdir(parents=True)
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (directory / "METADATA").write_text("\n".join(lines) + "\n")


def test_packages_are_there_in_a_usable_version(make: Make, tmp_path: Path) -> None:
    """Missing and too old packages are named with what is needed; extras do not count."""
    needs = ("watchdog>=7.1", "httpx[socks]>=0.28", "Typing.Extensions>=4", "build>=1; extra == 'dev'")
    write_distribution(tmp_path / "site", "qwen-session-watcher", "1.2", *needs)
    write_distribution(tmp_path / "site", "watchdog", "6.0.0")
    write_distribution(tmp_path / "site", "typing-extensions", "4.0.0rc1")
    context = make(search_path=(str(tmp_path / "site"),))
    bad = run("packages", context)
    assert bad.status is Status.FAIL
    assert bad.detail == "watchdog 6.0.0 is older than 7.1, httpx is missing"
    shutil.rmtree(tmp_path / "site" / "watchdog-6.0.0.dist-info")
    write_distribution(tmp_path / "site", "watchdog", "7.10")
    write_distribution(tmp_path / "site", "httpx", "0.28")
    assert run("packages", context).status is Status.OK
    assert run("packages", make(search_path=(str(tmp_path / "empty"),))).status is Status.WARN


def test_homes_are_found_readable_and_writable(make: Make) -> None:
    """No home is a warning; a file in its place, a closed and a read-only directory are failures with the command."""
    with open_directory() as home:
        root = Root(home / ".qwen", home / ".qwen")

        def check() -> Check:
            with without_privileges():
                return run("homes", make(roots=(root,)))

        assert check().status is Status.WARN
        (home / ".qwen").write_text("")
        assert (check().status, "not a directory" in check().detail) == (Status.FAIL, True)
        (home / ".qwen").unlink()
        with without_privileges():
            chats = make_project(home)
            (home / ".qwen" / "projects" / "-other").mkdir()
        assert (check().status, "1 projects" in check().detail) == (Status.OK, True)
        chats.chmod(0o500)
        assert (check().status, check().fix) == (Status.FAIL, f"chmod u+w {chats}")
        chats.chmod(0o300)
        assert (check().status, check().fix) == (Status.FAIL, f"chmod u+rx {chats}")
        chats.chmod(0o700)
        chats.parent.chmod(0)
        assert (check().status, check().fix) == (Status.FAIL, f"chmod u+rx {chats.parent}")
        chats.parent.chmod(0o700)
        home.chmod(0)
        assert (check().status, check().fix) == (Status.FAIL, f"chmod u+rwx {home / '.qwen'}")
        home.chmod(0o755)
        (home / ".qwen").chmod(0)
        assert (check().status, check().fix) == (Status.FAIL, f"chmod u+rwx {home / '.qwen'}")
        (home / ".qwen").chmod(0o700)
        (home / ".qwen" / "projects" / "-linked").symlink_to("/tmp")
        assert (check().status, "links" in check().detail) == (Status.WARN, True)


def test_a_network_file_system_is_named(make: Make, tmp_path: Path) -> None:
    """Sessions on NFS fail, with where it is mounted; the real file system here passes; no mount table is a warning."""
    make_project(tmp_path)
    nfs = parse_mountinfo(f"36 35 98:0 / {tmp_path}/.qwen rw,noatime shared:1 - nfs4 host:/export rw\n")
    bad = run("filesystem", make(mounts=nfs))
    assert (bad.status, "NFS" in bad.detail, "never written" in bad.detail) == (Status.FAIL, True, True)
    assert run("filesystem", make(mounts=())).status is Status.WARN
    local = (Mount("/", "ext4"),)
    assert run("filesystem", make(mounts=local)).status is Status.OK
    assert run("filesystem", make(roots=())).status is Status.OK


def test_watch_limits_with_their_numbers(make: Make, tmp_path: Path) -> None:
    """Enough room passes with the numbers; too few watches or instances fail with the line that raises them."""
    for number in range(3):
        make_project(tmp_path, f"-p{number}")
    good = run("watch_limits", make(inotify=lambda: InotifyUse(100, 128, 20, 3)))
    assert (good.status, "7 directories" in good.detail, "100, 20 used" in good.detail) == (Status.OK, True, True)
    few = run("watch_limits", make(inotify=lambda: InotifyUse(26, 128, 20, 3)))
    assert few.status is Status.FAIL
    assert "fs.inotify.max_user_watches=524288" in few.fix
    assert "sysctl" in few.fix
    full = run("watch_limits", make(inotify=lambda: InotifyUse(1000, 128, 20, 128)))
    assert (full.status, "max_user_instances=1024" in full.fix) == (Status.FAIL, True)
    assert run("watch_limits", make(inotify=lambda: InotifyUse(None, None, 0, 0))).status is Status.OK
    if sys.platform == "linux":
        real = read_inotify_use()
        assert str(real.max_watches) in run("watch_limits", make()).detail


def test_an_event_is_proven_by_a_real_one(make: Make, tmp_path: Path) -> None:
    """An event arrives in the state directory, and nothing is left there."""
    check = run("events", make())
    assert (check.status, "ms" in check.detail) == (Status.OK, True)
    assert list((tmp_path / "state").iterdir()) == []
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    polling = Config(watch=WatchConfig(backend="polling"))
    assert "not used" in run("events", make(config=polling)).detail


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
def test_a_system_that_refuses_to_watch_fails(make: Make, tmp_path: Path) -> None:
    """With no descriptor left for a watch, the check fails with what the system said."""
    context = make()
    context.state_dir.mkdir()
    run("events", context)  # what is imported on first use is there now
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held), hard))
    try:
        check = run("events", context)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
    assert check.status is Status.FAIL
    assert "polling" in check.fix


def test_no_event_in_time_is_none(tmp_path: Path) -> None:
    """An event that does not come in time is told as such, and the file is gone all the same."""
    # Polling that looks once in 100 s is as blind as a file system without events.
    blind = functools.partial(PollingObserver, timeout=100)
    assert measure_event(tmp_path, wait_seconds=0.2, make_observer=blind) is None
    assert list(tmp_path.iterdir()) == []


def test_the_state_directory_is_usable_and_private(make: Make) -> None:
    """Missing, private, open, closed, a file, on a network: each with its own answer."""
    with open_directory() as home:
        state = home / "a" / "state"

        def check(**values: Any) -> Check:
            with without_privileges():
                return run("state_dir", make(state_dir=state, **values))

        assert (check().status, "will be made" in check().detail) == (Status.OK, True)
        with without_privileges():
            state.mkdir(parents=True, mode=0o700)
        assert check().status is Status.OK
        state.chmod(0o755)
        assert (check().status, check().fix) == (Status.WARN, f"chmod 700 {state}")
        state.chmod(0o500)
        assert (check().status, "cannot be written" in check().detail) == (Status.FAIL, True)
        state.chmod(0o700)
        nfs = check(mounts=(Mount("/", "nfs"),))
        assert (nfs.status, "QWEN_WATCHER_STATE_DIR" in nfs.fix) == (Status.FAIL, True)
        state.rmdir()
        state.write_text("")
        assert (check().status, "not a directory" in check().detail) == (Status.FAIL, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory to another user")
def test_a_state_directory_of_another_user_fails(make: Make) -> None:
    """A directory that belongs to somebody else is not used."""
    with open_directory() as home:
        (home / "state").mkdir()
        os.chown(home / "state", 12345, -1)
        check = run("state_dir", make(state_dir=home / "state"))
        assert (check.status, "12345" in check.detail) == (Status.FAIL, True)


def _mount_tmpfs(path: Path, size: str) -> bool:
    path.mkdir()
    options = f"size={size},mode=0700"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize(("size", "status"), [("128k", Status.FAIL), ("8m", Status.WARN)])
def test_a_full_disk_is_named(make: Make, tmp_path: Path, size: str, status: Status) -> None:
    """Little space is a warning, none is a failure, shown on a real small file system."""
    if sys.platform != "linux" or not _mount_tmpfs(tmp_path / "small", size):
        pytest.skip("no small file system can be mounted here")
    try:
        check = run("state_dir", make(state_dir=tmp_path / "small", mounts=read_mounts()))
    finally:
        subprocess.run(["umount", str(tmp_path / "small")], check=True)
    assert (check.status, "MiB free" in check.detail) == (status, True)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"ALL_PROXY": "socks://me:sesame@host"}, "ALL_PROXY"),
        ({"https_proxy": "ftp://me:sesame@host"}, "https_proxy"),
        ({"SSL_CERT_FILE": "/nonexistent/ca.pem"}, "SSL_CERT_FILE"),
        ({"SSL_CERT_DIR": "/nonexistent"}, "SSL_CERT_DIR"),
        ({"NODE_EXTRA_CA_CERTS": "/nonexistent/ca.pem"}, "NODE_EXTRA_CA_CERTS"),
    ],
)
def test_a_bad_proxy_or_ca_variable_is_named(make: Make, variables: dict[str, str], named: str) -> None:
    """The variable that cannot be used is named, its value is not shown."""
    check = run("proxy", make(environ=variables))
    assert (check.status, named in check.detail) == (Status.FAIL, True)
    assert "sesame" not in check.detail + check.fix


def test_usable_proxy_variables_pass(make: Make) -> None:
    """An http proxy, with or without a scheme, passes by name; a bad one does not matter for a local model."""
    assert run("proxy", make()).detail == "no proxy or CA variable is set"
    check = run("proxy", make(environ={"HTTPS_PROXY": "http://me:sesame@proxy:3128", "no_proxy": "localhost"}))
    assert (check.status, "HTTPS_PROXY" in check.detail, "sesame" in check.detail) == (Status.OK, True, False)
    local = make(environ={"ALL_PROXY": "socks://x"}, model_address="http://127.0.0.1:11434/v1")
    assert run("proxy", local).status is Status.OK


def test_every_place_of_the_disable_switch_is_named(make: Make, tmp_path: Path) -> None:
    """The configuration, the environment, Qwen Code's `.env` and settings: each one that is set is named."""
    assert run("disable_switch", make()).status is Status.OK
    assert run("disable_switch", make(environ={"QWEN_DISABLE_AUTO_TITLE": "false"})).status is Status.OK
    shell = run("disable_switch", make(environ={"QWEN_DISABLE_AUTO_TITLE": "1"}))
    assert (shell.status, "unset QWEN_DISABLE_AUTO_TITLE" in shell.fix) == (Status.WARN, True)
    off = run("disable_switch", make(config=Config(title=TitleConfig(enabled=False))))
    assert (off.status, "title.enabled" in off.detail) == (Status.WARN, True)
    (tmp_path / ".qwen").mkdir()
    (tmp_path / ".qwen" / ".env").write_text("QWEN_DISABLE_AUTO_TITLE=yes\n")
    file = run("disable_switch", make())
    assert (file.status, ".env" in file.detail) == (Status.WARN, True)
    (tmp_path / ".qwen" / ".env").unlink()
    (tmp_path / ".qwen" / "settings.json").write_text('{"env": {"QWEN_DISABLE_AUTO_TITLE": "1"}}')
    settings = run("disable_switch", make())
    assert (settings.status, "settings" in settings.detail) == (Status.WARN, True)


def service(**values: Any) -> ServiceStatus:
    """An installed and running service of this interpreter."""
    running = ServiceStatus(
        manager="systemd",
        unit_path=Path("/home/x/.config/systemd/user/qwen-watcher.service"),
        installed=True,
        ours=True,
        enabled=True,
        state=ServiceState.RUNNING,
        pid=None,
        command=(sys.executable, "-P", "-m", "watcher", "run"),
        detail="",
    )
    return dataclasses.replace(running, **values)


@pytest.mark.parametrize(
    ("status", "values", "expected", "word"),
    [
        (service(), {}, Status.OK, "running"),
        (service(installed=False, command=()), {}, Status.WARN, "not installed"),
        (service(command=("/nonexistent/python", "run")), {}, Status.FAIL, "gone"),
        (service(state=ServiceState.FAILED, detail="exit status 2"), {}, Status.FAIL, "exit status 2"),
        (service(state=ServiceState.STOPPED), {}, Status.WARN, "stopped"),
        (service(state=ServiceState.UNKNOWN), {}, Status.WARN, "does not answer"),
        (service(enabled=False), {}, Status.WARN, "login"),
        (service(), {"version": "2.0", "running_version": "1.9"}, Status.WARN, "1.9"),
        (service(), {"service_command": ("/other/python", "run")}, Status.WARN, "/other/python"),
        (service(), {"unit_current": False}, Status.WARN, "another version"),
        (None, {"service_problem": "neither systemd nor launchd"}, Status.WARN, "neither"),
    ],
)
def test_the_service(make: Make, status: ServiceStatus | None, values: Any, expected: Status, word: str) -> None:
    """Installed, enabled, running, of this version: each thing that is not so is named, with the command."""
    check = run("service", make(service=status, **values))
    assert (check.status, word in check.detail) == (expected, True)
    assert (check.fix == "") == (expected is Status.OK)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_environment_of_the_running_service_is_compared(make: Make) -> None:
    """What this shell has and the running service has not is named, without values; a missing key is a failure."""
    process = subprocess.Popen(["sleep", "100"], env={"QWEN_HOME": "/q", "PATH": os.environ["PATH"]})
    try:
        status = service(pid=process.pid)
        elsewhere = run("service_environment", make(service=status))
        assert (elsewhere.status, "QWEN_HOME" in elsewhere.detail) == (Status.WARN, True)
        same = {"QWEN_HOME": "/q"}
        assert run("service_environment", make(service=status, environ=same)).status is Status.OK
        other = {"QWEN_HOME": "/other", "HTTPS_PROXY": "http://me:sesame@p"}
        check = run("service_environment", make(service=status, environ=other))
        assert (check.status, "HTTPS_PROXY, QWEN_HOME" in check.detail) == (Status.WARN, True)
        assert "sesame" not in check.detail + check.fix
        key = {"MY_KEY": "sesame"}
        missing = run("service_environment", make(service=status, environ=key, key_variable="MY_KEY"))
        assert (missing.status, "MY_KEY" in missing.detail, "--store-key" in missing.fix) == (Status.FAIL, True, True)
        assert ".env" in missing.fix
        assert "sesame" not in missing.detail + missing.fix
    finally:
        process.kill()
        process.wait()


def test_the_environment_of_a_stopped_service_is_that_of_its_file(make: Make, tmp_path: Path) -> None:
    """Without a process the file counts; without a service there is nothing to compare."""
    file = tmp_path / "service.env"
    file.write_text(with_block(None, {"QWEN_HOME": "/q"}, {"MY_KEY": "k"}) or "")
    environ = {"QWEN_HOME": "/q", "MY_KEY": "k"}
    context = make(service=service(), service_file=file, environ=environ, key_variable="MY_KEY")
    assert run("service_environment", context).status is Status.OK
    file.unlink()
    assert run("service_environment", context).status is Status.FAIL
    assert run("service_environment", make(environ=environ)).status is Status.OK


def test_lingering(make: Make) -> None:
    """A service that ends at logout is a warning with the command; elsewhere it does not apply."""
    assert run("lingering", make()).status is Status.OK
    assert run("lingering", make(service=service(), lingers=True)).status is Status.OK
    off = run("lingering", make(service=service(), lingers=False, user="some one"))
    assert (off.status, off.fix) == (Status.WARN, "loginctl enable-linger 'some one'")


def test_a_check_that_cannot_be_made_has_failed_and_the_others_run(make: Make) -> None:
    """An error in one check is its result; the order is the documented one; unknown names do not run."""

    def broken(_context: DoctorContext) -> Check:
        raise PermissionError(13, "Permission denied", "/x")

    def refused(_context: DoctorContext) -> Check:
        raise StateError("the database is gone; remove it")

    checks = {"brake": refused, "sessions": broken, "python": CHECKS["python"]}
    results = run_checks(make(), checks)
    assert [(result.check, result.status) for result in results] == [
        ("python", Status.OK),
        ("sessions", Status.FAIL),
        ("brake", Status.FAIL),
    ]
    assert "Permission denied (/x)" in results[1].detail
    assert results[2].detail == "the database is gone; remove it"


def test_every_check_has_a_documented_name() -> None:
    """The checks here are among the documented ones, none twice."""
    assert set(CHECKS) <= set(CHECK_NAMES)
    assert len(CHECK_NAMES) == len(set(CHECK_NAMES)) == 23


def test_several_findings_become_the_worst_one() -> None:
    """The worst finding gives status and fix; what is in order is not repeated beside it."""
    findings = [
        Check("x", Status.OK, "fine"),
        Check("x", Status.FAIL, "bad", "mend"),
        Check("x", Status.WARN, "odd", "y"),
    ]
    assert worst("x", findings, none="") == Check("x", Status.FAIL, "bad; odd", "mend")
    assert worst("x", findings[:1], none="") == Check("x", Status.OK, "fine")
    assert worst("x", [], none="nothing") == Check("x", Status.OK, "nothing")
