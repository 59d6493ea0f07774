import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from podslice import __version__
from podslice.agent.context import Counters, Operation
from podslice.agent.endpoints.metrics import CONTENT_TYPE, collect, expose
from podslice.kernel.cgroup import Sample
from podslice.model.config import SwapBehavior
from podslice.model.pod import Qos
from podslice.usage.stats import ContainerStats
from tests.unit import builders
from tests.unit.agent import sample_node

MI, GI = 2**20, 2**30
WEB = {"namespace": "default", "pod": "web"}
IDE = {"namespace": "default", "pod": "ide"}
MAIN = {"container": "main", **WEB}

# names that are the kubelet's, with their labels
# Source: Kubernetes, pkg/kubelet/metrics/collectors/resource_metrics.go
RESOURCE_METRICS = {
    "node_cpu_usage_seconds_total": set(),
    "node_memory_working_set_bytes": set(),
    "node_swap_usage_bytes": set(),
    "container_cpu_usage_seconds_total": {"container", "pod", "namespace"},
    "container_memory_working_set_bytes": {"container", "pod", "namespace"},
    "container_swap_usage_bytes": {"container", "pod", "namespace"},
    "pod_cpu_usage_seconds_total": {"pod", "namespace"},
    "pod_memory_working_set_bytes": {"pod", "namespace"},
    "pod_swap_usage_bytes": {"pod", "namespace"},
}


def exposed(stats=None, **fields):
    """The samples as the parser of Prometheus reads them: (name, labels) → value."""
    parts = expose(sample_node.snapshot(**fields), stats or sample_node.default_stats())
    text = b"".join(parts).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


@pytest.fixture(scope="module")
def found():
    return exposed()


def value(found, name, **labels):
    return found[name, frozenset(labels.items())]


def labels_of(found, name):
    return [dict(labels) for each, labels in found if each == name]


@pytest.mark.parametrize(("name", "labels"), RESOURCE_METRICS.items())
def test_the_kubelet_s_metrics_have_its_labels(found, name, labels):
    assert labels_of(found, name)
    assert all(set(each) == labels for each in labels_of(found, name))


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("node_cpu_usage_seconds_total", {}, 150.0),
        ("pod_cpu_usage_seconds_total", WEB, 1.5),
        ("container_memory_working_set_bytes", MAIN, 48 * MI),
        ("pod_swap_usage_bytes", WEB, 4096),
        ("podslice_pod_memory_usage_bytes", WEB, 64 * MI),
        ("podslice_pod_tasks", WEB, 3),
        ("podslice_pod_cpu_cfs_periods_total", WEB, 40),
        ("podslice_pod_cpu_cfs_throttled_periods_total", WEB, 10),
        ("podslice_pod_cpu_cfs_throttled_seconds_total", WEB, 0.25),
        ("podslice_pod_oom_kills_total", WEB, 2),
        ("podslice_pod_written_bytes_total", {**WEB, "device": "254:0"}, 8192),
        ("podslice_pod_pressure_waiting_seconds_total", {**WEB, "resource": "cpu"}, 0.5),
        ("podslice_pod_pressure_stalled_seconds_total", {**WEB, "resource": "io"}, 0.3),
        ("podslice_pod_start_time_seconds", WEB, 1_700_000_060),
        ("podslice_pod_volume_used_bytes", {**WEB, "volume": "cache"}, 4 * MI),
        ("podslice_pod_volume_capacity_bytes", {**WEB, "volume": "cache"}, 16 * MI),
        ("container_threads", MAIN, 3),
        ("container_cpu_cfs_throttled_seconds_total", MAIN, 0.25),
        ("container_oom_events_total", MAIN, 2),
        ("container_pressure_memory_waiting_seconds_total", MAIN, 1.0),
        ("container_pressure_memory_stalled_seconds_total", MAIN, 0.2),
        ("podslice_node_pressure_waiting_seconds_total", {"resource": "memory"}, 100.0),
        ("podslice_group_memory_working_set_bytes", {"group": "pods"}, 480 * MI),
        ("podslice_group_cpu_usage_seconds_total", {"group": "misc"}, 22.5),
        (
            "podslice_group_pressure_waiting_seconds_total",
            {"group": "misc", "resource": "cpu"},
            7.5,
        ),
        ("podslice_group_oom_kills_total", {"group": "burstable"}, 22),
        ("kubelet_running_pods", {}, 3),
        ("kubelet_running_containers", {"container_state": "running"}, 4),
        ("podslice_pods", {"qos_class": "Burstable"}, 1),
    ],
)
def test_counters_of_control_groups_are_in_base_units(found, name, labels, expected):
    assert value(found, name, **labels) == expected


