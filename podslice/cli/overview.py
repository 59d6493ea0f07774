"""What `status`, `tree` and `top` observe, with all problems, and the overview that is printed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from podslice.cli.extensions import find_health_facts, find_jobs, recorded_usage
from podslice.cli.options import Planning
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.pods import PodFilter
from podslice.cli.report import configuration_entry, document
from podslice.cli.views import status_report, status_view, usage_table
from podslice.cli.views.changes import foreign_entry, reserved_entries
from podslice.cli.views.pod_page import ContainerDetail, PodDetail, pod_page
from podslice.cli.views.pod_report import pod_report
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.status_report import StatusReport
from podslice.cli.views.status_view import UnitRow
from podslice.cli.views.style import Display
from podslice.cli.wanted import WantedByManifests, is_enabled, read_wanted
from podslice.errors import PodsliceError, Severity, printable
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.programs import NoAnswerError
from podslice.model.container_exit import ContainerHistory
from podslice.model.desired import PendingTrial, PodDecision, TrialState
from podslice.model.naming import podman_service, service_name
from podslice.model.node_state import JobState
from podslice.model.pod import NO_PROGRESS, ContainerKind, Pod
from podslice.model.unit import UnitName
from podslice.policy.allocatable import validate_node
from podslice.reconcile.assess import Assessment, Request, assess_findings, read_findings
from podslice.reconcile.report import describe_skipped, describe_unconfirmed
from podslice.reconcile.rollback import pending
from podslice.reconcile.world import LiveWorld
from podslice.store.store import Store
from podslice.systemd import journal
from podslice.systemd.journal import Entry, LogQuery, Query, reading_command
from podslice.usage import health, runtimes, stats
from podslice.usage.health import FailingContainer, HealthKind, HealthProblem
from podslice.usage.location import (
    Placement,
    PodService,
    Stray,
    observe_placed,
    observe_services,
    read_placement,
)
from podslice.usage.runtimes import RuntimeContainer
from podslice.usage.stats import NodeStats
from podslice.usage.unit_status import (
    ACTIVATING,
    EXITED,
    FAILED,
    HOLDS_PROCESSES,
    NOT_STARTED,
    UNOBSERVED,
    WITHOUT_UNIT,
    PodFacts,
    UnitStatus,
    pod_facts,
    unit_statuses,
    with_services,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of the world, with the status and the processes of every unit, and all problems."""

    state: Assessment
    units: tuple[UnitStatus, ...]
    placement: Placement
    services: tuple[PodService, ...]
    """The adopted services of pods, which are among the units."""
    runtimes: tuple[RuntimeContainer, ...]
    """The containers of podman and docker that belong to pods."""
    cgroups: CgroupFs
    unconfirmed: PendingTrial | None
    wanted: WantedByManifests
    problems: tuple[HealthProblem, ...]
    jobs: tuple[JobState, ...] = ()
    facts: Mapping[str, PodFacts] = field(default_factory=dict)
    """By the pod's key; empty where they are not shown."""

    @property
    def pods(self) -> frozenset[str]:
        """Return the pods that are applied or wanted."""
        pending = (each.pod for each in self.wanted.pending)
        return frozenset(pod.key for pod in self.state.current).union(pending)


