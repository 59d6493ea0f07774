"""The bill of materials of each package: a CycloneDX document of its dependencies and components."""

from __future__ import annotations

import base64
import email
import json
import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from builder.page import Library
from tests.lab import deps

FILE = "podslice.cdx.json"
PAGE_FILE = "cockpit-podslice.cdx.json"
PROPERTY = "podslice:requires"
LICENCE = "Apache-2.0"
NEEDED = {
    "init-system-helpers": "BSD-3-Clause AND GPL-2.0-or-later",
    "libc6": "LGPL-2.1-or-later",
    "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "python3": "PSF-2.0",
    "python3-dbus-next": "MIT",
    "python3-h11": "MIT",
    "python3-h2": "MIT",
    "python3-prometheus-client": "Apache-2.0 AND BSD-2-Clause",
    "python3-pydantic": "MIT",
    "python3-pyyaml": "MIT",
    "python3-rich": "MIT",
    "python3-typer": "MIT",
    "python3-yaml": "MIT",
    "systemd": "LGPL-2.1-or-later",
}
"""The licence of each dependency that a distribution provides."""
LIBRARIES = ("dbus-next", "h11", "h2", "prometheus-client", "pydantic", "rich", "typer")
NEEDS = {
    "trixie": (
        *("init-system-helpers", "python3", "systemd", "python3-yaml"),
        *(f"python3-{name}" for name in LIBRARIES),
    ),
    "bookworm": ("init-system-helpers", "libc6", "libgcc-s1", "python3", "systemd"),
    "generic": ("init-system-helpers", "libc6", "libgcc-s1", "python3", "systemd"),
    "rpm": ("python3", "systemd", "python3-pyyaml", *(f"python3-{name}" for name in LIBRARIES)),
}
"""The dependencies of each package; tests/packaging/test_sbom.py compares them with the builds."""
WITHIN = {
    "prometheus-client": (("decorator", "4.0.10", "BSD-2-Clause", "pypi"),),
    "pyyaml": (("libyaml", "0.2.5", "MIT", "generic"),),
    "typer": (("click", "8.3.1", "BSD-3-Clause", "pypi"),),
}
"""The components of wheels that their metadata does not list."""
CLASSIFIERS = {
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
}


def make_sbom(
    kind: str, *, version: str, epoch: int, control: str, chroot: Path, wheels: Path | None
) -> str:
    """Return the document of one package.

    Args:
        kind: of the deb, or "rpm".
        version: of podslice.
        epoch: the date of the package, in seconds since 1970.
        control: the text that states the dependencies of the package.
        chroot: where it is built, with the versions of Debian's packages.
        wheels: the directory of the included wheels.
    """
    root = _component("podslice", version, LICENCE, "generic", role=ComponentType.APPLICATION)
    needs = NEEDS[kind.partition("-")[0]]
    found = [_needed(kind, name, control, chroot) for name in needs]
    found += [_vendored(paths) for paths in _libraries(wheels)] if wheels else []
    return _document(root, found, f"{kind} {version}", epoch)


def page_sbom(libraries: Iterable[Library], *, version: str, epoch: int) -> str:
    """Return the document of the page for Cockpit, with the packages of npm in its bundle."""
    root = _component(
        "cockpit-podslice", version, LICENCE, "generic", role=ComponentType.APPLICATION
    )
    found = []
    for each in libraries:
        made = _component(each.name, each.version, each.licence, "npm")
        digest = base64.b64decode(each.sha512).hex()
        made.hashes = [HashType(alg=HashAlgorithm.SHA_512, content=digest)]
        found.append(made)
    return _document(root, found, f"cockpit {version}", epoch)


def _document(root: Component, found: list[Component], name: str, epoch: int) -> str:
    bom = Bom(components=found)
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, tz=UTC)
    names = " ".join(sorted(str(each.purl) for each in found))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"podslice {name} {epoch} {names}")
    bom.register_dependency(root, found)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _needed(kind: str, name: str, control: str, chroot: Path) -> Component:
    """Describe a dependency with the version that the package was built with, if known."""
    limits = re.findall(rf"(?<![\w-]){re.escape(name)} +\(?([<>=]+ [\w.]+)", control)
    required = Property(name=PROPERTY, value=", ".join(dict.fromkeys(limits)) or "any version")
    if kind == "rpm":
        place, version = {"type": "rpm", "namespace": "fedora"}, None
    elif kind.startswith("generic-"):
        place, version = {"type": "deb", "namespace": "debian"}, None
    else:
        place = {"type": "deb", "namespace": "debian", "qualifiers": {"distro": kind}}
        version = deps.run_tool(
            *("dpkg-query", f"--admindir={chroot}/var/lib/dpkg", "--show"),
            *("--showformat=${Version}", name),
        )
    purl = PackageURL(name=name, version=version, **place)
    return Component(
        name=name,
        version=version,
        bom_ref=str(purl),
        purl=purl,
        scope=ComponentScope.REQUIRED,
        licenses=[LicenseExpression(value=NEEDED[name])],
        properties=[required],
    )


def _libraries(wheels: Path) -> list[list[Path]]:
    """Return the wheels of each library; a compiled one may have one for each Python."""
    found: dict[str, list[Path]] = {}
    for path in sorted(wheels.glob("*.whl")):
        found.setdefault(path.name.partition("-")[0], []).append(path)
    return list(found.values())


def _vendored(wheels: list[Path]) -> Component:
    """Describe a library, including the bill of materials of its wheel if it has one.

    Wheels for several Pythons are built from the same source, with the same components.
    """
    with zipfile.ZipFile(wheels[0]) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = email.message_from_bytes(archive.read(metadata))
        boms = [json.loads(archive.read(name)) for name in names if "/sboms/" in name]
    name = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
    made = _component(name, fields["Version"], _licence_of(fields), "pypi")
    made.hashes = [
        HashType(alg=HashAlgorithm.SHA_256, content=sha256(wheel.read_bytes()).hexdigest())
        for wheel in wheels
    ]
    made.components = [*_within(name), *_crates(boms)]
    return made


def _within(name: str) -> Iterator[Component]:
    for part, version, licence, kind in WITHIN.get(name, ()):
        yield _component(part, version, licence, kind)


def _crates(boms: Iterable[dict[str, Any]]) -> Iterator[Component]:
    """Yield the components that a wheel's own documents list."""
    for crate in (each for bom in boms for each in bom["components"]):
        (licence,) = crate["licenses"]
        made = _component(crate["name"], crate["version"], licence["expression"], "cargo")
        made.scope = ComponentScope(crate.get("scope", ComponentScope.REQUIRED))
        made.hashes = [
            HashType(alg=HashAlgorithm(each["alg"]), content=each["content"])
            for each in crate.get("hashes", ())
        ]
        yield made


def _component(
    name: str, version: str, licence: str, kind: str, role: ComponentType = ComponentType.LIBRARY
) -> Component:
    purl = PackageURL(type=kind, name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=role,
        bom_ref=str(purl),
        purl=purl,
        licenses=[LicenseExpression(value=licence)],
    )


def _licence_of(fields: email.message.Message) -> str:
    if stated := fields["License-Expression"]:
        return str(stated)
    (found,) = {
        CLASSIFIERS[each] for each in fields.get_all("Classifier", []) if each in CLASSIFIERS
    }
    return found
