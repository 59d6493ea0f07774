"""Locate processes, and compare that with the units of their containers.

`arrange` is pure; `read_placement` and `locate` read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import process_name, read_process
from podslice.model.desired import PodDecision
from podslice.model.naming import SCOPE_PREFIX, podman_service
from podslice.model.unit import ObservedUnit, UnitName, is_inside
from podslice.reconcile.assess import Assessment
from podslice.reconcile.world import LiveWorld
from podslice.store.adopted_services import AdoptedService, read_adopted
from podslice.systemd.client import Client
from podslice.usage.runtimes import RuntimeContainer

_PODMAN = "podman"
Groups = Mapping[str, tuple[int, ...]]
"""The ids of processes, by the control group that they are in."""


class PodService(NamedTuple):
    """A service that starts in a pod."""

    pod: str
    container: str
    """The container that an adopted service is; the name of another one."""
    unit: ObservedUnit
    """As systemd has it; inactive where it is not loaded."""


@dataclass(frozen=True, slots=True, order=True)
class Running:
    """An observed process."""

    pid: int
    name: str


class Other(NamedTuple):
    """A unit of another program in a pod's slice: a runtime's scope, a service, a quadlet."""

    unit: str
    pod: str
    control_group: str
    processes: tuple[Running, ...]
    container: str | None = None
    """The container of the pod, where a runtime reports it."""
    runtime: str | None = None
    restarts: int = 0
    """The restarts by the runtime."""


class Stray(NamedTuple):
    """Processes that belong to a pod and are elsewhere."""

    pod: str | None
    """None where it is not applied."""
    container: str | None
    what: str
    """The unit, or the runtime's container: `podman container site-web`."""
    found_by: str
    """`unit name`, `drop-in`, or the runtime with the labels."""
    control_group: str
    processes: tuple[Running, ...]
    hint: str
    """How to move them into the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The processes of all pods, by location."""

    held: Mapping[str, tuple[Running, ...]] = field(default_factory=dict)
    """By the unit of the container."""
    others: tuple[Other, ...] = ()
    strays: tuple[Stray, ...] = ()
    ended: tuple[RuntimeContainer, ...] = ()
    """The containers of runtimes without processes."""


class Home(NamedTuple):
    """The pod, unit and container that a control group belongs to."""

    pod: str
    container: str | None
    """None outside the containers' own units."""
    unit: str
    """The unit in the pod's slice, or the slice itself."""
    control_group: str
    """The unit's."""


class Located(NamedTuple):
    """The location of a process."""

    pid: int
    name: str
    control_group: str
    """Empty where the process does not exist."""
    home: Home | None
    """None outside pods."""
    hint: str
    """How to move it into a pod; empty where it can't be moved."""


class PodMap:
    """The control groups of the applied pods, as systemd reports them."""

    def __init__(self, assessment: Assessment, services: Iterable[PodService] = ()) -> None:
        """`services` are those of pods, which are their containers."""
        units = assessment.observed.units
        root = units.get(assessment.desired.root)
        self.root = root.control_group if root else ""
        self.groups = {
            pod.pod.key: units[pod.slice].control_group
            for pod in assessment.desired.pods
            if pod.slice in units and units[pod.slice].control_group
        }
        self._pods = {group: key for key, group in self.groups.items()}
        self._containers = {
            unit: (pod.pod.key, container.name)
            for pod in assessment.desired.pods
            for container in pod.scopes
            for unit in container.units
        }
        self._containers |= {each.unit.name: (each.pod, each.container) for each in services}
        self._owners = {
            units[unit].control_group: owner
            for unit, owner in self._containers.items()
            if unit in units and units[unit].control_group
        }

    def home(self, control_group: str) -> Home | None:
        """Return the pod, unit and container that a control group belongs to."""
        path = control_group.split("/")
        depth = next((n for n, group in _upwards(control_group) if group in self._pods), None)
        if depth is None:
            return None
        pod = self._pods["/".join(path[:depth])]
        # the pod's slice may contain slices; below another unit, groups belong to the unit
        end = depth
        while end < len(path) and path[end - 1].endswith(".slice"):
            end += 1
        # The unit must be for this pod: a container's name in the slice of another pod is only a
        # name.
        owner, container = self.container(UnitName(path[end - 1]))
        return Home(
            pod=pod,
            container=container if owner == pod else None,
            unit=path[end - 1],
            control_group="/".join(path[:end]),
        )

    def owner(self, control_group: str) -> tuple[str | None, str | None]:
        """Return the pod and container whose unit contains a control group, wherever the unit is.

        A unit name in the path alone is not evidence: other users may choose it for their groups.
        """
        groups = (group for _, group in _upwards(control_group))
        return next((self._owners[each] for each in groups if each in self._owners), (None, None))

    def container(self, unit: UnitName) -> tuple[str | None, str | None]:
        """Return the pod and the container that a unit is for, by its name."""
        return self._containers.get(unit, (None, None))


