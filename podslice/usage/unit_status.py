"""The desired values, systemd's, the kernel's and the usage of each unit, and the sums of pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from podslice.kernel.cgroup import CgroupFs, Usage
from podslice.model.container_exit import ContainerExit, ContainerHistory
from podslice.model.desired import Desired, PodDecision
from podslice.model.naming import NaturalKey, natural_key, parse_description
from podslice.model.pod import ContainerKind
from podslice.model.properties import MANAGED, PROPERTIES, managed_of
from podslice.model.resources import Amounts
from podslice.model.unit import DesiredUnit, Observed, ObservedUnit, UnitKind, UnitName, Value
from podslice.usage.location import PodService

ACTIVATING = "activating"
"""systemd's state of a unit that starts, or waits for its next start."""
FAILED = "failed"
"""systemd's state of a unit that has crashed, or could not be started."""
MISSING = "missing"
"""The state of a desired unit that does not exist."""
NOT_STARTED = "not started"
"""The state of a container that was never started: it has no unit."""
EXITED = "exited"
"""The state of a container whose processes have ended, and its unit with them."""
UNOBSERVED = "unknown"
"""The state of a container without a unit while a runtime, which may run it, does not answer."""
WITHOUT_UNIT = frozenset({NOT_STARTED, EXITED, UNOBSERVED})
"""The states of containers whose units have no processes, or do not exist."""
ELSEWHERE = "elsewhere"
"""The state of a container whose unit is not in the slice of its pod."""
HOLDS_PROCESSES = frozenset({UnitKind.SCOPE, UnitKind.SERVICE})


