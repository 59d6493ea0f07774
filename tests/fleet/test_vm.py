"""A play on a host whose kernel has cgroup v2 with all controllers."""

import sys

import pytest

from tests.fleet.bridge import listen
from tests.fleet.hosts import CONNECT, Host, set_up
from tests.lab.vm import Vm

ROOT = "/sys/fs/cgroup"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "resources": {
            "requests": {"cpu": "500m", "memory": "64Mi"},
            "limits": {"cpu": "1500m", "memory": "128Mi"},
        },
        "containers": [{"name": "main"}],
    },
}

# `cpu.weight`: 100 for each requested CPU
KERNEL = {
    "memory.max": str(128 << 20),
    "memory.low": str(64 << 20),
    "cpu.max": "150000 100000",
    "cpu.weight": "50",
}


@pytest.fixture(scope="module")
def vm(fleet, keys, tmp_path_factory):
    with Vm() as machine:
        host = Host("vm1", machine)
        set_up(host, keys.public, next(iter(fleet.values())).installed())
        path = tmp_path_factory.mktemp("vm") / "ssh"
        with listen(machine, path):
            keys.add(host, f"{sys.executable} -I -S {CONNECT} {path}")
            yield host


def test_a_play_sets_values_of_the_kernel(vm, controller):
    controller.take_example()
    controller.inventory({"web": {"vm1": {}}})
    task = {"podslice.host.pods": {"definition": POD}}
    ran = controller.play(
        [{"hosts": "vm1", "become": True, "gather_facts": False, "tasks": [task]}]
    )
    assert ran.code == 0, ran.output
    (result,) = ran.results("vm1")
    unit = result["slices"]["default/web"]
    directory = f"{ROOT}/{vm.show(unit, 'ControlGroup').lstrip('/')}"
    values = vm.sh(f"cd {directory} && cat {' '.join(KERNEL)}").splitlines()
    assert dict(zip(KERNEL, values, strict=True)) == KERNEL
    assert vm.sh(f"cat {ROOT}/kubepods.slice/kubepods-burstable.slice/memory.low") == "67108864\n"
