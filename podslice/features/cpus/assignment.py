"""Which CPUs a container or pod gets for itself, and on which NUMA nodes.

The order of preference is that of the kubelet's static policy: whole sockets and NUMA nodes, whole
physical cores, then threads; the fullest place first, so that large free places remain. Two faults
of its code are avoided. Sums are exact here, where the kubelet rounds standard deviations and
searches all combinations of NUMA nodes; and only free CPUs are ever taken, where the kubelet takes
all threads of a core that has as many free threads as a usual core.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, combinations
from typing import NamedTuple

from podslice.model.config import TopologyManagerPolicy
from podslice.model.node import Cpus, CpuTopology, format_cpus
from podslice.policy.exclusive import NUMA_NODES_MAX, describe_too_many

NOT_ENOUGH = "NotEnoughCPUs"
SMT_ALIGNMENT = "SMTAlignmentError"
"""Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, ErrorSMTAlignment."""


class CpuOptions(NamedTuple):
    """How CPUs are chosen."""

    # Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_options.go
    full_cores: bool = False
    """`full-pcpus-only`: only whole physical cores."""
    distribute_numa: bool = False
    """`distribute-cpus-across-numa`: equal parts of each NUMA node, where one is too small."""
    align_uncore: bool = False
    """`prefer-align-cpus-by-uncorecache`: as few last-level caches as possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuRefusal:
    """Why a request gets no CPUs."""

    reason: str
    message: str


class _Refused(Exception):
    """No combination of the free CPUs has the required number."""


def assign_cpus(
    topology: CpuTopology,
    count: int,
    *,
    free: Cpus,
    options: CpuOptions,
    numa_nodes: Iterable[int] = (),
) -> Cpus | CpuRefusal:
    """Return `count` of the free CPUs, or why that is not possible.

    Args:
        topology: the machine.
        count: the number of CPUs, at least 0.
        free: the CPUs that are neither reserved nor held.
        options: how to choose.
        numa_nodes: the nodes to prefer; the others supply only what these lack.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, allocateCPUs, and
    cpu_assignment.go, takeByTopologyNUMAPacked, takeByTopologyNUMADistributed; KEP-2902, KEP-4800.
    """
    if options.full_cores and topology.is_uniform and count % topology.threads_per_core:
        return CpuRefusal(
            reason=SMT_ALIGNMENT,
            message=f"the number of CPUs, {count}, is not a multiple of the"
            f" {topology.threads_per_core} threads of a core, and full-pcpus-only is set",
        )
    # With full-pcpus-only, single free threads do not count. The kubelet counts them, and does not
    # end if there are such threads in several NUMA nodes.
    free = usable_cpus(topology, free, options)
    if count > len(free):
        return _lacking(count, free, options)
    preferred = union_of(free & topology.numa_nodes.get(node, frozenset()) for node in numa_nodes)
    with suppress(_Refused):
        chosen = _take(topology, min(count, len(preferred)), preferred, options)
        return chosen | _take(topology, count - len(chosen), free - chosen, options)
    return _combine_cores(topology, count, free, preferred)


def usable_cpus(topology: CpuTopology, free: Cpus, options: CpuOptions) -> Cpus:
    """Return the free CPUs that the options allow to take: all, or those of whole free cores."""
    free &= topology.all
    if not options.full_cores:
        return free
    return union_of(core for core in topology.cores.values() if core <= free)


def _lacking(count: int, free: Cpus, options: CpuOptions) -> CpuRefusal:
    what = "in whole free cores" if options.full_cores else "free"
    listed = f" ({format_cpus(free)})" if free else ""
    return CpuRefusal(
        reason=SMT_ALIGNMENT if options.full_cores else NOT_ENOUGH,
        message=f"requested CPUs: {count}; {what}: {len(free)}{listed}",
    )


