"""From a plan to what is: act, and keep the records in step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from podslice.errors import HostError, printable
from podslice.kernel import hugetlb
from podslice.model.desired import PodDecision
from podslice.model.pod import InitProgress, Pod, Qos
from podslice.model.unit import control_group_of
from podslice.plan import Plan, SetProperties, StartUnit, StopUnit
from podslice.policy.desire import without_reserved
from podslice.policy.phase import pending
from podslice.reconcile.act import OnResult, act
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.guard import refuse
from podslice.reconcile.observe import control_group
from podslice.reconcile.occupants import name_processes
from podslice.reconcile.pace import Pace
from podslice.reconcile.readmission import living_agent, pod_of, readmit
from podslice.reconcile.report import Lingering, Outcome, Report, StepResult
from podslice.reconcile.reserved import note, settle_values
from podslice.reconcile.rollback import (
    confirm_by_asking,
    end_trial,
    is_reserved,
    on_trial,
    recorded,
)
from podslice.reconcile.world import World
from podslice.systemd.client import Client

_GONE_PATIENCE_SEC = 2.0
"""How long a control group may take to go after its slice."""
_LOOK_AGAIN_SEC = 0.02


async def apply(  # noqa: PLR0913 (what has a default goes by name)
    world: World,
    candidates: Iterable[PodDecision],
    *,
    prune: bool = False,
    force: bool = False,
    gone: Callable[[Pod], bool] = lambda _: False,
    sources: Mapping[str, str] | None = None,
    known: Collection[PodDecision] = (),
    on_plan: Callable[[Plan], None] = lambda _: None,
    on_result: OnResult = lambda _: None,
) -> Report:
    """Make it so; pods that `gone` names go at the same time. The lock is the caller's.

    `sources` are the manifest files of candidates from a directory, by their uids; `known` is what
    an earlier look at this world has decided.

    Raises:
        ForeignRoot: the root belongs to a kubelet; nothing was changed.
        HostError: /run can't be written.
    """
    candidates = tuple(candidates)
    wanted = {candidate.pod.key: candidate for candidate in candidates}

    def source_of(decision: PodDecision, state: Assessment) -> str | None:
        # a candidate that was refused leaves another of its name in place
        is_taken = wanted.get(decision.pod.key) is decision
        return ((sources or {}) if is_taken else state.sources).get(decision.pod.uid)

    async def look_again() -> Assessment:
        state = await assess(world, candidates, prune=prune, force=force, gone=gone, known=known)
        _note_phases(world, state, wanted)
        return state

    return await _converge(world, look_again, source_of, on_plan=on_plan, on_result=on_result)


async def delete(
    world: World,
    gone: Callable[[Pod], bool],
    *,
    grace_sec: int | None = None,
    on_plan: Callable[[Plan], None] = lambda _: None,
    on_result: OnResult = lambda _: None,
) -> Report:
    """Stop the pods that `gone` names and remove them; the tiers relax. The lock is the caller's.

    What runs in them has `grace_sec` to end by itself, or as long as each pod states. Where the
    configuration is only assumed, units are stopped and no value of another unit changes.
    With the last of them the values outside the root go: what was before returns.

    Raises:
        ForeignRoot, HostError: as `apply`.
    """

    async def look_again() -> Assessment:
        state = await assess(world, gone=gone, grace_sec=grace_sec, lets_go=True)
        return state if world.may_set_values else _without_values(state)

    _note_sources(world, gone)
    if all(map(gone, world.store.load().pods)):
        await _let_go(world)
    report = await _converge(
        world,
        look_again,
        _recorded_source,
        on_plan=on_plan,
        on_result=on_result,
    )
    for mark in readmit(world.store, lambda mark: gone(pod_of(mark))):
        world.on_note(f"pod {mark.pod} was evicted; that is forgotten, and it may come back")
    return report


def _without_values(state: Assessment) -> Assessment:
    """Return a look of which only stops are left, and with the last pod what returns then."""
    stops = state.plan.only_stops()
    if state.desired.pods:
        return replace(state, plan=stops, held=state.recorded_values)
    returns = tuple(step for step in state.plan.steps if is_reserved(step))
    return replace(state, plan=replace(stops, steps=(*stops.steps, *returns)))


async def _let_go(world: World) -> None:
    """End a trial of values outside the root, for all of them return, and say what an agent does."""
    if recorded(world.store).unconfirmed is not None:
        await world.guard.claim(world)
        await end_trial(world.store, _need(world))
    is_enforced = without_reserved(world.config) != world.config
    if is_enforced and living_agent(world.store) is not None:
        world.on_note(
            "an agent runs, and the configuration enforces reservations on other slices: it sets"
            " their values again; to prevent that: systemctl stop podslice-agent.service"
        )


def _note_sources(world: World, gone: Callable[[Pod], bool]) -> None:
    """Say which pods an agent brings back."""
    records = world.store.load()
    for pod in records.pods:
        source = records.sources.get(pod.uid)
        if source is not None and gone(pod):
            world.on_note(
                f"pod {pod.key} is of {printable(source)}: as long as it is in there, a running"
                " agent brings it back"
            )


async def settle(world: World, key: str) -> Report:
    """Make the units of one applied pod what they should be. The lock is the caller's.

    Where the configuration is only assumed, the next `apply` does that.
    """
    if not world.may_set_values:
        return Report()
    state = await assess(world)
    refuse(state.foreign)
    plan = _of_pod(state, key)
    results = await _act(world, plan)
    report = Report(results=tuple(results), skipped=plan.skipped)
    if not results or report.count(Outcome.DONE) < len(results):
        return report
    return replace(report, remaining=_of_pod(await assess(world), key))


def _of_pod(state: Assessment, key: str) -> Plan:
    return state.plan.only({unit.name for unit in state.desired.units if unit.pod == key})


async def _converge(
    world: World,
    look_again: Callable[[], Awaitable[Assessment]],
    source_of: Callable[[PodDecision, Assessment], str | None],
    *,
    on_plan: Callable[[Plan], None],
    on_result: OnResult,
) -> Report:
    state = await look_again()
    refuse(state.foreign)
    if await confirm_by_asking(world, _need(world)):
        state = await look_again()
    on_plan(state.plan)
    _need(world)
    # written before the slices are made: a crash then leaves a pod that is known and not yet there,
    # never a slice that nobody knows
    await _record(world, state, source_of)
    note(world, state.held, state.plan)
    take = partial(_act, world, on_result=on_result)
    if world.asked is None or world.asked.confirm_sec is None:
        results = await take(state.plan)
    else:
        results = await on_trial(
            world, _need(world), state.plan, world.asked.confirm_sec, take, on_result
        )
    settle_values(world, state.held, results)
    lingering = await _forget(world, state, results)
    report = Report(
        results=tuple(results),
        skipped=state.plan.skipped,
        refused=state.plan.refused,
        lingering=lingering,
    )
    if not results or lingering or report.count(Outcome.DONE) < len(results):
        return report
    remaining = (await look_again()).plan
    overruled = _overruled(remaining, results)
    if overruled:
        results += await take(overruled)
        remaining = (await look_again()).plan
    return replace(report, results=tuple(results), remaining=remaining)


def _overruled(plan: Plan, results: Iterable[StepResult]) -> Plan:
    """What drop-ins for all slices (`slice.d`) have made of units that were started just now.

    Fedora has one in users' managers, for systemd-oomd. It wins over what a unit is started with,
    and gives way to what is set.
    """
    started = {result.step.name for result in results if isinstance(result.step, StartUnit)}
    steps = (step for step in plan.steps if isinstance(step, SetProperties))
    return Plan(steps=tuple(step for step in steps if step.name in started))


async def _act(world: World, plan: Plan, on_result: OnResult = lambda _: None) -> list[StepResult]:
    root = control_group_of(world.tree.root)
    limit = partial(hugetlb.limit, world.cgroups, root)
    return await act(plan, _need(world), on_result, limit_hugepages=limit)


def _note_phases(world: World, state: Assessment, wanted: Collection[str]) -> None:
    """Say of which pods the limits do not bind yet, and what makes them."""
    for decision in state.desired.pods:
        pod = decision.pod
        is_new = pod.key in wanted and pod.key in state.desired.initializing
        if not is_new or decision.init_properties is None:
            continue
        waits_for = pending(pod, state.progress.get(pod.uid, InitProgress()))
        what = "init container" if len(waits_for) == 1 else "init containers"
        world.on_note(
            f"pod {pod.key}: its own limits bind once its {what} {', '.join(waits_for)} ended"
            f" with 0 (podslice run {pod.key} -c {waits_for[0]} -- CMD); to bind them now:"
            f" podslice phase {pod.key} --set running"
        )


def _need(world: World) -> Client:
    if world.client is None:
        raise HostError("there is no service manager to apply to")
    return world.client


def _recorded_source(decision: PodDecision, state: Assessment) -> str | None:
    return state.sources.get(decision.pod.uid)


async def _record(
    world: World, state: Assessment, source_of: Callable[[PodDecision, Assessment], str | None]
) -> None:
    for path in state.broken_records:
        world.store.discard(path)
    if state.desired.pods and world.origin.settings is not None:
        world.store.save_settings(world.origin.settings)
    staying = {refusal.pod for refusal in state.plan.refused}
    staying |= {pod.key for pod in state.current if pod.uid in world.ends.under_way}
    marked = {mark.uid for mark in state.evicted}
    recorded = {pod.uid: pod for pod in state.current if pod.uid in state.recorded}
    pace = Pace()
    for decision in state.desired.pods:
        if decision.pod.key not in staying:
            source = source_of(decision, state)
            is_known = recorded.get(decision.pod.uid) == decision.pod
            if not is_known or state.sources.get(decision.pod.uid) != source:
                world.store.save(decision.pod, source)
            if decision.pod.uid in marked:
                world.store.unmark(decision.pod.uid)  # its manifest is another one now
            if world.manager.is_user:
                _make_volumes(world, decision.pod)
        await pace.pause()


def _make_volumes(world: World, pod: Pod) -> None:
    """Directories in the place of volumes: a user's manager can't mount."""
    for volume in pod.volumes:
        if not world.store.volume_path(pod.uid, volume.name).exists():
            path = world.store.make_volume(pod.uid, volume.name)
            world.on_note(
                f"pod {pod.key}: volume {volume.name} is the directory {path}, without a size of"
                " its own: a user's manager can't mount"
            )


async def _forget(
    world: World, state: Assessment, results: Iterable[StepResult]
) -> tuple[Lingering, ...]:
    """Remove the records of pods that are gone; returns those of which something is left."""
    left = {
        result.step.name
        for result in results
        if isinstance(result.step, StopUnit) and result.outcome is not Outcome.DONE
    }
    present = {pod.pod.uid for pod in state.desired.pods}
    lingering = []
    for pod in state.current:
        slices = {world.tree.pod(pod.uid, qos) for qos in Qos}
        if pod.uid in present or slices & left:
            continue
        groups = sorted(control_group(name, state.observed) for name in slices)
        why = await _what_is_left(world, pod, groups)
        if why:
            lingering.append(Lingering(pod=pod.key, why=why))
        else:
            world.store.remove(pod.uid)
    world.store.tidy()
    return tuple(lingering)


async def _what_is_left(world: World, pod: Pod, groups: Iterable[str]) -> str:
    """What keeps a pod's record, with the way out; its volumes go once nothing can use them."""
    again = f"to try again: podslice delete -n {pod.namespace} {pod.name}"
    for group in groups:
        if await _is_gone(world, group):
            continue
        held = world.cgroups.processes(group)
        if held:
            return f"in {group} there are still {name_processes(held)}; {again}"
        return f"its control group {group} is still there, with nothing in it; {again}"
    left = world.store.discard_volumes(pod.uid)
    if left:
        return f"something is still mounted at {', '.join(left)}; unmount it; {again}"
    return ""


async def _is_gone(world: World, group: str) -> bool:
    """Whether a control group is gone; the kernel may take a moment."""
    deadline = asyncio.get_running_loop().time() + _GONE_PATIENCE_SEC
    while world.cgroups.exists(group):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_LOOK_AGAIN_SEC)
    return True
