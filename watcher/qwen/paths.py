"""From the path of a session file to what lies around it (contract 1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from watcher.qwen.contract import CHATS_DIR, PROJECTS_DIR, runtime_sidecar_name, session_id_of


@dataclass(frozen=True, slots=True)
class SessionRef:
    """One session file: its path, the id in its name, and the Qwen Code runtime base that it lies under."""

    path: str
    session_id: str
    runtime_base: Path

    @property
    def sidecar(self) -> Path:
        """Where its runtime sidecar would stand (contract 1.3)."""
        return Path(self.path).with_name(runtime_sidecar_name(self.session_id))


def session_ref(path: str) -> SessionRef | None:
    """The session at `path`, None where no transcript can stand: it must be
    `<runtime base>/projects/<project>/chats/<id>.jsonl`.
    """
    session_id = session_id_of(path)
    chats = Path(path).parent
    if session_id is None or chats.name != CHATS_DIR or chats.parent.parent.name != PROJECTS_DIR:
        return None
    return SessionRef(path, session_id, chats.parent.parent.parent)
