"""Exclusive CPUs: which pods claim them, and the stage between `decide` and `plan` that assigns them.

Policy knows the claim only, since a pod with exclusive CPUs has no quota. Which CPUs a pod gets is
the subject of a feature: `desire` takes it as a function, and without one nothing is exclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from podslice.model.config import Config, CpuManagerPolicy
from podslice.model.desired import ContainerDecision, Desired, PodDecision, Refusal
from podslice.model.node import Cpus, Node, parse_cpus
from podslice.model.pod import Pod, Qos
from podslice.model.properties import ALLOWED_CPUS, ALLOWED_MEMORY_NODES, PARTITION
from podslice.model.resources import CPU, Resources
from podslice.model.unit import DesiredUnit, PropertyValue, UnitName
from podslice.policy.aggregate import default_pod

NUMA_NODES_MAX = 8
"""The most NUMA nodes of a topology manager: each further one doubles the sets that are tried.

Source: Kubernetes, topologymanager/policy_options.go, defaultMaxAllowableNUMANodes.
"""
_WHOLE_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClaim:
    """The numbers of exclusive CPUs of a pod."""

    pod: int = 0
    """The number of the pod level; 0 where it states no whole number."""
    containers: Mapping[str, int] = field(default_factory=dict)
    """By name; at least 1. With a pod level they are a part of its CPUs."""

    def __bool__(self) -> bool:
        """Return whether it claims any."""
        return bool(self.pod or self.containers)


def claim_cpus(pod: Pod, qos: Qos) -> CpuClaim:
    """Return the exclusive CPUs that a pod requests.

    Only a Guaranteed pod gets any: for each container with a whole number of CPUs as request and
    limit, and as a pod if its pod level has that.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, guaranteedCPUs; KEP-5526.
    """
    if qos is not Qos.GUARANTEED:
        return CpuClaim()
    # A limit without a request counts as both.
    pod = default_pod(pod)
    containers = {each.name: count for each in pod.containers if (count := _whole(each.resources))}
    return CpuClaim(pod=_whole(pod.resources), containers=containers)


def _whole(stated: Resources) -> int:
    request = stated.requests.get(CPU, 0)
    is_whole = request % _WHOLE_MILLI == 0 and request == stated.limits.get(CPU)
    return request // _WHOLE_MILLI if is_whole else 0


def exclusive(pod: Pod, qos: Qos, config: Config) -> CpuClaim:
    """Return the exclusive CPUs of a pod by the configured policy."""
    if config.cpu_manager_policy is CpuManagerPolicy.NONE:
        return CpuClaim()
    return claim_cpus(pod, qos)


def without_own_cpus(config: Config) -> Config:
    """Return the configuration for a pod that cannot have the CPUs which it claims."""
    return replace(config, cpu_manager_policy=CpuManagerPolicy.NONE)


def with_quota(config: Config, *, applies: bool) -> Config:
    """Return the configuration for a pod or container; no quota throttles one with its own CPUs.

    Source: Kubernetes, pkg/features/kube_features.go, DisableCPUQuotaWithExclusiveCPUs: on by
    default since 1.33.
    """
    return config if applies else replace(config, cpu_cfs_quota=False)


def describe_too_many(count: int) -> str:
    """Return the message that a node has more NUMA nodes than a topology manager supports."""
    return f"the node has {count} NUMA nodes, more than {NUMA_NODES_MAX}"


class CpuAssignment(NamedTuple):
    """The CPUs of all pods; by default every pod has all CPUs of the node."""

    own: Mapping[str, Cpus] = {}
    """The exclusive CPUs of pods, by key."""
    available: Cpus | None = None
    """The CPUs that are neither reserved nor exclusive; None without a CPU manager."""
    refused: tuple[Refusal, ...] = ()
    """The candidates for whose exclusive CPUs there is no room."""
    lacking: tuple[Refusal, ...] = ()
    """The pods in force that cannot have the CPUs which they claim, and share those of the others."""
    place: Callable[[PodDecision], PodDecision] = lambda pod: pod
    """Returns the decision on a pod that is not refused with the CPUs of its units."""
    limit: Callable[[Iterable[DesiredUnit]], Iterable[DesiredUnit]] = iter
    """Returns the units outside of pods with their CPUs, and further ones of the host; in order."""


CpuStage = Callable[
    [Sequence[PodDecision], Sequence[PodDecision], Node, Config, Mapping[UnitName, str]],
    CpuAssignment,
]
"""A pure function that assigns CPUs to the pods in force and to the admitted candidates.

A candidate replaces the pod of its name in force. The mapping has the CPUs of units now, as lists:
a pod keeps its CPUs while they match its claim.
"""

CPU_PROPERTIES = frozenset({ALLOWED_CPUS, ALLOWED_MEMORY_NODES, PARTITION})
"""The properties that the stage sets, on any unit."""


def without_cpus(properties: Iterable[PropertyValue]) -> tuple[PropertyValue, ...]:
    """Return the properties that the stage does not set."""
    return tuple([each for each in properties if each.name not in CPU_PROPERTIES])


def with_lasting_cpus(decisions: Iterable[PodDecision], desired: Desired) -> Iterator[PodDecision]:
    """Yield decisions with the exclusive CPUs of the pods, for files of their containers.

    A file outlives changes of the shared CPUs: a container without exclusive CPUs has those of its
    slice then.
    """
    assigned = {each.pod.key: each for each in desired.pods}
    for decision in decisions:
        found = assigned.get(decision.pod.key)
        own = desired.own_cpus.get(decision.pod.key)
        is_same = found is not None and found.pod == decision.pod
        yield _without_shared(found, own) if found and own and is_same else decision


def _without_shared(pod: PodDecision, own: Cpus) -> PodDecision:
    def keep(container: ContainerDecision) -> ContainerDecision:
        values = {each.name: each.value for each in container.properties}
        # Also without a list, which has no CPU.
        if own.issuperset(parse_cpus(str(values.get(ALLOWED_CPUS, "")))):
            return container
        return replace(container, properties=without_cpus(container.properties))

    return replace(pod, containers=tuple(map(keep, pod.containers)))
