"""The tests of podslice with the installed package and the libraries of Debian 13, in namespaces."""

from __future__ import annotations

import shutil

import pytest

from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.packaging.builds import ROOT

EXAMPLES = "/usr/share/doc/podslice/examples"


@pytest.fixture(scope="module")
def installed(packages, tmp_path_factory):
    """Debian 13 in namespaces, with the package, and in /src the checkout without podslice/."""
    package = packages.get("trixie").package
    source = tmp_path_factory.mktemp("source")
    skip = shutil.ignore_patterns(".*", "__pycache__", "podslice", "dist")
    shutil.copytree(source_dir(), source, ignore=skip, dirs_exist_ok=True)
    with Namespace("trixie", bind={"/src": source}) as namespace:
        namespace.put(f"/root/{package.name}", package.read_bytes())
        namespace.run("dpkg", "--install", f"/root/{package.name}")
        yield namespace


def test_the_installed_package_is_imported(installed):
    script = "cd /src && python3 -c 'import podslice; print(podslice.__file__)'"
    found = installed.run("sh", "-c", script).stdout
    assert found == "/usr/lib/python3/dist-packages/podslice/__init__.py\n"


ENVIRONMENT = {"PODSLICE_TEST_LOCAL": "1", "PYTHONDONTWRITEBYTECODE": "1"}
LEFT_OUT = (
    *("memory252", "memory257", "bus252", "files252", "bus262"),
    *("old_machine", "new_machine"),
)
"""Parameters of tests/bus: the client in memory, and other machines, all of which are this one here."""
PARTS = {
    "unit": (
        *("tests/unit/cli", "tests/unit/features", "tests/unit/usage"),
        *("tests/unit/systemd", "tests/unit/ansible"),
    ),
    "bus": (
        "tests/bus",
        "--ignore=tests/bus/test_lab_namespace.py",
        f"-k=not ({' or '.join(LEFT_OUT)})",
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_the_tests_pass_against_the_installed_package(installed, part):
    """They prove that the package is complete and that Debian's libraries and Python do.

    Of the unit tests, those with hypothesis are skipped, which the machine does not have. The others
    all run, because nothing else runs them with Debian 13's Python. Of the bus tests, those run that need a
    systemd, once: all their machines are this one. The client in memory uses no library, and
    test_lab_namespace.py does not concern the package.
    """
    result = installed.run(
        *("sh", "-c", 'cd /src && exec python3 -m pytest -q -p no:cacheprovider "$@"', "sh"),
        *PARTS[part],
        env=ENVIRONMENT,
        check=False,
        timeout_sec=600,
    )
    assert result.exit_code == 0, result.stdout[-5000:]
    assert " passed" in result.stdout


def test_some_parameters_of_each_bus_test_run(installed):
    shown = installed.run(
        *("sh", "-c", 'cd /src && exec python3 -m pytest -q --collect-only "$@"', "sh"),
        *("-p", "no:cacheprovider", *PARTS["bus"][:2]),
        env=ENVIRONMENT,
    ).stdout
    every = {line for line in shown.splitlines() if "::" in line}
    run = {line for line in every if not any(name in line for name in LEFT_OUT)}
    assert run < every
    assert {line.split("[")[0] for line in run} == {line.split("[")[0] for line in every}


def test_the_examples_of_the_package_are_those_of_the_checkout(installed):
    found = installed.run("sh", "-c", f"cd {EXAMPLES} && find . -type f").stdout.splitlines()
    examples = ROOT / "examples"
    expected = {f"./{p.relative_to(examples)}" for p in examples.rglob("*") if p.is_file()}
    assert expected <= set(found)
