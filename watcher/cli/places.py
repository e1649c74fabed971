"""What several commands begin with: a workplace that leaves no trace, and sessions that only the journal knows."""

from __future__ import annotations

from collections.abc import Mapping

from watcher.catalog import Catalog
from watcher.edge.store import Store, has_database
from watcher.errors import NotFoundError
from watcher.paths import state_dir
from watcher.workplace import Workplace


def reading_place(environ: Mapping[str, str]) -> Workplace:
    """A workplace for a command that only looks: where there is no state database yet, none is left behind.

    Raises `StateError`.
    """
    return Workplace(environ, throw_away_state=not has_database(state_dir(environ)))


def session_id_for(place: Workplace, store: Store | None, name: str) -> str:
    """The id of the session called `name`; also of one whose file is gone, by its whole id.

    Raises `NotFoundError` and `UsageError` as `Catalog.find`.
    """
    try:
        return Catalog(place.roots, place.liveness, store).find(name).session_id
    except NotFoundError:
        if store is not None and store.entries(session_id=name, limit=1):
            return name.lower()
        raise
