"""The packages of the page for Cockpit: their files and dependencies, and the report of lintian."""

from __future__ import annotations

import base64
import json
import shutil

import pytest

from podslice import __version__
from tests.packaging.builds import EPOCH, ROOT, dpkg_deb, read_deb

PAGE = "usr/share/cockpit/podslice"
DOC = "usr/share/doc/cockpit-podslice"
SBOM = f"{DOC}/cockpit-podslice.cdx.json"
FILES = {
    f"{PAGE}/{name}" for name in ("index.html", "manifest.json", "podslice.css", "podslice.js")
}
LOCK = json.loads((ROOT / "packaging/cockpit/package-lock.json").read_text())
OF_RPM = """
rpm --initdb
rpm -i --nodeps page.rpm >&2 2>/dev/null
rpm -qp --qf '[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}\\n]' page.rpm 2>/dev/null
echo ---
rpm -qp --requires page.rpm 2>/dev/null
"""


@pytest.fixture(scope="module")
def deb(packages):
    return packages.get("cockpit")


@pytest.fixture(scope="module")
def members(deb):
    return read_deb(deb.package)


def text(members, name):
    return members[name][1].decode()


def test_the_page_and_nothing_else_is_packaged(members):
    files = {name for name, (member, _) in members.items() if not member.isdir()}
    documents = {f"{DOC}/{name}" for name in ("README.md", "changelog.gz", "copyright")}
    overrides = "usr/share/lintian/overrides/cockpit-podslice"
    assert files == {*FILES, *documents, SBOM, overrides}
    assert not [
        name
        for name, (member, _) in members.items()
        if (member.uid, member.mode) != (0, 0o755 if member.isdir() else 0o644)
        or member.mtime > EPOCH
    ]


def test_it_fits_every_package_of_podslice_of_the_same_version(deb):
    shown = dpkg_deb("--field", deb.package, "Architecture", "Version", "Depends").decode()
    assert shown.splitlines() == [
        "Architecture: all",
        f"Version: {__version__}",
        f"Depends: cockpit-bridge (>= 265), podslice (>= {__version__}~)",
    ]


def test_the_page_has_the_version_and_no_inline_scripts_or_styles(members):
    assert json.loads(text(members, f"{PAGE}/manifest.json"))["version"] == __version__
    page = text(members, f"{PAGE}/index.html")
    assert "<style" not in page
    assert "style=" not in page
    assert page.count("<script src=") == page.count("<script")


def test_the_bundle_has_no_other_addresses_than_those_of_cockpit(members):
    css = text(members, f"{PAGE}/podslice.css")
    addresses = {each.partition(")")[0].strip("\"'") for each in css.split("url(")[1:]}
    # empty ones are backgrounds of themes that Cockpit does not have
    assert not {each for each in addresses if each and not each.startswith("../../static/fonts/")}
    assert "eval(" not in text(members, f"{PAGE}/podslice.js")


def test_the_bill_of_materials_has_what_is_bundled(members):
    found = json.loads(text(members, SBOM))
    packages = LOCK["packages"]
    expected = {
        name.removeprefix("node_modules/"): base64.b64decode(each["integrity"][7:]).hex()
        for name, each in packages.items()
        if name and not each.get("dev")
    }
    assert {each["name"]: each["hashes"][0]["content"] for each in found["components"]} == expected
    assert expected.keys() == packages[""]["dependencies"].keys()
    for name in expected:
        assert name.rpartition("/")[2] in text(members, f"{DOC}/copyright").lower()


def test_every_package_of_npm_is_pinned_by_a_hash():
    pinned = {name: each for name, each in LOCK["packages"].items() if name}
    assert all(each["integrity"].startswith("sha512-") for each in pinned.values())
    wanted = json.loads((ROOT / "packaging/cockpit/package.json").read_text())
    for part in ("dependencies", "devDependencies"):
        for name, version in wanted[part].items():
            assert pinned[f"node_modules/{name}"]["version"] == version


def test_lintian_reports_nothing(deb, packages):
    assert packages.script.lint(deb).split() == []


def test_the_rpm_has_the_same_page(packages, members, tmp_path):
    built = packages.get("rpm")
    (package,) = built.dir.glob("cockpit-podslice-*.noarch.rpm")
    shutil.copyfile(package, tmp_path / "page.rpm")
    chroot = packages.script.ensure_chroot("trixie")
    script = OF_RPM + "".join(f"echo ---\ncat /{name}\n" for name in sorted(FILES))
    told = packages.script.run_in(chroot, script, source=tmp_path, out=built.dir)
    listed, requires, *contents = told.split("---\n")
    modes = dict(line.split(" ", 1) for line in listed.splitlines())
    assert {f"/{name}" for name in FILES} <= modes.keys()
    assert set(modes.values()) == {"-rw-r--r-- root", "drwxr-xr-x root"}
    assert f"podslice >= {__version__}" in requires
    for name, content in zip(sorted(FILES), contents, strict=True):
        assert content.strip() == text(members, name).strip()
