"""Observe the units, assess them against the records and a request, and plan."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, ParamSpec, TypeVar

from podslice.errors import InputError, Problem
from podslice.kernel.proc import read_process
from podslice.model.desired import Desired, PodDecision, Refusal, ReservedValues
from podslice.model.naming import scope_of_service
from podslice.model.node_state import AgentState, Eviction, Foreign, PendingPod
from podslice.model.pod import InitProgress, Pod, Qos
from podslice.model.properties import ALLOWED_CPUS
from podslice.model.unit import Observed, UnitKind, UnitName
from podslice.plan import Plan
from podslice.plan.make import CLASS_CHANGED, TerminatingPods, make_plan
from podslice.plan.restore import Restoration, keep_stated_cpus, restore_values
from podslice.policy.admit import EVICTED, hold_back, pending_pods
from podslice.policy.desire import desire, without_reserved
from podslice.policy.ownership import recover, uid_of
from podslice.reconcile.observe import meet, observe, used_bytes
from podslice.reconcile.rollback import leave_reserved
from podslice.reconcile.world import World
from podslice.store.store import Records, Store

_NOTHING = ReservedValues()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The applied pods, the desired and the observed units, and the plan between them."""

    current: tuple[Pod, ...]
    """The applied pods, by key."""
    desired: Desired
    observed: Observed
    plan: Plan
    broken_records: tuple[str, ...] = ()
    """Files among the records that are not valid records."""
    orphans: tuple[UnitName, ...] = ()
    """Slices below the root that belong to no pod."""
    progress: Mapping[str, InitProgress] = field(default_factory=dict)
    """The progress of init containers by the uids of their pods, where there is any."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The manifest files of applied pods by their uids, where an agent read them."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digests of manifests by the uids of the applied pods that have records."""
    evicted: tuple[Eviction, ...] = ()
    """The marks of evicted pods."""
    recorded_values: ReservedValues = _NOTHING
    """The values that podslice set outside the root, as recorded."""
    held: ReservedValues = _NOTHING
    """The same without values that were changed externally since."""
    foreign: Foreign | None = None
    """Why nothing may be changed; None where podslice owns the root."""
    agent: AgentState | None = None
    """The state that a running agent published."""


class OngoingTerminations(NamedTuple):
    """The uids of pods that another task of this process stops; the collections may change."""

    in_progress: Collection[str] = ()
    """Pods within their grace period: they and their units are left alone."""
    expired: Collection[str] = ()
    """Pods whose grace period is over: their remaining processes are killed."""


_NONE = OngoingTerminations()


class Request(NamedTuple):
    """The pods to apply, the pods to remove, and how; by default nothing changes."""

    candidates: tuple[PodDecision, ...] = ()
    """The pods to apply."""
    to_remove: Callable[[Pod], bool] = lambda _: False
    """Whether an applied pod is to be removed."""
    prune: bool = False
    """Remove the applied pods that are not candidates, too."""
    grace_sec: int | None = None
    """The grace period of removed pods; None: as each pod states."""
    force: bool = False
    """Limit slices to less memory than they use."""
    by_operator: bool = False
    """Requested by a person. Otherwise reserved slices keep unconfirmed values."""
    starts_containers: bool = False
    """The containers are started afterwards, init containers, too."""
    releases_reserved: bool = False
    """Return the former values of reserved slices once no pods remain."""
    expects_unused: bool = False
    """Expect the former values of reserved slices where podslice has applied nothing."""
    known: tuple[PodDecision, ...] = ()
    """Decisions of an earlier assessment of the same world, to save time."""
    terminating: OngoingTerminations = _NONE


_NO_CHANGE = Request()


class Findings(NamedTuple):
    """Everything that an assessment reads; several requests may be assessed with it."""

    observed: Observed
    used_bytes: Mapping[UnitName, int]
    records: Records
    reserved: ReservedValues
    """The recorded values outside the root."""
    damaged: tuple[str, ...]
    foreign: Foreign | None
    agent: AgentState | None


class _Selection(NamedTuple):
    """The pods of a request that are admitted, refused or removed."""

    candidates: tuple[PodDecision, ...]
    refused: tuple[Refusal, ...]
    removed: tuple[Pod, ...]
    is_released: bool
    """Whether the former values of reserved slices return."""


class _Planned(NamedTuple):
    """A plan, and what it was made from."""

    returning: Restoration
    observed: Observed
    plan: Plan


