"""Makes the node what manifests and records request, and reports what that finds and does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

from podslice.agent.context import AgentContext
from podslice.agent.drift import Drift
from podslice.agent.manifests import ManifestDirectories, WantedPods, WantedPodsReader
from podslice.agent.terminations import Terminations
from podslice.errors import ForeignRoot, InputError, Severity
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.node_state import SIZE_LIMIT, Eviction
from podslice.model.pod import Pod
from podslice.model.properties import managed_of, supported
from podslice.model.unit import DesiredUnit, UnitName, parent_slice
from podslice.plan import Plan, SetProperties, StartUnit, StopUnit
from podslice.policy.admit import EVICTED
from podslice.reconcile.assess import Assessment, Request, assess, find_pending, in_thread
from podslice.reconcile.converge import apply
from podslice.reconcile.manual_changes import take_over
from podslice.reconcile.report import (
    Outcome,
    Report,
    StepResult,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_stuck,
    kind_of,
)
from podslice.store.files import held_for
from podslice.store.store import Store
from podslice.systemd.caching_client import CachingClient, EditedLimits, changed_limits


class Reconciler:
    """Reconciles the node, and remembers the previous round."""

    def __init__(
        self,
        context: AgentContext,
        manifests: ManifestDirectories,
        client: CachingClient,
        terminations: Terminations,
    ) -> None:
        self._context = context
        self._terminations = terminations
        self._client = client
        self._reader = self._make_reader(manifests)
        self._announcer = Announcer(context)
        self._drift = Drift(context)
        self._operator_pods: set[str] = set()
        """The pods that verbs have changed since the last assessment."""
        self._known: tuple[PodDecision, ...] = ()
        self._was_settled = False
        self._stopped: set[UnitName] = set()
        """The units that the agent has stopped since the last assessment began."""
        self._overwritten: dict[UnitName, EditedLimits] = {}
        """The limits of units whose kernel files another program has written to, until they are
        restored."""

    async def reconcile(self) -> bool:
        """Run one round: assess the node, and change what is not as desired; return whether it is.

        Raises:
            SystemdError, HostError, InputError: the node cannot be assessed or changed at all.
        """
        self._context.marks.retry()
        # A round that raises is not settled.
        was_settled, self._was_settled = self._was_settled, False
        self._was_settled = await self._reconcile(was_settled=was_settled)
        self._announcer.finish_round(is_settled=self._was_settled)
        return self._was_settled

    def forget(self, pod: str, slice_: UnitName) -> None:
        """Forget the units of a pod that the agent has stopped: their absence is not drift."""
        assessment = self._context.assessment
        units = assessment.desired.units if assessment else ()
        for name in {slice_, *(unit.name for unit in units if unit.pod == pod)}:
            self._stopped.add(name)
            self._drift.forget(name)
            self._client.forget(name)
        # the slices above have fewer tasks, and may be empty
        tier = parent_slice(slice_)
        for name in (tier, parent_slice(tier)):
            self._client.forget(name)

    def reload(self, manifests: ManifestDirectories) -> None:
        """Take over a new configuration."""
        self._reader = self._make_reader(manifests)
        self._known = ()
        self._drift.forget(None)

    def _make_reader(self, manifests: ManifestDirectories) -> WantedPodsReader:
        return WantedPodsReader(
            self._context.world,
            manifests,
            terminating=self._context.terminating.in_progress,
            unwritten=self._context.marks.unwritten,
        )

    async def _read(self, unrecorded: Iterable[Pod] = ()) -> WantedPods:
        """Compare manifests with records, and report the problems."""
        wanted = await in_thread(self._reader.read, unrecorded)
        self._context.status.set_problems("pods", wanted.problems)
        self._announcer.report_manifests(wanted)
        return wanted

    def _forget_manual_changes(self) -> None:
        """Forget the units that verbs have changed: observe them again, and not as drift."""
        changes, assessment = take_over(self._context.world.store), self._context.assessment
        pods = {pod for change in changes for pod in change.pods}
        self._operator_pods |= pods
        units = {unit for change in changes for unit in change.units}
        if pods and assessment is not None:
            units |= {unit.name for unit in assessment.desired.units if unit.pod in pods}
        for name in units:
            self._drift.forget(name)
            self._client.forget(name)

    async def _reconcile(self, *, was_settled: bool) -> bool:
        # before anything is observed: what verbs have changed is not drift
        self._forget_manual_changes()
        wanted = await self._read()
        if was_settled and self._has_only_new_pods(wanted):
            # apply assesses the node itself, so that doing it before would only take time; and again
            # after its changes, with a list of all units
            self._client.trust_signals()
            with suppress(InputError, ForeignRoot):
                return await self._act(wanted)
        try:
            assessment = await self._assess(wanted)
        except InputError:
            # a pod conflicts with one whose record is lost: only the units show that one
            request = Request(to_remove=wanted.is_unwanted, terminating=self._context.terminating)
            found = await assess(self._context.world, request)
            wanted = await self._read(found.current)
            assessment = await self._assess(wanted)
        self._announcer.report_owner(assessment)
        if assessment.foreign is not None:
            return False
        # in the background, so that the lock is not held for a grace period; records of stopped pods
        # are removed by a later round
        if any(
            isinstance(each, StopUnit) and each.pod is not None for each in assessment.plan.steps
        ):
            wanted, assessment = await self._start_terminations(wanted, assessment)
        under_way = self._context.world.store.manual_changes.load()
        by_operator = self._operator_pods.union(*(change.pods for change in under_way))
        self._operator_pods = set()
        self._announcer.report_marks(assessment, by_operator)
        # before the plan, which compares what systemd has, not what the kernel has
        await self.restore_overwritten(assessment)
        # a record without a change of units is written, too: a manifest may have moved to another file
        are_records_due = self._are_records_due(assessment, wanted)
        if not (assessment.plan or are_records_due):
            self._context.stuck = ()
            self._settle(assessment)
            return self._is_settled(assessment, wanted)
        # two programs that undo each other's changes would otherwise keep both busy for ever
        if self._drift.are_contested(assessment.plan.steps) and not are_records_due:
            return False
        self._observe_again(assessment)
        return await self._act(wanted)

    def _has_only_new_pods(self, wanted: WantedPods) -> bool:
        """Return whether all that is requested is to add pods."""
        assessment = self._context.assessment
        if assessment is None or wanted.is_incomplete or not wanted.candidates:
            return False
        if any(map(wanted.is_unwanted, assessment.current)):
            return False
        known = {name for pod in assessment.current for name in (pod.key, pod.uid)}
        known |= {each.pod for each in assessment.plan.refused}
        return known.isdisjoint(
            name for each in wanted.candidates for name in (each.pod.key, each.pod.uid)
        )

    def _is_settled(self, assessment: Assessment, wanted: WantedPods) -> bool:
        return not assessment.plan and not self._overwritten and not wanted.is_incomplete

    async def _assess(self, wanted: WantedPods) -> Assessment:
        """Assess the node, and share the result with the other parts of the agent."""
        self._stopped.clear()
        assessment = await assess(self._context.world, self._request(wanted))
        self._known = assessment.desired.pods
        self._context.assessment = assessment
        self._context.assessments += 1
        self._context.pending = find_pending(
            assessment,
            wanted.candidates,
            digests=wanted.digests,
            sources=wanted.contents.sources,
            waiting=wanted.waiting,
            evicted=self._context.marks.unwritten.values(),
        )
        unwanted = (pod for pod in assessment.current if wanted.is_unwanted(pod))
        self._terminations.retain_expired(unwanted)
        return assessment

    def _request(self, wanted: WantedPods) -> Request:
        return Request(
            candidates=wanted.candidates,
            to_remove=wanted.is_unwanted,
            known=self._known,
            terminating=self._context.terminating,
        )

    def _observe_again(self, assessment: Assessment) -> None:
        """Have the units that the plan changes observed again, not taken from the cache."""
        for step in assessment.plan.steps:
            self._client.forget(step.name)

    async def _start_terminations(
        self, wanted: WantedPods, assessment: Assessment
    ) -> tuple[WantedPods, Assessment]:
        """Stop pods with a grace period in the background."""
        # The cache may have an old count of processes, and a pod without any needs no grace period.
        self._observe_again(assessment)
        assessment = await self._assess(wanted)
        if self._terminations.start_planned(assessment):
            wanted = await self._read(wanted.unrecorded)
            assessment = await self._assess(wanted)
        return wanted, assessment

    def _are_records_due(self, assessment: Assessment, wanted: WantedPods) -> bool:
        """Return whether records differ from what is wanted."""
        recorded = assessment.recorded_values
        if assessment.held != recorded and recorded.unconfirmed is None:
            return True
        if assessment.broken_records or any(map(wanted.is_unwanted, assessment.current)):
            return True
        refused = {each.pod for each in assessment.plan.refused}
        return any(each.pod.key not in refused for each in wanted.candidates)

    async def _act(self, wanted: WantedPods) -> bool:
        """Apply what is wanted, and assess the result; return whether everything is as desired."""
        context, report = self._context, Report()
        repaired: set[UnitName] = set()
        was_reloaded = False
        async with write_lock(context.world.store):
            # the previous holder of the lock may have changed the records, and units
            self._forget_manual_changes()
            wanted = await in_thread(self._reader.read_again, wanted)
            context.status.set_problems("pods", wanted.problems)
            sources = wanted.contents.sources
            applying = apply(context.world, self._request(wanted), sources=sources)
            async with aclosing(applying):
                async for each in applying:
                    if isinstance(each, Plan):
                        was_reloaded = self._drift.was_reloaded(each.caps)
                        repaired = {step.name for step in each.steps if self._drift.is_repair(step)}
                    elif isinstance(each, StepResult):
                        self._report_step(each, repaired, was_reloaded=was_reloaded)
                    elif isinstance(each, Report):
                        report = each
        self._announcer.report_failures(report)
        context.stuck = report.stuck
        assessment = await self._assess(wanted)
        self._settle(assessment)
        # refused pods are not tried again
        is_done = not report.stuck and all(each.outcome is Outcome.DONE for each in report.results)
        return self._is_settled(assessment, wanted) and is_done

    def _report_step(
        self, result: StepResult, repaired: Collection[UnitName], *, was_reloaded: bool
    ) -> None:
        """Report a step at once: later ones may fail."""
        if result.outcome is not Outcome.DONE:
            return
        step = result.step
        is_repair = step.name in repaired and self._drift.is_repair(step)
        self._announcer.report_step(result, is_repair=is_repair, was_reloaded=was_reloaded)
        if is_repair:
            self._drift.count_repair(step.name)
        if isinstance(step, StartUnit):
            # further steps complete its new control group: limits of huge pages are files
            self._drift.forget(step.name)

    async def restore_overwritten(self, assessment: Assessment) -> None:
        """Have systemd write kernel files again that another program has written to."""
        for name, found in self._client.take_edited().items():
            before = self._overwritten.get(name, EditedLimits(frozenset(), found.intact))
            self._overwritten[name] = EditedLimits(
                before.properties | found.properties, before.intact
            )
        units = {unit.name: unit for unit in assessment.desired.lasting}
        there = units.keys() & assessment.observed.units.keys()
        for name in sorted(self._overwritten):
            if name not in there:
                del self._overwritten[name]
            elif self._drift.is_settled(name) and not self._drift.repairs.is_pausing(name):
                await self._restore(units[name], assessment)

    async def _restore(self, unit: DesiredUnit, assessment: Assessment) -> None:
        """Have systemd write some properties of a unit again; report what had other values.

        Another program may write while systemd does. That is found by the limits before the first
        edit, and restored, too.
        """
        has, caps = assessment.observed.units[unit.name], assessment.observed.caps
        names = managed_of(unit) if unit.owned else unit.values
        while not self._drift.repairs.is_pausing(unit.name):
            edited, intact = self._overwritten[unit.name]
            values = {each: has.properties[each] for each in names if each in edited}
            if not values:
                break  # what administrators set on slices of the host
            async with write_lock(self._context.world.store):
                before = await self._client.settled_limits(has)
                await self._client.set_properties(unit.name, supported(values, caps))
                now = await self._client.settled_limits(has)
            await self._client.observe([unit.name])  # so that the next external write is noticed
            end = self._client.observed_limits(unit.name)
            late = frozenset(
                name
                for name in changed_limits(before, end) | changed_limits(now, end)
                if end[name] != intact.get(name, end[name])
            )
            self._overwritten[unit.name] = EditedLimits(late, intact)
            if not (changed := changed_limits(before, now) - late):
                break  # systemd wrote it itself, moments after it reported the properties
            limits = {name: (before[name], now[name]) for name in sorted(changed)}
            was_reloaded = self._drift.was_reloaded(caps)
            self._announcer.report_rewritten(unit, limits, was_reloaded=was_reloaded)
            self._drift.count_repair(unit.name)
        if not self._overwritten[unit.name].properties.intersection(names):
            del self._overwritten[unit.name]

    def _settle(self, assessment: Assessment) -> None:
        """Remember the present state, and report what is omitted."""
        self._announcer.report_omissions(assessment)
        self._drift.settle(assessment)
        for name in self._stopped:
            self._drift.forget(name)


_POLL_SEC = 0.02
LOCK_TIMEOUT_SEC = 120.0
"""How long another podslice process may hold the lock."""


@asynccontextmanager
async def write_lock(store: Store) -> AsyncIterator[None]:
    """Hold the lock; the event loop continues while another process holds it.

    Raises:
        HostError: another process holds it for too long.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + LOCK_TIMEOUT_SEC
    while (lock := store.try_lock()) is None:
        if now() > deadline:
            raise held_for(LOCK_TIMEOUT_SEC, store.root)
        await asyncio.sleep(_POLL_SEC)
    with lock:
        yield


