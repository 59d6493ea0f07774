"""The newest systemd counts huge pages as memory: a pod that requests them can use them."""

from collections.abc import Iterator

import pytest

from tests.host.scenario import apply, kernel
from tests.lab import fixtures
from tests.lab.machine import Machine
from tests.lab.vm import Vm

MI = 2**20
SLICE = "kubepods-burstable-podhuge.slice"
GROUP = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"
SERVICE = f"{GROUP}/podslice-podhuge-app.service"
PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
CONFIG, USED = "/etc/podslice/podslice.toml", "/run/lab-huge-pages-used"

HUGE = """\
apiVersion: v1
kind: Pod
metadata: {name: huge, uid: huge}
spec:
  containers:
  - {name: app, resources: {requests: {cpu: 10m}, limits: {memory: 32Mi, hugepages-2Mi: 64Mi}}}
"""
# 0x40000 is MAP_HUGETLB; a page is taken from the pool at the first write
USER = f"""\
import mmap
pages = mmap.mmap(-1, {64 * MI}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
for place in range(0, {64 * MI}, {2 * MI}):
    pages[place] = 1
open("{USED}", "w").close()
"""


@pytest.fixture
def counting(new_vm: Vm) -> Iterator[Machine]:
    for clean in fixtures.keep_clean(new_vm):
        clean.run("sh", "-c", f"echo 40 > {PAGES}")
        clean.put("/tmp/huge.yaml", HUGE)
        yield clean
        clean.podslice("delete", "--all", "--grace-period", "0", check=False)
        clean.run("sh", "-c", f"echo 0 > {PAGES}; rm -f {CONFIG} {USED}")


def events(machine: Machine) -> dict[str, int]:
    """Return the kernel's count of memory events of a pod: `max` for a charge beyond the limit."""
    lines = kernel(machine, GROUP, "memory.events").split("\n")
    return {name: int(count) for name, count in map(str.split, lines)}


def test_a_process_uses_all_huge_pages_of_its_pod(counting: Machine) -> None:
    machine = counting
    found = machine.podslice("doctor", check=False).stdout
    assert "40 are allocated on this host, and they count as memory" in found

    # limits as for a host that does not count them: the process repeats a page fault
    machine.put(CONFIG, "memory-hugetlb-accounting = false\n")
    apply(machine, "-f", "/tmp/huge.yaml")
    assert kernel(machine, GROUP, "memory.max") == str(32 * MI)
    machine.podslice("run", "--detach", "huge", "--", "/usr/bin/python3", "-c", USER)
    until = f"until [ $(sed -n 's/^max //p' /sys/fs/cgroup{GROUP}/memory.events) -gt 1000 ]; do sleep 0.1; done"
    machine.run("sh", "-c", until)
    assert events(machine)["oom_kill"] == 0
    assert machine.run("test", "-e", USED, check=False).exit_code == 1

    # limits as this host needs them: the same process continues
    machine.run("rm", CONFIG)
    output = apply(machine, "-f", "/tmp/huge.yaml").stdout
    assert f"MemoryMax=96Mi (was 32Mi) on {SLICE} (default/huge)" in output
    machine.run("sh", "-c", f"until [ -e {USED} ]; do sleep 0.1; done")
    assert kernel(machine, GROUP, "memory.max") == str(96 * MI)
    assert events(machine)["oom_kill"] == 0