def test_requests_limits_and_reservations_are_exposed(found):
    def amount(name, **labels):
        return value(found, f"podslice_{name}", **labels)

    cpu, memory = {"resource": "cpu", "unit": "cores"}, {"resource": "memory", "unit": "bytes"}
    assert amount("pod_resource_request", **WEB, **cpu) == 0.15
    assert amount("pod_resource_limit", **WEB, **cpu) == 0.75
    assert amount("pod_resource_limit", **WEB, **memory) == 320 * MI
    assert amount("container_resource_limit", **MAIN, **memory) == 256 * MI
    assert amount("node_resource_capacity", **memory) == 32 * GI
    assert amount("node_resource_allocatable", **memory) == 29 * GI - 100 * MI
    assert amount("group_resource_reservation", group="runtime", **memory) == 2 * GI
    assert amount("group_resource_reservation", group="misc", **cpu) == 0.3
    assert amount("group_resource_reservation", group="pods", **memory) == 29 * GI


def test_recommended_amounts_are_those_of_pods_with_a_history(found):
    def amount(part, **labels):
        return value(found, f"podslice_pod_resource_recommended_{part}", **WEB, **labels)

    cpu, memory = {"resource": "cpu", "unit": "cores"}, {"resource": "memory", "unit": "bytes"}
    assert amount("request", **cpu) == 1.169
    assert amount("request", **memory) == amount("limit", **memory) == 121 * MI
    (limit,) = labels_of(found, "podslice_pod_resource_recommended_limit")
    assert (limit["pod"], limit["unit"]) == ("web", "bytes")
    recommended = labels_of(found, "podslice_pod_resource_recommended_request")
    assert [labels["pod"] for labels in recommended] == ["web", "web"]


def test_a_pod_without_limits_has_none(found):
    limited = {labels["pod"] for labels in labels_of(found, "podslice_pod_resource_limit")}
    assert limited == {"web", "db"}
    requesting = {labels["pod"] for labels in labels_of(found, "podslice_pod_resource_request")}
    assert requesting == {"web", "db"}


def test_the_cpus_of_pods_are_counted_where_there_is_a_cpu_manager(found):
    names = (
        "kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "kubelet_cpu_manager_shared_pool_size_millicores",
    )
    assert not any(labels_of(found, name) for name in (*names, "podslice_pod_exclusive_cpus"))
    own = {"default/web": frozenset({2, 3}), "default/other": frozenset({5})}
    counted = exposed(own_cpus=own, available_cpus=frozenset({1, 4}))
    assert [value(counted, name) for name in names] == [3, 2000]
    assert value(counted, "podslice_pod_exclusive_cpus", **WEB) == 2
    assert labels_of(counted, "podslice_pod_exclusive_cpus") == [WEB]
    full = exposed(own_cpus=own, available_cpus=frozenset())
    assert value(full, names[1]) == 0


def test_in_its_init_phase_a_pod_has_other_limits():
    pod = builders.pod(
        "ide",
        containers=(
            builders.container("main"),
            builders.container("get", "cpu=1", kind=builders.ContainerKind.INIT),
        ),
        resources=builders.resources("memory=256Mi", "memory=1Gi,pid=200"),
    )
    (decision,) = builders.decisions(pod)
    stats = sample_node.node_stats(sample_node.pod_stats(decision))
    before = exposed(stats, initializing=frozenset({"default/ide"}))
    after = exposed(stats)
    processes = {"resource": "pid", "unit": "integer"}
    assert value(before, "podslice_pod_resource_limit", **IDE, **processes) == 200
    limits = [each["resource"] for each in labels_of(before, "podslice_pod_resource_limit")]
    assert limits == ["pid"]
    limits = [each["resource"] for each in labels_of(after, "podslice_pod_resource_limit")]
    assert limits == ["memory", "pid"]


