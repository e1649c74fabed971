"""Which file system a path is on, and whether its events and appends can be relied on.

On network and host-shared file systems change events are missing (report F9) and an append of one process is not atomic
against another machine (contract 10), so those are polled and never written.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

MOUNT_SECONDS: Final = 5.0
"""`mount` is given up after this long; it can hang on a dead server."""


class FileSystemKind(StrEnum):
    """What a file system's kind means to us."""

    NATIVE = "native"
    """Events arrive and appends are atomic."""
    NETWORK = "network"
    """Another machine, or the host of a virtual one, may write behind this kernel's back."""
    UNKNOWN = "unknown"
    """The mount table could not be read."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table; `type` is spelled as the system spells it."""

    point: str
    type: str


@dataclass(frozen=True, slots=True)
class FileSystem:
    """The file system of a path. `reason` is a plain sentence when it is not native, "" otherwise."""

    kind: FileSystemKind
    type: str = ""
    point: str = ""
    reason: str = ""

    @property
    def is_network(self) -> bool:
        """Whether events must be replaced by polling and writing be refused."""
        return self.kind is FileSystemKind.NETWORK


_NETWORK: Final = {
    "nfs": "NFS",
    "nfs4": "NFS",
    "cifs": "SMB/CIFS",
    "smb": "SMB/CIFS",
    "smb2": "SMB/CIFS",
    "smb3": "SMB/CIFS",
    "smbfs": "SMB/CIFS",
    "afpfs": "AFP",
    "webdav": "WebDAV",
    "davfs": "WebDAV",
    "9p": "9P (a directory of the host system)",
    "v9fs": "9P (a directory of the host system)",
    "drvfs": "a Windows drive in WSL",
    "virtiofs": "virtiofs (a directory of the host system)",
    "vboxsf": "a VirtualBox shared folder",
    "vmhgfs": "a VMware shared folder",
    "prl_fs": "a Parallels shared folder",
    "fakeowner": "a Docker Desktop shared folder",
    "osxfs": "a Docker Desktop shared folder",
    "afs": "AFS",
    "ceph": "Ceph",
    "glusterfs": "GlusterFS",
    "lustre": "Lustre",
    "gfs2": "GFS2",
    "gpfs": "GPFS",
    "ocfs2": "OCFS2",
    "beegfs": "BeeGFS",
    "orangefs": "OrangeFS",
    "pvfs2": "OrangeFS",
    "ncpfs": "NCP",
    "coda": "Coda",
}
_LOCAL_FUSE: Final = frozenset(
    {
        "fuseblk",
        "fuse.bindfs",
        "fuse.cryfs",
        "fuse.encfs",
        "fuse.fuse-overlayfs",
        "fuse.gocryptfs",
        "fuse.lxcfs",
        "fuse.mergerfs",
        "fuse.ntfs-3g",
        "fuse.overlayfs",
        "fuse.securefs",
        "fuse.zfs-fuse",
    }
)
"""FUSE file systems that keep their data on this machine; any other one is taken for a remote one."""

_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_BSD_LINE: Final = re.compile(r"^.* on (?P<point>/.*) \((?P<type>[A-Za-z0-9_.+-]+)(?:, [^()]*)?\)$")


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts of `/proc/<pid>/mountinfo`, in its order (proc_pid_mountinfo(5)); unreadable lines are left out."""
    mounts = []
    for line in text.split("\n"):
        left, separator, right = line.partition(" - ")
        fields, types = left.split(" "), right.split(" ")
        if separator and len(fields) > 4 and types[0]:  # noqa: PLR2004 - the fifth field is the mount point
            mounts.append(Mount(_unescape(fields[4]), types[0]))
    return tuple(mounts)


def parse_mount_output(text: str) -> tuple[Mount, ...]:
    """The mounts that `mount` of macOS and the BSDs prints: ``SOURCE on POINT (TYPE, option, …)``."""
    found = (_BSD_LINE.match(line) for line in text.split("\n"))
    return tuple(Mount(match["point"], match["type"]) for match in found if match is not None)


def classify(path: str, mounts: Sequence[Mount]) -> FileSystem:
    """The file system of an absolute path without symbolic links: the last mount on its longest prefix."""
    best: Mount | None = None
    for mount in mounts:
        point = mount.point.rstrip("/")
        inside = path == point or path.startswith(f"{point}/")
        if inside and (best is None or len(point) >= len(best.point.rstrip("/"))):
            best = mount
    if best is None:
        return FileSystem(FileSystemKind.UNKNOWN, reason="the mount table does not name it")
    network = _network_name(best.type)
    if network is None:
        return FileSystem(FileSystemKind.NATIVE, best.type, best.point)
    return FileSystem(FileSystemKind.NETWORK, best.type, best.point, f"{best.point} is {network} ({best.type})")


def file_system_of(path: str) -> FileSystem:
    """The file system that holds `path`, or would hold it when it does not exist yet. Symbolic links are followed."""
    return classify(os.path.realpath(path), read_mounts())


def read_mounts() -> tuple[Mount, ...]:
    """This system's mounts; empty when they cannot be read."""
    if sys.platform == "darwin":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                ["/sbin/mount"], capture_output=True, timeout=MOUNT_SECONDS, check=True, stdin=subprocess.DEVNULL
            )
            return parse_mount_output(os.fsdecode(done.stdout))
        return ()
    with contextlib.suppress(OSError):
        return parse_mountinfo(os.fsdecode(Path("/proc/self/mountinfo").read_bytes()))
    return ()


def _network_name(kind: str) -> str | None:
    low = kind.lower()
    known = _NETWORK.get(low)
    if known is not None:
        return known
    if low in _LOCAL_FUSE:
        return None
    if low == "fuse.sshfs":
        return "sshfs"
    if low.startswith(("fuse.", "macfuse", "osxfuse")) or low == "fuse":
        return "a FUSE file system that is not known to be local"
    return None


def _unescape(field: str) -> str:
    """Mountinfo writes space, tab, newline and backslash of each byte as three octal digits."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)
