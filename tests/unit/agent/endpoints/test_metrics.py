import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from podslice import __version__
from podslice.agent.context import Counters, Operation
from podslice.agent.endpoints.metrics import CONTENT_TYPE, collect, expose
from podslice.kernel.cgroup import Sample
from podslice.model.config import SwapBehavior
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


def everything():
    """Return counters of which each has counted."""
    counters = Counters(broken_manifests=1, orphans=2, refused=3)
    counters.operations[Operation.UPDATE].observe(0.002)
    counters.operations[Operation.UPDATE].observe(60.0)
    counters.evictions["pid.available"] += 1
    counters.reactions.observe(0.15)
    counters.reconciled(0.3, failed=True)
    counters.drift_repaired += 1
    counters.oom_kills += 5
    counters.oomd_kills += 4
    return counters


OWN = {"default/web": frozenset({2, 3}), "default/other": frozenset({5})}
NODES = {
    "a node": {},
    "counters and problems": {
        "counters": everything(),
        "evicted": 6,
        "problems": ("no bus", "no disk"),
        "reload_count": 7,
    },
    "exclusive CPUs": {"own_cpus": OWN, "available_cpus": frozenset({1, 4})},
    "no shared CPUs": {"own_cpus": OWN, "available_cpus": frozenset()},
}
"""For Prometheus, the first value of a counter is not an increase, so that all are there at first."""
SAMPLES = Path(__file__).with_name("samples.txt")


def lines_of(**fields):
    """Return the samples of a node, without those of this process."""
    parts = expose(sample_node.snapshot(**fields), sample_node.default_stats())
    lines = b"".join(parts).decode().replace(__version__, "VERSION").splitlines()
    return [_with_number(line) for line in lines if not line.startswith(("#", "process_"))]


def _with_number(line):
    """Return the sample with its value in one form: versions of prometheus-client differ."""
    series, _, text = line.rpartition(" ")
    value = float(text)
    return f"{series} {int(value) if value.is_integer() else value}"


def test_the_samples_of_nodes(update_cases):
    """The first node has all samples, and of the others those that differ; in base units."""
    first = lines_of()
    text = "".join(
        "\n".join(
            (f"=== {title}", *(line for line in lines if line not in first or not fields), "")
        )
        for title, fields in NODES.items()
        for lines in [lines_of(**fields)]
    )
    if update_cases:
        SAMPLES.write_text(text)
    assert SAMPLES.read_text() == text


def test_the_memory_of_the_agent_is_exposed(found):
    assert value(found, "process_resident_memory_bytes") > MI


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