def test_the_identity_of_a_pod_is_in_one_metric(found):
    (web,) = [each for each in labels_of(found, "podslice_pod_info") if each["pod"] == "web"]
    assert web == {
        **WEB,
        "qos_class": "Burstable",
        "uid": "web",
        "slice": "kubepods-burstable-podweb.slice",
    }


def test_eviction_signals_and_thresholds_are_exposed(found):
    name = {"eviction_signal": "memory.available"}
    assert value(found, "podslice_eviction_signal_available", **name) == 20 * GI
    assert value(found, "podslice_eviction_signal_capacity", **name) == 32 * GI
    assert value(found, "podslice_eviction_threshold", **name, kind="hard") == 100 * MI
    assert value(found, "podslice_eviction_threshold", **name, kind="soft") == pytest.approx(
        32 * GI / 20
    )
    exposed = {each["eviction_signal"] for each in labels_of(found, "podslice_eviction_threshold")}
    assert exposed == {"memory.available"}, "signals that are not observed are not exposed"


def test_conditions_are_exposed_while_they_are_false(found):
    conditions = {
        labels["condition"]: value(found, "podslice_node_condition", **labels)
        for labels in labels_of(found, "podslice_node_condition")
    }
    assert conditions == {
        "MemoryPressure": 1,
        "DiskPressure": 0,
        "PIDPressure": 0,
        "BurstableMemoryPressure": 0,
        "BestEffortMemoryPressure": 0,
    }


def test_counters_exist_before_the_first_event(found):
    """For Prometheus, the first value of a counter is not an increase."""
    signals = {each["eviction_signal"] for each in labels_of(found, "podslice_evictions_total")}
    assert signals == {"memory.available", "allocatableMemory.available", "nodefs.available"}
    assert value(found, "podslice_events_total", kind="pod-evicted") == 4
    assert value(found, "podslice_events_total", kind="orphan-found") == 0
    assert {each["qos_class"] for each in labels_of(found, "podslice_pods")} == {*Qos}
    for operation in Operation:
        name = "kubelet_cgroup_manager_duration_seconds_count"
        assert value(found, name, operation_type=operation.value) == 0


def test_the_agent_exposes_its_own_metrics():
    counters = Counters(broken_manifests=1, orphans=2, refused=3)
    counters.operations[Operation.UPDATE].observe(0.002)
    counters.operations[Operation.UPDATE].observe(60.0)
    counters.evictions["pid.available"] += 1
    counters.reactions.observe(0.15)
    counters.reconciled(0.3, failed=True)
    counters.drift_repaired += 1
    counters.oom_kills += 5
    counters.oomd_kills += 4
    found = exposed(counters=counters, evicted=6, problems=("no bus", "no disk"), reload_count=7)
    assert value(found, "podslice_build_info", version=__version__) == 1
    plain = {
        "podslice_broken_manifests": 1,
        "podslice_orphans": 2,
        "podslice_refused_pods": 3,
        "podslice_evicted_pods": 6,
        "podslice_problems": 2,
        "podslice_reconcile_errors_total": 1,
        "podslice_reconcile_duration_seconds_count": 1,
        "podslice_reconcile_duration_seconds_sum": 0.3,
        "podslice_drift_repaired_total": 1,
        "podslice_oom_kills_total": 5,
        "podslice_oomd_kills_total": 4,
        "podslice_daemon_reloads_total": 7,
        "podslice_eviction_reaction_seconds_count": 1,
    }
    assert {name: value(found, name) for name in plain} == plain
    assert value(found, "podslice_evictions_total", eviction_signal="pid.available") == 1
    name, update = "kubelet_cgroup_manager_duration_seconds", {"operation_type": "update"}
    assert value(found, f"{name}_bucket", **update, le="0.001") == 0
    assert value(found, f"{name}_bucket", **update, le="0.0025") == 1
    assert value(found, f"{name}_bucket", **update, le="10.0") == 1
    assert value(found, f"{name}_bucket", **update, le="+Inf") == 2
    assert value(found, "process_resident_memory_bytes") > MI


