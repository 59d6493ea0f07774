"""How pods are stopped."""

import pytest

from podslice.model.desired import Refusal
from podslice.model.unit import Occupants, UnitName
from podslice.plan import Plan, Skipped
from podslice.plan.make import TerminatingPods, make_plan
from tests.unit.builders import burstable, desired, desired_for, observed, seen
from tests.unit.plan.plans import ROOT, THREE, WEB, only

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
    [(30, None, 30, ()), (30, 5, 5, ()), (30, 30, 30, ()), (30, 0, 0, ()), (30, 31, 31, INNER[1:])],
)
def test_a_pod_has_its_own_grace_or_what_is_asked_for(own, asked, expected, signals):
    """Systemd would end its containers, and no others, after their own."""
    web = burstable("web", grace_period_sec=own)
    step = terminating(web, busy(), asked)
    assert step.grace_sec == expected
    assert step.signals == signals


def test_a_stop_has_its_occupants():
    step = terminating(burstable("web"), busy())
    assert step.pod == "default/web"
    assert step.tasks == 3
    assert step.occupants == OCCUPANTS


def test_an_empty_pod_is_stopped_at_once():
    step = terminating(burstable("web"), seen(WEB), grace_sec=60)
    assert step.signals == ()


def test_processes_that_no_unit_has_are_signalled():
    assert terminating(burstable("web"), busy(OCCUPANTS._replace(is_mixed=True))).signals == (WEB,)


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
    others = left_out._replace(unit=ROOT)
    plan = Plan(skipped=(left_out, others), refused=(Refusal(pod="a", reason="b", message="c"),))
    assert plan.only({WEB}) == Plan(skipped=(left_out,))
    assert plan.only(()) == Plan()
