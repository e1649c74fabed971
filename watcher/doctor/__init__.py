"""`doctor`: everything that could keep the watcher from working, each with its fix (design 4 and 11).

A check is a function from a `DoctorContext` to a `Check`. Those in `ENVIRONMENT_CHECKS` need nothing of the running
watcher; the caller adds the others under their documented names and runs all of them with `run_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from watcher.doctor.installation import check_packages, check_proxy, check_python
from watcher.doctor.places import check_events, check_filesystem, check_homes, check_state_dir, check_watch_limits
from watcher.doctor.service import check_lingering, check_service, check_service_environment
from watcher.doctor.switches import check_disable_switch
from watcher.doctor.values import CHECK_NAMES, Check, CheckFunction, DoctorContext, Status, run_checks, worst

__all__ = [
    "CHECK_NAMES",
    "ENVIRONMENT_CHECKS",
    "Check",
    "CheckFunction",
    "DoctorContext",
    "Status",
    "run_checks",
    "worst",
]

ENVIRONMENT_CHECKS: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "python": check_python,
        "packages": check_packages,
        "homes": check_homes,
        "filesystem": check_filesystem,
        "watch_limits": check_watch_limits,
        "events": check_events,
        "proxy": check_proxy,
        "disable_switch": check_disable_switch,
        "state_dir": check_state_dir,
        "service": check_service,
        "service_environment": check_service_environment,
        "lingering": check_lingering,
    }
)
"""Still to be added by the caller: sessions, qwen_version, settings, fast_model, api_key, endpoint, budget, recaps,
leases, instance, brake."""