def _combine_cores(
    topology: CpuTopology, count: int, free: Cpus, preferred: Cpus
) -> Cpus | CpuRefusal:
    """Return whole cores of different sizes, of one NUMA node if possible.

    The places that were taken first can leave a number that no other cores have.
    """
    for place in (preferred, *topology.numa_nodes.values(), topology.all):
        cores = _cores_of(topology, free & place)
        cores.sort(key=lambda core: topology.cores[core].isdisjoint(preferred))
        with suppress(_Refused):
            return _whole_cores(topology, cores, count)
    return CpuRefusal(
        reason=SMT_ALIGNMENT,
        message=f"no whole free cores have {count} CPUs together, and full-pcpus-only is set",
    )


def _take(topology: CpuTopology, count: int, free: Cpus, options: CpuOptions) -> Cpus:
    group = topology.threads_per_core if options.full_cores else 1
    # cores of different sizes cannot be divided in equal groups
    if options.distribute_numa and (group == 1 or topology.is_uniform):
        distributed = _distribute(topology, count, free, options, group)
        if distributed is not None:
            return distributed
    return _pack(topology, count, free, options)


def _pack(topology: CpuTopology, count: int, free: Cpus, options: CpuOptions) -> Cpus:
    """Return CPUs in as few places as possible: the largest whole places first."""
    chosen = _Chosen(topology, count, free)
    for places in (chosen.upper, chosen.lower):
        chosen.take_whole(places, chosen.order_of_places(places))
    if options.align_uncore:
        _align(chosen, full_cores=options.full_cores)
    chosen.take_cores(chosen.order_of_cores, full_cores=options.full_cores)
    return chosen.cpus


def _align(chosen: _Chosen, *, full_cores: bool) -> None:
    """Take whole caches, then what is missing from the fullest cache that has it."""
    # Source: KEP-4800, "Design Details"; Kubernetes, cpu_assignment.go, takeUncoreCache: whole
    # caches do not change the order.
    caches = chosen.topology.uncore_caches
    order = chosen.order_of_caches()
    chosen.take_whole(caches, order)
    if not chosen.missing:
        return
    for cache in order:
        free = caches[cache] & chosen.free
        if len(free) >= chosen.missing:
            inside = _Chosen(chosen.topology, chosen.missing, free)
            with suppress(_Refused):
                cores = partial(_cores_of, chosen.topology, free)
                inside.take_cores(cores, full_cores=full_cores)
                chosen.take(inside.cpus)
                return


