"""Projects of podman-compose and docker in their pods: one budget for all services.

Those of podman-compose run in a namespace; with docker, the values in the kernel are read as well.

The command that starts the project is the one that `podslice compose` prints.
"""

import json
import shlex

import pytest

from podslice.model.pod import default_uid
from podslice.model.unit import control_group_of
from tests.host import users
from tests.host.podman import ASKED, MAKE_ROOTFS, NOT_NEEDED, WAIT, configure
from tests.host.scenario import enforced, kernel
from tests.host.test_podman import group_of, status_of
from tests.lab import extras, fixtures
from tests.lab.recipe import DEFAULT_SUITE
from tests.lab.vm import Vm

MI = 2**20
PACKAGES = ("podman", "catatonit", "podman-compose")
DOCKER = ("docker.io", "docker-compose")
NOT_NEEDED_OF_DOCKER = ("usr/bin/ctr", "usr/bin/containerd-stress", "usr/share")
SLICE = f"kubepods-burstable-pod{default_uid('default', 'shop').replace('-', '_')}.slice"
GROUP = control_group_of(SLICE)
# limits above the budget, a reservation of CPUs, and a variable that the tool resolves
PROJECT = f"""
name: shop
x-podslice:
  budget: {{cpu: 1, memory: 192Mi}}
x-service: &service
  image: app
  x-podman.rootfs: /rootfs
  command: ["/bin/sh", "-c", '{WAIT}']
  network_mode: none
services:
  db:
    <<: *service
    mem_limit: ${{DB_MEMORY}}
    deploy: {{resources: {{reservations: {{cpus: "0.5"}}}}}}
  cache: {{<<: *service, mem_limit: 128m}}
  web: {{<<: *service, cpus: 0.25}}
"""
PROJECT_OF_USER = f"""
services:
  db:
    x-podman.rootfs: /home/lab/rootfs
    command: ["/bin/sh", "-c", '{WAIT}']
    network_mode: none
"""
START_DOCKER = (
    *("systemd-run", "--unit=dockerd", "--property=Type=notify", "--property=Delegate=yes"),
    *("/usr/sbin/dockerd", "--storage-driver=vfs", "--bridge=none"),
    *("--iptables=false", "--ip6tables=false", "--exec-opt=native.cgroupdriver=systemd"),
)
# without docker's client: it is larger than everything else of docker that this needs
IMPORT_IMAGE = """
import http.client, io, socket, tarfile
packed = io.BytesIO()
with tarfile.open(fileobj=packed, mode="w") as tar:
    tar.add("/rootfs", ".")
docker = http.client.HTTPConnection("localhost")
docker.sock = socket.socket(socket.AF_UNIX)
docker.sock.connect("/run/docker.sock")
docker.request("POST", "/images/create?fromSrc=-&repo=app", packed.getvalue())
reply = docker.getresponse()
assert reply.status == 200, reply.read()
assert b"error" not in reply.read()
"""
INSPECT = ("podman", "inspect", "--format={{.State.Pid}}")
PODMAN = ("--tool", "podman-compose")
CONTAINERS = ("shop_db_1", "shop_cache_1", "shop_web_1")


@pytest.fixture(scope="module")
def vm():
    """A virtual machine of this module's own, with docker and a project."""
    fixtures.need_lab()
    with Vm(has_source=True) as booted:
        extras.unpack(booted, DEFAULT_SUITE, DOCKER, left_out=NOT_NEEDED_OF_DOCKER)
        put_projects(booted)
        yield booted


@pytest.fixture(scope="module")
def box():
    """A namespace of this module's own, with podman-compose and two projects."""
    with fixtures.boot_remote_namespace(is_unified=True) as booted:
        extras.unpack(booted, DEFAULT_SUITE, PACKAGES, left_out=NOT_NEEDED)
        configure(booted)
        put_projects(booted)
        yield booted


def put_projects(machine):
    machine.run("sh", "-c", MAKE_ROOTFS)
    machine.put("/shop/compose.yaml", PROJECT)
    machine.put("/shop/.env", "DB_MEMORY=128m\n")
    machine.put("/home/lab/shop/compose.yaml", PROJECT_OF_USER)
    machine.run("chown", "-R", "lab:lab", "/home/lab/shop")


