"""Starting containers: the scope of a process that is there, or a service; and the init phase."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from podslice.errors import HostError, InputError, JobFailed, Problem, UnitExists
from podslice.kernel.proc import PidFd, parse_control_group
from podslice.kernel.text import read_text
from podslice.model.config import Rules
from podslice.model.desired import PodDecision
from podslice.model.pod import ContainerKind, InitProgress
from podslice.model.unit import Command as ServiceCommand
from podslice.model.unit import TransientUnit, Value
from podslice.policy.init_phase import finish
from podslice.processes.launch import Command
from podslice.processes.target import Place, container_properties, find_place, find_pod, scope_of
from podslice.reconcile.assess import assess
from podslice.reconcile.converge import settle
from podslice.reconcile.guard import refuse
from podslice.reconcile.occupants import describe_processes
from podslice.reconcile.report import Outcome, Report, describe_result
from podslice.reconcile.world import LiveWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The phase of a pod, and how far its init containers have come."""

    pod: PodDecision
    progress: InitProgress
    initializing: bool

    @property
    def init_containers(self) -> tuple[tuple[str, bool], ...]:
        """Their names in their order, and whether each has ended with 0."""
        containers = self.pod.pod.of_kind(ContainerKind.INIT)
        return tuple((each.name, each.name in self.progress.done) for each in containers)


async def start_scope(
    world: LiveWorld,
    key: str,
    container: str | None,
    process: Callable[[Place], int],
    *,
    has_terminal: bool = False,
) -> Place:
    """Start the scope of a container with one process. The lock is the caller's.

    Args:
        world: where.
        key: `namespace/name` of the pod.
        container: its name; None for the only one.
        process: gives the process, once all is known to be well.
        has_terminal: whether the processes have to be told, when they are to end, as they would
            be by a terminal that goes away.

    Raises:
        HostError: the pod, its slice or its phase do not allow it, or the container is running.
        InputError: there is no such container.
    """
    place = await _free_place(world, key, container)
    more: dict[str, Value] = {"SendSIGHUP": True} if has_terminal else {}
    # an id means somebody else where we are in another name space than systemd
    with closing(PidFd(process(place))) as handle:
        pids: dict[str, Value] = (
            {"PIDFDs": (handle.fd,)} if place.observed.caps.pidfds else {"PIDs": (handle.pid,)}
        )
        try:
            await world.client.start(scope_of(place, {**pids, **more}))
        except UnitExists as error:
            raise _taken(place, place.container.scope) from error
    await _limit_hugepages(world, place)
    return place


async def start_service(
    world: LiveWorld,
    key: str,
    container: str | None,
    command: Command,
    directory: str,
    on_end: Callable[[Place], tuple[str, ...]],
) -> Place:
    """Start a container as a service of systemd. The lock is the caller's.

    Args:
        world: where.
        key: `namespace/name` of the pod.
        container: its name; None for the only one.
        command: what to run, with an absolute file; its environment and where the pod's volumes
            are is added to what systemd gives to every service.
        directory: where it starts.
        on_end: what an init container's service runs after the command has ended.

    Raises:
        HostError, InputError: as `start_scope`.
        JobFailed: systemd could not start the command.
    """
    place = await _free_place(world, key, container)
    environment = {**volume_variables(world, place.pod), **command.environment}
    properties: dict[str, Value] = {
        **container_properties(place),
        "Type": "exec",
        "ExecStart": (_service_command(command.file, command.arguments),),
        "Environment": tuple(f"{name}={value}" for name, value in environment.items()),
        "WorkingDirectory": directory,
        "OOMScoreAdjust": place.container.oom_score_adj,
    }
    if place.container.kind is ContainerKind.INIT:
        after = on_end(place)
        properties["ExecStopPost"] = (_service_command(after[0], after),)
    try:
        await world.client.start(TransientUnit(name=place.service, properties=properties))
    except UnitExists as error:
        raise _taken(place, place.service) from error
    except JobFailed as error:
        journal = f"journalctl{world.manager.flag}"
        raise JobFailed(
            f"{command.file} could not be started in {place.service}; see: {journal} -u"
            f" {place.service}",
            result=error.result,
        ) from error
    await _limit_hugepages(world, place)
    return place


def volume_variables(world: LiveWorld, pod: PodDecision) -> dict[str, str]:
    """Where the pod's volumes in memory are: `PODSLICE_VOLUME_<NAME>`."""
    return {
        f"PODSLICE_VOLUME_{volume.name.upper().replace('-', '_')}": str(
            world.store.volume_path(pod.pod.uid, volume.name)
        )
        for volume in pod.volumes
    }


