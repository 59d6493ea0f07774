"""Put existing services into a pod for good, and release them: checks and verification."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from podslice.cli.views.runtime_options import appliers
from podslice.errors import InputError, Problem, SystemdError
from podslice.features.run.drop_ins import DropIn, change, make_service, make_step
from podslice.features.run.target import Place, find_container, find_slice
from podslice.kernel.files import read_present
from podslice.model.desired import PodDecision
from podslice.model.naming import SCOPE_PREFIX, container_of
from podslice.model.properties import OOM_SCORE_ADJ, annotation_key
from podslice.model.unit import (
    UnitDefinition,
    UnitKind,
    UnitName,
    complete_name,
    is_unit_name,
)
from podslice.plan import Action
from podslice.reconcile.assess import Assessment, assess
from podslice.reconcile.world import LiveWorld, refuse
from podslice.store.adopted_services import (
    DROP_IN,
    AdoptedService,
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


async def adopt_services(
    world: LiveWorld, key: str, container: str | None, names: Iterable[str]
) -> list[DropIn]:
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
    steps = [
        replace(
            make_step(Action.WRITE, each.service, world.manager),
            is_changed=each.service != each.before,
        )
        for each in candidates
    ]
    for each in candidates:
        if each.before is None:
            await _note_rise(world, pod, each.service)
    async with _undone_on_error(world, candidates):
        placed = await change(world, steps)
        found = [await world.client.read_definition(each.service.unit) for each in candidates]
        services = [each.service for each in candidates]
        if problems := [each for each in map(_find_overruling, services, found) if each]:
            raise InputError(problems)
    return placed


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


async def release_services(world: LiveWorld, names: Iterable[str]) -> list[DropIn]:
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
    services = [each for each in found if isinstance(each, AdoptedService)]
    return await change(world, [make_step(Action.REMOVE, each, world.manager) for each in services])


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
        # Two services of this call cannot be the same container either.
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
    # systemd reads drop-ins in this order, and the last Slice= counts.
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
