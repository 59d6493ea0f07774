"""The kernel's notifications of external changes and of memory: the real one, with cgroup v2."""

import json

import pytest

from tests.lab import fixtures
from tests.lab.machine import START_SERVICE

A, B = "kubepods-poda.slice", "kubepods-podb.slice"
GROUP_A, GROUP_B = f"/sys/fs/cgroup/kubepods.slice/{A}", f"/sys/fs/cgroup/kubepods.slice/{B}"
EAT = (
    "systemd-run --quiet --wait --property=MemorySwapMax=0 --slice={}"
    " python3 -c 'b = [bytearray(1 << 20) for _ in range(200)]'"
)
# its own code must be read again and again
THRASH = (
    "systemd-run --quiet --collect --unit=lab-thrash --property=RuntimeMaxSec=120"
    " --property=MemoryMax=30M --property=MemorySwapMax=0"
    " sh -c 'head -c 80M /dev/zero >/var/tmp/podslice-thrash;"
    " while :; do cat /var/tmp/podslice-thrash >/dev/null; done'"
)
END_THRASH = "systemctl stop lab-thrash.service; rm /var/tmp/podslice-thrash"

pytestmark = [pytest.mark.host, pytest.mark.cgroup2]


@pytest.fixture(scope="module")
def machine_with_slices(vm):
    """Slices for all tests, each of which sets values that the earlier ones have not set."""
    for machine in fixtures.keep_clean(vm):
        for name in (A, B):
            machine.run(
                *(*START_SERVICE, f"--slice={name}", f"--unit=sleeper-{name[12]}"),
                *("sleep", "1000"),
            )
        yield machine
        machine.run("systemctl", "stop", "sleeper-a", "sleeper-b")


def watch(machine, *pairs, **more):
    """Return the notifications of each command, after the notes."""
    return json.loads(machine.module("tests.host.watcher", input=json.dumps(pairs), **more).stdout)


def test_external_changes_are_notified(machine_with_slices):
    commands = {
        f"systemctl set-property --runtime {A} CPUWeight=55": A,
        f"systemctl set-property {B} MemoryMax=200M": B,
        f"systemctl set-property --runtime {B} ManagedOOMSwap=kill": B,
        "systemctl set-property system.slice CPUWeight=77": "system.slice",
        f"echo 123 >{GROUP_A}/cpu.weight": A,
        f"echo 50M >{GROUP_B}/memory.high": B,
    }
    notes, *notified = watch(
        machine_with_slices, *([command, ["unit", name]] for command, name in commands.items())
    )
    assert notes == []
    # the first one creates controllers and directories, which concerns others as well
    for each, name in list(zip(notified, commands.values(), strict=True))[1:]:
        assert {tuple(what) for what in each} == {("unit", name)}


def test_unchanged_values_that_systemd_writes_are_not_notified(machine_with_slices):
    """systemd writes all files of all siblings with every slice that it starts."""
    enable = f"systemctl set-property --runtime {A} CPUWeight=44 MemoryMax=200M"
    sibling = "systemd-run --quiet --wait --slice=kubepods-podc.slice --property=CPUWeight=9 true"
    *_, notified = watch(
        machine_with_slices,
        [enable, ["unit", A]],
        # earlier notifications arrive before this one
        ["echo 66 >/sys/fs/cgroup/system.slice/cpu.weight", ["unit", "system.slice"]],
        [f"{sibling}; echo 123 >{GROUP_B}/cpu.weight", ["unit", B]],
    )
    assert ["unit", A] not in notified


def test_oom_kills_are_notified_even_after_caches_were_dropped(machine_with_slices):
    machine_with_slices.run("systemctl", "set-property", "--runtime", A, "MemoryMax=40M")
    _, first, _, second = watch(
        machine_with_slices,
        [EAT.format(A), ["memory", A]],
        ["echo 3 >/proc/sys/vm/drop_caches", None],
        [EAT.format(A), ["memory", A]],
    )
    for notified in (first, second):
        assert ["memory", B] not in notified
    assert b"oom_kill 2\n" in machine_with_slices.get(f"{GROUP_A}/memory.events")


@pytest.mark.parametrize("capabilities", ["CAP_SYS_RESOURCE", ""])
def test_memory_pressure_is_notified(machine_with_slices, capabilities):
    """Also to a process that the kernel notifies only slowly."""
    notified = machine_with_slices.run(
        *("systemd-run", "--quiet", "--pipe", "--wait", "--working-directory=/src"),
        *(f"--property=CapabilityBoundingSet={capabilities}", "--property=NoNewPrivileges=yes"),
        *("--property=MemoryDenyWriteExecute=yes", "--property=SystemCallFilter=@system-service"),
        *("python3", "-m", "tests.host.watcher"),
        input=json.dumps([[THRASH, ["pressure"]], [END_THRASH, None]]),
    )
    notes, pressures, _ = json.loads(notified.stdout)
    assert notes == []
    # each time once: an event that is not read would repeat forever
    assert 1 <= pressures.count(["pressure"]) < 40
