"""The tests of podslice with the installed package and the libraries of Debian 13, in namespaces."""

from __future__ import annotations

import re
import shutil
import tomllib

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
LEFT_OUT = "not (old_machine or test_the_samples_of_nodes)"
"""The other machine of the tests with a bus, which is the same one here; and numbers as text, which
Debian's prometheus-client writes with another exponent."""
PARTS = {
    "dbus-next": ("tests/unit/systemd", "tests/bus/test_bus_on_systemd.py"),
    "h11, h2, prometheus-client": (
        *("tests/unit/agent/endpoints", "tests/unit/test_http_client.py"),
        "tests/unit/features/quadlet/test_probe_grpc.py",
    ),
    "pydantic, rich, typer": ("tests/unit/cli",),
    "PyYAML": ("tests/unit/inputs/manifest",),
}
"""The tests of the modules that use each library."""


@pytest.mark.parametrize("part", PARTS)
def test_the_tests_pass_against_the_installed_package(installed, part):
    """They prove that Debian's libraries and Python do; test_deb.py compares the files.

    Tests with hypothesis are skipped, which the machine does not have. tests/host runs all of podslice
    with the same libraries and Python, from the checkout.
    """
    result = installed.run(
        *("sh", "-c", 'cd /src && exec python3 -m pytest -q -p no:cacheprovider "$@"', "sh"),
        *("-k", LEFT_OUT, *PARTS[part]),
        env=ENVIRONMENT,
        check=False,
        timeout_sec=600,
    )
    assert result.exit_code == 0, result.stdout[-5000:]
    assert " passed" in result.stdout


def test_every_library_has_its_tests():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[<>=;]", requirement)[0] for requirement in wanted}
    assert {name for part in PARTS for name in part.split(", ")} == names


def test_the_examples_of_the_package_are_those_of_the_checkout(installed):
    found = installed.run("sh", "-c", f"cd {EXAMPLES} && find . -type f").stdout.splitlines()
    examples = ROOT / "examples"
    expected = {f"./{p.relative_to(examples)}" for p in examples.rglob("*") if p.is_file()}
    assert expected <= set(found)
