"""Volumes in memory."""

from dataclasses import replace

import pytest

from podslice.model.pod import MemoryVolume
from podslice.model.unit import DesiredUnit, UnitKind
from podslice.plan import Plan, Skipped, StartUnit, StopUnit, transient_unit
from podslice.plan.make import make_plan
from tests.cases.tables import cases
from tests.unit.builders import (
    as_observed,
    burstable,
    desired,
    desired_for,
    guaranteed,
    observed,
    seen,
    slice_unit,
)
from tests.unit.plan.plans import BURSTABLE, CACHE, MI, ROOT, WEB, names, only


def volume_unit(size="64Mi", parent=WEB):
    return DesiredUnit(
        name=CACHE,
        kind=UnitKind.MOUNT,
        parent=parent,
        control_group="",
        description="Volume cache of pod default/web",
        properties=(),
        pod="default/web",
        structure={"What": "tmpfs", "Type": "tmpfs", "Options": f"mode=1777,size={size}"},
    )


def mounted(options="rw,nosuid,size=65536k,mode=1777,inode64", parent=WEB, **fields):
    unit = seen(CACHE, **fields)
    return replace(unit, properties={"Options": options, "Slice": parent})


def test_a_volume_is_mounted_once_its_slice_is_active():
    plan = make_plan(desired(slice_unit(WEB), volume_unit()), observed())
    assert names(plan, StartUnit) == [WEB, CACHE]
    assert transient_unit(volume_unit(), {}).properties == {
        "Description": "Volume cache of pod default/web",
        "Slice": WEB,
        "What": "tmpfs",
        "Type": "tmpfs",
        "Options": "mode=1777,size=64Mi",
    }


@pytest.mark.parametrize("state", ["inactive", "failed", "deactivating"])
def test_a_volume_that_is_not_mounted_is_mounted(state):
    there = observed(seen(WEB), mounted(active_state=state))
    assert names(make_plan(desired(slice_unit(WEB), volume_unit()), there), StartUnit) == [CACHE]


@cases
def test_a_volume_of_the_right_size_stays(has, wanted):
    """The kernel reports whole pages; sizes in other forms are not compared."""
    there = observed(seen(WEB), mounted(has))
    assert make_plan(desired(slice_unit(WEB), volume_unit(wanted)), there) == Plan()


def test_a_volume_without_a_size_is_not_compared():
    unit = replace(volume_unit(), structure={"Options": "mode=1777"})
    there = observed(seen(WEB), mounted())
    assert make_plan(desired(slice_unit(WEB), unit), there) == Plan()


@cases
def test_a_mounted_volume_keeps_its_size_and_is_reported(wanted, text):
    there = observed(seen(WEB), mounted())
    plan = make_plan(desired(slice_unit(WEB), volume_unit(wanted)), there)
    why = f"it is mounted with {text}; delete the pod first to change the size"
    assert plan == Plan(skipped=(Skipped(unit=CACHE, name="the new size", why=why),))
    assert not plan.is_blocked


def with_volume(make, name="web", volume="cache", **fields):
    return make(name, volumes=(MemoryVolume(name=volume, size_bytes=MI),), **fields)


def test_a_volume_that_the_pod_no_longer_has_is_unmounted():
    was, then = with_volume(burstable), burstable("web")
    there = as_observed(desired_for(was))
    plan = make_plan(desired_for(then, current=[was]), there)
    assert names(plan, StopUnit) == [CACHE]
    assert plan.steps[0].why == "pod default/web no longer has volume cache"
    # the changed record no longer has it; the slice does
    there = replace(there, units={**there.units, CACHE: mounted()})
    plan = make_plan(desired_for(then), there)
    assert only(plan) == StopUnit(name=CACHE, why="pod default/web has no such volume")


def test_volumes_in_slices_of_others_are_left_alone():
    there = as_observed(desired_for(burstable("web")))
    units = {**there.units, CACHE: mounted(parent="kubepods-podforeign.slice")}
    assert not make_plan(desired_for(burstable("web")), replace(there, units=units))


def test_a_volume_is_stopped_with_its_slice():
    web = with_volume(burstable)
    there = as_observed(desired_for(web))
    there = replace(there, units={**there.units, CACHE: mounted()})
    plan = make_plan(desired_for(current=[web], terminating=[web]), there)
    assert names(plan, StopUnit) == [WEB, "kubepods-besteffort.slice", BURSTABLE, ROOT]


def test_a_pod_whose_volumes_are_mounted_does_not_move():
    """What is in them would be lost."""
    was, then = with_volume(burstable), with_volume(guaranteed)
    there = as_observed(desired_for(was))
    there = replace(there, units={**there.units, CACHE: mounted()})
    plan = make_plan(desired_for(then, current=[was]), there)
    assert [refusal.message for refusal in plan.refused] == [
        f"the pod is now Guaranteed, but volumes are mounted in {WEB}; delete the pod first"
    ]
    assert not names(plan, StopUnit)


@pytest.mark.parametrize(
    "inside",
    [
        mounted(active_state="inactive"),
        mounted(active_state="failed"),
        replace(seen("podslice-podweb-main.scope"), properties={"Slice": WEB}),
    ],
    ids=["unmounted", "failed", "no mount"],
)
def test_only_mounted_volumes_keep_a_pod_from_moving(inside):
    was, then = with_volume(burstable), with_volume(guaranteed)
    there = as_observed(desired_for(was), scopes=False)
    units = {name: unit for name, unit in there.units.items() if name != CACHE}
    there = replace(there, units={**units, inside.name: inside})
    plan = make_plan(desired_for(then, current=[was]), there)
    assert plan.refused == ()
    assert WEB in names(plan, StopUnit)


def test_a_volume_in_a_stopped_slice_is_mounted_again():
    other = "kubepods-podold.slice"
    wanted = desired(slice_unit(WEB), volume_unit(), unwanted=[other])
    there = observed(seen(WEB), seen(other), mounted(parent=other))
    plan = make_plan(wanted, there)
    assert names(plan, StopUnit) == [other]
    assert names(plan, StartUnit) == [CACHE]
