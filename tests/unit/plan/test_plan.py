import itertools
import random
from dataclasses import replace

import pytest

from podslice.model.desired import Refusal
from podslice.model.manager import SYSTEM
from podslice.model.pod import MemoryVolume
from podslice.model.properties import MANAGED, PROPERTIES
from podslice.model.unit import INFINITY, Caps, DesiredUnit, Occupants, UnitKind, UnitName
from podslice.plan import (
    CLASS_CHANGED,
    Action,
    Change,
    Plan,
    SetHugepages,
    SetProperties,
    Skipped,
    Stage,
    StartUnit,
    StopUnit,
    TerminatingPods,
    depth_of,
    make_plan,
    stage_of,
    transient_unit,
)
from tests.unit.builders import (
    USER,
    as_observed,
    besteffort,
    burstable,
    container,
    desired,
    desired_for,
    guaranteed,
    observed,
    pod,
    scope_unit,
    seen,
    slice_unit,
)

ROOT = "kubepods.slice"
BURSTABLE = "kubepods-burstable.slice"
WEB = "kubepods-burstable-podweb.slice"

THREE = (
    guaranteed("database"),
    burstable("web", limits="cpu=1,memory=512Mi"),
    besteffort("batch"),
)


def names(plan, kind):
    return [step.name for step in plan.steps if isinstance(step, kind)]


def change(name, old, new):
    return Change(name=name, old=old, new=new)


def only(plan):
    assert len(plan.steps) == 1
    return plan.steps[0]


# Order.


def test_parents_start_before_children():
    plan = make_plan(desired_for(*THREE), observed())
    assert names(plan, StartUnit) == [
        "kubepods.slice",
        "kubepods-besteffort.slice",
        "kubepods-burstable.slice",
        "kubepods-poddatabase.slice",
        "kubepods-besteffort-podbatch.slice",
        "kubepods-burstable-podweb.slice",
    ]


def test_steps_carry_their_actions():
    before = desired(slice_unit(ROOT, CPUWeight=50), slice_unit("kubepods-podold.slice"))
    after = desired(
        slice_unit(ROOT, CPUWeight=100),
        slice_unit("kubepods-podnew.slice"),
        unwanted={"kubepods-podold.slice": "not requested"},
    )
    actions = [step.action for step in make_plan(after, as_observed(before)).steps]
    assert actions == [Action.STOP, Action.START, Action.SET]
    assert actions == ["stop", "start", "set"]  # as in JSON documents


def test_children_stop_before_parents():
    there = as_observed(desired_for(*THREE))
    plan = make_plan(desired_for(current=THREE, terminating=THREE), there)
    assert names(plan, StopUnit) == [
        "kubepods-besteffort-podbatch.slice",
        "kubepods-burstable-podweb.slice",
        "kubepods-besteffort.slice",
        "kubepods-burstable.slice",
        "kubepods-poddatabase.slice",
        "kubepods.slice",
    ]


def test_tiers_tighten_before_a_start_and_grow_after_a_stop():
    """Seed 000: "Prior to starting a pod …", "after deletion …"."""
    before = desired(
        slice_unit(ROOT, CPUWeight=100),
        slice_unit(BURSTABLE, MemoryMax=200),
        slice_unit("kubepods-besteffort.slice", MemoryMax=200),
        slice_unit("kubepods-podold.slice"),
    )
    after = desired(
        slice_unit(ROOT, CPUWeight=200),
        slice_unit(BURSTABLE, MemoryMax=100),
        slice_unit("kubepods-besteffort.slice", MemoryMax=300),
        slice_unit("kubepods-podnew.slice"),
        unwanted=["kubepods-podold.slice"],
    )
    plan = make_plan(after, as_observed(before))
    assert [(stage_of(step)[0], step.name) for step in plan.steps] == [
        (Stage.STOP, "kubepods-podold.slice"),
        (Stage.TIGHTEN, BURSTABLE),
        (Stage.START, "kubepods-podnew.slice"),
        (Stage.GROW, ROOT),
        (Stage.GROW, "kubepods-besteffort.slice"),
    ]


def test_tightening_goes_up_and_growing_goes_down():
    units = (slice_unit(ROOT, MemoryMax=4), slice_unit(BURSTABLE, MemoryMax=3))
    tight = make_plan(desired(*units), observed(seen(ROOT), seen(BURSTABLE)))
    assert [step.name for step in tight.steps] == [BURSTABLE, ROOT]
    free = make_plan(
        desired(*units),
        observed(seen(ROOT, values={"MemoryMax": 2}), seen(BURSTABLE, values={"MemoryMax": 1})),
    )
    assert [step.name for step in free.steps] == [ROOT, BURSTABLE]


