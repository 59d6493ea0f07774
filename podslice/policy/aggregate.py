"""What a pod counts as: its effective requests and limits, its huge pages, its quality of service class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from podslice.model.config import VERSION_RULES, Config, KubernetesVersion, Rules
from podslice.model.node import Node
from podslice.model.pod import Container, ContainerKind, Pod, Qos
from podslice.model.properties import MEMORY_MAX, PROTECTIONS
from podslice.model.quantity import human_bytes, parse_quantity
from podslice.model.resources import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    Amounts,
    Resources,
    is_hugepages,
    is_pod_level_resource,
    total,
    whole,
)
from podslice.model.unit import PropertyValue


class ContainerSum(NamedTuple):
    """The sum that a pod's containers count as for one resource."""

    terms: tuple[tuple[int, int], ...]
    """The index of each container that counts, and its amount."""
    init: Container | None = None
    """The init container whose turn needs the most; None if the containers together do."""

    @property
    def amount(self) -> int:
        """Return the sum of the terms."""
        return sum(amount for _, amount in self.terms)


def aggregate(pod: Pod) -> Resources:
    """Return the containers' sums, including the needs of init containers and sidecars.

    Per resource the greater of: all containers and sidecars together; each init container together
    with the sidecars listed before it.

    Source: KEP-753, "Resources calculation for scheduling and pod admission"; Kubernetes,
    component-helpers/resource/helpers.go, aggregateContainerResourcesByFn.
    """
    stated = [each.resources for each in pod.containers]
    if len(stated) == 1:
        return stated[0]

    def sums(part: str) -> dict[str, int]:
        names = dict.fromkeys(name for each in stated for name in amounts_of(each, part))
        return {name: sum_of(pod, part, name).amount for name in names}

    return Resources(requests=sums("requests"), limits=sums("limits"))


def sum_of(pod: Pod, part: str, resource: str) -> ContainerSum:
    """Return the aggregate of the `requests` or `limits` of one resource with its terms."""
    together: list[tuple[int, int]] = []
    sidecars: list[tuple[int, int]] = []
    turns: list[ContainerSum] = []
    for index, container in enumerate(pod.containers):
        amount = amounts_of(container.resources, part).get(resource)
        if amount is None:
            continue
        term = index, amount
        # Init containers run one at a time, each beside the sidecars that were started before it.
        if container.kind is ContainerKind.INIT:
            turns.append(ContainerSum(terms=(term, *sidecars), init=container))
            continue
        together.append(term)
        if container.kind is ContainerKind.SIDECAR:
            sidecars.append(term)
    lasting = ContainerSum(terms=tuple(together))
    # Of equal sums the first one counts, which is that of the containers together.
    return max((lasting, *turns), key=lambda each: each.amount) if turns else lasting


def amounts_of(stated: Resources, part: str) -> Amounts:
    """Return the requests or the limits."""
    return stated.requests if part == "requests" else stated.limits


def running(pod: Pod) -> Resources:
    """Return the sums over the containers that run once the init containers have finished.

    Source: Pod-Level Resource Limits, "Proposal", the sums over `pod.containers`; KEP-753: a
    sidecar runs as long as the pod's containers.
    """
    together = [c.resources for c in pod.containers if c.kind is not ContainerKind.INIT]
    return Resources(
        requests=total(each.requests for each in together),
        limits=total(each.limits for each in together),
    )


def effective(pod: Pod) -> Resources:
    """Return the effective requests and limits; `pod` has its defaults already.

    Pod-level values replace the sums per resource; the overhead is added to the requests, and to
    the limits that are set.

    Source: Kubernetes, component-helpers/resource/helpers.go, PodRequests and PodLimits.
    """
    sums = aggregate(pod)
    requests = {**sums.requests, **_pod_level(pod.resources.requests)}
    # Per resource: the pod level may state memory only, and CPU is then the containers' sum.
    limits = {**sums.limits, **_pod_level(pod.resources.limits)}
    if pod.overhead:
        requests = total((requests, pod.overhead))
        limits = {
            name: limit + pod.overhead.get(name, 0) if limit else 0
            for name, limit in limits.items()
        }
    return Resources(requests=requests, limits=limits)