async def assess(world: World, request: Request = _NO_CHANGE) -> Assessment:
    """Observe the units, select the pods, and plan.

    Raises:
        InputError: a candidate has the name or the uid of another applied pod.
        HostError: the records can't be read.
    """
    return await assess_findings(world, request, await read_findings(world))


async def assess_findings(world: World, request: Request, findings: Findings) -> Assessment:
    """Select the pods, and plan.

    Raises:
        InputError: as `assess`.
    """
    selection = _select(world, request, findings)
    planned = await _plan(world, request, findings, selection)
    desired, observed = planned.returning.desired, planned.observed
    return Assessment(
        current=findings.records.pods,
        desired=desired,
        observed=observed,
        plan=planned.plan,
        broken_records=(*findings.records.broken, *findings.damaged),
        recorded_values=findings.reserved,
        held=planned.returning.held,
        # a kubelet owns everything below its root
        orphans=() if findings.foreign else tuple(_orphans(world, desired, observed)),
        progress=findings.records.progress,
        sources=findings.records.sources,
        digests=findings.records.digests,
        evicted=findings.records.evicted,
        agent=findings.agent,
        foreign=findings.foreign,
    )


async def read_findings(world: World) -> Findings:
    """Observe the units, and read the records.

    Raises:
        HostError: the records can't be read.
    """
    values = world.store.reserved()
    reserved = ReservedValues() if values is None else values
    observed = await observe(world, reserved.units)
    records = _with_recovered(world, observed, await in_thread(world.store.load))
    # Only recorded pods are evidence: a recovered one was itself derived from the slice in
    # question.
    recorded = [pod for pod in records.pods if pod.uid in records.digests]
    foreign = await world.guard.judge(world.tree, observed.units.values(), recorded, world.manager)
    return Findings(
        observed=observed,
        used_bytes=used_bytes(world, observed),
        records=records,
        reserved=reserved,
        damaged=tuple(_damaged(world, values)),
        foreign=foreign,
        agent=living_agent(world.store),
    )


def _select(world: World, request: Request, findings: Findings) -> _Selection:
    records, current = findings.records, findings.records.pods
    wanted = {candidate.pod.key for candidate in request.candidates}
    removed = tuple(
        pod
        for pod in current
        if pod.uid not in request.terminating.in_progress
        and (
            request.to_remove(pod)
            or is_evicted(pod, records)
            or (request.prune and pod.key not in wanted)
        )
    )
    is_empty = len(removed) == len(current)
    is_unused = not (findings.reserved or request.candidates or findings.agent)
    candidates, refused = split_admissible(world, request.candidates, records, findings.agent)
    pods = [candidate.pod for candidate in candidates]
    _refuse_uid_changes(pods, current, removed, world.manager.flag)
    return _Selection(
        candidates=candidates,
        refused=refused,
        removed=removed,
        is_released=is_empty
        and (request.releases_reserved or (request.expects_unused and is_unused)),
    )


async def _plan(
    world: World, request: Request, findings: Findings, selection: _Selection
) -> _Planned:
    planned = await _plan_for(world, request, findings, selection)
    plan = planned.plan
    stuck = {refusal.pod: refusal for refusal in plan.refused if refusal.reason == CLASS_CHANGED}
    # Whether a pod can leave its slice depends on its processes, which only the plan considers; so
    # the desired state is computed a second time without these candidates.
    if any(candidate.pod.key in stuck for candidate in request.candidates):
        # they keep their class, which the sums of the tiers must reflect
        rest = tuple(each for each in selection.candidates if each.pod.key not in stuck)
        planned = await _plan_for(world, request, findings, selection._replace(candidates=rest))
        plan = planned.plan
        plan = replace(plan, refused=(*plan.refused, *(stuck[key] for key in sorted(stuck))))
    plan = replace(plan, refused=(*plan.refused, *selection.refused))
    in_progress = request.terminating.in_progress
    if in_progress:
        # Pods within their grace period count until they are gone, and another task stops them.
        keys = {pod.key for pod in findings.records.pods if pod.uid in in_progress}
        units = planned.returning.desired.units
        plan = plan.without({unit.name for unit in units if unit.pod in keys})
    if not request.by_operator and findings.reserved.unconfirmed is not None:
        plan = leave_reserved(plan)
    return planned._replace(plan=plan)


