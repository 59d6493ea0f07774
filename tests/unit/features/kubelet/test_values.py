"""The units of a kubelet and their values, where those of the recorded node are the same."""

from dataclasses import replace

import pytest

from podslice.features.kubelet.model import KubeletPod, KubeletSettings
from podslice.features.kubelet.policy import (
    decide_pod,
    exclusive_containers,
    has_memory_qos,
    has_pod_level,
    rejects_pod_level,
)
from podslice.features.kubelet.values import expect_node
from podslice.model.config import Config, Enforce, SwapBehavior
from podslice.model.node import Node
from podslice.model.pod import ContainerKind, Qos
from podslice.model.properties import MANAGED
from podslice.model.resources import Resources
from podslice.model.unit import INFINITY, UnitKind
from tests.unit.builders import amounts, besteffort, burstable, container, guaranteed, pod

SETTINGS = KubeletSettings(config=Config(eviction_hard={}))
NODE = Node(capacity=amounts("cpu=4,memory=8Gi"))
SCOPE = "cri-containerd-0a.scope"


def running(pod_, **more):
    return KubeletPod(pod=pod_, is_running=True, scopes={"main": SCOPE}, **more)


def expect(*pods, node=NODE, default_tasks_max=None, **settings):
    settings = replace(SETTINGS, **settings)
    return expect_node(pods, node, settings, default_tasks_max=default_tasks_max)


def unit_of(expected, name):
    return next(unit for unit in expected.units if unit.name == name)


def values_of(expected, name):
    return {each.name: each.value for each in unit_of(expected, name).values}


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ((1, 27), {"cgroup.freeze"}),
        ((1, 28), {"cgroup.freeze", "memory.oom.group"}),
        ((1, 29), {"cgroup.freeze", "memory.oom.group"}),
        ((1, 30), {"cgroup.freeze", "memory.oom.group", "MemorySwapMax"}),
    ],
)
def test_what_containers_have_beside_limits_depends_on_the_version(version, names):
    names = set(names)
    found = values_of(expect(running(guaranteed("web")), version=version), SCOPE)
    assert {name for name in found if "." in name or name == "MemorySwapMax"} == names


@pytest.mark.parametrize(
    ("behavior", "value"),
    [(None, 0), (SwapBehavior.LIMITED_SWAP, 2**30), (SwapBehavior.UNLIMITED, None)],
)
def test_the_swap_of_a_container(behavior, value):
    config = replace(SETTINGS.config, memory_swap_behavior=behavior)
    web = running(burstable("web", requests="memory=2Gi"))
    found = values_of(expect(web, node=replace(NODE, swap_bytes=2**32), config=config), SCOPE)
    assert found["MemorySwapMax"] == value


def test_every_managed_property_is_compared():
    expected = expect(running(guaranteed("web")), default_tasks_max=7)
    for unit in expected.units:
        kind = UnitKind.SCOPE if unit.container else UnitKind.SLICE
        names = set(MANAGED[kind]) - ({"AllowedCPUs"} if unit.name == expected.root else set())
        has_quota = unit.pod is not None
        assert {each.name for each in unit.values} >= names - {
            *(() if has_quota else ("CPUQuotaPeriodUSec",))
        }
    assert values_of(expected, SCOPE)["TasksMax"] == 7
    assert {each.name for each in expected.sandbox} >= {*MANAGED[UnitKind.SCOPE], "TasksMax"} - {
        "CPUQuotaPeriodUSec"
    }


def test_the_limit_of_tasks_of_another_runtime_is_not_known():
    web = replace(running(guaranteed("web")), scopes={"main": "crio-0a.scope"})
    assert "TasksMax" not in values_of(expect(web, default_tasks_max=7), "crio-0a.scope")


@pytest.mark.parametrize(
    ("setting", "name"),
    [("has_static_cpus", "AllowedCPUs"), ("has_static_memory", "AllowedMemoryNodes")],
)
def test_what_the_managers_of_cpus_and_memory_set_is_not_compared(setting, name):
    found = values_of(expect(running(guaranteed("web")), **{setting: True}), SCOPE)
    assert name not in found
    assert name in values_of(expect(running(guaranteed("web"))), SCOPE)


