"""What the kernel tells of changes by hand and of memory: the real one, with cgroup v2."""

import json

import pytest

A, B = "kubepods-poda.slice", "kubepods-podb.slice"
GROUP_A, GROUP_B = f"/sys/fs/cgroup/kubepods.slice/{A}", f"/sys/fs/cgroup/kubepods.slice/{B}"
EAT = (
    "systemd-run --quiet --wait --property=MemorySwapMax=0 --slice={}"
    " python3 -c 'b = [bytearray(1 << 20) for _ in range(200)]'"
)
# its own text has to be read again and again
THRASH = (
    "systemd-run --quiet --wait --property=MemoryMax=30M --property=MemorySwapMax=0"
    " --property=RuntimeMaxSec=6 sh -c 'head -c 80M /dev/zero >/var/tmp/podslice-thrash;"
    " while :; do cat /var/tmp/podslice-thrash >/dev/null; done'; rm /var/tmp/podslice-thrash"
)

pytestmark = [pytest.mark.host, pytest.mark.cgroup2]


@pytest.fixture
def machine_with_slices(clean_vm):
    for name in (A, B):
        clean_vm.run(
            *("systemd-run", "--quiet", f"--slice={name}", f"--unit=sleeper-{name[12]}"),
            *("sleep", "1000"),
        )
    yield clean_vm
    clean_vm.run("systemctl", "stop", "sleeper-a", "sleeper-b")
    clean_vm.run("systemctl", "revert", "system.slice")


def watch(machine, *pairs, **more):
    """What was told with each command, after the notes."""
    return json.loads(machine.module("tests.host.watcher", input=json.dumps(pairs), **more).stdout)


def test_changes_by_hand_are_told_of(machine_with_slices):
    commands = {
        f"systemctl set-property --runtime {A} CPUWeight=55": A,
        f"systemctl set-property {B} MemoryMax=200M": B,
        f"systemctl set-property --runtime {B} ManagedOOMSwap=kill": B,
        "systemctl set-property system.slice CPUWeight=77": "system.slice",
        f"echo 123 >{GROUP_A}/cpu.weight": A,
        f"echo 50M >{GROUP_B}/memory.high": B,
    }
    notes, *told = watch(
        machine_with_slices, *([command, ["unit", name]] for command, name in commands.items())
    )
    assert notes == []
    # the first one makes controllers come and directories, which concerns others as well
    for each, name in list(zip(told, commands.values(), strict=True))[1:]:
        assert {tuple(what) for what in each} == {("unit", name)}


def test_what_systemd_writes_as_it_was_is_not_told_of(machine_with_slices):
    """It writes all files of all siblings with every slice that is started."""
    enable = f"systemctl set-property --runtime {A} CPUWeight=55 MemoryMax=200M"
    sibling = "systemd-run --quiet --wait --slice=kubepods-podc.slice --property=CPUWeight=9 true"
    *_, told = watch(
        machine_with_slices,
        [enable, ["unit", A]],
        # what belongs to that has been told of before this is
        ["echo 77 >/sys/fs/cgroup/system.slice/cpu.weight", ["unit", "system.slice"]],
        [f"{sibling}; echo 123 >{GROUP_B}/cpu.weight", ["unit", B]],
    )
    assert ["unit", A] not in told


def test_kills_for_memory_are_told_of_also_when_caches_were_dropped(machine_with_slices):
    machine_with_slices.run("systemctl", "set-property", "--runtime", A, "MemoryMax=40M")
    _, first, _, second = watch(
        machine_with_slices,
        [EAT.format(A), ["memory", A]],
        ["echo 3 >/proc/sys/vm/drop_caches", None],
        [EAT.format(A), ["memory", A]],
    )
    for told in (first, second):
        assert ["memory", B] not in told
    assert b"oom_kill 2\n" in machine_with_slices.get(f"{GROUP_A}/memory.events")


@pytest.mark.parametrize("capabilities", ["CAP_SYS_RESOURCE", ""])
def test_memory_that_gets_short_is_told_of(machine_with_slices, capabilities):
    """Also to who may be told only slowly."""
    told = machine_with_slices.run(
        *("systemd-run", "--quiet", "--pipe", "--wait", "--working-directory=/src"),
        *(f"--property=CapabilityBoundingSet={capabilities}", "--property=NoNewPrivileges=yes"),
        *("--property=MemoryDenyWriteExecute=yes", "--property=SystemCallFilter=@system-service"),
        *("python3", "-m", "tests.host.watcher"),
        input=json.dumps([[THRASH, ["pressure"]]]),
    )
    notes, pressures = json.loads(told.stdout)
    assert notes == []
    # each time once: what is not fetched would come for ever
    assert 1 <= pressures.count(["pressure"]) < 40
