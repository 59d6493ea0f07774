#!/usr/bin/env python3
"""Builds the packages into dist/: debs for Debian 13 and Debian 12, and the rpm.

    packaging/build.py deb [--suite trixie|bookworm]
    packaging/build.py rpm
    packaging/build.py lock      renews deb/bookworm/requirements.txt

Needs root and Debian: each build runs in a throw-away copy of a small Debian, without network. The
same source gives the same bytes. $SOURCE_DATE_EPOCH dates a package whose changelog has no date yet.
"""

from __future__ import annotations

import argparse
import calendar
import email.utils
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # the lab, where this runs as a script

from tests.lab import deps  # noqa: E402
from tests.lab.image import ensure_dir, make_key  # noqa: E402
from tests.lab.machine import LabError  # noqa: E402
from tests.lab.paths import require_host  # noqa: E402

SOURCES = (
    *("podslice", "units", "packaging", "examples"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"),
)
NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
VERSION_LINE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
MAINTAINER = "podslice maintainers <maintainers@example.org>"

RUNTIME = (
    *("python3-dbus-next", "python3-h11", "python3-prometheus-client", "python3-pydantic"),
    *("python3-rich", "python3-typer", "python3-yaml"),
)
CHROOTS = {
    "trixie": (
        *("debhelper", "dh-python", "pybuild-plugin-pyproject", "python3-all", "python3-hatchling"),
        *("lintian", "man-db", "rpm", "rpmlint", "systemd", *RUNTIME),
    ),
    "bookworm": (
        *("debhelper", "python3", "python3-pip", "python3-hatchling", "lintian", "man-db"),
    ),
}
# the same version sorts before Debian 13's, so that an upgrade of Debian takes that one
VERSION_SUFFIX = {"trixie": "", "bookworm": "~deb12"}
SUITES = tuple(CHROOTS)

WHEELS_FOR = (
    *("--only-binary=:all:", "--python-version=3.11", "--implementation=cp"),
    *("--platform=manylinux2014_x86_64", "--platform=manylinux_2_17_x86_64", "--platform=any"),
)
LOCK = ROOT / "packaging/deb/bookworm/requirements.txt"
LOCK_HEAD = """\
# What the package for Debian 12 brings along: one wheel each, for CPython 3.11 on amd64.
# Written by `packaging/build.py lock`; packaging/deb/bookworm/copyright has their licences.
"""

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ROOM_IN_MEMORY_BYTES = 4 << 30
IN_OWN_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
# dpkg syncs so often that a disk takes twice as long as memory
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
BUILD_DEB = """
dpkg-checkbuilddeps -I
dpkg-buildpackage --no-sign --build=binary --no-check-builddeps
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
class Built:
    """What a build gave; the directory stays in the lab's cache, nobody may write there."""

    kind: str  # a suite of Debian, or "rpm"
    dir: Path

    @property
    def package(self) -> Path:
        """The package to install."""
        (found,) = [*self.dir.glob("*.deb"), *self.dir.glob("*.noarch.rpm")]
        return found

    @property
    def packages(self) -> list[Path]:
        """That, and the source of the rpm, from which Fedora builds its own."""
        return [self.package, *self.dir.glob("*.src.rpm")]


def main() -> int:
    """Do what the arguments say; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    verbs = parser.add_subparsers(required=True, dest="verb", metavar="deb|rpm|lock")
    for verb in ("deb", "rpm"):
        options = verbs.add_parser(verb, allow_abbrev=False)
        options.add_argument("--dist", type=Path, default=ROOT / "dist", metavar="DIR")
        options.add_argument("--version", help="another one than the source tells")
        if verb == "deb":
            options.add_argument("--suite", action="append", choices=SUITES, help="default: all")
    verbs.add_parser("lock", allow_abbrev=False)
    arguments = parser.parse_args()
    try:
        if arguments.verb == "lock":
            LOCK.write_text(locked_requirements())
            return 0
        kinds = ("rpm",) if arguments.verb == "rpm" else arguments.suite or SUITES
        for kind in kinds:
            for package in build(kind, version=arguments.version).packages:
                put_into(arguments.dist, package)
    except LabError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def put_into(dist: Path, package: Path) -> None:
    """Copy a package to where the user looks for it, as a file of that user."""
    dist.mkdir(exist_ok=True)
    target = dist / package.name
    shutil.copyfile(package, target)
    owner = ROOT.stat()
    for path in (dist, target):
        os.chown(path, owner.st_uid, owner.st_gid)
    sys.stdout.write(f"{target}\n")


def build(
    kind: str,
    *,
    version: str | None = None,
    label: str = "",
    build_dir: str = "/build",
    epoch: int | None = None,
) -> Built:
    """Build a package, if the cache has none of the same source.

    Args:
        kind: a suite of Debian, or "rpm".
        version: instead of the one that the source tells.
        label: keeps builds apart which the cache is to hold at the same time.
        build_dir: where in the chroot to build, which must make no difference.
        epoch: the time that the package is dated; else as `source_date`.

    Raises:
        LabError: not root, or the build failed.
    """
    require_host()
    suite = "trixie" if kind == "rpm" else kind
    version = version or source_version()
    epoch = source_date() if epoch is None else epoch
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as name:
        source = Path(name) / "source"
        copy_source(source, version)
        if kind == "rpm":
            prepare_rpm(source, version, epoch)
            script = BUILD_RPM.format(version=version)
        else:
            prepare_deb(source, version, epoch, suite)
            script = BUILD_DEB
        level(source, epoch)
        chroot = ensure_chroot(suite)
        key = make_key(chroot.name, tree_key(source), script, build_dir, str(epoch), Path(__file__))

        def fill(out: Path) -> None:
            run_in(chroot, script, source=source, out=out, build_dir=build_dir, epoch=epoch)

        return Built(kind=kind, dir=ensure_dir("package", f"{kind}{label}", key, fill))


def lint(built: Built) -> str:
    """What lintian or rpmlint say of a build."""
    is_rpm = built.kind == "rpm"
    chroot = ensure_chroot("trixie" if is_rpm else built.kind)
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
    """The version, which has one place."""
    (version,) = VERSION_LINE.findall((ROOT / "podslice/__init__.py").read_text())
    return str(version)


def source_date() -> int:
    """Seconds since 1970: $SOURCE_DATE_EPOCH, else the changelog's date, else the last commit's."""
    if named := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(named)
    changelog = ROOT / "CHANGELOG.md"
    found = re.search(r"^## \S+ \((.+)\)$", changelog.read_text(), re.MULTILINE)
    if found and found[1] != "unreleased":
        return calendar.timegm(time.strptime(found[1], "%Y-%m-%d"))
    commit = deps.run_tool(
        "git", "-c", "safe.directory=*", "-C", str(ROOT), "log", "-1", "--format=%ct", check=False
    )
    return int(commit or changelog.stat().st_mtime)


def copy_source(target: Path, version: str) -> None:
    """Copy what a package is made of, as that version."""
    target.mkdir()
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, target / name, ignore=NOT_SOURCE)
        else:
            shutil.copyfile(path, target / name)
    init = target / "podslice/__init__.py"
    init.write_text(VERSION_LINE.sub(f'__version__ = "{version}"', init.read_text()))


def level(directory: Path, epoch: int) -> None:
    """Give all files the same time, and modes which do not depend on who checked them out."""
    for path in [directory, *directory.rglob("*")]:
        is_executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if is_executable else 0o644)
        os.utime(path, (epoch, epoch))


def prepare_deb(source: Path, version: str, epoch: int, suite: str) -> None:
    """Put debian/ where the tools expect it, with what the suite has of its own on top."""
    debian = source / "debian"
    shutil.copytree(ROOT / "packaging/deb", debian, ignore=shutil.ignore_patterns(*SUITES))
    own = ROOT / "packaging/deb" / suite
    if own.is_dir():
        shutil.copytree(own, debian, dirs_exist_ok=True)
    (debian / "rules").chmod(0o755)
    changelog = (ROOT / "CHANGELOG.md").read_text()
    entries = debian_changelog(changelog, version, VERSION_SUFFIX[suite], suite, epoch)
    (debian / "changelog").write_text(entries)
    if (debian / "requirements.txt").exists():
        shutil.copytree(ensure_wheels(), debian / "wheels")


def prepare_rpm(source: Path, version: str, epoch: int) -> None:
    """Fill the version and the changelog into the spec."""
    spec = source / "packaging/rpm/podslice.spec"
    changelog = rpm_changelog((ROOT / "CHANGELOG.md").read_text(), version, epoch)
    text = spec.read_text().replace("@VERSION@", version).replace("@CHANGELOG@\n", changelog)
    spec.write_text(text)


def changelog_entries(text: str, version: str, epoch: int) -> list[tuple[str, int, list[str]]]:
    """Version, time and items of each section of CHANGELOG.md, the newest first.

    A version that it does not have yet is put on top.
    """
    entries = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        number, _, date = section.splitlines()[0].partition(" ")
        date = date.strip("()")
        when = epoch
        if date != "unreleased":
            when = calendar.timegm(time.strptime(date, "%Y-%m-%d"))
        items = [line[2:] for line in section.splitlines() if line.startswith("- ")]
        entries.append((number, when, [plain(item) for item in items]))
    if version != entries[0][0]:
        entries.insert(0, (version, epoch, ["Build of the present state."]))
    return entries


def plain(text: str) -> str:
    """Markdown without its marks."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("`", "").replace("**", "")


def debian_changelog(text: str, version: str, suffix: str, suite: str, epoch: int) -> str:
    """debian/changelog, from CHANGELOG.md."""
    parts = []
    for number, when, items in changelog_entries(text, version, epoch):
        parts.append(f"podslice ({number}{suffix}) {suite}; urgency=medium\n")
        parts += [
            textwrap.fill(item, 78, initial_indent="  * ", subsequent_indent="    ")
            for item in items
        ]
        parts.append(f"\n -- {MAINTAINER}  {email.utils.formatdate(when, localtime=False)}\n")
    return "\n".join(parts).replace("-0000", "+0000")


def rpm_changelog(text: str, version: str, epoch: int) -> str:
    """The entries below %changelog, from CHANGELOG.md."""
    parts = []
    for number, when, items in changelog_entries(text, version, epoch):
        date = time.strftime("%a %b %d %Y", time.gmtime(when))
        parts.append(f"* {date} {MAINTAINER} - {number}-1")
        parts += [
            textwrap.fill(item.replace("%", "%%"), 78, initial_indent="- ", subsequent_indent="  ")
            for item in items
        ]
        parts.append("")
    return "\n".join(parts)


def tree_key(directory: Path) -> str:
    """Hash of names, modes and content below a directory."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    names = [f"{path.relative_to(directory)} {path.stat().st_mode & 0o111:o}" for path in paths]
    return make_key(*names, *paths)


def ensure_chroot(suite: str) -> Path:
    """A root directory with the tools to build and check for a suite; nobody may write there."""
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
    """Run a script in a throw-away copy of a chroot, without network; what it writes.

    Raises:
        LabError: it failed; the message has the end of what it wrote.
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


def ensure_wheels() -> Path:
    """The wheels that the lock names, fetched once; their hashes are checked."""
    return ensure_dir("wheels", "bookworm", make_key(LOCK, repr(WHEELS_FOR)), _fetch_wheels)


def _fetch_wheels(new: Path) -> None:
    deps.run_tool(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
        *(*WHEELS_FOR, f"--requirement={LOCK}", f"--dest={new}"),
    )


def locked_requirements() -> str:
    """Solve the dependencies of pyproject.toml for Debian 12, and pin what comes out."""
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as target:
        report = deps.run_tool(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report=-"),
            *("--ignore-installed", f"--target={target}", *WHEELS_FOR, *dependencies()),
        )
    lines = []
    for item in json.loads(report)["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        name = re.sub(r"[-_.]+", "-", name).lower()
        sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{sha256}\n")
    return LOCK_HEAD + "".join(sorted(lines))


def dependencies() -> list[str]:
    """What pyproject.toml asks for."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [str(name) for name in found]


if __name__ == "__main__":
    sys.exit(main())
