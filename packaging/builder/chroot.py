"""A small Debian with the tools to build and check packages; scripts run in temporary copies of it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.lab import deps
from tests.lab.image import ensure_dir, make_key
from tests.lab.machine import LabError

RUNTIME = (
    *("python3-dbus-next", "python3-h11", "python3-h2", "python3-prometheus-client"),
    *("python3-pydantic", "python3-rich", "python3-typer", "python3-yaml"),
)
CHROOTS = {
    "trixie": (
        *("debhelper", "dh-python", "pybuild-plugin-pyproject", "python3-all", "python3-hatchling"),
        *("lintian", "man-db", "rpm", "rpmlint", "systemd", *RUNTIME),
    ),
    "bookworm": (
        *(
            "debhelper",
            "python3",
            "python3-pip",
            "python3-hatchling",
            "lintian",
            "man-db",
            "systemd",
        ),
    ),
}
SUITES = tuple(CHROOTS)
ROOM_IN_MEMORY_BYTES = 4 << 30
IN_OWN_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
# because of dpkg's syncs a disk takes twice as long as memory
MAKE_CHROOT = """
work=$1 target=$2 suite=$3 mirror=$4 place=$5
shift 5
if [ "$place" = memory ]; then mount -t tmpfs -o mode=755 tmpfs "$work"; fi
mmdebstrap "$@" "$suite" "$work/root" "$mirror"
cp -a "$work/root" "$target"
"""
# $1 chroot, $2 scratch directory, $3 source tree, $4 directory of results, $5 where to build, $6 how
BUILD = """
root=$2/root build=$2/root$5
mount -t tmpfs -o mode=755 tmpfs "$2"
mkdir "$2/upper" "$2/work" "$root"
mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$root"
mkdir -p "$build" "$root/out"
cp -a "$3" "$build/source"
mount --bind "$4" "$root/out"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \\
  SOURCE_DATE_EPOCH="$7" sh -euc 'cd "$0/source"; umask 022; '"$6" "$5"
"""


def ensure_chroot(suite: str) -> Path:
    """Return a root directory with the tools of a suite, which must not be changed."""
    packages = CHROOTS[suite]
    key = make_key(repr(packages), MAKE_CHROOT)
    made = ensure_dir("build", suite, key, lambda new: _make_chroot(suite, packages, new))
    return made / "root"


def _make_chroot(suite: str, packages: tuple[str, ...], new: Path) -> None:
    deps.ensure_deps()
    work = new / "work"
    work.mkdir()
    has_room = shutil.disk_usage("/dev/shm").free > ROOM_IN_MEMORY_BYTES  # noqa: S108
    options = (
        *("--quiet", "--mode=root", "--variant=minbase", "--format=directory"),
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Check-Valid-Until "false"',
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--aptopt={line.rstrip(';')}" for line in deps.apt_proxy_options()),
        "--dpkgopt=force-unsafe-io",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        f"--include={','.join(packages)}",
        '--customize-hook=rm "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"',
    )
    deps.run_tool(
        *(*IN_OWN_NAMESPACES, "sh", "-euc", MAKE_CHROOT, "sh", str(work), str(new / "root")),
        *(suite, deps.debian_mirror(), "memory" if has_room else "disk", *options),
    )
    shutil.rmtree(work)


def run_in(
    chroot: Path,
    script: str,
    *,
    source: Path,
    out: Path,
    build_dir: str = "/build",
    epoch: int = 0,
) -> str:
    """Run a script in a temporary copy of a chroot, without network; return its output.

    Raises:
        LabError: it failed; the message contains the end of its output.
    """
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as scratch:
        done = subprocess.run(
            [
                *(*IN_OWN_NAMESPACES, "--net", "sh", "-euc", BUILD, "sh"),
                *(str(chroot), scratch, str(source), str(out), build_dir, script, str(epoch)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise LabError(f"the build in {chroot.parent.name} failed\n{done.stdout[-4000:]}")
    return done.stdout
