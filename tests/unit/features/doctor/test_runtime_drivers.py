"""Which drivers the runtimes use, from trees of their configuration files."""

import os

import pytest

from tests.cases.tables import cases
from tests.unit.features.doctor.hosts import (
    LEGACY,
    PLAIN,
    ROOT,
    USER,
    facts,
    findings,
    host,
    program,
)


def manager(driver):
    return f'[engine]\ncgroup_manager = "{driver}"\n'


def only(root, subject=ROOT):
    (runtime,) = facts(root, subject).runtimes
    return runtime


def test_runtimes_that_are_not_installed_are_left_out(tmp_path):
    root = host(tmp_path, {"etc/containers/containers.conf": manager("cgroupfs")})
    assert facts(root).runtimes == ()


@cases
def test_driver(tmp_path, name, files, driver, source):
    runtime = only(host(tmp_path, program(name), files))
    assert (runtime.driver, runtime.source, runtime.unreadable) == (driver, source, "")


@cases
def test_driver_of_a_user(tmp_path, name, files, driver, source):
    runtime = only(host(tmp_path, program(name), files), USER)
    assert (runtime.driver, runtime.source) == (driver, source)


def test_an_argument_that_is_not_text_is_ignored(tmp_path):
    line = "dockerd\0\udcff\0--exec-opt\0native.cgroupdriver=cgroupfs\0"
    files = {"proc/9/comm": "dockerd\n", "proc/9/cmdline": line}
    runtime = only(host(tmp_path, program("dockerd"), files))
    source = "the command line of dockerd (process 9)"
    assert (runtime.driver, runtime.source, runtime.unreadable) == ("cgroupfs", source, "")


def test_daemons_of_the_system_are_not_the_users(tmp_path):
    assert facts(host(tmp_path, program("dockerd", "containerd", "crio")), USER).runtimes == ()


def test_defaults_with_cgroup_v1(tmp_path):
    root = host(tmp_path, program("podman", "dockerd", "dockerd-rootless.sh"), base=LEGACY)
    assert [each.driver for each in facts(root).runtimes] == ["systemd", "cgroupfs"]
    assert [each.driver for each in facts(root, USER).runtimes] == ["cgroupfs", "cgroupfs"]


def test_a_driver_that_is_not_systemd_needs_attention(tmp_path):
    conf = {"etc/docker/daemon.json": '{"exec-opts": ["native.cgroupdriver=cgroupfs"]}'}
    found = findings(host(tmp_path, program("dockerd", "podman"), conf))
    docker = found["docker"]
    assert docker.state == "attention"
    assert (
        docker.what
        == "control groups are created by cgroupfs, not by systemd (/etc/docker/daemon.json)"
    )
    assert "do not run in pods" in docker.effect
    assert docker.fix == (
        'write "exec-opts": ["native.cgroupdriver=systemd"] into /etc/docker/daemon.json,'
        " then: systemctl restart docker"
    )
    podman = found["podman"]
    assert (podman.state, podman.what) == (
        "ok",
        "control groups are created by systemd (its default)",
    )


@cases
def test_an_unused_cri_plugin_needs_no_attention(tmp_path, files, state):
    """It comes with docker, which states the driver itself."""
    assert findings(host(tmp_path, files))["containerd"].state == state


@pytest.mark.parametrize(
    ("name", "files", "why"),
    [
        ("podman", {"etc/containers/containers.conf": "[engine\n"}, "containers.conf: not valid"),
        ("dockerd", {"etc/docker/daemon.json": "{,}"}, "daemon.json: not valid JSON: "),
        ("dockerd", {"etc/docker/daemon.json": "[" * 100_000}, "daemon.json: not valid JSON: "),
        ("dockerd", {"etc/docker/daemon.json": " " * (2**20 + 1)}, "it is larger than 1,024 KiB"),
        ("podman", {"etc/containers/containers.conf": f"a = {'[' * 50_000}"}, "not valid TOML: "),
        ("podman", {"etc/containers/containers.conf": f"a = {'9' * 6_000}"}, "not valid TOML: "),
        ("crio", {"etc/crio/crio.conf/file": ""}, "crio.conf: it is a directory"),
    ],
)
def test_an_invalid_configuration_is_reported(tmp_path, name, files, why):
    root = host(tmp_path, program(name), files)
    assert why in only(root).unreadable
    check = {"dockerd": "docker", "crio": "cri-o"}.get(name, name)
    found = findings(root)[check]
    assert (found.state, str(tmp_path) in found.what) == ("info", False)
    assert found.what.startswith("cannot read its configuration: /etc/")


def test_a_binary_configuration_is_reported(tmp_path):
    root = host(tmp_path, program("podman"), {"etc/containers/containers.conf": ""})
    (root / "etc/containers/containers.conf").write_bytes(b"\xff")
    assert only(root).unreadable == "/etc/containers/containers.conf: not valid UTF-8"


def test_a_program_that_can_not_be_read_is_reported(tmp_path, monkeypatch):
    root = host(tmp_path, program("crun"), PLAIN)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    assert only(root).unreadable == "/usr/bin/crun: Permission denied"


def test_a_configuration_that_is_a_pipe_is_unreadable_and_a_link_is_not(tmp_path):
    root = host(tmp_path, {**program("podman"), "etc/real.conf": manager("cgroupfs")})
    path = root / "etc/containers/containers.conf"
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    assert (
        only(root).unreadable == "/etc/containers/containers.conf: it is a pipe, not a regular file"
    )
    path.unlink()
    path.symlink_to("../real.conf")
    assert only(root).driver == "cgroupfs"
