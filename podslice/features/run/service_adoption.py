"""Put existing services into a pod for good, and release them: checks, drop-ins, verification.

A running service keeps its control group until it is restarted, which `restart` does.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from podslice.cli.views.runtime_options import Parent, appliers, drop_in
from podslice.errors import InputError, Problem, SystemdError
from podslice.features.run.target import Place, find_container, find_slice
from podslice.kernel.files import read_present
from podslice.model.desired import PodDecision
from podslice.model.naming import SCOPE_PREFIX, container_of
from podslice.model.properties import OOM_SCORE_ADJ, annotation_key
from podslice.model.unit import (
    Manager,
    UnitDefinition,
    UnitKind,
    UnitName,
    complete_name,
    control_group_of,
    is_unit_name,
)
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.guard import refuse
from podslice.reconcile.world import LiveWorld
from podslice.store.adopted_services import (
    DROP_IN,
    SECTION,
    AdoptedService,
    by_pod,
    drop_in_path,
    read_adopted,
    read_drop_in,
    remove_drop_in,
    write_drop_in,
)

_BYTES_MAX = 2**20
_SERVICE = f".{UnitKind.SERVICE}"
_TEMPLATE = re.compile(r"[^@]+@\.service")
_USER_MANAGER = re.compile(r"user@.+\.service")
_STARTERS = (".timer", ".socket", ".path")
_SLICE_LINE = re.compile(rb"^Slice=", re.MULTILINE)


class ServiceAction(StrEnum):
    """The change of a service's drop-in."""

    WRITTEN = "written"
    REMOVED = "removed"
    NONE = "none"
    """It is as requested already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedService:
    """A service whose drop-in was written or removed."""

    service: AdoptedService
    path: str
    """The drop-in."""
    action: ServiceAction
    slice: str
    """The slice that its next start uses."""
    runs_in: str
    """The control group of its processes; empty if it does not run."""
    is_due: bool
    """Whether it runs with other settings than its next start."""
    is_restarted: bool = False
    error: str = ""
    """Why it could not be restarted."""


async def adopt_services(
    world: LiveWorld, key: str, container: str | None, names: Iterable[str]
) -> tuple[PlacedService, ...]:
    """Write the drop-ins that start services in a pod. The caller holds the lock.

    Without a container each service is one of the pod's, with its own name.

    Raises:
        HostError: the pod is not applied, or a file cannot be written; nothing was changed.
        InputError: a unit cannot be in the pod; nothing was changed.
    """
    assessment = await assess(world)
    refuse(assessment.foreign)
    pod = find_slice(assessment, key)
    units = tuple(dict.fromkeys(map(complete_name, names)))
    candidates = await _check(world, assessment, pod, container, units)
    services = [each.service for each in candidates]
    changed = [each.service for each in candidates if each.service != each.before]
    for each in candidates:
        if each.before is None:
            await _note_rise(world, pod, each.service)
    async with _undone_on_error(world, candidates):
        await _write(world, changed)
        found = [await world.client.read_definition(each.unit) for each in services]
        if problems := [each for each in map(_find_overruling, services, found) if each]:
            raise InputError(problems)
    actions = [
        ServiceAction.WRITTEN if each in changed else ServiceAction.NONE for each in services
    ]
    return tuple([await _place(world, *each) for each in zip(services, actions, strict=True)])


async def _note_rise(world: LiveWorld, pod: PodDecision, service: AdoptedService) -> None:
    """Note a service that its vendor protects from the OOM killer, and the container does not."""
    container = next((each for each in pod.scopes if each.name == service.container), None)
    unit = await world.client.inspect(service.unit)
    own = int(unit.further.get(OOM_SCORE_ADJ, 0)) if unit else 0
    if container is not None and own < min(container.oom_score_adj, 0):
        world.on_note(
            f"warning: {service.unit} has OOMScoreAdjust={own}, which becomes"
            f" {container.oom_score_adj} in container {container.name}: the kernel kills it sooner;"
            f" to keep its own, add to the annotations of the pod: "
            f'{annotation_key(OOM_SCORE_ADJ, container.name)}: "{own}"'
        )


def outdated_services(
    adopted: Iterable[AdoptedService], pods: Iterable[PodDecision], manager: Manager
) -> list[AdoptedService]:
    """Return the services whose drop-ins are not those of their pods, with the right drop-ins.

    A pod whose record is lost has no containers, and its services stay as they are.
    """
    present = by_pod(adopted)
    return [
        service
        for pod in pods
        for each in (present.get(pod.pod.key, ()) if pod.scopes else ())
        if (service := make_service(pod, each.unit, each.container, manager)) != each
    ]


async def update_services(
    world: LiveWorld, pods: Iterable[PodDecision]
) -> tuple[PlacedService, ...]:
    """Write the drop-ins of pods again that are not as they should be.

    Raises:
        HostError: a file cannot be written.
    """
    outdated = outdated_services(read_adopted(world.manager), pods, world.manager)
    await _write(world, outdated)
    return tuple([await _place(world, each, ServiceAction.WRITTEN) for each in outdated])


async def _write(world: LiveWorld, services: Sequence[AdoptedService]) -> None:
    for each in services:
        write_drop_in(each, world.manager)
    if services:
        await world.client.reload()


async def release_services(world: LiveWorld, names: Iterable[str]) -> tuple[PlacedService, ...]:
    """Remove the drop-ins of adopted services. The caller holds the lock.

    Raises:
        InputError: a unit was not adopted; nothing was changed.
        HostError: a file cannot be removed.
    """
    refuse((await assess(world)).foreign)
    units = tuple(dict.fromkeys(map(complete_name, names)))
    found = [await _find_adopted(world, each) for each in units]
    if problems := [each for each in found if isinstance(each, Problem)]:
        raise InputError(problems)
    return await release(world, [each for each in found if isinstance(each, AdoptedService)])


async def release(
    world: LiveWorld, services: Sequence[AdoptedService]
) -> tuple[PlacedService, ...]:
    """Remove the drop-ins of services, and let systemd read the remaining files."""
    for each in services:
        remove_drop_in(each.unit, world.manager)
    if services:
        await world.client.reload()
    return tuple([await _place(world, each, ServiceAction.REMOVED) for each in services])


async def restart_due(
    world: LiveWorld, services: Iterable[PlacedService]
) -> tuple[PlacedService, ...]:
    """Restart the services for which it is due; return all, as they are then.

    The lock is not held if they have drop-ins of podslice: a start pulls in podslice-apply.service,
    which takes it.
    """
    return tuple([await _restart(world, each) if each.is_due else each for each in services])


async def _restart(world: LiveWorld, service: PlacedService) -> PlacedService:
    try:
        await world.client.restart(service.service.unit)
    except SystemdError as error:
        return replace(service, error=str(error))
    return replace(await _place(world, service.service, service.action), is_restarted=True)


def make_service(
    pod: PodDecision, unit: UnitName, container: str, manager: Manager
) -> AdoptedService:
    """Return a service with the drop-in that it should have in a pod."""
    of = next((each for each in pod.scopes if each.name == container), None)
    lines = (
        "# Written by podslice adopt, and again by podslice apply when the pod changes.",
        f"# To remove it: podslice release{manager.flag} {unit}",
        f"[{SECTION}]",
        f"Pod={pod.pod.key}",
        f"Container={container}",
        "",
        *drop_in(Parent(pod=pod, container=of, manager=manager)),
    )
    return AdoptedService(
        unit=unit,
        pod=pod.pod.key,
        container=container,
        slice=pod.slice,
        text="".join(f"{each}\n" for each in lines),
    )


class _Candidate(NamedTuple):
    """A service to adopt, with its present drop-in."""

    service: AdoptedService
    before: AdoptedService | None


async def _check(
    world: LiveWorld,
    assessment: Assessment,
    pod: PodDecision,
    container: str | None,
    units: Sequence[str],
) -> list[_Candidate]:
    """Return what is to be written.

    Raises:
        InputError: a unit cannot be in the pod; it has every problem.
    """
    if container is not None:
        find_container(pod, container)
    found = [await _examine(world, pod, each) for each in units]
    problems = [each for each in found if isinstance(each, Problem)]
    definitions = [each for each in found if isinstance(each, UnitDefinition)]
    problems += await _find_cycles(world, definitions)
    if container is not None and len(units) > 1:
        hint = "adopt them one by one, or without -c"
        problems.append(Problem(where="-c", message="a container is one service", hint=hint))
    adopted = read_adopted(world.manager)
    taken = {each.container: each.unit for each in adopted if each.pod == pod.pod.key}
    candidates = []
    for each in definitions:
        name = container or container_of(each.name)
        other = taken.setdefault(name, each.name)
        running = _find_running(assessment, pod, name)
        if other != each.name:
            problems.append(_taken(each.name, name, other, f"podslice release {other}"))
        elif running:
            problems.append(_taken(each.name, name, running, f"systemctl stop {running}"))
        before = next((one for one in adopted if one.unit == each.name), None)
        service = make_service(pod, each.name, name, world.manager)
        candidates.append(_Candidate(service=service, before=before))
    if problems:
        raise InputError(problems)
    return candidates


def _taken(unit: str, container: str, other: str, remedy: str) -> Problem:
    message = f"container {container} of the pod is {other}"
    return Problem(where=unit, message=message, hint=f"{remedy}, or name another one with -c")


def _find_running(assessment: Assessment, pod: PodDecision, name: str) -> UnitName | None:
    """Return the unit of a container of the manifest that was started by other means."""
    for container in pod.scopes:
        if container.name == name:
            place = Place(pod, container, assessment.observed, initializing=False)
            return place.unit.name if place.unit else None
    return None


async def _examine(world: LiveWorld, pod: PodDecision, name: str) -> UnitDefinition | Problem:
    """Return a service that can be in a pod, or why it cannot."""
    if problem := await _check_name(world, name):
        return problem
    unit = await world.client.read_definition(UnitName(name))
    message, hint = _why_not(world, pod, unit)
    return Problem(where=name, message=message, hint=hint) if message else unit


async def _check_name(world: LiveWorld, name: str) -> Problem | None:
    """Return the problem of a unit's name; None if it is a service."""
    message, hint = f"not a service: {name!r}", ""
    if _TEMPLATE.fullmatch(name):
        message, hint = "it is a template", f"name an instance: {name.replace('@', '@NAME')}"
    elif _USER_MANAGER.fullmatch(name):
        message = "it is the service manager of a user"
        hint = "adopt services of the user with --user"
    elif name.endswith(_SERVICE) and is_unit_name(name):
        return None
    elif name.endswith(_STARTERS):
        started = [UnitName(f"{name.rpartition('.')[0]}.service")]
        if is_unit_name(name):
            triggers = (await world.client.read_definition(UnitName(name))).triggers
            started = [UnitName(each) for each in triggers] or started
        kind = name.rpartition(".")[2]
        message = f"a {kind} has no processes"
        hint = f"adopt the service that it starts: {' '.join(started)}"
    elif name.endswith(".scope"):
        message = "a scope ends with its processes, which its creator has started"
        hint = "move its processes: podslice adopt POD PID…"
    elif name.endswith(".slice"):
        message, hint = "a slice contains units", "adopt the services in it"
    return Problem(where=name, message=message, hint=hint)


