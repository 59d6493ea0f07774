"""Start containers: a scope for an existing process, or a service."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from podslice.errors import HostError, JobFailed, UnitExists
from podslice.features.run.target import Place, container_properties, find_place, scope_of
from podslice.kernel.proc import PidFd, parse_control_group
from podslice.kernel.programs import Invocation
from podslice.kernel.text import read_text
from podslice.model.desired import PodDecision
from podslice.model.pod import ContainerKind
from podslice.model.unit import Command, TransientUnit, Value
from podslice.reconcile.assess import assess
from podslice.reconcile.converge import settle
from podslice.reconcile.observe import describe_processes
from podslice.reconcile.report import Outcome, describe_result
from podslice.reconcile.world import LiveWorld, refuse
from podslice.store.histories import VARIABLES
from podslice.systemd.journal import reading_command


class Started(NamedTuple):
    """A container that was started."""

    place: Place
    end: Path
    """The file for its end."""


async def start_scope(
    world: LiveWorld,
    key: str,
    container: str | None,
    process: Callable[[Place], int],
    *,
    has_terminal: bool = False,
) -> Started:
    """Start the scope of a container with one process. The caller holds the lock.

    Args:
        world: where.
        key: `namespace/name` of the pod.
        container: its name; None for the only one.
        process: returns the process, called once all checks have passed.
        has_terminal: whether a stop also sends SIGHUP, as closing a terminal does.

    Raises:
        HostError: the pod, its slice or its phase does not allow it, or the container is running.
        InputError: the pod does not have the container.
    """
    place = await _free_place(world, key, container)
    started_usec = _now_usec()
    end = world.store.histories.end_path(place.pod.pod.uid, place.container.name, started_usec)
    more: dict[str, Value] = {"SendSIGHUP": True} if has_terminal else {}
    # in another PID namespace than systemd's, an id denotes another process
    with closing(PidFd(process(place))) as handle:
        pids: dict[str, Value] = (
            {"PIDFDs": (handle.fd,)} if place.observed.caps.pidfds else {"PIDs": (handle.pid,)}
        )
        try:
            await world.client.start(scope_of(place, {**pids, **more}))
        except UnitExists as error:
            raise _taken(place, place.container.scope) from error
    # ExecStopPost= has recorded the end of this start. Source: systemd.service(5): it also runs
    # after a service that failed to start.
    save_start(world, place, started_usec)
    await _limit_hugepages(world, place)
    return Started(place=place, end=end)


async def start_service(
    world: LiveWorld,
    key: str,
    container: str | None,
    invocation: Invocation,
    directory: str,
    on_end: Callable[[Place], tuple[str, ...]],
) -> Place:
    """Start a container as a service of systemd. The caller holds the lock.

    Args:
        world: where.
        key: `namespace/name` of the pod.
        container: its name; None for the only one.
        invocation: the command, with an absolute file; its environment and the paths of the pod's
            volumes are added to the environment that systemd gives to every service.
        directory: the working directory.
        on_end: returns a further command that the service runs at its end; empty without one.

    Raises:
        HostError, InputError: as `start_scope`.
        JobFailed: systemd could not start the command.
    """
    place = await _free_place(world, key, container)
    started_usec = _now_usec()
    end = world.store.histories.end_path(place.pod.pod.uid, place.container.name, started_usec)
    at_end = [*_recording(world, place, end)]
    if command := on_end(place):
        at_end.append(_command(command[0], command))
    unit = _service(world, place, invocation, directory, tuple(at_end))
    try:
        await world.client.start(unit)
    except UnitExists as error:
        raise _taken(place, place.service) from error
    except JobFailed as error:
        save_start(world, place, started_usec)
        see = reading_command(place.service, world.manager)
        message = f"{invocation.file} could not be started in {place.service}; see: {see}"
        raise JobFailed(message, result=error.result) from error
    save_start(world, place, started_usec)
    await _limit_hugepages(world, place)
    return place


def save_start(world: LiveWorld, place: Place, started_usec: int | None = None) -> None:
    """Record the start of a container; without a time, now. The caller holds the lock."""
    at_usec = _now_usec() if started_usec is None else started_usec
    world.store.histories.save_start(place.pod.pod.uid, place.container.name, at_usec)


def _now_usec() -> int:
    return time.time_ns() // 1000


def _recording(world: LiveWorld, place: Place, end: Path) -> Iterator[Command]:
    """Yield the command with which a service records its end.

    It runs in the container's control group, after the processes of the container, for which Python
    is too large. The variables are read from its environment: systemd would expand them in its
    arguments only until a daemon-reload.
    """
    sed = shutil.which("sed")
    if sed is None:
        world.on_note(f"sed not found: the end of {place.full_name} will not be recorded")
        return
    # Variables are separated by NUL, as -z expects; memory.events has none, and so is one record,
    # which begins with the line `low`.
    script = f"/^(({'|'.join(VARIABLES)})=|low )/w{end}"
    files = ["/proc/self/environ"]
    if world.cgroups.events(place.slice_group):  # the service will have them, too
        files.append(world.cgroups.events_path(f"{place.slice_group}/{place.service}"))
    command = _command(sed, ("sed", "-n", "-z", "-E", script, *files))
    # A failure to record is not one of the container.
    yield (*command[:2], True)


def _service(
    world: LiveWorld,
    place: Place,
    invocation: Invocation,
    directory: str,
    at_end: tuple[Command, ...],
) -> TransientUnit:
    environment = {**volume_variables(world, place.pod), **invocation.environment}
    properties: dict[str, Value] = {
        **container_properties(place),
        "Type": "exec",
        "ExecStart": (_command(invocation.file, invocation.arguments),),
        "Environment": tuple(f"{name}={value}" for name, value in environment.items()),
        "WorkingDirectory": directory,
        "OOMScoreAdjust": place.container.oom_score_adj,
    }
    if at_end:
        properties["ExecStopPost"] = at_end
    return TransientUnit(name=place.service, properties=properties)


def volume_variables(world: LiveWorld, pod: PodDecision) -> dict[str, str]:
    """Return the variables `PODSLICE_VOLUME_<NAME>`: the paths of the pod's volumes in memory."""
    return {
        f"PODSLICE_VOLUME_{volume.name.upper().replace('-', '_')}": str(
            world.store.volume_path(pod.pod.uid, volume.name)
        )
        for volume in pod.volumes
    }


