"""Node allocatable: the host's resources for pods."""

from __future__ import annotations

import math
from collections.abc import Iterator

from podslice.errors import Problem
from podslice.model.config import Config, CpuManagerPolicy, Threshold, TopologyManagerPolicy
from podslice.model.node import Allocation, CpuTopology, Node, format_cpus
from podslice.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    Amounts,
    ExactAmounts,
    human_amounts,
    is_hugepages,
    rounded_up,
    total,
)
from podslice.policy.aggregate import counts_as_memory
from podslice.policy.exclusive import NUMA_NODES_MAX, describe_too_many

_EVICTION_RESOURCE = {"memory.available": MEMORY, "nodefs.available": EPHEMERAL_STORAGE}
"""The thresholds that are subtracted from Allocatable.

Source: Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go, hardEvictionReservation.
"""


def allocate(node: Node, config: Config) -> Allocation:
    """Return the division of the node's capacity.

    Allocatable is the capacity less the reservations, less the hard eviction thresholds and, for
    memory, less the huge pages, never below 0. `enforced`, the limit of `kubepods.slice`, includes
    the eviction thresholds, so that eviction acts before the kernel's OOM killer, and the huge
    pages, as the capacity does. The difference is exact, and rounded up to whole thousandths.

    Source: Node Allocatable Resources, "Allocatable" and "Kubelet Evictions Thresholds";
    Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go, GetNodeAllocatableReservation;
    pkg/kubelet/nodestatus/setters.go, MachineInfo ("for every huge page reservation, we need to
    remove it from allocatable memory").
    """
    capacity = {**node.capacity, **config.capacity}
    eviction = hard_eviction(capacity, config)
    system_reserved = reserved_for_system(config)
    reserved = total((config.kube_reserved, system_reserved))
    subtract_eviction = {} if config.ignore_eviction_threshold else eviction
    # The kernel takes the pages of the pool out of the memory that others can use.
    set_aside = {MEMORY: sum(milli for name, milli in capacity.items() if is_hugepages(name))}
    return Allocation(
        capacity=capacity,
        kube_reserved=rounded_up(config.kube_reserved),
        system_reserved=rounded_up(system_reserved),
        eviction=eviction,
        hugepages=set_aside if set_aside[MEMORY] else {},
        counts_hugepages=counts_as_memory(node, config),
        allocatable=_subtract(capacity, total((reserved, subtract_eviction, set_aside))),
        enforced=_subtract(capacity, reserved),
    )


def reserved_for_system(config: Config) -> ExactAmounts:
    """Return what system daemons have: reserved CPUs count as their number.

    Source: Kubernetes, cmd/kubelet/app/server.go, --reserved-cpus.
    """
    if not config.reserved_cpus:
        return config.system_reserved
    return {**config.system_reserved, CPU: len(config.reserved_cpus) * 1000}


def unrequested(allocation: Allocation, requested: Amounts) -> dict[str, int]:
    """Return what is left of allocatable for further pods; negative if more is requested."""
    return {name: milli - requested.get(name, 0) for name, milli in allocation.allocatable.items()}


def hard_eviction(capacity: Amounts, config: Config) -> dict[str, int]:
    """Return the hard eviction thresholds in absolute amounts."""
    return {
        resource: threshold_amount(config.eviction_hard[signal], capacity[resource])
        for signal, resource in _EVICTION_RESOURCE.items()
        if signal in config.eviction_hard and resource in capacity
    }


def threshold_amount(threshold: Threshold, capacity: int) -> int:
    """Return a threshold as an amount, in thousandths; a share is rounded down to a whole unit.

    Source: Kubernetes, pkg/kubelet/eviction/api/types.go, GetThresholdQuantity.
    """
    if threshold.amount is not None:
        return threshold.amount
    # Whole units × thousandths of a percent: 100 % is 100,000.
    return capacity // 1000 * (threshold.percent_milli or 0) // 100_000 * 1000