def _why_not(world: LiveWorld, pod: PodDecision, unit: UnitDefinition) -> tuple[str, str]:
    """Return why a service cannot be in a pod, and the remedy; empty if it can."""
    if unit.load_state != "loaded":
        return _why_not_loaded(unit, world.manager.flag)
    if unit.name.startswith(f"{SCOPE_PREFIX}-pod"):
        return "podslice has started it in a pod", f"see: podslice status{world.manager.flag}"
    if unit.transient or not unit.fragment_path:
        hint = (
            "write a unit file for it, or move its processes for as long as they run:"
            f" podslice adopt{world.manager.flag} {pod.pod.key} PID…"
        )
        return "it has no unit file, and its settings end with it", hint
    return _why_taken(world, pod.pod.key, unit.name)


def _why_not_loaded(unit: UnitDefinition, flag: str) -> tuple[str, str]:
    if unit.load_state == "not-found":
        return "there is no such unit", f"see: systemctl{flag} list-unit-files --type=service"
    if unit.load_state == "masked":
        return "it is masked", f"to allow its start: systemctl{flag} unmask {unit.name}"
    return f"its load state is {unit.load_state}", f"see: systemctl{flag} status {unit.name}"


def _why_taken(world: LiveWorld, key: str, name: UnitName) -> tuple[str, str]:
    present, path = read_drop_in(name, world.manager), drop_in_path(name, world.manager)
    if present is None and path.exists():
        return f"{path} exists, and podslice has not written it", "rename it"
    if present is not None and present.pod != key:
        hint = f"release it first: podslice release{world.manager.flag} {name}"
        return f"it is in pod {present.pod}", hint
    return "", ""


