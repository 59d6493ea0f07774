"""Unit files create the same tree without podslice."""

import pytest

from tests.host.scenario import BIG, SEED, apply, show, units

VALUES = ("CPUWeight", "CPUQuotaPerSecUSec", "MemoryLow", "MemoryMax", "TasksMax", "Description")
DIRECTORY = "/run/systemd/system"


@pytest.fixture
def rendered(clean_machine):
    """A machine with the unit files of the proposals' pods, and the values that apply sets."""
    machine = clean_machine
    apply(machine, "-f", SEED, *BIG, "--set", "qos-reserved=memory=50%")
    made = {unit: values_of(machine, unit) for unit in units(machine)}
    machine.podslice("delete", "--all")
    render = ("render", "-f", SEED, *BIG, "--set", "qos-reserved=memory=50%")
    files = machine.podslice(*render, "--output-dir", DIRECTORY).stdout.split()
    machine.run("systemctl", "daemon-reload")
    yield machine, files, made
    machine.run("systemctl", "stop", *made)
    machine.run("rm", "-f", *files)
    machine.run("systemctl", "daemon-reload")


def values_of(machine, unit):
    found = show(machine, unit, *VALUES, "ControlGroup")
    if machine.cgroup_version == 2 and machine.has_controllers:
        for file in ("cpu.weight", "cpu.max", "memory.low", "memory.max", "pids.max"):
            found[file] = machine.get(f"/sys/fs/cgroup{found['ControlGroup']}/{file}")
    return found


def test_the_files_have_the_values_of_apply(rendered):
    machine, files, made = rendered
    assert sorted(file.rpartition("/")[2] for file in files) == sorted(made)
    machine.run("systemctl", "start", *made)
    assert {unit: values_of(machine, unit) for unit in made} == made


@pytest.mark.namespace
@pytest.mark.newest
def test_systemd_reports_no_problem_with_them(rendered):
    machine, files, _ = rendered
    result = machine.run("systemd-analyze", "verify", *files)
    assert (result.exit_code, result.stdout + result.stderr) == (0, "")


@pytest.mark.namespace
def test_they_can_be_enabled_at_boot(rendered):
    machine, _, made = rendered
    machine.run("systemctl", "enable", "--runtime", *made)
    wanted = show(machine, "slices.target", "Wants")["Wants"].split()
    assert set(made) <= set(wanted)
    machine.run("systemctl", "disable", "--runtime", *made)


@pytest.mark.namespace
def test_apply_takes_over_the_slices_unchanged(rendered):
    machine, _, made = rendered
    machine.run("systemctl", "start", *made)
    done = apply(machine, "-f", SEED, *BIG, "--set", "qos-reserved=memory=50%").stdout
    assert done == "nothing to do\n"
    machine.podslice("delete", "--all")