def _upwards(control_group: str) -> Iterator[tuple[int, str]]:
    """Yield a control group and those above it, each with the number of parts of its path."""
    path = control_group.split("/")
    for depth in range(len(path), 0, -1):
        yield depth, "/".join(path[:depth])


def read_placement(
    assessment: Assessment,
    cgroups: CgroupFs,
    runtimes: Iterable[RuntimeContainer] = (),
    root: Path = Path("/"),
    *,
    services: Sequence[PodService] = (),
) -> Placement:
    """Read the location of processes.

    `runtimes` are the containers that runtimes report, `services` the adopted services.
    """
    pods = PodMap(assessment)
    groups = dict(cgroups.processes(pods.root)) if pods.root else {}
    outside = (each.unit for each in _outside(pods, services))
    for unit in (*_misplaced(assessment, pods), *outside):
        groups |= cgroups.processes(unit.control_group)
    containers = tuple(runtimes)
    running = [each for each in containers if each.control_group]
    found = arrange(assessment, groups, running, lambda pid: process_name(pid, root), services)
    return replace(found, ended=tuple(each for each in containers if not each.control_group))


def locate(
    assessment: Assessment,
    pids: Iterable[int],
    root: Path = Path("/"),
    *,
    services: Iterable[PodService] = (),
) -> tuple[Located, ...]:
    """Read the location of some processes."""
    pods = PodMap(assessment, services)
    return tuple(_locate(pods, pid, root) for pid in dict.fromkeys(pids))


def _locate(pods: PodMap, pid: int, root: Path) -> Located:
    process = read_process(pid, root)
    if process is None:
        return Located(pid, "?", control_group="", home=None, hint="")
    group = process.control_group
    home = pods.home(group)
    may_move = home is None and pid != 1 and not process.is_kernel_thread
    hint = f"podslice adopt POD -c CONTAINER {process.leader}" if may_move else ""
    return Located(pid, process.name, group, home, hint)


def arrange(
    assessment: Assessment,
    groups: Groups,
    runtimes: Iterable[RuntimeContainer],
    name_of: Callable[[int], str],
    services: Sequence[PodService] = (),
) -> Placement:
    """Sort processes by their location and the pod that they belong to."""
    pods, listed = PodMap(assessment, services), tuple(runtimes)
    claims = tuple(_claims(assessment, listed))
    held: dict[str, list[Running]] = {}
    others: dict[tuple[str, str, str], list[Running]] = {}
    for group, pids in groups.items():
        home = pods.home(group)
        if home is None:
            continue
        if home.container is not None:
            into = held.setdefault(home.unit, [])
        else:
            into = others.setdefault((home.pod, home.unit, home.control_group), [])
        into += (Running(pid, name_of(pid)) for pid in pids)
    return Placement(
        held={unit: tuple(sorted(processes)) for unit, processes in held.items()},
        others=tuple(
            _other(Other(unit, pod, group, tuple(sorted(processes))), claims)
            for (pod, unit, group), processes in sorted(others.items())
        ),
        strays=(
            *_strays(assessment, pods, groups, claims, name_of, services),
            *(_left(each, name_of) for each in listed if each.podman_pod),
        ),
    )


def _other(other: Other, claims: Iterable[tuple[str, RuntimeContainer]]) -> Other:
    """Add the container that a runtime reports for a unit in a pod's slice.

    The service of a pod of quadlets is podman's, and no container's.
    """
    for key, found in claims:
        # crun has the processes in a control group below the scope, runc in the scope itself.
        if key == other.pod and is_inside(found.control_group, other.control_group):
            return other._replace(
                container=found.container, runtime=found.runtime, restarts=found.restarts
            )
    return other._replace(runtime=_PODMAN if other.unit == podman_service(other.pod) else None)


def _claims(
    assessment: Assessment, runtimes: Iterable[RuntimeContainer]
) -> Iterator[tuple[str, RuntimeContainer]]:
    """Yield the containers of runtimes whose labels name an applied pod, with its key."""
    by_uid = {pod.pod.uid: pod.pod.key for pod in assessment.desired.pods}
    keys = set(by_uid.values())
    for container in runtimes:
        if container.pod_key in keys:
            yield str(container.pod_key), container
        elif container.pod_uid in by_uid:
            yield by_uid[container.pod_uid], container


