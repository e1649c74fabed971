"""`service install|uninstall|status|logs`: the user service, and in plain words what it will do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from watcher import __version__
from watcher.cli.output import say
from watcher.cli.service_choices import LOCAL_EXAMPLE, ask_model, at_terminal, chosen_values, config_with, keys_to_store
from watcher.config import load_config
from watcher.doctor.service import service_environment
from watcher.edge.store import Store
from watcher.errors import ServiceError, StateError, words_of
from watcher.instance import running_pid
from watcher.model_keys import key_variables
from watcher.paths import config_path, home_dir, state_dir
from watcher.plan import model_name, plan_lines
from watcher.service import (
    InstallResult,
    Interpreter,
    ServiceManager,
    ServiceState,
    ServiceStatus,
    environment_path,
    find_interpreter,
    find_manager,
    plan_install,
)
from watcher.service.environment import block_variables
from watcher.service.files import read_text
from watcher.workplace import Workplace


def install_service(
    *, enable_recaps: bool, store_key: bool, model: str | None, base_url: str | None, api_key_env: str | None
) -> int:
    """Install or repair the service and wait until it runs. On failure everything is as it was before."""
    environ = dict(os.environ)
    _refuse_sudo(environ)
    loaded = load_config(environ)
    options = {"model": model, "base_url": base_url, "api_key_env": api_key_env}
    values = chosen_values(loaded, **options, enable_recaps=enable_recaps)
    manager = find_manager(environ)
    manager.check_available()
    interpreter = find_interpreter(sys.executable, sys.prefix, sys.base_prefix)
    _refuse_second_watcher(manager, environ)
    missing = _missing_model(environ)
    if missing and not values and at_terminal():
        values = chosen_values(loaded, **{**options, **ask_model(missing)}, enable_recaps=enable_recaps)
    with config_with(environ, loaded.path, values):
        needed = key_variables(environ)
        stored = block_variables(read_text(environment_path(environ)))
        keys = keys_to_store(needed, stored, environ, yes=store_key)
        result = manager.install(plan_install(environ, interpreter, store_keys=keys))
    _report(manager, result, interpreter, environ, values)
    if store_key and not keys:
        say(
            "No key was stored: " + ("it stands there already." if needed else "your model takes none from this shell.")
        )
    return 0


def uninstall_service() -> int:
    """Stop the service and remove exactly what `install` made."""
    environ = dict(os.environ)
    result = find_manager(environ).uninstall()
    if not result.removed:
        say("nothing was installed")
        return 0
    say("Stopped and removed." if result.was_running else "Removed.")
    for path in result.removed:
        say(f"  removed: {path}")
    kept = [str(path) for path in (config_path(environ), state_dir(environ)) if os.path.lexists(path)]
    for note in result.notes:
        say(f"  {note}")
    if kept:
        say(f"  kept, since they are yours: {', '.join(kept)}")
    return 0


def show_service() -> int:
    """Print whether the service is installed, starts at login and runs; exit code 0 in any case."""
    environ = dict(os.environ)
    status = find_manager(environ).status()
    if not status.installed:
        say(f"{status.manager}: not installed; qwen-watcher service install")
        return 0
    pid = f" (pid {status.pid})" if status.pid else ""
    detail = f": {status.detail}" if status.detail else ""
    say(f"{status.manager}: {status.state}{pid}{detail}")
    say(f"  at login: {'starts' if status.enabled else 'does not start; qwen-watcher service install'}")
    say(f"  unit:     {status.unit_path}{'' if status.ours else ' (not written by `service install`)'}")
    say(f"  starts:   {' '.join(status.command)}")
    if status.interpreter_missing:
        say(f"  {status.command[0]} is gone; qwen-watcher service install repairs it")
    running = _running_version(_seen_by_service(status, environ))
    if status.state is ServiceState.RUNNING and running and running != __version__:
        say(f"  version:  {running} runs, {__version__} is installed; qwen-watcher service install restarts it")
    if status.state is ServiceState.FAILED:
        say("  qwen-watcher service logs says why; qwen-watcher service install starts it again")
    return 0


def show_logs(*, follow: bool, lines: int) -> int:
    """Show the service's log with the program that the system has for it. Raises ServiceError when there is none."""
    manager = find_manager(dict(os.environ))
    if not manager.status().installed:
        say("the service is not installed; what follows is from before", sys.stderr)
    command = manager.logs_command(lines=lines, follow=follow)
    try:
        return 1 if subprocess.run(command, check=False).returncode else 0
    except OSError as error:
        raise ServiceError(
            f"{command[0]}: {words_of(error)}; `qwen-watcher run` shows the log in the foreground"
        ) from error


