"""The events of steps, the same for the agent and for verbs."""

from __future__ import annotations

from podslice.model.event import Kind
from podslice.plan import Action, StopUnit
from podslice.reconcile.report import StepResult

_KINDS = {
    Action.START: Kind.POD_APPLIED,
    Action.SET: Kind.POD_CHANGED,
    Action.STOP: Kind.POD_REMOVED,
}


def pod_of(result: StepResult) -> str | None:
    """Return the pod of a step, as `namespace/name`."""
    step = result.step
    return step.pod if isinstance(step, StopUnit) else step.unit.pod


def kind_of(result: StepResult) -> Kind | None:
    """Return the kind of event of a completed step on a pod's slice; None for other units."""
    is_slice = result.step.name.endswith(".slice")
    return _KINDS[result.step.action] if is_slice and pod_of(result) is not None else None