def _distribute(
    topology: CpuTopology, count: int, free: Cpus, options: CpuOptions, group: int
) -> Cpus | None:
    """Return equal parts of the fewest NUMA nodes that have enough; None if no number of nodes has.

    Among as many nodes, those with the most free CPUs are chosen, and give what remains after the
    division: that leaves the lowest standard deviation of free CPUs per node, which the kubelet
    finds by trying all combinations.
    """
    # Source: KEP-2902, "Compatibility with full-pcpus-only"; Kubernetes, cpu_assignment.go,
    # takeByTopologyNUMADistributed.
    order = _Chosen(topology, count, free).order_of_places(topology.numa_nodes)
    left = {node: len(topology.numa_nodes[node] & free) for node in order}
    for number in range(1, len(order) + 1):
        chosen = sorted(order, key=lambda node: -left[node])[:number]
        # Equal parts in whole groups; what remains is distributed below, one group at a time.
        share = count // number // group * group
        if left[chosen[-1]] < share or sum(left[node] for node in chosen) < count:
            continue
        parts = dict.fromkeys((node for node in order if node in chosen), share)
        steps = list(parts.items())
        for _ in range((count - share * number) // group):
            emptiest = max(parts, key=lambda node: left[node] - parts[node])
            parts[emptiest] += group
            steps.append((emptiest, group))
        taken: Cpus = frozenset()
        for node, part in steps:
            taken |= _pack(topology, part, (free & topology.numa_nodes[node]) - taken, options)
        return taken
    return None


class _Chosen:
    """The CPUs that were taken so far, and those that are free and not taken."""

    def __init__(self, topology: CpuTopology, count: int, free: Cpus) -> None:
        self.topology = topology
        self.missing = count
        self.free = free
        self.cpus: Cpus = frozenset()
        levels = topology.numa_nodes, topology.sockets
        # The level with fewer places is above: a socket may contain NUMA nodes, or a node sockets.
        self.upper, self.lower = sorted(levels, key=len)

    def take(self, cpus: Cpus) -> None:
        """Take CPUs that are free."""
        self.cpus |= cpus
        self.free -= cpus
        self.missing -= len(cpus)

    def take_whole(self, places: Mapping[int, Cpus], order: list[int]) -> None:
        """Take the places that are free as a whole and not larger than what is missing."""
        for place in order:
            if places[place] <= self.free and len(places[place]) <= self.missing:
                self.take(places[place])

    def take_cores(self, order: Callable[[], list[int]], *, full_cores: bool) -> None:
        """Take what is missing from cores: whole ones, then threads in the order of what remains.

        Raises:
            _Refused: with `full_cores`, no subset of the cores has this number.
        """
        if full_cores:
            self.take(_whole_cores(self.topology, order(), self.missing))
        else:
            self.take_whole(self.topology.cores, order())
            cores = [self.topology.cores[core] & self.free for core in order()]
            # The order of the cores is a new one: whole cores are taken, and the fullest come first
            # again.
            threads = [cpu for core in cores for cpu in sorted(core)]
            self.take(frozenset(threads[: self.missing]))

    def order_of_places(self, places: Mapping[int, Cpus]) -> list[int]:
        """Return the NUMA nodes or sockets with free CPUs: those of the fullest upper place first."""
        # Source: Kubernetes, cpu_assignment.go, sortAvailableNUMANodes, sortAvailableSockets.
        return [
            place
            for above in self._fullest_first(self.upper, self.free)
            for place in self._fullest_first(places, self.upper[above] & self.free)
        ]

    def order_of_caches(self) -> list[int]:
        """Return the last-level caches with free CPUs, the fullest of the fullest NUMA node first."""
        # Source: Kubernetes, cpu_assignment.go, sortAvailableUncoreCaches.
        nodes, caches = self.topology.numa_nodes, self.topology.uncore_caches
        ordered = [
            cache
            for node in self.order_of_places(nodes)
            for cache in self._fullest_first(caches, nodes[node] & self.free)
        ]
        return [*dict.fromkeys(ordered)]  # a cache can be shared by CPUs of several nodes

    def order_of_cores(self) -> list[int]:
        """Return the cores with free CPUs: those of the fullest lower place first."""
        # Source: Kubernetes, cpu_assignment.go, sortAvailableCores.
        return [
            core
            for place in self.order_of_places(self.lower)
            for core in self._fullest_first(self.topology.cores, self.lower[place] & self.free)
        ]

    @staticmethod
    def _fullest_first(places: Mapping[int, Cpus], free: Cpus) -> list[int]:
        used = (place for place in places if places[place] & free)
        return sorted(used, key=lambda place: (len(places[place] & free), place))


def _cores_of(topology: CpuTopology, cpus: Cpus) -> list[int]:
    return sorted({topology.core_of[cpu] for cpu in cpus})


def _whole_cores(topology: CpuTopology, cores: list[int], count: int) -> Cpus:
    """Return whole cores, the first that are possible, with exactly `count` CPUs.

    Raises:
        _Refused: no subset of the cores has this number.
    """
    # for each place, which numbers of CPUs the cores from there on have, as a set of bits
    sums = [1]
    for core in reversed(cores):
        sums.append(sums[-1] | sums[-1] << len(topology.cores[core]))
    sums.reverse()
    if not sums[0] >> count & 1:
        raise _Refused
    taken: Cpus = frozenset()
    for place, core in enumerate(cores):
        rest = count - len(taken) - len(topology.cores[core])
        if rest >= 0 and sums[place + 1] >> rest & 1:
            taken |= topology.cores[core]
    return taken


TOPOLOGY_AFFINITY = "TopologyAffinityError"
"""Source: Kubernetes, pkg/kubelet/cm/topologymanager/topology_manager.go, ErrorTopologyAffinity."""


def align_cpus(
    topology: CpuTopology,
    count: int,
    *,
    free: Cpus,
    options: CpuOptions,
    policy: TopologyManagerPolicy,
    reused: Cpus = frozenset(),
) -> Cpus | CpuRefusal:
    """Return `count` of the free CPUs on as few NUMA nodes as possible, or why the policy refuses.

    Among as many nodes those with the lowest numbers are taken. `restricted` accepts as many nodes
    as the request requires on an idle machine, and `single-numa-node` one.

    Args:
        topology: the machine.
        count: the number of CPUs, at least 0.
        free: the CPUs that are neither reserved nor held.
        options: how to choose.
        policy: the number of NUMA nodes that is accepted.
        reused: the free CPUs that init containers of the pod have had: their nodes are among those
            of the request.

    Source: Kubernetes, pkg/kubelet/cm/topologymanager/policy.go, HintMerger.Merge,
    policy_restricted.go, policy_single_numa_node.go, topology_manager.go, NewManager;
    pkg/kubelet/cm/cpumanager/policy_static.go, generateCPUTopologyHints.
    """
    anywhere = assign_cpus(topology, count, free=free, options=options)
    if policy is TopologyManagerPolicy.NONE or isinstance(anywhere, CpuRefusal):
        return anywhere
    nodes = topology.numa_nodes
    if len(nodes) > NUMA_NODES_MAX:
        return CpuRefusal(reason=TOPOLOGY_AFFINITY, message=describe_too_many(len(nodes)))
    # how many NUMA nodes have this number of CPUs when all of them are free
    sizes = sorted(map(len, nodes.values()), reverse=True)
    least = bisect_left([*accumulate(sizes)], count) + 1
    accepted = {
        TopologyManagerPolicy.RESTRICTED: least,
        TopologyManagerPolicy.SINGLE_NUMA_NODE: 1,
    }.get(policy, len(nodes))
    required = numa_nodes_of(nodes, reused)
    for chosen in _combinations(nodes, accepted):
        if required <= chosen:
            inside = free & union_of(nodes[node] for node in chosen)
            found = assign_cpus(topology, count, free=inside, options=options)
            if not isinstance(found, CpuRefusal):
                return found
    places = ", ".join(_describe_free(topology, usable_cpus(topology, free, options)))
    before = f"; init containers have CPUs on {_name_nodes(required)}" if required else ""
    return CpuRefusal(
        reason=TOPOLOGY_AFFINITY,
        message=f"requested CPUs: {count}; free: {places}{before}; topology-manager-policy {policy}"
        f" accepts {accepted} NUMA node{'' if accepted == 1 else 's'} for it, best-effort any number",
    )


def numa_nodes_of(numa_nodes: Mapping[int, Cpus], cpus: Cpus) -> frozenset[int]:
    """Return those of the NUMA nodes that have some of the CPUs."""
    return frozenset(node for node, each in numa_nodes.items() if each & cpus)


def _combinations(nodes: Iterable[int], number_max: int) -> Iterator[frozenset[int]]:
    """Yield the sets of up to so many NUMA nodes: small ones first, then low numbers first."""
    # Source: Kubernetes, pkg/kubelet/cm/topologymanager/bitmask/bitmask.go, IsNarrowerThan: of two
    # sets of the same size the one whose highest number is lower, {1, 2} before {0, 3}.
    for number in range(1, number_max + 1):
        chosen = sorted(combinations(sorted(nodes), number), key=lambda each: each[::-1])
        yield from map(frozenset, chosen)


def _name_nodes(nodes: frozenset[int]) -> str:
    return f"NUMA node{'' if len(nodes) == 1 else 's'} {format_cpus(nodes)}"


def _describe_free(topology: CpuTopology, free: Cpus) -> Iterator[str]:
    for node, cpus in topology.numa_nodes.items():
        inside = cpus & free
        listed = f" ({format_cpus(inside)})" if inside else ""
        yield f"{len(inside)}{listed} on {_name_nodes(frozenset({node}))}"


def union_of(parts: Iterable[Cpus]) -> Cpus:
    """Return the CPUs of all parts."""
    return frozenset().union(*parts)
