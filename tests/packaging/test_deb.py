"""The packages for Debian: their files and dependencies, and the report of lintian."""

from __future__ import annotations

import ast
import email
import re
import tomllib
from pathlib import Path

import pytest

from podslice import __version__
from tests.lab.machine import LabError
from tests.packaging.builds import EPOCH, NEXT_VERSION, ROOT, dpkg_deb, read_deb

GENERIC = ("generic-amd64", "generic-arm64")
SUITES = ("trixie", "bookworm", *GENERIC)
PRIVATE = "usr/lib/podslice/python"
HOME = {
    "trixie": "usr/lib/python3/dist-packages",
    "bookworm": PRIVATE,
    **dict.fromkeys(GENERIC, PRIVATE),
}
BACKOFF = "podslice-agent.service.d/backoff.conf"
UNIT_DIR = {**dict.fromkeys(SUITES, "usr/lib/systemd/system"), "bookworm": "lib/systemd/system"}
HOOK = "usr/share/python3/runtime.d/podslice.rtupdate"
DOC = "usr/share/doc/podslice"


@pytest.fixture(scope="module", params=SUITES)
def suite(request):
    return request.param


@pytest.fixture(scope="module")
def deb(packages, suite):
    return packages.get(suite)


@pytest.fixture(scope="module")
def members(deb):
    """The files of the package, by their path without `./`."""
    return read_deb(deb.package)


@pytest.fixture(scope="module")
def control(deb, tmp_path_factory):
    """The files of the control archive."""
    target = tmp_path_factory.mktemp("control")
    dpkg_deb("--control", deb.package, target)
    return {path.name: path.read_text() for path in target.iterdir()}


def fields(text):
    return email.message_from_string(text)


def files(members):
    return {name for name, (member, _) in members.items() if not member.isdir()}


def test_it_contains_all_of_podslice_and_nothing_else(members, suite):
    home = f"{HOME[suite]}/podslice/"
    packed = {name.removeprefix(home) for name in files(members) if name.startswith(home)}
    packed = {name for name in packed if "__pycache__" not in name}
    source = {
        str(path.relative_to(ROOT / "podslice"))
        for path in (ROOT / "podslice").rglob("*")
        if path.suffix in (".py", ".typed") and not path.name.startswith(".")
    }
    assert packed == source


def test_other_files_are_the_expected_ones(members, suite, packages):
    units = packages.install.places({"unit_dir": f"/{UNIT_DIR[suite]}", "doc_dir": f"/{DOC}"})
    manuals = (path.stem for path in (ROOT / "packaging/man").glob("*.md"))
    examples = (path for path in (ROOT / "examples").rglob("*") if path.is_file())
    expected = {
        *(target.lstrip("/") for target in units.values()),
        "usr/bin/podslice",
        "usr/share/bash-completion/completions/podslice",
        "usr/share/fish/vendor_completions.d/podslice.fish",
        "usr/share/zsh/vendor-completions/_podslice",
        *(f"usr/share/man/man{name[-1]}/{name}.gz" for name in manuals),
        *(f"{DOC}/{path.relative_to(ROOT)}" for path in examples),
        *(f"{DOC}/json/{path.name}" for path in (ROOT / "docs/json").iterdir()),
        *(f"{DOC}/{name}" for name in ("README.md.gz", "README.Debian", "changelog.gz")),
        *(f"{DOC}/{name}" for name in ("copyright", "podslice.cdx.json")),
    }
    if suite in GENERIC:
        expected.add(HOOK)
    if suite != "trixie":
        expected.add("usr/share/lintian/overrides/podslice")
        expected.remove(f"{UNIT_DIR[suite]}/{BACKOFF}")  # systemd 252 does not support it
    found = {name for name in files(members) if not name.startswith(f"{HOME[suite]}/")}
    assert found == expected


def test_the_readme_links_only_to_what_is_installed(members, packages):
    text = packages.script.installed_readme((ROOT / "README.md").read_text())
    links = {target for _, target in packages.script.LINK.findall(text)}
    local = {each.partition("#")[0] for each in links if not each.startswith(("#", "https:"))}
    places = {f"{DOC}/{each}" for each in local}
    assert places
    assert {each for each in places if not any(name.startswith(each) for name in members)} == set()
    assert "![" not in text


