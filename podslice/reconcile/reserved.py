"""Record the values that podslice sets outside its root, and restore them."""

from __future__ import annotations

from collections.abc import Iterable

from podslice.model.desired import Desired
from podslice.model.reserved_values import ReservedValues
from podslice.model.unit import Observed
from podslice.plan import Plan, SetProperties, make_plan, restore_values
from podslice.plan.restore import record_steps, settle_steps
from podslice.reconcile.act import OnResult, act
from podslice.reconcile.report import Outcome, Report, StepResult
from podslice.reconcile.rollback import end_trial, is_reserved, recorded
from podslice.reconcile.world import LiveWorld, World


def note(world: World, held: ReservedValues, plan: Plan) -> None:
    """Record the values that a plan is about to set.

    The record is written before the steps are taken: after a crash both values are known.
    """
    steps = filter(is_reserved, plan.steps)
    world.store.save_reserved(record_steps(held, steps, world.config.cgroup_root))


def settle_values(world: World, held: ReservedValues, results: Iterable[StepResult]) -> None:
    """Record the values that were set; `held` was recorded before `note`."""
    results = tuple(results)

    def of(outcome: Outcome) -> list[SetProperties]:
        return [each.step for each in results if each.outcome is outcome and is_reserved(each.step)]

    now = recorded(world.store)
    if now:
        done, not_tried = of(Outcome.DONE), of(Outcome.NOT_TRIED)
        world.store.save_reserved(settle_steps(now, held, done, not_tried))


async def restore_all(world: LiveWorld, on_result: OnResult = lambda _: None) -> Report:
    """Restore every value outside the root, and change nothing else. The caller holds the lock.

    Raises:
        ForeignRoot: the root belongs to a kubelet; nothing was changed.
        HostError: the record can't be written.
    """
    client = world.client
    if not recorded(world.store):
        return Report()
    await world.claim(world.client)
    await end_trial(world.store, client)
    values = recorded(world.store)
    units = await client.observe(sorted(values.units))
    observed = Observed(caps=await client.caps(), units={unit.name: unit for unit in units})
    returning = restore_values(Desired(root=world.tree.root), observed, values)
    plan = make_plan(returning.desired, observed)
    note(world, returning.held, plan)
    results = await act(plan, client, on_result)
    settle_values(world, returning.held, results)
    return Report(results=tuple(results), skipped=(*plan.skipped, *returning.skipped))
