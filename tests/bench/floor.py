"""Build floor.c, the client of libsystemd in C, in a separate machine."""

from __future__ import annotations

from pathlib import Path

from tests.lab import extras
from tests.lab.image import ensure_dir, make_key
from tests.lab.namespace import Namespace

SOURCE = Path(__file__).with_suffix(".c")
PACKAGES = ("gcc", "libc6-dev", "libsystemd-dev")
# not extras.unpack, which leaves out libraries to link with
UNPACK = """\
for deb in /mnt/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -C / --keep-directory-symlink -xf -
done
"""
COMPILE = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "/root/floor", "/root/floor.c")


def build(suite: str) -> Path:
    """Return the program for the machines of a suite; from the cache if possible."""
    debs = extras.fetch(suite, PACKAGES)
    key = make_key(debs.parent.name, SOURCE, *COMPILE)
    return (
        ensure_dir("bench", f"floor-{suite}", key, lambda new: _build(suite, debs, new)) / "floor"
    )


def _build(suite: str, debs: Path, new: Path) -> None:
    with Namespace(suite, bind={"/mnt": debs}) as machine:
        machine.run("sh", "-ec", UNPACK)
        machine.put("/root/floor.c", SOURCE.read_bytes())
        machine.run(*COMPILE, "-lsystemd")
        program = new / "floor"
        program.write_bytes(machine.get("/root/floor"))
        program.chmod(0o755)
