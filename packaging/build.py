#!/usr/bin/env python3
"""Build the packages into dist/: debs, the rpm, the Ansible collection, and the page for Cockpit.

    packaging/build.py deb [--kind KIND]     for this system
    packaging/build.py debs      for Debian 13, Debian 12, and others on amd64 and arm64;
                                 the page for Cockpit is a package for all of them
    packaging/build.py rpm
    packaging/build.py ansible
    packaging/build.py cockpit   writes the page into dist/cockpit
    packaging/build.py lock      updates the files that pin dependencies: builder/locks.py

Debs and the rpm require root and Debian: each build runs in a temporary copy of a small Debian,
without network. Builds are reproducible. $SOURCE_DATE_EPOCH dates a package whose changelog has no date yet.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [path for path in (str(HERE), str(ROOT)) if path not in sys.path]

from builder import collection, locks, page, sbom, wheels  # noqa: E402 - after the path
from builder.changelog import date_sec, debian_changelog, rpm_changelog  # noqa: E402 - as above
from builder.chroot import ensure_chroot, run_in  # noqa: E402

from tests.lab import deps  # noqa: E402
from tests.lab.image import ensure_dir, make_key  # noqa: E402
from tests.lab.machine import LabError  # noqa: E402
from tests.lab.paths import require_host  # noqa: E402

SOURCES = (
    *("podslice", "units", "packaging", "examples", "docs/json"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"),
)
NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "node_modules")
INSTALLED = {"docs/json": "json", "examples": "examples"}
"""Directories of the source beside the README in a package, where they are."""
PAGE = "packaging/cockpit"
LINK = re.compile(r"\[([^]]*)\]\(([^)]*)\)")
VERSION_LINE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)

BUILD_DEB = """
dpkg-checkbuilddeps -I
{how}dpkg-buildpackage --no-sign --build=binary --no-check-builddeps{options}
cp ../*.deb ../*.changes ../*.buildinfo /out/
"""
LINT_DEB = "lintian --allow-root --display-info --pedantic --tag-display-limit 0 {files}"
# the directory is the same for every build: rpm writes it into the source rpm
BUILD_RPM = """
mkdir -p /rpm/SOURCES
tar -C .. --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \\
  --transform "s,^source,podslice-{version}," -cf - source | gzip -9n \\
  > /rpm/SOURCES/podslice-{version}.tar.gz
touch -d "@$SOURCE_DATE_EPOCH" /rpm/SOURCES/*
rpmbuild -ba --define "_topdir /rpm" --define "_buildhost reproducible" \\
  --define "clamp_mtime_to_source_date_epoch 1" --define "use_source_date_epoch_as_buildtime 1" \\
  packaging/rpm/podslice.spec
cp /rpm/RPMS/*/*.rpm /rpm/SRPMS/*.rpm packaging/rpm/podslice.spec /out/
"""
LINT_RPM = "rpmlint --config packaging/rpm/rpmlint.toml {files}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deb:
    """How a package for Debian is built.

    Args:
        chroot: the release of Debian in which it is built.
        directory: its files in packaging/deb, which replace common ones.
        suffix: of its version. It sorts before the same version for Debian 13, so that an upgrade
            of Debian installs the latter.
        target: the release in its changelog.
        architecture: for which it is built, if that is not the one of the chroot.
        is_page: it is the package of the page for Cockpit, with nothing in common with the others.
    """

    chroot: str
    directory: str
    target: str
    suffix: str = ""
    architecture: str | None = None
    is_page: bool = False


DEBS = {
    "trixie": Deb(chroot="trixie", directory="trixie", target="trixie"),
    "bookworm": Deb(chroot="bookworm", directory="bookworm", target="bookworm", suffix="~deb12"),
    **{
        f"generic-{architecture}": Deb(
            chroot="trixie",
            directory="generic",
            target="unstable",
            suffix="~generic",
            architecture=architecture,
        )
        for architecture in wheels.MACHINES
    },
    "cockpit": Deb(chroot="trixie", directory="cockpit", target="unstable", is_page=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The result of a build, in the lab's cache; the directory must not be changed."""

    kind: str  # of DEBS, or "rpm"
    dir: Path

    @property
    def package(self) -> Path:
        """The package to install."""
        (found,) = [*self.dir.glob("*.deb"), *self.dir.glob("podslice-*.noarch.rpm")]
        return found

    @property
    def packages(self) -> list[Path]:
        """The package, and for rpm the page, and the source from which Fedora builds its own."""
        return [
            self.package,
            *self.dir.glob("cockpit-podslice-*.noarch.rpm"),
            *self.dir.glob("*.src.rpm"),
        ]


def main() -> int:
    """Run the verb of the command line and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    verbs = parser.add_subparsers(
        required=True, dest="verb", metavar="deb|debs|rpm|ansible|cockpit|lock"
    )
    for verb in ("deb", "debs", "rpm", "ansible", "cockpit"):
        options = verbs.add_parser(verb, allow_abbrev=False)
        options.add_argument("--dist", type=Path, default=ROOT / "dist", metavar="DIR")
        options.add_argument("--version", help="default: that of the source")
        if verb == "deb":
            options.add_argument("--kind", action="append", choices=DEBS)
    verbs.add_parser("lock", allow_abbrev=False)
    arguments = parser.parse_args()
    try:
        if arguments.verb == "lock":
            locks.write_locks()
            return 0
        if arguments.verb == "ansible":
            version = arguments.version or source_version()
            report(collection.build_collection(arguments.dist, version, source_date()))
            return 0
        if arguments.verb == "cockpit":
            target = arguments.dist / "cockpit"
            shutil.rmtree(target, ignore_errors=True)
            page.build_page(target, arguments.version or source_version())
            report(target)
            return 0
        if arguments.verb == "deb":
            kinds = arguments.kind or [kind_of(platform.freedesktop_os_release())]
        else:
            kinds = ["rpm"] if arguments.verb == "rpm" else [*DEBS]
        for kind in kinds:
            for package in build(kind, version=arguments.version).packages:
                put_into(arguments.dist, package)
    except LabError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def kind_of(system: Mapping[str, str], machine: str = platform.machine()) -> str:
    """Return which deb a system needs: a release of Debian its own, every other one the generic.

    Raises:
        LabError: there is none for this architecture.
    """
    names = {name: architecture for architecture, name in wheels.MACHINES.items()}
    release = system.get("VERSION_CODENAME", "")
    if release == "trixie" or (release, machine) == ("bookworm", "x86_64"):
        return release
    if machine not in names:
        raise LabError(f"there is no deb for {machine}; see README.md, Install")
    return f"generic-{names[machine]}"


def put_into(dist: Path, package: Path) -> None:
    """Copy a package into a directory, as a file of the user who owns the source."""
    dist.mkdir(exist_ok=True)
    target = dist / package.name
    shutil.copyfile(package, target)
    report(target)


def report(target: Path) -> None:
    """Give a file to the user who owns the source, and print its path."""
    owner = ROOT.stat()
    if os.geteuid() == 0:
        for path in (target.parent, target):
            os.chown(path, owner.st_uid, owner.st_gid)
    sys.stdout.write(f"{target}\n")


def build(
    kind: str,
    *,
    version: str | None = None,
    label: str = "",
    build_dir: str = "/build",
    epoch: int | None = None,
    compression: int | None = None,
) -> Built:
    """Build a package, unless the cache has one of the same source.

    Args:
        kind: of DEBS, or "rpm".
        version: overrides that of the source.
        label: distinguishes builds that the cache keeps at the same time.
        build_dir: the directory in the chroot, which must not affect the result.
        epoch: the date of the package; `source_date` by default.
        compression: of a deb, from 1 (fast) to 9; 6 by default.

    Raises:
        LabError: not root, or the build failed.
    """
    require_host()
    version = version or source_version()
    epoch = source_date() if epoch is None else epoch
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as name:
        source = Path(name) / "source"
        copy_source(source, version, kind)
        chroot = ensure_chroot("trixie" if kind == "rpm" else DEBS[kind].chroot)
        if kind == "rpm":
            prepare_rpm(source, version, epoch)
            script = BUILD_RPM.format(version=version)
        else:
            prepare_deb(source, version, epoch, kind)
            script = build_deb(DEBS[kind], compression)
        put_sbom(source, kind, version, epoch, chroot)
        level(source, epoch)
        # the build scripts are part of the source
        key = make_key(chroot.name, tree_key(source), script, build_dir, str(epoch))

        def fill(out: Path) -> None:
            run_in(chroot, script, source=source, out=out, build_dir=build_dir, epoch=epoch)

        return Built(kind=kind, dir=ensure_dir("package", f"{kind}{label}", key, fill))


def build_deb(deb: Deb, compression: int | None) -> str:
    """Return the script that builds a package for Debian."""
    how = "" if compression is None else f"COMPRESSION={compression} "
    options = "" if deb.architecture is None else f" --host-arch={deb.architecture}"
    return BUILD_DEB.format(how=how, options=options)


def lint(built: Built) -> str:
    """Return what lintian or rpmlint report about a build."""
    is_rpm = built.kind == "rpm"
    chroot = ensure_chroot("trixie" if is_rpm else DEBS[built.kind].chroot)
    script = LINT_RPM if is_rpm else LINT_DEB
    files = "/out/*.spec /out/*.rpm" if is_rpm else "/out/*.changes"
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as name:
        source = Path(name) / "source"
        (source / "packaging").mkdir(parents=True)
        shutil.copytree(ROOT / "packaging/rpm", source / "packaging/rpm")
        return run_in(
            chroot, f"{script.format(files=files)} 2>&1 || true", source=source, out=built.dir
        )


def source_version() -> str:
    """Return the version of the source."""
    (version,) = VERSION_LINE.findall((ROOT / "podslice/__init__.py").read_text())
    return str(version)


def source_date() -> int:
    """Return $SOURCE_DATE_EPOCH, or the date of the changelog or the last commit, since 1970."""
    if named := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(named)
    changelog = ROOT / "CHANGELOG.md"
    found = re.search(r"^## \S+ \((.+)\)$", changelog.read_text(), re.MULTILINE)
    if found and found[1] != "unreleased":
        return date_sec(found[1])
    commit = deps.run_tool(
        "git", "-c", "safe.directory=*", "-C", str(ROOT), "log", "-1", "--format=%ct", check=False
    )
    return int(commit or changelog.stat().st_mtime)


def copy_source(target: Path, version: str, kind: str) -> None:
    """Copy the source of a package, and set its version; where the page is part of it, build that."""
    target.mkdir()
    if kind != "rpm" and DEBS[kind].is_page:
        page.build_page(target / "page", version)
        shutil.copyfile(ROOT / PAGE / "README.md", target / "README.md")
        return
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, target / name, ignore=NOT_SOURCE)
        else:
            shutil.copyfile(path, target / name)
    if kind == "rpm":
        page.build_page(target / "page", version)
    else:
        shutil.rmtree(target / PAGE)
    (target / "README.md").write_text(installed_readme((ROOT / "README.md").read_text()))
    init = target / "podslice/__init__.py"
    init.write_text(VERSION_LINE.sub(f'__version__ = "{version}"', init.read_text()))


def installed_readme(text: str) -> str:
    """Return the README of a package: without pictures, and with links to what is installed."""

    def link(found: re.Match[str]) -> str:
        name, target = found.groups()
        if target.startswith(("#", "https:")):
            return found[0]
        for directory, place in INSTALLED.items():
            if target == directory or target.startswith(f"{directory}/"):
                return f"[{name}]({place}{target.removeprefix(directory)})"
        return name

    lines = (line for line in text.split("\n") if not line.startswith("!["))
    return LINK.sub(link, "\n".join(lines)).replace("\n\n\n", "\n\n")


def level(directory: Path, epoch: int) -> None:
    """Give all files the same time, and modes that do not depend on the checkout."""
    for path in [directory, *directory.rglob("*")]:
        is_executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if is_executable else 0o644)
        os.utime(path, (epoch, epoch))


def prepare_deb(source: Path, version: str, epoch: int, kind: str) -> None:
    """Create debian/, in which files of the kind replace common ones."""
    deb = DEBS[kind]
    debian = source / "debian"
    if deb.is_page:
        shutil.copytree(ROOT / "packaging/deb/source", debian / "source")
    else:
        directories = shutil.ignore_patterns(*(each.directory for each in DEBS.values()))
        shutil.copytree(ROOT / "packaging/deb", debian, ignore=directories)
    own = ROOT / "packaging/deb" / deb.directory
    if own.is_dir():
        shutil.copytree(own, debian, dirs_exist_ok=True)
    (debian / "rules").chmod(0o755)
    changelog = (ROOT / "CHANGELOG.md").read_text()
    entries = debian_changelog(changelog, version, deb.suffix, deb.target, epoch)
    if deb.is_page:
        entries = re.sub("^podslice ", "cockpit-podslice ", entries, flags=re.MULTILINE)
    (debian / "changelog").write_text(entries)
    if (debian / "requirements.txt").exists():
        shutil.copytree(wheels.ensure_wheels(kind), debian / "wheels")
        copyright_file = (ROOT / "packaging/deb/bookworm/copyright").read_text()
        (debian / "copyright").write_text(copyright_of(copyright_file, debian / "wheels"))


def copyright_of(text: str, directory: Path) -> str:
    """Return debian/copyright without the libraries that a package does not include."""
    return "\n\n".join(
        paragraph
        for paragraph in text.split("\n\n")
        if not (found := re.match(r"Files: debian/wheels/(\S+)", paragraph))
        or any(directory.glob(found[1]))
    )


def prepare_rpm(source: Path, version: str, epoch: int) -> None:
    """Fill the version and the changelog into the spec."""
    spec = source / "packaging/rpm/podslice.spec"
    changelog = rpm_changelog((ROOT / "CHANGELOG.md").read_text(), version, epoch)
    text = spec.read_text().replace("@VERSION@", version).replace("@CHANGELOG@\n", changelog)
    spec.write_text(text)


def put_sbom(source: Path, kind: str, version: str, epoch: int, chroot: Path) -> None:
    """Write the bill of materials where the rules and the spec expect it."""
    if kind == "rpm" or DEBS[kind].is_page:
        text = sbom.page_sbom(page.libraries(), version=version, epoch=epoch)
        (source / sbom.PAGE_FILE).write_text(text)
    if kind != "rpm" and DEBS[kind].is_page:
        return
    control = "packaging/rpm/podslice.spec" if kind == "rpm" else "debian/control"
    vendored = source / "debian/wheels"
    text = sbom.make_sbom(
        kind,
        version=version,
        epoch=epoch,
        control=(source / control).read_text(),
        chroot=chroot,
        wheels=vendored if vendored.is_dir() else None,
    )
    (source / sbom.FILE).write_text(text)


def tree_key(directory: Path) -> str:
    """Return a hash of names, modes and content below a directory."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    names = [f"{path.relative_to(directory)} {path.stat().st_mode & 0o111:o}" for path in paths]
    return make_key(*names, *paths)


if __name__ == "__main__":
    sys.exit(main())