_Found = Mapping[str, tuple[str, str | None, UnitName | None]]
"""Messages with their pods and units, by what makes each of them different from others."""


class Announcer:
    """Reports events of rounds; each fact once, until it changes."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._events = context.events
        self._reported: dict[str, frozenset[str]] = {}
        self._invalid_files: frozenset[str] = frozenset()
        self._marks: frozenset[Eviction] | None = None
        """The marks of evicted pods in the last round; None before the first."""
        self._is_foreign = False
        self._results: set[str] = set()
        self._previous_results: set[str] = set()

    def report_manifests(self, wanted: WantedPods) -> None:
        """Report problems of manifests, and files that are valid again or removed."""
        contents = wanted.contents
        errors = [each for each in contents.problems if each.severity is Severity.ERROR]
        errors += [each for found in wanted.errors.values() for each in found]
        for topic, kind, problems in (
            ("manifests", Kind.MANIFEST_BROKEN, errors),
            ("services", Kind.AGENT_NOTED, wanted.held),
        ):
            self._report_new(topic, kind, {str(each): (str(each), None, None) for each in problems})
        broken = contents.broken | wanted.errors.keys()
        for path in sorted(self._invalid_files - broken - contents.unread):
            self._events.report(Kind.MANIFEST_VALID, f"{path} is valid again")
        self._invalid_files = broken | contents.unread
        self._context.status.set_problems("manifests", contents.problems)
        self._context.counters.broken_manifests = len(broken)

    def report_owner(self, assessment: Assessment) -> None:
        """Report when the root begins to belong to a kubelet, and when that ends."""
        was_foreign, self._is_foreign = self._is_foreign, assessment.foreign is not None
        if assessment.foreign is not None:
            self._context.status.fail("owner", str(assessment.foreign))
        elif was_foreign:
            self._context.status.set_problems("owner", ())
            root = self._context.world.tree.root
            message = f"{root} no longer belongs to a kubelet; podslice manages it again"
            self._events.report(Kind.AGENT_NOTED, message)

    def report_marks(self, assessment: Assessment, by_operator: Collection[str]) -> None:
        """Count evictions of other programs; report readmitted pods, unless a verb has done so."""
        before, self._marks = self._marks, frozenset(assessment.evicted)
        if before is None:
            return
        # the agent counts its own evictions when it decides on them
        for mark in self._marks - before:
            if mark.signal == SIZE_LIMIT:
                self._context.counters.evictions[SIZE_LIMIT] += 1
        evicted = {mark.pod for mark in self._marks}
        for pod in sorted({mark.pod for mark in before} - evicted - set(by_operator)):
            self._events.report(Kind.POD_READMITTED, f"pod {pod} is readmitted", pod=pod)

    def report_omissions(self, assessment: Assessment) -> None:
        """Report refused pods and skipped steps; evictions are reported already."""
        plan = assessment.plan
        refused = {each.pod: each for each in plan.refused}
        self._context.counters.refused = len(refused)
        reasons: _Found = {
            f"{pod} {each.reason}": (describe_refusal(each), pod, None)
            for pod, each in refused.items()
            if each.reason != EVICTED
        }
        self._report_new("refused", Kind.POD_REFUSED, reasons)
        skipped: _Found = {
            f"{each.unit} {each.name}": (describe_skipped(each), None, each.unit)
            for each in plan.skipped
            if each.blocks
        }
        self._report_new("skipped", Kind.STEP_FAILED, skipped)

    def report_step(self, result: StepResult, *, is_repair: bool, was_reloaded: bool) -> None:
        """Report a step, unless each round repeats it without effect.

        `was_reloaded` states that systemd has read its unit files again before a repair.
        """
        step, text, pod = result.step, describe_result(result), result.step.pod
        if is_repair:
            what = "stopped" if isinstance(step, StartUnit) else "changed"
            cause, fields = _cause_of_drift(was_reloaded=was_reloaded)
            message = f"{what} {cause}, restored: {text}"
            self._events.report(
                Kind.DRIFT_REPAIRED, message, pod=pod, unit=step.name, fields=fields
            )
        elif pod is None and isinstance(step, SetProperties) and not step.unit.owned:
            self._events.report(Kind.AGENT_NOTED, text, unit=step.name)
        elif kind := kind_of(result):
            self._results.add(text)
            if text not in self._previous_results:
                self._events.report(kind, text, pod=pod, unit=step.name)

    def report_rewritten(
        self, unit: DesiredUnit, limits: Mapping[str, tuple[str, str]], *, was_reloaded: bool
    ) -> None:
        """Report that systemd has written a control group again.

        `limits` are the kernel's, before and now, by property; `was_reloaded` as in `report_step`.
        """
        cause, fields = _cause_of_drift(was_reloaded=was_reloaded)
        changes = ", ".join(
            f"{name}={new or 'unset'} (was {old or 'unset'})" for name, (old, new) in limits.items()
        )
        message = (
            f"the control group of {unit.name} was changed {cause}; systemd has written again:"
            f" {changes}"
        )
        self._events.report(
            Kind.DRIFT_REPAIRED, message, pod=unit.pod, unit=unit.name, fields=fields
        )

    def report_failures(self, report: Report) -> None:
        """Report failed steps, and pods that could not be removed."""
        failed: _Found = {
            f"{each.step.name} {each.error}": (describe_result(each), each.step.pod, each.step.name)
            for each in report.results
            if each.outcome is Outcome.FAILED
        }
        self._report_new("failed", Kind.STEP_FAILED, failed)
        assessment = self._context.assessment
        outside = assessment.recorded_values.units if assessment else {}
        for skipped in report.skipped:
            if skipped.unit in outside and not skipped.blocks:
                self._events.note(describe_skipped(skipped))
        stuck: _Found = {each.pod: (describe_stuck(each), each.pod, None) for each in report.stuck}
        self._report_new("stuck", Kind.POD_STUCK, stuck)

    def finish_round(self, *, is_settled: bool) -> None:
        """Finish a round; after a settled one every step is reported again."""
        self._previous_results, self._results = set() if is_settled else self._results, set()

    def _report_new(self, topic: str, kind: Kind, found: _Found) -> None:
        """Report what was not found the last time."""
        before = self._reported.get(topic, frozenset())
        self._reported[topic] = frozenset(found)
        for key in sorted(found.keys() - before):
            message, pod, unit = found[key]
            self._events.report(kind, message, pod=pod, unit=unit)


def _cause_of_drift(*, was_reloaded: bool) -> tuple[str, Mapping[str, str]]:
    """Return the cause of an external change in words, and the fields of its event.

    A daemon-reload applies drop-ins and unit files that were written before, and has systemd write
    all control groups again.
    """
    if was_reloaded:
        return "externally or by a daemon-reload", {"PODSLICE_REASON": "daemon-reload"}
    return "externally", {}