@pytest.mark.parametrize(
    ("name", "old", "new", "tightens"),
    [
        ("MemoryMax", INFINITY, 1, True),
        ("MemoryMax", 1, 2, False),
        ("MemoryHigh", 2, 1, True),
        ("CPUQuotaPerSecUSec", INFINITY, 10_000, True),
        ("TasksMax", 5, 4, True),
        ("TasksMax", 5, INFINITY, False),
        ("CPUWeight", 200, 100, False),
        ("MemoryLow", 2, 1, False),
        ("CPUQuotaPeriodUSec", INFINITY, 1000, False),
    ],
)
def test_only_a_lower_limit_tightens(name, old, new, tightens):
    plan = make_plan(
        desired(slice_unit(ROOT, **{name: new})), observed(seen(ROOT, values={name: old}))
    )
    step = only(plan)
    assert step.changes == (change(name, old, new),)
    assert step.tightens is tightens


def test_a_unit_that_loses_in_one_and_gains_in_another_property_tightens():
    step = only(
        make_plan(
            desired(slice_unit(ROOT, MemoryMax=2, TasksMax=2)),
            observed(seen(ROOT, values={"MemoryMax": 1, "TasksMax": 3})),
        )
    )
    assert step.tightens


def test_scopes_lie_deepest():
    assert depth_of("podslice-poda-main.scope") > depth_of("kubepods-burstable-poda.slice")
    assert depth_of("kubepods-burstable.slice") > depth_of("kubepods.slice")


