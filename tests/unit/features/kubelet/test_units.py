"""The audit of a recorded node, and of the same node with planted faults.

Every fault of `cases/faults.toml` must give its findings, and no others.
"""

import json
import tomllib
from datetime import datetime
from pathlib import Path

import pytest

from podslice.features.kubelet.config import read_settings
from podslice.features.kubelet.model import FindingKind
from podslice.features.kubelet.pods import read_pod_list
from podslice.features.kubelet.units import KubeletHost, audit_units
from podslice.features.kubelet.values import expect_node
from podslice.kernel.cgroup import CgroupFs
from podslice.model.node import Node
from podslice.model.unit import UnitName
from tests.cases.tables import cases
from tests.unit.features.kubelet.recorded_node import CASES, DEFAULT_TASKS_MAX, RecordedNode

ROOT = Path(__file__).resolve().parents[4]
FAULTS = tomllib.loads((CASES / "faults.toml").read_text())["fault"]
HUGE = 2**21
NODE = Node(
    capacity={
        "cpu": 4000,
        "memory": 4112412672_000,
        "pid": 31299_000,
        "hugepages-2Mi": 32 * HUGE * 1000,
    },
    hugepage_sizes=(HUGE,),
)
OF_CONTAINER = 4712
"""A process with a mount namespace of its own."""
KNOWN = {
    ("sidecar-without-limit", "default/b-sidecar2-open", ""),
    ("root-cpus", "kubepods.slice", "cpuset.cpus"),
}
"""What the recorded node has: known behaviour, and no problem."""