async def observe(world: LiveWorld) -> Overview:
    """Observe everything once."""
    findings = await read_findings(world)
    state = await assess_findings(world, Request(by_operator=True, expects_unused=True), findings)
    wanted = await read_wanted(world, findings, state)
    units = unit_statuses(
        state.desired,
        state.observed,
        world.cgroups,
        container_histories(world.store, state.desired.pods),
    )
    services = await observe_services(world, (pod.key for pod in state.current))
    unanswered: list[str] = []
    listed = await runtimes.containers(
        state.current, manager=world.manager, on_note=unanswered.append, with_exited=True
    )
    for text in unanswered:
        world.on_note(text)
    placement = read_placement(state, world.cgroups, listed, services=services)
    held = {(each.pod, each.container) for each in placement.others}
    units = with_services(units, services, state.desired, world.cgroups, held=held)
    trial = await pending(world.store, world.client)
    problems = await find_problems(world, state, wanted, units, placement, trial)
    return Overview(
        state=state,
        units=tuple(
            # a runtime may run a container without a unit, except the containers of a pod with quadlets
            replace(each, state=UNOBSERVED)
            if unanswered and each.state == NOT_STARTED and each.pod not in wanted.started
            else each
            for each in _with_ended(units, state, placement, held)
        ),
        placement=placement,
        services=services,
        runtimes=listed,
        cgroups=world.cgroups,
        unconfirmed=trial,
        wanted=wanted,
        problems=problems,
        jobs=await find_jobs(world, state),
    )


def _with_ended(
    units: Iterable[UnitStatus],
    state: Assessment,
    placement: Placement,
    held: Collection[tuple[str, str | None]],
) -> Iterator[UnitStatus]:
    """Yield the units, with how a runtime's container ended where no other was started since."""
    keys = {pod.uid: pod.key for pod in state.current}
    ended = {
        (each.pod_key or keys.get(each.pod_uid or ""), each.container): each
        for each in placement.ended
    }
    for unit in units:
        found = ended.get((unit.pod, unit.label)) if unit.state == NOT_STARTED else None
        if found is None or found.last_exit is None or (unit.pod, unit.label) in held:
            yield unit
        else:
            last = found.last_exit
            yield replace(unit, state=EXITED, last_exit=last, restarts=found.restarts)


async def observe_for(output: OutputFormat, world: LiveWorld) -> Overview:
    """Observe everything that is shown in this format."""
    found = await observe(world)
    if output in (OutputFormat.TABLE, OutputFormat.NAME):
        return found
    pods = found.state.desired.pods
    state = await _with_starts(world, found.state, pods)
    held = {(each.pod, each.container): each.restarts for each in found.placement.others}
    facts = pod_facts(pods, found.units, held, state.observed.units)
    return replace(found, state=state, facts=facts)


async def _with_starts(
    world: LiveWorld, state: Assessment, pods: Iterable[PodDecision]
) -> Assessment:
    """Add the starts of the pods' slices, which the files of the slices do not have."""
    units = state.observed.units
    lacking = [
        each.slice for each in pods if each.slice in units and not units[each.slice].started_usec
    ]
    starts = await asyncio.gather(*map(world.client.read_start, lacking))
    added = {
        name: replace(units[name], started_usec=start)
        for name, start in zip(lacking, starts, strict=True)
    }
    return replace(state, observed=replace(state.observed, units={**units, **added}))


def select(found: Overview, shown: PodFilter) -> Overview:
    """Return the overview of some pods, with the slices above them.

    Problems that do not affect a certain pod remain: they may affect the pods that are shown.

    Raises:
        InputError: a requested pod is neither applied nor wanted.
    """
    if shown.is_total:
        return found
    shown = shown.resolve(found.pods)
    objects = {each.object for each in found.problems} if shown.only_problems else set()
    affected = health.problematic_pods(found.problems)

    def is_shown(pod: str) -> bool:
        return shown.selects(pod) and (pod in affected or not shown.only_problems)

    placement = found.placement
    return replace(
        found,
        units=tuple(_with_parents(found.units, is_shown, objects)),
        placement=replace(
            placement, others=tuple(each for each in placement.others if is_shown(each.pod))
        ),
        wanted=replace(
            found.wanted, pending=tuple(each for each in found.wanted.pending if is_shown(each.pod))
        ),
        problems=tuple(
            each for each in found.problems if each.pod is None or shown.selects(each.pod)
        ),
        jobs=tuple(each for each in found.jobs if is_shown(each.pod)),
    )


