"""Invariants of plans between small worlds."""

import itertools
from dataclasses import replace

import pytest

from podslice.model.unit import UnitKind
from podslice.plan import StartUnit, StopUnit, depth_of, stage_of
from podslice.plan.make import make_plan
from tests.unit.builders import (
    as_observed,
    besteffort,
    burstable,
    container,
    desired_for,
    guaranteed,
    pod,
)
from tests.unit.plan.plans import WEB, change, names, only

KINDS = {"guaranteed": guaranteed, "burstable": burstable, "besteffort": besteffort, "none": None}


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
