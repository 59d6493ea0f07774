"""One look at everything, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import chain

from podslice.errors import InputError, Problem
from podslice.model.desired import Desired, PodDecision
from podslice.model.pod import Pod, Qos
from podslice.model.reserved import Reserved
from podslice.model.unit import Observed, UnitKind, UnitName
from podslice.plan import CLASS_CHANGED, Leaving, Plan, Returning, planning, return_values
from podslice.policy.desire import desiring, without_reserved
from podslice.policy.recover import recover, uid_of
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.observe import meet, observe, used_bytes
from podslice.reconcile.pace import in_turns
from podslice.reconcile.readmission import is_evicted, keep_away, living_agent
from podslice.reconcile.rollback import leave_reserved
from podslice.reconcile.world import World
from podslice.store import Records


async def assess(  # noqa: PLR0913 (what has a default goes by name)
    world: World,
    candidates: Iterable[PodDecision] = (),
    *,
    prune: bool = False,
    force: bool = False,
    gone: Callable[[Pod], bool] = lambda _: False,
    grace_sec: int | None = None,
    known: Iterable[PodDecision] = (),
    lets_go: bool = False,
    is_idle: bool = False,
) -> Assessment:
    """Observe, and plan for the candidates to join the pods that were applied.

    Args:
        world: where.
        candidates: the pods that are asked for.
        prune: whether the applied pods that are no candidates are to go.
        force: whether slices may be limited to less memory than they use.
        gone: names further pods that are to go.
        grace_sec: how long what runs in those has to end; None: as each pod states.
        known: what an earlier look at this world has decided, to save time.
        lets_go: whether reserved slices get their old values back once no pod is left.
        is_idle: whether that is so, too, where podslice has applied nothing at all.
    """
    candidates, known = tuple(candidates), tuple(known)
    values = world.store.reserved()
    recorded_values = Reserved() if values is None else values
    found = await observe(world, recorded_values.units)
    records = _current(world, found, await in_turns(world.store.loading()))
    recorded = [pod for pod in records.pods if pod.uid in records.digests]
    foreign = await world.guard.judge(world.tree, found.units.values(), recorded, world.manager)
    current = records.pods
    agent = living_agent(world.store)
    wanted = {candidate.pod.key for candidate in candidates}
    ends = world.ends
    leaving = tuple(
        pod
        for pod in current
        if pod.uid not in ends.under_way
        and (gone(pod) or is_evicted(pod, records) or (prune and pod.key not in wanted))
    )
    staying = len(leaving) < len(current)
    is_let_go = (lets_go and not staying) or (
        is_idle and not (staying or recorded_values or candidates or agent)
    )
    candidates, held_back = keep_away(world, candidates, records, agent)
    _refuse_uid_changes([candidate.pod for candidate in candidates], current, leaving)
    used = used_bytes(world, found)
    slices = {
        world.tree.pod(pod.uid, qos): replace(pod, grace_period_sec=0)
        if pod.uid in ends.over
        else pod
        for pod in leaving
        for qos in Qos
    }

    async def plan_for(candidates: Iterable[PodDecision]) -> tuple[Returning, Observed, Plan]:
        policy_steps = desiring(
            candidates,
            world.node,
            without_reserved(world.config) if is_let_go else world.config,
            current=current,
            gone=leaving,
            used_bytes=used,
            progress=records.progress,
            known=known,
            mounts=not world.manager.is_user,
        )
        policy = await in_turns(policy_steps)
        desired, observed = meet(world, policy, found, leaving)
        going = Leaving(pods=slices, grace_sec=grace_sec)
        returning = return_values(desired, observed, recorded_values)
        plan = await in_turns(planning(returning.desired, observed, force=force, leaving=going))
        return returning, observed, replace(plan, skipped=(*plan.skipped, *returning.skipped))

    returning, observed, plan = await plan_for(candidates)
    stuck = {refusal.pod: refusal for refusal in plan.refused if refusal.reason == CLASS_CHANGED}
    if not wanted.isdisjoint(stuck):
        # they stay what they were, and the tiers' sums have to say so
        rest = (each for each in candidates if each.pod.key not in stuck)
        returning, observed, plan = await plan_for(rest)
        plan = replace(plan, refused=(*plan.refused, *(stuck[key] for key in sorted(stuck))))
    plan = replace(plan, refused=(*plan.refused, *held_back))
    desired = returning.desired
    if ends.under_way:
        plan = plan.without(_units_of(ends.under_way, current, desired))
    if world.asked is None and recorded_values.unconfirmed is not None:
        plan = leave_reserved(plan)
    return Assessment(
        current=current,
        desired=desired,
        observed=observed,
        plan=plan,
        broken_records=(*records.broken, *_damaged(world, values)),
        recorded_values=recorded_values,
        held=returning.held,
        # what a kubelet has below its root is its own
        orphans=() if foreign else tuple(_orphans(world, desired, observed)),
        progress=records.progress,
        sources=records.sources,
        recorded=frozenset(records.digests),
        evicted=records.evicted,
        agent=agent,
        foreign=foreign,
    )


def _damaged(world: World, values: Reserved | None) -> Iterable[str]:
    """Return the file of the values outside the root where it holds none, and say so."""
    if values is None:
        path = str(world.store.reserved_path)
        world.on_note(
            f"{path} is damaged: which values podslice has set outside {world.tree.root} is not"
            " known; to return those of a slice: systemctl revert SLICE; the next apply removes the"
            " file"
        )
        yield path


def _units_of(uids: Collection[str], current: Iterable[Pod], desired: Desired) -> set[UnitName]:
    keys = {pod.key for pod in current if pod.uid in uids}
    return {unit.name for unit in desired.units if unit.pod in keys}


def _current(world: World, observed: Observed, records: Records) -> Records:
    """Return the pods that were applied, from records and, where those are lost, from slices."""
    for path in records.broken:
        world.on_note(f"{path} is no record of a pod; the next apply removes it")
    # where a record and a slice tell of two pods of one name, the record is right
    known = {pod.uid for pod in records.pods} | {pod.key for pod in records.pods}
    mounts = [unit for unit in observed.units.values() if unit.name.endswith(f".{UnitKind.MOUNT}")]
    rebuilt = []
    for unit in observed.units.values():
        uid = uid_of(unit.name)
        if uid is None or uid in known:
            continue
        pod = recover(unit, world.config, mounts)
        if pod is not None and pod.key not in known:
            world.on_note(
                f"pod {pod.key} has no record; it is rebuilt from the properties of {unit.name},"
                " without its containers"
            )
            known |= {pod.uid, pod.key}
            rebuilt.append(pod)
    return replace(
        records, pods=tuple(sorted(chain(records.pods, rebuilt), key=lambda pod: pod.key))
    )


def _refuse_uid_changes(
    candidates: Iterable[Pod], current: Collection[Pod], leaving: Collection[Pod]
) -> None:
    """A pod of the same name with another uid is another pod: the old one has to go first.

    So has one with the same uid and another name, as the two would have one slice.
    """
    uids = {pod.key: pod.uid for pod in current}
    staying = {pod.uid: pod for pod in current if pod not in leaving}
    problems = [
        Problem(
            where=pod.where,
            message=f"pod {pod.key} is there with uid {uids[pod.key]}, not {pod.uid}",
            hint=f"delete it first: podslice delete -n {pod.namespace} {pod.name}",
        )
        for pod in candidates
        if uids.get(pod.key, pod.uid) != pod.uid
    ]
    problems += [
        Problem(
            where=pod.where,
            message=f"the uid {pod.uid} is that of pod {other.key}, which is there",
            hint=f"delete it first: podslice delete -n {other.namespace} {other.name}",
        )
        for pod in candidates
        if (other := staying.get(pod.uid, pod)).key != pod.key
    ]
    if problems:
        raise InputError(problems)


def _orphans(world: World, desired: Desired, observed: Observed) -> Iterable[UnitName]:
    """Slices below the root that are neither desired nor on their way out."""
    tree = world.tree
    known = {unit.name for unit in desired.units} | desired.absent.keys()
    known |= {tree.root, *(tree.tier(qos) for qos in Qos)}
    return sorted(
        name
        for name, unit in observed.units.items()
        if name not in known
        and name.endswith(f".{UnitKind.SLICE}")
        and name.startswith(tree.root.removesuffix(".slice"))
    )