async def _find_cycles(world: LiveWorld, units: Collection[UnitDefinition]) -> list[Problem]:
    """Return a problem for each service that what makes the slices at boot is ordered after."""
    first, *_ = makers = appliers(world.manager)
    early: set[str] = set(makers)
    for each in makers if units else ():
        early |= await world.client.read_predecessors(UnitName(each))
    message = f"it starts before {first}, which makes the pod's slice when the host boots"
    hint = "a service that podslice and systemd need cannot be in a pod"
    return [
        Problem(where=each.name, message=message, hint=hint) for each in units if each.name in early
    ]


@asynccontextmanager
async def _undone_on_error(
    world: LiveWorld, candidates: Sequence[_Candidate]
) -> AsyncIterator[None]:
    """Restore the former drop-ins after an error."""
    try:
        yield
    except BaseException:
        for each in candidates:
            if each.before is None:
                remove_drop_in(each.service.unit, world.manager)
            elif each.before != each.service:
                write_drop_in(each.before, world.manager)
        with suppress(SystemdError):
            await world.client.reload()
        raise


def _find_overruling(service: AdoptedService, now: UnitDefinition) -> Problem | None:
    """Return why `Slice=` of a drop-in has no effect; None if it has."""
    if now.slice == service.slice:
        return None
    paths = list(now.drop_ins)
    ours = next((n for n, each in enumerate(paths) if each.endswith(f"/{DROP_IN}")), -1)
    later = []
    for each in paths[ours + 1 :]:
        with suppress(OSError):
            content = read_present(Path(each), limit_bytes=_BYTES_MAX) or b""
            if _SLICE_LINE.search(content):
                later.append(each)
    where = later[-1] if later else f"another file of {service.unit}"
    return Problem(
        where=service.unit,
        message=f"{where} states Slice={now.slice}, which takes precedence over {DROP_IN}",
        hint="remove that line; nothing was changed",
    )


