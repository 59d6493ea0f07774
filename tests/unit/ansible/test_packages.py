"""The package that the role installs on a host, by the facts of the host."""

import re

from tests.cases.tables import cases
from tests.unit.ansible.conftest import COLLECTION, plugin_utility

packages = plugin_utility("packages")
ROOT = COLLECTION.parents[1]


def facts(distribution, release, python, systemd, **others):
    """Return facts of a host, and the line of its package python3."""
    rpms = ("Fedora", "CentOS")
    family = "RedHat" if distribution in rpms else others.pop("family", "Debian")
    arch = others.pop("arch", "amd64")
    known = {
        "os_family": family,
        "distribution": distribution,
        "distribution_version": release,
        "systemd": systemd and {"version": systemd},
        "architecture": "x86_64",
        "python_version": "3.99.0",
        **others,
    }
    return known, [f"python3 installed {python} {arch}"] if python else []


FITTING = {
    "debian 13": (facts("Debian", "13.1", "3.13.5-1", 257), "podslice_1.2_all.deb"),
    "debian 13 on arm": (
        facts("Debian", "13.1", "3.13.5-1", 257, arch="riscv64"),
        "podslice_1.2_all.deb",
    ),
    "debian 12": (facts("Debian", "12.9", "3.11.2-1+b1", 252), "podslice_1.2~deb12_amd64.deb"),
    "debian 12 on arm": (
        facts("Debian", "12.9", "3.11.2-1+b1", 252, arch="arm64"),
        "podslice_1.2~generic_arm64.deb",
    ),
    "debian testing": (
        facts("Debian", "forky/sid", "3.14.2-1", 262),
        "podslice_1.2~generic_amd64.deb",
    ),
    "ubuntu 24.04": (
        facts("Ubuntu", "24.04", "3.12.3-0ubuntu2", 255),
        "podslice_1.2~generic_amd64.deb",
    ),
    "a distribution that has the release of Debian": (
        facts("Kali", "13", "3.13.1-1", 257),
        "podslice_1.2~generic_amd64.deb",
    ),
    "an old Ansible, and no facts of packages": (
        facts("Ubuntu", "24.04", "", None, python_version="3.12.3"),
        "podslice_1.2~generic_amd64.deb",
    ),
    "fedora": (facts("Fedora", "42", "3.13.2", 257, arch="x86_64"), "podslice-1.2-1.noarch.rpm"),
}
UNFIT = {
    "python 3.15": facts("Ubuntu", "27.04", "3.15.0-1", 263),
    "python 3.10": facts("Ubuntu", "23.04", "3.10.6-1", 252),
    "systemd 249": facts("Ubuntu", "22.04", "3.11.1-1", 249),
    "debian 13 with another systemd": facts("Debian", "13", "3.13.5-1", 251),
    "32 bits on a kernel of 64": facts("Raspbian", "12", "3.11.2-1", 252, arch="armhf"),
    "another family": facts("Archlinux", "rolling", "3.13.1", 258, family="Archlinux"),
    "centos with python 3.9": facts("CentOS", "9", "3.9.18", 252),
}


@cases
def test_the_package_is_chosen_by_the_facts(name):
    (host, lines), file = FITTING[name]
    found = packages.choose(host, "1.2", lines)
    assert (found["file"], found["problem"]) == (file, None)
    assert found["version"] == re.split("[_-]", file)[1]


@cases
def test_a_host_without_a_package_is_described_with_a_way_out(name):
    host, lines = UNFIT[name]
    found = packages.choose(host, "1.2", lines)
    assert (found["kind"], found["file"], found["version"]) == (None, None, None)
    _, _, version, architecture = lines[0].split()
    python = re.match(r"\d\.\d+", version)[0]
    stated = (
        f"{host['distribution']} {host['distribution_version']} on "
        f"{architecture} with Python {python} and "
        f"systemd {host['systemd']['version']}. "
    )
    assert stated in found["problem"]
    assert "set podslice_install to none" in found["problem"]


@cases
def test_the_installed_version_is_compared(line, is_installed):
    host, lines = facts("Debian", "13.1", "3.13.5-1", 257)
    assert packages.choose(host, "1.2", [*lines, line])["is_installed"] is is_installed


def test_facts_that_are_missing_are_named():
    found = packages.choose({"os_family": "Debian", "distribution": "Other"}, "1.2")
    assert "with an unknown Python and an unknown systemd" in found["problem"]


def test_limits_are_those_of_the_packages():
    control = (ROOT / "packaging/deb/generic/control").read_text()
    for name, limit in (
        ("python3", f">= {'.'.join(map(str, packages.PYTHON))}"),
        ("python3", f"<< {'.'.join(map(str, packages.GENERIC_BELOW))}"),
        ("systemd", f">= {packages.SYSTEMD}"),
    ):
        assert f" {name} ({limit}),\n" in control
    architectures = " ".join(packages.ARCHITECTURES.values())
    assert f"Architecture: {architectures}\n" in control


def test_the_filter_is_this_choice():
    text = (COLLECTION / "plugins/filter/package_for.py").read_text()
    assert '{"package_for": choose}' in text
    assert "podslice.host.package_for(" in (COLLECTION / "roles/host/vars/main.yml").read_text()
