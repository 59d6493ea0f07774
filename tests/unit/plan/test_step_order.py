"""The order of steps."""

import random
from dataclasses import replace

import pytest

from podslice.plan import Action, SetProperties, Stage, StartUnit, StopUnit, depth_of, stage_of
from podslice.plan.make import make_plan
from tests.cases.tables import cases
from tests.unit.builders import (
    as_observed,
    besteffort,
    burstable,
    desired,
    desired_for,
    guaranteed,
    observed,
    seen,
    slice_unit,
)
from tests.unit.plan.plans import BURSTABLE, ROOT, THREE, change, names, only


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
    """Kubelet pod level resource management: "Prior to starting a pod …", "after deletion …"."""
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


POD, OTHER = "kubepods-podold.slice", "kubepods-podnew.slice"
AS_PARTITION = desired(
    slice_unit(ROOT, CPUSetPartition="root", AllowedCPUs="1-3"),
    slice_unit(BURSTABLE, AllowedCPUs="1"),
    slice_unit(POD, pod="default/old", CPUSetPartition="isolated", AllowedCPUs="2"),
    slice_unit(OTHER, pod="default/new", CPUSetPartition="isolated", AllowedCPUs="3"),
)
AS_BEFORE = {"CPUSetPartition": "member", "AllowedCPUs": ""}


def test_a_partition_exists_before_those_within_it_and_outlasts_them():
    there = [seen(name, values=AS_BEFORE) for name in (ROOT, BURSTABLE, POD)]
    plan = make_plan(AS_PARTITION, observed(*there, version=261))
    assert [(stage_of(step)[0], step.name) for step in plan.steps] == [
        (Stage.TIGHTEN, BURSTABLE),
        (Stage.TIGHTEN, ROOT),
        (Stage.START, OTHER),
        (Stage.GROW, POD),
    ]
    without = [slice_unit(ROOT), *(slice_unit(name, pod="default/x") for name in (POD, OTHER))]
    plan = make_plan(desired(*without), as_observed(AS_PARTITION))
    assert [(stage_of(step)[0], step.name) for step in plan.steps] == [
        (Stage.TIGHTEN, OTHER),
        (Stage.TIGHTEN, POD),
        (Stage.GROW, ROOT),
    ]


def test_limits_are_lowered_from_the_leaves_and_raised_from_the_root():
    units = (slice_unit(ROOT, MemoryMax=4), slice_unit(BURSTABLE, MemoryMax=3))
    tight = make_plan(desired(*units), observed(seen(ROOT), seen(BURSTABLE)))
    assert [step.name for step in tight.steps] == [BURSTABLE, ROOT]
    free = make_plan(
        desired(*units),
        observed(seen(ROOT, values={"MemoryMax": 2}), seen(BURSTABLE, values={"MemoryMax": 1})),
    )
    assert [step.name for step in free.steps] == [ROOT, BURSTABLE]


@cases
def test_only_a_lower_limit_tightens(name, old, new, tightens):
    plan = make_plan(
        desired(slice_unit(ROOT, **{name: new})),
        observed(seen(ROOT, values={name: old}), version=261),
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


OWN = "kubepods-podown.slice"


@pytest.mark.parametrize(
    ("old", "new", "is_first"),
    [("0-3", "0-1", True), ("0-3", "2-5", True), ("", "0", True), ("0-1", "0-3", False)],
)
def test_cpus_that_a_tier_loses_are_free_before_a_pod_gets_them(old, new, is_first):
    tier = replace(slice_unit(BURSTABLE, AllowedCPUs=new), is_tier=True)
    pod = slice_unit(OWN, pod="default/own", AllowedCPUs="7")
    there = observed(seen(BURSTABLE, values={"AllowedCPUs": old}))
    steps = [step.name for step in make_plan(desired(tier, pod), there).steps]
    assert steps == ([BURSTABLE, OWN] if is_first else [OWN, BURSTABLE])