class PropertyStatus(NamedTuple):
    """The desired value of a property, systemd's and the kernel's."""

    name: str
    desired: Value | None
    """None: not stated, must be unset."""
    systemd: Value | None
    kernel: str | None
    """In the kernel's format; it rounds."""

    @property
    def differs(self) -> bool:
        """Whether systemd has another value than the desired one."""
        if self.systemd is None:
            return False
        unset = PROPERTIES[self.name].unset
        return self.systemd != (unset if self.desired is None else self.desired)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStatus:
    """The status of one unit."""

    name: UnitName
    kind: UnitKind
    pod: str | None
    qos: str
    """The class of a pod's slice; empty elsewhere."""
    label: str
    """Its name for people: the pod, the container, the tier."""
    depth: int
    state: str
    """systemd's active state, or `missing`, `not started`, `exited`, `elsewhere`, `unknown`."""
    control_group: str
    properties: tuple[PropertyStatus, ...] = ()
    usage: Usage = field(default_factory=Usage)
    restarts: int = 0
    last_exit: ContainerExit | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a container has failed, and is not about to be started again."""
        if self.kind not in HOLDS_PROCESSES:
            return False
        is_crash = self.last_exit is not None and self.last_exit.is_failure
        return self.state == FAILED or (self.state == EXITED and is_crash)

    @property
    def differs(self) -> bool:
        """Whether the state or a property is not as desired."""
        is_wrong = self.state in (MISSING, ELSEWHERE)
        return is_wrong or any(property_.differs for property_ in self.properties)


def unit_statuses(
    desired: Desired,
    observed: Observed,
    cgroups: CgroupFs,
    histories: Mapping[UnitName, ContainerHistory] = MappingProxyType({}),
) -> tuple[UnitStatus, ...]:
    """Return the status of every desired unit in tree order, with containers that were not started.

    `histories` are those of containers, by their units.
    """
    classes = {pod.slice: pod.qos.value for pod in desired.pods}
    return tuple(
        _status(unit, depth, classes, observed, cgroups, histories.get(unit.name))
        for depth, unit in in_tree_order(desired)
        if unit.name in observed.units or unit.name not in desired.unwanted
    )


def with_services(
    units: Iterable[UnitStatus],
    services: Iterable[PodService],
    desired: Desired,
    cgroups: CgroupFs,
    *,
    held: Collection[tuple[str, str | None]] = (),
) -> tuple[UnitStatus, ...]:
    """Add adopted services to the units of their pods, as containers.

    A service replaces the container of the manifest that it is. Where only services were started in
    a pod, its other containers are left out; `held` are the pods and containers that runtimes run.
    """
    by_pod: dict[str | None, list[PodService]] = {}
    for service in services:
        by_pod.setdefault(service.pod, []).append(service)
    decisions = {pod.pod.key: pod for pod in desired.pods}
    found: list[UnitStatus] = []
    # The units of a pod follow each other, since units are in tree order.
    for key, group in groupby(units, key=lambda unit: unit.pod):
        members = list(group)
        decision, own = decisions.get(key or ""), by_pod.get(key, ())
        if decision is not None and own:
            members = _without_replaced(members, {each.container for each in own}, held)
            depth = members[0].depth + 1
            members += (_service_status(each, decision, depth, cgroups) for each in own)
        found += members
    return tuple(found)


def _without_replaced(
    units: Sequence[UnitStatus], services: Collection[str], held: Collection[tuple[str, str | None]]
) -> list[UnitStatus]:
    """Return the units of a pod without the containers that services stand for."""
    idle = [each for each in units if each.state == NOT_STARTED and each.label in services]
    others = [each for each in units if each.kind in HOLDS_PROCESSES and each not in idle]
    if all(each.state == NOT_STARTED and (each.pod, each.label) not in held for each in others):
        idle += others
    return [each for each in units if each not in idle]


def _service_status(
    service: PodService, pod: PodDecision, depth: int, cgroups: CgroupFs
) -> UnitStatus:
    found = service.unit
    group = found.control_group
    container = next((each for each in pod.scopes if each.name == service.container), None)
    kernel = cgroups.limits(group) if group else {}
    return UnitStatus(
        name=found.name,
        kind=UnitKind.SERVICE,
        pod=service.pod,
        qos="",
        label=service.container,
        depth=depth,
        state=_service_state(found, pod.slice),
        control_group=group,
        properties=tuple(
            PropertyStatus(
                each.name, each.value, found.properties.get(each.name), kernel.get(each.name)
            )
            for each in (container.properties if container and group else ())
        ),
        usage=cgroups.usage(group) if group else Usage(),
        restarts=found.restarts,
        last_exit=found.main_exit,
    )


def _service_state(found: ObservedUnit, slice_: UnitName) -> str:
    if _is_over(found):
        return EXITED
    if found.active_state == "inactive":
        return NOT_STARTED
    group = found.control_group
    return ELSEWHERE if group and slice_ not in group.split("/") else found.active_state


def in_tree_order(desired: Desired) -> Iterator[tuple[int, DesiredUnit]]:
    """Yield units with their depth, parents first; Guaranteed pods come before the tiers.

    Pods are in the natural order of their names.
    """
    children: dict[UnitName, list[DesiredUnit]] = {}
    names = {unit.name for unit in desired.units}
    for unit in desired.units:
        parent = unit.parent if unit.parent in names else UnitName("")
        children.setdefault(parent, []).append(unit)

    def rank(unit: DesiredUnit) -> tuple[bool, NaturalKey]:
        return unit.pod is None, natural_key(unit.pod or "")

    def walk(parent: UnitName, depth: int) -> Iterator[tuple[int, DesiredUnit]]:
        for unit in sorted(children.get(parent, ()), key=rank):
            yield depth, unit
            yield from walk(unit.name, depth + 1)

    return walk(UnitName(""), 0)


def _status(
    unit: DesiredUnit,
    depth: int,
    classes: Mapping[UnitName, str],
    observed: Observed,
    cgroups: CgroupFs,
    history: ContainerHistory | None,
) -> UnitStatus:
    loaded = observed.units.get(unit.name) or observed.ended.get(unit.name)
    found = None if loaded is None or loaded.active_state == "inactive" else loaded
    group = (found.control_group if found else "") or unit.control_group
    kernel = cgroups.limits(group) if found else {}
    has, wants = found.properties if found else {}, unit.values
    names = managed_of(unit) if unit.owned else MANAGED[unit.kind]
    unset = {name: PROPERTIES[name].unset for name in names}
    state = _state(unit, found, observed.units.get(unit.parent))
    # the starts and the last exit are in the record, and with a service that is loaded
    has_ended = history is not None and state == NOT_STARTED
    recorded = history.exit_of(is_running=not has_ended) if history else None
    exits = [each for each in (recorded, loaded.main_exit if loaded else None) if each]
    return UnitStatus(
        name=unit.name,
        kind=unit.kind,
        pod=unit.pod,
        qos=classes.get(unit.name, ""),
        label=_label(unit),
        depth=depth,
        state=EXITED if has_ended or _is_over(loaded) else state,
        control_group=group,
        properties=tuple(
            PropertyStatus(name, wants.get(name), has.get(name), kernel.get(name))
            for name in names
            if name in wants or (unit.owned and has.get(name, unset[name]) != unset[name])
        ),
        usage=cgroups.usage(group) if found else Usage(),
        restarts=(history.restarts if history else 0) + (loaded.restarts if loaded else 0),
        last_exit=max(exits, key=lambda each: each.ended_usec or each.started_usec, default=None),
    )


def _is_over(found: ObservedUnit | None) -> bool:
    """Return whether the processes of a service have ended, and it has not failed.

    That of an init container remains active.
    """
    return (
        found is not None
        and found.name.endswith(f".{UnitKind.SERVICE}")
        and found.active_state in ("active", "inactive")
        and found.main_exit is not None
        and not found.tasks
    )


def _state(unit: DesiredUnit, found: ObservedUnit | None, parent: ObservedUnit | None) -> str:
    holds = unit.kind in HOLDS_PROCESSES
    if found is None:
        return NOT_STARTED if holds else MISSING
    if holds and parent is not None and found.control_group:
        inside = found.control_group.startswith(f"{parent.control_group}/")
        return found.active_state if inside else ELSEWHERE
    return found.active_state


def _label(unit: DesiredUnit) -> str:
    description = parse_description(unit.description)
    if description is not None and description.container is not None:
        return description.container
    if description is not None and description.volume is not None:
        return f"volume {description.volume}"
    return unit.pod or unit.name


_ACTIVE = "active"
_COUNTED = frozenset({ContainerKind.APP, ContainerKind.SIDECAR})


class PodFacts(NamedTuple):
    """The containers of a pod, without init containers and helpers."""

    containers: int
    ready: int
    """The number of those that run."""
    restarts: int
    """Of all of them together."""
    started_usec: int
    """The start of the pod's slice since the epoch; 0 where it was not observed."""
    requests: Amounts
    limits: Amounts


