"""What a service install writes: the unit, the plist, the file of variables; all of it as values and real files."""

from __future__ import annotations

import os
import plistlib
import shutil
import stat
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.errors import ServiceError
from watcher.service import CommandResult, check_interpreter, find_interpreter, plan_install
from watcher.service.environment import (
    block_variables,
    carried_variables,
    environment_path,
    key_variable,
    parse_variables,
    with_block,
    without_block,
)
from watcher.service.files import FileChange, applied, remove_empty_directories, write_file
from watcher.service.interpreter import Interpreter
from watcher.service.launchd import render_plist, start_command
from watcher.service.templates import LAUNCHD_TEMPLATE, SYSTEMD_TEMPLATE, read_template
from watcher.service.unit import is_ours, parse_command, quote_command, render_unit
from watcher.service.values import command_runner

NAMESPACE_OPTIONS = {
    # systemd.exec(5) and systemd.resource-control(5): each of these puts the service into a mount, user, pid, network,
    # ipc or uts namespace, or cuts its /proc or /dev.
    *("BindPaths", "BindReadOnlyPaths", "CacheDirectory", "DynamicUser", "ExecPaths", "ExtensionDirectories"),
    *("ExtensionImages", "InaccessiblePaths", "IPCNamespacePath", "LogNamespace", "LogsDirectory", "MountAPIVFS"),
    *("MountImages", "NetworkNamespacePath", "NoExecPaths", "PrivateDevices", "PrivateIPC", "PrivateMounts"),
    *("PrivateNetwork", "PrivatePIDs", "PrivateTmp", "PrivateUsers", "ProcSubset", "ProtectClock"),
    *("ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules"),
    *("ProtectKernelTunables", "ProtectProc", "ProtectSystem", "ReadOnlyPaths", "ReadWritePaths", "RootDirectory"),
    *("RootImage", "TemporaryFileSystem", "RuntimeDirectory", "StateDirectory", "ConfigurationDirectory"),
    *("DeviceAllow", "DevicePolicy", "AmbientCapabilities", "CapabilityBoundingSet"),
}
"""Not allowed in the unit. The capability options are here because a manager without privileges cannot apply them: the
service of an ordinary user then fails with 218/CAPABILITIES (seen on systemd 252)."""

LAUNCHD_KEYS: dict[str, type | Callable[[object], bool]] = {
    # launchd.plist(5), written down from Apple's manual page: key and type.
    "Label": str,
    "Disabled": bool,
    "ProgramArguments": lambda value: isinstance(value, list) and all(isinstance(word, str) for word in value),
    "RunAtLoad": bool,
    "KeepAlive": lambda value: isinstance(value, bool | dict),
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "ProcessType": lambda value: value in ("Background", "Standard", "Adaptive", "Interactive"),
    "LowPriorityIO": bool,
    "LowPriorityBackgroundIO": bool,
    "Nice": lambda value: isinstance(value, int) and -20 <= value <= 20,
    "Umask": lambda value: isinstance(value, int | str),
    "SoftResourceLimits": dict,
    "HardResourceLimits": dict,
    "EnvironmentVariables": lambda value: (
        isinstance(value, dict) and all(isinstance(x, str) for pair in value.items() for x in pair)
    ),
    "StandardInPath": str,
    "StandardOutPath": str,
    "StandardErrorPath": str,
    "WorkingDirectory": str,
    "LimitLoadToSessionType": lambda value: isinstance(value, str | list),
}
KEEP_ALIVE_KEYS = {"SuccessfulExit", "PathState", "OtherJobEnabled", "Crashed", "NetworkState", "AfterInitialDemand"}
RESOURCE_LIMIT_KEYS = {
    *("Core", "CPU", "Data", "FileSize", "MemoryLock", "NumberOfFiles", "NumberOfProcesses", "ResidentSetSize", "Stack")
}

UNUSUAL_PATHS = ["/opt/py/bin/python", "/home/a b/vénv/bin/python", '/x/$HOME/%h/"q"/py\\thon', "/项目/'x'/python"]


def settings_of(unit: str) -> list[tuple[str, str]]:
    lines = [line for line in unit.splitlines() if line and line[0] not in "#;["]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


