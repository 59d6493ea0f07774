"""Observe one pod for its page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from podslice.cli import overview
from podslice.cli.overview import Overview
from podslice.cli.recorded_usage import RecordedUsage
from podslice.cli.views import status_lines, usage_table
from podslice.cli.views.pod_page import ContainerDetail, PodDetail
from podslice.cli.views.status_lines import UnitRow
from podslice.errors import PodsliceError
from podslice.model.desired import PodDecision
from podslice.model.naming import service_name
from podslice.model.pod import NO_PROGRESS, ContainerKind, Pod
from podslice.model.pod_service import PodService
from podslice.model.unit import UnitName
from podslice.processes import runtimes
from podslice.processes.runtimes import RuntimeContainer
from podslice.programs import NoAnswerError
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.world import LiveWorld
from podslice.systemd import journalctl
from podslice.systemd.journalctl import Entry, LogQuery, Query
from podslice.usage import stats
from podslice.usage.health import HealthProblem
from podslice.usage.stats import NodeStats
from podslice.usage.unit_status import EXITED, FAILED, HOLDS_PROCESSES, UnitStatus

INTERVAL_SEC = 0.25
"""The time in which the use of CPUs is measured."""
_EVENTS = 10
_MESSAGES = 5
_MESSAGES_READ = 50
"""podman's events about a container, up to ten for a start and its end, are left out of these."""


async def observe_pod(world: LiveWorld, found: Overview, key: str) -> PodDetail | None:
    """Return what is shown about an applied pod of an overview; None if it is not applied.

    Raises:
        HostError: /proc can't be read.
    """
    state = found.state
    decision = next((each for each in state.desired.pods if each.pod.key == key), None)
    if decision is None:
        return None
    state = await _with_start(world, decision, state)
    rows = status_lines.rows(found.units, found.placement, found.cgroups.usage)
    shown = tuple(row for row in rows if row.unit.pod == key)
    before = _measure(world, decision, state, found.services)
    # journalctl may take long, while top answers keys
    (events, events_problem), (containers, log_problem), _ = await asyncio.gather(
        asyncio.to_thread(_read_events, world, key),
        _read_containers(world, found, decision, shown),
        asyncio.sleep(INTERVAL_SEC),
    )
    now = _measure(world, decision, state, found.services)
    usage = usage_table.measure(now, before, {})
    progress = state.progress.get(decision.pod.uid, NO_PROGRESS)
    return PodDetail(
        decision=decision,
        units=shown,
        stats=now.pods[0] if now.pods else None,
        usage=usage.pods[0] if usage.pods else None,
        time_usec=now.time_usec,
        phase=_phase(key, state, shown),
        init_containers=tuple(
            (each.name, each.name in progress.done)
            for each in decision.pod.of_kind(ContainerKind.INIT)
        ),
        source=state.sources.get(decision.pod.uid) or found.wanted.sources.get(key),
        node_conditions=tuple(state.agent.conditions) if state.agent else (),
        recorded=RecordedUsage(world).read(key),
        events=events,
        events_problem=events_problem,
        containers=containers,
        log_problem=log_problem,
    )


class PodPage(NamedTuple):
    """What is known about a pod at one time."""

    pod: str
    detail: PodDetail | None = None
    """None if the pod is not applied, or there is an error."""
    problems: tuple[HealthProblem, ...] = ()
    error: str = ""


async def read_page(world: LiveWorld, pod: str) -> PodPage:
    """Observe a pod, for a page that is refreshed."""
    try:
        found = await overview.observe(world)
        detail = await observe_pod(world, found, pod)
    except PodsliceError as error:
        return PodPage(pod=pod, error=str(error))
    problems = tuple(each for each in found.problems if each.pod == pod)
    return PodPage(pod=pod, detail=detail, problems=problems)


async def _with_start(world: LiveWorld, decision: PodDecision, state: Assessment) -> Assessment:
    """Add the start of the pod's slice, which its file does not have."""
    units = state.observed.units
    found = await world.client.inspect(decision.slice) if decision.slice in units else None
    if found is None:
        return state
    started_usec = found.observed.started_usec
    unit = replace(units[decision.slice], started_usec=started_usec)
    observed = replace(state.observed, units={**units, decision.slice: unit})
    return replace(state, observed=observed)


