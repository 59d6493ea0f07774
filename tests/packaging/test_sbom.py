"""The bill of materials of each package, compared with the content of the package."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from packaging.utils import canonicalize_name

from podslice import __version__
from tests.packaging.builds import ROOT, dpkg_deb, read_deb

FILE = "usr/share/doc/podslice/podslice.cdx.json"
PRIVATE = "usr/lib/podslice/python"
HOMES = (PRIVATE, "usr/lib/python3/dist-packages")
# names of licences in SPDX and in debian/copyright
IN_DEBIAN = {"MIT": "Expat", "BSD-2-Clause": "BSD-2-clause", "BSD-3-Clause": "BSD-3-clause"}
# the files that show the version of components in a wheel
SHOWN_IN = {
    "click": (r"typer/_click/__init__\.py", rb"click/releases/tag/([\d.]+)"),
    "decorator": (r"prometheus_client/decorator\.py", rb"__version__ = '([\d.]+)'"),
    "libyaml": (r"yaml/_yaml\..*\.so", rb"\0(0\.\d\.\d)\0"),
}
READ_RPM = f"""
rpm --initdb
rpm -i --nodeps --noscripts package.rpm >&2 2>/dev/null
cat /{FILE}
echo
echo --- requires
rpm -qp --requires package.rpm 2>/dev/null
echo --- files
rpm -qpl package.rpm 2>/dev/null
"""


class Package:
    """A built package: its document, its dependencies and its files."""

    def __init__(self, kind, packages, tmp_path):
        self.kind = kind
        built = packages.get(kind)
        if kind == "rpm":
            self._read_rpm(packages, built, tmp_path)
        else:
            self._read_deb(built)
        self.components = {each["name"]: each for each in self.document["components"]}
        self.needed = {name for name, each in self.components.items() if "hashes" not in each}
        self.vendored = self.components.keys() - self.needed

    def _read_deb(self, built):
        self.files = {name: content for name, (_, content) in read_deb(built.package).items()}
        self.document = json.loads(self.files[FILE])
        depends = dpkg_deb("--field", built.package, "Depends").decode().strip()
        self.depends = re.split(r",\s*", depends)

    def _read_rpm(self, packages, built, tmp_path):
        shutil.copyfile(built.package, tmp_path / "package.rpm")
        chroot = packages.script.ensure_chroot("trixie")
        told = packages.script.run_in(chroot, READ_RPM, source=tmp_path, out=built.dir)
        document, _, rest = told.partition("--- requires\n")
        requires, _, names = rest.partition("--- files\n")
        self.document = json.loads(document)
        # without the shell of the scriptlets, and rpm's own requirements
        self.depends = [
            each for each in requires.splitlines() if not each.startswith(("/", "rpmlib("))
        ]
        self.files = dict.fromkeys(name.lstrip("/") for name in names.splitlines())

    @property
    def limits(self):
        """Return the required versions of each dependency of this package."""
        asked = {}
        for each in self.depends:
            name, limit = re.fullmatch(r"([\w.-]+)(?::any)?(?: \(?([^)]+)\)?)?", each).groups()
            asked.setdefault(name, set()).update({limit} - {None})
        return asked


@pytest.fixture(scope="module", params=["trixie", "bookworm", "generic-amd64", "rpm"])
def package(request, packages, tmp_path_factory):
    return Package(request.param, packages, tmp_path_factory.mktemp("sbom"))


@pytest.fixture(scope="module", params=["bookworm", "generic-amd64"])
def vendoring(request, packages, tmp_path_factory):
    """A package that includes libraries."""
    return Package(request.param, packages, tmp_path_factory.mktemp("sbom"))


def licence(component):
    (found,) = component["licenses"]
    return found["expression"]


def test_it_describes_podslice(package):
    assert package.document["bomFormat"] == "CycloneDX"
    component = package.document["metadata"]["component"]
    assert (component["name"], component["version"]) == ("podslice", __version__)
    assert licence(component) == "Apache-2.0"


def test_every_component_has_a_licence_an_identity_and_a_version(package):
    for name, each in package.components.items():
        assert licence(each)
        assert each["purl"]
        # these are for several releases of distributions, with different versions
        is_generic = package.kind in ("rpm", "generic-amd64")
        assert "version" in each or (is_generic and name in package.needed), name
    (root,) = (each for each in package.document["dependencies"] if "dependsOn" in each)
    assert len(root["dependsOn"]) == len(package.components)


def test_it_has_the_dependencies_of_the_package_and_nothing_else(package):
    assert package.needed == package.limits.keys()


def test_it_has_the_required_versions_of_the_dependencies(package):
    for name in package.needed:
        (stated,) = package.components[name]["properties"]
        stated = set(stated["value"].split(", ")) - {"any version"}
        # the package has more requirements: those of compiled files, and of pyproject.toml
        assert stated <= package.limits[name], name


def test_it_has_every_included_library(package):
    found = {
        (canonicalize_name(name), version)
        for name, version in re.findall(
            rf"(?:{'|'.join(HOMES)})/([^/\s]+)-([^-/\s]+)\.dist-info", "\n".join(package.files)
        )
    }
    stated = {(name, package.components[name]["version"]) for name in package.vendored}
    assert found - {("podslice", __version__)} == stated
    assert bool(stated) == (package.kind in ("bookworm", "generic-amd64"))


def test_hashes_are_those_of_the_locked_wheels(vendoring):
    directory = vendoring.kind.partition("-")[0]
    lock = (ROOT / f"packaging/deb/{directory}/requirements.txt").read_text()
    locked = dict(re.findall(r"^(\S+)==\S+ (--hash=.+)$", lock, re.MULTILINE))
    assert vendoring.vendored == locked.keys()
    for name in vendoring.vendored:
        stated = {each["content"] for each in vendoring.components[name]["hashes"]}
        known = set(re.findall(r"--hash=sha256:(\w+)", locked[name]))
        # of a compiled library, the half that is for the architecture of the package
        assert stated <= known
        assert len(stated) == (1 if len(known) == 1 else len(known) / 2), name


def test_licences_are_those_of_the_copyright_file(vendoring):
    text = vendoring.files["usr/share/doc/podslice/copyright"].decode()
    sections = re.findall(
        r"^Files: debian/wheels/(\S+)-\*\n.*?^License: (.+?)$", text, re.MULTILINE | re.DOTALL
    )
    copyright_file = {
        canonicalize_name(name): set(found.split(" and ")) for name, found in sections
    }
    stated = {}
    for name in vendoring.vendored:
        component = vendoring.components[name]
        # crates are named in the copyright file as a whole
        inside = component.get("components", ()) if name != "pydantic-core" else ()
        words = " AND ".join(map(licence, [component, *inside])).split(" AND ")
        stated[name] = {IN_DEBIAN.get(word, word) for word in words}
    assert stated == copyright_file


def test_components_in_wheels_are_listed_with_their_versions(vendoring):
    inside = {
        each["name"]: each["version"]
        for name in vendoring.vendored - {"pydantic-core"}
        for each in vendoring.components[name].get("components", ())
    }
    shown = {}
    for name, (path, pattern) in SHOWN_IN.items():
        found = [each for each in vendoring.files if re.fullmatch(f"{PRIVATE}/{path}", each)]
        (shown[name],) = {re.search(pattern, vendoring.files[file])[1].decode() for file in found}
    assert inside == shown


def test_the_crates_are_those_of_the_librarys_own_document(vendoring):
    (name,) = (each for each in vendoring.files if each.endswith("pydantic-core.cyclonedx.json"))
    own = json.loads(vendoring.files[name])["components"]
    stated = vendoring.components["pydantic-core"]["components"]
    named = [{(each["name"], each["version"]) for each in which} for which in (stated, own)]
    assert named[0] == named[1]
    assert len(stated) > 10
