"""`podslice adopt`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import ContainerName, Namespace, Output, PodName, RestartService
from podslice.cli.host import applied_pod
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.session import in_world, locked
from podslice.cli.views import documents, status_view
from podslice.cli.views.tables import columns, list_first
from podslice.cli.wanted import note_limits_at_boot
from podslice.errors import InputError, Problem, invalid
from podslice.features.run import adoption
from podslice.features.run.adoption import Adopted
from podslice.features.run.service_adoption import PlacedService, adopt_services, restart_due
from podslice.features.run.services_view import emit_services, log_services
from podslice.model.event import Kind
from podslice.reconcile.world import LiveWorld

_NAMED_MAX = 10
_DIGITS_MAX = 20
_PID_MAX = 2**22
"""Source: proc_sys_kernel(5), pid_max."""


@planning_options
def adopt(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: PodName,
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="PID|UNIT", help="Processes to move, or services to put into the pod for good."
        ),
    ],
    container: ContainerName = None,
    namespace: Namespace = None,
    restart: RestartService = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice adopt`.

    Processes are moved into the scope of a container; the exit status is 0 only if all are there.
    For a service a drop-in is written, by which it starts in the pod, also after a reboot.
    """
    pids, units = _split(target)
    if pids and restart:
        raise invalid("only services can be restarted", "omit it", where="--restart")
    key = applied_pod(planning, pod, namespace)
    if pids:
        return _adopt_processes(planning, key, container, pids, output)
    return _adopt_services(planning, key, container, units, output, may_restart=restart)


def _split(targets: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the process ids, or the units.

    Raises:
        InputError: there are both, or a number is not a process id.
    """
    numbers = [each for each in targets if each.isascii() and each.isdecimal()]
    units = [each for each in targets if each not in numbers]
    if numbers and units:
        message = f"{numbers[0]} is a process, {units[0]} a unit"
        raise invalid(message, "adopt them one after the other", where="PID|UNIT")
    if problems := [
        Problem(where=each, message="not a process id", hint=f"1 to {_PID_MAX}")
        for each in numbers
        if not 1 <= int(each[:_DIGITS_MAX]) <= _PID_MAX
    ]:
        raise InputError(problems)
    return list(map(int, numbers)), units


def _adopt_services(
    planning: Planning,
    key: str,
    container: str | None,
    units: Sequence[str],
    output: OutputFormat,
    *,
    may_restart: bool,
) -> int:
    """Write the drop-ins of services, and restart those that run elsewhere."""

    async def work(world: LiveWorld) -> tuple[PlacedService, ...]:
        with locked(world.store), manual_log("adopt", world.store, world.manager) as log:
            interrupts.begin("drop-ins may have been written; see: podslice status")
            placed = await adopt_services(world, key, container, units)
            log_services(log, placed)
        return await restart_due(world, placed) if may_restart else placed

    placed = in_world(planning, work)
    code = emit_services(placed, planning.manager, output, with_text=True)
    note_limits_at_boot(planning, key)
    return code


def _adopt_processes(
    planning: Planning, key: str, container: str | None, pids: list[int], output: OutputFormat
) -> int:
    """Move processes into a container's scope."""

    async def work(world: LiveWorld) -> Adopted:
        with locked(world.store), manual_log("adopt", world.store, world.manager) as log:
            interrupts.begin("processes may have been moved; see: podslice status")
            adopted = await adoption.adopt(world, key, container, pids)
            moved = [
                each
                for each in adopted.processes
                if each.outcome is adoption.AdoptionOutcome.ADOPTED
            ]
            if moved:
                moved_pids = " ".join(str(each.pid) for each in moved)
                names = [f"{each.pid} ({each.name})" for each in moved]
                text = f"moved {list_first(names, _NAMED_MAX)} into {adopted.unit}"
                log.report(
                    Kind.PROCESSES_ADOPTED,
                    text,
                    pod=key,
                    unit=adopted.unit,
                    fields={"PIDS": moved_pids},
                )
        return adopted

    adopted = in_world(planning, work)
    emit(
        output,
        document=lambda: documents.document(**status_view.adopted_document(adopted)),
        lines=lambda _: _lines(adopted),
        names=lambda: [adopted.unit],
    )
    return adopted.exit_code


def _lines(adopted: Adopted) -> Iterator[str]:
    """Yield each process with its outcome, then the number of each outcome."""
    rows = [(str(each.pid), each.name, each.outcome, each.why) for each in adopted.processes]
    yield from columns([("PID", "NAME", "OUTCOME", ""), *rows])
    outcomes = [each.outcome for each in adopted.processes]
    counts = ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes))
    yield f"{adopted.unit}: {counts}"
