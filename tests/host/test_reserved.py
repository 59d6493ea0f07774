"""Reservations enforced on slices that podslice does not own."""

import pytest

from tests.host.scenario import BIG, SEED, apply, show

SLICE = "podruntime.slice"
MI = 2**20
RESERVE = (
    *("--kube-reserved", "cpu=500m,memory=64Mi", "--kube-reserved-cgroup", f"/{SLICE}"),
    *("--enforce-node-allocatable", "pods,kube-reserved"),
)


@pytest.fixture
def runtime(clean_machine):
    """A machine with a daemon in podruntime.slice that holds some memory."""
    machine = clean_machine
    hold = "b = bytearray(48 << 20); import time; time.sleep(1000)"
    machine.run(
        *("systemd-run", f"--slice={SLICE}", "--unit=podlab-daemon", "-p", "MemoryAccounting=yes"),
        *("python3", "-c", hold),
    )
    machine.run(
        *("timeout", "20", "sh", "-c"),
        f"until [ $(systemctl show {SLICE} -P MemoryCurrent) -gt {48 * MI} ] 2>/dev/null; do :; done",
    )
    yield machine
    machine.run("systemctl", "stop", "podlab-daemon.service", check=False)
    machine.run("systemctl", "stop", SLICE, check=False)
    machine.run("rm", "-rf", f"/run/systemd/system.control/{SLICE}.d", check=False)
    machine.run("systemctl", "daemon-reload")


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
    assert f"left out MemoryMax of {SLICE}: " in result.stdout
    assert "more than 32Mi" in result.stdout
    assert show(runtime, SLICE, "MemoryMax") == {"MemoryMax": "infinity"}
    active = runtime.run("systemctl", "is-active", "podlab-daemon.service").stdout
    assert active == "active\n"


def test_a_slice_that_is_not_there_is_told_with_the_way_out(clean_machine):
    result = apply(clean_machine, "-f", SEED, *BIG, *RESERVE, check=False)
    assert result.exit_code == 1
    assert f"{SLICE} to its reservation: it is not there; start it: systemctl start" in (
        result.stdout
    )
    assert "kubepods.slice" in result.stdout