async def _plan_for(
    world: World, request: Request, findings: Findings, selection: _Selection
) -> _Planned:
    policy = await in_thread(
        desire,
        selection.candidates,
        world.node,
        without_reserved(world.config) if selection.is_released else world.config,
        current=findings.records.pods,
        terminating=selection.removed,
        used_bytes=findings.used_bytes,
        progress=findings.records.progress,
        known=request.known,
        stage=world.cpu_stage,
        cpus=list_cpus(findings.observed),
        mounts=not world.manager.is_user,
    )
    desired, observed = meet(world, policy, findings.observed, selection.removed)
    # A grace period of 0 kills what is left of them with the next steps.
    expired = request.terminating.expired
    slices = {
        world.tree.pod(pod.uid, qos): replace(pod, grace_period_sec=0)
        if pod.uid in expired
        else pod
        for pod in selection.removed
        for qos in Qos
    }
    terminating = TerminatingPods(pods=slices, grace_sec=request.grace_sec)
    desired, kept = keep_stated_cpus(desired, observed, findings.reserved)
    returning = restore_values(desired, observed, findings.reserved)
    plan = await in_thread(
        make_plan, returning.desired, observed, force=request.force, terminating=terminating
    )
    skipped = (*plan.skipped, *kept, *returning.skipped)
    return _Planned(returning=returning, observed=observed, plan=replace(plan, skipped=skipped))


def list_cpus(observed: Observed) -> dict[UnitName, str]:
    """Return the lists of CPUs that units have; a container that is a service counts as its scope."""
    values = ((name, unit.properties.get(ALLOWED_CPUS)) for name, unit in observed.units.items())
    return {scope_of_service(name): str(text) for name, text in values if text}


def _damaged(world: World, values: ReservedValues | None) -> Iterable[str]:
    """Yield the record of values outside the root where it is damaged, and note that."""
    if values is None:
        path = str(world.store.reserved_path)
        world.on_note(
            f"{path} is damaged: the values that podslice has set outside {world.tree.root} are not"
            " known; to restore a slice: systemctl revert SLICE; the next apply removes the file"
        )
        yield path


def _with_recovered(world: World, observed: Observed, records: Records) -> Records:
    """Add the pods whose records are lost, as recovered from their slices."""
    for path in records.broken:
        world.on_note(f"{path} is not a valid record of a pod; the next apply removes it")
    # where a record and a slice belong to two pods of one name, the record is right
    known = {pod.uid for pod in records.pods} | {pod.key for pod in records.pods}
    mounts = [unit for unit in observed.units.values() if unit.name.endswith(f".{UnitKind.MOUNT}")]
    recovered = []
    for unit in observed.units.values():
        uid = uid_of(unit.name)
        if uid is None or uid in known:
            continue
        pod = recover(unit, world.config, mounts)
        if pod is not None and pod.key not in known:
            world.on_note(
                f"pod {pod.key} has no record; it is recovered from the properties of {unit.name},"
                " without its containers"
            )
            known |= {pod.uid, pod.key}
            recovered.append(pod)
    if not recovered:
        return records
    return replace(
        records, pods=tuple(sorted(chain(records.pods, recovered), key=lambda pod: pod.key))
    )


def _refuse_uid_changes(
    candidates: Iterable[Pod], current: Collection[Pod], removed: Collection[Pod], flag: str
) -> None:
    """Refuse a pod whose name or uid another applied pod has.

    Another uid means another pod. Two pods with one uid would share a slice.

    Raises:
        InputError: the other pod must be deleted first.
    """
    uids = {pod.key: pod.uid for pod in current}
    staying = {pod.uid: pod for pod in current if pod not in removed}
    problems = [
        Problem(
            where=pod.where,
            message=f"pod {pod.key} is applied with uid {uids[pod.key]}, not {pod.uid}",
            hint=f"delete it first: podslice delete{flag} -n {pod.namespace} {pod.name}",
        )
        for pod in candidates
        if uids.get(pod.key, pod.uid) != pod.uid
    ]
    problems += [
        Problem(
            where=pod.where,
            message=f"uid {pod.uid} belongs to pod {other.key}, which is applied",
            hint=f"delete it first: podslice delete{flag} -n {other.namespace} {other.name}",
        )
        for pod in candidates
        if (other := staying.get(pod.uid, pod)).key != pod.key
    ]
    if problems:
        raise InputError(problems)


