"""The role installs the package that fits the host, from a directory of the controller."""

import shutil

import pytest

from podslice import __version__
from tests.fleet.hosts import SUITE
from tests.lab import extras
from tests.packaging.builds import Packages

ROLE = {
    "hosts": "db1",
    "become": True,
    "gather_facts": False,
    "vars": {
        "podslice_install": "directory",
        "podslice_packages": "dist",
        "podslice_version": __version__,
        "podslice_node": "unmanaged",
        "podslice_agent": "unmanaged",
    },
    "roles": ["podslice.host.host"],
}


@pytest.fixture(scope="module")
def db1(controller, fleet):
    """A host with the files of podslice, but not of the package."""
    controller.inventory({"database": {"db1": {}}})
    dist = controller.directory / "dist"
    dist.mkdir()
    shutil.copy(Packages().get(SUITE).package, dist)
    # which Ansible would install from a repository
    extras.unpack(fleet["db1"].machine, SUITE, ("python3-apt",))
    return fleet["db1"]


def installed(host):
    shown = host.run("dpkg-query", "--show", "--showformat=${Version}", "podslice", check=False)
    return shown.stdout


def test_check_mode_ends_before_the_package(db1, controller):
    ran = controller.play([ROLE], "--check")
    assert ran.code == 0, ran.output
    assert "podslice would be installed or upgraded" in ran.output
    assert not ran.results("db1", "configuration")
    assert installed(db1) == ""


def test_it_is_installed_once(db1, controller):
    first, second = (controller.play([ROLE]) for _ in range(2))
    assert first.code == 0, first.output
    assert installed(db1) == __version__
    assert second.code == 0, second.output
    assert first.changed()["db1"] > 0
    assert second.changed() == {"db1": 0}
    assert not second.results("db1", "Copy the package")