@pytest.mark.parametrize("rendered", [False, True])
def test_the_unit_has_no_option_that_needs_a_namespace(rendered: bool) -> None:
    """Inside a namespace the service could not read the owner's environment and terminal; the unit says so."""
    unit = read_template(SYSTEMD_TEMPLATE)
    if rendered:
        unit = render_unit(unit, ("/usr/bin/python3", "-m", "watcher"), Path("/c/service.env"))
    names = {name for name, _ in settings_of(unit)}
    assert not names & NAMESPACE_OPTIONS
    assert "No option here may need a user, pid, proc, mount or device namespace" in unit
    required = {"Type": "notify", "Restart": "on-failure", "NoNewPrivileges": "yes", "LimitCORE": "0"}
    assert required.items() <= dict(settings_of(unit)).items()
    assert {"WatchdogSec", "MemoryMax", "CPUQuota", "RestrictAddressFamilies", "SystemCallFilter"} <= names


@pytest.mark.parametrize("python", UNUSUAL_PATHS)
def test_rendering_changes_only_command_and_file(python: str) -> None:
    """The rendered unit is the template but for its head, `ExecStart=` and `EnvironmentFile=`."""
    template = read_template(SYSTEMD_TEMPLATE)
    command = (python, "-P", "-m", "watcher", "run")
    unit = render_unit(template, command, Path("/home/100% ü/.config/service.env"))
    assert is_ours(unit)
    assert not is_ours(template)
    assert parse_command(unit, "/h") == command
    ours, theirs = settings_of(unit), settings_of(template)
    different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert [a[0] for a, _ in different] == ["ExecStart", "EnvironmentFile"]
    assert ("EnvironmentFile", "-/home/100%% ü/.config/service.env") in ours
    assert render_unit(template, command, Path("/x")) == render_unit(template, command, Path("/x"))


def test_a_damaged_template_is_refused() -> None:
    """A template without its lines is an error and not a broken unit."""
    for text in ("", "# x\n[Unit]\n[Service]\n", "[Unit]\nExecStart=x\nEnvironmentFile=y\n"):
        with pytest.raises(ServiceError, match="damaged"):
            render_unit(text, ("/x",), Path("/y"))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1), min_size=1))
def test_quoting_is_reversible(words: list[str]) -> None:
    """Whatever a path holds, the words of the command come back as they were."""
    words[0] = "/" + words[0]
    assert parse_command(f"[Service]\nExecStart={quote_command(words)}\n", "/h") == tuple(words)


def test_parse_command_of_a_foreign_unit() -> None:
    """A unit without a command, or with one that cannot be read, has none."""
    assert parse_command("", "/h") == ()
    assert parse_command('ExecStart="unfinished\n', "/h") == ()
    by_hand = parse_command(read_template(SYSTEMD_TEMPLATE), "/home/a b")
    assert by_hand == ("/home/a b/.local/bin/qwen-watcher", "run")


@pytest.mark.parametrize("python", UNUSUAL_PATHS)
def test_plist_has_only_documented_keys_and_types(python: str) -> None:
    """The plist, by hand or rendered, is valid for plistlib and for Apple's list of keys and types."""
    template = read_template(LAUNCHD_TEMPLATE)
    command = (python, "-P", "-m", "watcher", "run")
    rendered = render_plist(
        template,
        command,
        environment_file=Path("/Users/a b/ü/service.env"),
        log=Path("/Users/a b/ü/Library/Logs/w.log"),
        search_path="/opt/bin:/usr/bin",
    )
    for text in (template, rendered):
        plist = plistlib.loads(text.encode())
        for key, value in plist.items():
            expected = LAUNCHD_KEYS[key]
            assert isinstance(value, expected) if isinstance(expected, type) else expected(value), key
        assert plist["KeepAlive"] == {"SuccessfulExit": False}  # each key is one more condition: just this one
        assert set(plist["KeepAlive"]) <= KEEP_ALIVE_KEYS
        assert set(plist["SoftResourceLimits"]) <= RESOURCE_LIMIT_KEYS
        assert plist["ProcessType"] == "Background"
        assert plist["LowPriorityIO"] is True
        assert plist["RunAtLoad"] is True
        assert plist["ThrottleInterval"] > 0
    plist = plistlib.loads(rendered.encode())
    assert plist["ProgramArguments"] == list(start_command(command, Path("/Users/a b/ü/service.env")))
    assert plist["ProgramArguments"][0] == python
    assert plist["StandardErrorPath"] == "/Users/a b/ü/Library/Logs/w.log"
    assert plist["EnvironmentVariables"] == {"PATH": "/opt/bin:/usr/bin"}


