"""JSON of what `plan` and `status` show besides units: a foreign root, values outside the root."""

from __future__ import annotations

from collections.abc import Iterable

from podslice.cli.views.documents import Document, number
from podslice.errors import Problem, Severity, printable
from podslice.model.kubelet import Foreign
from podslice.model.node_state import PendingPod
from podslice.model.reserved_values import PendingTrial, ReservedValues
from podslice.usage.health import HealthProblem


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