async def _place(world: LiveWorld, service: AdoptedService, action: ServiceAction) -> PlacedService:
    """Return a service as systemd has it now."""
    now = await world.client.read_definition(service.unit)
    due = world.manager.path_of(control_group_of(UnitName(now.slice)))
    runs_in = now.control_group if now.is_running else ""
    return PlacedService(
        service=service,
        path=str(drop_in_path(service.unit, world.manager)),
        action=action,
        slice=now.slice,
        runs_in=runs_in,
        is_due=bool(runs_in) and str(PurePosixPath(runs_in).parent) != str(PurePosixPath(due)),
    )


async def _find_adopted(world: LiveWorld, name: str) -> AdoptedService | Problem:
    """Return an adopted service, or why there is none."""
    if not is_unit_name(name) or not name.endswith(_SERVICE):
        return Problem(where=name, message="not a service")
    found = read_drop_in(UnitName(name), world.manager)
    unit = await world.client.read_definition(UnitName(name))
    if found is None and unit.name != name:  # an alias
        found = read_drop_in(unit.name, world.manager)
    if found is not None:
        return found
    hint = f"see: systemctl{world.manager.flag} cat {name}"
    if unit.slice.startswith(f"{world.tree.root.removesuffix('.slice')}-"):
        return Problem(where=name, message=f"Slice={unit.slice} is not from podslice", hint=hint)
    return Problem(where=name, message="podslice adopt has not put it into a pod", hint=hint)