def shuffled(desired_, observed_, seed):
    order = random.Random(seed)
    units, pods = list(desired_.units), list(desired_.pods)
    unwanted, there = list(desired_.unwanted.items()), list(observed_.units.items())
    for each in (units, pods, unwanted, there):
        order.shuffle(each)
    return (
        replace(desired_, units=tuple(units), pods=tuple(pods), unwanted=dict(unwanted)),
        replace(observed_, units=dict(there)),
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_the_input_does_not_matter(seed):
    """Starts, changes, stops, things left out and refusals: all in the same order."""
    was = desired_for(*THREE, besteffort("moves"), besteffort("stays"), guaranteed("away"))
    there = as_observed(was, version=239)
    busy = "kubepods-besteffort-podstays.slice"
    there = replace(
        there,
        units={
            **there.units,
            busy: replace(there.units[busy], tasks=2),
            ROOT: replace(there.units[ROOT], properties={"CPUWeight": 1, "TasksMax": 7}),
        },
    )
    wanted = desired_for(
        *THREE,
        burstable("moves", limits="memory=1Gi"),
        guaranteed("stays"),
        guaranteed("new"),
        current=[guaranteed("away")],
        terminating=[guaranteed("away")],
    )
    wanted = replace(
        wanted,
        units=(
            *wanted.units,
            slice_unit("b.slice", MemoryMin=1),
            slice_unit("a.slice", MemoryMin=1),
        ),
    )
    expected = make_plan(wanted, there)
    assert {type(step) for step in expected.steps} == {StartUnit, SetProperties, StopUnit}
    assert expected.refused
    assert expected.skipped
    assert make_plan(*shuffled(wanted, there, seed)) == expected


# What is as it should be, and drift.


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
def test_a_value_that_nobody_asked_for_is_unset(name):
    wrong = PROPERTIES[name].minimum + 10
    plan = make_plan(desired(slice_unit(ROOT)), observed(seen(ROOT, values={name: wrong})))
    assert only(plan).changes == (change(name, wrong, PROPERTIES[name].unset),)
    assert only(plan).changes[0].why == "not requested by any manifest"


def test_a_property_that_systemd_does_not_tell_is_not_compared():
    unit = replace(seen(ROOT), properties={})
    assert not make_plan(desired(slice_unit(ROOT, MemoryMax=1)), observed(unit))


def test_several_changes_of_a_unit_are_one_step():
    plan = make_plan(
        desired(slice_unit(ROOT, MemoryMax=1, CPUWeight=2)),
        observed(seen(ROOT, values={"TasksMax": 3})),
    )
    assert [each.name for each in only(plan).changes] == ["CPUWeight", "MemoryMax", "TasksMax"]


# Slices and scopes.


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


# What is not ours.


def test_units_that_nobody_knows_are_left_alone():
    """Orphans, other pods, what a kubelet left: neither stopped nor changed."""
    wanted = desired_for(*THREE)
    foreign = (
        seen("kubepods-podforeign.slice", tasks=3, values={"MemoryMax": 5}),
        seen("kubepods-burstable-podforeign.slice", values={"MemoryMax": 5}),
        seen("system.slice", tasks=100, values={"MemoryMax": 5}),
        seen("podslice-podforeign-main.scope", tasks=1, values={"MemoryMax": 5}),
    )
    there = as_observed(wanted)
    there = replace(there, units={**there.units, **{unit.name: unit for unit in foreign}})
    assert not make_plan(wanted, there)


def test_the_last_pod_takes_the_tiers_along():
    web = burstable("web")
    there = as_observed(desired_for(web))
    plan = make_plan(desired_for(current=[web], terminating=[web]), there)
    assert names(plan, StopUnit) == [WEB, "kubepods-besteffort.slice", BURSTABLE, ROOT]
    assert [step.why for step in plan.steps] == [
        "pod default/web is removed",
        *["no pods remain"] * 3,
    ]
    assert not plan.skipped


def test_tiers_stay_while_a_foreign_pod_is_in_them():
    web = burstable("web")
    there = as_observed(desired_for(web))
    foreign = seen("kubepods-burstable-podforeign.slice")
    there = replace(there, units={**there.units, foreign.name: foreign})
    plan = make_plan(desired_for(current=[web], terminating=[web]), there)
    assert names(plan, StopUnit) == [WEB, "kubepods-besteffort.slice"]
    why = "kubepods-burstable-podforeign.slice is not managed by podslice"
    assert plan.skipped == (
        Skipped(unit=BURSTABLE, name="stop", why=why),
        Skipped(unit=ROOT, name="stop", why=why),
    )


def test_tiers_stay_while_foreign_processes_are_in_them():
    web = burstable("web")
    there = as_observed(desired_for(web))
    busy = {WEB: 3, BURSTABLE: 5, ROOT: 5}
    there = observed(*(replace(u, tasks=busy.get(u.name, 0)) for u in there.units.values()))
    plan = make_plan(desired_for(current=[web], terminating=[web]), there)
    assert names(plan, StopUnit) == [WEB, "kubepods-besteffort.slice"]
    assert only(replace(plan, steps=plan.steps[:1])).tasks == 3
    why = "2 processes run in it outside of any pod"
    assert [(each.unit, each.why) for each in plan.skipped] == [(BURSTABLE, why), (ROOT, why)]


def test_what_is_not_there_is_not_stopped():
    plan = make_plan(desired(unwanted=["kubepods-podgone.slice", ROOT]), observed())
    assert plan == Plan()


# Pods that change their class.


def test_an_idle_pod_moves_to_the_slice_of_its_class():
    there = as_observed(desired_for(besteffort("web")))
    plan = make_plan(desired_for(burstable("web")), there)
    assert names(plan, StopUnit) == ["kubepods-besteffort-podweb.slice"]
    assert plan.steps[0].why == "pod default/web is now Burstable"
    assert names(plan, StartUnit) == [WEB]
    assert not plan.refused


@pytest.mark.parametrize(
    ("before", "after"),
    list(itertools.permutations([guaranteed("web"), burstable("web"), besteffort("web")], 2)),
)
def test_a_pod_with_processes_does_not_move(before, after):
    there = as_observed(desired_for(before), scopes=False)
    old = desired_for(before).pods[0].slice
    there = observed(*(replace(u, tasks=2 * (u.name == old)) for u in there.units.values()))
    wanted = desired_for(after)
    plan = make_plan(wanted, there)
    assert plan.refused == (
        Refusal(
            pod="default/web",
            reason=CLASS_CHANGED,
            message=f"the pod is now {wanted.pods[0].qos}, but 2 processes run in {old};"
            " delete the pod first",
        ),
    )
    assert not names(plan, StopUnit)
    assert not names(plan, StartUnit)


def test_a_pod_that_may_not_move_does_not_hold_up_others():
    there = as_observed(desired_for(besteffort("web")))
    busy = "kubepods-besteffort-podweb.slice"
    there = observed(*(replace(u, tasks=2 * (u.name == busy)) for u in there.units.values()))
    plan = make_plan(desired_for(burstable("web"), guaranteed("database")), there)
    assert names(plan, StartUnit) == ["kubepods-poddatabase.slice"]


def test_a_pod_with_processes_in_the_slice_of_another_pod_moves():
    """`podb` ends as `pod-b` would: names have to match as a whole."""
    there = as_observed(desired_for(besteffort("a-b")))
    there = observed(*(replace(u, tasks=2) for u in there.units.values()))
    plan = make_plan(desired_for(burstable("b"), besteffort("a-b")), there)
    assert not plan.refused
    assert names(plan, StartUnit) == ["kubepods-burstable-podb.slice"]


# What systemd can't do.


def test_a_property_newer_than_systemd_is_left_out_and_said():
    unit = slice_unit(ROOT, MemoryMin=5, CPUWeight=7)
    plan = make_plan(desired(unit), observed(version=239))
    assert only(plan).changes == (change("CPUWeight", None, 7),)
    assert plan.skipped == (
        Skipped(
            unit=ROOT,
            name="MemoryMin",
            why="systemd 239 does not support it; it requires 240",
        ),
    )
    assert not make_plan(desired(unit), observed(version=240)).skipped


def test_a_value_out_of_range_is_left_out_and_said():
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


def test_nothing_is_said_about_scopes_that_do_not_run():
    scope = scope_unit("podslice-podweb-main.scope", WEB, MemoryMin=5)
    assert make_plan(desired(scope), observed(version=239)) == Plan()
    running = replace(seen(scope.name), properties={})
    assert len(make_plan(desired(scope), observed(running, version=239)).skipped) == 1


# Less memory than is in use.


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
def test_a_unit_comes_down_before_it_is_limited_to_less_than_it_uses(unit):
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
    assert lowered(slice_unit(BURSTABLE, MemoryMax=100), used=150).reclaim_bytes is None


@pytest.mark.parametrize(
    ("old", "new", "order"),
    [
        (100, 200, [WEB, "podslice-podweb-main.scope"]),
        (200, 100, ["podslice-podweb-main.scope", WEB]),
    ],
)
def test_growing_goes_pod_first_and_shrinking_pod_last(old, new, order):
    units = (
        slice_unit(WEB, pod="default/web", MemoryMax=new),
        scope_unit("podslice-podweb-main.scope", WEB, pod="default/web", MemoryMax=new),
    )
    there = observed(*(seen(unit.name, values={"MemoryMax": old}) for unit in units))
    assert [step.name for step in make_plan(desired(*units), there).steps] == order


# Containers that systemd has started.


def test_a_service_is_held_to_its_container_and_never_started():
    scope = scope_unit("podslice-podweb-main.scope", WEB, CPUWeight=5)
    service = replace(scope, name="podslice-podweb-main.service", kind=UnitKind.SERVICE)
    assert not make_plan(desired(service), observed())
    there = seen(service.name, values={"CPUWeight": 4})
    assert only(make_plan(desired(service), observed(there))) == SetProperties(
        unit=service, changes=(change("CPUWeight", 4, 5),), tightens=False
    )


# Volumes in memory.

CACHE = UnitName("run-podslice-pods-web-volumes-cache.mount")
MI = 2**20


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


def test_a_volume_is_mounted_once_its_slice_is_there():
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


@pytest.mark.parametrize(
    ("has", "wanted"),
    [
        ("size=65536k", 64 * MI),
        ("rw,size=64M,mode=1777", 64 * MI),
        ("rw,size=1g", 2**30),
        ("rw,size=4k", 1),
        ("rw,size=64k", 1),
        ("rw,size=50%", 64 * MI),
        ("rw,nosuid", 64 * MI),
        ("rw,size=65536k", 64 * MI - 2**16 + 1),
    ],
)
def test_a_volume_of_the_right_size_stays(has, wanted):
    """The kernel tells whole pages, and what it tells in other ways is not compared."""
    there = observed(seen(WEB), mounted(has))
    assert make_plan(desired(slice_unit(WEB), volume_unit(wanted)), there) == Plan()


def test_a_volume_without_a_size_is_not_compared():
    unit = replace(volume_unit(), structure={"Options": "mode=1777"})
    there = observed(seen(WEB), mounted())
    assert make_plan(desired(slice_unit(WEB), unit), there) == Plan()


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (128 * MI, "128Mi"),
        (32 * MI, "32Mi"),
        (64 * MI + 1, "67108865"),
        (64 * MI - 2**16, "65472Ki"),  # one page of 64 KiB, the largest, is no rounding
    ],
)
def test_a_mounted_volume_keeps_its_size_and_that_is_said(wanted, text):
    there = observed(seen(WEB), mounted())
    plan = make_plan(desired(slice_unit(WEB), volume_unit(wanted)), there)
    why = f"it is mounted with 64Mi, not {text}; delete the pod first to change the size"
    assert plan == Plan(skipped=(Skipped(unit=CACHE, name="the new size", why=why),))
    assert not plan.is_blocked