def _command(file: str, arguments: tuple[str, ...]) -> Command:
    """Return a command whose `$` systemd does not expand."""
    return file, tuple(each.replace("$", "$$") for each in arguments), False


async def _limit_hugepages(world: LiveWorld, place: Place) -> None:
    """Limit huge pages after the start: they are not unit properties."""
    if not place.container.hugepages or not place.observed.caps.hugetlb:
        return
    report = await settle(world, place.pod.pod.key)
    for result in report.results:
        if result.outcome is not Outcome.DONE:
            world.on_note(describe_result(result))


def has_arrived(place: Place, cgroup_file: Path = Path("/proc/self/cgroup")) -> bool:
    """Return whether this process is in the container's scope."""
    own = parse_control_group(read_text(cgroup_file))
    return own.endswith(f"/{place.pod.slice}/{place.container.scope}")


async def _free_place(world: LiveWorld, key: str, container: str | None) -> Place:
    """Return the place of a container that may be started now."""
    assessment = await assess(world)
    refuse(assessment.foreign)
    place = find_place(assessment, key, container)
    if place.initializing and place.container.kind is ContainerKind.APP:
        verb = f"podslice phase{place.observed.caps.manager.flag} {key}"
        raise HostError(
            f"{place.full_name} must wait for the pod's init containers; to list them: {verb}; to end"
            f" the init phase: {verb} running"
        )
    if place.unit is not None:
        group = place.unit.control_group
        held = world.cgroups.processes(group) if group else {}
        if held:
            raise _taken(place, place.unit.name, describe_processes(held))
        # its last process has just exited, or systemd has not noticed
        await world.client.stop(place.unit.name)
    return place


def _taken(place: Place, unit: str, held: str = "") -> HostError:
    """Return the error for a container that is running, with its processes and the remedies."""
    inside = f" with {held}" if held else ""
    user = place.observed.caps.manager.flag
    key, name = place.pod.pod.key, place.container.name
    return HostError(
        f"{place.full_name} is running: {unit}{inside}; to move more processes into it:"
        f" podslice adopt{user} {key} -c {name} PID; to stop it: systemctl{user} stop {unit}"
    )
