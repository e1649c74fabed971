"""Checks of what switches titling off, and where."""

from __future__ import annotations

from watcher.config import env_variable
from watcher.doctor.values import Check, DoctorContext, Status
from watcher.qwen.contract import DISABLE_TITLE_VARIABLE, is_truthy_switch


def check_disable_switch(context: DoctorContext) -> Check:
    """Nothing switches titling off: the configuration, this environment, Qwen Code's `.env` and settings."""
    places, fixes = [], []
    if not context.config.title.enabled:
        places.append("title.enabled = false in the configuration")
        fixes.append(
            f"set [title] enabled = true (`qwen-watcher config show` says where; {env_variable('title.enabled')})"
        )
    if is_truthy_switch(context.environ.get(DISABLE_TITLE_VARIABLE)):
        places.append(f"{DISABLE_TITLE_VARIABLE} in this environment")
        fixes.append(f"unset {DISABLE_TITLE_VARIABLE}")
    for config_dir, settings in context.settings.items():
        if settings.title_disabled_by:
            places.append(f"{DISABLE_TITLE_VARIABLE} in {settings.title_disabled_by}")
            fixes.append(f"remove {DISABLE_TITLE_VARIABLE} there (for {config_dir})")
    if places:
        return Check("disable_switch", Status.WARN, f"titling is off: {'; '.join(places)}", "; ".join(fixes))
    return Check("disable_switch", Status.OK, "titling is not switched off")