def with_volume(make, name="web", volume="cache", **fields):
    return make(name, volumes=(MemoryVolume(name=volume, size_bytes=MI),), **fields)


def test_a_volume_that_the_pod_has_no_more_is_unmounted():
    was, then = with_volume(burstable), burstable("web")
    there = as_observed(desired_for(was))
    plan = make_plan(desired_for(then, current=[was]), there)
    assert names(plan, StopUnit) == [CACHE]
    assert plan.steps[0].why == "pod default/web no longer has volume cache"
    # a record that has been changed already tells nothing of it; its slice does
    there = replace(there, units={**there.units, CACHE: mounted()})
    plan = make_plan(desired_for(then), there)
    assert only(plan) == StopUnit(name=CACHE, why="pod default/web has no such volume")


def test_volumes_in_slices_of_others_are_left_alone():
    there = as_observed(desired_for(burstable("web")))
    units = {**there.units, CACHE: mounted(parent="kubepods-podforeign.slice")}
    assert not make_plan(desired_for(burstable("web")), replace(there, units=units))


def test_a_volume_goes_with_its_slice():
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
def test_what_is_no_mounted_volume_does_not_keep_a_pod_from_moving(inside):
    was, then = with_volume(burstable), with_volume(guaranteed)
    there = as_observed(desired_for(was), scopes=False)
    units = {name: unit for name, unit in there.units.items() if name != CACHE}
    there = replace(there, units={**units, inside.name: inside})
    plan = make_plan(desired_for(then, current=[was]), there)
    assert plan.refused == ()
    assert WEB in names(plan, StopUnit)


