"""Which file systems are polled and never written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from watcher.edge.mounts import (
    FileSystemKind,
    Mount,
    classify,
    file_system_of,
    parse_mount_output,
    parse_mountinfo,
    read_mounts,
)

MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:44 / /home rw,relatime shared:2 master:1 - autofs systemd-1 rw
41 40 0:45 / /home rw,relatime - nfs4 server:/export/home rw,vers=4.2
42 27 0:46 / /mnt/c rw,noatime - 9p C:\\\\134 rw,aname=drvfs
43 27 0:47 /sub /media/with\\040space rw - cifs //server/share rw
44 27 0:48 / /remote rw - fuse.sshfs user@host:/ rw
45 27 0:49 / /secret rw - fuse.gocryptfs /home/.cipher rw
46 27 0:50 / /cloud rw - fuse.rclone drive: rw
47 41 0:51 / /home/me/local rw - xfs /dev/vdb rw
garbage
"""

MACOS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
//me@server/share on /Volumes/My Share (on site) (smbfs, nodev, nosuid, mounted by me)
server:/export on /Volumes/export (nfs, asynchronous)
"""


@pytest.mark.parametrize(
    ("path", "kind", "type_"),
    [
        ("/work/x", FileSystemKind.NATIVE, "ext4"),
        ("/", FileSystemKind.NATIVE, "ext4"),
        ("/home/me/.qwen", FileSystemKind.NETWORK, "nfs4"),
        ("/home", FileSystemKind.NETWORK, "nfs4"),
        ("/homework", FileSystemKind.NATIVE, "ext4"),
        ("/home/me/local/x", FileSystemKind.NATIVE, "xfs"),
        ("/home/me/locals", FileSystemKind.NETWORK, "nfs4"),
        ("/mnt/c/Users", FileSystemKind.NETWORK, "9p"),
        ("/media/with space/x", FileSystemKind.NETWORK, "cifs"),
        ("/remote/x", FileSystemKind.NETWORK, "fuse.sshfs"),
        ("/secret/x", FileSystemKind.NATIVE, "fuse.gocryptfs"),
        ("/cloud/x", FileSystemKind.NETWORK, "fuse.rclone"),
    ],
)
def test_linux_mount_table(path: str, kind: FileSystemKind, type_: str) -> None:
    """The last mount on the longest prefix decides, and every network kind is told with a reason."""
    found = classify(path, parse_mountinfo(MOUNTINFO))
    assert (found.kind, found.type) == (kind, type_)
    assert bool(found.reason) is found.is_network


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/System/Volumes/Data/Users/me/.qwen", FileSystemKind.NATIVE),
        ("/Volumes/My Share (on site)/x", FileSystemKind.NETWORK),
        ("/Volumes/export/x", FileSystemKind.NETWORK),
        ("/tmp/x", FileSystemKind.NATIVE),
    ],
)
def test_macos_mount_output(path: str, kind: FileSystemKind) -> None:
    """`mount` output is understood, also with spaces and brackets in a mount point."""
    assert classify(path, parse_mount_output(MACOS)).kind is kind


REMOTE = (
    *("nfs", "nfs4", "NFS", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "webdav", "davfs", "ncpfs", "coda"),
    *("fuse.sshfs", "fuse.rclone", "fuse.davfs2", "fuse", "macfuse", "osxfuse_sshfs"),
    *("9p", "v9fs", "drvfs", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "fakeowner", "osxfs"),
    *("afs", "ceph", "glusterfs", "lustre", "gfs2", "gpfs", "ocfs2", "beegfs", "orangefs", "pvfs2"),
)


@pytest.mark.parametrize("type_", REMOTE)
def test_every_kind_that_another_machine_may_write_to_is_network(type_: str) -> None:
    """NFS, CIFS/SMB, sshfs and the like, host shares and clusters are never taken for local ones."""
    assert classify("/a/b", [Mount("/", "ext4"), Mount("/a", type_)]).is_network


def test_an_empty_table_is_unknown() -> None:
    """Without a mount table nothing is claimed."""
    assert classify("/a", ()).kind is FileSystemKind.UNKNOWN


def test_this_system_names_its_own_mounts(tmp_path: Path) -> None:
    """The real table names a mount for a real directory, also through a link and for a path that is yet to be made."""
    assert read_mounts()
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    found = file_system_of(str(link / "not" / "there"))
    assert found.kind is not FileSystemKind.UNKNOWN
    assert os.path.realpath(tmp_path).startswith(found.point.rstrip("/"))


def test_a_link_to_another_file_system_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that is a link to a share is on that share."""
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "home").symlink_to(share)
    mounts = (Mount("/", "ext4"), Mount(os.path.realpath(share), "nfs4"))
    monkeypatch.setattr("watcher.edge.mounts.read_mounts", lambda: mounts)
    assert file_system_of(str(tmp_path / "home" / "x")).is_network
    assert not file_system_of(str(tmp_path / "other")).is_network