def _pod_level(amounts: Amounts) -> dict[str, int]:
    """Return the amounts that the pod level may state."""
    return {name: milli for name, milli in amounts.items() if is_pod_level_resource(name)}


def lacking_limit(pod: Pod, resource: str, rules: Rules) -> tuple[Container, ...]:
    """Return the containers, of every kind, without a limit above zero for a resource.

    Under the rules of Kubernetes an init container or a sidecar counts together with the sidecars
    before it, so that it lacks none where one of those has one.

    Source: Kubernetes, pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod, with the sums of
    component-helpers/resource/helpers.go, PodLimits; kubelet 1.36.2 does so.
    """
    lacking, sidecars = [], 0
    for container in pod.containers:
        limit = container.resources.limits.get(resource, 0)
        if container.kind is ContainerKind.SIDECAR:
            sidecars += limit
        if rules is Rules.KUBERNETES and container.kind is not ContainerKind.APP:
            # A sidecar's own limit is in both, which does not matter: only a sum of zero is
            # lacking.
            limit += sidecars
        if not limit:
            lacking.append(container)
    return tuple(lacking)


def default_pod(pod: Pod, *, with_limits: bool = False) -> Pod:
    """Return the pod with the requests that its limits imply, of containers and the pod level.

    `with_limits`: the pod level has default limits, too; see `defaults_limits`.

    Source: Pod-Level Resource Limits, "Proposal" ("setting a limit without a request causes
    Kubernetes to use the limit as a request"); Kubernetes, pkg/apis/core/v1/defaults.go,
    SetDefaults_Pod.
    """
    # The containers first: the default of the pod level is their sum, with defaulted requests.
    pod = replace(pod, containers=tuple(map(_default_container, pod.containers)))
    if with_limits:
        pod = replace(pod, resources=_default_limits(pod))
    has_limits = bool(_pod_level(pod.resources.limits))
    return replace(pod, resources=_default_pod_level(pod)) if has_limits else pod


def defaults_limits(config: Config) -> bool:
    """Return whether the configured rules have default limits of the pod level."""
    is_kubernetes = config.rules is Rules.KUBERNETES
    return is_kubernetes and VERSION_RULES[config.kubernetes_version].defaults_level_limits


def _default_limits(pod: Pod) -> Resources:
    """Return the pod level with the sums of the containers' limits, of resources that all limit.

    A pod without a pod level gets none; a sum below the pod level's own request is left out.

    Source: Kubernetes 1.37, pull request 140514; KEP-2837 (the pod level is set, and "all containers
    have limits set").
    """
    stated = pod.resources
    if not _pod_level({**stated.requests, **stated.limits}):
        return stated
    sums = {
        name: milli
        for name, milli in _pod_level(aggregate(pod).limits).items()
        if all(name in each.resources.limits for each in pod.containers)
        and milli >= stated.requests.get(name, 0)
    }
    return Resources(requests=stated.requests, limits={**sums, **stated.limits})


def _default_container(container: Container) -> Container:
    stated = container.resources
    missing = {name: limit for name, limit in stated.limits.items() if name not in stated.requests}
    if not missing:
        return container
    resources = Resources(requests={**missing, **stated.requests}, limits=stated.limits)
    return replace(container, resources=resources)


def _default_pod_level(pod: Pod) -> Resources:
    """Return the pod level with requests from the containers' sum, else from its limits.

    Huge pages are never overcommitted: their request is the pod level's own limit.

    Source: Kubernetes, pkg/apis/core/v1/defaults.go, defaultPodRequests (KEP-2837).
    """
    stated = pod.resources
    sums = {
        name: milli
        for name, milli in _pod_level(aggregate(pod).requests).items()
        if not is_hugepages(name)
    }
    # The later has precedence: the pod's limit counts only where no container requests the
    # resource.
    requests: Amounts = {**_pod_level(stated.limits), **sums, **stated.requests}
    return Resources(requests=requests, limits=stated.limits)


