"""Restored values of reserved slices on a real systemd, whatever happens to podslice."""

import json

import pytest

from tests.host import agent
from tests.host.scenario import BIG, SEED, apply, show

pytestmark = pytest.mark.namespace

SLICE = "podruntime.slice"
MI = 2**20
NAMES = ("CPUWeight", "MemoryMax", "TasksMax")
UNSET = {"CPUWeight": "[not set]", "MemoryMax": "infinity", "TasksMax": "infinity"}
STATED = {"CPUWeight": "70", "MemoryMax": str(300 * MI), "TasksMax": "500"}
NEW = {"CPUWeight": "50", "MemoryMax": str(128 * MI), "TasksMax": "100"}
SERVICE, TIMER = "podslice-rollback.service", "podslice-rollback.timer"
LATER_SEC = 300
"""Longer than a test takes."""


def reserve(memory="128Mi", slice_=SLICE):
    return (
        *("--set", f"kube-reserved=cpu=500m,memory={memory},pid=100"),
        *("--set", f"kube-reserved-cgroup=/{slice_}"),
        *("--set", "enforce-node-allocatable=pods,kube-reserved"),
    )


def applied(machine, *more, seconds, slice_=SLICE):
    """Apply the reservation with a time for confirmation."""
    given = more or reserve(slice_=slice_)
    return apply(machine, "-f", SEED, *BIG, *given, "--confirm", str(seconds))


def rollbacks(machine):
    """Return the loaded timers and their services."""
    listed = machine.run(
        "systemctl", "list-units", "--all", "--plain", "--no-legend", "podslice-rollback*"
    ).stdout
    return sorted(line.split()[0] for line in listed.splitlines())


def elapse(machine):
    """Start the service as its timer does, whose time is not over yet."""
    service, timer = rollbacks(machine)
    machine.run("systemctl", "start", service)
    machine.run("systemctl", "stop", timer)


def wait_for(machine, unit, values):
    """Wait until a unit has these values, and the timer is removed."""

    def found():
        return show(machine, unit, *values), rollbacks(machine)

    agent.until(lambda: found() == (values, []), explain=found)


@pytest.fixture
def runtime(clean_machine):
    """A machine with podruntime.slice without any values set."""
    machine = clean_machine
    machine.put(f"/etc/systemd/system/{SLICE}", "[Unit]\nDescription=Runtimes\n")
    machine.run("systemctl", "start", SLICE)
    yield machine
    machine.run("rm", f"/etc/systemd/system/{SLICE}")


def test_old_values_are_restored_without_podslice(runtime):
    restored_without_podslice(runtime, UNSET, seconds=15)


def test_old_values_of_a_unit_file_are_restored_without_podslice(runtime):
    lines = "".join(f"{name}={value}\n" for name, value in STATED.items())
    runtime.put(f"/etc/systemd/system/{SLICE}", f"[Slice]\n{lines}")
    runtime.run("systemctl", "daemon-reload")
    restored_without_podslice(runtime, STATED, seconds=LATER_SEC)


def restored_without_podslice(runtime, stated, *, seconds):
    assert show(runtime, SLICE, *NAMES) == stated
    result = applied(runtime, seconds=seconds)
    assert f"the old values of {SLICE} are restored in {seconds} s" in result.stderr
    assert show(runtime, SLICE, *NAMES) == NEW
    # all state of podslice is removed
    runtime.run("rm", "-rf", "/run/podslice")
    runtime.run("systemctl", "daemon-reload")
    assert rollbacks(runtime) == [SERVICE, TIMER]
    if seconds == LATER_SEC:
        elapse(runtime)
    wait_for(runtime, SLICE, stated)
    runtime.run("systemctl", "daemon-reload")
    assert show(runtime, SLICE, *NAMES) == stated