def _with_parents(
    units: Sequence[UnitStatus], is_shown: Callable[[str], bool], others: Collection[str]
) -> Iterator[UnitStatus]:
    """Yield the units of pods, and others by name, with the slices above them, in tree order."""
    above: list[UnitStatus] = []
    for unit in units:
        above = [each for each in above if each.depth < unit.depth]
        if unit.pod is None:
            above.append(unit)
        if unit.name in others if unit.pod is None else is_shown(unit.pod):
            yield from above
            above = []
            if unit.pod is not None:
                yield unit


def emit_overview(
    planning: Planning,
    found: Overview,
    output: OutputFormat,
    shown: PodFilter,
    *,
    as_tree: bool,
    detail: PodDetail | None = None,
) -> None:
    """Print the overview, or the details of one pod, and notes on standard error."""
    emit(
        output,
        document=lambda: document(_report(planning, found, detail)),
        lines=lambda display: _lines(found, shown, display, as_tree=as_tree, detail=detail),
        names=lambda: [unit.name for unit in found.units if unit.state not in WITHOUT_UNIT],
    )
    for text in _notes(found):
        note(text)


def _report(planning: Planning, found: Overview, detail: PodDetail | None) -> StatusReport:
    state = found.state
    return StatusReport(
        configuration=configuration_entry(planning.origin),
        healthy=not found.problems,
        problems=status_report.health_entries(found.problems),
        warnings=status_report.warning_entries(found.wanted.problems),
        units=status_report.unit_entries(found.units, found.placement, found.facts),
        **status_report.state_fields(state, found.placement),
        pending=status_report.pending_entries(found.wanted.pending),
        foreign=foreign_entry(state.foreign),
        reserved_slices=reserved_entries(state.held),
        unconfirmed=status_report.trial_entry(found.unconfirmed),
        jobs=found.jobs,
        pod=pod_report(detail) if detail else None,
    )


def _lines(
    found: Overview, shown: PodFilter, display: Display, *, as_tree: bool, detail: PodDetail | None
) -> Iterator[str]:
    if detail is not None:
        yield from pod_page(detail, display)
        yield from status_view.jobs(found.jobs, display)
        yield from status_view.problems(found.problems, display)
        return
    rows = status_view.rows(found.units, found.placement, found.cgroups.usage)
    listed = (*rows, *status_view.pending_rows(found.wanted.pending))
    none = "no problems" if shown.only_problems and not found.problems else "no pods"
    if not listed:
        yield none
    elif as_tree:
        yield from status_view.tree(listed, display)
    else:
        now_usec = time.time_ns() // 1000
        yield from status_view.status(listed, display, facts=found.facts, now_usec=now_usec)
        yield from status_view.jobs(found.jobs, display)
    yield from status_view.reserved(found.state.held, display)
    yield from status_view.problems(found.problems, display)
    if not as_tree and (listed or found.problems):
        yield ""
        yield status_view.summary(listed, len(found.problems))


def _notes(found: Overview) -> Iterator[str]:
    """Yield what is worth knowing and not a problem."""
    state = found.state
    for pod in sorted(state.desired.initializing):
        yield f"pod {pod} is in its init phase; see: podslice phase {pod}"
    for skipped in state.plan.skipped:
        if skipped.unit in state.recorded_values.units and not skipped.blocks:
            yield describe_skipped(skipped)
    if found.unconfirmed and found.unconfirmed.state is TrialState.ARMED:
        yield "; ".join(describe_unconfirmed(found.unconfirmed))
    for key in state.agent.terminating if state.agent else ():
        yield f"pod {printable(key)} is terminating (within its grace period)"
    for each in found.wanted.problems:
        if each.severity is Severity.WARNING:
            yield problem_line(each)


_AGENT, _APPLY = UnitName("podslice-agent.service"), UnitName("podslice-apply.service")