@pytest.mark.parametrize(
    ("codename", "machine", "kind"),
    [
        ("trixie", "x86_64", "trixie"),
        ("trixie", "riscv64", "trixie"),
        ("bookworm", "x86_64", "bookworm"),
        ("bookworm", "aarch64", "generic-arm64"),
        ("noble", "x86_64", "generic-amd64"),
    ],
)
def test_a_system_has_one_package(packages, codename, machine, kind):
    assert packages.script.kind_of({"VERSION_CODENAME": codename}, machine) == kind


def test_other_architectures_have_none(packages):
    with pytest.raises(LabError, match="no deb for riscv64"):
        packages.script.kind_of({}, "riscv64")


def test_units_are_in_the_directory_of_systemd(members, suite):
    for name in ("podslice-apply.service", "podslice-agent.service", "podslice-agent.socket"):
        member, content = members[f"{UNIT_DIR[suite]}/{name}"]
        assert content == (ROOT / "units" / name).read_bytes()
        assert member.mode == 0o644
    assert "usr/lib/sysusers.d/podslice.conf" in members
    assert "usr/lib/tmpfiles.d/podslice.conf" in members
    assert not [name for name in members if name.endswith((".wants", ".requires"))]


def test_all_files_belong_to_root_and_only_root_may_write(members):
    programs = {"usr/bin/podslice", HOOK}
    wrong = [
        name
        for name, (member, _) in members.items()
        if (member.uid, member.gid) != (0, 0)
        or member.mode != (0o755 if member.isdir() or name in programs else 0o644)
    ]
    assert not wrong


def test_no_file_is_newer_than_the_source(members):
    assert not [name for name, (member, _) in members.items() if member.mtime > EPOCH]


def test_empty_directories_are_intentional(members):
    parents = {str(Path(name).parent) for name in members}
    empty = {n for n, (member, _) in members.items() if member.isdir() and n not in parents}
    assert empty - {"", "."} == {"etc/podslice/podslice.toml.d"}


def test_there_is_no_configuration_file_to_prompt_about(control):
    assert "conffiles" not in control


def test_version_and_architecture(deb, control, suite):
    about = fields(control["control"])
    expected = {
        "trixie": ("", "all"),
        "bookworm": ("~deb12", "amd64"),
        "generic-amd64": ("~generic", "amd64"),
        "generic-arm64": ("~generic", "arm64"),
    }[suite]
    assert (about["Version"], about["Architecture"]) == (__version__ + expected[0], expected[1])
    assert deb.package.name == f"podslice_{about['Version']}_{about['Architecture']}.deb"


def test_dependencies_are_those_of_the_metadata(control, suite):
    depends = {part.strip() for part in fields(control["control"])["Depends"].split(",")}
    if suite != "trixie":
        below = "3.12" if suite == "bookworm" else "3.15"
        assert {"python3 (>= 3.11)", f"python3 (<< {below})", "systemd (>= 252)"} <= depends
        assert not [part for part in depends if part.startswith("python3-")]
        return
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {"PyYAML": "yaml"}
    for requirement in wanted:
        name = re.split(r"[<>=;]", requirement)[0]
        assert any(f"python3-{names.get(name, name)}" in part for part in depends), requirement
    # if trixie has a dependency and bookworm does not, the version shows it
    assert {"python3-pydantic (>= 2.10)", "python3-typer (>= 0.15)"} <= depends
    assert {r for r in wanted if r.startswith(("pydantic", "typer"))} == {
        "pydantic>=2.10",
        "typer>=0.15",
    }


def test_scripts_enable_nothing_and_affect_only_a_running_agent(control):
    texts = [control.get(name, "") for name in ("preinst", "postinst", "prerm", "postrm")]
    lines = [line for text in texts for line in text.splitlines() if line.lstrip()[:1] != "#"]
    scripts = "\n".join(lines)
    assert "was-enabled" in scripts
    for call in ("systemctl start", "systemctl stop", "systemctl enable"):
        assert call not in scripts
    invoked = [line for line in lines if "deb-systemd-invoke" in line]
    assert invoked
    assert all("podslice-agent.service" in line for line in invoked)


