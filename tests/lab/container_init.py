"""PID 1 of a namespace: mount its file systems, then execute systemd.

The keeper starts this program in new namespaces (all but user and time):
`python3 -I -S container_init.py ORDERS`, where ORDERS is JSON (see Orders).
"""

import ctypes
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_CAPBSET_DROP = 24
SYS_PIVOT_ROOT = 155  # x86_64
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# access to the host itself: SYS_MODULE, SYS_RAWIO, SYS_TIME, MAC_OVERRIDE, MAC_ADMIN, SYSLOG,
# WAKE_ALARM, BLOCK_SUSPEND
DROPPED_CAPABILITIES = (16, 17, 25, 32, 33, 34, 35, 36)
ENVIRONMENT = {"container": "other", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The view of the container."""

    root: str  # directory of the image, never written to
    scratch: str  # an empty directory
    log: str  # an existing file
    binds: dict[str, str]  # inside → outside, read-only
    # (directory below /sys/fs/cgroup, v1 controllers or none for the unified one); empty: only v2
    cgroups: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]


libc = ctypes.CDLL(None, use_errno=True)


def main(orders: Orders) -> None:
    mount("none", "/", "", MS_REC | MS_PRIVATE)  # mounts do not propagate to the host
    root = make_root(orders)
    for inside, outside in orders.binds.items():
        bind_read_only(outside, root / inside.lstrip("/"))
    make_api_file_systems(root)
    make_devices(root / "dev", orders.log)
    make_cgroups(root / "sys/fs/cgroup", orders.cgroups)
    enter(root)
    for number in DROPPED_CAPABILITIES:
        libc.prctl(PR_CAPBSET_DROP, number)
    os.umask(0o022)
    os.execve(orders.argv[0], orders.argv, ENVIRONMENT)  # noqa: S606 (there is no shell yet)


def make_root(orders: Orders) -> Path:
    """Mount the image; writes go to memory."""
    scratch = Path(orders.scratch)
    mount("tmpfs", scratch, "tmpfs")
    for name in ("upper", "work", "root"):
        (scratch / name).mkdir()
    layers = f"lowerdir={orders.root},upperdir={scratch}/upper,workdir={scratch}/work"
    mount("overlay", scratch / "root", "overlay", data=layers)
    return scratch / "root"


def make_api_file_systems(root: Path) -> None:
    """Mount proc, sys and run; options of the host's kernel are read-only."""
    mount("proc", root / "proc", "proc")
    for path in (root / "proc/sys", root / "proc/sysrq-trigger"):
        if path.exists():
            bind_read_only(path, path)
    net = root / "proc/sys/net"  # these belong to the network namespace
    mount(net, net, "", MS_BIND)
    mount("none", net, "", MS_REMOUNT | MS_BIND)
    mount("sysfs", root / "sys", "sysfs", MS_RDONLY)
    mount("tmpfs", root / "run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    mount("tmpfs", root / "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def make_devices(dev: Path, log: str) -> None:
    """Create the devices of a container; PID 1 writes its console to the log."""
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        (dev / name).touch()
        mount(f"/dev/{name}", dev / name, "", MS_BIND)
    (dev / "console").touch()
    mount(log, dev / "console", "", MS_BIND)
    for name in ("pts", "shm"):
        (dev / name).mkdir()
    mount("devpts", dev / "pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("tmpfs", dev / "shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    (dev / "ptmx").symlink_to("pts/ptmx")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (dev / name).symlink_to(f"/proc/self/fd/{number}")
    (dev / "fd").symlink_to("/proc/self/fd")


def make_cgroups(top: Path, hierarchies: tuple[tuple[str, str], ...]) -> None:
    """Mount the hierarchies; the cgroup namespace makes the cgroup of this process their root."""
    if not hierarchies:
        mount("cgroup2", top, "cgroup2")
        return
    mount("tmpfs", top, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name, options in hierarchies:
        (top / name).mkdir()
        if options:
            mount("cgroup", top / name, "cgroup", data=options)
        else:
            mount("cgroup2", top / name, "cgroup2")
        for alias in name.split(",") if "," in name else ():
            (top / alias).symlink_to(name)
    # otherwise systemd mounts the other hierarchies, too, and works in the host's root
    mount("none", top, "", MS_REMOUNT | MS_BIND | MS_RDONLY)


def enter(root: Path) -> None:
    """Make this directory the root, and detach that of the host."""
    os.chdir(root)
    (root / "mnt").mkdir(exist_ok=True)
    if libc.syscall(SYS_PIVOT_ROOT, b".", b"mnt") != 0:
        raise OSError(ctypes.get_errno(), "pivot_root")
    os.chdir("/")
    if libc.umount2(b"/mnt", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount of the host's root")


def bind_read_only(source: str | Path, target: Path) -> None:
    """Mount a directory or file of the host, read-only."""
    if not target.exists():
        target.mkdir(parents=True)
    mount(source, target, "", MS_BIND)
    mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY)


def mount(
    source: str | Path, target: str | Path, kind: str, flags: int = 0, data: str = ""
) -> None:
    arguments = (str(source), str(target), kind)
    if libc.mount(*(a.encode() for a in arguments), ctypes.c_ulong(flags), data.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
