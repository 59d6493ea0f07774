"""Properties that systemd does not support."""

from dataclasses import replace

from podslice.plan import Plan, Skipped
from podslice.plan.make import make_plan
from tests.unit.builders import desired, observed, scope_unit, seen, slice_unit
from tests.unit.plan.plans import ROOT, WEB, change, only


def test_a_property_newer_than_systemd_is_left_out_and_reported():
    unit = slice_unit(ROOT, MemoryMin=5, CPUWeight=7)
    plan = make_plan(desired(unit), observed(version=239))
    assert only(plan).changes == (change("CPUWeight", None, 7),)
    assert plan.skipped == (
        Skipped(
            unit=ROOT, name="MemoryMin", why="systemd 239 does not support it; it requires 240"
        ),
    )
    assert not make_plan(desired(unit), observed(version=240)).skipped


def test_a_value_out_of_range_is_left_out_and_reported():
    plan = make_plan(desired(slice_unit(ROOT, CPUWeight=20_000)), observed())
    assert only(plan).changes == ()
    assert [(each.name, each.why) for each in plan.skipped] == [
        ("CPUWeight", "systemd takes 0 to 10000, not 20000")
    ]


def test_what_is_left_out_does_not_differ_for_ever():
    there = replace(seen(ROOT), properties={"CPUWeight": 7})
    plan = make_plan(
        desired(slice_unit(ROOT, MemoryMin=5, CPUWeight=7)), observed(there, version=239)
    )
    assert not plan
    assert len(plan.skipped) == 1


def test_nothing_is_reported_about_scopes_that_are_not_active():
    scope = scope_unit("podslice-podweb-main.scope", WEB, MemoryMin=5)
    assert make_plan(desired(scope), observed(version=239)) == Plan()
    running = replace(seen(scope.name), properties={})
    assert len(make_plan(desired(scope), observed(running, version=239)).skipped) == 1
