"""Settings for every test: the same examples in every run, and no limit on how long a slow machine takes for one."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("project", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("project")
