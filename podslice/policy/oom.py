"""OOM scores: which processes the kernel kills first, and which are killed together."""

from __future__ import annotations

from podslice.model.config import Config, OomPolicy
from podslice.model.pod import Container, ContainerKind, Pod, Qos
from podslice.model.properties import OOM_SCORE_ADJ
from podslice.model.resources import memory_bytes
from podslice.policy.aggregate import aggregate

GUARANTEED_ADJ = -997
BESTEFFORT_ADJ = 1000
NODE_CRITICAL_PRIORITY = 2_000_001_000
"""Pods from `system-node-critical` on are protected like Guaranteed ones."""


def oom_score_adj(pod: Pod, container: Container, qos: Qos, node_memory_bytes: int) -> int:
    """Return the adjustment for the processes of one container.

    What an annotation of the container or the pod states, from -1000. Otherwise, for a Burstable pod
    1000 less its share of the node's memory in thousandths, 3 to 999; a surplus of the pod level over
    the containers' sum is divided evenly among them.

    Source: Kubernetes, pkg/kubelet/qos/policy.go, GetContainerOOMScoreAdjust.
    """
    for stated in (container.properties, pod.properties):
        if OOM_SCORE_ADJ in stated:
            return int(stated[OOM_SCORE_ADJ])
    if pod.priority >= NODE_CRITICAL_PRIORITY or qos is Qos.GUARANTEED:
        return GUARANTEED_ADJ
    if qos is Qos.BESTEFFORT:
        return BESTEFFORT_ADJ
    request = memory_bytes(container.resources.requests) or 0
    if container.kind is ContainerKind.SIDECAR:
        request = max(request, _least_request(pod))
    request += _surplus_each(pod)
    adjustment = 1000 - 1000 * request // max(node_memory_bytes, 1)
    return min(max(adjustment, 1000 + GUARANTEED_ADJ), BESTEFFORT_ADJ - 1)


def kills_whole_container(config: Config) -> bool:
    """Return whether the kernel kills all processes of a container together.

    Source: Kubernetes v1.36, pkg/kubelet/kubelet.go, NewMainKubelet (singleProcessOOMKill is false
    with cgroup v2 unless it is stated), and pkg/kubelet/kuberuntime/kuberuntime_container_linux.go
    (memory.oom.group=1 then).
    """
    return config.oom_policy is not OomPolicy.PROCESS


def _least_request(pod: Pod) -> int:
    """Return the least memory request among the ordinary containers."""
    requests = [
        memory_bytes(container.resources.requests) or 0
        for container in pod.of_kind(ContainerKind.APP)
    ]
    return min(requests, default=0)


def _surplus_each(pod: Pod) -> int:
    """Return each container's part of the pod level's surplus over the containers' requests."""
    at_pod_level = memory_bytes(pod.resources.requests)
    if not at_pod_level:
        return 0
    surplus = at_pod_level - (memory_bytes(aggregate(pod).requests) or 0)
    return max(surplus, 0) // max(len(pod.containers), 1)