@pytest.fixture
def node():
    return RecordedNode()


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A directory for one node after the other, whose six hundred files are nearly the same."""
    return tmp_path_factory.mktemp("machine")


def plant(node, fault):
    """Change the recorded node as a fault states it."""
    node.config |= fault.get("config", {})
    node.pods = [each for each in node.pods if each["metadata"]["name"] != fault.get("forget")]
    if "pod" in fault:
        (pod,) = (e for e in node.pods if e["metadata"]["name"] == fault["pod"]["name"])
        pod |= {key: fault["pod"][key] for key in ("spec", "status") if key in fault["pod"]}
        pod["spec"] |= {"runtimeClassName": fault["pod"].get("runtime")}
        pod["metadata"] |= {"deletionTimestamp": fault["pod"].get("deleted")}
        pod["metadata"] |= {"annotations": fault["pod"].get("annotations", {})}
        pod["status"] |= {"conditions": fault["pod"].get("conditions", [])}
        pod["status"] |= {key: fault["pod"][key] for key in ("qosClass",) if key in fault["pod"]}
    if "unit" not in fault:
        return
    if "add" in fault:
        unit = {"files": {}, "properties": fault.get("systemd")}
        node.units[f"{node.path(fault['unit'])}/{fault['add']}"] = unit
        return
    path = node.path(fault["unit"])
    if "rename" in fault:
        node.units = {
            each.replace(path, fault["rename"]): unit for each, unit in node.units.items()
        }
        path = fault["rename"]
    unit = node.units[path]
    unit["files"] |= fault.get("files", {})
    unit |= {key: fault[key] for key in ("process",) if key in fault}
    properties = unit["properties"] | fault.get("systemd", {})
    unit["properties"] = {key: value for key, value in properties.items() if value}
    if fault.get("remove") or "move" in fault:
        del node.units[path]
    if "move" in fault:
        node.units[f"{fault['move']}/{path.rpartition('/')[2]}"] = unit


def write_processes(node, proc):
    """Write process 1, a process of the host in each unit that has one, and one with own mounts."""
    processes = [unit["process"] for unit in node.units.values() if "process" in unit]
    for pid in (1, *processes):
        (proc / f"{pid}/ns").mkdir(parents=True, exist_ok=True)
        own = "mnt:[7]" if pid == OF_CONTAINER else "mnt:[1]"
        (proc / f"{pid}/ns/mnt").unlink(missing_ok=True)
        (proc / f"{pid}/ns/mnt").symlink_to(own)
        (proc / f"{pid}/comm").write_text("sleep\n")


def run_audit(
    node,
    directory,
    *,
    changed="1970-01-01T00:00:00Z",
    version=(1, 36),
    own=None,
    pause=lambda _: None,
):
    """Audit the node as the verb does."""
    node.write(directory / "cgroup")
    write_processes(node, directory / "proc")
    file = directory / "pods.json"
    file.write_text(json.dumps(node.document()))
    settings = read_settings(
        json.dumps(node.config).encode(),
        "config.yaml",
        changed_sec=int(datetime.fromisoformat(changed).timestamp()),
        version=version,
    )
    pods = read_pod_list([str(file)], lambda: b"")
    expected = expect_node(pods, NODE, settings, default_tasks_max=DEFAULT_TASKS_MAX)
    host = KubeletHost(
        observed=node.observed(),
        cgroups=CgroupFs(mount=directory / "cgroup"),
        own=own or {},
        root=directory,
        pause=pause,
    )
    return audit_units(expected, host, settings)


def found_in(audit):
    return {(each.kind.value, each.object, each.property or "") for each in audit.findings}


def test_the_recorded_node_has_only_known_behaviour(node, machine):
    audit = run_audit(node, machine)
    assert found_in(audit) == KNOWN
    assert not audit.problems
    names = {unit.expected.name for unit in audit.units if unit.exists}
    assert {path.rpartition("/")[2] for path in node.units} - names == {
        "podruntime.slice",
        "system.slice",
        "user.slice",
    }


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"])
def test_every_planted_fault_is_found(fault, node, machine):
    recorded = RecordedNode()
    plant(node, fault)
    options = {k: fault[k] for k in ("changed",) if k in fault}
    own = {node.path(fault["unit"]).rpartition("/")[2]: fault["own"]} if "own" in fault else {}
    audit = run_audit(node, machine, own=own, **options)

    def object_of(name):
        if name.endswith((".slice", ".service", ".scope", "mine")) or name.startswith("default/"):
            return name
        return recorded.path(name).rpartition("/")[2]

    expected = {(kind, object_of(name), property_) for kind, name, property_ in fault["expect"]}
    has_root_cpus = any(kind == "cpus-missing" for kind, _, _ in expected)
    known = {each for each in KNOWN if not (has_root_cpus and each[0] == "root-cpus")}
    assert found_in(audit) - known == expected
    assert known <= found_in(audit)
    for each in audit.findings:
        assert each.message
        assert each.kind.is_known or each.hint


def test_every_kind_has_a_fault_and_is_in_the_manual():
    planted = {kind for fault in FAULTS for kind, _, _ in fault["expect"]}
    planted |= {kind for kind, _, _ in KNOWN}
    # an older kubelet has them, below
    older = {"pod-level-ignored", "pod-level-rejected", "pod-level-by-kubelet"}
    assert planted | older == set(FindingKind)
    manual = (ROOT / "packaging/man/podslice-kubelet.7.md").read_text()
    problems, _, known = manual.partition("# KNOWN BEHAVIOUR")
    for kind in FindingKind:
        assert f"\n| `{kind}` | " in (known if kind.is_known else problems)


@pytest.mark.parametrize(
    ("version", "gates", "kind"),
    [
        ((1, 31), {}, "pod-level-ignored"),
        ((1, 33), {}, "pod-level-rejected"),
        ((1, 36), {"PodLevelResources": False}, "pod-level-rejected"),
    ],
)
def test_a_kubelet_that_does_not_apply_pod_levels(node, machine, version, gates, kind):
    """The slices have the values of the pod level, which podslice has not set."""
    node.config["featureGates"] = gates
    for name in LEVELS:  # none of the values is left
        unit = node.units[node.path(name)]
        unit["properties"]["CPUWeight"] = unit["files"]["cpu.weight"] = "7"
    audit = run_audit(node, machine, version=version)
    kinds = {each.kind.value: set() for each in audit.findings}
    for each in audit.findings:
        kinds[each.kind.value].add(each.pod)
    assert kinds[kind] == {f"default/{name}" for name in LEVELS}
    assert "pod-level-applied" not in kinds
    is_known = kind == "pod-level-rejected"
    assert ("default/p-limits" in kinds.get("pod-level-by-kubelet", ())) is is_known
    node.config["featureGates"] = {"PodLevelResources": True}
    kinds = {each.kind.value for each in run_audit(node, machine, version=version).findings}
    assert not kinds & {"pod-level-ignored", "pod-level-rejected", "pod-level-by-kubelet"}


def test_a_kubelet_that_applies_pod_levels_by_a_flag(node, machine):
    """The gate is in no document, and the slices have the values."""
    kinds = {}
    for each in run_audit(node, machine, version=(1, 33)).findings:
        kinds.setdefault(each.kind.value, set()).add(each.pod)
    assert kinds["pod-level-by-kubelet"] >= {"default/p-limits", "default/h-level"}
    assert not kinds.get("pod-level-rejected", set()) & kinds["pod-level-by-kubelet"]


LEVELS = ("p-burstable", "p-guaranteed", "p-limits", "h-level")


def test_an_older_kubelet_keeps_pods_in_the_class_of_their_status(node, machine):
    """The API server is newer than the kubelet: it has classified the pods by their pod level."""
    audit = run_audit(node, machine, version=(1, 33))
    assert not {"unit-missing", "unit-orphaned"} & {each.kind.value for each in audit.findings}
    messages = {each.object: each.message for each in audit.findings if each.kind == "status-class"}
    assert messages == {
        "default/p-guaranteed": "the pod remains Guaranteed, as its status states; the resources"
        " that kubelet 1.33 applies would make it BestEffort"
    }
    for pod in node.pods:
        pod["status"].pop("qosClass", None)
    audit = run_audit(node, machine, version=(1, 33))
    besteffort = "kubepods-besteffort-pod5e081cae_3880_5afd_aa22_0cc2db370ebd.slice"
    assert ("unit-missing", besteffort, "") in found_in(audit)


@pytest.mark.parametrize("stated", [None, "", "guaranteed", 7, ["BestEffort"]])
def test_without_a_valid_class_in_the_status_the_resources_decide(stated, node, machine):
    for pod in node.pods:
        pod["status"]["qosClass"] = stated
    assert found_in(run_audit(node, machine)) == KNOWN


@pytest.mark.parametrize("version", [(1, 33), (1, 36)])
def test_a_pod_level_in_an_annotation_is_not_the_kubelets(node, machine, version):
    before = found_in(run_audit(node, machine, version=version))
    for pod in node.pods:
        if "resources" not in pod["spec"]:
            text = '{"limits": {"cpu": "7", "memory": "7Gi"}}'
            pod["metadata"]["annotations"] = {"podslice.io/resources": text}
    assert found_in(run_audit(node, machine, version=version)) == before


def test_a_pod_level_that_the_agent_applies_is_not_ignored(node, machine):
    # the slices have the values of kubelet 1.36, without the protection that the agent adds
    unit = node.units[node.path("p-limits")]
    unit["properties"]["MemoryLow"] = unit["files"]["memory.low"] = "16777216"
    levels = {"CPUWeight": 4, "MemoryMax": 100663296, "MemoryLow": 16777216}
    own = {node.path("p-limits").rpartition("/")[2]: levels}
    audit = run_audit(node, machine, version=(1, 31), own=own)
    of_kind = {each.kind.value: set() for each in audit.findings}
    for each in audit.findings:
        of_kind[each.kind.value].add(each.pod)
    assert "default/p-limits" in of_kind["pod-level-applied"]
    assert of_kind["pod-level-ignored"] == {
        *("default/p-burstable", "default/p-guaranteed", "default/h-level")
    }


def test_what_passes_while_the_audit_waits_is_not_found(node, tmp_path):
    group = f"{node.path('e-two')}/mine"
    node.units[group] = {"files": {}, "properties": None}
    node.units[node.path("b-both/a")]["process"] = 4711

    def end(_):
        (tmp_path / f"cgroup{group}").rmdir()
        (tmp_path / f"cgroup{node.path('b-both/a')}/cgroup.procs").write_text("")

    assert found_in(run_audit(node, tmp_path, pause=end)) == KNOWN


@cases
def test_the_remedy_states_what_sets_the_value_again(unit, systemd, files, hint, node, machine):
    path = node.path(unit)
    node.units[path]["properties"] |= systemd
    node.units[path]["files"] |= files
    (found,) = run_audit(node, machine).problems
    directory = f"{machine}/cgroup{path}"
    assert found.hint == hint.replace("CGROUP", directory).replace("UNIT", found.object)


@pytest.mark.parametrize(
    ("systemd", "kernel", "text"),
    [("2", "2", None), ("", "", "unset"), ("0-1", "0-1", "0-1"), ("2", "2-3", "2-3")],
)
def test_a_container_with_cpus_of_its_own_has_their_number(systemd, kernel, text, node, machine):
    node.config["cpuManagerPolicy"] = "static"
    (pod,) = (each for each in node.pods if each["metadata"]["name"] == "g-one")
    resources = {"cpu": "1", "memory": "64Mi"}
    pod["spec"]["containers"][0]["resources"] = {"limits": resources, "requests": resources}
    for name, weight in (("g-one", "39"), ("g-one/a", "100")):
        unit = node.units[node.path(name)]
        unit["properties"] |= {"CPUWeight": weight}
        unit["properties"].pop("CPUQuotaPerSecUSec")
        unit["files"] |= {"cpu.weight": weight, "cpu.max": "max 100000"}
    scope = node.units[node.path("g-one/a")]
    scope["properties"]["AllowedCPUs"], scope["files"]["cpuset.cpus"] = systemd, kernel
    found = run_audit(node, machine).problems
    message = f"AllowedCPUs is {text}, and the container has 1 CPU for itself"
    assert [each.message for each in found] == [message] * (text is not None)


def test_a_quota_from_before_the_kubelet_enforced_none(node, machine):
    node.config["cpuCFSQuota"] = False
    kinds = {each.kind.value for each in run_audit(node, machine).findings}
    assert "older-configuration" not in kinds
    audit = run_audit(node, machine, changed="2026-01-03T00:00:00Z")
    assert found_in(audit) >= {
        ("older-configuration", node.path(name).rpartition("/")[2], "CPUQuotaPerSecUSec")
        for name in ("g-one", "g-one/a")
    }
    assert not audit.problems


def test_without_a_root_that_is_the_only_finding(node, machine):
    node.config["cgroupRoot"] = "/other"
    audit = run_audit(node, machine)
    assert found_in(audit) == {("unit-missing", "other-kubepods.slice", "")}
    assert audit.units == ()


def test_an_older_kubelet_limits_neither_swap_nor_oom_groups(node, machine):
    for unit in node.units.values():
        unit["files"] |= {"memory.oom.group": "0", "memory.swap.max": "max"}
    node.config["featureGates"] = {"PodLevelResources": True}
    assert found_in(run_audit(node, machine, version=(1, 27))) == KNOWN


def test_a_mirror_pod_has_the_uid_of_its_static_pod(node, machine):
    for pod in node.pods:
        metadata = pod["metadata"]
        metadata["annotations"] = {"kubernetes.io/config.mirror": metadata["uid"]}
        metadata["uid"] = f"{metadata['uid'][:-4]}ffff"
    assert found_in(run_audit(node, machine)) == KNOWN


def test_cgroup_v1_has_no_values_to_compare(node, tmp_path):
    node.write(tmp_path / "cgroup")
    for unit in node.units.values():
        unit["files"] = {"memory.max": "1"}
    audit = run_audit(node, tmp_path)
    assert audit.problems
    (tmp_path / "cgroup/cgroup.controllers").unlink()
    settings = read_settings(json.dumps(node.config).encode(), "config.yaml")
    pods = read_pod_list([str(tmp_path / "pods.json")], lambda: b"")
    expected = expect_node(pods, NODE, settings)
    host = KubeletHost(
        observed=node.observed(), cgroups=CgroupFs(mount=tmp_path / "cgroup"), own={}
    )
    audit = audit_units(expected, host, settings)
    assert not audit.problems
    assert UnitName("kubepods.slice") in {unit.expected.name for unit in audit.units}
