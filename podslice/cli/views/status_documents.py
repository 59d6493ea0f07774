"""The JSON documents of the node and its problems, and of units, containers and processes as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from podslice.cli.views.changes import step_document
from podslice.cli.views.documents import Document, number
from podslice.errors import Problem, Severity, printable
from podslice.model.container_exit import ContainerExit
from podslice.model.kubelet import Foreign
from podslice.model.node_state import AgentState, PendingPod
from podslice.model.reserved_values import PendingTrial, ReservedValues
from podslice.model.unit import UnitKind
from podslice.processes.adoption import Adopted
from podslice.processes.location import Located, Placement, Running
from podslice.reconcile.assessment import Assessment
from podslice.usage.health import HealthProblem
from podslice.usage.unit_status import PodFacts
from podslice.usage.unit_status import HOLDS_PROCESSES, UnitStatus


def status(
    state: Assessment,
    units: Iterable[UnitStatus],
    placement: Placement,
    facts: Mapping[str, PodFacts],
) -> Document:
    """Return units with their values, usage and processes, differences and strays."""
    return {
        "in_sync": not state.plan and not state.broken_records,
        "units": [_unit_status(unit, placement, facts) for unit in units],
        "others": [
            {
                "unit": printable(other.unit),
                "pod": other.pod,
                "container": other.container,
                "runtime": other.runtime,
                "restarts": other.restarts,
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
        "steps": [step_document(taken) for taken in state.plan.steps],
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
        "started_usec": last.started_usec or None,
        "ended_usec": last.ended_usec,
        "duration_usec": last.duration_usec,
    }


def _facts(unit: UnitStatus, facts: Mapping[str, PodFacts]) -> Document:
    """Return what is counted of a pod, for its slice."""
    found = facts.get(unit.pod or "") if unit.kind is UnitKind.SLICE else None
    if found is None:
        return {}
    return {
        "containers": found.containers,
        "containers_ready": found.ready,
        "restarts": found.restarts,
        "started_usec": found.started_usec or None,
    }


def _unit_status(unit: UnitStatus, placement: Placement, facts: Mapping[str, PodFacts]) -> Document:
    return {
        "name": unit.name,
        "kind": unit.kind.value,
        "pod": unit.pod,
        "qos_class": unit.qos or None,
        "state": unit.state,
        "control_group": unit.control_group,
        "differs": unit.differs,
        **_held(unit, placement),
        **_facts(unit, facts),
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


def health(problems: Iterable[HealthProblem], of_manifests: Iterable[Problem]) -> Document:
    """Return what is not as it should be, and the warnings of manifests."""
    listed = [
        {
            "kind": each.kind.value,
            "object": printable(each.object),
            "message": each.message,
            "hint": each.hint,
        }
        for each in problems
    ]
    warnings = [each for each in of_manifests if each.severity is Severity.WARNING]
    return {
        "healthy": not listed,
        "problems": listed,
        "warnings": [
            {"where": each.where, "message": each.message, "hint": each.hint} for each in warnings
        ],
    }


def pending(found: Iterable[PendingPod]) -> Document:
    """Return the pods that are wanted and do not run as their manifests state."""
    return {
        "pending": [
            {
                "pod": each.pod,
                "qos_class": each.qos or None,
                "reason": each.reason,
                "message": each.message,
                "hint": each.hint,
                "condition": each.condition and each.condition.value,
                "manifest": each.source,
                "is_applied": each.is_applied,
            }
            for each in found
        ]
    }


def foreign(found: Foreign | None) -> Document:
    """Return the reason if the root slice belongs to a kubelet, so that podslice changes nothing."""
    if found is None:
        return {}
    return {"foreign": {"reason": found.reason, "fix": found.way_out}}


def reserved(held: ReservedValues) -> Document:
    """Return the values that podslice has set outside its root, with the previous ones, if any."""
    if not held:
        return {}
    return {
        "reserved_slices": [
            {
                "unit": unit,
                "properties": [
                    {"name": name, "before": number(each.before), "set": number(each.ours[-1])}
                    for name, each in sorted(values.items())
                ],
            }
            for unit, values in sorted(held.units.items())
        ]
    }


def unconfirmed(pending: PendingTrial | None) -> Document:
    """Return the unconfirmed values of reserved slices, if there are any."""
    if pending is None:
        return {}
    return {
        "unconfirmed": {
            "state": pending.state.value,
            "remaining_sec": pending.remaining_sec,
            "units": [
                {
                    "unit": unit,
                    "properties": [
                        {
                            "name": name,
                            "old": number(old),
                            "new": number(pending.values.new.get(unit, {}).get(name)),
                        }
                        for name, old in sorted(values.items())
                    ],
                }
                for unit, values in sorted(pending.values.old.items())
            ],
        }
    }
