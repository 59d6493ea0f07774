"""Memory limits below the current usage."""

from dataclasses import replace

import pytest

from podslice.plan.make import make_plan
from tests.cases.tables import cases
from tests.unit.builders import desired, observed, scope_unit, seen, slice_unit
from tests.unit.plan.plans import BURSTABLE, ROOT, WEB, change, only


def lowered(unit, *, used, old=200, force=False):
    there = seen(unit.name, values={"MemoryMax": old}, memory_bytes=used)
    return only(make_plan(desired(unit), observed(there), force=force))


@pytest.mark.parametrize(
    "unit",
    [
        slice_unit(ROOT, MemoryMax=100),
        slice_unit(WEB, pod="default/web", MemoryMax=100),
        scope_unit("podslice-podweb-main.scope", WEB, pod="default/web", MemoryMax=100),
    ],
    ids=lambda unit: unit.name,
)
def test_memory_is_reclaimed_before_a_limit_below_the_usage_is_set(unit):
    step = lowered(unit, used=150)
    assert (step.reclaim_bytes, step.used_bytes) == (100, 150)
    assert step.changes == (change("MemoryMax", 200, 100),)
    assert lowered(unit, used=150, force=True).reclaim_bytes is None


def test_what_is_enough_needs_no_reclaim():
    unit = slice_unit(WEB, pod="default/web", MemoryMax=100)
    assert lowered(unit, used=100).reclaim_bytes is None
    assert lowered(unit, used=None).reclaim_bytes is None
    assert lowered(unit, used=50, old=60).reclaim_bytes is None


def test_other_changes_of_a_full_unit_need_no_reclaim():
    there = seen(WEB, values={"MemoryMax": 100}, memory_bytes=100)
    unit = slice_unit(WEB, pod="default/web", MemoryMax=100, CPUWeight=7)
    assert only(make_plan(desired(unit), observed(there))).reclaim_bytes is None


def test_the_limit_of_a_tier_regards_what_is_in_use():
    tier = replace(slice_unit(BURSTABLE, MemoryMax=100), is_tier=True)
    assert lowered(tier, used=150).reclaim_bytes is None


@cases
def test_raised_limits_start_at_the_pod_and_lowered_ones_end_there(old, new, order):
    units = (
        slice_unit(WEB, pod="default/web", MemoryMax=new),
        scope_unit("podslice-podweb-main.scope", WEB, pod="default/web", MemoryMax=new),
    )
    there = observed(*(seen(unit.name, values={"MemoryMax": old}) for unit in units))
    assert [step.name for step in make_plan(desired(*units), there).steps] == order