async def find_problems(
    world: LiveWorld,
    state: Assessment,
    wanted: WantedByManifests,
    units: tuple[UnitStatus, ...],
    placement: Placement,
    trial: PendingTrial | None,
) -> tuple[HealthProblem, ...]:
    """Return all problems."""
    of_node = validate_node(world.node, world.config)
    has_ended = trial is not None and trial.state is not TrialState.ARMED
    return health.problems_of(
        health.HealthFacts(
            state=state,
            flag=world.manager.flag,
            units=units,
            configuration=(*world.origin.problems, *of_node),
            stopped_agent=await _find_stopped_agent(world, state, wanted.directories),
            failing=(
                *await _find_services(world, state, units),
                *_find_ended(state, placement.ended),
            ),
            strays=tuple(map(_stray, placement.strays)),
            manifests=tuple(each for each in wanted.problems if each not in of_node),
            sources=wanted.sources,
            started=wanted.started,
            pending=wanted.pending,
            unwanted=wanted.unwanted,
            unconfirmed=describe_unconfirmed(trial) if trial is not None and has_ended else None,
            **await find_health_facts(world, state),
        )
    )


def _stray(stray: Stray) -> HealthProblem:
    return HealthProblem(
        kind=HealthKind.STRAY,
        object=stray.pod or stray.what,
        message=status_view.describe_stray(stray),
        hint=stray.hint,
        pod=stray.pod,
    )


async def _find_stopped_agent(
    world: LiveWorld, state: Assessment, directories: tuple[str, ...]
) -> tuple[HealthProblem, ...]:
    """Return the problem if an agent should run and does not.

    The directories may also be applied at boot only: then `podslice-apply.service` is active, and
    the agent is not enabled.
    """
    if state.agent is not None:
        return ()
    listed = {unit.name: unit for unit in await world.client.list_units((_AGENT, _APPLY))}
    agent, apply = (listed.get(name) for name in (_AGENT, _APPLY))
    message = "it is not running"
    hint = f"to start it: systemctl{world.manager.flag} start podslice-agent"
    is_applied = apply is not None and apply.active_state == "active"
    if agent is not None and agent.active_state == "failed":
        message = "it has failed"
        hint = f"to see why: {reading_command(_AGENT, world.manager)}; {hint}"
    elif not directories or (is_applied and not is_enabled(_AGENT, world.manager)):
        return ()
    if directories:
        message += f"; changes in {', '.join(directories)} are not applied"
    return (HealthProblem(HealthKind.AGENT_STOPPED, health.AGENT, message, hint),)


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


def container_histories(
    store: Store, pods: Iterable[PodDecision]
) -> dict[UnitName, ContainerHistory]:
    """Return the histories of all containers, by their scopes and their services."""
    found = {}
    for pod in pods:
        histories = store.histories.read(pod.pod.uid)
        for container in pod.scopes:
            if container.name in histories:
                history = histories[container.name]
                found[container.scope] = found[service_name(container.scope)] = history
    return found


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
    state = await _with_starts(world, state, [decision])
    rows = status_view.rows(found.units, found.placement, found.cgroups.usage)
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
    source = state.sources.get(decision.pod.uid) or found.wanted.sources.get(key)
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
        source=source,
        apply_command=health.apply_command(
            source, world.manager.flag, starts=key in found.wanted.started
        )
        if source
        else None,
        node_conditions=tuple(state.agent.conditions) if state.agent else (),
        recorded=recorded_usage(world)(key),
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
        found = await observe(world)
        detail = await observe_pod(world, found, pod)
    except PodsliceError as error:
        return PodPage(pod=pod, error=str(error))
    problems = tuple(each for each in found.problems if each.pod == pod)
    return PodPage(pod=pod, detail=detail, problems=problems)


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
        return journal.read_messages(query)[-_MESSAGES:], ""
    except PodsliceError as error:
        return (), str(error)


def _read_events(world: LiveWorld, key: str) -> tuple[tuple[Entry, ...], str]:
    """Return the last events of a pod, or why they can't be read."""
    try:
        return tuple(
            journal.read_events(Query(pods=[key], lines=_EVENTS, manager=world.manager))
        ), ""
    except PodsliceError as error:
        return (), str(error)
