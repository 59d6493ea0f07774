"""Packages, built once and kept in the lab's cache by the content of the source."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from podslice import __version__
from tests.lab.image import ensure_dir, make_key
from tests.lab.namespace import Namespace

ROOT = Path(__file__).resolve().parents[2]
# fixed, as otherwise each commit would be a new package
EPOCH = 1_767_225_600
NEXT_VERSION = "9.0.0"
BEFORE, INSTALLED = "/root/before", "/root/installed.tar"
# what was written since then: files of the package, those of its scripts, the databases of dpkg and systemd
PACK = f"""
set -e
cd /
skip=$(for name in dev proc root run sys tmp var/cache var/log; do echo "-path ./$name -o"; done)
find . -mindepth 1 -xdev \\( $skip -false \\) -prune -o -cnewer {BEFORE} -print0 |
  tar --null --no-recursion --files-from - -cf {INSTALLED}
"""


def load(name):
    """Import a script of packaging/, which is not a package: another one has that name."""
    spec = importlib.util.spec_from_file_location(f"podslice_{name}", ROOT / f"packaging/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def dpkg_deb(*arguments):
    return subprocess.run(["/usr/bin/dpkg-deb", *arguments], check=True, capture_output=True).stdout


@cache
def read_deb(package):
    """Return the members of a package, by their path without `./`; they must not be changed."""
    data = dpkg_deb("--fsys-tarfile", package)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {}
        for member in archive.getmembers():
            content = archive.extractfile(member).read() if member.isfile() else b""
            found[member.name.removeprefix("./")] = (member, content)
        return found


def install(machine, built):
    """Install a package in a machine of its suite."""
    path = f"/root/deb/{built.package.name}"
    machine.put(path, built.package.read_bytes())
    env = {"DEBIAN_FRONTEND": "noninteractive"}  # otherwise debconf tries terminals
    machine.run("apt-get", "install", "--yes", "-q", path, env=env)


@contextlib.contextmanager
def packing(native):
    """Pack what is written in a namespace in the meantime, for `copy_packed`."""
    native.run("touch", BEFORE)
    yield
    native.run("sh", "-c", PACK)


def copy_packed(native, machine):
    """Copy what was packed in a namespace into another machine of its suite."""
    machine.unpack(native.root / INSTALLED.lstrip("/"))


def install_copy(machine, suite, built):
    """Copy what apt has left of a package in a namespace, where it takes a tenth of the time."""
    with Namespace(suite) as native:
        with packing(native):
            install(native, built)
        copy_packed(native, machine)
    machine.run("systemctl", "daemon-reload")


class Packages:
    """Builds packages on request, each once."""

    def __init__(self):
        self.script = load("build")
        self.install = load("install")
        self._built = {}

    def get(self, kind):
        """Return the package of the present source: one of Debian's, or the rpm."""
        return self._build(kind, label="-test")

    def again(self, kind):
        """Return the package, built once more in another directory."""
        place = "/var/tmp/some/other/place"
        return self._build(kind, label="-again", build_dir=place)

    def next(self, kind):
        """Return the package of a later release; a deb is the present one with another version."""
        if kind == "rpm":
            return self._build(kind, label="-next", version=NEXT_VERSION)
        built = self.get(kind)
        key = make_key(built.dir.name, NEXT_VERSION, Path(__file__))
        made = ensure_dir(
            "package", f"{kind}-next", key, lambda new: repack(built.package, NEXT_VERSION, new)
        )
        return self.script.Built(kind=kind, dir=made)

    def _build(self, kind, *, label, **how):
        # even a package in the cache takes a copy of the source, of which the key is made
        if (kind, label) not in self._built:
            # with the default of 6 most of the time would be for it
            compression = None if kind == "rpm" else 0
            self._built[kind, label] = self.script.build(
                kind, epoch=EPOCH, compression=compression, label=label, **how
            )
        return self._built[kind, label]


def repack(package, version, target):
    """Write a deb with another version of podslice into a directory, as a build of it would be."""
    present = __version__.encode()
    assert len(present) == len(version)  # compiled modules have the length, too
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as name:
        root = Path(name)
        dpkg_deb("--raw-extract", package, root)
        (root / "DEBIAN/md5sums").unlink()  # dpkg makes it
        modules = [*root.rglob("podslice/__init__.py"), *root.rglob("podslice/*/__init__.*.pyc")]
        stating = [path for path in modules if present in path.read_bytes()]
        assert stating
        for path in stating:
            path.write_bytes(path.read_bytes().replace(present, version.encode()))
        control = root / "DEBIAN/control"
        stated = f"Version: {__version__}", f"Version: {version}"
        control.write_text(control.read_text().replace(*stated))
        named = package.name.replace(__version__, version)
        dpkg_deb("--build", "-Zgzip", "-z1", root, target / named)
