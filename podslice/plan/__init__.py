"""The difference between what should be and what is, as steps in order.

Policy states intent; what the service manager at hand can't do is left out here, and said so.
"""

from podslice.plan.changes import feasible
from podslice.plan.make import make_plan, planning
from podslice.plan.reserved import Returning, return_values
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
    stage_of,
    transient_unit,
)
from podslice.plan.stops import CLASS_CHANGED, Leaving

__all__ = [
    "CLASS_CHANGED",
    "Action",
    "Change",
    "Leaving",
    "Plan",
    "Returning",
    "SetHugepages",
    "SetProperties",
    "Skipped",
    "Stage",
    "StartUnit",
    "Step",
    "StopUnit",
    "depth_of",
    "feasible",
    "make_plan",
    "planning",
    "return_values",
    "stage_of",
    "transient_unit",
]
