"""Invalid input, which must not change anything, on a machine where it could."""

import pytest

from tests.cases.hostile_inputs import INPUTS
from tests.host.scenario import BIG, apply, pods, units
from tests.lab.machine import START_SERVICE

pytestmark = pytest.mark.namespace


def test_hostile_files_end_in_exit_2_and_change_nothing(clean_machine):
    machine = clean_machine
    command = ("python3", "-m", "tests.cases.hostile_inputs", "/tmp/hostile")
    machine.run("env", "PYTHONPATH=/src", "PYTHONDONTWRITEBYTECODE=1", *command)
    assert len(INPUTS) >= 40
    for name in INPUTS:
        result = apply(machine, "-f", f"/tmp/hostile/{name}", *BIG, check=False)
        assert result.exit_code == 2, name
        assert result.stdout == ""
        assert f"hostile/{name}" in result.stderr
        assert result.stderr.startswith("error: ")
        assert "Traceback" not in result.stderr
        assert all(c.isprintable() or c == "\n" for c in result.stderr)
    assert units(machine) == []


def test_one_invalid_pod_stops_all_before_anything_is_changed(clean_machine):
    machine = clean_machine
    machine.put("/tmp/pods.yaml", pods(2) + "---\n" + pods(1, memory="8MiB", prefix="bad"))
    result = apply(machine, "-f", "/tmp/pods.yaml", *BIG, check=False)
    assert result.exit_code == 2
    assert "/tmp/pods.yaml[2]: spec.containers[0].resources.limits[memory]: '8MiB'" in result.stderr
    assert units(machine) == []


def test_a_pod_that_does_not_fit_is_refused_and_the_others_are_applied(clean_machine):
    machine = clean_machine
    machine.put(
        "/tmp/pods.yaml",
        pods(2) + "---\n" + pods(1, cpu="90", prefix="big").replace("cpu: 100m", "cpu: 100"),
    )
    result = apply(machine, "-f", "/tmp/pods.yaml", *BIG, check=False)
    assert result.exit_code == 1
    assert "pod default/big-0 refused: OutOfcpu: requests 90 of cpu" in result.stdout
    assert len(units(machine)) == 5
    again = apply(machine, "-f", "/tmp/pods.yaml", *BIG, "--set", "admission=false")
    assert again.exit_code == 0


def test_a_kubelet_that_owns_the_root_is_not_disturbed(clean_machine):
    machine = clean_machine
    machine.run("cp", "/bin/sleep", "/tmp/kubelet")
    machine.run(*START_SERVICE, "--unit=podlab-kubelet", "/tmp/kubelet", "1000")
    try:
        result = apply(machine, "-f", "/src/examples/seeds/pods.yaml", *BIG, check=False)
        assert result.exit_code == 1
        assert "a kubelet runs on this host (process " in result.stderr
        assert 'cgroup-root = "/podslice"' in result.stderr
        assert units(machine) == []
        elsewhere = ("--set", "cgroup-root=/podslice")
        apply(machine, "-f", "/src/examples/seeds/pods.yaml", *BIG, *elsewhere)
        assert "podslice-kubepods-burstable.slice" in units(machine)
        machine.podslice("delete", "--all", *elsewhere)
    finally:
        machine.run("systemctl", "stop", "podlab-kubelet.service")


def test_an_unprivileged_user_gets_a_hint(clean_machine):
    machine = clean_machine
    result = machine.run(
        *("runuser", "-u", "lab", "--", "env", "PYTHONPATH=/src", "PYTHONDONTWRITEBYTECODE=1"),
        *("python3", "-m", "podslice", "apply", "-f", "/src/examples/seeds/pods.yaml", *BIG),
        check=False,
    )
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "run as root, or use --user" in result.stderr
