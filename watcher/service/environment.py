"""The variables that a service needs and would not see, in a file of mode 0600 that the service reads.

All of them go there, none into the unit: a proxy's address may hold a password, and a unit is world-readable. The file
is also the user's: lines outside the marks are never touched.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path

from watcher.errors import ServiceError
from watcher.paths import CONFIG_VARIABLE, STATE_DIR_VARIABLE, config_dir, config_path, state_dir

ENVIRONMENT_FILE = "service.env"

PATH_VARIABLES = ("QWEN_HOME", "QWEN_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
"""Variables that name a path; a relative one is made absolute, since the service has another working directory."""

SETTINGS_VARIABLES = ("QWEN_CODE_SYSTEM_SETTINGS_PATH", "QWEN_CODE_SYSTEM_DEFAULTS_PATH")
"""Where Qwen Code's system settings are (contract 7.1)."""

PROXY_VARIABLES = tuple(
    name for word in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (word, word.upper())
)

_OWN_PREFIX = "QWEN_WATCHER_"
_XDG_VARIABLES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")

_BEGIN = "# BEGIN written by `qwen-watcher service install`, removed by `service uninstall`"
_END = "# END"
_BLOCK = re.compile(rf"^{re.escape(_BEGIN)}\n(?P<body>.*?)^{_END}\n?", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def environment_path(environ: Mapping[str, str]) -> Path:
    """The file of the service's variables, beside the configuration."""
    return config_dir(environ) / ENVIRONMENT_FILE


def is_carried(name: str) -> bool:
    """Whether `service install` carries this variable over: an install replaces all of them, a stored key stays."""
    return name in (*PATH_VARIABLES, *SETTINGS_VARIABLES, *PROXY_VARIABLES, *_XDG_VARIABLES) or name.startswith(
        _OWN_PREFIX
    )


def decides_places(name: str) -> bool:
    """Whether commands in a shell without this variable look at other files than a service that has it."""
    return is_carried(name) and name.startswith(("QWEN_", "XDG_"))


def dropped_notes(before: str | None, after: str | None) -> tuple[str, ...]:
    """What the user should know when our block has lost variables: this shell did not have them."""
    lost = sorted(block_variables(before).keys() - block_variables(after).keys())
    if not lost:
        return ()
    return (f"the service no longer has {', '.join(lost)}: not set here; to keep them, install from a shell with them",)


def carried_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of this environment that the service needs, with every path absolute.

    `QWEN_WATCHER_*` (our configuration), `QWEN_HOME` and the like, `XDG_CONFIG_HOME`, proxy and CA. Not
    `QWEN_DISABLE_AUTO_TITLE`: stored once, it would stay in force after the user dropped it.

    Raises ServiceError for a value that an environment file cannot hold.
    """
    carried = {name: value for name, value in environ.items() if value and is_carried(name)}
    for name in (*PATH_VARIABLES, *SETTINGS_VARIABLES):
        if name in carried:
            carried[name] = os.path.abspath(os.path.expanduser(carried[name]))  # noqa: PTH100, PTH111
    if CONFIG_VARIABLE in carried:
        carried[CONFIG_VARIABLE] = str(config_path(environ))
    if STATE_DIR_VARIABLE in carried:
        carried[STATE_DIR_VARIABLE] = str(state_dir(environ))
    for name, value in carried.items():
        _check(name, value)
    return dict(sorted(carried.items()))


def key_variable(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """The variable that holds a key, to be stored. Raises ServiceError when it is not set or cannot be stored."""
    if not _NAME.fullmatch(name):
        raise ServiceError("--store-key takes the name of an environment variable, not a key")
    if not environ.get(name):
        raise ServiceError(f"{name} is not set in this shell, so its value cannot be stored; export it first")
    _check(name, environ[name])
    return {name: environ[name]}


def with_block(text: str | None, carried: Mapping[str, str], stored: Mapping[str, str]) -> str | None:
    """The file with our block replaced: the carried variables anew, keys that were stored before kept.

    None when there is nothing to say and the file did not exist.
    """
    kept = {name: value for name, value in block_variables(text).items() if not is_carried(name)}
    variables = {**carried, **kept, **stored}
    rest = without_block(text)
    if not variables:
        return rest
    lines = [f"{name}={_quote(value)}" for name, value in variables.items()]
    return "\n".join([_BEGIN, *lines, _END, ""]) + (rest or "")


def without_block(text: str | None) -> str | None:
    """The file without our block; None when nothing but whitespace is left."""
    rest = _BLOCK.sub("", text or "")
    return rest if rest.strip() else None


def block_variables(text: str | None) -> dict[str, str]:
    """The variables of our block."""
    match = _BLOCK.search(text or "")
    return parse_variables(match["body"]) if match else {}


def parse_variables(text: str) -> dict[str, str]:
    """All variables of an environment file, as systemd's `EnvironmentFile=` reads them."""
    from dotenv import dotenv_values  # noqa: PLC0415  # only the service commands read this file

    values = dotenv_values(stream=io.StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}


def _quote(value: str) -> str:
    # What both systemd.exec(5) and python-dotenv take off again within double quotes.
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check(name: str, value: str) -> None:
    if not value.isprintable():  # a line break or NUL, or bytes that are not UTF-8
        raise ServiceError(f"{name} holds characters that an environment file cannot hold; unset or correct it")
