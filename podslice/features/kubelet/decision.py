"""The decision on one pod of a kubelet, under the kubelet's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from podslice.features.kubelet.node import KubeletPod, KubeletSettings
from podslice.model.config import (
    VERSION_RULES,
    Config,
    MemoryProtection,
    Rules,
    WeightMapping,
    version_of,
)
from podslice.model.desired import PodDecision
from podslice.model.node import Node
from podslice.model.pod import Pod, Qos
from podslice.model.resources import CPU, Resources
from podslice.policy.decide import decide

_POD_LEVEL_KNOWN_SINCE = (1, 32)
_POD_LEVEL_SINCE = (1, 34)
_NO_QUOTA_SINCE = (1, 33)


class KubeletDecision(NamedTuple):
    """A pod of the kubelet with the decision about it."""

    pod: KubeletPod
    decision: PodDecision
    """In the class that the pod's status states."""
    class_by_resources: Qos
    """The class that follows from the resources that the kubelet knows."""


def has_pod_level(settings: KubeletSettings) -> bool:
    """Return whether the kubelet applies `spec.resources`.

    Source: Kubernetes, pkg/features/kube_features.go, PodLevelResources: alpha in 1.32, on by
    default since 1.34.
    """
    return settings.feature_gates.get("PodLevelResources", settings.version >= _POD_LEVEL_SINCE)


def rejects_pod_level(settings: KubeletSettings) -> bool:
    """Return whether the kubelet knows `spec.resources`, and rejects pods with it.

    Source: Kubernetes, pkg/kubelet/lifecycle/features_linux.go, since 1.32:
    PodLevelResourcesNotSupported.
    """
    return settings.version >= _POD_LEVEL_KNOWN_SINCE and not has_pod_level(settings)


def has_memory_qos(settings: KubeletSettings) -> bool:
    """Return whether the kubelet protects and throttles memory.

    Source: Kubernetes, pkg/features/kube_features.go, MemoryQoS: alpha, off by default; since 1.37
    on by default, without an effect unless a factor or a policy is configured (KEP-2570).
    """
    rules = VERSION_RULES[version_of(settings.version)]
    is_on = settings.feature_gates.get("MemoryQoS", rules.has_memory_qos)
    has_default = rules.throttling_factor_milli is not None
    return is_on and (has_default or settings.configures_memory_qos)


def config_of(settings: KubeletSettings) -> Config:
    """Return the configuration under the kubelet's rules.

    The kubelet protects no memory, and adds no huge pages to memory limits.
    """
    return replace(
        settings.config,
        rules=Rules.KUBERNETES,
        kubernetes_version=version_of(settings.version),
        cpu_weight_mapping=WeightMapping.KUBELET,
        memory_protection=MemoryProtection.NONE,
        memory_hugetlb_accounting=False,
        admission=False,
    )


def decide_pod(pod: KubeletPod, node: Node, settings: KubeletSettings) -> KubeletDecision:
    """Decide a pod as its kubelet does: the class of its status has effect on the slice only.

    Source: Kubernetes, pkg/apis/core/v1/helper/qos/qos.go, GetPodQOS (the class in the status, or the
    computed one where it has none); pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
    calculateLinuxResources, which does not ask for the class.
    """
    config = config_of(settings)
    stated = as_known(pod, settings)
    decision = by_resources = decide(stated, node, config)
    if pod.qos not in {None, by_resources.qos}:
        in_class = decide(stated, node, config, qos=pod.qos)
        decision = replace(in_class, containers=by_resources.containers)
    return KubeletDecision(pod=pod, decision=decision, class_by_resources=by_resources.qos)


def decide_otherwise(pod: KubeletPod, node: Node, settings: KubeletSettings) -> PodDecision:
    """Decide a pod where the weights of the runtime are linear, and the kubelet sets quotas."""
    config = replace(
        config_of(settings), cpu_weight_mapping=WeightMapping.KUBELET_LINEAR, cpu_cfs_quota=True
    )
    return decide(as_known(pod, settings), node, config)


def as_known(pod: KubeletPod, settings: KubeletSettings) -> Pod:
    """Return a pod as the kubelet knows it: without podslice's annotations."""
    containers = tuple(replace(each, properties={}) for each in pod.pod.containers)
    is_known = has_pod_level(settings) and not pod.has_own_level
    known = pod.pod if is_known else replace(pod.pod, resources=Resources(), has_empty_level=False)
    return replace(known, properties={}, containers=containers)


def exclusive_containers(decided: KubeletDecision, settings: KubeletSettings) -> frozenset[str]:
    """Return the containers with CPUs of their own, for which the kubelet sets no quota.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, guaranteedCPUs (whole CPUs in a
    Guaranteed pod without a pod level); pkg/features/kube_features.go,
    DisableCPUQuotaWithExclusiveCPUs: on by default since 1.33.
    """
    decision = decided.decision
    gate = settings.feature_gates.get(
        "DisableCPUQuotaWithExclusiveCPUs", settings.version >= _NO_QUOTA_SINCE
    )
    is_possible = settings.has_static_cpus and decision.qos is Qos.GUARANTEED
    if not gate or not is_possible or decision.pod.resources:
        return frozenset()
    return frozenset(
        each.name
        for each in decision.pod.containers
        if (limit := each.resources.limits.get(CPU, 0)) and limit % 1000 == 0
    )
