"""The configuration and the pods of a kubelet, as values."""

import json

import pytest

from podslice.errors import InputError
from podslice.features.kubelet.config import read_settings
from podslice.features.kubelet.pods import parse_pod_list, read_pod_list
from podslice.model.config import DEFAULT_EVICTION_HARD, Enforce, OomPolicy, SwapBehavior, Threshold
from podslice.model.node import Node
from podslice.policy.allocatable import allocate
from tests.cases.tables import cases

HEAD = "kind: KubeletConfiguration\n"


def read(text, **more):
    return read_settings((HEAD + text).encode(), "config.yaml", **more)


def test_an_unpaired_surrogate_is_an_error():
    with pytest.raises(InputError, match=r"config.yaml: a: '\\ud800' has an unpaired surrogate"):
        read_settings(b'{"kind": "KubeletConfiguration", "a": "\\ud800"}', "config.yaml")


def test_an_empty_configuration_has_the_defaults_of_a_kubelet():
    settings = read("")
    assert settings.config.enforce_node_allocatable == {Enforce.PODS}
    assert settings.config.eviction_hard == DEFAULT_EVICTION_HARD
    assert settings.config.oom_policy is OomPolicy.CONTAINER
    assert (
        settings.pod_pids_limit,
        settings.feature_gates,
        settings.config.memory_swap_behavior,
    ) == (*(None, {}), "NoSwap")


def test_thresholds_replace_the_defaults_unless_they_are_merged():
    own = {"memory.available": Threshold(amount=2**30 * 1000)}
    assert read("evictionHard: {memory.available: 1Gi}").config.eviction_hard == own
    merged = read("evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true")
    assert merged.config.eviction_hard == {**DEFAULT_EVICTION_HARD, **own}
    assert read("evictionHard: {}").config.eviction_hard == {}
    kept = read("evictionHard: {pid.available: 5%}\nmergeDefaultEvictionSettings: true")
    assert (
        kept.config.eviction_hard["memory.available"] == DEFAULT_EVICTION_HARD["memory.available"]
    )


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ("podPidsLimit: 100", "pod_pids_limit", 100),
        ("podPidsLimit: -1", "pod_pids_limit", None),
        ("cgroupDriver: cgroupfs", "has_cgroupfs", True),
        ("cgroupDriver: systemd", "has_cgroupfs", False),
        ("memoryManagerPolicy: Static", "has_static_memory", True),
        ("memoryManagerPolicy: None", "has_static_memory", False),
        ("evictionHard: {memory.available: 0%}", "ignored_thresholds", ("memory.available",)),
        ("evictionHard: {pid.available: 100%}", "ignored_thresholds", ("pid.available",)),
        ("evictionHard: {imagefs.available: 0%}", "ignored_thresholds", ()),
        ("evictionHard: {memory.available: 1%}", "ignored_thresholds", ()),
        ("cpuManagerPolicy: static", "has_static_cpus", True),
        ("cpuManagerPolicy: none", "has_static_cpus", False),
        ("memoryThrottlingFactor: 0.9", "configures_memory_qos", True),
        ("memoryThrottlingFactor: null", "configures_memory_qos", False),
        ("memoryReservationPolicy: TieredReservation", "configures_memory_qos", True),
        ("memoryReservationPolicy: None", "configures_memory_qos", False),
        ("memoryReservationPolicy: ''", "configures_memory_qos", False),
        ("featureGates: {A: true, B: false}", "feature_gates", {"A": True, "B": False}),
    ],
)
def test_fields_without_an_option(text, attribute, value):
    assert getattr(read(text), attribute) == value


AMOUNTS = """
kubeReserved: {cpu: 500m, memory: 1Gi}
systemReserved: {cpu: "1"}
"""


def test_reserved_cpus_replace_amounts_of_cpu():
    config = read(f'{AMOUNTS}reservedSystemCPUs: "0,4-5"').config
    assert config.reserved_cpus == {0, 4, 5}
    assert (config.kube_reserved, config.system_reserved) == ({"memory": 2**30 * 1000}, {})
    node = Node(capacity={"cpu": 8000, "memory": 2**33 * 1000})
    assert allocate(node, config).allocatable["cpu"] == 5000
    config = read(f'{AMOUNTS}reservedSystemCPUs: ""').config
    assert (config.kube_reserved["cpu"], config.system_reserved["cpu"]) == (500, 1000)


def test_reserved_cpus_that_are_not_a_list():
    with pytest.raises(
        InputError, match=r"config.yaml: reservedSystemCPUs: must be a list of CPUs"
    ):
        read("reservedSystemCPUs: 0-")