def test_a_volume_in_a_slice_that_goes_is_mounted_anew():
    other = "kubepods-podold.slice"
    wanted = desired(slice_unit(WEB), volume_unit(), unwanted=[other])
    there = observed(seen(WEB), seen(other), mounted(parent=other))
    plan = make_plan(wanted, there)
    assert names(plan, StopUnit) == [other]
    assert names(plan, StartUnit) == [CACHE]


# Huge pages.

HUGE = {2 * MI: 8 * MI}
FILE, RESERVED = "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"
THERE = {FILE: 8 * MI, RESERVED: 8 * MI}


def with_pages(unit, pages=None):
    return replace(unit, hugepages=HUGE if pages is None else pages)


def able(*units, manager=SYSTEM, hugetlb=True):
    caps = Caps(systemd_version=257, manager=manager, hugetlb=hugetlb)
    return replace(observed(*units), caps=caps)


def test_huge_pages_are_limited_last_and_from_the_root_down():
    web = slice_unit(WEB, pod="default/web", CPUWeight=5)
    main = scope_unit("podslice-podweb-main.scope", WEB, pod="default/web", CPUWeight=7)
    there = able(seen(main.name))
    plan = make_plan(desired(with_pages(web), with_pages(main)), there)
    assert [(stage_of(step)[0], step.name) for step in plan.steps] == [
        (Stage.START, WEB),
        (Stage.GROW, main.name),
        (Stage.HUGEPAGES, WEB),
        (Stage.HUGEPAGES, main.name),
    ]
    assert plan.steps[2] == SetHugepages(
        unit=with_pages(web),
        changes=(change(FILE, None, 8 * MI), change(RESERVED, None, 8 * MI)),
    )
    assert plan.steps[2].changes[0].why == "huge pages of 2Mi"


@pytest.mark.parametrize("old", [INFINITY, 0, 4 * MI])
@pytest.mark.parametrize("file", [FILE, RESERVED])
def test_huge_pages_that_differ_are_put_back(old, file):
    unit = with_pages(slice_unit(WEB))
    there = able(seen(WEB, hugepages={**THERE, file: old, "hugetlb.1GB.max": INFINITY}))
    assert only(make_plan(desired(unit), there)).changes == (change(file, old, 8 * MI),)
    assert not make_plan(desired(unit), able(seen(WEB, hugepages=THERE)))


