"""The files that pin dependencies agree with pyproject.toml, and pin everything by its hash."""

import importlib.metadata
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
DEV = "requirements-dev.txt"
TOOL = "packaging/builder/uv.txt"
VENDORED = "packaging/deb/bookworm/requirements.txt"
GENERIC = "packaging/deb/generic/requirements.txt"
FLEET = "tests/fleet/requirements.txt"
LOCKS = (DEV, TOOL, VENDORED, GENERIC, FLEET)
# Debian 12, Fedora, Debian 13, and the next version
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIRED = PYPROJECT["project"]["dependencies"]
FOR_DEV = [
    *REQUIRED,
    *PYPROJECT["project"]["optional-dependencies"]["dev"],
    *PYPROJECT["build-system"]["requires"],
]
OPTION = "--only-binary :all:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def version(self):
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "=="
        return specifier.version


@cache
def read(lock):
    """Return the pins of a file; other lines are comments, or the option that allows wheels only."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pins = []
    for line in lines:
        if line != OPTION:
            wanted, *hashes = re.split(r"\s+--hash=", line)
            pins.append(Pin(requirement=Requirement(wanted), hashes=tuple(hashes)))
    return pins


def environment(python):
    return {**default_environment(), "python_version": python, "python_full_version": f"{python}.2"}


def applies(requirement, where):
    return requirement.marker is None or requirement.marker.evaluate(where)


def versions(lock, where):
    """Return the version of each package in one environment; no package has two."""
    found = [pin for pin in read(lock) if applies(pin.requirement, where)]
    chosen = {canonicalize_name(pin.requirement.name): pin.version for pin in found}
    assert len(chosen) == len(found)
    return chosen


def unmet(requirements, chosen, where):
    def is_met(wanted):
        version = chosen.get(canonicalize_name(wanted.name))
        return version is not None and wanted.specifier.contains(version)

    wanted = [Requirement(text) for text in requirements]
    return [str(each) for each in wanted if applies(each, where) and not is_met(each)]


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_is_pinned_to_hashes_of_wheels_and_names_no_registry(lock):
    wrong = [
        str(pin.requirement)
        for pin in read(lock)
        if not pin.version
        or not pin.hashes
        or not all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in pin.hashes)
    ]
    assert wrong == []
    text = (ROOT / lock).read_text()
    assert re.findall(r"://|index|find-links| @ ", text) == []


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_all_that_pyproject_asks_for(python):
    where = environment(python)
    assert unmet(FOR_DEV, versions(DEV, where), where) == []


def test_the_vendored_wheels_are_what_pyproject_asks_for():
    where = environment("3.11")
    assert unmet(REQUIRED, versions(VENDORED, where), where) == []
    assert {pin.requirement.name for pin in read(VENDORED) if len(pin.hashes) != 1} == set()


def test_the_wheels_of_the_generic_package_are_for_each_python_and_architecture():
    for python in PYTHONS:
        where = environment(python)
        assert unmet(REQUIRED, versions(GENERIC, where), where) == []
    several = {
        pin.requirement.name: len(pin.hashes) for pin in read(GENERIC) if len(pin.hashes) > 1
    }
    assert several == dict.fromkeys(["pydantic-core", "pyyaml"], 2 * len(PYTHONS))
    assert versions(VENDORED, environment("3.11")).keys() == versions(GENERIC, where).keys()


@pytest.mark.parametrize("lock", [VENDORED, GENERIC])
def test_what_is_vendored_is_what_the_tests_run_with(lock):
    tested = versions(DEV, environment("3.11"))
    vendored = versions(lock, environment("3.11"))
    assert vendored == {name: tested[name] for name in vendored}
    hashes = {pin.requirement.name: set(pin.hashes) for pin in read(DEV)}
    assert [
        p.requirement.name for p in read(lock) if not {*p.hashes} <= hashes[p.requirement.name]
    ] == []


def test_this_environment_matches_the_lock_and_the_lock_has_nothing_else():
    """The lock contains exactly the dependencies of pyproject.toml."""
    where = default_environment()
    needed, waiting = set(), [Requirement(text) for text in FOR_DEV]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        extras = wanted.extras or {""}
        if (name, *extras) in needed or not applies(wanted, {**where, "extra": ""}):
            continue
        needed.add((name, *extras))
        more = map(Requirement, importlib.metadata.requires(name) or ())
        waiting += [
            each
            for each in more
            if any(applies(each, {**where, "extra": extra}) for extra in extras)
        ]
    installed = {name: importlib.metadata.version(name) for name, *_ in needed}
    assert installed == versions(DEV, where)


def test_a_requirement_that_the_lock_lacks_is_found():
    where = environment("3.11")
    changed = [*FOR_DEV, "pydantic>=99", "requests", "tomli; python_version < '3.11'"]
    assert unmet(changed, versions(DEV, where), where) == ["pydantic>=99", "requests"]


def test_nothing_is_installed_or_fetched_without_a_lock():
    """A call of pip checks hashes, or uses what is installed without its dependencies."""
    files = ("Makefile", "packaging/deb/bookworm/rules", ".ci/run")
    calls = [
        line.strip()
        for name in files
        for line in (ROOT / name).read_text().splitlines()
        if re.match(r"\t@?\$\(PIP\)|.*\bpip (install|download)\b", line) and ":=" not in line
    ]
    assert calls
    assert [
        call for call in calls if not re.search("--require-hashes|--no-deps|^PIP = ", call)
    ] == []


def test_a_lock_is_installed_without_solving_again():
    """pip of Debian 12 refuses a whole lock once a dependency with an extra has a newer release."""
    files = [*ROOT.glob("packaging/builder/*.py"), ROOT / "Makefile", ROOT / "tests/fleet/tools.py"]
    calls = [
        line.strip()
        for path in files
        for line in path.read_text().splitlines()
        if "--require-hashes" in line and not line.lstrip().startswith("#")
    ]
    assert len(calls) == 4
    assert [call for call in calls if "--no-deps" not in call] == []
