"""Slices, scopes and services."""

from dataclasses import replace

import pytest

from podslice.model.unit import UnitKind
from podslice.plan import SetProperties, StartUnit, transient_unit
from podslice.plan.make import make_plan
from tests.unit.builders import desired, observed, scope_unit, seen, slice_unit
from tests.unit.plan.plans import ROOT, WEB, change, only


def test_an_implied_slice_is_started():
    """A slice that is up only because a child is up: it has none of our properties."""
    plan = make_plan(desired(slice_unit(ROOT, CPUWeight=5)), observed(seen(ROOT, transient=False)))
    assert only(plan) == StartUnit(
        unit=slice_unit(ROOT, CPUWeight=5), changes=(change("CPUWeight", None, 5),)
    )


def test_a_slice_from_a_unit_file_is_changed_and_not_started():
    there = seen(ROOT, transient=False, fragment_path="/etc/systemd/system/kubepods.slice")
    plan = make_plan(desired(slice_unit(ROOT, CPUWeight=5)), observed(there))
    assert isinstance(only(plan), SetProperties)


@pytest.mark.parametrize("state", ["inactive", "failed", "deactivating"])
def test_a_slice_that_is_not_up_is_started(state):
    there = seen(ROOT, active_state=state)
    assert isinstance(only(make_plan(desired(slice_unit(ROOT)), observed(there))), StartUnit)


def test_a_slice_on_its_way_up_is_not_started():
    there = seen(ROOT, active_state="activating")
    assert not make_plan(desired(slice_unit(ROOT)), observed(there))


def test_a_scope_is_never_started():
    scope = scope_unit("podslice-podweb-main.scope", WEB, CPUWeight=5)
    assert not make_plan(desired(scope), observed())
    assert not make_plan(desired(scope), observed(seen(scope.name, active_state="failed")))


def test_a_scope_that_runs_is_changed():
    scope = scope_unit("podslice-podweb-main.scope", WEB, CPUWeight=5)
    there = seen(scope.name, values={"CPUWeight": 4})
    assert only(make_plan(desired(scope), observed(there))) == SetProperties(
        unit=scope, changes=(change("CPUWeight", 4, 5),), tightens=False
    )


def test_a_unit_with_a_containers_name_outside_its_pod_is_left_alone():
    scope = scope_unit("podslice-podweb-main.scope", WEB, CPUWeight=5)
    there = seen(scope.name, values={"CPUWeight": 4, "Slice": "system.slice"})
    assert not make_plan(desired(scope), observed(there))


def test_a_reserved_slice_is_only_changed_in_what_is_stated():
    reserved = slice_unit("system.slice", owned=False, CPUWeight=50)
    there = seen(
        "system.slice", transient=False, values={"CPUWeight": 100, "MemoryMax": 7, "TasksMax": 9}
    )
    plan = make_plan(desired(reserved), observed(there))
    assert only(plan).changes == (change("CPUWeight", 100, 50),)


def test_a_reserved_slice_is_never_started():
    reserved = slice_unit("podruntime.slice", owned=False, CPUWeight=50)
    assert not make_plan(desired(reserved), observed())


def test_the_slice_that_is_started_has_its_structure():
    unit = slice_unit(WEB, description="Pod default/web (Burstable)")
    started = transient_unit(unit, {"CPUWeight": 5})
    assert started.name == WEB
    assert started.properties == {
        "Description": "Pod default/web (Burstable)",
        "DefaultDependencies": False,
        "CPUAccounting": True,
        "IOAccounting": True,
        "MemoryAccounting": True,
        "TasksAccounting": True,
        "CPUWeight": 5,
        "Wants": ("kubepods-burstable.slice",),
    }


def test_a_slice_below_the_root_slice_wants_nothing():
    assert "Wants" not in transient_unit(slice_unit(ROOT), {}).properties


def test_a_service_is_held_to_its_container_and_never_started():
    scope = scope_unit("podslice-podweb-main.scope", WEB, CPUWeight=5)
    service = replace(scope, name="podslice-podweb-main.service", kind=UnitKind.SERVICE)
    assert not make_plan(desired(service), observed())
    there = seen(service.name, values={"CPUWeight": 4})
    assert only(make_plan(desired(service), observed(there))) == SetProperties(
        unit=service, changes=(change("CPUWeight", 4, 5),), tightens=False
    )
