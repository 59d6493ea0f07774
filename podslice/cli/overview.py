"""The overview that `status` and `tree` print: units, values, usage, processes and problems."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from podslice.cli import configuration
from podslice.cli.node_health import find_problems
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.views import conditions, documents, pod_detail, status_documents, status_lines
from podslice.cli.views.pod_page import pod_page
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.wanted import read_wanted
from podslice.errors import Severity, printable
from podslice.model.reserved_values import TrialState
from podslice.processes import runtimes
from podslice.processes.location import read_placement
from podslice.processes.pod_services import observe_services
from podslice.reconcile.assess import assess_findings, read_findings
from podslice.reconcile.container_histories import container_histories
from podslice.reconcile.report import describe_skipped, describe_unconfirmed
from podslice.reconcile.request import Request
from podslice.reconcile.rollback import pending
from podslice.usage.health import problematic_pods
from podslice.usage.pod_facts import pod_facts
from podslice.usage.unit_status import EXITED, NOT_STARTED, unit_statuses, with_services

if TYPE_CHECKING:
    from podslice.cli.arguments import PodFilter
    from podslice.cli.options import Planning
    from podslice.cli.views.pod_detail import PodDetail
    from podslice.cli.views.style import Display
    from podslice.cli.wanted import WantedByManifests
    from podslice.kernel.cgroup import CgroupFs
    from podslice.model.pod_service import PodService
    from podslice.model.reserved_values import PendingTrial
    from podslice.model.unit import UnitName
    from podslice.processes.location import Placement
    from podslice.processes.runtimes import RuntimeContainer
    from podslice.reconcile.assessment import Assessment
    from podslice.reconcile.world import LiveWorld
    from podslice.usage.health import HealthProblem
    from podslice.usage.pod_facts import PodFacts
    from podslice.usage.unit_status import UnitStatus


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
    facts: Mapping[str, PodFacts] = field(default_factory=dict)
    """By the pod's key; empty where they are not shown."""

    @property
    def pods(self) -> frozenset[str]:
        """Return the pods that are applied or wanted."""
        pending = (each.pod for each in self.wanted.pending)
        return frozenset(pod.key for pod in self.state.current).union(pending)


def tolerate(planning: Planning, output: OutputFormat) -> Planning:
    """Return the options with another configuration if the configuration files are invalid.

    Raises:
        InputError: as `configuration.tolerate`.
    """
    is_listed = output in (OutputFormat.TABLE, OutputFormat.WIDE)
    return configuration.tolerate(planning, is_listed=is_listed)


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
    runtimes = await _list_runtimes(world, state)
    placement = read_placement(state, world.cgroups, runtimes, services=services)
    held = {(each.pod, each.container) for each in placement.others}
    units = with_services(units, services, state.desired, world.cgroups, held=held)
    trial = await pending(world.store, world.client)
    problems = await find_problems(world, state, wanted, units, placement, trial)
    return Overview(
        state=state,
        units=tuple(_with_ended(units, state, placement, held)),
        placement=placement,
        services=services,
        runtimes=runtimes,
        cgroups=world.cgroups,
        unconfirmed=trial,
        wanted=wanted,
        problems=problems,
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
    state = found.state
    slices = (each.slice for each in state.desired.pods if each.slice in state.observed.units)
    starts = dict(await asyncio.gather(*(_start_of(world, state, each) for each in slices)))
    held = {(each.pod, each.container): each.restarts for each in found.placement.others}
    return replace(found, facts=pod_facts(state.desired.pods, found.units, held, starts))


async def _start_of(world: LiveWorld, state: Assessment, slice_: UnitName) -> tuple[UnitName, int]:
    """Return the start of a slice, which its file does not have."""
    started_usec = state.observed.units[slice_].started_usec
    found = None if started_usec else await world.client.inspect(slice_)
    return slice_, found.observed.started_usec if found else started_usec


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
    affected = problematic_pods(found.problems)

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


async def _list_runtimes(world: LiveWorld, state: Assessment) -> tuple[RuntimeContainer, ...]:
    """Return the containers of podman and docker whose labels name a pod, also exited ones."""
    if not state.current:
        return ()

    return await runtimes.containers(
        state.current, manager=world.manager, on_note=world.on_note, with_exited=True
    )


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
    state = found.state
    emit(
        output,
        document=lambda: documents.document(
            **configuration.document(planning.origin),
            **conditions.health(found.problems, found.wanted.problems),
            **status_documents.status(state, found.units, found.placement, found.facts),
            **conditions.pending(found.wanted.pending),
            **conditions.foreign(state.foreign),
            **conditions.reserved(state.held),
            **conditions.unconfirmed(found.unconfirmed),
            **_pod_document(detail),
        ),
        lines=lambda display: _lines(found, shown, display, as_tree=as_tree, detail=detail),
        names=lambda: [
            unit.name for unit in found.units if unit.state not in (NOT_STARTED, EXITED)
        ],
    )
    for text in _notes(found):
        note(text)


def _lines(
    found: Overview,
    shown: PodFilter,
    display: Display,
    *,
    as_tree: bool,
    detail: PodDetail | None,
) -> Iterator[str]:
    if detail is not None:
        yield from pod_page(detail, display)
        yield from status_lines.problems(found.problems, display)
        return
    rows = status_lines.rows(found.units, found.placement, found.cgroups.usage)
    listed = (*rows, *status_lines.pending_rows(found.wanted.pending))
    none = "no problems" if shown.only_problems and not found.problems else "no pods"
    if not listed:
        yield none
    elif as_tree:
        yield from status_lines.tree(listed, display)
    else:
        now_usec = time.time_ns() // 1000
        yield from status_lines.status(listed, display, facts=found.facts, now_usec=now_usec)
    yield from status_lines.reserved(found.state.held, display)
    yield from status_lines.problems(found.problems, display)
    if not as_tree and (listed or found.problems):
        yield ""
        yield status_lines.summary(listed, len(found.problems))


def _pod_document(detail: PodDetail | None) -> documents.Document:
    if detail is None:
        return {}

    return {"pod": pod_detail.document(detail)}


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