def test_start_puts_the_variables_of_the_file_in_place(tmp_path: Path) -> None:
    """Under launchd the interpreter starts with the file's variables, and without the file all the same."""
    file = tmp_path / "a b.env"
    command = start_command((sys.executable, "-c", "import os; print(os.environ.get('SECRET_KEY'))"), file)
    environ = {"PATH": os.environ["PATH"]}
    run = command_runner(environ, timeout_seconds=60)
    assert run(command).stdout == "None\n"
    file.write_text('SECRET_KEY="a $HOME \\"b\\" \\\\ c"\n')
    assert run(command).stdout == 'a $HOME "b" \\ c\n'
    file.write_bytes(b"\xff\xfe")
    done = run(command)
    assert done.returncode == 1
    assert "cannot be read" in done.message


def test_carried_variables_are_those_a_service_would_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our configuration, QWEN_HOME, proxy and CA are carried over, paths made absolute; a key or the rest is not."""
    monkeypatch.chdir(tmp_path)
    environ = {
        "HOME": "/home/someone",
        "PATH": "/bin",
        "QWEN_HOME": "q",
        "QWEN_WATCHER_CONFIG": "~/w.toml",
        "QWEN_WATCHER_MODEL__SOURCE": "extractive",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "https_proxy": "http://me:pw@proxy:3128",
        "NO_PROXY": "localhost",
        "HTTP_PROXY": "",
        "DASHSCOPE_API_KEY": "secret",
        "QWEN_DISABLE_AUTO_TITLE": "1",
    }
    assert carried_variables(environ) == {
        "NO_PROXY": "localhost",
        "QWEN_HOME": str(tmp_path / "q"),
        "QWEN_WATCHER_CONFIG": "/home/someone/w.toml",
        "QWEN_WATCHER_MODEL__SOURCE": "extractive",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "https_proxy": "http://me:pw@proxy:3128",
    }


@pytest.mark.parametrize("value", ["a\nb", "a\x00b", "a\udcffb", "\x1b[m"])
def test_a_value_that_cannot_be_stored_is_refused_by_name(value: str) -> None:
    """A line break, or bytes that are no text, are refused, and the value is not repeated."""
    with pytest.raises(ServiceError, match=r"^QWEN_HOME holds"):
        carried_variables({"QWEN_HOME": f"/{value}"})
    with pytest.raises(ServiceError, match=r"^MY_KEY holds") as caught:
        key_variable({"MY_KEY": f"sesame{value}"}, "MY_KEY")
    assert "sesame" not in str(caught.value)


def test_store_key_takes_the_name_of_a_set_variable() -> None:
    """An unset variable is named; a key in place of a name is refused and not repeated."""
    assert key_variable({"MY_KEY": "v"}, "MY_KEY") == {"MY_KEY": "v"}
    with pytest.raises(ServiceError, match="MY_KEY is not set"):
        key_variable({}, "MY_KEY")
    with pytest.raises(ServiceError) as caught:
        key_variable({}, "sk-sesame")
    assert "sesame" not in str(caught.value)


def test_the_users_own_lines_survive_and_keys_stay() -> None:
    """A second install replaces what it carried over, keeps a stored key, and never touches the user's lines."""
    own = "# mine\nMY_OWN=1\n"
    first = with_block(own, {"HTTP_PROXY": "http://a", "QWEN_HOME": "/q"}, {"MY_KEY": "k1"})
    assert first is not None
    assert first.endswith(own)
    assert block_variables(first) == {"HTTP_PROXY": "http://a", "QWEN_HOME": "/q", "MY_KEY": "k1"}
    assert parse_variables(first)["MY_OWN"] == "1"
    second = with_block(first, {"HTTP_PROXY": "http://b"}, {})
    assert block_variables(second) == {"HTTP_PROXY": "http://b", "MY_KEY": "k1"}
    assert with_block(second, {"HTTP_PROXY": "http://b"}, {}) == second
    assert without_block(second) == own
    assert without_block(with_block(None, {"A": "b"}, {})) is None
    assert with_block(None, {}, {}) is None
    assert with_block(own, {}, {}) == own


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" "), min_size=1))
def test_any_printable_value_comes_back_as_it_was(value: str) -> None:
    """A value in the file reads back unchanged, with quotes, backslashes, dollars and comment marks in it."""
    text = with_block(None, {}, {"NAME": value})
    assert block_variables(text) == {"NAME": value}


