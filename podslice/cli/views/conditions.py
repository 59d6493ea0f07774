"""JSON of what `plan` and `status` show besides units: a foreign root, values outside the root."""

from __future__ import annotations

from podslice.cli.views.documents import Document, number
from podslice.model.kubelet import Foreign
from podslice.model.reserved_values import PendingTrial, ReservedValues


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