def _misplaced(assessment: Assessment, pods: PodMap) -> Iterator[ObservedUnit]:
    """Yield units that are named as containers and outside the slice of their pod."""
    for name, unit in sorted(assessment.observed.units.items()):
        if not name.startswith(f"{SCOPE_PREFIX}-pod") or not unit.control_group:
            continue
        pod, _ = pods.container(name)
        if pod is None:
            # its pod is not applied; below the root its slice is reported as an orphan
            if not (pods.root and is_inside(unit.control_group, pods.root)):
                yield unit
        elif not is_inside(unit.control_group, pods.groups.get(pod, "-")):
            yield unit


def _outside(pods: PodMap, services: Iterable[PodService]) -> Iterator[PodService]:
    """Yield the services that run outside of their pods."""
    for each in services:
        group = each.unit.control_group
        if group and each.pod in pods.groups and not is_inside(group, pods.groups[each.pod]):
            yield each


def _strays(
    assessment: Assessment,
    pods: PodMap,
    groups: Groups,
    claims: Iterable[tuple[str, RuntimeContainer]],
    name_of: Callable[[int], str],
    services: Iterable[PodService],
) -> Iterator[Stray]:
    """Yield processes outside of their pods: by unit names, by labels, then services."""
    flag = assessment.observed.caps.manager.flag

    def stray(
        pod: str | None, container: str | None, unit: ObservedUnit, found_by: str, hint: str
    ) -> Stray:
        """Return all processes of a unit, with those in the control groups below."""
        processes = tuple(
            Running(pid, name_of(pid))
            for group, pids in sorted(groups.items())
            if is_inside(group, unit.control_group)
            for pid in sorted(pids)
        )
        return Stray(pod, container, unit.name, found_by, unit.control_group, processes, hint)

    for unit in _misplaced(assessment, pods):
        pod, container = pods.container(unit.name)
        hint = f"to stop it: systemctl{flag} stop {unit.name}"
        if pod:
            hint += f"; then start it again: podslice run{flag} {pod} -c {container} -- COMMAND"
        yield stray(pod, container, unit, "unit name", hint)
    for key, found in claims:
        if not is_inside(found.control_group, pods.groups.get(key, "-")):
            yield Stray(
                pod=key,
                container=found.container,
                what=f"{found.runtime} container {found.name}",
                found_by=found.runtime,
                control_group=found.control_group,
                processes=(Running(found.pid, name_of(found.pid)),),
                hint="start it again with the options of:"
                f" podslice cgroup-parent {key} -o {found.runtime}",
            )
    for each in _outside(pods, services):
        hint = f"to start it in the pod: systemctl{flag} restart {each.unit.name}"
        yield stray(each.pod, each.container, each.unit, "drop-in", hint)


def _left(container: RuntimeContainer, name_of: Callable[[int], str]) -> Stray:
    """Return a podman pod whose pod is not applied, by its own container.

    If its conmon was killed, podman fails to remove it once, and records its end.
    """
    return Stray(
        pod=None,
        container=None,
        what=f"podman pod {container.podman_pod}",
        found_by=container.runtime,
        control_group=container.control_group,
        processes=(Running(container.pid, name_of(container.pid)),),
        hint=f"to remove it: podman pod rm --force {container.podman_pod}; if that fails, repeat it",
    )


async def observe_services(world: LiveWorld, pods: Iterable[str]) -> tuple[PodService, ...]:
    """Return the adopted services of these pods, also those that have no processes.

    Raises:
        HostError: a drop-in cannot be read.
    """
    keys = frozenset(pods)
    adopted = [each for each in read_adopted(world.manager) if each.pod in keys]
    return await observe_adopted(world.client, adopted)


async def observe_adopted(
    client: Client, adopted: Iterable[AdoptedService]
) -> tuple[PodService, ...]:
    """Return adopted services, inactive where systemd has not loaded them."""
    services = {each.unit: each for each in adopted}
    found = {unit.name: unit for unit in await client.observe(list(services))}
    return tuple(
        PodService(
            pod=each.pod,
            container=each.container,
            unit=found.get(name)
            or ObservedUnit(name=name, active_state="inactive", transient=False),
        )
        for name, each in services.items()
    )


async def observe_placed(
    client: Client, pods: Iterable[PodDecision], names: Iterable[UnitName]
) -> tuple[PodService, ...]:
    """Return the services that state the slice of a pod by other means than `adopt`."""
    keys = {pod.slice: pod.pod.key for pod in pods}
    return tuple(
        PodService(pod=keys[slice_], container=unit.name, unit=unit)
        for unit in await client.observe(sorted(names))
        if (slice_ := UnitName(str(unit.properties.get("Slice", "")))) in keys
    )
