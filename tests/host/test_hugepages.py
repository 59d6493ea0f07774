"""Limits of huge pages, which podslice itself writes, on a real systemd with cgroup v2."""

import pytest

from tests.host.scenario import apply, kernel

MI = 2**20
CAPACITY = ("--set", "capacity=cpu=8,memory=32Gi,hugepages-2Mi=64Mi")
SLICE = "kubepods-podhuge.slice"
GROUP = f"/kubepods.slice/{SLICE}"
PLAIN = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podplain.slice"
SCOPE = "podslice-podhuge-app.scope"
FILE, RESERVED = "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"

HUGE = """\
apiVersion: v1
kind: Pod
metadata: {name: huge, uid: huge}
spec:
  containers:
  - {name: app, resources: {limits: {cpu: 1, memory: 64Mi, hugepages-2Mi: 8Mi}}}
  - {name: web, resources: {limits: {cpu: 1, memory: 64Mi, hugepages-2Mi: 4Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, uid: plain}
spec:
  containers:
  - {name: app}
"""


@pytest.fixture
def huge(clean_vm):
    """A virtual machine whose operator later delegates the controller of huge pages."""
    clean_vm.put("/tmp/huge.yaml", HUGE)
    yield clean_vm
    hand_down(clean_vm, "-")


def hand_down(machine, sign):
    # slices to which it is delegated must be removed first
    machine.run("systemctl", "stop", "kubepods.slice", check=False)
    control = "/sys/fs/cgroup/cgroup.subtree_control"
    machine.run("sh", "-c", f"echo {sign}hugetlb > {control}")


def converge(machine):
    return apply(machine, "-f", "/tmp/huge.yaml", *CAPACITY).stdout


def limits(machine):
    groups = (GROUP, f"{GROUP}/{SCOPE}")
    pairs = [(kernel(machine, group, FILE), kernel(machine, group, RESERVED)) for group in groups]
    assert all(used == reserved for used, reserved in pairs)
    return tuple(used for used, _ in pairs)


def test_limits_of_huge_pages_are_compatible_with_systemd(huge):
    machine = huge
    left_out = f"skipped limits of huge pages of {SLICE}: the hugetlb controller is not enabled"
    assert left_out in converge(machine)

    hand_down(machine, "+")
    converge(machine)
    assert [kernel(machine, GROUP, file) for file in (FILE, RESERVED)] == [str(12 * MI)] * 2
    # a pod that requests none gets none
    assert [kernel(machine, PLAIN, file) for file in (FILE, RESERVED)] == ["0"] * 2

    # a container that was started since
    machine.spawn(
        *("systemd-run", "--quiet", "--scope", f"--unit={SCOPE}", f"--slice={SLICE}"),
        *("-p", "Delegate=yes", "sleep", "1000"),
    )
    until = f"until systemctl -q is-active {SCOPE}; do sleep 0.1; done"
    machine.run("sh", "-c", until)
    assert f"set {FILE}=8Mi (was unset), {RESERVED}=8Mi (was unset) on {SCOPE}" in converge(machine)
    assert limits(machine) == (str(12 * MI), str(8 * MI))

    # systemd leaves the files, and the controller, unchanged
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "set-property", "--runtime", SLICE, "CPUWeight=7", "IOWeight=7")
    machine.run("systemctl", "daemon-reexec")
    assert limits(machine) == (str(12 * MI), str(8 * MI))

    # external changes are reverted
    machine.run("sh", "-c", f"echo 0 > /sys/fs/cgroup{GROUP}/{FILE}")
    assert f"set {FILE}=12Mi (was 0) on {SLICE}" in converge(machine)
    assert limits(machine) == (str(12 * MI), str(8 * MI))