def test_missing_values_are_not_exposed():
    """As with cgroup v1, or for a slice that is being removed."""
    (decision,) = builders.decisions(builders.burstable("web"))
    pod = sample_node.pod_stats(decision, containers=())
    empty = sample_node.PodStats(decision=decision, sample=Sample(), started_usec=pod.started_usec)
    found = exposed(sample_node.node_stats(empty, sample=Sample(), groups=()))
    names = {name for name, _ in found}
    assert "pod_cpu_usage_seconds_total" not in names
    assert "node_memory_working_set_bytes" not in names
    assert "podslice_group_tasks" not in names
    assert "podslice_daemon_reloads_total" not in names
    assert value(found, "kubelet_running_pods") == 1


def test_a_container_with_two_units_is_exposed_once():
    (decision,) = builders.decisions(builders.burstable("web"))
    both = tuple(
        ContainerStats(name="main", unit=unit, sample=sample_node.sample())
        for unit in ("a.scope", "a.service")
    )
    found = exposed(sample_node.node_stats(sample_node.pod_stats(decision, containers=both)))
    assert len(labels_of(found, "container_threads")) == 1


def test_names_follow_the_conventions():
    """Source: Prometheus, "Metric and label naming"."""
    for family in collect(sample_node.snapshot(), sample_node.default_stats()):
        assert re.fullmatch(r"(podslice|kubelet|node|pod|container|process)_[a-z_]+", family.name)
        assert family.documentation
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)


def test_the_text_is_rendered_in_small_parts(found):
    parts = list(expose(sample_node.snapshot(), sample_node.default_stats()))
    assert len(parts) > 50
    assert all(part.startswith(b"# HELP") and part.count(b"# TYPE") == 1 for part in parts)
    assert "version=0.0.4" in CONTENT_TYPE


def test_a_container_s_limit_of_swap_is_exposed():
    pod = builders.pod("ide", containers=(builders.container("main"),))
    no_swap = builders.config(memory_swap_behavior=SwapBehavior.NO_SWAP)
    (decision,) = builders.decisions(pod, by=no_swap)
    found = exposed(sample_node.node_stats(sample_node.pod_stats(decision)))
    swap = {"container": "main", **IDE, "resource": "swap", "unit": "bytes"}
    assert value(found, "podslice_container_resource_limit", **swap) == 0


def test_stated_limits_of_input_and_output_and_of_compressed_swap_are_exposed():
    stated = {
        "IOReadBandwidthMax": "/dev/sda 1048576; /srv 4096",
        "IOWriteIOPSMax": "/dev/sda 100",
        "IOWeight": 200,
        "MemoryZSwapMax": 8 * MI,
    }
    pod = builders.pod("ide", properties=stated)
    found = exposed(sample_node.node_stats(*map(sample_node.pod_stats, builders.decisions(pod))))
    zswap = {**IDE, "resource": "zswap", "unit": "bytes"}
    assert value(found, "podslice_pod_resource_limit", **zswap) == 8 * MI
    assert value(found, "podslice_pod_resource_weight", **IDE, resource="io") == 200
    limits = {
        (labels["device"], labels["resource"], labels["unit"]): found[name, labelled]
        for name, labelled in found
        if name == "podslice_pod_device_limit"
        for labels in [dict(labelled)]
    }
    assert limits == {
        ("/dev/sda", "io_read", "bytes_per_second"): MI,
        ("/srv", "io_read", "bytes_per_second"): 4096,
        ("/dev/sda", "io_write", "operations_per_second"): 100,
    }
