"""`doctor`: everything that could keep the watcher from working, each with its fix (design 4 and 11).

A check is a function from a `DoctorContext` to a `Check`; `gather` makes the context of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from watcher.doctor.context import gather
from watcher.doctor.installation import check_packages, check_proxy, check_python
from watcher.doctor.models import check_api_key, check_endpoint, check_fast_model, check_recaps, check_settings
from watcher.doctor.places import check_events, check_filesystem, check_homes, check_state_dir, check_watch_limits
from watcher.doctor.running import check_brake, check_budget, check_instance
from watcher.doctor.service import check_lingering, check_service, check_service_environment
from watcher.doctor.sessions import check_leases, check_qwen_version, check_sessions
from watcher.doctor.switches import check_disable_switch
from watcher.doctor.values import CHECK_NAMES, Check, CheckFunction, DoctorContext, Status, run_checks, worst

__all__ = [
    "CHECKS",
    "CHECK_NAMES",
    "Check",
    "CheckFunction",
    "DoctorContext",
    "Status",
    "gather",
    "run_checks",
    "worst",
]

CHECKS: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "python": check_python,
        "packages": check_packages,
        "homes": check_homes,
        "filesystem": check_filesystem,
        "sessions": check_sessions,
        "watch_limits": check_watch_limits,
        "events": check_events,
        "qwen_version": check_qwen_version,
        "settings": check_settings,
        "fast_model": check_fast_model,
        "api_key": check_api_key,
        "proxy": check_proxy,
        "endpoint": check_endpoint,
        "budget": check_budget,
        "disable_switch": check_disable_switch,
        "recaps": check_recaps,
        "leases": check_leases,
        "state_dir": check_state_dir,
        "instance": check_instance,
        "brake": check_brake,
        "service": check_service,
        "service_environment": check_service_environment,
        "lingering": check_lingering,
    }
)
"""Every check under its documented name, in the documented order."""