def test_a_kernel_without_limits_of_reserved_huge_pages_needs_none():
    unit = with_pages(slice_unit(WEB))
    there = able(seen(WEB, hugepages={FILE: INFINITY}))
    plan = make_plan(desired(unit), there)
    assert only(plan).changes == (change(FILE, INFINITY, 8 * MI),)
    assert not plan.skipped


def test_a_pod_that_asks_for_no_huge_pages_gets_none_when_it_starts():
    unit = with_pages(slice_unit(WEB), {2 * MI: 0})
    _, pages = make_plan(desired(unit), able()).steps
    assert pages.changes == (change(FILE, None, 0), change(RESERVED, None, 0))


def test_without_the_controller_nothing_is_said_of_a_pod_that_asks_for_none():
    unit = with_pages(slice_unit(WEB), {2 * MI: 0})
    assert make_plan(desired(unit), able(seen(WEB), hugetlb=False)) == Plan()


@pytest.mark.parametrize("pages", [None, {FILE: INFINITY, RESERVED: INFINITY}])
def test_a_controller_that_is_turned_on_later_is_not_a_difference(pages):
    """podman turns it on at the root, and crun below it."""
    unit = with_pages(slice_unit(WEB), {2 * MI: 0})
    assert make_plan(desired(unit), able(seen(WEB, hugepages=pages))) == Plan()


def test_whole_pages_are_what_the_kernel_keeps():
    unit = with_pages(slice_unit(WEB), {2 * MI: 8 * MI + 1})
    assert not make_plan(desired(unit), able(seen(WEB, hugepages=THERE)))


def test_a_slice_that_starts_anew_has_no_limits_of_huge_pages():
    unit = with_pages(slice_unit(WEB))
    there = able(seen(WEB, transient=False, hugepages=THERE))
    plan = make_plan(desired(unit), there)
    assert names(plan, SetHugepages) == [WEB]


def test_nothing_is_limited_in_a_container_that_does_not_run():
    main = with_pages(scope_unit("podslice-podweb-main.scope", WEB))
    assert make_plan(desired(main), able()) == Plan()
    assert make_plan(desired(main), able(seen(main.name, active_state="failed"))) == Plan()


def test_huge_pages_that_the_kernel_does_not_have_are_said():
    unit = with_pages(slice_unit(WEB), {2**30: 2**30, 64 * 2**10: 64 * 2**10})
    plan = make_plan(desired(unit), able(seen(WEB, hugepages=THERE)))
    assert [(each.name, each.why) for each in plan.skipped] == [
        ("hugetlb.1GB.max", "the kernel has no huge pages of 1Gi"),
        ("hugetlb.64KB.max", "the kernel has no huge pages of 64Ki"),
    ]
    assert not plan


@pytest.mark.parametrize(
    ("manager", "why"),
    [
        (SYSTEM, "the hugetlb controller is not enabled for podslice's slices; see"),
        (USER, "a user manager has no hugetlb controller"),
    ],
)
def test_without_the_controller_it_is_said_once_a_pod(manager, why):
    web = with_pages(slice_unit(WEB, pod="default/web"))
    main = with_pages(scope_unit("podslice-podweb-main.scope", WEB, pod="default/web"))
    there = able(seen(WEB), seen(main.name), manager=manager, hugetlb=False)
    plan = make_plan(desired(web, main), there)
    (skipped,) = plan.skipped
    assert (skipped.unit, skipped.name) == (WEB, "limits of huge pages")
    assert skipped.why.startswith(why)
    assert not plan
    assert not plan.is_blocked


# How what runs in a pod is stopped.


INNER = (UnitName("libpod-1.scope"), UnitName("podslice-podweb-main.scope"))


def terminating(pod_, unit, grace_sec=None):
    plan = make_plan(
        desired(unwanted=[unit.name]),
        observed(unit, seen(INNER[1])),
        terminating=TerminatingPods(pods={unit.name: pod_}, grace_sec=grace_sec),
    )
    return only(plan)


OCCUPANTS = Occupants(processes=2, units=INNER, descriptions=("container main: 2 processes (sh)",))


def busy(occupants=OCCUPANTS):
    return seen(WEB, tasks=3, occupants=occupants)


