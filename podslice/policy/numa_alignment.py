"""On which NUMA nodes a request for CPUs is served: the topology manager of a kubelet, for CPUs only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, combinations

from podslice.model.config import TopologyManagerPolicy
from podslice.model.cpu_list import format_cpus
from podslice.model.cpu_topology import Cpus, CpuTopology
from podslice.policy.cpu_assignment import CpuOptions, CpuRefusal, assign_cpus, usable_cpus

TOPOLOGY_AFFINITY = "TopologyAffinityError"
"""Source: Kubernetes, pkg/kubelet/cm/topologymanager/topology_manager.go, ErrorTopologyAffinity."""


def align_cpus(
    topology: CpuTopology,
    count: int,
    *,
    free: Cpus,
    options: CpuOptions,
    policy: TopologyManagerPolicy,
) -> Cpus | CpuRefusal:
    """Return `count` of the free CPUs on as few NUMA nodes as possible, or why the policy refuses.

    Among as many nodes those with the lowest numbers are taken. `restricted` accepts as many nodes
    as the request requires on an idle machine, and `single-numa-node` one.

    Source: Kubernetes, pkg/kubelet/cm/topologymanager/policy.go, HintMerger.Merge,
    policy_restricted.go, policy_single_numa_node.go; pkg/kubelet/cm/cpumanager/policy_static.go,
    generateCPUTopologyHints.
    """
    anywhere = assign_cpus(topology, count, free=free, options=options)
    if policy is TopologyManagerPolicy.NONE or isinstance(anywhere, CpuRefusal):
        return anywhere
    number, found = _fewest_nodes(topology, count, free, options) or (
        len(topology.numa_nodes),
        anywhere,
    )
    accepted = {
        TopologyManagerPolicy.RESTRICTED: _least_nodes(topology, count),
        TopologyManagerPolicy.SINGLE_NUMA_NODE: 1,
    }.get(policy, number)
    if number <= accepted:
        return found
    places = ", ".join(_describe_free(topology, usable_cpus(topology, free, options)))
    return CpuRefusal(
        reason=TOPOLOGY_AFFINITY,
        message=f"requested CPUs: {count}; free: {places}; topology-manager-policy {policy} accepts"
        f" {accepted} NUMA node{'' if accepted == 1 else 's'} for it, best-effort any number",
    )


def numa_nodes_of(numa_nodes: Mapping[int, Cpus], cpus: Cpus) -> frozenset[int]:
    """Return those of the NUMA nodes that have some of the CPUs."""
    return frozenset(node for node, each in numa_nodes.items() if each & cpus)


def _fewest_nodes(
    topology: CpuTopology, count: int, free: Cpus, options: CpuOptions
) -> tuple[int, Cpus] | None:
    """Return the least number of NUMA nodes that serve the request, and CPUs; None for all nodes."""
    nodes = topology.numa_nodes
    for number in range(1, len(nodes)):
        for chosen in combinations(nodes.values(), number):
            inside = free & _union(chosen)
            found = assign_cpus(topology, count, free=inside, options=options)
            if not isinstance(found, CpuRefusal):
                return number, found
    return None


def _least_nodes(topology: CpuTopology, count: int) -> int:
    """Return how many NUMA nodes have this number of CPUs when all of them are free."""
    sizes = sorted(map(len, topology.numa_nodes.values()), reverse=True)
    return bisect_left([*accumulate(sizes)], count) + 1


def _describe_free(topology: CpuTopology, free: Cpus) -> Iterator[str]:
    for node, cpus in topology.numa_nodes.items():
        inside = cpus & free
        listed = f" ({format_cpus(inside)})" if inside else ""
        yield f"{len(inside)}{listed} on NUMA node {node}"


def _union(parts: Iterable[Cpus]) -> Cpus:
    return frozenset().union(*parts)