def _refuse_sudo(environ: Mapping[str, str]) -> None:
    if os.geteuid() == 0 and environ.get("SUDO_USER") not in (None, "", "root"):
        raise ServiceError(f"this would install the service for root; run it as {environ['SUDO_USER']}, without sudo")


def _refuse_second_watcher(manager: ServiceManager, environ: Mapping[str, str]) -> None:
    pid = running_pid(state_dir(environ))
    if pid is not None and pid != manager.status().pid:
        raise ServiceError(f"a watcher already runs (pid {pid}); end it first: kill {pid}")


def _missing_model(environ: Mapping[str, str]) -> str:
    """Why nobody writes titles, "" when somebody does."""
    with Workplace(environ) as place:
        return model_name(place.loaded, place.general_settings, place.environ)[1]


def _report(
    manager: ServiceManager,
    result: InstallResult,
    interpreter: Interpreter,
    environ: Mapping[str, str],
    values: Mapping[str, object],
) -> None:
    """What was done, how to undo it, and what happens now, as the service itself sees it."""
    status = manager.status()
    what = "Installed and started" if not result.restarted else "Repaired" if result.changed else "Restarted"
    say(f"{what}: qwen-watcher {__version__}, a {result.manager} service of yours (pid {status.pid}).")
    say(f"  unit:        {result.unit_path}")
    say(f"  starts:      {interpreter.path} ({interpreter.kind})")
    if result.environment_path is not None:
        say(f"  environment: {result.environment_path} ({', '.join(result.variables)})")
    if values:
        say(f"  saved:       {', '.join(values)} in {config_path(environ)}")
    seen = _seen_by_service(status, environ)
    with Workplace(seen) as place:
        say("From now on:")
        for line in plan_lines(place.loaded, place.general_settings, place.environ):
            say(f"  {line}")
        unseen = [name for name in key_variables(environ) if not seen.get(name)]
        if unseen:
            _explain_key(unseen[0], place.roots[0].config_dir)
        elif model_name(place.loaded, place.general_settings, place.environ)[1]:
            _explain_choice(place.roots[0].config_dir)
    for note in (*interpreter.notes, *result.notes):
        say(f"Note: {note}")
    say("Undo it: qwen-watcher service uninstall. Look at it: qwen-watcher service status, qwen-watcher doctor.")


def _explain_key(variable: str, config_dir: Path) -> None:
    say(f"The service does not see {variable}, the key of your model. Either of these mends it:")
    say("  qwen-watcher service install --store-key")
    say(f"  a line {variable}=… in {config_dir / '.env'}, which Qwen Code reads as well")


def _explain_choice(config_dir: Path) -> None:
    say("To have titles, choose who writes them:")
    say(f"  your own fast model: set fastModel in {config_dir / 'settings.json'}; the service notices by itself")
    say(f"  another model:       qwen-watcher service install {LOCAL_EXAMPLE}")
    say("                       (that is a local one; a remote one takes --api-key-env NAME as well)")
    say("  offline and free:    qwen-watcher service install --model extractive")


def _seen_by_service(status: ServiceStatus, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that the service has, as far as it can be seen."""
    own = {"HOME": str(home_dir(environ)), "PATH": environ.get("PATH", "")}
    return {**own, **service_environment(status, environment_path(environ))}


def _running_version(seen: Mapping[str, str]) -> str:
    """The version that the running service noted of itself, "" when it left none."""
    try:
        store = Store.open_existing(state_dir(seen))
        if store is None:
            return ""
        beat = store.heartbeat()
        store.close()
    except StateError:
        return ""
    return beat.version if beat is not None else ""