def _service_command(file: str, arguments: tuple[str, ...]) -> ServiceCommand:
    """A command that systemd takes as it is: it would put in variables of the environment."""
    return file, tuple(each.replace("$", "$$") for each in arguments), False


async def _limit_hugepages(world: LiveWorld, place: Place) -> None:
    """They are no properties of the unit, so they come after it."""
    if not place.container.hugepages or not place.observed.caps.hugetlb:
        return
    report = await settle(world, place.pod.pod.key)
    for result in report.results:
        if result.outcome is not Outcome.DONE:
            world.on_note(describe_result(result))


def has_arrived(place: Place, cgroup_file: Path = Path("/proc/self/cgroup")) -> bool:
    """Whether this process is in the container's scope."""
    own = parse_control_group(read_text(cgroup_file))
    return own.endswith(f"/{place.pod.slice}/{place.container.scope}")


async def read_phase(world: LiveWorld, key: str) -> Phase:
    """The phase that a pod is in.

    Raises:
        HostError: the pod is not applied.
    """
    state = await assess(world)
    pod = find_pod(state, key)
    return Phase(
        pod=pod,
        progress=state.progress.get(pod.pod.uid, InitProgress()),
        initializing=key in state.desired.initializing,
    )


async def finish_container(world: LiveWorld, key: str, container: str) -> Report:
    """Count an init container as done; with the last one the pod gets its own limits.

    The lock is the caller's. A pod that is gone by now needs nothing.

    Raises:
        ForeignRoot: the root belongs to a kubelet.
    """
    await world.guard.claim(world)
    try:
        phase = await read_phase(world, key)
    except HostError:
        return Report()
    after = finish(phase.pod.pod, phase.progress, container)
    world.store.save_progress(phase.pod.pod.uid, after)
    if not after.over or phase.progress.over:
        return Report()
    return await settle(world, key)


async def set_phase(world: LiveWorld, key: str, *, initializing: bool) -> Report:
    """End the init phase of a pod, or begin it anew. The lock is the caller's.

    Raises:
        ForeignRoot: the root belongs to a kubelet.
        HostError: the pod is not applied.
        InputError: the pod has no init phase.
    """
    await world.guard.claim(world)
    phase = await read_phase(world, key)
    refuse_without_phase(phase, world.config.rules)
    progress = InitProgress() if initializing else replace(phase.progress, over=True)
    world.store.save_progress(phase.pod.pod.uid, progress)
    return await settle(world, key)


def refuse_without_phase(phase: Phase, rules: Rules) -> None:
    """There is nothing to set where there is no init phase.

    Raises:
        InputError: there is none; it says why.
    """
    if why := why_no_phase(phase, rules):
        key = phase.pod.pod.key
        hint = f"there is nothing to set; see: podslice phase {key}"
        raise InputError(Problem(where=f"pod {key}", message=why, hint=hint))


def why_no_phase(phase: Phase, rules: Rules) -> str:
    """Why a pod can have no init phase; empty when it can."""
    if rules is Rules.KUBERNETES:
        return "under the rules of Kubernetes a pod's limits bind from the start"
    return "" if phase.init_containers else "it has no init containers, so its limits always bind"


async def _free_place(world: LiveWorld, key: str, container: str | None) -> Place:
    """The place of a container that may be started now."""
    state = await assess(world)
    refuse(state.foreign)
    place = find_place(state, key, container)
    if place.initializing and place.container.kind is ContainerKind.APP:
        verb = f"podslice phase{place.observed.caps.manager.flag} {key}"
        raise HostError(
            f"{place.full_name} has to wait for the pod's init containers; which: {verb}; to end"
            f" the init phase: {verb} --set running"
        )
    if place.unit is not None:
        group = place.unit.control_group
        held = world.cgroups.processes(group) if group else {}
        if held:
            raise _taken(place, place.unit.name, describe_processes(held))
        # its last process has just ended, or nobody has told systemd so
        await world.client.stop(place.unit.name)
    return place


def _taken(place: Place, unit: str, held: str = "") -> HostError:
    """A container that is there already, with what is in it and the ways out."""
    inside = f" with {held}" if held else ""
    user = place.observed.caps.manager.flag
    key, name = place.pod.pod.key, place.container.name
    return HostError(
        f"{place.full_name} is running: {unit}{inside}; to move more into it:"
        f" podslice adopt{user} {key} -c {name} PID; to end it: systemctl{user} stop {unit}"
    )
