import itertools
from dataclasses import replace

import pytest

from podslice.model.config import Config, OomPolicy
from podslice.model.pod import ContainerKind, Pod, Qos
from podslice.model.properties import OOM_SCORE_ADJ
from podslice.model.resources import Resources
from podslice.policy.aggregate import aggregate
from podslice.policy.unit_properties import kills_whole_container, oom_score_adj
from tests.unit.policy.worlds import container, pod

GI = 1000 * 2**30
REQUESTS = (None, 0, GI, 3 * GI, 16 * GI)
NODE_BYTES = 32 * 2**30


def get_container_oom_score_adjust(pod, container, capacity_bytes):
    """Kubernetes, pkg/kubelet/qos/policy.go, GetContainerOOMScoreAdjust of a Burstable pod."""

    def memory(each):
        return each.resources.requests.get("memory", 0) // 1000

    def score(request_bytes):
        return 1000 - 1000 * request_bytes // capacity_bytes

    remaining = 0
    if pod.resources.requests.get("memory"):
        total = pod.resources.requests["memory"] // 1000
        remaining = total - aggregate(pod).requests.get("memory", 0) // 1000
        remaining //= len(pod.containers)
    adjustment = score(memory(container) + remaining)
    if container.kind is ContainerKind.SIDECAR:
        least = min(memory(each) for each in pod.of_kind(ContainerKind.APP))
        adjustment = min(adjustment, score(least + remaining))
    if adjustment < 3:
        return 3
    return 999 if adjustment == 1000 else adjustment


def burstable_pods():
    for first, second, beside, surplus in itertools.product(
        REQUESTS, REQUESTS, REQUESTS, (None, 0, GI, 5 * GI)
    ):
        amounts = [{} if each is None else {"memory": each} for each in (first, second, beside)]
        made = pod(
            container(Resources(requests=amounts[0])),
            container(Resources(requests=amounts[1]), 1),
            container(Resources(requests=amounts[2]), kind=ContainerKind.SIDECAR),
            container(Resources(requests=amounts[1]), 1, kind=ContainerKind.INIT),
        )
        level = aggregate(made).requests.get("memory", 0)
        at_pod = {} if surplus is None else {"memory": level + surplus}
        yield pod(*made.containers, resources=Resources(requests=at_pod))


def test_it_is_what_kubernetes_computes():
    for each in burstable_pods():
        for one in each.containers:
            found = oom_score_adj(each, one, Qos.BURSTABLE, NODE_BYTES)
            assert found == get_container_oom_score_adjust(each, one, NODE_BYTES), (each, one)


def test_a_burstable_container_is_between_guaranteed_and_besteffort():
    for each in burstable_pods():
        for one in each.containers:
            assert 3 <= oom_score_adj(each, one, Qos.BURSTABLE, NODE_BYTES) <= 999


def test_a_higher_request_is_killed_later():
    scores = [
        oom_score_adj(pod(one), one, Qos.BURSTABLE, NODE_BYTES)
        for one in (container(Resources(requests={"memory": n * GI})) for n in range(40))
    ]
    assert scores == sorted(scores, reverse=True)


def test_a_node_whose_memory_is_not_known_does_not_divide_by_zero():
    one = container(Resources(requests={"memory": GI}))
    assert oom_score_adj(pod(one), one, Qos.BURSTABLE, 0) == 3
    least = container(Resources(requests={"memory": 1000}))
    assert oom_score_adj(pod(least), least, Qos.BURSTABLE, 0) == 3


def test_a_sidecar_alone_has_no_ordinary_container_to_compare_with():
    one = container(Resources(requests={"memory": GI}), kind=ContainerKind.SIDECAR)
    assert oom_score_adj(pod(one), one, Qos.BURSTABLE, NODE_BYTES) == 969


def test_a_pod_level_below_the_containers_takes_nothing_away():
    one = container(Resources(requests={"memory": 2 * GI}))
    under = pod(one, resources=Resources(requests={"memory": GI}))
    assert oom_score_adj(under, one, Qos.BURSTABLE, NODE_BYTES) == oom_score_adj(
        Pod(name="a", uid="a", containers=(one,)), one, Qos.BURSTABLE, NODE_BYTES
    )


NOTHING = Resources()
SIDECAR = ContainerKind.SIDECAR


@pytest.mark.parametrize(
    "containers",
    [
        [container(NOTHING)],
        [container(NOTHING, kind=SIDECAR), container(NOTHING)],
        [container(NOTHING, kind=SIDECAR)],
    ],
    ids=["app", "sidecar and app", "sidecar"],
)
def test_without_a_request_it_is_the_highest_whatever_the_node_has(containers):
    """Of nothing even the smallest node has a share of 0: 1000 - 0, which is kept below 1000."""
    for node_bytes in (0, 1, 100):
        found = oom_score_adj(pod(*containers), containers[0], Qos.BURSTABLE, node_bytes)
        assert found == 999


def test_a_single_container_has_the_whole_surplus_of_the_pod_level():
    """1000 - 1000 × (1 + 2) / 32, of which 93 are taken off."""
    one = container(Resources(requests={"memory": GI}))
    above = pod(one, resources=Resources(requests={"memory": 3 * GI}))
    assert oom_score_adj(above, one, Qos.BURSTABLE, NODE_BYTES) == 907


def test_a_pod_level_above_containers_without_requests_is_all_surplus():
    """1000 - 1000 × 2 bytes / 1000 bytes."""
    one = container(NOTHING)
    above = pod(one, resources=Resources(requests={"memory": 2000}))
    assert oom_score_adj(above, one, Qos.BURSTABLE, 1000) == 998


def test_a_pod_level_equal_to_the_containers_has_no_surplus():
    """1000 - 1000 × 1 byte / 1000 bytes."""
    one = container(Resources(requests={"memory": 1000}))
    equal = pod(one, resources=one.resources)
    assert oom_score_adj(equal, one, Qos.BURSTABLE, 1000) == 999


def test_all_processes_of_a_container_are_killed_unless_the_policy_is_process():
    """Kubernetes, kubelet.go, NewMainKubelet: singleProcessOOMKill is false with cgroup v2."""
    assert {each: kills_whole_container(Config(oom_policy=each)) for each in OomPolicy} == {
        each: each != "process" for each in OomPolicy
    }
    assert kills_whole_container(Config())


@pytest.mark.parametrize("qos", Qos)
def test_what_annotations_state_replaces_it(qos):
    stated = replace(container(Resources()), properties={OOM_SCORE_ADJ: -900})
    other = container(Resources(), 1)
    made = replace(pod(stated, other), properties={OOM_SCORE_ADJ: 0}, priority=2_000_001_000)
    scores = [oom_score_adj(made, each, qos, NODE_BYTES) for each in made.containers]
    assert scores == [-900, 0]
