"""Differences between desired and observed state."""

from dataclasses import replace

import pytest

from podslice.model.properties import MANAGED, PROPERTIES
from podslice.model.unit import UnitKind
from podslice.plan import (
    Plan,
    make_plan,
)
from tests.unit.builders import (
    as_observed,
    desired,
    desired_for,
    observed,
    seen,
    slice_unit,
)
from tests.unit.plan.plans import ROOT, THREE, change, only


def test_nothing_is_to_do_where_all_is_as_it_should_be():
    wanted = desired_for(*THREE)
    assert make_plan(wanted, as_observed(wanted)) == Plan()
    assert make_plan(wanted, as_observed(wanted, scopes=False)) == Plan()
    assert not make_plan(wanted, as_observed(wanted))


def test_nothing_is_to_do_where_nothing_should_be():
    assert make_plan(desired_for(), observed()) == Plan()


@pytest.mark.parametrize("name", MANAGED[UnitKind.SLICE])
def test_drift_of_a_stated_property_is_put_back(name):
    row = PROPERTIES[name]
    right, wrong = row.minimum + 10, row.minimum + 20
    plan = make_plan(
        desired(slice_unit(ROOT, **{name: right})), observed(seen(ROOT, values={name: wrong}))
    )
    assert only(plan).changes == (change(name, wrong, right),)
    assert only(plan).changes[0].why == f"why {name}"


@pytest.mark.parametrize("name", MANAGED[UnitKind.SLICE])
def test_a_value_that_is_not_stated_is_unset(name):
    wrong = PROPERTIES[name].minimum + 10
    plan = make_plan(desired(slice_unit(ROOT)), observed(seen(ROOT, values={name: wrong})))
    assert only(plan).changes == (change(name, wrong, PROPERTIES[name].unset),)
    assert only(plan).changes[0].why == "not requested by any manifest"


def test_a_property_that_systemd_does_not_report_is_not_compared():
    unit = replace(seen(ROOT), properties={})
    assert not make_plan(desired(slice_unit(ROOT, MemoryMax=1)), observed(unit))


def test_several_changes_of_a_unit_are_one_step():
    plan = make_plan(
        desired(slice_unit(ROOT, MemoryMax=1, CPUWeight=2)),
        observed(seen(ROOT, values={"TasksMax": 3})),
    )
    assert [each.name for each in only(plan).changes] == ["CPUWeight", "MemoryMax", "TasksMax"]