def test_copyright_names_every_included_library(members, suite):
    _, content = members[f"{DOC}/copyright"]
    named = set(re.findall(r"^Files: debian/wheels/(\S+)-\*$", content.decode(), re.MULTILINE))
    home = f"{HOME[suite]}/"
    packed = {
        name.removeprefix(home).split("/")[0].split("-")[0]
        for name in members
        if name.startswith(home) and ".dist-info" in name
    }
    assert named == packed - {"podslice"}


def test_compiled_files_do_not_depend_on_times_of_sources(members, suite):
    compiled = {name for name in files(members) if name.endswith(".pyc")}
    if suite != "bookworm":
        assert not compiled  # they are created on the machine
        return
    modules = (name for name in files(members) if name.startswith(f"{HOME[suite]}/"))
    sources = {name for name in modules if name.endswith(".py")}
    # one file of pydantic is for mypy of Python 3.12 and later
    assert len(compiled) == len(sources)
    assert {members[name][1][4:8] for name in compiled} == {b"\1\0\0\0"}


def test_lintian_reports_nothing(deb, packages):
    lines = packages.script.lint(deb).splitlines()
    assert not [line for line in lines if line.strip()]


# the generic ones and the page are packed by the same tools; the order of the wheels is in
# test_generic.py, and the page is bundled twice for the rpm
@pytest.mark.parametrize("suite", ["trixie", "bookworm"], indirect=True)
def test_two_builds_give_the_same_bytes(deb, packages, suite):
    again = packages.again(suite)
    assert again.dir != deb.dir
    assert again.package.read_bytes() == deb.package.read_bytes()


def test_another_version_is_that_of_program_and_package(packages, suite, tmp_path):
    """As prepared for a build, which takes it from the changelog; test_rpm.py builds one."""
    source = tmp_path / "source"
    packages.script.copy_source(source, NEXT_VERSION, suite)
    packages.script.prepare_deb(source, NEXT_VERSION, EPOCH, suite)
    suffix = packages.script.DEBS[suite].suffix
    changelog = (source / "debian/changelog").read_text()
    assert changelog.startswith(f"podslice ({NEXT_VERSION}{suffix}) ")
    assert f'__version__ = "{NEXT_VERSION}"' in (source / "podslice/__init__.py").read_text()


def test_the_lock_has_the_dependencies_of_the_metadata(packages):
    locked = dict(
        re.match(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}$", line).groups()
        for line in packages.script.wheels.LOCK.read_text().splitlines()
        if not line.startswith("#")
    )
    for requirement in packages.script.wheels.dependencies():
        name, least, marker = re.match(r"([A-Za-z0-9-]+)>=([\d.]+)(.*)", requirement).groups()
        if "python_version" in marker:
            continue
        has = locked[name.lower()]
        assert [int(n) for n in has.split(".")] >= [int(n) for n in least.split(".")], requirement


CHANGELOG = """\
# Changelog

## 1.1.0 (unreleased)

### Added

- `apply`: see [the manual](podslice.1), and **more** of it.

## 1.0.0 (2026-01-02)

- First.
"""


def test_debian_changelog_is_generated_from_ours(packages):
    made = packages.script.debian_changelog(CHANGELOG, "1.1.0", "~deb12", "bookworm", 0)
    assert made == (
        "podslice (1.1.0~deb12) bookworm; urgency=medium\n\n"
        "  * apply: see the manual, and more of it.\n\n"
        " -- podslice maintainers <maintainers@example.org>  Thu, 01 Jan 1970 00:00:00 +0000\n\n"
        "podslice (1.0.0~deb12) bookworm; urgency=medium\n\n"
        "  * First.\n\n"
        " -- podslice maintainers <maintainers@example.org>  Fri, 02 Jan 2026 00:00:00 +0000\n"
    )


def test_rpm_changelog_is_generated_from_ours(packages):
    made = packages.script.rpm_changelog(CHANGELOG, "2.0", 0)
    assert made.splitlines()[:3] == [
        "* Thu Jan 01 1970 podslice maintainers <maintainers@example.org> - 2.0-1",
        "- Build of the present state.",
        "",
    ]


def test_the_launcher_is_python(members, suite):
    _, content = members["usr/bin/podslice"]
    ast.parse(content.decode())
    isolated = b"-IS" if suite in GENERIC else b"-I"
    assert content.splitlines()[0].replace(b" ", b"") == b"#!/usr/bin/python3" + isolated
