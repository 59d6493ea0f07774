"""Records of pods, written while systemd starts the slices of others.

A record is written before the slice of its pod is started: a crash then leaves a record without a
slice, never a slice without a record. The records of pods that are applied already, and of few new
ones, are written before anything changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress

from podslice.errors import HostError
from podslice.model.desired import PodDecision
from podslice.model.pod import Pod
from podslice.model.unit import UnitName
from podslice.plan import StartUnit, Step, depth_of
from podslice.reconcile import act
from podslice.reconcile.act import Before
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.world import World

SourceOf = Callable[[PodDecision], str | None]
"""Returns the manifest file of a pod, None where it is not from a directory."""


@asynccontextmanager
async def recording(
    world: World, assessment: Assessment, *, source_of: SourceOf, in_progress: Collection[str]
) -> AsyncIterator[Before]:
    """Write the records of a plan; the yielded function writes those that its steps require.

    At the end all are written, also after an error or an interruption: the next apply of any pod
    then starts what is missing.

    Raises:
        HostError: /run can't be written.
    """
    records = _Records(world, assessment, source_of, in_progress)
    await records.begin()
    ahead = asyncio.create_task(records.write_ahead())
    try:
        yield records.before
    finally:
        ahead.cancel()
        try:
            records.finish()
        finally:
            await asyncio.wait([ahead])


class _Records:
    """The records to write, and those that can wait for the steps of their pods."""

    def __init__(
        self,
        world: World,
        assessment: Assessment,
        source_of: SourceOf,
        in_progress: Collection[str],
    ) -> None:
        self._world = world
        self._assessment = assessment
        self._source_of = source_of
        self._marked = {mark.uid for mark in assessment.evicted}
        self._recorded = {
            pod.uid: pod for pod in assessment.current if pod.uid in assessment.digests
        }
        staying = {refusal.pod for refusal in assessment.plan.refused}
        staying |= {pod.key for pod in assessment.current if pod.uid in in_progress}
        pods = [each for each in assessment.desired.pods if each.pod.key not in staying]
        new = self._new_slices()
        if len(new) <= act.BATCH_MAX:
            new = set()  # all are started with the first call or the next
        self._at_once = [each for each in pods if each.slice not in new]
        waiting = {each.slice: each for each in pods if each.slice in new}
        self._waiting = {name: waiting[name] for name in sorted(waiting, key=_by_start)}

    def _new_slices(self) -> set[UnitName]:
        """Return the slices of pods that were not applied before, which the plan starts."""
        known = {pod.uid for pod in self._assessment.current}
        steps = self._assessment.plan.steps
        started = {step.name for step in steps if isinstance(step, StartUnit)}
        pods = self._assessment.desired.pods
        return {each.slice for each in pods if each.pod.uid not in known} & started

    async def begin(self) -> None:
        """Write what must precede every step, and one record more, to find out whether it works.

        Raises:
            HostError: /run can't be written.
        """
        store, options = self._world.store, self._world.origin.options
        for path in self._assessment.broken_records:
            store.discard(path)
        if self._assessment.desired.pods and options is not None:
            store.save_options(options)
        for decision in self._at_once:
            self._write(decision)
            await asyncio.sleep(0)
        for name in list(self._waiting)[:1]:
            self._write_waiting(name)

    async def before(self, steps: Sequence[Step]) -> None:
        """Write the records of the pods whose slices the steps start.

        Raises:
            HostError: /run can't be written.
        """
        for step in steps:
            self._write_waiting(step.name)

    async def write_ahead(self) -> None:
        """Write the records in the order of their steps, with a turn of other tasks after each.

        So they are written while systemd works on steps of others. An error is left to the step
        that requires the record.
        """
        with suppress(HostError):
            for name in list(self._waiting):
                await asyncio.sleep(0)
                self._write_waiting(name)

    def finish(self) -> None:
        """Write the remaining records, of pods whose steps were not taken.

        Raises:
            HostError: /run can't be written.
        """
        for name in list(self._waiting):
            self._write_waiting(name)

    def _write_waiting(self, name: UnitName) -> None:
        """Write the record of the pod of a slice, unless it is written already."""
        decision = self._waiting.get(name)
        if decision is not None:
            self._write(decision)
            del self._waiting[name]

    def _write(self, decision: PodDecision) -> None:
        world, source, pod = self._world, self._source_of(decision), decision.pod
        is_known = self._recorded.get(pod.uid) == pod
        if not is_known or self._assessment.sources.get(pod.uid) != source:
            world.store.save(pod, source)
        if pod.uid in self._marked:
            world.store.unmark(pod.uid)  # its manifest has changed
        if world.manager.is_user:
            _make_volumes(world, pod)


def _by_start(name: UnitName) -> tuple[int, UnitName]:
    """Return the position in which slices are started, as `act` does it."""
    return -depth_of(name), name


def _make_volumes(world: World, pod: Pod) -> None:
    """Make directories instead of volumes: a user's manager can't mount."""
    for volume in pod.volumes:
        if not world.store.volume_path(pod.uid, volume.name).exists():
            path = world.store.make_volume(pod.uid, volume.name)
            world.on_note(
                f"pod {pod.key}: volume {volume.name} is the directory {path}, without a size of"
                " its own: a user's manager can't mount"
            )
