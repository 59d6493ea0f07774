"""A plan is made in steps, between which the agent may pause."""

import pytest

from podslice.plan import planning
from tests.unit.builders import desired, observed, slice_unit

STAGES = ("moves", "stops", "the units' steps")


@pytest.mark.parametrize(("units", "pauses"), [(0, 0), (199, 0), (200, 1), (401, 2)])
def test_planning_pauses_after_each_stage_and_200_units(units, pauses):
    slices = [slice_unit(f"kubepods-pod{number}.slice") for number in range(units)]
    assert len(list(planning(desired(*slices), observed()))) == len(STAGES) + pauses
