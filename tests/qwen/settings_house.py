"""A throw-away home with a project in it, for the tests of Qwen Code's settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from watcher.qwen.settings import QwenSettings, SettingsReader
from watcher.qwen.settings_files import SystemPaths


class House:
    """`home`, `home/.qwen`, a project `home/work/app` and the two system files, all under one temporary directory."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.config_dir = self.home / ".qwen"
        self.project = self.home / "work" / "app"
        self.system = SystemPaths(root / "etc" / "system-defaults.json", root / "etc" / "settings.json")
        for folder in (self.config_dir, self.project / ".qwen", self.system.settings.parent):
            folder.mkdir(parents=True)
        self.scopes = {
            "system defaults": self.system.defaults,
            "user": self.config_dir / "settings.json",
            "workspace": self.project / ".qwen" / "settings.json",
            "system": self.system.settings,
        }

    def settings(self, scope: str, values: object) -> Path:
        """Writes the settings file of a scope; a text is written as it is."""
        path = self.scopes[scope]
        path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
        return path

    def env(self, path: Path, text: str) -> Path:
        """Writes a `.env` file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def reader(self, environ: Mapping[str, str] | None = None) -> SettingsReader:
        """A reader that sees this house only."""
        return SettingsReader(self.home, environ or {}, self.system)

    def resolve(
        self, environ: Mapping[str, str] | None = None, *, trusted: bool = True, cwd: Path | None = None
    ) -> QwenSettings:
        """The settings of a session in the project."""
        return self.reader(environ).resolve(str(cwd or self.project), trusted, self.config_dir)


def touch_later(path: Path) -> None:
    """Makes a rewritten file look newer even where the clock of the file system is coarse."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))