def pod_facts(
    decisions: Iterable[PodDecision],
    units: Iterable[UnitStatus],
    held: Mapping[tuple[str, str | None], int],
    observed: Mapping[UnitName, ObservedUnit],
) -> dict[str, PodFacts]:
    """Return the facts about pods, by key.

    Args:
        decisions: the applied pods.
        units: the status of their units.
        held: the restarts of containers that runtimes run in units of another name, by pod and
            container.
        observed: the slices, with their starts.
    """
    by_pod: dict[str | None, list[UnitStatus]] = {}
    for unit in units:
        if unit.kind in HOLDS_PROCESSES:
            by_pod.setdefault(unit.pod, []).append(unit)
    found = {}
    for decision in decisions:
        key, slice_ = decision.pod.key, observed.get(decision.slice)
        left_out = {each.name for each in decision.scopes if each.kind not in _COUNTED}
        counted = [unit for unit in by_pod.get(key, ()) if unit.label not in left_out]
        found[key] = PodFacts(
            containers=len(counted),
            ready=sum(unit.state == _ACTIVE or (key, unit.label) in held for unit in counted),
            restarts=sum(unit.restarts + held.get((key, unit.label), 0) for unit in counted),
            started_usec=slice_.started_usec if slice_ else 0,
            requests=decision.requests,
            limits=decision.limits,
        )
    return found
