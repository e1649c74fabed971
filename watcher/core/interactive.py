"""Which sessions people sit at."""

from __future__ import annotations

from watcher.core.owner import Ownership
from watcher.core.session import SessionState


def is_interactive(state: SessionState, owners: Ownership) -> bool:
    """A terminal or editor session (design 6): an owner of kind `tui`, a runtime sidecar or a file history snapshot.

    A session that another one or a daemon's channel made is none, unless a terminal took it over.
    """
    return owners.interactive or (state.has_snapshot and not state.has_source)
