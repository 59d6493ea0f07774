"""A limit of a reserved slice below its current usage.

Source: Node Allocatable Resources, "General guidelines" ("can lead to critical services being … OOM
killed").
"""

import pytest

from podslice.plan import Skipped
from podslice.plan.make import make_plan
from tests.unit.builders import desired, observed, seen, slice_unit
from tests.unit.plan.plans import MI, change, only

SYSTEM = slice_unit("system.slice", owned=False, CPUWeight=50, MemoryMax=100 * MI)
WEIGHT = change("CPUWeight", 2**64 - 1, 50)
LIMIT = change("MemoryMax", 2**64 - 1, 100 * MI)


def lowered(used, **options):
    there = seen(SYSTEM.name, transient=False, memory_bytes=used)
    return make_plan(desired(SYSTEM), observed(there), **options)


def test_a_limit_below_the_usage_is_not_set_and_blocks():
    plan = lowered(100 * MI + 1)
    assert only(plan).changes == (WEIGHT,)
    assert plan.skipped == (
        Skipped(
            unit=SYSTEM.name,
            name="MemoryMax",
            why="104857601 B are in use, more than 100Mi; the kernel may OOM-kill processes; raise the"
            " reservation, or use --force",
            blocks=True,
        ),
    )
    assert plan.is_blocked


@pytest.mark.parametrize("used", [None, 0, 100 * MI])
def test_a_limit_of_the_usage_or_above_is_set(used):
    plan = lowered(used)
    assert only(plan).changes == (WEIGHT, LIMIT)
    assert not plan.skipped


def test_force_sets_the_limit():
    plan = lowered(100 * MI + 1, force=True)
    assert only(plan).changes == (WEIGHT, LIMIT)
    assert only(plan).reclaim_bytes is None
    assert not plan.skipped


def test_a_limit_that_is_set_already_is_not_reported():
    there = seen(SYSTEM.name, transient=False, values=SYSTEM.values, memory_bytes=100 * MI + 1)
    plan = make_plan(desired(SYSTEM), observed(there))
    assert not plan
    assert not plan.skipped


def test_a_reserved_slice_that_is_not_active_blocks():
    """Source: Kubernetes, node_container_manager_linux.go, enforceExistingCgroup."""
    plan = make_plan(desired(SYSTEM), observed())
    assert not plan
    assert plan.skipped == (
        Skipped(
            unit=SYSTEM.name,
            name="start",
            why="the slice is not active; start it: systemctl start system.slice",
            blocks=True,
        ),
    )
