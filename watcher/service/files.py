"""Changes to several files that happen together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from watcher.atomic_file import replace_file
from watcher.errors import ServiceError, words_of


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a file shall hold afterwards; None removes it."""

    path: Path
    text: str | None
    mode: int

    @property
    def differs(self) -> bool:
        """Whether the file is not yet so, its mode included."""
        try:
            status = self.path.lstat()
            content = self.path.read_bytes()
        except FileNotFoundError:
            return self.text is not None
        except OSError:
            return True
        wanted = None if self.text is None else self.text.encode()
        return content != wanted or status.st_mode & 0o777 != self.mode


def read_text(path: Path) -> str | None:
    """The text of a file, None when there is none. Raises ServiceError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceError(f"{path} cannot be read: {error}; mend or remove it") from error


def write_file(path: Path, text: str, mode: int) -> None:
    """Replace a file in one step, as `atomic_file.replace_file`. Raises ServiceError."""
    try:
        replace_file(path, text, mode)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {words_of(error)}") from error


@contextmanager
def applied(changes: Sequence[FileChange]) -> Iterator[None]:
    """Apply the changes; when the body or a change fails, every file is put back. Raises ServiceError."""
    before: list[FileChange] = []
    try:
        for change in changes:
            old = read_text(change.path)
            mode = change.path.stat().st_mode & 0o777 if old is not None else change.mode
            before.append(FileChange(change.path, old, mode))
            _apply(change)
        yield
    except BaseException:
        for change in reversed(before):
            with suppress(ServiceError):
                _apply(change)
        raise


def remove_empty_directories(path: Path, *, up_to: Path) -> None:
    """Remove `path` and its parents below `up_to` as long as they are empty."""
    while path != up_to and up_to in path.parents:
        try:
            path.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return
        path = path.parent


def _apply(change: FileChange) -> None:
    if not change.differs:
        return
    if change.text is not None:
        write_file(change.path, change.text, change.mode)
        return
    try:
        change.path.unlink(missing_ok=True)
    except OSError as error:
        raise ServiceError(f"{change.path} cannot be removed: {words_of(error)}") from error
