"""This program as a user installs it: a wheel, in a virtual environment that every user can read."""

from __future__ import annotations

import email
import importlib.util
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path

from tests.support.systemd_user import UNPRIVILEGED_USER

ROOT = Path(__file__).resolve().parents[2]
_INSTALL_SECONDS = 100


def build_wheel(directory: Path) -> Path:
    """The wheel of this source tree, made in `directory`; without the network where the build backend is at hand."""
    at_hand = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "build", "--wheel", *at_hand, "--outdir", str(directory), str(ROOT)]
    _run(command)
    [wheel] = directory.glob("*.whl")
    return wheel


def python_for_everyone() -> str | None:
    """A Python 3.11 or later that a user without privileges can start, or None: this run's may stand in a home."""
    script = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [python, "-c", script],
                user=UNPRIVILEGED_USER,
                group=pwd.getpwnam(UNPRIVILEGED_USER).pw_gid,
                extra_groups=[],
                cwd="/",
                env={},
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except (OSError, LookupError):
            continue
        if done.returncode == 0:
            return python
    return None


def why_no_venv(python: str) -> str | None:
    """Why this Python cannot make virtual environments, or None."""
    done = subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{python} cannot make virtual environments (python3-venv is missing)"


def install_wheel(python: str, wheel: Path, venv: Path) -> Path:
    """Install the wheel with pip into a new environment; returns its `bin`. As the README says, with our constraints.

    Where no package index answers, what the wheel needs is copied from the packages of this run instead.
    """
    _run([python, "-m", "venv", str(venv)])
    constraints = ["-c", str(ROOT / "constraints.txt")]
    pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    done = subprocess.run(
        [*pip, *constraints, str(wheel)], capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
    )
    if done.returncode != 0:
        _copy_needed(wheel, venv)
        _run([*pip, "--no-index", str(wheel)])
    return venv / "bin"


def _copy_needed(wheel: Path, venv: Path) -> None:
    """Copy every distribution that the wheel needs, with all below it, into the environment."""
    [site] = venv.glob("lib/python*/site-packages")
    own = Path(sysconfig.get_path("purelib"))
    assert site.parent.name == own.parent.name, f"no index answers, and {own} is of another Python than {venv}"
    names, waiting = set[str](), _requirements(wheel)
    while waiting:
        found = re.match(r"[\w.-]+", line := waiting.pop())
        if found is None or "extra ==" in line or found[0] in names or not _is_installed(found[0]):
            continue
        names.add(found[0])
        waiting += requires(found[0]) or []
    for name in names:
        for file in distribution(name).files or []:
            source = Path(str(distribution(name).locate_file(file)))
            if source.is_file() and source.is_relative_to(own):
                target = site / source.relative_to(own)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist") or []


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except ModuleNotFoundError:
        return False  # for another platform or Python
    return True


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
