"""Differences between desired and observed state."""

from dataclasses import replace

import pytest

from podslice.model.properties import PROPERTIES, managed_of
from podslice.plan import Plan
from podslice.plan.make import make_plan
from tests.cases.tables import cases
from tests.unit.builders import (
    as_observed,
    desired,
    desired_for,
    observed,
    property_value,
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


@cases
def test_the_cpus_of_all_pods_are_podslice_s_only_as_a_partition(stated, has, expected):
    there = seen(ROOT, values={"AllowedCPUs": "0-3", **has})
    made = make_plan(desired(slice_unit(ROOT, **stated)), observed(there, version=261))
    changes = [(each.name, each.new) for step in made.steps for each in step.changes]
    assert sorted(changes) == sorted(expected.items())


KEPT = managed_of(slice_unit(ROOT))


@pytest.mark.parametrize("name", KEPT)
def test_drift_of_a_stated_property_is_put_back(name):
    row = PROPERTIES[name]
    right, wrong = row.minimum + 10, row.minimum + 20
    plan = make_plan(
        desired(slice_unit(ROOT, **{name: right})), observed(seen(ROOT, values={name: wrong}))
    )
    assert only(plan).changes == (change(name, wrong, right),)
    assert only(plan).changes[0].why == f"why {name}"


@pytest.mark.parametrize("name", KEPT)
def test_a_value_that_is_not_stated_is_unset(name):
    wrong = PROPERTIES[name].minimum + 10
    plan = make_plan(desired(slice_unit(ROOT)), observed(seen(ROOT, values={name: wrong})))
    assert only(plan).changes == (change(name, wrong, PROPERTIES[name].unset),)
    assert only(plan).changes[0].why == "not requested by any manifest"


@pytest.mark.parametrize("fields", [{"pod": "default/web"}, {"is_tier": True}])
def test_cpus_are_kept_on_tiers_and_units_of_pods_only(fields):
    """Administrators may limit all pods to some CPUs by hand."""
    unit = replace(slice_unit(ROOT), **fields)
    there = observed(seen(ROOT, values={"AllowedCPUs": "0-3"}))
    assert not make_plan(desired(slice_unit(ROOT)), there)
    assert only(make_plan(desired(unit), there)).changes == (change("AllowedCPUs", "0-3", ""),)
    stated = replace(unit, properties=(property_value("AllowedCPUs", "1"),))
    assert only(make_plan(desired(stated), there)).changes == (change("AllowedCPUs", "0-3", "1"),)


def test_a_weight_of_io_stays_on_a_tier():
    there = observed(seen(ROOT, values={"IOWeight": 50}))
    assert not make_plan(desired(replace(slice_unit(ROOT), is_tier=True)), there)
    assert make_plan(desired(replace(slice_unit(ROOT), pod="default/web")), there)


def test_a_property_that_systemd_does_not_report_is_not_compared():
    unit = replace(seen(ROOT), properties={})
    assert not make_plan(desired(slice_unit(ROOT, MemoryMax=1)), observed(unit))


def test_several_changes_of_a_unit_are_one_step():
    plan = make_plan(
        desired(slice_unit(ROOT, MemoryMax=1, CPUWeight=2)),
        observed(seen(ROOT, values={"TasksMax": 3})),
    )
    assert [each.name for each in only(plan).changes] == ["CPUWeight", "MemoryMax", "TasksMax"]
