"""The meeting point: load, observe, desire, plan, act, report. Every verb is a path through here.

The dry run is the plan: `plan` and `apply` differ in what is done with it, never in how it is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from podslice.act import OnResult, act
from podslice.cgroupfs import CgroupFs
from podslice.errors import HostError, InputError, Problem
from podslice.host import process_named
from podslice.model.config import Config
from podslice.model.desired import Desired, PodDecision
from podslice.model.node import Node
from podslice.model.pod import Pod, Qos
from podslice.model.resources import MEMORY
from podslice.model.unit import Caps, Observed, ObservedUnit, UnitKind, UnitName
from podslice.plan import CLASS_CHANGED, Plan, StopUnit, make_plan
from podslice.policy.desire import desire
from podslice.policy.recover import recover
from podslice.policy.tree import TIERS, Tree, slice_of_cgroup
from podslice.report import Outcome, Report, StepResult
from podslice.store import Store
from podslice.systemd.client import Client

NO_SYSTEMD = Observed(caps=Caps(systemd_version=999))
"""What a host without a service manager shows: nothing, and nothing in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where a verb works: the node, its configuration, and the edges."""

    node: Node
    config: Config
    store: Store
    client: Client | None
    """None where there is no service manager; then only the plan can be made."""
    user: bool = False
    """Whether the client is a user's service manager."""
    cgroups: CgroupFs = field(default_factory=CgroupFs)
    on_note: Callable[[str], None] = lambda _: None
    """Told what the operator should know, in a sentence."""

    @property
    def tree(self) -> Tree:
        """The names below the configured root."""
        return Tree(cgroup_root=self.config.cgroup_root)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One look at everything: what was applied, what should be, what is, and the difference."""

    current: tuple[Pod, ...]
    desired: Desired
    observed: Observed
    plan: Plan
    broken_records: tuple[str, ...] = ()
    """Files in the place of records that hold none."""
    orphans: tuple[UnitName, ...] = ()
    """Slices below the root that no pod accounts for."""


async def look(
    world: World,
    candidates: Iterable[PodDecision] = (),
    *,
    prune: bool = False,
    force: bool = False,
    gone: Callable[[Pod], bool] = lambda _: False,
) -> State:
    """Observe, and plan for the candidates to join the pods that were applied.

    With `prune` the applied pods that are no candidates are to go, as are those that `gone` names;
    with `force` reserved slices may be limited to less than they use.
    """
    candidates = tuple(candidates)
    observed = await _observe(world)
    current, broken = _current(world, observed)
    wanted = {candidate.pod.key for candidate in candidates}
    leaving = tuple(pod for pod in current if gone(pod) or (prune and pod.key not in wanted))
    _refuse_uid_changes([candidate.pod for candidate in candidates], current, leaving)
    used_bytes = _used(world, observed)

    def plan_for(candidates: Iterable[PodDecision]) -> tuple[Desired, Plan]:
        desired = desire(
            candidates,
            world.node,
            world.config,
            current=current,
            gone=leaving,
            used_bytes=used_bytes,
        )
        return desired, make_plan(desired, observed, force=force)

    desired, plan = plan_for(candidates)
    stuck = {refusal.pod: refusal for refusal in plan.refused if refusal.reason == CLASS_CHANGED}
    if not wanted.isdisjoint(stuck):
        # they stay what they were, and the tiers' sums have to say so
        desired, plan = plan_for(each for each in candidates if each.pod.key not in stuck)
        plan = replace(plan, refused=(*plan.refused, *(stuck[key] for key in sorted(stuck))))
    return State(
        current=current,
        desired=desired,
        observed=observed,
        plan=plan,
        broken_records=broken,
        orphans=tuple(_orphans(world, desired, observed)),
    )


async def apply(
    world: World,
    candidates: Iterable[PodDecision],
    *,
    prune: bool = False,
    force: bool = False,
    on_plan: Callable[[Plan], None] = lambda _: None,
    on_result: OnResult = lambda _: None,
) -> Report:
    """Make it so. The lock is the caller's.

    Raises:
        HostError: a kubelet is in charge of the root, or /run can't be written.
    """
    candidates = tuple(candidates)
    return await _converge(
        world,
        lambda: look(world, candidates, prune=prune, force=force),
        on_plan=on_plan,
        on_result=on_result,
    )


async def delete(
    world: World,
    gone: Callable[[Pod], bool],
    *,
    on_plan: Callable[[Plan], None] = lambda _: None,
    on_result: OnResult = lambda _: None,
) -> Report:
    """Stop the pods that `gone` names and remove them; the tiers relax. The lock is the caller's.

    Raises:
        HostError: as `apply`.
    """
    return await _converge(
        world, lambda: look(world, gone=gone), on_plan=on_plan, on_result=on_result
    )


async def _converge(
    world: World,
    look_again: Callable[[], Awaitable[State]],
    *,
    on_plan: Callable[[Plan], None],
    on_result: OnResult,
) -> Report:
    _refuse_kubelet(world)
    state = await look_again()
    on_plan(state.plan)
    client = _need(world)
    # written before the slices are made: a crash then leaves a pod that is known and not yet there,
    # never a slice that nobody knows
    _record(world, state)
    results = await act(state.plan, client, on_result)
    _forget(world, state, results)
    report = Report(results=tuple(results), skipped=state.plan.skipped, refused=state.plan.refused)
    if not results or report.count(Outcome.DONE) < len(results):
        return report
    remaining = (await look_again()).plan
    return replace(report, remaining=remaining)


async def _observe(world: World) -> Observed:
    if world.client is None:
        return NO_SYSTEMD
    reserved = (world.config.kube_reserved_cgroup, world.config.system_reserved_cgroup)
    names = (slice_of_cgroup(cgroup) for cgroup in reserved if cgroup)
    units = await world.client.observe((*world.tree.patterns, *names))
    return Observed(caps=await world.client.caps(), units={unit.name: unit for unit in units})


def _current(world: World, observed: Observed) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """The pods that were applied, from their records and, where those are lost, their slices."""
    recorded, broken = world.store.load()
    for path in broken:
        world.on_note(f"{path} is no record of a pod; the next apply removes it")
    # where a record and a slice tell of two pods of one name, the record is right
    known = {pod.uid for pod in recorded} | {pod.key for pod in recorded}
    rebuilt = []
    for unit in observed.units.values():
        pod = recover(unit, world.config)
        if pod is not None and not known & {pod.uid, pod.key}:
            world.on_note(
                f"pod {pod.key} has no record; it is rebuilt from the settings of {unit.name},"
                " without its containers"
            )
            known |= {pod.uid, pod.key}
            rebuilt.append(pod)
    return tuple(sorted(chain(recorded, rebuilt), key=lambda pod: pod.key)), broken


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


def _used(world: World, observed: Observed) -> Mapping[UnitName, int]:
    """Unreclaimable memory of the tiers, where memory is reserved and a limit could harm."""
    if MEMORY not in world.config.qos_reserved:
        return {}
    used = {}
    for qos in TIERS:
        unit = observed.units.get(world.tree.tier(qos))
        number = world.cgroups.unreclaimable_bytes(unit.control_group) if unit else None
        if unit and number is not None:
            used[unit.name] = number
    return used


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
        and _is_there(unit)
        and name.startswith(tree.root.removesuffix(".slice"))
    )


def _is_there(unit: ObservedUnit) -> bool:
    return unit.active_state != "inactive"


def _refuse_kubelet(world: World) -> None:
    """Two masters on one tree would undo each other's work for ever.

    Raises:
        HostError: a kubelet runs, and the root is where it keeps its pods.
    """
    if world.config.cgroup_root != "/" or world.user:
        return
    pid = process_named("kubelet")
    if pid is not None:
        raise HostError(
            f"a kubelet (pid {pid}) owns {world.tree.root} on this host; put podslice's pods"
            " elsewhere: --cgroup-root /podslice"
        )


def _need(world: World) -> Client:
    if world.client is None:
        raise HostError("there is no service manager to apply to")
    return world.client


def _record(world: World, state: State) -> None:
    for path in state.broken_records:
        world.store.discard(path)
    staying = {refusal.pod for refusal in state.plan.refused}
    for decision in state.desired.pods:
        if decision.pod.key not in staying:
            world.store.save(decision.pod)


def _forget(world: World, state: State, results: Iterable[StepResult]) -> None:
    """Remove the records of pods whose slices are gone."""
    left = {
        result.step.name
        for result in results
        if isinstance(result.step, StopUnit) and result.outcome is not Outcome.DONE
    }
    present = {pod.pod.uid for pod in state.desired.pods}
    for pod in state.current:
        slices = {world.tree.pod(pod.uid, qos) for qos in Qos}
        if pod.uid not in present and not slices & left:
            world.store.remove(pod.uid)
    world.store.tidy()