def validate_node(node: Node, config: Config) -> list[Problem]:
    """Return problems of reservations of what the node does not have."""
    capacity = {**node.capacity, **config.capacity}
    reserved = total((config.kube_reserved, reserved_for_system(config)))
    reserved = total((reserved, hard_eviction(capacity, config)))
    # a policy for another machine may be one that this host cannot apply
    is_own = config.cpu_topology is None and CPU not in config.capacity
    needs_cpuset = is_own and config.cpu_manager_policy is not CpuManagerPolicy.NONE
    return [
        *check_controller("cpuset" if needs_cpuset else "", node, "cpu-manager-policy"),
        *_missing(config.reserved_cpus, node_cpus(node, config)),
        *_check_numa_nodes(config.cpu_topology or node.topology, config),
        *_above(capacity, reserved),
        *_check_tiers(node, config),
    ]


def check_host(node: Node, config: Config) -> Iterator[Problem]:
    """Yield the errors of CPUs that a plan for another machine may have, and this host cannot apply."""
    if config.cpu_topology is not None:
        yield Problem(
            where="cpu-topology",
            message="it is for plans of another machine",
            hint="leave it out; explain, render and plan accept it",
        )
    if config.cpu_manager_policy is CpuManagerPolicy.NONE:
        return
    if CPU in config.capacity:
        yield from check_controller("cpuset", node, "cpu-manager-policy")
    cpus = node_cpus(node, config)
    if cpus is not None and node.cpus is not None and (missing := cpus - node.cpus):
        yield Problem(
            where="capacity",
            message=f"cpu-manager-policy {config.cpu_manager_policy} would assign CPUs that this host"
            f" does not have: {format_cpus(missing)}",
            hint="leave cpu out; explain, render and plan accept it",
        )


def check_controller(controller: str, node: Node, where: str) -> Iterator[Problem]:
    """Yield the error of a controller that is needed and not available; empty: none is needed."""
    if controller and node.controllers is not None and controller not in node.controllers:
        yield Problem(
            where=where,
            message=f"the {controller} controller is not available",
            hint="use cgroup v2 with this controller, and delegate it to a user manager (Delegate=)",
        )


def _check_numa_nodes(topology: CpuTopology | None, config: Config) -> Iterator[Problem]:
    """Yield the error of a topology manager on too many NUMA nodes: it tries all combinations."""
    is_aligning = config.topology_manager_policy is not TopologyManagerPolicy.NONE
    count = len(topology.numa_nodes) if topology else 0
    if is_aligning and count > NUMA_NODES_MAX:
        yield Problem(
            where="topology-manager-policy",
            message=describe_too_many(count),
            hint="set it to none",
        )


def _check_tiers(node: Node, config: Config) -> Iterator[Problem]:
    """Yield the errors of thresholds that are always met: no limit of a tier is larger."""
    limit = allocate(node, config).enforced.get(MEMORY)
    for qos, threshold in sorted(config.eviction_tier.items()):
        if limit is not None and (threshold.amount or 0) >= limit:
            amounts = human_amounts(MEMORY, threshold.amount or 0, limit)
            yield Problem(
                where="eviction-tier",
                message="{} is not less than {}, the most memory of a tier".format(*amounts),
                hint=f"lower the threshold of {qos.lower()}, or write it as a percentage",
            )


def _missing(reserved: frozenset[int], cpus: frozenset[int] | None) -> Iterator[Problem]:
    if cpus is not None and (missing := reserved - cpus):
        yield Problem(
            where="reserved-cpus",
            message=f"the node does not have {format_cpus(missing)}",
            hint=f"its CPUs are {format_cpus(cpus)}",
        )


def _above(capacity: Amounts, reserved: ExactAmounts) -> Iterator[Problem]:
    for name, milli in sorted(reserved.items()):
        if name in capacity and milli > capacity[name]:
            amounts = human_amounts(name, math.ceil(milli), capacity[name])
            yield Problem(
                where="kube-reserved + system-reserved + eviction-hard",
                message="{} of {name} is reserved, the node has {}".format(*amounts, name=name),
                hint="lower the reservations",
            )


def node_cpus(node: Node, config: Config) -> frozenset[int] | None:
    """Return the CPUs of the node, with a configured capacity the first ones; None if not known."""
    if config.cpu_topology is not None:
        return config.cpu_topology.all
    if CPU in config.capacity:
        # A fraction of a CPU counts as one more CPU.
        return frozenset(range(-(-config.capacity[CPU] // 1000)))
    return node.cpus


def _subtract(amounts: Amounts, less: ExactAmounts) -> dict[str, int]:
    left = rounded_up({name: milli - less.get(name, 0) for name, milli in amounts.items()})
    return {name: max(milli, 0) for name, milli in left.items()}
