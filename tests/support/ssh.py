"""A command line over ssh on this machine: a server for one connection, on pipes, with keys of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin:/opt/homebrew/sbin")
"""None where there is none."""
_ROOM = Path("/run/sshd")
"""Debian's server wants it to exist when root starts it; the system makes it together with the service."""


def over_ssh(argv: Sequence[str], env: Mapping[str, str], cwd: Path, folder: Path) -> list[str]:
    """The command line of an ssh client that runs `argv` in this directory, with exactly this environment."""
    assert SERVER is not None
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(made, check=True, capture_output=True)
    if os.geteuid() == 0:
        _ROOM.mkdir(mode=0o755, exist_ok=True)
    settings = {
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
        "PidFile": "none",
    }
    config = folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    options = {
        "ProxyCommand": shlex.join([SERVER, "-i", "-f", str(config)]),
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "LogLevel": "ERROR",
    }
    words = [f"{name}={value}" for name, value in env.items()]
    remote = f"cd {shlex.quote(str(cwd))} && exec env -i {shlex.join([*words, *argv])}"
    chosen = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-tt", "-F", "/dev/null", "-i", str(folder / "user"), *chosen, "here", remote]