def test_an_enforced_slice_has_no_huge_pages():
    """Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go, maybeSetHugetlb."""
    config = replace(
        SETTINGS.config,
        system_reserved_cgroup="/system.slice",
        enforce_node_allocatable=frozenset({Enforce.SYSTEM_RESERVED_COMPRESSIBLE}),
        system_reserved=amounts("cpu=1"),
    )
    found = values_of(
        expect(node=replace(NODE, hugepage_sizes=(2**21,)), config=config), "system.slice"
    )
    assert found == {"CPUWeight": 39, "hugetlb.2MB.max": "0", "hugetlb.2MB.rsvd.max": "0"}


def test_the_pod_level_counts_since_1_34():
    assert has_pod_level(replace(SETTINGS, version=(1, 34)))
    assert not has_pod_level(replace(SETTINGS, version=(1, 33)))
    rejecting = [rejects_pod_level(replace(SETTINGS, version=(1, each))) for each in range(31, 35)]
    assert rejecting == [False, True, True, False]
    level = pod("web", resources=Resources(limits=amounts("cpu=1,memory=1Gi")))
    assert expect(running(level), version=(1, 33)).units[-2].name == (
        "kubepods-besteffort-podweb.slice"
    )
    (finding,) = expect(running(level), version=(1, 33)).findings
    assert (finding.object, finding.pod) == ("default/web", "default/web")
    assert not expect(running(pod("web")), version=(1, 33)).findings


def test_values_that_pods_keep_from_before_a_change_of_the_configuration():
    web = burstable("web", limits="cpu=500m")
    expected = expect(running(web))
    quotas = frozenset({INFINITY, 500_000})
    for name in ("kubepods-burstable-podweb.slice", SCOPE):
        older = {each.name: each.older for each in unit_of(expected, name).values}
        assert {name: values for name, values in older.items() if values != frozenset()} == {
            "CPUQuotaPerSecUSec": quotas,
            "CPUQuotaPeriodUSec": None,
            **({"TasksMax": None} if name != SCOPE else {}),
        }
    assert all(each.older == frozenset() for each in unit_of(expected, "kubepods.slice").values)


def test_a_container_belongs_to_its_pod():
    mine = running(guaranteed("web"))
    expected = expect(mine)
    slice_, scope = unit_of(expected, "kubepods-podweb.slice"), unit_of(expected, SCOPE)
    assert (slice_.pod, slice_.container, scope.pod, scope.container) == (mine, None, mine, "main")
    assert scope.control_group == f"/kubepods.slice/kubepods-podweb.slice/{SCOPE}"


def test_a_kubelet_does_not_add_huge_pages_to_memory_limits():
    huge = pod("web", limits="cpu=1,memory=1Gi,hugepages-2Mi=64Mi")
    node = replace(NODE, counts_hugepages=True, hugepage_sizes=(2**21,))
    found = values_of(expect(running(huge), node=node), "kubepods-podweb.slice")
    assert found["MemoryMax"] == 2**30
    assert found["hugetlb.2MB.max"] == str(64 * 2**20)


def test_the_slices_that_pods_must_not_have():
    expected = expect(
        running(burstable("web")), KubeletPod(pod=besteffort("job"), is_terminal=True)
    )
    assert expected.terminated == {
        "kubepods-podweb.slice": "pod default/web is Burstable",
        "kubepods-besteffort-podweb.slice": "pod default/web is Burstable",
        "kubepods-podjob.slice": "pod default/job has ended",
        "kubepods-burstable-podjob.slice": "pod default/job has ended",
        "kubepods-besteffort-podjob.slice": "pod default/job has ended",
    }
    assert "job" not in "".join(unit.name for unit in expected.units)


