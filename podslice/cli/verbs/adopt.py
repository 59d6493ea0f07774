"""`podslice adopt`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import ContainerName, Namespace, Output, PodName
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.session import applied_pod, in_world, locked
from podslice.cli.views import documents, status_documents
from podslice.cli.views.tables import columns
from podslice.model.event import Kind
from podslice.reconcile.world import LiveWorld

if TYPE_CHECKING:
    from podslice.processes.adoption import Adopted, Adoption

_NAMED_MAX = 10
_PID_MAX = 2**22
"""Source: proc_sys_kernel(5), pid_max."""

Pids = Annotated[
    list[int],
    typer.Argument(metavar="PID", min=1, max=_PID_MAX, help="Processes to move."),
]


@planning_options
def adopt(
    planning: Planning,
    pod: PodName,
    pid: Pids,
    container: ContainerName = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Move running processes into a container's scope.

    The exit status is 0 only if all processes are in the scope.
    """
    from podslice.processes import adoption

    key = applied_pod(planning, pod, namespace)

    async def work(world: LiveWorld) -> Adopted:
        with locked(world.store), manual_log("adopt", world.store, world.manager) as log:
            interrupts.begin("processes may have been moved; see: podslice status")
            adopted = await adoption.adopt(world, key, container, pid)
            moved = [
                each
                for each in adopted.processes
                if each.outcome is adoption.AdoptionOutcome.ADOPTED
            ]
            if moved:
                pids = " ".join(str(each.pid) for each in moved)
                text = f"moved {_list(moved)} into {adopted.unit}"
                log.report(
                    Kind.PROCESSES_ADOPTED, text, pod=key, unit=adopted.unit, fields={"PIDS": pids}
                )
        return adopted

    adopted = in_world(planning, work)
    emit(
        output,
        document=lambda: documents.document(**status_documents.adopted(adopted)),
        lines=lambda _: _lines(adopted),
        names=lambda: [adopted.unit],
    )
    return adopted.exit_code


def _list(moved: Sequence[Adoption]) -> str:
    """List processes, the first ones by name."""
    named = ", ".join(f"{each.pid} ({each.name})" for each in moved[:_NAMED_MAX])
    return named if len(moved) <= _NAMED_MAX else f"{named} and {len(moved) - _NAMED_MAX} more"


def _lines(adopted: Adopted) -> Iterator[str]:
    """Yield each process with its outcome, then the number of each outcome."""
    rows = [(str(each.pid), each.name, each.outcome, each.why) for each in adopted.processes]
    yield from columns([("PID", "NAME", "OUTCOME", ""), *rows])
    outcomes = [each.outcome for each in adopted.processes]
    counts = ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes))
    yield f"{adopted.unit}: {counts}"
