"""The Ansible collection as a tarball, as `ansible-galaxy collection build` makes it.

That command is not used, because its tarballs depend on the time of the build and on the modes of
the checkout, and because nothing else in a build needs Ansible.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "packaging/ansible"
METADATA = "galaxy.yml"
ADDED = {"LICENSE": ROOT / "LICENSE"}
"""Files of the collection that are not in its directory."""
_NEVER = (METADATA, "*.pyc", "__pycache__", ".*")
_FORMAT = 1
_OPTIONAL = ("license_file", "repository", "documentation", "homepage", "issues")


def build_collection(dist: Path, version: str, epoch: int) -> Path:
    """Build the collection of a version into a directory, and return its path."""
    metadata = yaml.safe_load((SOURCE / METADATA).read_text())
    files = dict(sorted({**_files(metadata.get("build_ignore", [])), **_added()}.items()))
    listed = json.dumps({"files": list(_entries(files)), "format": _FORMAT}, indent=1).encode()
    manifest = {
        "collection_info": _info(metadata, version),
        "file_manifest_file": {"name": "FILES.json", **_file(listed)},
        "format": _FORMAT,
    }
    texts = {"MANIFEST.json": json.dumps(manifest, indent=1).encode(), "FILES.json": listed}
    dist.mkdir(exist_ok=True)
    target = dist / f"{metadata['namespace']}-{metadata['name']}-{version}.tar.gz"
    target.write_bytes(_pack({**texts, **files}, epoch))
    return target


def _added() -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in ADDED.items()}


def _files(ignored: list[str]) -> dict[str, bytes]:
    """Return the files of the directory by name, without those that are not part of a build."""
    patterns = (*_NEVER, *ignored)
    paths = (path for path in sorted(SOURCE.rglob("*")) if path.is_file())
    names = (path.relative_to(SOURCE) for path in paths)
    return {
        str(name): (SOURCE / name).read_bytes()
        for name in names
        if not any(fnmatch(part, pattern) for part in name.parts for pattern in patterns)
    }


def _directories(files: dict[str, bytes]) -> list[str]:
    parents = {str(parent) for name in files for parent in Path(name).parents}
    return sorted(parents - {"."})


def _entries(files: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """Yield what FILES.json has."""
    for name in (".", *_directories(files)):
        yield {
            "name": name,
            "ftype": "dir",
            "chksum_type": None,
            "chksum_sha256": None,
            "format": _FORMAT,
        }
    for name, data in files.items():
        yield {"name": name, **_file(data)}


def _file(data: bytes) -> dict[str, Any]:
    return {
        "ftype": "file",
        "chksum_type": "sha256",
        "chksum_sha256": hashlib.sha256(data).hexdigest(),
        "format": _FORMAT,
    }


def _info(metadata: dict[str, Any], version: str) -> dict[str, Any]:
    """Return what MANIFEST.json has about the collection."""
    stated = ("namespace", "name", "authors", "readme", "tags", "description", "license")
    return {
        **{name: metadata[name] for name in stated},
        "version": version,
        "dependencies": metadata.get("dependencies", {}),
        **{name: metadata.get(name) for name in _OPTIONAL},
    }


def _pack(texts: dict[str, bytes], epoch: int) -> bytes:
    """Return a compressed archive whose bytes depend on nothing but these files and the date."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted({*_directories(texts), *texts}, key=_order):
            entry = tarfile.TarInfo(name)
            entry.mtime = epoch
            if name in texts:
                entry.size = len(texts[name])
                entry.mode = 0o644
                tar.addfile(entry, io.BytesIO(texts[name]))
            else:
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o755
                tar.addfile(entry)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=epoch) as file:
        file.write(archive.getvalue())
    return packed.getvalue()


def _order(name: str) -> tuple[bool, str]:
    """Return the key for the order of entries: MANIFEST.json first, which readers need first."""
    return name != "MANIFEST.json", name