@pytest.mark.parametrize(
    ("own", "asked", "expected", "signals"),
    [
        (30, None, 30, ()),
        (30, 5, 5, ()),
        (30, 30, 30, ()),
        (30, 0, 0, ()),
        (30, 31, 31, INNER[1:]),
    ],
)
def test_a_pod_has_its_own_grace_or_what_is_asked_for(own, asked, expected, signals):
    """Systemd would end its containers, and no others, after their own."""
    web = burstable("web", grace_period_sec=own)
    step = terminating(web, busy(), asked)
    assert step.grace_sec == expected
    assert step.signals == signals


def test_what_is_stopped_is_told():
    step = terminating(burstable("web"), busy())
    assert step.pod == "default/web"
    assert step.tasks == 3
    assert step.occupants == OCCUPANTS


def test_an_empty_pod_is_stopped_at_once():
    step = terminating(burstable("web"), seen(WEB), grace_sec=60)
    assert step.signals == ()


def test_processes_that_no_unit_has_are_signalled():
    assert terminating(burstable("web"), busy(replace(OCCUPANTS, is_mixed=True))).signals == (WEB,)


@pytest.mark.parametrize("tasks", [0, 2])
def test_a_control_group_that_has_outlived_its_slice_is_emptied(tasks):
    left = seen(WEB, active_state="inactive", tasks=tasks)
    assert terminating(burstable("web"), left).signals == (WEB,)


def test_a_plan_for_some_units():
    plan = make_plan(desired_for(*THREE), observed(version=239))
    for name in {skipped.unit for skipped in plan.skipped} | {WEB}:
        part = plan.only({name})
        assert part.steps == tuple(step for step in plan.steps if step.name == name)
        assert part.skipped == tuple(each for each in plan.skipped if each.unit == name)
    left_out = Skipped(unit=WEB, name="a property", why="of a reason")
    others = replace(left_out, unit=ROOT)
    plan = Plan(skipped=(left_out, others), refused=(Refusal(pod="a", reason="b", message="c"),))
    assert plan.only({WEB}) == Plan(skipped=(left_out,))
    assert plan.only(()) == Plan()


# Small worlds.

KINDS = {
    "guaranteed": guaranteed,
    "burstable": burstable,
    "besteffort": besteffort,
    "none": None,
}


def some_pods(kinds):
    return tuple(KINDS[kind](name) for name, kind in zip("ab", kinds, strict=True) if KINDS[kind])


WORLDS = [some_pods(kinds) for kinds in itertools.product(KINDS, repeat=2)]


def check_move(was, then):
    keys = {each.key for each in then}
    gone = [each for each in was if each.key not in keys]
    wanted = desired_for(*then, current=was, terminating=gone)
    plan = make_plan(wanted, as_observed(desired_for(*was)))
    started, stopped = names(plan, StartUnit), names(plan, StopUnit)
    assert len({step.name for step in plan.steps}) == len(plan.steps)
    assert started == sorted(started, key=lambda name: (depth_of(name), name))
    assert stopped == sorted(stopped, key=lambda name: (-depth_of(name), name))
    assert all(name.startswith("kubepods") for name in (*started, *stopped))
    assert [stage_of(step) for step in plan.steps] == sorted(map(stage_of, plan.steps))
    assert bool(plan) == (was != then)
    there = {unit.name for unit in desired_for(*was).lasting} - {*stopped} | {*started}
    slices = {unit.name for unit in wanted.lasting if unit.kind is UnitKind.SLICE}
    assert {name for name in there if name.endswith(".slice")} == slices


@pytest.mark.parametrize("was", WORLDS, ids=lambda pods: "-".join(p.name for p in pods) or "none")
def test_invariants(was):
    """From every small world to every other: the order holds, and nothing is done twice."""
    for then in WORLDS:
        check_move(was, then)


def test_containers_of_a_pod_are_planned_below_its_slice():
    web = pod("web", containers=(container("a", "cpu=1"), container("b", "cpu=2")))
    wanted = desired_for(web)
    there = as_observed(wanted)
    scope = "podslice-podweb-b.scope"
    drifted = replace(
        there.units[scope], properties={**there.units[scope].properties, "CPUWeight": 1}
    )
    plan = make_plan(wanted, replace(there, units={**there.units, scope: drifted}))
    assert only(plan).name == scope
    assert only(plan).unit.parent == WEB
    assert only(plan).changes == (change("CPUWeight", 1, 200),)
