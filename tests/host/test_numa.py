"""CPUs and memory of pods on a machine with 4 CPUs and 2 NUMA nodes, as their processes have them."""

import pytest

from tests.host.scenario import apply
from tests.lab import fixtures, recipe
from tests.lab.paths import source_dir
from tests.lab.qemu import Hardware
from tests.lab.vm import Vm

STATIC = 'cpu-manager-policy = "static"\nreserved-cpus = "0"\n'
ALIGNED = f'{STATIC}topology-manager-policy = "single-numa-node"\n'
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: {name}}}
spec:
  containers:
  - {{name: main, resources: {{limits: {limits}}}}}
"""
OWN = POD.format(name="own", limits='{cpu: "2", memory: 64Mi}')
SHARED = POD.format(name="shared", limits="{memory: 64Mi}")
WIDE = POD.format(name="wide", limits='{cpu: "3", memory: 64Mi}')
SLICES = {
    "own": "kubepods-podown.slice",
    "shared": "kubepods-burstable.slice/kubepods-burstable-podshared.slice",
}
READ = """
for process in $(cat /sys/fs/cgroup/kubepods.slice/$1/*/cgroup.procs); do
  sed -n 's/^\\(Cpus\\|Mems\\)_allowed_list:\\s*//p' /proc/$process/status
done
"""


@pytest.fixture(scope="module")
def numa_vm():
    """A machine with the CPUs 0-1 on NUMA node 0, and 2-3 on node 1.

    Its source tree is pushed: a snapshot with it would cost as much time, and disk besides.
    """
    fixtures.need_lab()
    with Vm(hardware=Hardware(cpu_count=4, numa_count=2)) as machine:
        machine.push(source_dir(), recipe.SOURCE_DIR)
        yield machine


def allowed(machine, pod):
    """The CPUs and the NUMA nodes of the pod's only process."""
    return machine.run("sh", "-c", READ, "read", SLICES[pod]).stdout.split()


def test_processes_have_the_cpus_and_the_memory_of_their_pod(numa_vm):
    machine = numa_vm
    machine.put("/etc/podslice/podslice.toml", ALIGNED)
    machine.put("/root/wide.yaml", WIDE)
    refused = apply(machine, "-f", "/root/wide.yaml", check=False)
    assert refused.exit_code == 1
    assert "TopologyAffinityError: requested CPUs: 3; free: 1 (1) on NUMA node 0" in refused.stdout

    machine.put("/root/pods.yaml", f"{OWN}---\n{SHARED}")
    files = ("-f", "/root/pods.yaml")
    apply(machine, *files)
    for name in SLICES:
        machine.podslice("run", name, "--detach", "--", "sleep", "infinity")
    assert allowed(machine, "own") == ["2-3", "1"]
    assert allowed(machine, "shared") == ["0-1", "0-1"]

    machine.run("systemctl", "daemon-reload")
    assert machine.podslice("plan", *files).stdout == "nothing to do\n"
    assert apply(machine, *files).stdout.splitlines()[-1] == "nothing to do"
    assert allowed(machine, "own") == ["2-3", "1"]

    machine.put("/etc/podslice/podslice.toml", STATIC)
    apply(machine, *files)
    assert allowed(machine, "own") == ["2-3", "0-1"]

    machine.podslice("delete", "own", "--grace-period", "0")
    assert allowed(machine, "shared") == ["0-3", "0-1"]