def test_the_values_of_a_killed_apply_are_restored(runtime):
    """The timer exists before the values are set: at every moment one can lose the connection."""
    line = ("python3", "-m", "podslice", "apply", "-f", SEED, *BIG, *reserve(), "--confirm", "8")
    process = runtime.spawn("sh", "-c", f"cd /src && exec {' '.join(line)}")
    runtime.run(
        "sh",
        "-c",
        f"until [ $(systemctl show {SLICE} -P MemoryMax) = {NEW['MemoryMax']} ]; do sleep 0.2; done",
    )
    process.kill()
    process.wait()
    wait_for(runtime, SLICE, UNSET)
    status = runtime.podslice("status", *BIG, *reserve(), check=False)
    assert status.exit_code == 3
    assert f"the new values of {SLICE} were not confirmed: the old ones are restored" in (
        status.stdout
    )


def test_confirmed_values_stay(runtime):
    applied(runtime, seconds=300)
    status = runtime.podslice("status", "-o", "json", *BIG, *reserve())
    assert json.loads(status.stdout)["unconfirmed"]["state"] == "armed"
    assert runtime.podslice("confirm").stdout == f"confirmed the new values of {SLICE}\n"
    assert rollbacks(runtime) == []
    assert show(runtime, SLICE, *NAMES) == NEW
    again = runtime.podslice("confirm", check=False)
    assert (again.exit_code, again.stderr) == (1, "there is nothing to confirm\n")
    plan = runtime.podslice("plan", "-f", SEED, *BIG, *reserve())
    assert (plan.exit_code, plan.stdout) == (0, "nothing to do\n")


def test_restored_values_stay_until_the_next_apply(runtime):
    applied(runtime, seconds=LATER_SEC)
    elapse(runtime)
    wait_for(runtime, SLICE, UNSET)
    late = runtime.podslice("confirm", check=False)
    assert (late.exit_code, late.stdout) == (1, "")
    assert "the old ones are restored" in late.stderr
    runtime.podslice("delete", "--all", *BIG, *reserve())
    assert show(runtime, SLICE, *NAMES) == UNSET
    apply(runtime, "-f", SEED, *BIG, *reserve())
    assert show(runtime, SLICE, *NAMES) == NEW
    assert runtime.podslice("status", *BIG, *reserve()).stderr == ""


def test_a_second_restore_uses_the_first_old_values(runtime):
    applied(runtime, seconds=300)
    applied(runtime, *reserve(memory="160Mi"), seconds=LATER_SEC)
    assert [name for name in rollbacks(runtime) if name == TIMER] == []
    assert show(runtime, SLICE, "MemoryMax") == {"MemoryMax": str(160 * MI)}
    elapse(runtime)
    wait_for(runtime, SLICE, UNSET)


def test_a_system_slice_that_cannot_start_anything_is_restored(runtime):
    """The purpose of the feature: no service there, such as an SSH server, can fork."""
    machine = runtime
    before = show(machine, "system.slice", *NAMES)
    tight = (
        *("--set", "system-reserved=cpu=500m,pid=1"),
        *("--set", "system-reserved-cgroup=/system.slice"),
        *("--set", "enforce-node-allocatable=pods,system-reserved"),
    )
    # a place from which the test can observe
    look_on = "podslice-test-looker"
    script = (
        "until [ $(systemctl show system.slice -P TasksMax) = 1 ]; do sleep 0.2; done;"
        f" systemd-run --wait --quiet --collect sh -c '/bin/true; :'; echo $? > /run/{look_on}"
    )
    machine.run("systemd-run", "--slice=-.slice", f"--unit={look_on}", "sh", "-c", script)
    applied(machine, *tight, seconds=10)
    wait_for(machine, "system.slice", before)
    machine.run("sh", "-c", f"until [ -e /run/{look_on} ]; do sleep 0.2; done")
    assert machine.get(f"/run/{look_on}") != b"0\n"
    machine.run("rm", f"/run/{look_on}")
    machine.run("systemd-run", "--wait", "--quiet", "sh", "-c", "/bin/true; :")
