import itertools
import random
from dataclasses import replace

import pytest

from podslice.model.desired import Refusal
from podslice.model.properties import MANAGED, PROPERTIES
from podslice.model.unit import INFINITY, UnitKind
from podslice.plan import (
    CLASS_CHANGED,
    Change,
    Plan,
    SetProperties,
    Skipped,
    Stage,
    StartUnit,
    StopUnit,
    depth_of,
    make_plan,
    stage_of,
    transient_unit,
)
from tests.unit.builders import (
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


def test_children_stop_before_parents():
    there = as_observed(desired_for(*THREE))
    plan = make_plan(desired_for(current=THREE, gone=THREE), there)
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
        absent=["kubepods-podold.slice"],
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
    absent, there = list(desired_.absent.items()), list(observed_.units.items())
    for each in (units, pods, absent, there):
        order.shuffle(each)
    return (
        replace(desired_, units=tuple(units), pods=tuple(pods), absent=dict(absent)),
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
        gone=[guaranteed("away")],
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
    assert only(plan).changes[0].why == "nothing asks for it"


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
    """A slice that is up only because a child is up: it has none of our settings."""
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
    plan = make_plan(desired_for(current=[web], gone=[web]), there)
    assert names(plan, StopUnit) == [WEB, "kubepods-besteffort.slice", BURSTABLE, ROOT]
    assert [step.why for step in plan.steps] == [
        "pod default/web is gone",
        *["no pod is left"] * 3,
    ]
    assert not plan.skipped


def test_tiers_stay_while_a_foreign_pod_is_in_them():
    web = burstable("web")
    there = as_observed(desired_for(web))
    foreign = seen("kubepods-burstable-podforeign.slice")
    there = replace(there, units={**there.units, foreign.name: foreign})
    plan = make_plan(desired_for(current=[web], gone=[web]), there)
    assert names(plan, StopUnit) == [WEB, "kubepods-besteffort.slice"]
    why = "kubepods-burstable-podforeign.slice is not podslice's to stop"
    assert plan.skipped == (
        Skipped(unit=BURSTABLE, name="stop", why=why),
        Skipped(unit=ROOT, name="stop", why=why),
    )


def test_tiers_stay_while_foreign_processes_are_in_them():
    web = burstable("web")
    there = as_observed(desired_for(web))
    busy = {WEB: 3, BURSTABLE: 5, ROOT: 5}
    there = observed(*(replace(u, tasks=busy.get(u.name, 0)) for u in there.units.values()))
    plan = make_plan(desired_for(current=[web], gone=[web]), there)
    assert names(plan, StopUnit) == [WEB, "kubepods-besteffort.slice"]
    assert only(replace(plan, steps=plan.steps[:1])).tasks == 3
    why = "2 processes run in it that no pod accounts for"
    assert [(each.unit, each.why) for each in plan.skipped] == [(BURSTABLE, why), (ROOT, why)]


def test_what_is_not_there_is_not_stopped():
    plan = make_plan(desired(absent=["kubepods-podgone.slice", ROOT]), observed())
    assert plan == Plan()


# Pods that change their class.


def test_an_idle_pod_moves_to_the_slice_of_its_class():
    there = as_observed(desired_for(besteffort("web")))
    plan = make_plan(desired_for(burstable("web")), there)
    assert names(plan, StopUnit) == ["kubepods-besteffort-podweb.slice"]
    assert plan.steps[0].why == "pod default/web is Burstable now"
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
            message=f"the pod is {wanted.pods[0].qos} now, and 2 processes run in {old};"
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
            why="systemd 239 does not know it; it came with 240",
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
    wanted = desired_for(*then, current=was, gone=gone)
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
