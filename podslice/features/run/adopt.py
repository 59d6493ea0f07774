"""`podslice adopt` and `podslice release`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from podslice.cli import interrupts, wanted
from podslice.cli.arguments import ContainerName, Namespace, Output, PodName, RestartService, Units
from podslice.cli.completion import complete_units
from podslice.cli.host import applied_pod, tolerate
from podslice.cli.manual_log import ManualLog, manual_log
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.report import document
from podslice.cli.session import in_world, locked
from podslice.cli.views.changes import rest_lines
from podslice.cli.views.layout import fold
from podslice.cli.views.style import Display
from podslice.cli.views.tables import columns, list_first
from podslice.errors import InputError, Problem, invalid
from podslice.features.run import adoption, drop_ins
from podslice.features.run.adoption import Adopted
from podslice.features.run.drop_ins import DropIn, ServiceResult
from podslice.features.run.service_adoption import adopt_services, release_services
from podslice.model.config import Config
from podslice.model.event import Kind
from podslice.reconcile.report import PodResult, describe_result
from podslice.reconcile.world import LiveWorld

_NAMED_MAX = 10
_DIGITS_MAX = 20
_PID_MAX = 2**22
"""Source: proc_sys_kernel(5), pid_max."""
_HANGING = "    "
_AGENT = "podslice-agent.service"


@dataclass(frozen=True, kw_only=True)
class ServicesReport:
    """Services that were adopted or released."""

    services: tuple[ServiceResult, ...]


AdoptReport = Adopted | ServicesReport


@configured
def adopt(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: PodName,
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="PID|UNIT",
            help="Services, or processes.",
            autocompletion=complete_units,
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

    Examples:
        podslice adopt web nginx.service --restart
        podslice adopt shop 4711 -c worker
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
        # A number with more digits is not a process id, and Python refuses to convert thousands of them.
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

    async def work(world: LiveWorld) -> list[_Placed]:
        with locked(world.store), manual_log("adopt", world.store, world.manager) as log:
            interrupts.begin("drop-ins may have been written; see: podslice status")
            placed = await adopt_services(world, key, container, units)
            _log(log, placed)
        # Without the lock: a service that starts in a pod pulls in podslice-apply.service, which
        # takes it.
        return await _restarted(world, placed, may_restart=may_restart)

    code = _emit(in_world(planning, work), output, with_text=True)
    _note_limits_at_boot(planning, key)
    return code


def _note_limits_at_boot(planning: Planning, key: str) -> None:
    """Print what a pod needs so that its services start in its slice at boot, if it is missing."""
    manager, config = planning.manager, planning.config
    directories = wanted.manifest_directories(config, manager) or Config().manifests
    files = wanted.pods_of_manifests(planning)
    inside = {str(Path(path).parent) for path, pods in files.items() if key in pods}
    if not manager.is_user and Config().manifests[0] in inside:
        return  # a service with the drop-in starts what applies them
    if not inside:
        remedy = f"copy its manifest to {directories[0]}"
    elif wanted.is_enabled(_AGENT, manager) or manager.is_user:
        return
    else:
        remedy = f"systemctl enable {_AGENT}"
    when = "with the user's service manager" if manager.is_user else "at boot"
    note(f"pod {key} is not applied {when}, so that its services start without limits; {remedy}")


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
        document=lambda: document(adopted),
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


@configured
def release(
    planning: Planning,
    unit: Units,
    restart: RestartService = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice release`.

    A service that runs stays in the pod until it is restarted.

    Examples:
        podslice release nginx.service
        podslice release nginx.service --restart
    """
    planning = tolerate(planning)

    async def work(world: LiveWorld) -> list[_Placed]:
        interrupts.begin("drop-ins may have been removed; see: systemctl daemon-reload")
        with locked(world.store), manual_log("release", world.store, world.manager) as log:
            released = await release_services(world, unit)
            _log(log, released)
        return await _restarted(world, released, may_restart=restart)

    return _emit(in_world(planning, work), output)


_Placed = tuple[DropIn, str]
"""A service, and why it could not be restarted."""


def _log(log: ManualLog, placed: Iterable[DropIn]) -> None:
    for each in placed:
        log.pod_step(PodResult(step=each))


async def _restarted(
    world: LiveWorld, placed: Iterable[DropIn], *, may_restart: bool
) -> list[_Placed]:
    """Restart the services for which that is due, if they may be; return all as they are then."""
    return [await drop_ins.restart(world, each) if may_restart else (each, "") for each in placed]


def _emit(services: Sequence[_Placed], output: OutputFormat, *, with_text: bool = False) -> int:
    """Print services, `with_text` with their drop-ins, and return the exit code."""
    report = ServicesReport(services=tuple(step.result("", error) for step, error in services))
    emit(
        output,
        document=lambda: document(report),
        lines=lambda display: _service_lines(services, display, with_text=with_text),
        names=lambda: [step.name for step, _ in services],
    )
    return int(any(error for _, error in services))


def _service_lines(
    services: Iterable[_Placed], display: Display, *, with_text: bool
) -> Iterator[str]:
    """Yield what was done to services, and what is left to do; `with_text` with the drop-ins."""
    for step, error in services:
        text = f"{step.path} needs no change: {step.place}"
        if step.is_changed:
            text = describe_result(PodResult(step=step))
        yield from fold(text, display, hanging=_HANGING)
        if with_text:
            yield from (f"{_HANGING}{line}".rstrip() for line in step.service.text.split("\n")[:-1])
        rest, severity = step.describe_rest(error)
        if with_text and not rest and not step.runs_in:
            rest = f"{step.name} is not running"
        yield from rest_lines(rest, severity, display)
