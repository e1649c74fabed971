"""Checks of what this program runs on: Python, its packages, the way to the network."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

from watcher.doctor.values import Check, DoctorContext, Status
from watcher.edge.text_model.network import network_problems
from watcher.service.environment import PROXY_VARIABLES

DISTRIBUTION = "qwen-session-watcher"
MINIMUM_PYTHON = (3, 11)
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?P<rest>[^;]*)")
_MINIMUM = re.compile(r">=\s*(?P<version>[0-9.]+)")
_CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
_ANY_ADDRESS = "https://model.invalid/v1"
"""Stands for a model's address that is not known; it is never asked."""


def check_python(context: DoctorContext) -> Check:
    """Python is new enough."""
    version = ".".join(map(str, context.python_version))
    if context.python_version[:2] >= MINIMUM_PYTHON:
        return Check("python", Status.OK, f"Python {version} at {sys.executable}")
    needed = ".".join(map(str, MINIMUM_PYTHON))
    fix = f"pipx install --python python{needed} {DISTRIBUTION}  # once Python {needed} or later is installed"
    return Check("python", Status.FAIL, f"Python {version}, but {needed} or later is needed", fix)


def check_packages(context: DoctorContext) -> Check:
    """Every package that this program needs is there, in a version that it can use."""
    found = {_normal(each.metadata["Name"] or ""): each for each in distributions(path=list(context.search_path))}
    own = found.get(_normal(DISTRIBUTION))
    if own is None:
        detail = f"{DISTRIBUTION} is not installed here; it runs from its source"
        return Check("packages", Status.WARN, detail, f"pipx install {DISTRIBUTION}")
    problems, versions = [], [f"{DISTRIBUTION} {own.version}"]
    for name, minimum in _requirements(own):
        package = found.get(_normal(name))
        if package is None:
            problems.append(f"{name} is missing")
        elif minimum and _numbers(package.version) < _numbers(minimum):
            problems.append(f"{name} {package.version} is older than {minimum}")
        else:
            versions.append(f"{name} {package.version}")
    if problems:
        fix = f"pipx reinstall {DISTRIBUTION}  # or install it again as you did before"
        return Check("packages", Status.FAIL, ", ".join(problems), fix)
    return Check("packages", Status.OK, ", ".join(versions))


def check_proxy(context: DoctorContext) -> Check:
    """The proxy and CA variables can be used on the way to the model. Names only: an address may hold a password."""
    problems = network_problems(context.model_address or _ANY_ADDRESS, context.environ)
    used = [name for name in (*PROXY_VARIABLES, *_CA_VARIABLES) if context.environ.get(name)]
    if problems:
        return Check("proxy", Status.FAIL, "; ".join(problems), "correct or unset the variable that is named")
    return Check("proxy", Status.OK, f"set and usable: {', '.join(used)}" if used else "no proxy or CA variable is set")


def _requirements(distribution: Distribution) -> Iterator[tuple[str, str]]:
    """Name and lowest version of each package that is needed without any extra."""
    for line in distribution.requires or ():
        match = _REQUIREMENT.match(line)
        if match and "extra ==" not in line:
            minimum = _MINIMUM.search(match["rest"])
            yield match["name"], minimum["version"] if minimum else ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> tuple[int, ...]:
    """The release number; what follows it (`rc1`, `.post2`) does not matter for a lower bound."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = tuple(int(part) for part in match[0].split(".")) if match else ()
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers
