"""Checks of the watcher itself: its budget, whether it runs, and what stopped its writing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from watcher.doctor.service import INSTALL
from watcher.doctor.values import Check, DoctorContext, Status, edit, worst
from watcher.drafting import EXTRACTIVE
from watcher.paths import home_dir
from watcher.service import ServiceState

_NEARLY_USED = 0.8
_NAMED = 3


def check_budget(context: DoctorContext) -> Check:
    """Model calls are left today."""
    if context.config.model.source == EXTRACTIVE:
        return Check("budget", Status.OK, "not needed: no model is asked")
    limit = context.config.budget.calls_per_day
    raise_it = f"{edit(context.config_file)}  # raise calls_per_day in [budget], or wait for midnight"
    if limit == 0:
        return Check("budget", Status.FAIL, "budget.calls_per_day is 0, so no model is ever asked", raise_it)
    if context.store_problem:
        return Check("budget", Status.WARN, "not known without the state database (see state_dir)")
    used = context.store.calls_on(context.today) if context.store is not None else 0
    detail = f"{used} of {limit} calls used today"
    if used >= limit:
        return Check("budget", Status.FAIL, detail, raise_it)
    return Check("budget", Status.WARN if used >= _NEARLY_USED * limit else Status.OK, detail, "")


def check_instance(context: DoctorContext) -> Check:
    """One watcher runs, of this version, and no second one looks at the same sessions."""
    return worst("instance", _judge_instance(context), none="")


def check_brake(context: DoctorContext) -> Check:
    """Nothing has stopped the writing. The brake is cleared by this very check (design promise 6)."""
    if context.store_problem:
        return Check("brake", Status.WARN, "not known without the state database (see state_dir)")
    if context.store is None:
        return Check("brake", Status.OK, "not pulled")
    return worst("brake", _judge_brake(context), none="not pulled")


def _judge_instance(context: DoctorContext) -> Iterator[Check]:
    pid = context.running_pid
    if pid is None:
        installed = context.service is not None and context.service.installed
        running = installed and context.service is not None and context.service.state is ServiceState.RUNNING
        if running:
            detail = f"the service runs, but not with the state directory {context.state_dir}"
            yield Check(
                "instance", Status.WARN, detail, f"{INSTALL}  # in the shell whose QWEN_WATCHER_STATE_DIR is right"
            )
        else:
            yield Check("instance", Status.WARN, "no watcher is running", INSTALL)
    elif context.running_version and context.running_version != context.version:
        detail = f"pid {pid} runs version {context.running_version}, installed is {context.version}"
        yield Check("instance", Status.WARN, detail, _restart(context, pid))
    else:
        yield Check("instance", Status.OK, f"pid {pid}" + (f", version {context.version}" if pid else ""))
    others = [other for other in find_watchers(context.environ) if other != pid]
    if others:
        detail = f"another watcher looks at the same home: pid {', '.join(map(str, others))}; both may ask the model"
        yield Check("instance", Status.WARN, detail, shlex.join(["kill", *map(str, others)]))


def _restart(context: DoctorContext, pid: int) -> str:
    if context.service is not None and context.service.pid == pid:
        return INSTALL
    return f"kill {pid} && qwen-watcher run"


def _judge_brake(context: DoctorContext) -> Iterator[Check]:
    store = context.store
    assert store is not None
    brake = store.stopped_all()
    if brake:
        store.clear_brake(context.now)
        detail = f"all writing was stopped ({brake}); this run of doctor has ended that"
        yield Check(
            "brake", Status.WARN, detail, "qwen-watcher pause  # if it is to stay stopped while you look at them"
        )
    stopped = dict.fromkeys(anomaly.session_id for anomaly in store.anomalies())
    if stopped:
        named = ", ".join(list(stopped)[:_NAMED])
        detail = f"{len(stopped)} sessions are left alone after an anomaly: {named}"
        yield Check("brake", Status.WARN, detail, f"qwen-watcher history {next(iter(stopped))}")
    paused = store.paused(context.now)
    if paused is not None:
        yield Check("brake", Status.WARN, "paused by `qwen-watcher pause`", "qwen-watcher resume")


def find_watchers(environ: Mapping[str, str]) -> list[int]:
    """Processes of this user that run the watcher for the same home, by id. Walks over all processes."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.uids().real != os.getuid():
                continue
            if is_watcher(process.cmdline()) and _same_home(environ, process.environ()):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return sorted(found)


def is_watcher(command: list[str]) -> bool:
    """Whether a command line is that of `qwen-watcher run`, by its script or as `python -m watcher run`."""
    if "run" not in command:
        return False
    before = command[: command.index("run")]
    return any(Path(word).name == "qwen-watcher" for word in before) or before[-2:] == ["-m", "watcher"]


def _same_home(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    names = ("QWEN_HOME", "QWEN_RUNTIME_DIR", "QWEN_WATCHER_WATCH__HOMES")
    return home_dir(ours) == home_dir(theirs) and all(ours.get(name, "") == theirs.get(name, "") for name in names)
