#!/usr/bin/env python3
"""Install units/ and the directories of the configuration, for debian/rules and the rpm's spec.

    packaging/install.py ROOT [--unit-dir DIR] [--doc-dir DIR]

A file without a destination is an error, so that none is forgotten.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
DEFAULTS = {
    "unit_dir": "/usr/lib/systemd/system",
    "doc_dir": "/usr/share/doc/podslice",
}

PLACES = (
    ("units/*.service", "{unit_dir}/{name}"),
    ("units/*.slice", "{unit_dir}/{name}"),
    ("units/*.socket", "{unit_dir}/{name}"),
    ("units/*.timer", "{unit_dir}/{name}"),
    ("units/user/*.service", "/usr/lib/systemd/user/{name}"),
    ("units/user/*.slice", "/usr/lib/systemd/user/{name}"),
    ("units/user/*.d/*.conf", "/usr/lib/systemd/user/{parent}/{name}"),
    ("units/user-preset/*.preset", "/usr/lib/systemd/user-preset/{name}"),
    ("units/pods*.d/*.conf", "{unit_dir}/{parent}/{name}"),
    ("units/system-preset/*.preset", "/usr/lib/systemd/system-preset/{name}"),
    ("units/sysusers.d/*.conf", "/usr/lib/sysusers.d/{name}"),
    ("units/tmpfiles.d/*.conf", "/usr/lib/tmpfiles.d/{name}"),
    ("units/catalog/*.catalog", "/usr/lib/systemd/catalog/{name}"),
    ("units/dbus/*.conf", "/usr/share/dbus-1/system.d/{name}"),
    ("units/polkit/*.rules", "/usr/share/polkit-1/rules.d/{name}"),
    ("units/examples/*/*", "{doc_dir}/examples/systemd/{parent}/{name}"),
)
"""The destination of each file, by the pattern of its path."""

# podslice.toml is not installed: the defaults apply without it, `podslice node init` writes one for
# the machine, and examples/ contains one. systemd-tmpfiles creates /etc/podslice/manifests, because
# it belongs to a group.
DIRECTORIES = ("/etc/podslice/podslice.toml.d",)


def main() -> int:
    """Install all files; return 1 if a file has no destination."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("root", type=Path)
    for name, default in DEFAULTS.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, default=default, metavar="DIR", help="%(default)s")
    arguments = parser.parse_args()
    targets = places({name: getattr(arguments, name) for name in DEFAULTS})
    if forgotten := [path for path in needing_place() if path not in targets]:
        names = ", ".join(str(path.relative_to(SOURCE)) for path in forgotten)
        sys.stderr.write(f"packaging/install.py has no place for {names}\n")
        return 1
    for source, target in targets.items():
        write(arguments.root, target, source.read_text())
    for name in DIRECTORIES:
        make_dirs(arguments.root, name)
    return 0


def places(dirs: dict[str, str]) -> dict[Path, str]:
    """Return the destination of each file."""
    return {
        path: place.format(name=path.name, parent=path.parent.name, **dirs)
        for pattern, place in PLACES
        for path in sorted(SOURCE.glob(pattern))
    }


def needing_place() -> list[Path]:
    """Return the files of units/ except documentation."""
    found = (path for path in (SOURCE / "units").rglob("*") if path.is_file())
    return sorted(path for path in found if path.suffix != ".md")


def write(root: Path, name: str, text: str) -> None:
    """Write one file that all users may read."""
    make_dirs(root, str(Path(name).parent))
    path = root / name.lstrip("/")
    path.write_text(text)
    path.chmod(0o644)


def make_dirs(root: Path, name: str) -> None:
    """Create a directory and its parents, independently of the umask."""
    root.mkdir(parents=True, exist_ok=True)
    path = root
    for part in Path(name.lstrip("/")).parts:
        path /= part
        path.mkdir(mode=0o755, exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
