"""The CPUs of one pod, divided among its containers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from podslice.model.config import TopologyManagerPolicy
from podslice.model.cpu_topology import Cpus, CpuTopology
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.pod import ContainerKind
from podslice.model.unit import UnitName
from podslice.policy.cpu_assignment import NOT_ENOUGH, CpuOptions, CpuRefusal
from podslice.policy.cpu_claim import CpuClaim
from podslice.policy.numa_alignment import align_cpus

_NONE: Cpus = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuManager:
    """The CPUs of a node, and how they are given to pods."""

    topology: CpuTopology
    reserved: Cpus
    """The CPUs that no pod has for itself."""
    options: CpuOptions = field(default_factory=CpuOptions)
    is_strict: bool = False
    """`strict-cpu-reservation`: other pods do not run on the reserved CPUs either."""
    alignment: TopologyManagerPolicy = TopologyManagerPolicy.NONE
    """The NUMA nodes of a pod's or container's own CPUs; its memory follows them."""
    aligns_pods: bool = False
    """Whether all containers of a pod are on the same NUMA nodes."""
    for_host: bool = False
    """`exclusive-for` host: `system.slice` and `user.slice` do not run on the CPUs of pods."""
    isolates: bool = False
    """`cpuset-partition` isolated: the kernel keeps the host off the CPUs of all pods."""

    @property
    def is_aligning(self) -> bool:
        """Return whether NUMA nodes count."""
        return self.alignment is not TopologyManagerPolicy.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCpus:
    """The CPUs that a pod has for itself."""

    pod: Cpus
    """All of them."""
    containers: Mapping[str, Cpus]
    """Those of the containers with CPUs of their own, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCpus:
    """The CPUs that units have now."""

    units: Mapping[UnitName, Cpus] = field(default_factory=dict)
    """Those of the slices of pods and of the containers that run; one without limits is absent."""
    shared: Cpus = _NONE
    """Those of the tiers."""