@pytest.mark.parametrize(
    ("cpu", "is_found"), [("4", False), ("4001m", True)], ids=["all of it", "one more thousandth"]
)
def test_requests_may_be_all_that_is_allocatable(cpu, is_found):
    found = expect(running(burstable("web", requests=f"cpu={cpu}"))).findings
    assert [each.kind.value for each in found] == ["requests-exceed-allocatable"] * is_found


def test_a_resource_that_no_pod_requests_may_be_reserved_as_a_whole():
    config = replace(SETTINGS.config, system_reserved=amounts("memory=8Gi"))
    assert not expect(running(burstable("web", requests="cpu=1")), config=config).findings


def test_the_number_of_cpus():
    assert expect().cpus == 4
    assert expect(node=Node(capacity={})).cpus == 0
    assert expect(node=Node(capacity={"cpu": 2_999_000})).cpus == 2999


def test_a_sidecar_belongs_to_its_pod():
    sidecars = [
        container("s1", limits="memory=1Gi", kind=ContainerKind.SIDECAR),
        container("s2", kind=ContainerKind.SIDECAR),
    ]
    web = pod("web", containers=(container(limits="memory=1Gi"), *sidecars))
    (found,) = expect(running(web)).findings
    assert (found.kind.value, found.object, found.pod) == (
        *("sidecar-without-limit", "default/web"),
        "default/web",
    )
    assert found.message.startswith("s2 without a memory limit shares")


SHARED = container("shared", limits="cpu=1500m,memory=1Gi")
OWN = container(limits="cpu=2,memory=1Gi")
GATE = "DisableCPUQuotaWithExclusiveCPUs"


@pytest.mark.parametrize(
    ("own", "settings", "quotas"),
    [
        (OWN, {}, (None, None)),
        (OWN, {"version": (1, 33)}, (None, None)),
        (OWN, {"version": (1, 32)}, (2_000_000, 3_500_000)),
        (OWN, {"version": (1, 32), "feature_gates": {GATE: True}}, (None, None)),
        (OWN, {"feature_gates": {GATE: False}}, (2_000_000, 3_500_000)),
        (OWN, {"has_static_cpus": False}, (2_000_000, 3_500_000)),
        (container(limits="cpu=500m,memory=1Gi"), {}, (500_000, 2_000_000)),
        (container(requests="cpu=1", limits="cpu=2,memory=1Gi"), {}, (2_000_000, 3_500_000)),
    ],
)
def test_exclusive_cpus_have_no_quota(own, settings, quotas):
    web = running(pod("web", containers=(own, SHARED)))
    web = replace(web, scopes={"main": SCOPE, "shared": "cri-containerd-0b.scope"})
    expected = expect(web, **{"has_static_cpus": True, **settings})
    (slice_,) = (each.name for each in expected.units if each.name.endswith("-podweb.slice"))
    names = (SCOPE, slice_)
    assert tuple(values_of(expected, name)["CPUQuotaPerSecUSec"] for name in names) == quotas
    periods = tuple(values_of(expected, name).get("CPUQuotaPeriodUSec") for name in names)
    assert periods == tuple(quota and 100_000 for quota in quotas)
    assert values_of(expected, "cri-containerd-0b.scope")["CPUQuotaPerSecUSec"] == 1_500_000
    assert values_of(expected, slice_)["MemoryMax"] == 2 * 2**30


def test_a_container_without_a_limit_has_no_exclusive_cpus():
    settings = replace(SETTINGS, has_static_cpus=True)
    web = running(pod("web", containers=(container(limits="memory=1Gi"),)), qos=Qos.GUARANTEED)
    assert not exclusive_containers(decide_pod(web, NODE, settings), settings)


def test_a_pod_level_has_no_exclusive_cpus():
    level = amounts("cpu=4,memory=4Gi")
    web = pod("web", containers=(OWN,), resources=Resources(requests=level, limits=level))
    expected = expect(running(web), has_static_cpus=True)
    assert values_of(expected, "kubepods-podweb.slice")["CPUQuotaPerSecUSec"] == 4_000_000