def test_single_processes_are_killed_where_that_is_configured():
    assert read("singleProcessOOMKill: true").config.oom_policy is OomPolicy.PROCESS
    assert read("singleProcessOOMKill: false").config.oom_policy is OomPolicy.CONTAINER


@cases
def test_the_swap_of_containers(text, behavior):
    behavior = SwapBehavior(behavior)
    assert read(text).config.memory_swap_behavior is behavior


@pytest.mark.parametrize(("version", "counts"), [((1, 30), True), ((1, 31), False)])
def test_configz_does_not_show_the_driver_that_the_runtime_states(version, counts):
    document = {"kubeletconfig": {"cgroupDriver": "cgroupfs"}}
    settings = read_settings(json.dumps(document).encode(), "configz", version=version)
    assert settings.has_cgroupfs is counts


def test_the_document_of_configz():
    document = {"kubeletconfig": {"cgroupRoot": "", "podPidsLimit": 7}}
    settings = read_settings(json.dumps(document).encode(), "configz")
    assert (settings.config.cgroup_root, settings.pod_pids_limit) == ("/", 7)


def test_a_configuration_that_exceeds_the_limits_of_input():
    with pytest.raises(InputError, match=r"config.yaml: line 2: there are more than"):
        read("a: [" + "1," * 400_000 + "]")


def pods(*items):
    text = json.dumps({"kind": "List", "items": list(items)}).encode()
    return read_pod_list(["-"], lambda: text)


def pod(*statuses, **metadata):
    return {
        "kind": "Pod",
        "metadata": {"name": "web", "uid": "a-1", **metadata},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": list(statuses)},
    }


@cases
def test_the_scope_of_a_container_follows_from_its_id(id_, scope):
    (found,) = pods(pod({"name": "main", "containerID": id_, "state": {"running": {}}}))
    assert found.scopes.get("main") == scope


def test_a_container_that_does_not_run_has_no_scope():
    (found,) = pods(pod({"name": "main", "containerID": "cri-o://a", "state": {"waiting": {}}}))
    assert found.scopes == {}


def test_a_status_of_unexpected_types_counts_as_none():
    odd = pod("text", annotations={"kubernetes.io/config.mirror": [3]})
    odd["status"] |= {"conditions": 1, "initContainerStatuses": {}, "startTime": "soon"}
    (found,) = pods(odd)
    assert (found.pod.uid, found.scopes, found.started_sec) == ("a-1", {}, None)
    with pytest.raises(InputError, match="must be a mapping"):
        pods("text")


def follow(*items, **document):
    """Read the pods as an agent does."""
    document = {"kind": "PodList", "items": list(items), **document}
    return parse_pod_list(json.dumps(document).encode(), "/pods", keeps_invalid=True)


@pytest.mark.parametrize(
    "hostile",
    [
        {"env": [{"name": "A", "value": "x" * (3 * 2**20 - 10)}]},  # what an API server accepts
        {"name": "", "resources": {"limits": {"memory": "1e999999999"}}},
    ],
)
def test_no_pod_affects_the_others_of_a_kubelet(hostile):
    first = {**pod(name="first", uid="b-1"), "spec": {"containers": [{"name": "a", **hostile}]}}
    for pods_of_all in ((first, pod()), (pod(), first)):
        found = {each.pod.name: each.pod.is_valid for each in follow(*pods_of_all)}
        assert found["web"] is True


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (
            b'{"kind": "PodList", "items": [{"metadata": {',
            "/pods: the list of pods is not complete;",
        ),
        (b"", "/pods: there is no manifest in it"),
        (b"[]", "/pods: a manifest must be a mapping, not a list"),
        (b'{"kind": "PodList", "items": 3}', "/pods: items: must be a list, not the number 3"),
        (b'{"kind": "Status", "items": []}', "/pods: kind: unknown kind 'Status'"),
        (json.dumps(pod()).encode(), "/pods: it has no list of pods"),
        (b'{"kind": "List", "items": []}\n' * 2, "/pods: it has no list of pods"),
        (b'{"kind": "PodList", "items": [' + b"1," * 400_000 + b"1]}", "there are more than"),
    ],
)
def test_what_is_not_a_list_of_pods_is_not_an_empty_one(document, error):
    with pytest.raises(InputError) as found:
        parse_pod_list(document, "/pods", keeps_invalid=True)
    assert error in str(found.value)


def test_a_kubelet_without_pods():
    assert follow() == follow(items=None) == ()


def test_mirror_pods_are_those_of_an_api_server():
    """Any author may state the annotation, but no kubelet lists such a pod."""
    annotations = {"kubernetes.io/config.mirror": "victim"}
    assert [each.pod.uid for each in pods(pod(annotations=annotations))] == ["victim"]
    assert [each.pod.uid for each in follow(pod(annotations=annotations))] == ["a-1"]
