"""The JSON documents of pods, of the node and of desired units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.cli.views.documents import Document, number, problem
from podslice.model.desired import Desired, PodDecision
from podslice.model.node import Allocation
from podslice.model.quantity import parse_quantity
from podslice.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PIDS,
    Amounts,
    format_amount,
    is_hugepages,
    whole,
)
from podslice.model.unit import PropertyValue
from podslice.policy.allocatable import unrequested
from podslice.policy.compare import Difference

_KEYS = {
    MEMORY: "memory_bytes",
    EPHEMERAL_STORAGE: "ephemeral_storage_bytes",
    PIDS: "pids",
}


def amounts(stated: Amounts) -> Document:
    """Return amounts by resource, without those that are not stated."""
    result: Document = {}
    if CPU in stated:
        result["cpu_milli"] = stated[CPU]
    result |= {key: whole(stated, name) for name, key in _KEYS.items() if name in stated}
    pages = {
        str(parse_quantity(name.removeprefix(HUGEPAGES_PREFIX)).milli // 1000): whole(stated, name)
        for name in sorted(stated)
        if is_hugepages(name)
    }
    return {**result, "hugepages_bytes": pages} if pages else result


def _properties(properties: Iterable[PropertyValue]) -> list[Document]:
    return [{"name": s.name, "value": number(s.value), "why": s.why} for s in properties]


def _init_properties(decision: PodDecision) -> Document:
    """Return the properties during the init phase, if they differ."""
    if decision.init_properties is None:
        return {}
    return {"init_properties": _properties(decision.init_properties)}


def _hugetlb(hugepages: Mapping[int, int]) -> Document:
    """Return huge page limits by page size in bytes, if any."""
    sizes = {str(size): limit for size, limit in hugepages.items()}
    return {"hugetlb_bytes": sizes} if sizes else {}


def differences(decision: PodDecision, found: Iterable[Difference]) -> Document:
    """Return the differences of the rule sets for a pod."""
    return {
        "namespace": decision.pod.namespace,
        "name": decision.pod.name,
        "differences": [
            {"what": each.what, "proposal": each.proposal, "kubernetes": each.kubernetes}
            for each in found
        ],
    }


def division(allocation: Allocation) -> Document:
    """Return the node's capacity, reservations and allocatable."""
    return {
        "capacity": amounts(allocation.capacity),
        "reserved": {
            "kube": amounts(allocation.kube_reserved),
            "system": amounts(allocation.system_reserved),
            "eviction": amounts(allocation.eviction),
            "hugepages": amounts(allocation.hugepages),
        },
        "allocatable": amounts(allocation.allocatable),
    }


def node(allocation: Allocation, requested: Amounts) -> Document:
    """Return the node's capacity, reservations, allocatable and requests."""
    free = unrequested(allocation, requested)
    return {
        **division(allocation),
        "requested": amounts(requested),
        "free": amounts({name: max(milli, 0) for name, milli in free.items()}),
        "memory_hugetlb_accounting": allocation.counts_hugepages,
    }


def node_status(allocation: Allocation) -> Document:
    """Return capacity and allocatable as a Kubernetes Node object."""

    def quantities(stated: Amounts) -> dict[str, str]:
        return {name: format_amount(name, stated[name]) for name in sorted(stated) if name != PIDS}

    return {
        "apiVersion": "v1",
        "kind": "Node",
        "status": {
            "capacity": quantities(allocation.capacity),
            "allocatable": quantities(allocation.allocatable),
        },
    }


def pod(decision: PodDecision) -> Document:
    """Return the decision about a pod."""
    return {
        "namespace": decision.pod.namespace,
        "name": decision.pod.name,
        "uid": decision.pod.uid,
        "qos_class": decision.qos.value,
        "requests": amounts(decision.requests),
        "limits": amounts(decision.limits),
        "grace_period_sec": decision.pod.grace_period_sec,
        "slice": decision.slice,
        "control_group": decision.control_group,
        "properties": _properties(decision.properties),
        **_init_properties(decision),
        **_hugetlb(decision.hugepages),
        "containers": [
            {
                "name": container.name,
                "kind": container.kind.value,
                "scope": container.scope,
                "oom_score_adj": container.oom_score_adj,
                "properties": _properties(container.properties),
                **_hugetlb(container.hugepages),
            }
            for container in decision.scopes
        ],
        "volumes": [
            {
                "name": volume.name,
                "unit": volume.unit,
                "path": volume.path,
                "size_bytes": volume.size_bytes,
                "why": volume.why,
            }
            for volume in decision.volumes
        ],
        "notes": list(decision.notes),
        "problems": [problem(found) for found in decision.problems],
    }


def units(desired: Desired) -> list[Document]:
    """Return the desired units with their values."""
    return [
        {
            "name": unit.name,
            "kind": unit.kind.value,
            "parent": unit.parent,
            "control_group": unit.control_group,
            "properties": {name: number(value) for name, value in unit.values.items()},
            **({"structure": dict(unit.structure)} if unit.structure else {}),
            **_hugetlb(unit.hugepages),
        }
        for unit in desired.lasting
    ]
