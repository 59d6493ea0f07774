"""First, slow stage of an image: packages and kernel of a suite, as a plain directory."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.lab.deps import apt_proxy_options, debian_mirror, run_tool
from tests.lab.machine import LabError
from tests.lab.recipe import KERNEL_PACKAGE, PACKAGES, USER_ID, USER_NAME

ROOM_IN_MEMORY_BYTES = 2 << 30
WORK_PREFIX = "podslice-lab."
JUST_MADE_SEC = 60

# Runs as a hook of mmdebstrap with the root as $1. The kernel is fetched here and unpacked later,
# never installed: no initramfs-tools, no scripts of packages. $1/.debs is taken out afterwards.
# Debian 14 divides linux-image-V into that, linux-binary-V and linux-modules-V.
KERNEL_HOOK = f"""\
set -eu
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
image=$(apt-cache depends {KERNEL_PACKAGE} | sed -n 's/.*Depends: \\(linux-image-[0-9].*\\)/\\1/p')
version=${{image#linux-image-}}
names=$(apt-cache pkgnames | grep -xF -e "$image" -e "linux-binary-$version" \\
  -e "linux-modules-$version")
cd "$1/var/cache/apt/archives"
mkdir "$1/.debs" "$1/.kernel"
for name in $names; do
  ls "$name"_*.deb >/dev/null 2>&1 || apt-get -q -o APT::Sandbox::User=root download "$name"
  dpkg-deb -x "$name"_*.deb "$1/.kernel"
done
mv ./*.deb "$1/.debs/"
chroot "$1" useradd --create-home --uid {USER_ID} --shell /bin/bash {USER_NAME}
chroot "$1" passwd --quiet --delete root
rm "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
"""
# keep what has been downloaded, for the hook to take out
SKIPPED_STEPS = "essential/unlink,download/empty,cleanup/apt/cache"


def build_base(suite: str, target: Path, debs: Path) -> None:
    """Fill `target` with `root/` and `vmlinuz`; packages are kept in `debs` for the next time."""
    with _work_dir(target) as work:
        root = work / "root"
        _mmdebstrap(suite, root, debs, log=work / "log")
        _replace_dir(root / ".debs", debs)
        _take_kernel(root, target)
        run_tool("cp", "-a", str(root), str(target / "root"))


@contextlib.contextmanager
def _work_dir(target: Path) -> Iterator[Path]:
    """A place in memory when there is room: dpkg syncs so often that a disk takes three times."""
    memory = Path("/dev/shm")
    state = os.statvfs(memory) if memory.is_dir() else None
    has_room = state is not None and state.f_bavail * state.f_frsize >= ROOM_IN_MEMORY_BYTES
    parent = memory if has_room else target
    _remove_abandoned(parent)
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=parent) as name:
        Path(name).chmod(0o755)
        lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield Path(name)
        finally:
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove what builders left which were killed; others may be at work on the same files."""
    for path in parent.glob(f"{WORK_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < JUST_MADE_SEC:
                continue  # perhaps not locked yet
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(lock)


def _mmdebstrap(suite: str, root: Path, debs: Path, *, log: Path) -> None:
    debs.mkdir(parents=True, exist_ok=True)
    argv = [
        # with us end all of mmdebstrap's processes and mounts, however we end
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=directory"),
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Check-Valid-Until "false"',
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--aptopt={line.rstrip(';')}" for line in apt_proxy_options()),
        "--dpkgopt=force-unsafe-io",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        f"--include={','.join(PACKAGES)}",
        f"--skip={SKIPPED_STEPS}",
        '--setup-hook=mkdir -p "$1/var/cache/apt/archives"',
        '--setup-hook=cp "$LAB_DEBS"/*.deb "$1/var/cache/apt/archives/" 2>/dev/null || true',
        f"--customize-hook={KERNEL_HOOK}",
        suite,
        str(root),
        debian_mirror(),
    ]
    env = {**os.environ, "LAB_DEBS": str(debs), "LC_ALL": "C.UTF-8"}
    with log.open("wb") as out:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, env=env
        )
    if done.returncode != 0:
        raise LabError(f"mmdebstrap {suite} failed\n{log.read_text(errors='replace')[-3000:]}")


def _take_kernel(root: Path, target: Path) -> None:
    """Move the unpacked kernel and its modules to where they belong; modules without compression."""
    unpacked = root / ".kernel"
    (modules,) = [*unpacked.glob("lib/modules/*"), *unpacked.glob("usr/lib/modules/*")]
    (vmlinuz,) = [*unpacked.glob("boot/vmlinuz-*"), *modules.glob("vmlinuz")]
    shutil.copyfile(vmlinuz, target / "vmlinuz")
    home = root / "usr/lib/modules" / modules.name
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(exist_ok=True)
    modules.rename(home)
    shutil.rmtree(unpacked)
    # seconds of a boot go into xz otherwise
    packed = [str(path) for path in home.rglob("*.ko.xz")]
    if packed:
        run_tool("xz", "-d", "-T0", *packed)
    run_tool("chroot", str(root), "depmod", modules.name)


def _replace_dir(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(source, target)
