"""`podslice phase`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, Namespace, Output, PodName
from podslice.cli.host import applied_pod, configuration_document, tolerate
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.progress import emit_report
from podslice.cli.session import in_world, locked
from podslice.cli.views import documents, tables
from podslice.features.run.pod_phase import Phase, read_phase, set_phase, why_no_phase
from podslice.model.config import Rules
from podslice.model.event import Kind
from podslice.model.unit import PropertyValue
from podslice.reconcile.report import Report
from podslice.reconcile.world import LiveWorld


class PhaseName(StrEnum):
    """Values of `--set`."""

    INIT = "init"
    RUNNING = "running"


@planning_options
def phase(
    planning: Planning,
    pod: PodName,
    wanted: Annotated[
        PhaseName | None,
        typer.Option(
            "--set", help="Set the phase: init begins the init phase again, running ends it."
        ),
    ] = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice phase`.

    During the init phase the limits at the pod level do not apply.
    """
    if wanted is None:
        planning = tolerate(planning)
    key = applied_pod(planning, pod, namespace)
    if wanted is None:
        found = in_world(planning, lambda world: read_phase(world, key))
        emit(
            output,
            document=lambda: documents.document(
                **configuration_document(planning.origin),
                pod=found.pod.pod.key,
                phase=_name(found).value,
                init_containers=[
                    {"name": name, "done": done} for name, done in found.init_containers
                ],
            ),
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
