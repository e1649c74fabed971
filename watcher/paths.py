"""Where this program keeps its files: the configuration, the state, the socket.

Apart from `watcher.config` so that a short command (`statusline`) finds the socket without loading pydantic. Worked
out here and not by platformdirs, which reads the environment of the process only: `service` and `doctor` ask where
*another* process would look, so the environment is a value here.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path

from watcher.errors import ConfigError

APP_NAME = "qwen-watcher"
CONFIG_VARIABLE = "QWEN_WATCHER_CONFIG"
STATE_DIR_VARIABLE = "QWEN_WATCHER_STATE_DIR"
SOCKET_NAME = "qwen-watcher.sock"


def home_dir(environ: Mapping[str, str]) -> Path:
    """`HOME`, else the home directory of the user database. Raises ConfigError when there is neither."""
    home = environ.get("HOME", "")
    if home.startswith("/"):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise ConfigError("HOME is not set and this user has no home directory; set HOME") from None


def expand_home(text: str, home: Path) -> str:
    """`text` with a leading `~` or `~/` replaced; `~name` is left alone."""
    return str(home) + text[1:] if text == "~" or text.startswith("~/") else text


def config_dir(environ: Mapping[str, str]) -> Path:
    """The directory of this program's configuration; it need not exist."""
    return _user_dir(environ, "XDG_CONFIG_HOME", ".config")


def config_path(environ: Mapping[str, str]) -> Path:
    """The configuration file: `QWEN_WATCHER_CONFIG`, else `config.toml` in `config_dir`; it need not exist."""
    return _explicit(environ, CONFIG_VARIABLE) or config_dir(environ) / "config.toml"


def state_dir(environ: Mapping[str, str]) -> Path:
    """The state directory: `QWEN_WATCHER_STATE_DIR`, else the platform's; it need not exist."""
    return _explicit(environ, STATE_DIR_VARIABLE) or _user_dir(environ, "XDG_STATE_HOME", ".local/state")


def runtime_dir(environ: Mapping[str, str]) -> Path:
    """The directory of the socket: `XDG_RUNTIME_DIR`, else the state directory.

    A watcher with a state directory of its own has its socket there too: two of them may run at the same time.
    """
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and not environ.get(STATE_DIR_VARIABLE):
        return Path(runtime)
    return state_dir(environ)


def socket_path(environ: Mapping[str, str]) -> Path:
    """The Unix socket of the running watcher (design 4, local API)."""
    return runtime_dir(environ) / SOCKET_NAME


def log_path(environ: Mapping[str, str]) -> Path:
    """The file of the service's stderr under launchd; the service rotates it itself (`watcher.log.rotate_log`)."""
    return home_dir(environ) / "Library" / "Logs" / "qwen-watcher.log"


def _explicit(environ: Mapping[str, str], variable: str) -> Path | None:
    text = environ.get(variable, "")
    return Path(expand_home(text, home_dir(environ))).absolute() if text else None


def _user_dir(environ: Mapping[str, str], xdg_variable: str, linux_default: str) -> Path:
    base = environ.get(xdg_variable, "")
    if base.startswith("/"):  # the XDG base directory specification: a relative value is ignored
        return Path(base) / APP_NAME
    default = "Library/Application Support" if sys.platform == "darwin" else linux_default
    return home_dir(environ) / default / APP_NAME
