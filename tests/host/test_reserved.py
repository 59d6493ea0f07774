"""Reservations enforced on slices that podslice does not own."""

import pytest

from tests.host.scenario import BIG, SEED, apply, show

SLICE = "podruntime.slice"
MI = 2**20
RESERVE = (
    *("--set", "kube-reserved=cpu=500m,memory=64Mi"),
    *("--set", f"kube-reserved-cgroup=/{SLICE}"),
    *("--set", "enforce-node-allocatable=pods,kube-reserved"),
)


@pytest.fixture
def runtime(clean_machine):
    """A machine with a daemon in podruntime.slice that uses some memory."""
    machine = clean_machine
    hold = "b = bytearray(48 << 20); import time; time.sleep(1000)"
    machine.run(
        *("systemd-run", f"--slice={SLICE}", "--unit=podlab-daemon", "-p", "MemoryAccounting=yes"),
        *("python3", "-c", hold),
    )
    machine.run(
        "sh",
        "-c",
        f"until [ $(systemctl show {SLICE} -P MemoryCurrent) -gt {48 * MI} ] 2>/dev/null; do sleep 0.2; done",
    )
    return machine


@pytest.mark.namespace
def test_a_reservation_becomes_weight_and_limit_of_its_slice(runtime):
    apply(runtime, "-f", SEED, *BIG, *RESERVE)
    assert show(runtime, SLICE, "CPUWeight", "MemoryMax") == {
        "CPUWeight": "50",
        "MemoryMax": str(64 * MI),
    }
    assert show(runtime, "kubepods.slice", "MemoryMax") == {
        "MemoryMax": str(32 * 1024 * MI - 64 * MI)
    }
    plan = runtime.podslice("plan", "-f", SEED, *BIG, *RESERVE)
    assert (plan.exit_code, plan.stdout) == (0, "nothing to do\n")


def test_a_slice_is_not_limited_to_less_than_it_uses(runtime):
    small = [word.replace("memory=64Mi", "memory=32Mi") for word in RESERVE]
    result = apply(runtime, "-f", SEED, *BIG, *small, check=False)
    assert result.exit_code == 1
    assert f"skipped MemoryMax of {SLICE}: " in result.stdout
    assert "more than 32 MiB" in result.stdout
    assert show(runtime, SLICE, "MemoryMax") == {"MemoryMax": "infinity"}
    active = runtime.run("systemctl", "is-active", "podlab-daemon.service").stdout
    assert active == "active\n"


@pytest.mark.namespace
def test_a_missing_slice_is_reported_with_the_fix(clean_machine):
    result = apply(clean_machine, "-f", SEED, *BIG, *RESERVE, check=False)
    assert result.exit_code == 1
    assert f"the reservation of {SLICE}: the slice is not active; start it: systemctl start" in (
        result.stdout
    )
    assert "kubepods.slice" in result.stdout


SYSTEM = (
    *("--set", "system-reserved=cpu=500m,memory=8Gi,pid=5000"),
    *("--set", "system-reserved-cgroup=/system.slice"),
    *("--set", "enforce-node-allocatable=pods,system-reserved"),
)
NAMES = ("CPUWeight", "MemoryMax", "TasksMax")
HELD = {"CPUWeight": "50", "MemoryMax": str(8192 * MI), "TasksMax": "5000"}


@pytest.fixture
def system(clean_namespace):
    """A machine whose system.slice had a weight before."""
    machine = clean_namespace
    machine.run("systemctl", "set-property", "--runtime", "system.slice", "CPUWeight=70")
    return machine


def test_values_are_restored_when_no_longer_configured(system):
    before = show(system, "system.slice", *NAMES)
    assert before["CPUWeight"] == "70"
    apply(system, "-f", SEED, *BIG, *SYSTEM)
    assert show(system, "system.slice", *NAMES) == HELD
    status = system.podslice("status", *BIG, *SYSTEM).stdout
    assert "system.slice: podslice has set CPUWeight=50 (previously: 70), MemoryMax=8Gi" in status
    # the configuration no longer enforces it
    status = system.podslice("status", *BIG, check=False)
    assert status.exit_code == 3
    assert "system.slice: MemoryMax is 8Gi, should be unset" in status.stdout
    plan = system.podslice("plan", "-f", SEED, *BIG, check=False)
    assert plan.exit_code == 3
    assert "would set CPUWeight=70 (was 50; restores the former value)" in plan.stdout
    apply(system, "-f", SEED, *BIG)
    assert show(system, "system.slice", *NAMES) == before
    assert system.podslice("plan", "-f", SEED, *BIG).stdout == "nothing to do\n"


def test_values_are_restored_with_the_last_pod_and_by_the_package(system):
    before = show(system, "system.slice", *NAMES)
    apply(system, "-f", SEED, *BIG, *SYSTEM)
    system.podslice("delete", "--all", *BIG, *SYSTEM)
    assert show(system, "system.slice", *NAMES) == before
    status = system.podslice("status", *BIG, *SYSTEM)
    assert (status.stdout, status.stderr) == ("no pods\n", "")
    apply(system, "-f", SEED, *BIG, *SYSTEM)
    system.run("systemctl", "daemon-reload")
    # as the package's scripts do, without any configuration
    system.podslice("__restore_reserved")
    assert show(system, "system.slice", *NAMES) == before
    assert system.podslice("__restore_reserved").stdout == ""


def test_a_value_that_was_changed_since_is_not_overwritten(system):
    apply(system, "-f", SEED, *BIG, *SYSTEM)
    system.run("systemctl", "set-property", "--runtime", "system.slice", "TasksMax=4000")
    result = apply(system, "-f", SEED, *BIG)
    assert "skipped TasksMax of system.slice: podslice set it to 5000" in result.stdout
    assert show(system, "system.slice", *NAMES) == {
        "CPUWeight": "70",
        "MemoryMax": "infinity",
        "TasksMax": "4000",
    }