def test_a_kubelet_does_not_know_podslices_annotations():
    stated = {"MemoryHigh": 2**20}
    annotated = pod("web", containers=(replace(OWN, properties=stated), SHARED), properties=stated)
    expected = expect(running(annotated))
    for unit in expected.units:
        assert values_of(expected, unit.name).get("MemoryHigh") is None


def test_values_of_a_pod_level_are_expected_only_where_the_kubelet_lacks_it():
    level = pod("web", resources=Resources(limits=amounts("memory=1Gi")))

    def levels(of, version):
        values = expect(running(of), version=version).units[-2].values
        return {each.name: each.pod_level for each in values if each.pod_level is not None}

    assert levels(level, (1, 33)) == {"CPUWeight": 1, "MemoryLow": 2**30, "MemoryMax": 2**30}
    assert not levels(level, (1, 34))
    assert not levels(pod("web"), (1, 33))


def test_the_class_of_the_status_has_effect_on_the_slice_and_not_on_the_containers():
    limited = guaranteed("web", cpu="1", memory="1Gi")
    expected = expect(running(limited, qos=Qos.BESTEFFORT))
    slice_ = "kubepods-besteffort-podweb.slice"
    assert values_of(expected, slice_)["CPUWeight"] == 1
    assert values_of(expected, slice_)["MemoryMax"] is None
    scope = unit_of(expected, SCOPE)
    assert scope.control_group == f"/kubepods.slice/kubepods-besteffort.slice/{slice_}/{SCOPE}"
    own = values_of(expect(running(limited)), SCOPE)
    assert own["MemoryMax"] == 2**30
    assert values_of(expected, SCOPE) == own
    (finding,) = expected.findings
    assert (finding.kind.value, finding.object, finding.pod, finding.hint) == (
        *("status-class", "default/web", "default/web"),
        "",
    )
    assert finding.message == (
        "the pod remains BestEffort, as its status states; the resources that kubelet 1.36 applies"
        " would make it Guaranteed"
    )
    others = ("kubepods-podweb.slice", "kubepods-burstable-podweb.slice")
    assert expected.terminated == dict.fromkeys(others, "pod default/web is BestEffort")
    assert not expect(running(limited, qos=Qos.GUARANTEED)).findings


def test_requests_count_in_the_tier_of_the_class_in_the_status():
    web = burstable("web", requests="cpu=1")
    weights = [
        values_of(expect(running(web, qos=qos)), "kubepods-burstable.slice")["CPUWeight"]
        for qos in (None, Qos.BURSTABLE, Qos.GUARANTEED, Qos.BESTEFFORT)
    ]
    assert weights == [39, 39, 1, 1]


@pytest.mark.parametrize(
    ("version", "gates", "configures", "expected"),
    [
        ((1, 36), {}, True, False),
        ((1, 36), {"MemoryQoS": True}, False, True),
        ((1, 37), {}, False, False),
        ((1, 37), {}, True, True),
        ((1, 38), {}, True, True),
        ((1, 37), {"MemoryQoS": True}, False, False),
        ((1, 37), {"MemoryQoS": False}, True, False),
    ],
)
def test_memory_is_protected_as_the_version_does(version, gates, configures, expected):
    settings = replace(
        SETTINGS, version=version, feature_gates=gates, configures_memory_qos=configures
    )
    assert has_memory_qos(settings) == expected


@pytest.mark.parametrize(("version", "qos"), [((1, 36), Qos.BESTEFFORT), ((1, 37), Qos.BURSTABLE)])
def test_an_empty_pod_level_counts_by_the_version_of_the_kubelet(version, qos):
    emptied = replace(burstable("web"), has_empty_level=True)
    decided = decide_pod(KubeletPod(pod=emptied), NODE, replace(SETTINGS, version=version))
    assert decided.class_by_resources is qos
    older = decide_pod(KubeletPod(pod=emptied), NODE, replace(SETTINGS, version=(1, 33)))
    assert older.class_by_resources is Qos.BURSTABLE
