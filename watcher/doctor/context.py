"""What the checks look at, gathered from this machine."""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from watcher import __version__
from watcher.config import Config
from watcher.core.generation import Kind, Outcome
from watcher.doctor.models import choices
from watcher.doctor.values import DoctorContext
from watcher.drafting import EXTRACTIVE, StoreLearned
from watcher.edge.store import Store
from watcher.edge.text_model import Endpoint, Learned, probe
from watcher.errors import ConfigError, ServiceError, StateError
from watcher.instance import running_pid
from watcher.model_keys import key_variables
from watcher.paths import STATE_DIR_VARIABLE, config_path, home_dir
from watcher.qwen.model_choice import ModelChoice
from watcher.service import environment_path, find_interpreter, find_manager
from watcher.workplace import StoreBudget, Workplace, local_day


@contextmanager
def gather(environ: Mapping[str, str], *, with_probe: bool = False) -> Iterator[DoctorContext]:
    """The context of this machine, open until the block is left. `with_probe`: the model may be asked once.

    A configuration that cannot be used is one of the findings: the checks then look at the defaults.
    """
    place, config_problem = _open_workplace(environ)
    with place:
        store, store_problem = _open_store(place.state_directory)
        try:
            context = _look(place, environ, store)
            if with_probe:
                context = replace(context, probe=partial(_ask, place.config, store, environ))
            context = replace(context, config_problem=config_problem, store_problem=store_problem)
            yield _with_service(_with_model(context))
        finally:
            if store is not None:
                store.close()


def _open_workplace(environ: Mapping[str, str]) -> tuple[Workplace, str]:
    try:
        return Workplace(environ), ""
    except ConfigError as error:
        ours = [name for name in environ if name.startswith("QWEN_WATCHER_") and name != STATE_DIR_VARIABLE]
        rest = {name: value for name, value in environ.items() if name not in ours}
        return Workplace(rest, config_file=Path(os.devnull)), str(error)


def _open_store(directory: Path) -> tuple[Store | None, str]:
    try:
        return Store.open_existing(directory), ""
    except StateError as error:
        return None, str(error)


def _look(place: Workplace, environ: Mapping[str, str], store: Store | None) -> DoctorContext:
    home = home_dir(environ)
    pid = running_pid(place.state_directory)
    config_dirs = dict.fromkeys(root.config_dir for root in place.roots)
    return DoctorContext(
        environ=environ,
        config=place.config,
        home=home,
        state_dir=place.state_directory,
        roots=place.roots,
        settings={path: place.settings.resolve(str(home), False, path) for path in config_dirs},
        config_file=config_path(environ),
        store=store,
        now=place.clock(),
        today=local_day(place.clock()),
        user=pwd.getpwuid(os.getuid()).pw_name,
        version=__version__,
        running_pid=pid,
        running_version=_running_version(store, pid),
    )


def _running_version(store: Store | None, pid: int | None) -> str:
    beat = None
    if store is not None and pid is not None:
        with suppress(StateError):
            beat = store.heartbeat()
    return beat.version if beat is not None and beat.pid == pid else ""


def _with_model(context: DoctorContext) -> DoctorContext:
    """With the address of the model, and the variable of this shell that its key comes from."""
    if context.config_problem or context.config.model.source == EXTRACTIVE:
        return context
    found = [choice for kind in (Kind.TITLE, Kind.RECAP) for _, _, choice in choices(context, kind)]
    address = next((choice.base_url for choice in found if isinstance(choice, ModelChoice)), "")
    return replace(context, model_address=address, key_variable=next(iter(key_variables(context.environ)), ""))


def _with_service(context: DoctorContext) -> DoctorContext:
    """With what the service manager says, or why there is none."""
    command: tuple[str, ...] = ()
    with suppress(ServiceError):  # an environment that is thrown away is no place to install from
        command = find_interpreter(sys.executable, sys.prefix, sys.base_prefix).run_command
    try:
        manager = find_manager(context.environ)
        current = not command or manager.is_current(command)
        status, lingers = manager.status(), manager.lingers()
    except ServiceError as error:
        return replace(context, service_problem=str(error))
    return replace(
        context,
        service=status,
        service_file=environment_path(context.environ),
        service_command=command,
        unit_current=current,
        lingers=lingers,
    )


def _ask(config: Config, store: Store | None, environ: Mapping[str, str], endpoint: Endpoint) -> tuple[Outcome, float]:
    """One tiny call, counted as any other where there is a state database to count in."""
    memory = _Memory()
    began = time.monotonic()
    outcome = probe(
        endpoint,
        learned=memory if store is None else StoreLearned(store),
        budget=memory if store is None else StoreBudget(store, lambda: config.budget.calls_per_day, time.time),
        clock=time.time,
        environ=environ,
    )
    return outcome, time.monotonic() - began


@dataclass(slots=True)
class _Memory:
    """Stands in for a state database that does not exist yet."""

    learned: dict[str, Learned] = field(default_factory=dict)

    def take(self) -> bool:
        return True

    def get(self, endpoint_key: str) -> Learned | None:
        return self.learned.get(endpoint_key)

    def put(self, endpoint_key: str, learned: Learned) -> None:
        self.learned[endpoint_key] = learned