def commands(printed):
    """Return the commands that `compose` prints, without the name of the program `podslice`."""
    lines = printed.splitlines()
    at = lines.index("to start the project in its pod:")
    apply, up = map(shlex.split, lines[at + 1 : at + 3])
    return apply[1:], up


def asked(box, name):
    """Return the limits that podman requested from crun."""
    path = box.run("podman", "inspect", "--format={{.OCIConfigPath}}", name).stdout.strip()
    return json.loads(box.get(f"{path}{ASKED}"))["linux"]["resources"]


def test_all_services_share_the_budget(box):
    apply, up = commands(box.podslice("compose", *PODMAN, "-f", "/shop/compose.yaml").stdout)
    box.podslice(*apply)
    box.run(*up)
    assert enforced(box, GROUP, "memory.max") == str(192 * MI)
    assert enforced(box, GROUP, "cpu.max") == "100000 100000"
    pids = box.run(*INSPECT, *CONTAINERS).stdout.split()
    groups = {name: group_of(box, pid) for name, pid in zip(CONTAINERS, pids, strict=True)}
    assert all(group.startswith(f"{GROUP}/libpod-") for group in groups.values()), groups
    db, cache, web = (asked(box, name) for name in CONTAINERS)
    assert db["memory"]["limit"] == cache["memory"]["limit"] == 128 * MI
    assert web["cpu"]["quota"] / web["cpu"]["period"] == 0.25
    assert db["cpu"]["shares"] > cache["cpu"]["shares"] == web["cpu"]["shares"]
    assert status_of(box.podslice).exit_code == 0

    box.podslice("delete", "shop", "--grace-period", "3")
    shown = box.run("podman", "ps", "--all", "--format={{.Names}} {{.State}}").stdout
    assert sorted(shown.split("\n")) == ["", *(f"{each} exited" for each in sorted(CONTAINERS))]


def test_a_project_of_a_user_is_in_a_pod_of_the_user(box):
    with users.user_manager(box) as podslice:
        podman = ("env", "--chdir=/home/lab", "HOME=/home/lab", "USER=lab")
        words = ("-f", "/home/lab/shop/compose.yaml", "--budget", "cpu=1,memory=64Mi")
        apply, up = commands(podslice("compose", *PODMAN, *words).stdout)
        assert apply.pop(1) == "--user"
        podslice(*apply)
        users.command(box, *podman, *up)
        pid = users.command(box, *podman, *INSPECT, "shop_db_1").stdout.strip()
        manager = f"/user.slice/user-{users.UID}.slice/{users.MANAGER}"
        assert group_of(box, pid).startswith(f"{manager}{GROUP}/libpod-")
        assert enforced(box, f"{manager}{GROUP}", "memory.max") == str(64 * MI)


def test_all_services_of_docker_share_the_budget(vm):
    vm.run(*START_DOCKER)
    vm.run("python3", "-c", IMPORT_IMAGE)
    words = ("-f", "/shop/compose.yaml", "-p", "store", "--output-dir", "/store", "--reserve")
    apply, up = commands(vm.podslice("compose", *words).stdout)
    assert up[0] == "docker-compose"
    vm.podslice(*apply)
    vm.run(*up)
    slice_ = f"kubepods-pod{default_uid('default', 'store').replace('-', '_')}.slice"
    group = control_group_of(slice_)
    assert kernel(vm, group, "memory.max") == str(192 * MI)
    assert kernel(vm, group, "cpu.max") == "100000 100000"
    found = vm.run("sh", "-c", f"cd /sys/fs/cgroup{group} && ls -d docker-*.scope").stdout.split()
    scopes = [f"{group}/{name}" for name in found]
    limits = sorted(
        tuple(kernel(vm, each, f) for f in ("memory.max", "cpu.max")) for each in scopes
    )
    limit = str(128 * MI)
    none = "max 100000"
    assert limits == [(limit, none), (limit, none), ("max", "25000 100000")]
    *others, db = sorted(int(kernel(vm, each, "cpu.weight")) for each in scopes)
    assert others == [others[0]] * 2
    assert db > others[0]
    for each in scopes:
        pid = kernel(vm, each, "cgroup.procs").split()[0]
        assert vm.get(f"/proc/{pid}/oom_score_adj").decode().strip() == "-997"
    status = vm.podslice("status", "-o", "json", check=False)
    assert (status.exit_code, status.stderr) == (0, "")
