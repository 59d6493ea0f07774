"""The health of the node and its pods, from what a verb has observed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from podslice.cli.enabled_units import is_enabled
from podslice.cli.quadlet_presence import may_have_quadlets
from podslice.cli.views import status_lines
from podslice.errors import printable
from podslice.model.config import Containers
from podslice.model.naming import podman_service
from podslice.model.reserved_values import TrialState
from podslice.model.unit import UnitName
from podslice.plan import StopUnit
from podslice.policy.allocatable import validate_node
from podslice.processes.pod_services import observe_placed
from podslice.processes.service_adoption import outdated_services
from podslice.reconcile.report import describe_step, describe_unconfirmed
from podslice.store.adopted_services import drop_in_path, read_adopted
from podslice.store.container_failures import ContainerFailures
from podslice.systemd.journal_access import reading_command
from podslice.usage.failing_containers import FailingContainer
from podslice.usage.health import (
    HealthFacts,
    HealthKind,
    HealthProblem,
    OutdatedDropIn,
    PlannedChange,
    RestartingPod,
    StoppedAgent,
    problems_of,
)
from podslice.usage.unit_status import ACTIVATING, FAILED

if TYPE_CHECKING:
    from podslice.cli.wanted import WantedByManifests
    from podslice.model.manager import Manager
    from podslice.model.node_state import ContainerFailure
    from podslice.model.reserved_values import PendingTrial
    from podslice.plan import Plan
    from podslice.processes.location import Placement, Stray
    from podslice.processes.runtimes import RuntimeContainer
    from podslice.reconcile.assessment import Assessment
    from podslice.reconcile.world import LiveWorld
    from podslice.usage.unit_status import UnitStatus

_AGENT, _APPLY = UnitName("podslice-agent.service"), UnitName("podslice-apply.service")


async def find_problems(
    world: LiveWorld,
    state: Assessment,
    wanted: WantedByManifests,
    units: tuple[UnitStatus, ...],
    placement: Placement,
    trial: PendingTrial | None,
) -> tuple[HealthProblem, ...]:
    """Return everything that is not as it should be."""
    of_node = validate_node(world.node, world.config)
    has_ended = trial is not None and trial.state is not TrialState.ARMED
    return problems_of(
        HealthFacts(
            configuration=(*world.origin.problems, *of_node),
            foreign=state.foreign,
            agent=state.agent,
            stopped_agent=await _find_stopped_agent(world, state, wanted.directories),
            containers=await _find_container_failures(world, state),
            restarting=await _find_restarting_pods(world, state),
            failing=(
                *await _find_services(world, state, units),
                *_find_ended(state, placement.ended),
            ),
            flag=world.manager.flag,
            sources=wanted.sources,
            started=wanted.started,
            drop_ins=tuple(_find_outdated_drop_ins(world, state)),
            manifests=tuple(each for each in wanted.problems if each not in of_node),
            pending=wanted.pending,
            unwanted=wanted.unwanted,
            unrecorded=tuple(p.key for p in state.current if p.uid not in state.digests),
            lacking_cpus=state.desired.lacking_cpus,
            units=units,
            changes=tuple(_changes(state.plan)),
            strays=tuple(map(_stray, placement.strays)),
            orphans=state.orphans,
            damaged_records=state.broken_records,
            not_enforced=tuple((each.unit, each.why) for each in state.plan.skipped if each.blocks),
            unconfirmed=describe_unconfirmed(trial) if trial is not None and has_ended else None,
        )
    )


def _changes(plan: Plan) -> Iterator[PlannedChange]:
    for step in plan.steps:
        pod = step.pod if isinstance(step, StopUnit) else step.unit.pod
        yield PlannedChange(unit=step.name, pod=pod, text=describe_step(step))


def _stray(stray: Stray) -> HealthProblem:
    return HealthProblem(
        kind=HealthKind.STRAY,
        object=stray.pod or stray.what,
        message=status_lines.describe_stray(stray),
        hint=stray.hint,
        pod=stray.pod,
    )


async def _find_stopped_agent(
    world: LiveWorld, state: Assessment, directories: tuple[str, ...]
) -> StoppedAgent | None:
    """Return the agent if it should run and does not.

    The directories may also be applied at boot only: then `podslice-apply.service` is active, and
    the agent is not enabled.
    """
    if state.agent is not None:
        return None
    listed = {unit.name: unit for unit in await world.client.list_units((_AGENT, _APPLY))}
    agent, apply = (listed.get(name) for name in (_AGENT, _APPLY))
    if agent is not None and agent.active_state == "failed":
        return StoppedAgent(
            directories=directories,
            has_failed=True,
            hint=f"{_see_journal(world.manager)}; {_start(world.manager)}",
        )
    is_applied = apply is not None and apply.active_state == "active"
    if not directories or (is_applied and not is_enabled(_AGENT, world.manager)):
        return None
    return StoppedAgent(directories=directories, hint=_start(world.manager))


async def _find_container_failures(
    world: LiveWorld, state: Assessment
) -> tuple[ContainerFailure, ...]:
    """Return why containers do not run that an agent keeps; what has started since is left out."""
    if state.agent is None or world.config.containers is not Containers.QUADLET:
        return ()
    failures = ContainerFailures(world.store.root).load()
    listed = await world.client.list_units([each.unit for each in failures if each.unit])
    active = {each.name for each in listed if each.active_state == "active"}
    return tuple(each for each in failures if each.unit not in active)


async def _find_restarting_pods(world: LiveWorld, state: Assessment) -> tuple[RestartingPod, ...]:
    """Return the pods of quadlets whose services systemd is about to start again."""
    if not may_have_quadlets(world.manager):
        return ()
    services = {podman_service(pod.key): pod.key for pod in state.current}
    return tuple(
        RestartingPod(
            pod=services[each.name],
            restarts=each.restarts,
            hint=f"to see why: {reading_command(each.name, world.manager)}",
        )
        for each in await world.client.observe(sorted(services))
        if each.active_state == ACTIVATING
    )


async def _find_services(
    world: LiveWorld, state: Assessment, units: Iterable[UnitStatus]
) -> tuple[FailingContainer, ...]:
    """Return the services in slices of pods that have failed, or that systemd starts again.

    Those of containers are among the units, and the services of podman's pods restart as pods do.
    """
    pods = state.desired.pods
    if not pods:
        return ()

    known = state.observed.units.keys() | {podman_service(pod.pod.key) for pod in pods}
    known |= {unit.name for unit in units}
    names = [
        each.name
        for each in await world.client.list_units(("*.service",))
        if each.active_state in {FAILED, ACTIVATING} and each.name not in known
    ]
    return tuple(
        FailingContainer(
            pod=each.pod,
            name=printable(each.container),
            is_restarting=each.unit.active_state == ACTIVATING,
            restarts=each.unit.restarts,
            last_exit=each.unit.main_exit,
            show=reading_command(each.unit.name, world.manager),
            start=f"systemctl{world.manager.flag} restart {each.unit.name}",
        )
        for each in await observe_placed(world.client, pods, names)
    )


def _find_ended(state: Assessment, ended: Iterable[RuntimeContainer]) -> Iterator[FailingContainer]:
    """Yield the containers of podman and docker in pods that have crashed."""
    keys = {pod.pod.uid: pod.pod.key for pod in state.desired.pods}
    for each in ended:
        pod = each.pod_key or keys.get(each.pod_uid or "")
        last = each.last_exit
        if last is None or not last.is_failure or pod not in keys.values():
            continue
        yield FailingContainer(
            pod=str(pod),
            name=each.container or each.name,
            restarts=each.restarts,
            last_exit=last,
            show=f"{each.runtime} logs {each.name}",
            start=f"{each.runtime} start {each.name}",
        )


def _find_outdated_drop_ins(world: LiveWorld, state: Assessment) -> Iterator[OutdatedDropIn]:
    """Yield the drop-ins that an apply would write again."""
    adopted = read_adopted(world.manager)
    if not adopted:
        return

    for each in outdated_services(adopted, state.desired.pods, world.manager):
        path = str(drop_in_path(each.unit, world.manager))
        yield OutdatedDropIn(pod=each.pod, unit=each.unit, path=path)


def _see_journal(manager: Manager) -> str:
    return f"to see why: {reading_command(_AGENT, manager)}"


def _start(manager: Manager) -> str:
    return f"to start it: systemctl{manager.flag} start podslice-agent"
