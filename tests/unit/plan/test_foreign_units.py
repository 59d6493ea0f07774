"""Units that podslice does not manage, and pods that can't move."""

import itertools
from dataclasses import replace

import pytest

from podslice.model.desired import Refusal
from podslice.plan import Plan, Skipped, StartUnit, StopUnit
from podslice.plan.make import CLASS_CHANGED, make_plan
from tests.unit.builders import (
    as_observed,
    besteffort,
    burstable,
    desired,
    desired_for,
    guaranteed,
    observed,
    seen,
)
from tests.unit.plan.plans import BURSTABLE, ROOT, THREE, WEB, names, only


def test_unknown_units_are_ignored():
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


@pytest.mark.parametrize(("foreign", "text"), [(1, "1 process runs"), (2, "2 processes run")])
def test_tiers_stay_while_foreign_processes_are_in_them(foreign, text):
    web = burstable("web")
    there = as_observed(desired_for(web))
    busy = {WEB: 3, BURSTABLE: 3 + foreign, ROOT: 3 + foreign}
    there = observed(*(replace(u, tasks=busy.get(u.name, 0)) for u in there.units.values()))
    plan = make_plan(desired_for(current=[web], terminating=[web]), there)
    assert names(plan, StopUnit) == [WEB, "kubepods-besteffort.slice"]
    assert only(replace(plan, steps=plan.steps[:1])).tasks == 3
    why = f"{text} in it outside of any pod"
    assert [(each.unit, each.why) for each in plan.skipped] == [(BURSTABLE, why), (ROOT, why)]


def test_a_unit_that_does_not_exist_is_not_stopped():
    plan = make_plan(desired(unwanted=["kubepods-podgone.slice", ROOT]), observed())
    assert plan == Plan()


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


def test_refusals_are_in_the_order_of_pods():
    before = [besteffort("web"), besteffort("database")]
    there = as_observed(desired_for(*before), scopes=False)
    there = observed(*(replace(u, tasks=1) for u in there.units.values()))
    plan = make_plan(desired_for(guaranteed("web"), guaranteed("database")), there)
    assert [each.pod for each in plan.refused] == ["default/database", "default/web"]