def _measure(
    world: LiveWorld, decision: PodDecision, state: Assessment, services: Sequence[PodService]
) -> NodeStats:
    return stats.read_stats(
        (decision,), state.observed, world.config, cgroups=world.cgroups, services=services
    )


def _phase(key: str, state: Assessment, rows: Iterable[UnitRow]) -> str:
    """Return the phase of a pod, which is running while it has processes."""
    if state.agent and key in state.agent.terminating:
        return "terminating"
    if key in state.desired.initializing:
        return "init"
    if any(row.processes for row in rows):
        return "running"
    units = [row.unit for row in rows]
    if any(unit.has_failed for unit in units):
        return FAILED
    return EXITED if any(unit.state == EXITED for unit in units) else "not started"


async def _read_containers(
    world: LiveWorld, found: Overview, decision: PodDecision, rows: Iterable[UnitRow]
) -> tuple[dict[UnitName, ContainerDetail], str]:
    """Return more about each container by its unit, and why messages can't be read."""
    units = [row.unit for row in rows if row.unit.kind in HOLDS_PROCESSES]
    runtimes = [_in_runtime(found.runtimes, decision.pod, unit) for unit in units]
    logs = await asyncio.gather(
        *(
            _read_messages(world, decision, unit, held)
            for unit, held in zip(units, runtimes, strict=True)
        )
    )
    more = {
        unit.name: ContainerDetail(
            runtime=held,
            sample=world.cgroups.sample(unit.control_group) if unit.control_group else None,
            log=entries,
        )
        for unit, held, (entries, _) in zip(units, runtimes, logs, strict=True)
    }
    return more, next((problem for _, problem in logs if problem), "")


def _in_runtime(
    runtimes: Iterable[RuntimeContainer], pod: Pod, unit: UnitStatus
) -> RuntimeContainer | None:
    """Return the container of a runtime that a unit is for, preferably one that runs."""

    def is_for_unit(each: RuntimeContainer) -> bool:
        if each.container is not None:
            return each.container == unit.label
        group = unit.control_group
        return bool(group) and f"{each.control_group}/".startswith(f"{group}/")

    of_pod = (each for each in runtimes if each.pod_key == pod.key or each.pod_uid == pod.uid)
    return max(filter(is_for_unit, of_pod), key=lambda each: bool(each.pid), default=None)


async def _read_messages(
    world: LiveWorld, decision: PodDecision, unit: UnitStatus, held: RuntimeContainer | None
) -> tuple[tuple[Entry, ...], str]:
    """Return the last messages of a container, or why they can't be read."""
    if held is not None and held.runtime == "docker":
        with suppress(NoAnswerError):
            return await runtimes.docker_messages(held, _MESSAGES, world.manager), ""
    return await asyncio.to_thread(_read_journal, world, decision, unit, held)


def _read_journal(
    world: LiveWorld, decision: PodDecision, unit: UnitStatus, held: RuntimeContainer | None
) -> tuple[tuple[Entry, ...], str]:
    """Return the last messages of a container in the journal, or why they can't be read."""
    scopes = [each.scope for each in decision.scopes if each.name == unit.label]
    names = (unit.name, *(name for scope in scopes for name in (scope, service_name(scope))))
    query = LogQuery(
        units=tuple(dict.fromkeys(names)),
        containers=[held.id] if held else (),
        lines=_MESSAGES_READ,
        format="json",
        manager=world.manager,
    )
    try:
        return journalctl.read_messages(query)[-_MESSAGES:], ""
    except PodsliceError as error:
        return (), str(error)


def _read_events(world: LiveWorld, key: str) -> tuple[tuple[Entry, ...], str]:
    """Return the last events of a pod, or why they can't be read."""
    try:
        return tuple(
            journalctl.read_events(Query(pods=[key], lines=_EVENTS, manager=world.manager))
        ), ""
    except PodsliceError as error:
        return (), str(error)
