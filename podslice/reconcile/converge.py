"""Apply and delete: assess, record, act, and assess again.

Both are iterators of what they find and do, in this order: the assessment, once everything that can be
refused is checked and before anything is changed; the results of steps on services that come first;
the plan of units, and the results of its steps as they are complete; refused pods and pods of which
something is left; the results of steps on files; and the report.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from podslice.kernel.cgroup import limit_hugepages
from podslice.model.config import Enforce
from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import StuckPod
from podslice.model.pod import NO_PROGRESS, Pod, Qos
from podslice.model.unit import control_group_of
from podslice.plan import Action, Plan, PodStep, SetProperties, StartUnit, Step, StopUnit
from podslice.policy.desire import pending
from podslice.reconcile.act import Before, OnResult, act, nothing
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment, Request
from podslice.reconcile.extension import Extension
from podslice.reconcile.guard import refuse
from podslice.reconcile.observe import control_group
from podslice.reconcile.occupants import describe_processes
from podslice.reconcile.readmission import living_agent, readmit
from podslice.reconcile.recording import recording
from podslice.reconcile.report import Outcome, PodResult, Report, StepResult
from podslice.reconcile.rollback import (
    confirm_implicitly,
    end_trial,
    is_reserved,
    note,
    on_trial,
    recorded,
    settle_values,
)
from podslice.reconcile.world import LiveWorld

REMOVAL_PATIENCE_SEC = 2.0
"""How long a control group may outlast its slice."""
_POLL_SEC = 0.02

Progress = Assessment | PodResult | Plan | StepResult | Refusal | StuckPod | Report
"""What an apply or a delete yields."""
SourceOf = Callable[[PodDecision, Assessment], str | None]
"""Returns the manifest file of a pod, None where it is not from a directory."""


def apply(
    world: LiveWorld,
    request: Request,
    *,
    sources: Mapping[str, str] | None = None,
    confirm_sec: int | None = None,
    extensions: Sequence[Extension] = (),
) -> AsyncGenerator[Progress, None]:
    """Apply and remove pods as requested. The caller holds the lock.

    `sources` are the manifest files of candidates from a directory, by uid. New values of reserved
    slices last `confirm_sec` unless confirmed; with None they and earlier ones stay.

    Raises:
        ForeignRoot: the root belongs to a kubelet; nothing was changed.
        HostError: /run can't be written.
    """
    wanted = {candidate.pod.key: candidate.pod for candidate in request.candidates}

    def source_of(decision: PodDecision, assessment: Assessment) -> str | None:
        # a candidate that was refused leaves the applied pod of its name in place
        is_applied = wanted.get(decision.pod.key) is decision.pod
        return ((sources or {}) if is_applied else assessment.sources).get(decision.pod.uid)

    world.store.expect(wanted.values())

    async def assess_candidates() -> Assessment:
        assessment = await assess(world, request)
        if not request.starts_containers:
            _note_phases(world, assessment, wanted.keys())
        return assessment

    return _converge(
        world, request, assess_candidates, source_of, extensions, confirm_sec=confirm_sec
    )


async def delete(
    world: LiveWorld,
    keys: Collection[str] | None,
    *,
    grace_sec: int | None = None,
    extensions: Sequence[Extension] = (),
) -> AsyncGenerator[Progress, None]:
    """Stop and remove the named pods, with None all; the caller holds the lock.

    Where the configuration is only assumed, units are stopped and no value of another unit changes.
    With the last pod the former values of reserved slices return. The report's `matched` are the
    keys of applied or evicted pods.

    Raises:
        ForeignRoot, HostError: as `apply`.
    """

    def is_named(pod: Pod) -> bool:
        return keys is None or pod.key in keys

    request = Request(to_remove=is_named, grace_sec=grace_sec, releases_reserved=True)

    async def assess_removal() -> Assessment:
        assessment = await assess(world, request)
        return assessment if world.may_set_values else _without_values(assessment)

    if all(map(is_named, world.store.load().pods)):
        await _release_reserved(world)
    found = _converge(
        world,
        request,
        assess_removal,
        lambda decision, assessment: assessment.sources.get(decision.pod.uid),
        extensions,
    )
    async with aclosing(found):
        async for each in found:
            if isinstance(each, Report):
                marks = readmit(world.store, keys)
                for mark in marks:
                    world.on_note(
                        f"pod {mark.pod} was evicted; its mark is removed, it may be applied again"
                    )
                yield replace(each, matched=each.matched.union(mark.pod for mark in marks))
            else:
                yield each


def _without_values(assessment: Assessment) -> Assessment:
    """Leave only stops in the plan; with the last pod, restored values of reserved slices, too."""
    stops = assessment.plan.only_stops()
    if assessment.desired.pods:
        return replace(assessment, plan=stops, held=assessment.recorded_values)
    restores = tuple(step for step in assessment.plan.steps if is_reserved(step))
    return replace(assessment, plan=replace(stops, steps=(*stops.steps, *restores)))


async def _release_reserved(world: LiveWorld) -> None:
    """End a trial of values outside the root, and note whether an agent sets them again."""
    if recorded(world.store).unconfirmed is not None:
        await world.claim(world.client)
        await end_trial(world.store, world.client)
    if (
        world.config.enforce_node_allocatable - {Enforce.PODS}
        and living_agent(world.store) is not None
    ):
        world.on_note(
            "the agent is running, and the configuration enforces reservations on other slices: it"
            " sets their values again; to prevent that: systemctl stop podslice-agent.service"
        )


async def settle(world: LiveWorld, key: str) -> Report:
    """Make the units of one applied pod what they should be. The caller holds the lock.

    Where the configuration is only assumed, the next `apply` does that.
    """
    if not world.may_set_values:
        return Report()
    assessment = await assess(world)
    refuse(assessment.foreign)
    plan = _of_pod(assessment, key)
    results = await _act_on_units(world, plan)
    report = Report(results=tuple(results), skipped=plan.skipped)
    if not report.is_complete:
        return report
    return replace(report, remaining=_of_pod(await assess(world), key))


def _of_pod(assessment: Assessment, key: str) -> Plan:
    return assessment.plan.only({unit.name for unit in assessment.desired.units if unit.pod == key})


async def _converge(
    world: LiveWorld,
    request: Request,
    assess_again: Callable[[], Awaitable[Assessment]],
    source_of: SourceOf,
    extensions: Sequence[Extension],
    confirm_sec: int | None = None,
) -> AsyncGenerator[Progress, None]:
    """Apply or delete, with what features do before and after that.

    Services of removed pods stop, and adopted ones leave, before the slices change: systemd stops
    with a slice what is in it. Files are written once the slices are as desired, and services start
    in them when the caller has released the lock.
    """
    assessment = await assess_again()
    refuse(assessment.foreign)
    if request.by_operator and confirm_sec is None and await confirm_implicitly(world):
        assessment = await assess_again()
    for each in extensions:
        await each.check(assessment)
    planned = [await each.plan(assessment) for each in extensions]
    yield assessment
    before: list[PodResult] = []
    first = _act((each, steps.before) for each, steps in zip(extensions, planned, strict=True))
    async with aclosing(first):
        async for result in first:
            before.append(result)
            yield result
    if before:
        assessment = await assess_again()
    changing = _change_units(world, request, assessment, assess_again, source_of, confirm_sec)
    report = Report()
    async with aclosing(changing):
        async for found in changing:
            if isinstance(found, Report):
                report = replace(found, before=tuple(before))
            else:
                yield found
    for each in extensions:
        await each.finish()
    failed = {each.step.pod or "" for each in report.results if each.outcome is not Outcome.DONE}
    later = [(each, (await each.plan(assessment, failed)).after) for each in extensions]
    after: list[PodResult] = []
    last = _act((each, [step for step in steps if not _is_start(step)]) for each, steps in later)
    async with aclosing(last):
        async for result in last:
            after.append(result)
            yield result
    failed = {each.step.pod for each in after if each.outcome is not Outcome.DONE}
    starts = (step for _, steps in later for step in steps if _is_start(step))
    yield replace(
        report,
        after=tuple(after),
        starts=tuple(step for step in starts if step.pod not in failed),
    )


def _is_start(step: PodStep) -> bool:
    return step.action is Action.START


async def start_services(
    extensions: Iterable[Extension], report: Report
) -> AsyncGenerator[PodResult | Report, None]:
    """Start the services of a report, and yield it with the results.

    The caller has released the lock: the last init container calls podslice, which takes it.
    """
    after = list(report.after)
    started = _act(
        (each, [step for step in report.starts if step.section == each.section])
        for each in extensions
    )
    async with aclosing(started):
        async for result in started:
            after.append(result)
            yield result
    yield replace(report, after=tuple(after), starts=())


async def _act(
    planned: Iterable[tuple[Extension, Sequence[PodStep]]],
) -> AsyncGenerator[PodResult, None]:
    """Take the steps of each extension."""
    for extension, steps in planned:
        taken = extension.act(steps)
        async with aclosing(taken):
            async for result in taken:
                yield result


async def _change_units(
    world: LiveWorld,
    request: Request,
    assessment: Assessment,
    assess_again: Callable[[], Awaitable[Assessment]],
    source_of: SourceOf,
    confirm_sec: int | None,
) -> AsyncGenerator[Plan | StepResult | Refusal | StuckPod | Report, None]:
    """Take the steps on units; assess again after complete success, and take what drop-ins require."""
    plan = assessment.plan
    yield plan

    async def change(on_result: OnResult) -> None:
        async with recording(
            world,
            assessment,
            source_of=lambda decision: source_of(decision, assessment),
            in_progress=request.terminating.in_progress,
        ) as before:
            note(world, assessment.held, plan)
            take = partial(_act_on_units, world, on_result=on_result, before=before)
            if confirm_sec is None:
                await take(plan)
            else:
                await on_trial(world, plan, confirm_sec, take, on_result)

    results: list[StepResult] = []
    async with aclosing(_as_reported(change)) as reported:
        async for result in reported:
            results.append(result)
            yield result
    # those on reserved slices come last if they are on trial
    steps = plan.steps if confirm_sec is None else sorted(plan.steps, key=is_reserved)
    results = _in_order(results, steps)
    settle_values(world, assessment.held, results)
    report = Report(
        results=tuple(results),
        skipped=plan.skipped,
        refused=plan.refused,
        matched=frozenset(pod.key for pod in assessment.current if request.to_remove(pod)),
        stuck=await _forget(world, assessment, results),
    )
    if not report.stuck and report.is_complete:
        remaining = (await assess_again()).plan
        if overruled := _overruled(remaining, results):
            async with aclosing(_as_reported(partial(_act_on_units, world, overruled))) as reported:
                async for result in reported:
                    results.append(result)
                    yield result
            results = _in_order(results, (*steps, *overruled.steps))
            remaining = (await assess_again()).plan
        report = replace(report, results=tuple(results), remaining=remaining)
    further: tuple[Refusal | StuckPod | Report, ...] = (*report.refused, *report.stuck, report)
    for each in further:
        yield each


async def _as_reported(
    work: Callable[[OnResult], Coroutine[Any, Any, object]],
) -> AsyncGenerator[StepResult, None]:
    """Take steps in a task, and yield each result at once.

    After an error or a cancellation the results until then are yielded before it is raised.
    """
    found: asyncio.Queue[StepResult | None] = asyncio.Queue()
    task = asyncio.create_task(work(found.put_nowait))
    task.add_done_callback(lambda _: found.put_nowait(None))
    try:
        while (result := await found.get()) is not None:
            yield result
        await task
    except asyncio.CancelledError:
        task.cancel()
        while (result := await found.get()) is not None:
            yield result
        raise
    finally:
        task.cancel()
        await asyncio.wait([task])


def _in_order(results: Iterable[StepResult], steps: Iterable[Step]) -> list[StepResult]:
    """Return results in the order of the steps."""
    position = {id(step): place for place, step in enumerate(steps)}
    return sorted(results, key=lambda result: position[id(result.step)])


def _overruled(plan: Plan, results: Iterable[StepResult]) -> Plan:
    """Return the steps that undo drop-ins for all slices (`slice.d`) on units just started.

    Fedora has one for users' managers, for systemd-oomd. It takes precedence over the properties
    that a unit is started with, but not over those that are set.
    """
    started = {result.step.name for result in results if isinstance(result.step, StartUnit)}
    steps = (step for step in plan.steps if isinstance(step, SetProperties))
    return Plan(steps=tuple(step for step in steps if step.name in started))


async def _act_on_units(
    world: LiveWorld, plan: Plan, on_result: OnResult = lambda _: None, before: Before = nothing
) -> list[StepResult]:
    root = control_group_of(world.tree.root)
    limit = partial(limit_hugepages, world.cgroups, root)
    return await act(plan, world.client, on_result, before=before, limit_hugepages=limit)


def _note_phases(world: LiveWorld, assessment: Assessment, wanted: Collection[str]) -> None:
    """Note the new pods whose own limits do not bind yet."""
    for decision in assessment.desired.pods:
        pod = decision.pod
        is_new = pod.key in wanted and pod.key in assessment.desired.initializing
        if not is_new or decision.init_properties is None:
            continue
        awaited = pending(pod, assessment.progress.get(pod.uid, NO_PROGRESS))
        what = "init container" if len(awaited) == 1 else "init containers"
        world.on_note(
            f"pod {pod.key}: its own limits bind once its {what} {', '.join(awaited)} exited"
            f" with 0 (podslice run {pod.key} -c {awaited[0]} -- CMD); to bind them now:"
            f" podslice phase {pod.key} --set running"
        )


async def _forget(
    world: LiveWorld, assessment: Assessment, results: Iterable[StepResult]
) -> tuple[StuckPod, ...]:
    """Remove the records of stopped pods; return the pods of which something is left."""
    failed = {
        result.step.name
        for result in results
        if isinstance(result.step, StopUnit) and result.outcome is not Outcome.DONE
    }
    present = {pod.pod.uid for pod in assessment.desired.pods}
    stuck = []
    for pod in assessment.current:
        if pod.uid in present:
            continue
        slices = {world.tree.pod(pod.uid, qos) for qos in Qos}
        if slices & failed:
            continue
        groups = sorted(control_group(name, assessment.observed) for name in slices)
        left = await _find_remains(world, pod, groups)
        if left is not None:
            stuck.append(left)
        else:
            world.store.remove(pod.uid)
    world.store.tidy()
    return tuple(stuck)


async def _find_remains(world: LiveWorld, pod: Pod, groups: Iterable[str]) -> StuckPod | None:
    """Return what is left of a pod, with the remedy; remove its volumes once they are unused."""
    again = f"to retry: podslice delete{world.manager.flag} -n {pod.namespace} {pod.name}"
    for group in groups:
        if await _is_removed(world, group):
            continue
        held = world.cgroups.processes(group)
        why = f"its control group {group} still exists, without processes"
        if held:
            why = f"{group} still contains {describe_processes(held)}"
        return StuckPod(pod=pod.key, why=why, hint=again)
    left = world.store.discard_volumes(pod.uid)
    if left:
        why = f"something is still mounted at {', '.join(left)}"
        return StuckPod(pod=pod.key, why=why, hint=f"unmount it; {again}")
    return None


async def _is_removed(world: LiveWorld, group: str) -> bool:
    """Wait for the kernel to remove a control group; return whether it has."""
    deadline = asyncio.get_running_loop().time() + REMOVAL_PATIENCE_SEC
    while world.cgroups.exists(group):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_POLL_SEC)
    return True