def _orphans(world: World, desired: Desired, observed: Observed) -> Iterable[UnitName]:
    """Return the slices below the root that are neither desired nor about to be stopped."""
    tree = world.tree
    known = {unit.name for unit in desired.units} | desired.unwanted.keys()
    known |= {tree.root, *(tree.tier(qos) for qos in Qos)}
    return sorted(
        name
        for name, unit in observed.units.items()
        if name not in known
        and name.endswith(f".{UnitKind.SLICE}")
        and name.startswith(tree.root.removesuffix(".slice"))
    )


def living_agent(store: Store) -> AgentState | None:
    """Return the state that the agent published; None where that agent no longer runs."""
    state = store.agent.read()
    process = None if state is None else read_process(state.pid)
    # The kernel reuses process ids; only together with the start time is one unique.
    if state is None or process is None or process.started_ticks != state.started_ticks:
        return None
    return state


def readmit(store: Store, keys: Collection[str] | None) -> tuple[Eviction, ...]:
    """Remove the marks of evicted pods, of all with None; return the removed marks.

    Raises:
        HostError: the marks can't be read or removed.
    """
    evicted = store.load().evicted
    dropped = tuple(mark for mark in evicted if keys is None or mark.pod in keys)
    for mark in dropped:
        store.unmark(mark.uid)
    return dropped


def is_evicted(pod: Pod, records: Records) -> bool:
    """Return whether an applied pod is to be removed because its present manifest was evicted."""
    return bool(records.evicted) and any(
        # A recovered pod has no digest: it counts as the manifest that was evicted.
        mark.uid == pod.uid and mark.digest == records.digests.get(pod.uid, mark.digest)
        for mark in records.evicted
    )


def split_admissible(
    world: World, candidates: Iterable[PodDecision], records: Records, agent: AgentState | None
) -> tuple[tuple[PodDecision, ...], tuple[Refusal, ...]]:
    """Return the candidates that may be admitted, and the refusals of the others."""
    marks = {mark.uid: mark for mark in records.evicted}
    free, refused = [], []
    for candidate in candidates:
        pod = candidate.pod
        mark = marks.get(pod.uid)
        if mark is None or mark.digest != world.store.digest(pod):
            free.append(candidate)
            continue
        message = (
            f"{mark.message}; it is not admitted until its manifest changes; to readmit it:"
            f" podslice readmit {pod.key}"
        )
        refused.append(Refusal(pod=pod.key, reason=EVICTED, message=message))
    # Only a running agent observes the conditions of the node.
    if agent is None or not world.config.admission:
        return tuple(free), tuple(refused)
    there = {pod.key for pod in records.pods}
    allowed, waiting = hold_back(free, there, agent.conditions)
    return allowed, (*refused, *waiting)


def find_pending(  # noqa: PLR0913 - each is another part of what is wanted
    assessment: Assessment,
    candidates: Iterable[PodDecision],
    *,
    digests: Mapping[str, str],
    sources: Mapping[str, str],
    waiting: Iterable[Refusal] = (),
    evicted: Iterable[Eviction] = (),
    started: Collection[str] = (),
) -> tuple[PendingPod, ...]:
    """Return the pods that do not run as wanted.

    Args:
        assessment: one of a request with these candidates, or made after that.
        candidates: the new and changed pods of manifests.
        digests: the digests of their manifests, by uid.
        sources: their files, by uid.
        waiting: pods that have to wait for others, and are not candidates.
        evicted: marks that are not recorded.
        started: the pods whose containers `apply --start` runs, by key.
    """
    refused = (*assessment.plan.refused, *waiting)
    keys = {each.pod for each in refused}
    changed = tuple(
        each
        for each in candidates
        if each.pod.key in keys or assessment.digests.get(each.pod.uid) != digests[each.pod.uid]
    )
    return pending_pods(
        candidates=changed,
        applied=assessment.current,
        refused=refused,
        evicted=(*assessment.evicted, *evicted),
        sources=sources,
        started=started,
        flag=assessment.observed.caps.manager.flag,
    )


P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread; return its result.

    Cyclic garbage collection is disabled meanwhile: it would stop all threads while it traverses
    what the function has created, and the data has no cycles. A cancellation does not end the
    thread, which asyncio waits for when its loop is closed.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    finally:
        if collects:
            gc.enable()
