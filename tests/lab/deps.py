"""Packages that the lab needs on the host; missing ones are installed with apt."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.lab.machine import LabError
from tests.lab.paths import cache_dir, locked, require_host

# a file or a command that shows that the package is installed; faster than a dpkg call
PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "xz": "xz-utils",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "ssh": "openssh-client",
    "systemctl": "systemd",
}
# QEMU 7.2 of Debian 12 is slower and corrupts flags in cmpxchg16b; selected by name and not with -t,
# otherwise apt upgrades libelf1 and others as well and rpm is no longer installable
BACKPORTED = (
    "qemu-system-x86", "qemu-system-common", "qemu-system-data", "qemu-utils", "seabios",
)  # fmt: skip
BACKPORTS_FOR = ("bookworm",)
BACKPORTS_LIST = Path("/etc/apt/sources.list.d/podslice-lab-backports.list")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def ensure_deps() -> None:
    """Install the packages that the lab needs."""
    ensure_commands(PACKAGES)


def ensure_commands(packages: Mapping[str, str]) -> None:
    """Install the packages of the files and commands that this host lacks; as `ensure_deps`."""
    if not _missing(packages):
        return
    require_host()
    with locked(cache_dir() / ".apt.lock"):
        if wanted := _missing(packages):  # another process may have installed them meanwhile
            _install(wanted)
    if still := _missing(packages):
        raise LabError(f"apt has installed packages, yet these are missing: {', '.join(still)}")


def _missing(packages: Mapping[str, str]) -> list[str]:
    return [package for trace, package in packages.items() if not _is_there(trace)]


def _install(wanted: list[str]) -> None:
    if shutil.which("apt-get") is None:
        raise LabError(f"missing on this host: {', '.join(wanted)}; only apt is known here")
    if not _known_to_apt(wanted):
        _update()
    suite = _host_suite()
    if suite in BACKPORTS_FOR and any(name.startswith("qemu") for name in wanted):
        wanted = [*(n for n in wanted if n not in BACKPORTED), *_qemu_from_backports(suite)]
    run_tool("apt-get", "-q", "install", "--yes", "--no-install-recommends", *wanted)


def _host_suite() -> str:
    """Return the codename of the host's release; empty if it is unknown."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return ""
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return fields.get("VERSION_CODENAME", "").strip('"')


def debian_mirror() -> str:
    """Return the address of the host's Debian archive; $PODSLICE_MIRROR overrides it."""
    if named := os.environ.get("PODSLICE_MIRROR"):
        return named
    if (found := _indexed_mirror()) is None:
        _update()
        found = _indexed_mirror()
    if found is None:
        raise LabError("apt has no Debian archive configured; name one in PODSLICE_MIRROR")
    return found


def apt_proxy_options() -> list[str]:
    """Return the host's proxy configuration for apt, as lines."""
    dump = run_tool("apt-config", "dump", check=False)
    return [
        line for line in dump.splitlines() if line.startswith("Acquire::http") and "roxy" in line
    ]


def _is_there(trace: str) -> bool:
    return (
        Path(trace).exists()
        if trace.startswith("/")
        else shutil.which(trace, path=PATH) is not None
    )


def _known_to_apt(packages: Iterable[str]) -> bool:
    names = run_tool("apt-cache", "--no-all-versions", "show", *packages, check=False)
    return all(f"Package: {name}\n" in names for name in packages)


def _qemu_from_backports(suite: str) -> list[str]:
    """Return package names with the backports suite, or without it if that is unreachable."""
    backports = f"{suite}-backports"
    if backports not in run_tool("apt-cache", "policy", check=False):
        BACKPORTS_LIST.write_text(f"deb {debian_mirror()} {backports} main\n")
        _update()
    if backports not in run_tool("apt-cache", "madison", *BACKPORTED, check=False):
        BACKPORTS_LIST.unlink(missing_ok=True)
        return ["qemu-system-x86", "qemu-utils"]
    return [f"{name}/{backports}" for name in BACKPORTED]


def _indexed_mirror() -> str | None:
    targets = run_tool(
        *("apt-get", "indextargets", "--format", "$(LABEL)|$(REPO_URI)"),
        "Created-By: Packages",
        check=False,
    )
    for line in targets.splitlines():
        label, _, uri = line.partition("|")
        if label == "Debian":
            return uri.rstrip("/")
    return None


def run_tool(*argv: str, check: bool = True) -> str:
    """Run a program of this host; return its output."""
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "PATH": PATH},
    )
    if check and done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise LabError(f"{' '.join(argv)[:200]}: exit status {done.returncode}\n{words}")
    return done.stdout


def _update() -> None:
    """Update the indices; a failing archive is ignored, as the installation will fail."""
    with locked(cache_dir() / ".apt-lists.lock"):
        run_tool("apt-get", "-q", "update", check=False)
