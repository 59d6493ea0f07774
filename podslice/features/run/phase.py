"""The init phase of a pod: `podslice phase`, and the end of init containers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, Namespace, Output, PodName
from podslice.cli.host import applied_pod, tolerate
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.progress import emit_report
from podslice.cli.report import ConfigurationEntry, configuration_entry, document
from podslice.cli.session import in_world, locked
from podslice.cli.views import tables
from podslice.cli.views.changes import ChangesReport
from podslice.cli.views.pod_report import InitContainerEntry, init_container_entries
from podslice.errors import HostError, InputError, Problem
from podslice.features.run.target import find_pod
from podslice.model.config import Rules
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.pod import NO_PROGRESS, ContainerKind, InitProgress
from podslice.model.unit import PropertyValue
from podslice.policy import desire
from podslice.reconcile.assess import assess
from podslice.reconcile.converge import settle
from podslice.reconcile.report import Outcome, Report, describe_result
from podslice.reconcile.world import LiveWorld

INIT_DONE = "__init_done"
"""The internal verb that systemd runs after a detached init container."""

SUCCESS = {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}
"""How systemd reports an exit status of 0. Source: systemd.exec(5), Environment Variables."""


class PhaseName(StrEnum):
    """Phases that can be set."""

    INIT = "init"
    RUNNING = "running"


@dataclass(frozen=True, kw_only=True)
class PhaseReport:
    """The phase of a pod."""

    configuration: ConfigurationEntry | None = None
    pod: str
    phase: PhaseName
    init_containers: tuple[InitContainerEntry, ...]


AnyReport = PhaseReport | ChangesReport


@configured
def phase(
    planning: Planning,
    pod: PodName,
    wanted: Annotated[
        PhaseName | None,
        typer.Argument(metavar="[PHASE]", help="init or running: the phase to set."),
    ] = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice phase`.

    During the init phase the limits at the pod level do not apply.

    Examples:
        podslice phase web
        podslice phase web running
    """
    if wanted is None:
        planning = tolerate(planning)
    key = applied_pod(planning, pod, namespace)
    if wanted is None:
        found = in_world(planning, lambda world: read_phase(world, key))
        report = PhaseReport(
            configuration=configuration_entry(planning.origin),
            pod=found.pod.pod.key,
            phase=_name(found),
            init_containers=init_container_entries(found.init_containers),
        )
        emit(
            output,
            document=lambda: document(report),
            lines=lambda _: _lines(found, planning.config.rules),
            names=lambda: [_name(found)],
        )
        return DONE

    async def work(world: LiveWorld) -> Report:
        with locked(world.store), manual_log("phase", world.store, world.manager) as log:
            interrupts.begin(f"the phase may have been set; see: podslice phase {key}")
            log.announce(pods=[key])
            report = await set_phase(world, key, initializing=wanted is PhaseName.INIT)
            log.report(Kind.PHASE_CHANGED, f"the phase of pod {key} is set to {wanted}", pod=key)
        return report

    return emit_report(in_world(planning, work), output)


def _name(found: Phase) -> PhaseName:
    return PhaseName.INIT if found.initializing else PhaseName.RUNNING


def _lines(found: Phase, rules: Rules) -> Iterator[str]:
    yield f"pod {found.pod.pod.key}  {_name(found)}"
    if why := why_no_phase(found, rules):
        yield f"  {why}"
    rows = [
        (f"init container {name}", "done" if done else "pending")
        for name, done in found.init_containers
    ]
    later = found.pod.properties
    now = found.pod.init_properties if found.initializing else None
    rows.append(("applies now", _properties(later if now is None else now)))
    if now is not None:
        rows.append(("applies later", _properties(later)))
    yield from tables.columns(rows, indent="  ")


def _properties(properties: tuple[PropertyValue, ...]) -> str:
    return " ".join(map(tables.format_property, properties)) or "nothing"


@configured
def init_done(
    planning: Planning, pod: PodName, container: Annotated[str, typer.Argument(metavar="CONTAINER")]
) -> int:
    """Record the result of a detached init container that systemd reports."""
    if any(os.environ.get(name) != value for name, value in SUCCESS.items()):
        return DONE
    return record_init_end(tolerate(planning), pod, container)


def record_init_end(planning: Planning, key: str, container: str) -> int:
    """Record that an init container has ended with 0, and return the exit code."""

    async def work(world: LiveWorld) -> Report:
        with locked(world.store), manual_log("run", world.store, world.manager) as log:
            interrupts.begin(f"the end of container {container} may not be recorded")
            log.announce(pods=[key])
            report = await finish_container(world, key, container)
            text = f"init container {container} of pod {key} has exited with 0"
            log.report(Kind.PHASE_CHANGED, text, pod=key, fields={"CONTAINER": container})
        return report

    report = in_world(planning, work)
    for result in report.results:
        if result.outcome is not Outcome.DONE:
            note(describe_result(result))
    return report.exit_code


class Phase(NamedTuple):
    """The phase of a pod, and the progress of its init containers."""

    pod: PodDecision
    progress: InitProgress
    initializing: bool

    @property
    def init_containers(self) -> tuple[tuple[str, bool], ...]:
        """The init containers in order, each with whether it has exited with 0."""
        containers = self.pod.pod.of_kind(ContainerKind.INIT)
        return tuple((each.name, each.name in self.progress.done) for each in containers)


async def read_phase(world: LiveWorld, key: str) -> Phase:
    """Return the phase of a pod.

    Raises:
        HostError: the pod is not applied.
    """
    assessment = await assess(world)
    pod = find_pod(assessment, key)
    return Phase(
        pod=pod,
        progress=assessment.progress.get(pod.pod.uid, NO_PROGRESS),
        initializing=key in assessment.desired.initializing,
    )


async def finish_container(world: LiveWorld, key: str, container: str) -> Report:
    """Record that an init container is done; the last one ends the init phase.

    The caller holds the lock. A pod that no longer exists is ignored.

    Raises:
        ForeignRoot: the root belongs to a kubelet.
    """
    await world.claim(world.client)
    try:
        phase = await read_phase(world, key)
    except HostError:
        return Report()
    after = desire.finish(phase.pod.pod, phase.progress, container)
    world.store.save_progress(phase.pod.pod.uid, after)
    # Values change only with the last init container, and not if the phase was ended by hand.
    if not after.over or phase.progress.over:
        return Report()
    return await settle(world, key)


async def set_phase(world: LiveWorld, key: str, *, initializing: bool) -> Report:
    """End the init phase of a pod, or restart it. The caller holds the lock.

    Raises:
        ForeignRoot: the root belongs to a kubelet.
        HostError: the pod is not applied.
        InputError: the pod has no init phase.
    """
    await world.claim(world.client)
    phase = await read_phase(world, key)
    if why := why_no_phase(phase, world.config.rules):
        hint = f"there is nothing to set; see: podslice phase {key}"
        raise InputError(Problem(where=f"pod {key}", message=why, hint=hint))
    progress = NO_PROGRESS if initializing else phase.progress._replace(over=True)
    world.store.save_progress(phase.pod.pod.uid, progress)
    return await settle(world, key)


def why_no_phase(phase: Phase, rules: Rules) -> str:
    """Return why a pod has no init phase; empty where it has one."""
    if rules is Rules.KUBERNETES:
        return "under the rules of Kubernetes a pod's limits bind from the start"
    return "" if phase.init_containers else "it has no init containers, so its limits always bind"
