"""The plan: the difference between desired and observed state, as steps in order.

Policy states intent; what the service manager does not support is left out here, with the reason.
"""

from podslice.plan.changes import feasible
from podslice.plan.make import make_plan
from podslice.plan.restore import Restoration, restore_values
from podslice.plan.stated_cpus import keep_stated_cpus
from podslice.plan.steps import (
    Action,
    Change,
    Plan,
    SetHugepages,
    SetProperties,
    Skipped,
    Stage,
    StartUnit,
    Step,
    StopUnit,
    depth_of,
    order_of,
    stage_of,
    transient_unit,
)
from podslice.plan.stops import CLASS_CHANGED, TerminatingPods

__all__ = [
    "CLASS_CHANGED",
    "Action",
    "Change",
    "Plan",
    "Restoration",
    "SetHugepages",
    "SetProperties",
    "Skipped",
    "Stage",
    "StartUnit",
    "Step",
    "StopUnit",
    "TerminatingPods",
    "depth_of",
    "feasible",
    "keep_stated_cpus",
    "make_plan",
    "order_of",
    "restore_values",
    "stage_of",
    "transient_unit",
]