HugePages = dict[int, int]
"""Size of a page in bytes → limit in bytes."""


def pod_hugepages(counted: Resources, known: Iterable[int] = ()) -> HugePages:
    """Return the limits of a pod: its effective requests, and 0 for other known sizes.

    Source: Kubernetes, pkg/kubelet/cm/helpers_linux.go, HugePageLimits, and
    cgroup_manager_linux.go, maybeSetHugetlb ("for each page size omitted, limit to 0").
    """
    # A size that the kernel supports and no container requests must not be used.
    limits = {**dict.fromkeys(known, 0), **_by_size(counted.requests)}
    return _shared(tuple(limits.items()))


def container_hugepages(
    pod: Pod, container: Container, rules: Rules, known: Iterable[int] = ()
) -> HugePages:
    """Return the limits of a container, for every size that is known or that its pod states.

    One that states none has no limit of its own where the pod level states one (the proposal), or
    the pod's (Kubernetes), and 0 where there is no pod level.

    Source: Pod-Level Resource Limits, "HugeTLB cgroup"; Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetHugepageLimitsFromResources, which
    begins with 0 for each of the kernel's sizes.
    """
    own, at_pod = _by_size(container.resources.limits), _by_size(pod.resources.limits)
    named = set(at_pod).union(*(_by_size(each.resources.limits) for each in pod.containers))
    limits: HugePages = {}
    for size in sorted(named.union(known)):
        if size in own:
            limits[size] = own[size]
        elif size not in at_pod:
            limits[size] = 0
        elif rules is Rules.KUBERNETES:
            limits[size] = at_pod[size]
    return _shared(tuple(limits.items()))


@lru_cache(maxsize=64)
def _shared(limits: tuple[tuple[int, int], ...]) -> HugePages:
    """Return one object for equal limits, which most pods and containers have."""
    return dict(limits)


def counts_as_memory(node: Node, config: Config) -> bool:
    """Return whether the memory limits of the node's control groups include huge pages."""
    stated = config.memory_hugetlb_accounting
    return node.counts_hugepages if stated is None else stated


def most_bytes(pod: Pod, limits: HugePages) -> int:
    """Return the maximum of a container with these limits; the pod level's applies without one."""
    return sum({**_by_size(pod.resources.limits), **limits}.values())


def own_pages_bytes(container: Container) -> int:
    """Return the huge pages that a container requests itself, in bytes."""
    return sum(_by_size(container.resources.requests).values())


def with_hugepages(
    properties: tuple[PropertyValue, ...], usable_bytes: int, own_bytes: int
) -> tuple[PropertyValue, ...]:
    """Return the properties, with huge pages added to those of memory.

    Where the kernel counts huge pages as memory, a process whose huge pages do not fit its limit
    is not killed: it repeats the page fault for ever. The limit includes all that may be used. The
    protection includes what is requested, since the kernel compares the protection with a usage that
    includes huge pages. Pages that containers share are in the protection of the pod only: if the
    protection of each container included the shared pages, containers without huge pages would take
    protection from the others.

    Source: Linux, mm/hugetlb.c, alloc_hugetlb_folio (mem_cgroup_charge_hugetlb), which fails with
    ENOSPC; mm/memcontrol.c, mem_cgroup_calculate_protection and effective_protection.
    """
    added = {MEMORY_MAX: usable_bytes, **dict.fromkeys(PROTECTIONS, own_bytes)}

    def raised(each: PropertyValue) -> PropertyValue:
        if not (more_bytes := added.get(each.name, 0)):
            return each
        plus = f"{human_bytes(more_bytes)} of huge pages, which count as memory here"
        value = int(each.value) + more_bytes
        return replace(each, value=value, why=f"{each.why} + {plus} = {human_bytes(value)}")

    return tuple(map(raised, properties))


