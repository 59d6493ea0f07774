"""The playbook of examples/fleet, with three hosts: as an administrator without root uses it."""

import json
import re
from functools import partial
from types import SimpleNamespace

import pytest
import yaml

from tests.fleet.controller import HERE

README = HERE.parents[1] / "packaging/ansible/README.md"
RUNTIME = "containerd.service"
# podslice is installed; test_package.py has a host without it
INSTALLED = {"podslice_install": "none"}
AGENTS = {"build1": "agent", "web1": "boot", "db1": "none"}
GREEDY = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "greedy"},
    "spec": {
        "containers": [{"name": "main", "resources": {"requests": {"memory": "64Gi"}}}],
    },
}
# 100 of CPUWeight for each requested CPU
VALUES = {
    "web": {"CPUWeight": "100", "MemoryLow": str(2 << 30), "MemoryMax": str(4 << 30)},
    "postgres": {"CPUWeight": "200", "CPUQuotaPerSecUSec": "2s", "MemoryLow": str(8 << 30)},
}
# the limit of memory and the quota, with cgroup v1 or v2
OF_KERNEL = """
group=$(systemctl show -P ControlGroup {unit})
cd /sys/fs/cgroup
if [ -e memory ]; then
  cat memory$group/memory.limit_in_bytes
  echo $(cat cpu$group/cpu.cfs_quota_us cpu$group/cpu.cfs_period_us)
else
  cat .$group/memory.max .$group/cpu.max
fi
"""
SMALL = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "report"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}]},
}


@pytest.fixture(scope="module")
def site(controller, fleet):
    """The playbook, with an inventory of three hosts; one runs a container runtime."""
    controller.take_example()
    rows = {name: {**INSTALLED, "podslice_agent": agent} for name, agent in AGENTS.items()}
    hosts = [{name: row} for name, row in rows.items()]
    controller.inventory(dict(zip(("build", "web", "database"), hosts, strict=True)))
    fleet["build1"].machine.put(
        f"/etc/systemd/system/{RUNTIME}", "[Service]\nExecStart=sleep inf\n"
    )
    fleet["build1"].sh(f"systemctl daemon-reload && systemctl start {RUNTIME}")
    yield partial(controller.play, "site.yml")
    fleet["build1"].sh(f"systemctl stop {RUNTIME}")


def observe(fleet):
    return {name: host.observe() for name, host in fleet.items()}


def observed(fleet, play, *arguments):
    """Return the result of a run, with the state of all hosts before and after it."""
    before = observe(fleet)
    ran = play(*arguments)
    return SimpleNamespace(ran=ran, before=before, after=observe(fleet))


def slice_of(host, pod):
    shown = host.run("podslice", "status", "-o", "json", check=False).stdout
    units = json.loads(shown)["units"]
    (found,) = [u["name"] for u in units if u["pod"] == f"default/{pod}" and u["kind"] == "slice"]
    return found


def groups_of(ran, task):
    return {name: ran.result(name, task)["add_group"] for name in AGENTS}


@pytest.fixture(scope="module")
def checked(site, fleet):
    return observed(fleet, site, "--check")


@pytest.fixture(scope="module")
def first(checked, site, fleet):
    return observed(fleet, site)


@pytest.fixture(scope="module")
def second(first, site, fleet):
    return observed(fleet, site)


@pytest.fixture(scope="module")
def drifted(second, site, fleet):
    """A run after a value was changed on one host."""
    host = fleet["web1"]
    host.sh(f"systemctl set-property --runtime {slice_of(host, 'web')} MemoryMax=3G")
    return observed(fleet, site)


@pytest.fixture(scope="module")
def stopped(drifted, site, fleet, controller):
    """A run in which a pod of the first host does not fit, and the last one has another pod."""
    controller.write("host_vars/build1.yml", {"podslice_pods": [{"definition": GREEDY}]})
    controller.write("host_vars/db1.yml", {"podslice_pods": [{"definition": SMALL}]})
    found = observed(fleet, site)
    (controller.directory / "host_vars/build1.yml").unlink()
    return found


@pytest.fixture(scope="module")
def limited(stopped, site, fleet):
    return observed(fleet, site, "--limit=database")


def test_check_mode_changes_nothing(checked, fleet):
    assert checked.ran.code == 0, checked.ran.output
    assert all(checked.ran.changed()[name] for name in fleet)
    assert checked.after == checked.before


def test_check_mode_shows_the_units_and_files_that_would_change(checked):
    diff = checked.ran.output
    assert "+  MemoryMax: 4Gi\n" in diff
    assert "# default/web\n" in diff
    assert "+++ after: /etc/podslice/manifests/postgres.yaml\n" in diff


def test_the_first_run_applies_configuration_and_pods(first, fleet):
    assert first.ran.code == 0, first.ran.output
    assert fleet["db1"].show(slice_of(fleet["db1"], "postgres"), "MemoryMax") == str(8 << 30)
    assert fleet["web1"].show(slice_of(fleet["web1"], "web"), "MemoryMax") == str(4 << 30)
    assert "qos-reserved" in fleet["db1"].sh("cat /etc/podslice/podslice.toml.d/50-ansible.toml")
    for name, agent in AGENTS.items():
        is_running = fleet[name].show("podslice-agent.service", "ActiveState")
        assert is_running == ("active" if agent == "agent" else "inactive"), name
        at_boot = fleet[name].show("podslice-apply.service", "UnitFileState")
        assert at_boot == ("enabled" if agent == "boot" else "disabled"), name