def test_environment_file_is_beside_the_configuration() -> None:
    """The file stands in the configuration directory of that environment."""
    assert environment_path({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path("/c/qwen-watcher/service.env")


def test_files_are_private_from_the_first_moment(tmp_path: Path) -> None:
    """A file is replaced in one step with its own mode, whatever the umask; new directories are private."""
    path = tmp_path / "new" / "dir" / "service.env"
    before = os.umask(0)
    try:
        write_file(path, "A=b\n", 0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["service.env"]


def test_changes_happen_together_or_not_at_all(tmp_path: Path) -> None:
    """When anything fails, contents and modes are as they were and new files are gone."""
    old, new, gone = tmp_path / "old", tmp_path / "new", tmp_path / "gone"
    old.write_text("before")
    old.chmod(0o640)
    gone.write_text("kept")
    changes = [FileChange(old, "after", 0o600), FileChange(new, "x", 0o600), FileChange(gone, None, 0o600)]
    assert all(change.differs for change in changes)
    with pytest.raises(ServiceError, match="no"), applied(changes):
        assert (old.read_text(), new.read_text(), gone.exists()) == ("after", "x", False)
        raise ServiceError("no")
    assert (old.read_text(), stat.S_IMODE(old.stat().st_mode)) == ("before", 0o640)
    assert not new.exists()
    assert gone.read_text() == "kept"
    with applied(changes):
        pass
    assert not any(change.differs for change in changes)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file in place of a directory is a ServiceError with the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="cannot be written"):
        write_file(tmp_path / "file" / "x", "", 0o600)


def test_only_empty_directories_are_removed(tmp_path: Path) -> None:
    """Directories go as long as they are empty, and none at or above the limit."""
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (tmp_path / "a" / "keep").write_text("")
    remove_empty_directories(deep, up_to=tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "keep"]
    (tmp_path / "a" / "keep").unlink()
    remove_empty_directories(tmp_path / "a", up_to=tmp_path)
    remove_empty_directories(tmp_path, up_to=tmp_path)
    assert tmp_path.exists()


@pytest.mark.parametrize(
    ("executable", "prefix", "kind"),
    [
        ("/home/x/.local/share/pipx/venvs/qwen-session-watcher/bin/python", "/home/x/p", "pipx"),
        ("/home/x/.local/share/uv/tools/qwen-session-watcher/bin/python", "/home/x/p", "uv tool"),
        ("/home/x/my venv/bin/python", "/home/x/my venv", "venv"),
        ("/usr/bin/python3", "/usr", "system"),
    ],
)
def test_the_interpreter_is_recognised_and_kept_as_it_is(executable: str, prefix: str, kind: str) -> None:
    """The path of the running interpreter is used unresolved, in whatever kind of environment it is."""
    interpreter = find_interpreter(executable, prefix, "/usr")
    assert (str(interpreter.path), interpreter.kind, interpreter.notes) == (executable, kind, ())
    assert interpreter.run_command == (executable, "-P", "-m", "watcher", "run")


@pytest.mark.parametrize(
    "executable",
    [
        "/home/x/.cache/uv/archive-v0/abc/bin/python",
        "/home/x/.cache/uv/environments-v2/abc/bin/python",
        "/home/x/.local/share/pipx/.cache/abc/bin/python",
        "/home/x/.cache/pipx/abc/bin/python",
        "",
    ],
)
def test_an_environment_that_is_thrown_away_is_refused(executable: str) -> None:
    """`uvx` and `pipx run` vanish: the error says what to use instead."""
    with pytest.raises(ServiceError, match="install"):
        find_interpreter(executable, "/x", "/usr")


def test_a_temporary_directory_is_noted(tmp_path: Path) -> None:
    """An interpreter in a temporary directory works, with a warning that it will not for long."""
    assert find_interpreter(str(tmp_path / "bin" / "python"), "/x", "/usr").notes


def test_an_interpreter_without_the_package_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A checkout that only this directory makes importable cannot be a service; the error says how to install it."""
    (tmp_path / "watcher").mkdir()
    (tmp_path / "watcher" / "__init__.py").write_text("")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=100)
    interpreter = Interpreter(venv / "bin" / "python", "venv")
    environ = {"HOME": str(tmp_path), "PATH": "/bin", "PYTHONPATH": str(tmp_path)}
    with pytest.raises(ServiceError, match=r"could not start .*pipx install"):
        plan_install(environ, interpreter)
    with pytest.raises(ServiceError, match="could not start"):
        plan_install(environ, Interpreter(tmp_path / "gone" / "python", "venv"))


def test_a_plan_holds_command_variables_and_key() -> None:
    """A plan for this very interpreter has its command, what is carried over, and a key only when asked."""
    interpreter = find_interpreter(sys.executable, sys.prefix, sys.base_prefix)
    environ = {"HOME": "/h", "PATH": os.environ["PATH"], "QWEN_HOME": "/q", "MY_KEY": "k"}
    plan = plan_install(environ, interpreter)
    assert (plan.command[0], dict(plan.carried), dict(plan.stored)) == (sys.executable, {"QWEN_HOME": "/q"}, {})
    assert dict(plan_install(environ, interpreter, store_keys=["MY_KEY"]).stored) == {"MY_KEY": "k"}


def test_check_interpreter_asks_the_interpreter_itself() -> None:
    """The proof is a run of that interpreter, away from this directory."""
    asked: list[list[str]] = []

    def run(argv: object) -> CommandResult:
        asked.append(list(argv))  # type: ignore[call-overload]
        return CommandResult(0, "", "")

    check_interpreter(Interpreter(Path("/x/python"), "venv"), run)
    assert asked == [["/x/python", "-P", "-c", "import watcher"]]


def test_the_runner_never_raises(tmp_path: Path) -> None:
    """A missing program, one without permission and one that hangs are results."""
    run = command_runner({"PATH": "/bin:/usr/bin"}, timeout_seconds=0.2)
    assert run([str(tmp_path / "none")]).returncode == 127
    (tmp_path / "file").write_text("")
    assert run([str(tmp_path / "file")]).returncode == 127
    assert run(["sleep", "20"]).returncode == 124
    assert run(["sh", "-c", "printf 'a\\n b' >&2; exit 3"]) == CommandResult(3, "", "a\n b")
    assert CommandResult(3, "out", " a\n b ").message == "a b"


def test_templates_of_a_wheel_are_found(tmp_path: Path) -> None:
    """In a wheel the two templates stand inside the package; there they are found as well."""
    package = tmp_path / "site" / "watcher"
    source = Path(__file__).parent.parent
    shutil.copytree(source / "watcher", package, ignore=shutil.ignore_patterns("__pycache__"))
    script = "from watcher.service.templates import *; read_template(SYSTEMD_TEMPLATE); read_template(LAUNCHD_TEMPLATE)"
    environ = {"PYTHONPATH": str(package.parent), "PATH": "/bin"}
    run = command_runner(environ, timeout_seconds=60)
    assert "lacks systemd/qwen-watcher.service" in run([sys.executable, "-P", "-c", script]).message
    for name in (SYSTEMD_TEMPLATE, LAUNCHD_TEMPLATE):
        (package / "_data" / name).parent.mkdir(parents=True)
        shutil.copy(source / name, package / "_data" / name)
    assert run([sys.executable, "-P", "-c", script]) == CommandResult(0, "", "")


def test_templates_name_no_person_and_no_machine() -> None:
    """The templates as copied by hand hold no absolute home directory; letters beyond ASCII are not needed."""
    for name in (SYSTEMD_TEMPLATE, LAUNCHD_TEMPLATE):
        text = read_template(name)
        assert set(text) <= set(string.printable)
        assert "/home/" not in text
        assert "/Users/" not in text
