#!/usr/bin/env python3
"""Unpack wheels into one directory: those of a library for several Pythons share its modules.

    packaging/builder/unpack.py WHEELS REQUIREMENTS TARGET

Files that are compiled have the Python in their names, so that they do not conflict. Commands,
licences (they are in debian/copyright) and files for type checkers, package managers and agents are
left out. A wheel that REQUIREMENTS does not have the hash of, and wheels that disagree about a file,
are errors.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from pathlib import Path

LEFT_OUT = re.compile(r"\.pyi$|\.data/|/\.agents/|(^|/)LICENSE[^/]*$")
KEPT_METADATA = re.compile(r"\.dist-info/(METADATA|WHEEL|sboms/.*)$")
# the tags of the wheel, and the time at which it was built
DIFFERING = re.compile(r"\.dist-info/(WHEEL|sboms/.*)$")


def main() -> int:
    """Unpack all wheels; return 1 if a wheel is not locked, or if a file differs between wheels."""
    wheels, requirements, target = map(Path, sys.argv[1:])
    locked = set(re.findall(r"--hash=sha256:(\w+)", requirements.read_text()))
    for wheel in sorted(wheels.glob("*.whl")):
        if hashlib.sha256(wheel.read_bytes()).hexdigest() not in locked:
            return _fail(f"{wheel.name} is not in {requirements}")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if _is_wanted(name) and not _put(target / name, archive.read(name)):
                    return _fail(f"{wheel.name} has another {name} than the wheels before it")
    return 0


def _is_wanted(name: str) -> bool:
    if name.endswith("/") or LEFT_OUT.search(name):
        return False
    return ".dist-info/" not in name or bool(KEPT_METADATA.search(name))


def _put(path: Path, data: bytes) -> bool:
    """Write a file; return false if another wheel has it with a different content."""
    if path.exists():
        return bool(DIFFERING.search(str(path))) or path.read_bytes() == data
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return True


def _fail(problem: str) -> int:
    sys.stderr.write(f"packaging/builder/unpack.py: {problem}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