def test_values_are_those_of_the_manifests_and_the_kernel_has_them(first, fleet):
    """Those of cgroup v2 are the same as for `podslice apply`, which test_apply.py reads."""
    for host, pod in (("web1", "web"), ("db1", "postgres")):
        unit = slice_of(fleet[host], pod)
        found = {name: fleet[host].show(unit, name) for name in VALUES[pod]}
        assert found == VALUES[pod], pod
    assert fleet["web1"].show("kubepods-burstable.slice", "MemoryLow") == str(2 << 30)
    kernel = fleet["db1"].sh(OF_KERNEL.format(unit=slice_of(fleet["db1"], "postgres")))
    assert kernel.splitlines() == [str(8 << 30), "200000 100000"]


def test_values_of_reserved_slices_are_confirmed_over_a_new_login(first, fleet):
    """The slice of sshd is limited only where the group enforces it."""
    assert [row["confirmed"] for row in first.ran.results("build1", "Reserve")] == [True]
    assert [row for row in first.ran.results("web1", "Reserve") if "confirmed" in row] == []
    assert fleet["build1"].show("system.slice", "MemoryMax") == str(1 << 30)
    assert fleet["web1"].show("system.slice", "MemoryMax") == "infinity"
    assert "unconfirmed" not in first.ran.result("build1", "Ask each host").get("problems", ())


def test_a_moved_container_runtime_is_restarted_once(first, second, fleet):
    assert first.ran.results("build1", "Restart moved")
    assert fleet["build1"].show(RUNTIME, "ControlGroup") == f"/podruntime.slice/{RUNTIME}"
    assert not second.ran.results("build1", "Restart moved")
    for name in ("web1", "db1"):
        assert not first.ran.results(name, "Restart moved")


def test_the_second_run_changes_nothing(second):
    assert second.ran.code == 0, second.ran.output
    assert set(second.ran.changed().values()) == {0}
    assert second.after == second.before
    assert "+++" not in second.ran.output


def test_hosts_are_grouped_by_their_health(second):
    found = {name: second.ran.result(name, "Ask each host") for name in AGENTS}
    assert {name: [each["kind"] for each in row["problems"]] for name, row in found.items()} == {
        "build1": [],
        "web1": [],
        "db1": ["agent-stopped"],  # nothing applies its manifests
    }
    assert groups_of(second.ran, "Form groups") == {
        "build1": "podslice_healthy",
        "web1": "podslice_healthy",
        "db1": "podslice_unhealthy",
    }


def test_drift_is_repaired_on_its_host_only(drifted):
    assert drifted.ran.code == 0, drifted.ran.output
    assert drifted.ran.changed() == {"build1": 0, "web1": 1, "db1": 0}
    assert drifted.after["build1"] == drifted.before["build1"]
    assert drifted.after["db1"] == drifted.before["db1"]
    assert drifted.after["web1"] != drifted.before["web1"]


def test_the_difference_is_a_few_readable_lines(drifted, fleet):
    unit = slice_of(fleet["web1"], "web")
    shown = re.search(r"--- before: units\n(?:[-+ @].*\n)*", drifted.ran.output)
    assert shown[0].splitlines() == [
        "--- before: units",
        "+++ after: units",
        "@@ -1,2 +1,2 @@",
        f" {unit}:  # default/web",
        "-  MemoryMax: 3Gi",
        "+  MemoryMax: 4Gi",
    ]
    assert drifted.ran.output.count("--- before") == 1


def test_a_refused_pod_stops_the_play_before_the_next_batch(stopped):
    assert stopped.ran.code == 2, stopped.ran.output
    assert stopped.ran.stats["build1"]["failures"] == 1
    assert "pod default/greedy is refused: OutOfmemory" in stopped.ran.output
    assert stopped.after["build1"] == stopped.before["build1"]
    # the last host has another pod to apply, and was not reached
    assert "db1" not in stopped.ran.stats
    assert stopped.after == stopped.before


def test_limit_applies_to_hosts_of_a_group(limited):
    assert limited.ran.code == 0, limited.ran.output
    assert limited.ran.changed() == {"db1": 1}
    assert "# default/report" in limited.ran.output
    assert limited.after["db1"] != limited.before["db1"]
    assert {**limited.after, "db1": None} == {**limited.before, "db1": None}


def test_hosts_with_problems_are_repaired_as_a_group(limited, controller, fleet):
    """The plays in the README of the collection."""
    chapter = README.read_text().partition("## State of a fleet")[2]
    plays = yaml.safe_load(re.search(r"```yaml\n(.*?)```", chapter, re.DOTALL)[1])
    host = fleet["web1"]
    host.sh(f"systemctl set-property --runtime {slice_of(host, 'web')} MemoryMax=3G")
    ran = controller.play(plays)
    assert ran.code == 0, ran.output
    assert groups_of(ran, "A group") == {
        "build1": "podslice_healthy",
        "web1": "podslice_unhealthy",
        "db1": "podslice_unhealthy",
    }
    assert ran.changed() == {"build1": 0, "web1": 1, "db1": 0}
    assert host.show(slice_of(host, "web"), "MemoryMax") == str(4 << 30)
