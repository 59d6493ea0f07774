"""The JSON documents of the command line: version 1, keys with the suffix of their unit.

Pure: values in, plain dicts and lists out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from podslice.errors import Problem, printable
from podslice.model.container_exit import ContainerExit
from podslice.model.desired import Desired, PodDecision, Refusal
from podslice.model.node import Allocation
from podslice.model.node_state import AgentState
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
from podslice.model.unit import INFINITY, PropertyValue, Value
from podslice.plan import Plan, SetProperties, Skipped, Step, StopUnit
from podslice.policy.allocatable import unrequested
from podslice.policy.compare import Difference
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.report import Report
from podslice.usage.unit_status import HOLDS_PROCESSES, UnitStatus

if TYPE_CHECKING:
    from podslice.processes.adoption import Adopted
    from podslice.processes.location import Located, Placement, Running

Document = dict[str, Any]
DOCUMENT_VERSION = 1

_KEYS = {
    MEMORY: "memory_bytes",
    EPHEMERAL_STORAGE: "ephemeral_storage_bytes",
    PIDS: "pids",
}


def document(**parts: object) -> Document:
    """Return a document with its version."""
    return {"version": DOCUMENT_VERSION, **parts}


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


def number(value: Value | None) -> object:
    """Return a value for JSON, which has no number for infinity."""
    if value == INFINITY and not isinstance(value, bool):
        return "infinity"
    return list(value) if isinstance(value, tuple) else value


def problem(found: Problem) -> Document:
    """Return a problem."""
    return {
        "severity": found.severity.value,
        "where": found.where,
        "message": found.message,
        "hint": found.hint,
    }


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


def node(allocation: Allocation, requested: Amounts) -> Document:
    """Return the node's capacity, reservations, allocatable and requests."""
    free = unrequested(allocation, requested)
    return {
        "capacity": amounts(allocation.capacity),
        "reserved": {
            "kube": amounts(allocation.kube_reserved),
            "system": amounts(allocation.system_reserved),
            "eviction": amounts(allocation.eviction),
            "hugepages": amounts(allocation.hugepages),
        },
        "allocatable": amounts(allocation.allocatable),
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


def refusal(refused: Refusal) -> Document:
    """Return a pod that was not admitted."""
    return {"pod": refused.pod, "reason": refused.reason, "message": refused.message}


def step(taken: Step) -> Document:
    """Return a step of a plan."""
    result: Document = {"action": taken.action.value, "unit": taken.name, "properties": []}
    if isinstance(taken, StopUnit):
        return {
            **result,
            "why": taken.why,
            "tasks": taken.tasks,
            "grace_period_sec": taken.grace_sec,
            "occupants": list(taken.occupants.descriptions),
        }
    result["properties"] = [
        {
            "name": change.name,
            "old": number(change.old),
            "new": number(change.new),
            "why": change.why,
            **({"is_return": True} if change.is_return else {}),
        }
        for change in taken.changes
    ]
    if isinstance(taken, SetProperties) and taken.reclaim_bytes is not None:
        result |= {"used_bytes": taken.used_bytes, "reclaim_to_bytes": taken.reclaim_bytes}
    return result


def _skipped(left_out: Iterable[Skipped]) -> list[Document]:
    return [{"unit": each.unit, "name": each.name, "why": each.why} for each in left_out]


def plan(made: Plan) -> Document:
    """Return a plan: its steps in order, skipped properties and refused pods."""
    return {
        "steps": [step(taken) for taken in made.steps],
        "skipped": _skipped(made.skipped),
        "refused": [refusal(refused) for refused in made.refused],
    }


def report(done: Report) -> Document:
    """Return the report of an apply or a delete."""
    return {
        "steps": [
            {**step(result.step), "outcome": result.outcome.value, "error": result.error}
            for result in done.results
        ],
        "skipped": _skipped(done.skipped),
        "refused": [refusal(refused) for refused in done.refused],
        "remaining": [step(taken) for taken in done.remaining.steps],
        "stuck": [asdict(each) for each in done.stuck],
    }


def status(state: Assessment, units: Iterable[UnitStatus], placement: Placement) -> Document:
    """Return units with their values, usage and processes, differences and strays."""
    return {
        "in_sync": not state.plan and not state.broken_records,
        "units": [_unit_status(unit, placement) for unit in units],
        "others": [
            {
                "unit": printable(other.unit),
                "pod": other.pod,
                "container": other.container,
                "runtime": other.runtime,
                "processes": _processes(other.processes),
            }
            for other in placement.others
        ],
        "strays": [
            {
                "pod": stray.pod,
                "container": stray.container,
                "what": printable(stray.what),
                "found_by": stray.found_by,
                "pid": process.pid if process else None,
                "name": process.name if process else None,
                "control_group": printable(stray.control_group),
                "hint": stray.hint,
            }
            for stray in placement.strays
            for process in stray.processes or (None,)
        ],
        "orphans": list(state.orphans),
        "evicted": [asdict(mark) for mark in state.evicted],
        **_agent(state.agent),
        "steps": [step(taken) for taken in state.plan.steps],
    }


def _agent(agent: AgentState | None) -> Document:
    """Return the state of the agent; the same keys without an agent."""
    return {
        "agent_pid": None if agent is None else agent.pid,
        "conditions": [] if agent is None else [each.value for each in agent.conditions],
        "terminating": [] if agent is None else list(map(printable, agent.terminating)),
    }


def adopted(done: Adopted) -> Document:
    """Return the outcome of moving processes into a container."""
    return {
        "unit": done.unit,
        "control_group": done.control_group,
        "processes": [
            {"pid": each.pid, "name": each.name, "outcome": each.outcome.value, "why": each.why}
            for each in done.processes
        ],
    }


def located(found: Iterable[Located]) -> Document:
    """Return processes with their pods and units."""
    return {
        "processes": [
            {
                "pid": each.pid,
                "name": each.name,
                "pod": each.home and each.home.pod,
                "container": each.home and each.home.container,
                "unit": each.home and printable(each.home.unit),
                "control_group": printable(each.control_group),
                "hint": each.hint,
            }
            for each in found
        ]
    }


def _processes(found: Iterable[Running]) -> list[Document]:
    return [{"pid": process.pid, "name": process.name} for process in found]


def _held(unit: UnitStatus, placement: Placement) -> Document:
    """Return the processes of a container."""
    if unit.kind not in HOLDS_PROCESSES:
        return {}
    return {
        "container": unit.label,
        "processes": _processes(placement.held.get(unit.name, ())),
        "restarts": unit.restarts,
        "last_exit": unit.last_exit and container_exit(unit.last_exit),
    }


def container_exit(last: ContainerExit) -> Document:
    """Return the last exit of a container."""
    return {
        "result": last.result,
        "exit_code": last.exit_code,
        "signal": last.signal,
        "oom_killed": last.is_oom,
        "started_usec": last.started_usec,
        "ended_usec": last.ended_usec,
        "duration_usec": last.duration_usec,
    }


def _unit_status(unit: UnitStatus, placement: Placement) -> Document:
    return {
        "name": unit.name,
        "kind": unit.kind.value,
        "pod": unit.pod,
        "qos_class": unit.qos or None,
        "state": unit.state,
        "control_group": unit.control_group,
        "differs": unit.differs,
        **_held(unit, placement),
        "properties": [
            {
                "name": each.name,
                "desired": number(each.desired),
                "systemd": number(each.systemd),
                "kernel": each.kernel,
            }
            for each in unit.properties
        ],
        "usage": {name: value for name, value in asdict(unit.usage).items() if value is not None},
    }


def listed(items: Iterable[Any], make: Callable[[Any], Document]) -> list[Document]:
    """Return a document for each item."""
    return [make(item) for item in items]
