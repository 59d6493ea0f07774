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
NUMA_NODES_MAX = 8
"""Each further node doubles the sets of nodes that are tried.

Source: Kubernetes, topologymanager/policy_options.go, defaultMaxAllowableNUMANodes.
"""


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
    accepted = {
        TopologyManagerPolicy.RESTRICTED: _least_nodes(topology, count),
        TopologyManagerPolicy.SINGLE_NUMA_NODE: 1,
    }.get(policy, len(nodes))
    required = numa_nodes_of(nodes, reused)
    for chosen in _combinations(nodes, accepted):
        if required <= chosen:
            inside = free & _union(nodes[node] for node in chosen)
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


def describe_too_many(count: int) -> str:
    """Return the message that a node has more NUMA nodes than a topology manager supports."""
    return f"the node has {count} NUMA nodes, more than {NUMA_NODES_MAX}"


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


def _least_nodes(topology: CpuTopology, count: int) -> int:
    """Return how many NUMA nodes have this number of CPUs when all of them are free."""
    sizes = sorted(map(len, topology.numa_nodes.values()), reverse=True)
    return bisect_left([*accumulate(sizes)], count) + 1


def _name_nodes(nodes: frozenset[int]) -> str:
    return f"NUMA node{'' if len(nodes) == 1 else 's'} {format_cpus(nodes)}"


def _describe_free(topology: CpuTopology, free: Cpus) -> Iterator[str]:
    for node, cpus in topology.numa_nodes.items():
        inside = cpus & free
        listed = f" ({format_cpus(inside)})" if inside else ""
        yield f"{len(inside)}{listed} on {_name_nodes(frozenset({node}))}"


def _union(parts: Iterable[Cpus]) -> Cpus:
    return frozenset().union(*parts)
