"""Qwen Code's own settings and environment, as a session in a given directory has them.

Contract 7.1-7.4. What is read is remembered until a file changes, appears or goes. A broken file is an error in the
result, never an exception.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watcher.qwen.settings_files import FileText, Stamp, SystemPaths, can_exist, read_file, stamp_of
from watcher.qwen.settings_reading import QwenSettings, Reading

__all__ = ["QwenSettings", "SettingsReader"]

_MAX_REMEMBERED: Final = 128


@dataclass(frozen=True, slots=True)
class _Remembered:
    result: QwenSettings
    stamps: tuple[tuple[Path, Stamp], ...]


class SettingsReader:
    """Resolves settings for sessions; re-reads only what changed. Belongs to one thread."""

    def __init__(self, home: Path | None, environ: Mapping[str, str], system_paths: SystemPaths | None = None) -> None:
        """`home` is the user's home directory; `environ` is copied. `system_paths` None: the platform's, or where the
        two override variables point.
        """
        self.home = home
        self.environ = dict(environ)
        self.system_paths = system_paths or SystemPaths.from_environment(environ)
        self._texts: dict[Path, FileText] = {}
        self._remembered: OrderedDict[tuple[str, bool, Path], _Remembered] = OrderedDict()

    def resolve(self, cwd: str, trusted: bool, config_dir: Path) -> QwenSettings:
        """The settings of a session in `cwd` whose Qwen Code keeps its configuration in `config_dir`.

        `trusted`: the user trusts this folder in *our* configuration; else nothing in it can choose a model or show
        recaps. Unchanged files cost one `stat` each and give the same object again.
        """
        cwd = cwd if can_exist(cwd) else ""
        key = (cwd, trusted, config_dir)
        known = self._remembered.get(key)
        if known is not None and all(stamp_of(path) == stamp for path, stamp in known.stamps):
            self._remembered.move_to_end(key)
            return known.result
        reading = Reading(self.read, self.home, self.environ, self.system_paths, Path(cwd), trusted, config_dir)
        result = reading.result()
        self._remembered[key] = _Remembered(result, tuple(reading.stamps.items()))
        self._remembered.move_to_end(key)
        if len(self._remembered) > _MAX_REMEMBERED:
            self._remembered.popitem(last=False)
            wanted = {path for each in self._remembered.values() for path, _ in each.stamps}
            self._texts = {path: text for path, text in self._texts.items() if path in wanted}
        return result

    def read(self, path: Path) -> FileText:
        """The file's text, from memory while its stamp is the same."""
        known = self._texts.get(path)
        if known is None or known.stamp != stamp_of(path):
            known = self._texts[path] = read_file(path)
        return known
