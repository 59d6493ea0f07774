"""Limits of huge pages."""

from dataclasses import replace

import pytest

from podslice.model.unit import INFINITY, SYSTEM, Caps
from podslice.plan import Plan, SetHugepages, Stage, stage_of
from podslice.plan.make import make_plan
from tests.unit.builders import USER, desired, observed, scope_unit, seen, slice_unit
from tests.unit.plan.plans import MI, WEB, change, names, only

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
        unit=with_pages(web), changes=(change(FILE, None, 8 * MI), change(RESERVED, None, 8 * MI))
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


def test_a_pod_without_huge_pages_gets_limits_of_0_when_it_starts():
    unit = with_pages(slice_unit(WEB), {2 * MI: 0})
    _, pages = make_plan(desired(unit), able()).steps
    assert pages.changes == (change(FILE, None, 0), change(RESERVED, None, 0))


def test_without_the_controller_pods_without_huge_pages_are_not_reported():
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


def test_a_restarted_slice_has_no_limits_of_huge_pages():
    unit = with_pages(slice_unit(WEB))
    there = able(seen(WEB, transient=False, hugepages=THERE))
    plan = make_plan(desired(unit), there)
    assert names(plan, SetHugepages) == [WEB]


def test_nothing_is_limited_in_a_container_that_does_not_run():
    main = with_pages(scope_unit("podslice-podweb-main.scope", WEB))
    assert make_plan(desired(main), able()) == Plan()
    assert make_plan(desired(main), able(seen(main.name, active_state="failed"))) == Plan()


def test_huge_pages_that_the_kernel_does_not_support_are_reported():
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
def test_without_the_controller_each_pod_is_reported_once(manager, why):
    web = with_pages(slice_unit(WEB, pod="default/web"))
    main = with_pages(scope_unit("podslice-podweb-main.scope", WEB, pod="default/web"))
    there = able(seen(WEB), seen(main.name), manager=manager, hugetlb=False)
    plan = make_plan(desired(web, main), there)
    (skipped,) = plan.skipped
    assert (skipped.unit, skipped.name) == (WEB, "limits of huge pages")
    assert skipped.why.startswith(why)
    assert not plan
    assert not plan.is_blocked


def test_one_size_of_huge_pages_is_enough_for_limits_of_all():
    unit = with_pages(slice_unit(WEB), {**HUGE, 2**30: 0})
    there = {**THERE, FILE: INFINITY, "hugetlb.1GB.max": INFINITY}
    plan = make_plan(desired(unit), able(seen(WEB, hugepages=there)))
    assert only(plan).changes == (
        change(FILE, INFINITY, 8 * MI),
        change("hugetlb.1GB.max", INFINITY, 0),
    )
    plan = make_plan(desired(unit), able(seen(WEB), hugetlb=False))
    assert [each.name for each in plan.skipped] == ["limits of huge pages"]