class PodAssignment(NamedTuple):
    """Divides CPUs among the containers of a pod."""

    manager: CpuManager
    pod: PodDecision
    claim: CpuClaim

    def keep(self, held: HeldCpus, free: Cpus) -> PodCpus | None:
        """Return what the pod's units have; None if it is not what the pod claims.

        A slice whose pod has containers without CPUs of their own has the shared ones, too.
        """
        own = held.units.get(self.pod.slice, _NONE)
        if not self.claim.pod and self._sharing:
            own -= held.shared
        if len(own) != self._count or not own <= free:
            return None
        divided = self._divide(own, held.units, self._inside)
        return None if isinstance(divided, CpuRefusal) else PodCpus(pod=own, containers=divided)

    def assign(self, free: Cpus) -> PodCpus | CpuRefusal:
        """Return CPUs among the free ones, or why there are none."""
        policy = self.manager.alignment
        if self.claim.pod or self.manager.aligns_pods:
            found = self._take(self._count, free, policy)
            if isinstance(found, CpuRefusal):
                return found
            free, policy = found, self._inside
        divided = self._divide(free, {}, policy)
        if isinstance(divided, CpuRefusal):
            return divided
        own = free if self.claim.pod else _union(divided.values())
        return PodCpus(pod=own, containers=divided)

    @property
    def _count(self) -> int:
        """Return the number of CPUs of the whole pod: init containers use those of later ones."""
        # Source: Kubernetes, policy_static.go, podGuaranteedCPUs; KEP-753, "Resources calculation
        # for scheduling and pod admission".
        alone = lasting = 0
        for each in self._claiming:
            count = self.claim.containers[each.name]
            if each.kind is ContainerKind.INIT:
                alone = max(alone, lasting + count)
            else:
                lasting += count
        return self.claim.pod or max(alone, lasting)

    @property
    def _claiming(self) -> Sequence[ContainerDecision]:
        """Return the containers with exclusive CPUs in the order in which they start."""
        claiming = [each for each in self.pod.containers if each.name in self.claim.containers]
        return sorted(claiming, key=lambda each: each.kind is ContainerKind.APP)

    @property
    def _sharing(self) -> tuple[ContainerDecision, ...]:
        """Return what has no CPUs of its own."""
        return tuple(each for each in self.pod.scopes if each.name not in self.claim.containers)

    @property
    def _inside(self) -> TopologyManagerPolicy:
        """Return the policy for the containers of a pod whose CPUs were accepted."""
        is_aligning = self.manager.is_aligning
        return TopologyManagerPolicy.BEST_EFFORT if is_aligning else TopologyManagerPolicy.NONE

    def _take(
        self, count: int, free: Cpus, policy: TopologyManagerPolicy, reused: Cpus = _NONE
    ) -> Cpus | CpuRefusal:
        manager = self.manager
        return align_cpus(
            manager.topology,
            count,
            free=free,
            options=manager.options,
            policy=policy,
            reused=reused,
        )

    def _divide(
        self, free: Cpus, held: Mapping[UnitName, Cpus], policy: TopologyManagerPolicy
    ) -> Mapping[str, Cpus] | CpuRefusal:
        """Return the CPUs of each container with CPUs of its own; they keep those that are held.

        Containers get CPUs in the order in which they start. An init container leaves its CPUs to
        those that start after it.
        """
        # Source: Kubernetes, policy_static.go, updateCPUsToReuse, allocateCPUs, AllocatePod.
        kept = dict(self._keep_containers(held, free))
        divided: dict[str, Cpus] = {}
        lasting = used = _NONE
        for each in self._claiming:
            is_init = each.kind is ContainerKind.INIT
            found: Cpus | CpuRefusal | None = kept.pop(each.name, None)
            if found is None:
                usable = free - lasting if is_init else free - lasting - _union(kept.values())
                count = self.claim.containers[each.name]
                found = self._take(count, usable, policy, reused=used & usable)
            if isinstance(found, CpuRefusal):
                return found
            used |= found
            if not is_init:
                divided[each.name] = found
                lasting |= found
        if self._lacks_rest(free - lasting):
            message = (
                "its containers request all CPUs of the pod level, and others need a part of it"
            )
            return CpuRefusal(reason=NOT_ENOUGH, message=message)
        return self._add_inits(divided, free if self.claim.pod else used)

    def _add_inits(
        self, lasting: Mapping[str, Cpus], usable: Cpus
    ) -> Mapping[str, Cpus] | CpuRefusal:
        """Return the CPUs of all containers: init containers have some of the pod's CPUs.

        They depend on nothing else, so that they are the same the next time. Some usable CPUs are
        left over if init containers and later ones chose different CPUs: the kubelet then gives the
        pod more than it requests.
        """
        # Source: kubernetes#112228, "Static CPU Manager can fail with UnexpectedAdmissionError".
        own = _union(lasting.values())
        more = self._take(max(self._count - len(own), 0), usable - own, self._inside)
        if isinstance(more, CpuRefusal):
            return more
        divided = dict(lasting)
        free = own | more
        for each in self._claiming:
            if each.kind is ContainerKind.INIT:
                found = self._take(self.claim.containers[each.name], free, self._inside)
                if isinstance(found, CpuRefusal):
                    return found
                divided[each.name] = found
            else:
                free -= lasting[each.name]
        return divided

    def _keep_containers(
        self, held: Mapping[UnitName, Cpus], free: Cpus
    ) -> Iterator[tuple[str, Cpus]]:
        """Yield the containers that run with CPUs which they can keep, whatever others need."""
        for each in self._claiming:
            now = held.get(each.scope, _NONE)
            is_lasting = each.kind is not ContainerKind.INIT
            if is_lasting and len(now) == self.claim.containers[each.name] and now <= free:
                free -= now
                yield each.name, now

    def _lacks_rest(self, rest: Cpus) -> bool:
        """Return whether containers would share the rest of a pod level of which none is left."""
        is_sharing = any(each.kind is not ContainerKind.INIT for each in self._sharing)
        return bool(self.claim.pod) and is_sharing and not rest


def _union(parts: Iterable[Cpus]) -> Cpus:
    return _NONE.union(*parts)
