"""Apply and delete: assess, record, act, and assess again.

Both yield what they find and do, in this order: the assessment, once everything that can be refused is
checked and before anything is changed; the results of steps on services that come first; the plan of
units, and the results of its steps as they are complete; refused pods and pods of which something is
left; the results of steps on files; and the report.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from podslice.errors import HostError
from podslice.kernel.cgroup import limit_hugepages
from podslice.model.config import Enforce
from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import StuckPod
from podslice.model.pod import NO_PROGRESS, Pod, Qos
from podslice.model.unit import UnitName, control_group_of
from podslice.plan import (
    Action,
    Plan,
    PodStep,
    SetProperties,
    StartUnit,
    Step,
    StopUnit,
    depth_of,
)
from podslice.policy.desire import pending
from podslice.reconcile import act as acting
from podslice.reconcile.act import Before, OnResult, act, nothing
from podslice.reconcile.assess import Assessment, Request, assess, living_agent, readmit
from podslice.reconcile.extension import Extension
from podslice.reconcile.observe import control_group, describe_processes
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
from podslice.reconcile.world import LiveWorld, World, refuse

REMOVAL_PATIENCE_SEC = 2.0
"""How long a control group may outlast its slice."""
_POLL_SEC = 0.02

Progress = Assessment | PodResult | Plan | StepResult | Refusal | StuckPod | Report
"""What an apply or a delete yields."""
_Reported = asyncio.Queue[Progress | None]
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
    world.store.expect(wanted.values())

    def source_of(decision: PodDecision, assessment: Assessment) -> str | None:
        # a candidate that was refused leaves the applied pod of its name in place
        is_applied = wanted.get(decision.pod.key) is decision.pod
        return ((sources or {}) if is_applied else assessment.sources).get(decision.pod.uid)

    async def assess_candidates() -> Assessment:
        assessment = await assess(world, request)
        if not request.starts_containers:
            _note_phases(world, assessment, wanted.keys())
        return assessment

    operation = _Operation(
        world=world,
        request=request,
        assess=assess_candidates,
        source_of=source_of,
        extensions=extensions,
        confirm_sec=confirm_sec,
    )
    return _as_reported(operation.run)


def delete(
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

    def source_of(decision: PodDecision, assessment: Assessment) -> str | None:
        return assessment.sources.get(decision.pod.uid)

    async def assess_removal() -> Assessment:
        assessment = await assess(world, request)
        return assessment if world.may_set_values else _without_values(assessment)

    async def work(reported: _Reported) -> Report:
        # Before the assessment: the end of a trial changes the record that the plan is made from.
        if all(map(is_named, world.store.load().pods)):
            await _release_reserved(world)
        operation = _Operation(
            world=world,
            request=request,
            assess=assess_removal,
            source_of=source_of,
            extensions=extensions,
        )
        report = await operation.run(reported)
        marks = readmit(world.store, keys)
        for mark in marks:
            world.on_note(
                f"pod {mark.pod} was evicted; its mark is removed, it may be applied again"
            )
        return replace(report, matched=report.matched.union(mark.pod for mark in marks))

    return _as_reported(work)


async def _as_reported(
    work: Callable[[_Reported], Coroutine[Any, Any, Report]],
) -> AsyncGenerator[Progress, None]:
    """Run an operation in a task; yield what it puts into its queue, and its report.

    After an error or a cancellation everything that was done until then is yielded before it is
    raised.
    """
    reported: _Reported = asyncio.Queue()
    task = asyncio.create_task(work(reported))
    task.add_done_callback(lambda _: reported.put_nowait(None))
    try:
        while (each := await reported.get()) is not None:
            yield each
            # After the yield: an operation that waits in `join` continues once the caller has
            # handled this.
            reported.task_done()
        yield await task
    except asyncio.CancelledError:
        task.cancel()
        # The cancelled task still reports the steps that were in progress.
        while (each := await reported.get()) is not None:
            yield each
        raise
    finally:
        # The caller releases the lock after this, also where it stops iterating: nothing may run
        # on.
        task.cancel()
        await asyncio.wait([task])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """An apply or a delete."""

    world: LiveWorld
    request: Request
    assess: Callable[[], Awaitable[Assessment]]
    source_of: SourceOf
    extensions: Sequence[Extension]
    confirm_sec: int | None = None

    async def run(self, reported: _Reported) -> Report:
        """Change units, with what features do before and after that; return the report.

        Services of removed pods stop, and adopted ones leave, before the slices change: systemd
        stops with a slice what is in it. Files are written once the slices are as desired, and
        services start in them when the caller has released the lock.
        """
        # Under the lock, which the caller holds: before, another process may have changed units.
        assessment = await self.assess()
        refuse(assessment.foreign)
        confirms = self.request.by_operator and self.confirm_sec is None
        if confirms and await confirm_implicitly(self.world):
            assessment = await self.assess()
        for each in self.extensions:
            await each.check(assessment)
        first = [(each, (await each.plan(assessment)).before) for each in self.extensions]
        reported.put_nowait(assessment)
        await reported.join()  # the caller prepares for the change
        before = await _act_around(first, reported)
        if before:
            assessment = await self.assess()
        reported.put_nowait(assessment.plan)
        await reported.join()
        report = await self._change_units(assessment, reported)
        for refusal in report.refused:
            reported.put_nowait(refusal)
        for stuck in report.stuck:
            reported.put_nowait(stuck)
        for each in self.extensions:
            await each.finish()
        undone = {
            each.step.pod or "" for each in report.results if each.outcome is not Outcome.DONE
        }
        last = [(each, (await each.plan(assessment, undone)).after) for each in self.extensions]
        after = await _act_around(
            [(each, [step for step in steps if not _is_start(step)]) for each, steps in last],
            reported,
        )
        failed = {each.step.pod for each in after if each.outcome is not Outcome.DONE}
        starts = (step for _, steps in last for step in steps if _is_start(step))
        return replace(
            report,
            before=tuple(before),
            after=tuple(after),
            starts=tuple(step for step in starts if step.pod not in failed),
        )

    async def _change_units(self, assessment: Assessment, reported: _Reported) -> Report:
        """Take the steps on units; after complete success assess again, and undo drop-ins."""
        world, plan = self.world, assessment.plan
        take = partial(_act_on_units, world, on_result=reported.put_nowait)
        async with self._recording(assessment) as before:
            note(world, assessment.held, plan)
            take_recorded = partial(take, before=before)
            if self.confirm_sec is None:
                results = await take_recorded(plan)
            else:
                results = await on_trial(
                    world, plan, self.confirm_sec, take_recorded, reported.put_nowait
                )
        settle_values(world, assessment.held, results)
        to_remove = self.request.to_remove
        report = Report(
            results=tuple(results),
            skipped=plan.skipped,
            refused=plan.refused,
            matched=frozenset(pod.key for pod in assessment.current if to_remove(pod)),
            stuck=await _forget(world, assessment, results),
        )
        if report.stuck or not report.is_complete:
            return report
        # What was set and what is in force may differ; an empty plan proves that they do not.
        remaining = (await self.assess()).plan
        if overruled := _overruled(remaining, results):
            results += await take(overruled)
            remaining = (await self.assess()).plan
        return replace(report, results=tuple(results), remaining=remaining)

    @asynccontextmanager
    async def _recording(self, assessment: Assessment) -> AsyncIterator[Before]:
        """Write the records of a plan; the yielded function writes those that its steps require.

        A record is written before the slice of its pod is started: a crash then leaves a record
        without a slice, never a slice without a record. The records of pods that are applied
        already, and of few new ones, are written before anything changes, the others while systemd
        starts the slices of others. At the end all are written, also after an error or an
        interruption: the next apply of any pod then starts what is missing.

        Raises:
            HostError: /run can't be written.
        """
        at_once, waiting = self._split(assessment)
        write = self._begin_records(assessment)
        for decision in at_once:
            write(decision)
            await asyncio.sleep(0)

        def record(name: UnitName) -> None:
            if name in waiting:
                write(waiting[name])
                del waiting[name]

        for name in list(waiting)[:1]:
            record(name)  # to find out whether it works

        async def before(steps: Sequence[Step]) -> None:
            for step in steps:
                record(step.name)

        async def record_ahead() -> None:
            """Record pods with a turn of other tasks after each; errors are left to the steps."""
            with suppress(HostError):
                for name in list(waiting):
                    await asyncio.sleep(0)
                    record(name)

        ahead = asyncio.create_task(record_ahead())
        try:
            yield before
        finally:
            ahead.cancel()
            try:
                for name in list(waiting):
                    record(name)
            finally:
                await asyncio.wait([ahead])

    def _split(
        self, assessment: Assessment
    ) -> tuple[list[PodDecision], dict[UnitName, PodDecision]]:
        """Return the pods to record at once, and by their slices those that can wait."""
        plan, current, pods = assessment.plan, assessment.current, assessment.desired.pods
        in_progress = self.request.terminating.in_progress
        staying = {refusal.pod for refusal in plan.refused}
        staying |= {pod.key for pod in current if pod.uid in in_progress}
        known = {pod.uid for pod in current}
        started = {step.name for step in plan.steps if isinstance(step, StartUnit)}
        new = {each.slice for each in pods if each.pod.uid not in known} & started
        if len(new) <= acting.BATCH_MAX:
            new = set()  # all are started with the first call or the next
        # in the order in which `act` starts the slices
        ordered = sorted(pods, key=lambda each: (-depth_of(each.slice), each.slice))
        return (
            [each for each in pods if each.pod.key not in staying and each.slice not in new],
            {
                each.slice: each
                for each in ordered
                if each.pod.key not in staying and each.slice in new
            },
        )

    def _begin_records(self, assessment: Assessment) -> Callable[[PodDecision], None]:
        """Write what precedes every record; return the function that writes one, if it differs."""
        world, store = self.world, self.world.store
        for path in assessment.broken_records:
            store.discard(path)
        if assessment.desired.pods and world.origin.options is not None:
            store.save_options(world.origin.options)
        recorded = {pod.uid: pod for pod in assessment.current if pod.uid in assessment.digests}
        marked = {mark.uid for mark in assessment.evicted}

        def write(decision: PodDecision) -> None:
            source, pod = self.source_of(decision, assessment), decision.pod
            if recorded.get(pod.uid) != pod or assessment.sources.get(pod.uid) != source:
                store.save(pod, source)
            if pod.uid in marked:
                store.unmark(pod.uid)  # its manifest has changed
            if world.manager.is_user:
                _make_volumes(world, pod)

        return write


def _is_start(step: PodStep) -> bool:
    return step.action is Action.START


async def _act_around(
    planned: Iterable[tuple[Extension, Sequence[PodStep]]], reported: _Reported
) -> list[PodResult]:
    """Take the steps of each extension."""
    results = []
    for extension, steps in planned:
        async for result in extension.act(steps):
            results.append(result)
            reported.put_nowait(result)
    return results


def start_services(
    extensions: Iterable[Extension], report: Report
) -> AsyncGenerator[Progress, None]:
    """Start the services of a report; yield the results, and the report with them.

    The caller has released the lock: the last init container calls podslice, which takes it.
    """

    async def work(reported: _Reported) -> Report:
        planned = [
            (each, [step for step in report.starts if step.section == each.section])
            for each in extensions
        ]
        results = await _act_around(planned, reported)
        return replace(report, after=(*report.after, *results), starts=())

    return _as_reported(work)


def _make_volumes(world: World, pod: Pod) -> None:
    """Make directories instead of volumes: a user's manager can't mount."""
    for volume in pod.volumes:
        if not world.store.volume_path(pod.uid, volume.name).exists():
            path = world.store.make_volume(pod.uid, volume.name)
            world.on_note(
                f"pod {pod.key}: volume {volume.name} is the directory {path}, without a size of"
                " its own: a user's manager can't mount"
            )


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
            f" podslice phase {pod.key} running"
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
        # A pod whose class has changed may still be in the slice of the former class.
        slices = {world.tree.pod(pod.uid, qos) for qos in Qos}
        if slices & failed:
            continue
        groups = sorted(control_group(name, assessment.observed) for name in slices)
        left = await _find_remains(world, pod, groups)
        if left is not None:
            # The record stays, so that another delete finds the pod.
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
