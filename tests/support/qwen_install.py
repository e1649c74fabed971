"""Fetches the real Qwen Code and its Node.js from the npm registry, once; `python -m` fetches all that tests use."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache"
"""Where the CLI and its runtime are kept between test runs; ignored by git."""

NODE_VERSION = "22.23.3"
"""The JavaScript runtime; Qwen Code wants at least 22, which many systems do not have."""

LATEST = "0.24.4"
VERSIONS = (LATEST, "0.23.0")
"""The versions that the end-to-end tests use. 0.21.2 and 0.15.10 work as well."""

_COMPLETE = ".complete"


class InstallError(RuntimeError):
    """npm could not fetch a package; the message holds what npm said."""


@dataclass(frozen=True)
class QwenCode:
    """An installed Qwen Code: its version, its runtime and its entry script."""

    version: str
    node: Path
    entry: Path

    @property
    def says_session(self) -> bool:
        """Whether an interactive process leaves a file that names its session (since 0.21)."""
        return tuple(map(int, self.version.split(".")[:2])) >= (0, 21)

    def argv(self, *args: str) -> list[str]:
        """The command line that starts it."""
        return [str(self.node), str(self.entry), *args]


def install(version: str) -> QwenCode:
    """Qwen Code `version`, fetched with npm unless that was done before. Raises `InstallError`."""
    node = _fetch(CACHE / "node" / NODE_VERSION, "node", NODE_VERSION, Path("node_modules/node/bin/node"))
    entry = _fetch(
        CACHE / "qwen-code" / version,
        "@qwen-code/qwen-code",
        version,
        Path("node_modules/@qwen-code/qwen-code/package.json"),
    )
    bin_entry = json.loads(entry.read_text())["bin"]["qwen"]
    return QwenCode(version, node, entry.parent / bin_entry)


def _fetch(folder: Path, package: str, version: str, wanted: Path) -> Path:
    """The file `wanted` of the npm package in `folder`, installed first if need be; others may do the same."""
    if not (folder / _COMPLETE).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(folder.name + ".lock")):
            if not (folder / _COMPLETE).exists():
                _npm_install(folder, package, version, wanted)
    return folder / wanted


def _npm_install(folder: Path, package: str, version: str, wanted: Path) -> None:
    if folder.exists():  # a run that was interrupted
        shutil.rmtree(folder)
    folder.mkdir()
    print(f"fetching {package} {version} ...", file=sys.stderr, flush=True)
    options = ["--no-package-lock", "--no-save", "--no-audit", "--no-fund", "--no-update-notifier"]
    command = ["npm", "install", "--prefix", str(folder), *options, f"{package}@{version}"]
    try:
        result = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise InstallError("npm is not installed; it is needed to fetch Qwen Code for the end-to-end tests") from None
    if result.returncode or not (folder / wanted).exists():
        shutil.rmtree(folder)
        raise InstallError(
            f"npm could not install {package}@{version} (exit status {result.returncode}):\n"
            f"{result.stdout}{result.stderr}"
        )
    (folder / _COMPLETE).touch()
    print(f"fetched {package} {version}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file, which is made if need be, while the block runs."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(versions: Sequence[str]) -> int:
    """Fetches these versions, by default all that the tests use; says so on stderr. Returns the exit status."""
    for version in versions or VERSIONS:
        try:
            install(version)
        except InstallError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"Qwen Code {version} is ready", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