def page_size_bytes(resource: str) -> int | None:
    """Return the page size of `hugepages-2Mi`; None if it is not a page size."""
    try:
        milli = parse_quantity(resource.removeprefix(HUGEPAGES_PREFIX)).milli
    except ValueError:
        return None
    return milli // 1000 if milli > 0 and milli % 1000 == 0 else None


def _by_size(amounts: Amounts) -> HugePages:
    return {
        size: whole(amounts, name) or 0
        for name in sorted(filter(is_hugepages, amounts))
        if (size := page_size_bytes(name))
    }


_COUNTED = (CPU, MEMORY)


def classify(
    pod: Pod,
    rules: Rules = Rules.PROPOSAL,
    version: KubernetesVersion = KubernetesVersion.V1_36,
) -> Qos:
    """Return the class of a pod with its defaults; only cpu and memory above zero count.

    Source: `proposal`: Pod-Level Resource Limits, "Proposal" (Guaranteed if all containers are, or
    the pod level is). `kubernetes`: Kubernetes, pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS
    (a stated pod level decides alone) and IsPodLevelResourcesSet (of these resources).
    """
    is_kubernetes = rules is Rules.KUBERNETES
    if is_kubernetes and pod.has_empty_level and VERSION_RULES[version].counts_empty_level:
        return Qos.BESTEFFORT  # an empty pod level decides alone
    containers = [container.resources for container in pod.containers]
    if is_kubernetes and _has_level(pod):
        is_guaranteed = _is_guaranteed(pod.resources)
        return Qos.GUARANTEED if is_guaranteed else _not_guaranteed([pod.resources])
    if rules is Rules.PROPOSAL and _is_guaranteed(pod.resources):
        return Qos.GUARANTEED
    if containers and all(map(_is_guaranteed, containers)):
        return Qos.GUARANTEED
    return _not_guaranteed([*containers, pod.resources])


def _has_level(pod: Pod) -> bool:
    """Return whether the pod level states a resource that decides; process ids do not."""
    return any(map(is_pod_level_resource, (*pod.resources.requests, *pod.resources.limits)))


def _not_guaranteed(levels: Iterable[Resources]) -> Qos:
    return Qos.BURSTABLE if any(map(_asks, levels)) else Qos.BESTEFFORT


def _asks(stated: Resources) -> bool:
    return any(stated.requests.get(name) or stated.limits.get(name) for name in _COUNTED)


def _is_guaranteed(stated: Resources) -> bool:
    return not any(_shortfalls(stated))


def why_qos(pod: Pod, qos: Qos, rules: Rules) -> str:
    """Describe why the pod has its class, in one sentence."""
    if qos is Qos.BESTEFFORT:
        if pod.has_empty_level and any(_asks(each.resources) for each in pod.containers):
            return "the pod level alone decides, and is empty"
        return "neither a container nor the pod level requests cpu or memory"
    has_level = _has_level(pod)
    decides = "the pod level alone decides" if rules is Rules.KUBERNETES and has_level else ""
    if qos is Qos.GUARANTEED:
        if decides or _is_guaranteed(pod.resources):
            return "at the pod level cpu and memory have request = limit"
        return "in every container cpu and memory have request = limit"
    if decides:
        return f"{decides}: {next(_shortfalls(pod.resources))}"
    reasons = [f"at the pod level {next(_shortfalls(pod.resources))}"] if has_level else []
    for container in pod.containers:
        if not _is_guaranteed(container.resources):
            reasons.append(
                f"in container {container.name} {next(_shortfalls(container.resources))}"
            )
            break
    return ", and ".join(reasons)


def _shortfalls(stated: Resources) -> Iterator[str]:
    """Yield the reasons why a level is not Guaranteed."""
    for name in _COUNTED:
        if not stated.limits.get(name):
            yield f"{name} has no limit"
        elif stated.requests.get(name) != stated.limits[name]:
            yield f"the {name} request is not the limit"
